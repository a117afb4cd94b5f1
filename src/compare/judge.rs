//! Derives comparisons and a verdict from results.

use super::advice::advice;
use super::files;
use super::nodes::{Entry, NodeFile};
use super::options::{CompareOptions, PerNode};
use super::report::{
    Comparison, Divergence, EVERYTHING, LogitsReport, NodeReport, Record, Report, Status, Verdict, label,
};
use crate::npy;
use ggml_core::bound;
use ggml_core::metrics::Bound;
use ggml_core::metrics::{Distance, distance, distance_in_rows};
use ggml_core::precision::Precision;
use ggml_core::{Error, Graph, Result, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Different greedy tokens are no disagreement if the reference's two best logits are closer than this many
/// times the RMS error of the logits: either of them may win.
const MARGIN_FACTOR: f64 = 10.0;

/// Measure of agreement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Measure {
    /// Logits, with their bound.
    Logits(Bound),
    /// Outputs of a graph by name, each with its bound.
    Outputs(HashMap<String, Bound>),
}

impl Measure {
    /// Builds the measure of a model's logits, with the bounds of [`bound`].
    pub(super) fn logits(precision: Precision, quantised: bool) -> Measure {
        Measure::Logits(bound::of_graph(precision, quantised))
    }

    pub(super) fn outputs(precision: Precision, graph: &Graph) -> Measure {
        let named = |&output: &TensorId| {
            // Results of nodes exist for computing nodes only: for a view, add the node that it views.
            let names = [output, graph.producer(output)].map(|id| graph.tensor(id).name.clone());
            names.map(|name| (name, bound::of_output(graph, output, precision)))
        };
        Measure::Outputs(graph.outputs().iter().flat_map(named).collect())
    }

    /// Returns the largest of its NMSE bounds.
    fn bound(&self) -> Option<f64> {
        match self {
            Measure::Logits(bound) => Some(bound.nmse),
            Measure::Outputs(bounds) => bounds.values().map(|bound| bound.nmse).max_by(f64::total_cmp),
        }
    }
}

/// Compares the results of a report's backends and sets the verdict.
pub(super) fn judge(report: &mut Report, options: &CompareOptions, measure: &Measure) {
    let reference = reference(report).filter(|r| r.status == Status::Ok);
    let others = report.records.iter().filter(|r| r.status == Status::Ok && !is_reference(report, r));
    let comparisons = match reference {
        Some(reference) => others.map(|record| compare(record, reference, options, measure)).collect(),
        None => Vec::new(),
    };
    report.comparisons = comparisons;
    give_verdict(report);
}

fn is_reference(report: &Report, record: &Record) -> bool {
    (&record.backend, record.offload, record.epoch) == (&report.reference, EVERYTHING, 0)
}

fn reference(report: &Report) -> Option<&Record> {
    report.records.iter().find(|r| is_reference(report, r))
}

/// Sets the verdict of a report on graphs, from its records and comparisons.
pub(super) fn give_verdict(report: &mut Report) {
    let mut findings: Vec<String> = report.records.iter().filter_map(failure).collect();
    findings.extend(report.records.iter().filter_map(instability));
    findings.extend(report.records.iter().flat_map(variance));
    let differs = |c: &Comparison| {
        let why = c.disagreement.as_ref()?;
        let file = c.first_divergence.as_ref().and_then(|d| d.rerun.as_ref());
        let rerun = file.map(|command| format!("; again, alone: {command}")).unwrap_or_default();
        Some(format!("{} differs from {}: {why}{rerun}", label(&c.lhs, c.offload), c.rhs))
    };
    findings.extend(report.comparisons.iter().filter_map(differs));
    if !reference(report).is_some_and(|r| r.status == Status::Ok)
        && !findings.iter().any(|f| f.starts_with(&report.reference))
    {
        findings.push(format!("{} has no result: nothing to compare with", report.reference));
    }
    let rounds = |c: &Comparison| {
        let look = c.second_look.as_ref().filter(|look| look.rounding)?;
        Some(format!("{}: {}", label(&c.lhs, c.offload), look.words()))
    };
    let notes = report.comparisons.iter().filter_map(rounds).collect();
    let compared = !report.comparisons.is_empty();
    conclude(report, findings, compared);
    report.verdict.notes = notes;
}

/// Sets the verdict from all findings. If nothing was compared, the absence of differences is no agreement.
pub(super) fn conclude(report: &mut Report, mut findings: Vec<String>, compared: bool) {
    findings.extend(report.records.iter().filter(|_| report.require_all).filter_map(absence));
    if report.missing > 0 {
        findings.push(format!("{} of the planned runs were not made", report.missing));
    }
    if findings.is_empty() && !compared {
        findings.push(format!("nothing was compared with {}", report.reference));
    }
    let findings = counted(findings);
    let agree = findings.is_empty();
    report.verdict = Verdict { agree, findings, notes: Vec::new(), advice: advice(report) };
}

/// Describes a run whose bits change when the work is repeated.
fn instability(record: &Record) -> Option<String> {
    (record.unstable > 0)
        .then(|| format!("{}: {} values change when the work is repeated", record.label(), record.unstable))
}

/// Describes the methods of computing a prompt that change its logits.
pub(super) fn variance(record: &Record) -> impl Iterator<Item = String> + '_ {
    record.variants.iter().filter(|v| v.changed).map(|v| {
        let d = Distance { nmse: v.nmse, row: v.row, ..Distance::default() };
        format!("{}: the logits change with {}: {}", record.label(), v.name, v.bound.excess(&d))
    })
}

/// Removes duplicate findings and appends their count.
fn counted(findings: Vec<String>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for finding in findings {
        match counts.iter_mut().find(|(known, _)| *known == finding) {
            Some((_, count)) => *count += 1,
            None => counts.push((finding, 1)),
        }
    }
    let text = |(finding, count)| if count == 1 { finding } else { format!("{finding} ({count} times)") };
    counts.into_iter().map(text).collect()
}

/// Describes a requested backend that is absent or cannot do the work.
fn absence(record: &Record) -> Option<String> {
    let is_absent = record.status == Status::Unsupported && record.case.is_none() && record.epoch == 0;
    is_absent.then(|| format!("{} cannot run here: {}", record.label(), record.headline()))
}

/// Describes a run that failed.
pub(super) fn failure(record: &Record) -> Option<String> {
    if matches!(record.status, Status::Ok | Status::Unsupported) {
        return None;
    }
    let at = |what: &str, value: &Option<String>| {
        value.as_ref().map(|v| format!(" {what} {v}")).unwrap_or_default()
    };
    Some(format!(
        "{}: {}{}{}{}{}: {}",
        record.label(),
        record.status,
        at("in case", &record.case),
        at("in phase", &record.phase),
        at("at node", if record.node == record.case { &None } else { &record.node }),
        evidence(record),
        record.message.as_deref().unwrap_or("no message")
    ))
}

/// Describes the last actions of a process that died; an error message contains them already.
fn evidence(record: &Record) -> String {
    let mut text = String::new();
    if matches!(record.status, Status::Crash | Status::Hang) {
        text.extend(record.step.iter().map(|step| format!(" in {step}")));
        text.extend(record.last_call.iter().map(|call| format!(" after the call of {call}")));
        text.extend(record.library.iter().map(|library| format!(" ({library})")));
    }
    text
}

fn compare(record: &Record, reference: &Record, options: &CompareOptions, measure: &Measure) -> Comparison {
    let mut comparison = Comparison {
        lhs: record.backend.clone(),
        rhs: reference.backend.clone(),
        offload: record.offload,
        epoch: record.epoch,
        bound: measure.bound(),
        ..Comparison::default()
    };
    comparison.disagreement = match results(&mut comparison, record, reference, options, measure) {
        Ok(rms) => disagreement(&comparison, options.per_node, measure, (record, reference), rms),
        Err(error) => Some(format!("the results cannot be judged: {error}")),
    };
    comparison
}

/// Compares all results of two runs and returns the root mean square error of a logit.
fn results(
    comparison: &mut Comparison,
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
    measure: &Measure,
) -> Result<f64> {
    let mut rms = 0.0;
    if let Measure::Logits(_) = measure {
        rms = compare_logits(comparison, record, reference, options)?;
        comparison.greedy_divergence_at = differing_tokens(record, reference).next();
    }
    if matches!(measure, Measure::Outputs(_)) || options.per_node != PerNode::Off {
        let path = |r: &Record| files::nodes(&options.out, &r.stem);
        let (got, want) = (path(record), path(reference));
        comparison.nodes = compare_nodes(&got, &want)?;
        let (got, want) = (files::of_step(&got), files::of_step(&want));
        if want.exists() {
            let steps = compare_nodes(&got, &want)?.into_iter();
            comparison.nodes.extend(steps.map(|node| NodeReport { step: true, ..node }));
        }
    }
    let first = comparison.nodes.iter().find(|n| n.is_out_of_bounds());
    comparison.first_divergence = first.map(Divergence::new);
    Ok(rms)
}

/// Returns the positions at which a run's best token differs from the reference's. Both runs continued with
/// the reference's token.
fn differing_tokens<'a>(record: &'a Record, reference: &'a Record) -> impl Iterator<Item = usize> + 'a {
    let pairs = record.token_ids.iter().zip(&reference.token_ids).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at)
}

/// Computes the distances of the logits of the prompt and of the decode steps, and returns the root mean
/// square error of a logit.
fn compare_logits(
    comparison: &mut Comparison,
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
) -> Result<f64> {
    let path = |r: &Record| files::logits(&options.out, &r.stem);
    let (_, n, got) = npy::read(&path(record))?;
    let (rows, _, want) = npy::read(&path(reference))?;
    if want.is_empty() {
        return Err(Error::model("logits", 0, "at least one").with_path(path(reference)));
    }
    // The first token is chosen from the prompt's logits.
    let steps = reference.token_ids.len().saturating_sub(1).min(rows);
    let prompt = (rows - steps) * n;
    let split = |values: &'_ [f32]| values.len().min(prompt);
    let [(got_prompt, got_steps), (want_prompt, want_steps)] =
        [&got, &want].map(|values| values.split_at(split(values)));
    comparison.logits = Some(LogitsReport::new(got_prompt, want_prompt, n));
    comparison.steps = (steps > 0).then(|| LogitsReport::new(got_steps, want_steps, n));
    Ok(rms_error(&distance(&got, &want), &want))
}

/// Returns the root mean square error per logit.
fn rms_error(d: &Distance, want: &[f32]) -> f64 {
    let norm: f64 = want.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    (d.nmse * norm / want.len().max(1) as f64).sqrt()
}

fn disagreement(
    c: &Comparison,
    per_node: PerNode,
    measure: &Measure,
    (record, reference): (&Record, &Record),
    rms: f64,
) -> Option<String> {
    if let Some(n) = c.nodes.iter().find(|n| n.status != Status::Ok) {
        let why = n.message.as_deref().unwrap_or("no reason given");
        return Some(format!("node '{}' ({}) cannot be judged: {why}", n.node, n.op));
    }
    if c.logits.is_none() && c.nodes.is_empty() {
        return Some("there is no result to compare".into());
    }
    // Chained results include the errors of all earlier nodes, so only isolated results are held to the bound
    // of a node. A node out of its bound explains more than the outputs that follow from it.
    if per_node == PerNode::Isolated {
        if let Some(why) = differing_node(c) {
            return Some(why);
        }
    } else if let Measure::Outputs(bounds) = measure {
        let mut results = c.nodes.iter().filter_map(|n| Some((n, *bounds.get(&n.node)?)));
        if let Some((n, bound)) = results.find(|(n, bound)| !bound.holds(&n.distance())) {
            return Some(format!("output '{}' has {}", n.node, bound.excess(&n.distance())));
        }
    }
    if let Measure::Logits(bound) = measure {
        let logits = [("prompt", c.logits), ("steps after the prompt", c.steps)];
        let mut logits = logits.into_iter().filter_map(|(of, l)| Some((of, l?)));
        if let Some((of, l)) = logits.find(|(_, l)| !bound.holds(&l.distance())) {
            return Some(format!("the logits of the {of} have {} ({l})", bound.excess(&l.distance())));
        }
    }
    let margin = |at: usize| f64::from(reference.margins.get(at).copied().unwrap_or(0.0));
    let at = differing_tokens(record, reference).find(|&at| margin(at) > MARGIN_FACTOR * rms)?;
    Some(format!(
        "token {at} differs although the two best logits are {:.3} apart (RMS error {rms:.1e})",
        margin(at)
    ))
}

/// Describes the first node out of bounds, with the number of others.
pub(super) fn differing_node(c: &Comparison) -> Option<String> {
    let mut out = c.nodes.iter().filter(|n| n.is_out_of_bounds());
    let first = out.next()?;
    let of = match (first.step, first.members.len()) {
        (false, 0) => "",
        (true, 0) => " of a step",
        (false, _) => ", computed in a group,",
        (true, _) => " of a step, computed in a group,",
    };
    let what = format!("node '{}' ({}){of} has {}", first.node, first.op, first.describe_error());
    let others: BTreeSet<&str> = out.map(|n| n.node.as_str()).filter(|name| *name != first.node).collect();
    // Groups follow the single nodes: if the first node out of bounds is a group, its members are correct by
    // themselves.
    let alone = match first.members.len() {
        0 => "",
        _ => "; its members are right when they are computed alone",
    };
    Some(match others.len() {
        0 => format!("{what}{alone}"),
        1 => format!("{what}{alone} (and another node)"),
        n => format!("{what}{alone} (and {n} other nodes)"),
    })
}

/// Compares every node of the reference with the same node of a run, then the results of the run's groups. A
/// result that cannot be compared gets the reason instead. A node without a result of its own is skipped if a
/// group computed it.
fn compare_nodes(got: &Path, want: &Path) -> Result<Vec<NodeReport>> {
    let (got, want) = (NodeFile::open(got)?, NodeFile::open(want)?);
    let mut nodes = Vec::new();
    for entry in &want.entries {
        let own = got.find(&entry.name);
        if own.is_none() && got.groups_of(&entry.name).next().is_some() {
            continue;
        }
        nodes.push(compare_results((&got, own), (&want, entry), &entry.op, &entry.bound));
    }
    for group in got.entries.iter().filter(|entry| !entry.members.is_empty()) {
        let Some(entry) = want.find(&group.name) else { continue };
        let mut node = compare_results((&got, Some(group)), (&want, entry), &group.op, &group.bound);
        node.members = group.members.clone();
        nodes.push(node);
    }
    Ok(nodes)
}

/// Compares a result with the reference's.
fn compare_results(
    (got, own): (&NodeFile, Option<&Entry>),
    (want, entry): (&NodeFile, &Entry),
    op: &str,
    bound: &Bound,
) -> NodeReport {
    let mut node = NodeReport {
        node: entry.name.clone(),
        op: op.into(),
        dtype: entry.dtype.name().into(),
        operand_type: entry.operand_type.name().into(),
        shape: entry.ne,
        nmse: f64::INFINITY,
        row: f64::INFINITY,
        max_abs: f64::INFINITY,
        ulp: u64::MAX,
        ..NodeReport::default()
    };
    node.hold_to(bound);
    let distance_from =
        |other| Ok::<_, Error>(distance_in_rows(&got.values(other)?, &want.values(entry)?, entry.ne[0]));
    match own.map(distance_from) {
        None => node.fail("there is no result of it"),
        Some(Ok(distance)) => node.set(&distance),
        Some(Err(error)) => node.fail(error),
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::op::unary::Activation;
    use ggml_core::{DType, Source};
    use serde_json::json;

    /// Judges a report in which the reference and the CPU have both succeeded.
    fn judged(out: &Path, measure: &Measure) -> Report {
        let options = CompareOptions { out: out.into(), ..CompareOptions::default() };
        let done = |name: &str| Record {
            backend: name.into(),
            stem: name.into(),
            offload: EVERYTHING,
            status: Status::Ok,
            ..Record::default()
        };
        let mut report = Report::new(&options);
        report.records = vec![done("reference"), done("cpu")];
        judge(&mut report, &options, measure);
        assert_eq!(report.verdict.agree, report.verdict.findings.is_empty());
        report
    }

    fn finding(out: &Path, measure: &Measure) -> String {
        judged(out, measure).verdict.findings.join("; ")
    }

    #[test]
    fn logits_that_are_not_there_are_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let measure = Measure::logits(Precision::Fast, false);
        let text = finding(dir.path(), &measure);
        assert!(text.starts_with("cpu differs from reference: the results cannot be judged: "), "{text}");
        for backend in ["reference", "cpu"] {
            npy::write(&files::logits(dir.path(), backend), 0, 0, &[]).unwrap();
        }
        assert!(finding(dir.path(), &measure).contains("expected at least one"));
        for backend in ["reference", "cpu"] {
            npy::write(&files::logits(dir.path(), backend), 1, 2, &[1.0, 2.0]).unwrap();
        }
        assert_eq!(finding(dir.path(), &measure), "");
    }

    #[test]
    fn a_node_that_cannot_be_judged_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let mut graph = Graph::new();
        let x = graph.leaf("x", DType::F32, [2, 1, 1, 1], Source::Input).unwrap();
        let y = graph.unary(Activation::Relu, x).unwrap();
        graph.output(y).unwrap();
        let measure = Measure::outputs(Precision::Fast, &graph);
        let entry = |name: &str, dtype: &str, bytes: usize| {
            json!({"name": name, "op": "RELU", "operand_type": "F32", "dtype": dtype, "ne": [2, 1, 1, 1],
                "bound": Bound::F32,
                "offset": 0, "bytes": bytes})
        };
        let write = |backend: &str, entries: &[serde_json::Value]| {
            let text = format!("{}\n12345678", json!(entries));
            std::fs::write(files::nodes(dir.path(), backend), text).unwrap();
        };
        let name = graph.tensor(y).name.as_str();
        write("reference", &[entry(name, "F32", 8)]);
        for (entries, expected) in [
            (vec![entry(name, "F32", 8)], ""),
            (vec![], "cannot be judged: there is no result of it"),
            (vec![entry(name, "F32", 4)], "cannot be judged: "),
            (vec![entry(name, "Q8_0", 8)], "cannot be judged: "),
            (vec![entry(name, "I64", 8)], "one that has a decoder"),
        ] {
            write("cpu", &entries);
            let text = finding(dir.path(), &measure);
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{entries:?}: {text}");
        }
        write("reference", &[]);
        assert!(finding(dir.path(), &measure).contains("there is no result to compare"));
    }
}
