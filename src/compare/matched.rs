//! Matched runs: runs of a backend that are equal but for one thing, and what that thing changes.

use super::circumstances::{self, DRIVER, Input, Inputs, LIBRARY, MODEL, PROMPT};
use super::report::{Record, Report, Status};
use std::collections::BTreeMap;

/// Runs of a backend with the same inputs.
struct Configuration<'a> {
    backend: &'a str,
    inputs: Inputs,
    by_offload: BTreeMap<i64, Vec<&'a Record>>,
}

/// Numbers of completed and of all runs, on both sides of a pair.
type Outcome = [(usize, usize); 2];

/// Returns a sentence for each pair of configurations of a backend that differ in one input, those with different
/// outcomes first.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let configurations = configurations(report);
    let mut sentences = Vec::new();
    for (at, right) in configurations.iter().enumerate() {
        for left in configurations[..at].iter().filter(|left| left.backend == right.backend) {
            let Some(input) = only_difference(&left.inputs, &right.inputs) else { continue };
            for (outcome, offloads) in outcomes(left, right) {
                let is_decisive = has_difference(outcome);
                // That two models end alike says nothing.
                if is_decisive || input != MODEL {
                    sentences.push((is_decisive, describe(&input, [left, right], outcome, &offloads)));
                }
            }
        }
    }
    sentences.sort_by_key(|(is_decisive, _)| !is_decisive);
    sentences.into_iter().map(|(_, sentence)| sentence).collect()
}

fn configurations(report: &Report) -> Vec<Configuration<'_>> {
    let mut all: Vec<Configuration<'_>> = Vec::new();
    for (record, backend) in
        report.backend_records().filter(|(r, _)| !matches!(r.status, Status::Unsupported | Status::Ended))
    {
        let Some(run) = report.runs.iter().find(|run| run.run_id == record.run_id) else { continue };
        let inputs = circumstances::inputs(report, run, backend);
        let at = all.iter().position(|c| c.backend == record.backend && c.inputs == inputs);
        let at = at.unwrap_or_else(|| {
            all.push(Configuration { backend: &record.backend, inputs, by_offload: BTreeMap::new() });
            all.len() - 1
        });
        all[at].by_offload.entry(record.offload).or_default().push(record);
    }
    all
}

/// Returns the name of the only input in which two runs differ. With a model, its tokens differ too, and with a
/// library its versions. Versions that one run did not come to know are not compared.
fn only_difference(left: &Inputs, right: &Inputs) -> Option<String> {
    let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
    let mut names: Vec<&String> = names.filter(|name| left.get(*name) != right.get(*name)).collect();
    let is_known = |name: &str| left.contains_key(name) && right.contains_key(name);
    names.retain(|name| ![DRIVER, LIBRARY].contains(&name.as_str()) || is_known(name));
    for (input, consequence) in [(MODEL, PROMPT), (LIBRARY, DRIVER)] {
        if names.iter().any(|name| *name == input) {
            names.retain(|name| *name != consequence);
        }
    }
    match names.as_slice() {
        [one] => Some((*one).clone()),
        _ => None,
    }
}

/// Returns the outcomes that two configurations have with the same number of units on the device, each with these
/// numbers.
fn outcomes(left: &Configuration<'_>, right: &Configuration<'_>) -> Vec<(Outcome, Vec<i64>)> {
    let completed =
        |records: &[&Record]| (records.iter().filter(|r| r.status == Status::Ok).count(), records.len());
    let mut outcomes: Vec<(Outcome, Vec<i64>)> = Vec::new();
    for (offload, records) in &left.by_offload {
        let Some(others) = right.by_offload.get(offload) else { continue };
        let outcome = [completed(records), completed(others)];
        match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, offloads)) => offloads.push(*offload),
            None => outcomes.push((outcome, vec![*offload])),
        }
    }
    outcomes
        .iter_mut()
        .for_each(|(_, offloads)| offloads.sort_by_key(|n| if *n < 0 { i64::MAX } else { *n }));
    outcomes
}

/// True if the shares of completed runs differ.
fn has_difference([(left, of_left), (right, of_right)]: Outcome) -> bool {
    left * of_right != right * of_left
}

fn describe(input: &str, pair: [&Configuration<'_>; 2], outcome: Outcome, offloads: &[i64]) -> String {
    let [left, right] = pair;
    let values = [(left, right), (right, left)].map(|(own, other)| value(input, &own.inputs, &other.inputs));
    let [(left_ok, left_all), (right_ok, right_all)] = outcome;
    let numbers: Vec<String> = offloads.iter().map(i64::to_string).collect();
    let offload = match numbers.as_slice() {
        [one] if one == "-1" => String::new(),
        [one] => format!(" at offload {one}"),
        [first @ .., last] => format!(" at offload {} and {last}", first.join(", ")),
        [] => String::new(),
    };
    let backend = left.backend;
    let [left, right] = values;
    if input == MODEL {
        let does = |configuration: &Configuration<'_>, (ok, all): (usize, usize)| {
            let mut records = offloads.iter().filter_map(|n| configuration.by_offload.get(n)).flatten();
            let failed = records.any(|r| r.status == Status::Error);
            match ok {
                0 if failed => format!("fails ({all} of {all} runs)"),
                0 => format!("dies ({all} of {all} runs)"),
                ok => format!("completes ({ok} of {all} runs)"),
            }
        };
        let (left_does, right_does) = (does(pair[0], outcome[0]), does(pair[1], outcome[1]));
        return format!("{backend}: model-dependent: {left} {left_does}, {right} {right_does}{offload}");
    }
    format!(
        "{backend}: {input} is the only difference ({left} | {right}): {left_ok} of {left_all} against {right_ok} of \
         {right_all} complete{offload}"
    )
}

/// Returns the words for the value of an input, without what another run has too.
fn value(input: &str, own: &Inputs, other: &Inputs) -> String {
    let empty = Input::default();
    let (own, other) = (own.get(input).unwrap_or(&empty), other.get(input).unwrap_or(&empty));
    let differing: Vec<_> = own.values.iter().filter(|value| !other.values.contains(value)).collect();
    // A model is known by its file, and by its contents if both files have one name.
    if let Some(label) = own.label.as_ref().filter(|_| input == MODEL) {
        let facts: Vec<String> = differing.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let is_enough = own.label != other.label;
        return if is_enough { label.clone() } else { format!("{label} ({})", facts.join(", ")) };
    }
    let words = differing.iter().map(
        |(name, value)| {
            if name == input { value.clone() } else { format!("{name} {value}") }
        },
    );
    match words.collect::<Vec<_>>() {
        words if !words.is_empty() => words.join(", "),
        _ if own.is_variable || other.is_variable => "unset".into(),
        _ => "not recorded".into(),
    }
}
