//! The backend that is recommended: of those that agree in every run, the one with the shortest measured request.

use crate::backends::BackendName;
use crate::compare::report::{Record, Report, Run, Status};
use std::collections::BTreeMap;

/// End of the name of a card of virtual-kfd.
const VIRTUAL: &str = " (virtual)";

/// Names of Vulkan devices that are programs on the processor: Mesa's llvmpipe, Google's SwiftShader.
const SOFTWARE: [&str; 2] = ["llvmpipe", "SwiftShader"];

/// Name of the processor's backend.
const CPU: &str = "cpu";

/// Returns the recommendation as a clause, with what it is based on: "use --backend hip (1.2 x vulkan, 5.1 x cpu;
/// 0.42 s a request)". `None` if no backend can be recommended.
///
/// Emulated cards, drivers that compute on the processor, the reference and backends that compute nothing are never
/// recommended.
pub(in crate::compare) fn recommended(report: &Report) -> Option<String> {
    let good = agreeing(report);
    let mut candidates: Vec<&str> = good.iter().map(String::as_str).collect();
    // Agreement is mutual: another backend confirms the one that it was compared with.
    if !good.is_empty() && is_sound(report, &report.reference) && !good.contains(&report.reference) {
        candidates.push(&report.reference);
    }
    candidates.retain(|name| exclusion(report, name).is_none());
    let Some(first) = preferred(&candidates) else { return without_candidates(report) };
    let mut times = request_times(report, &candidates);
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = times.first().copied();
    let name = best.map_or(first, |(name, _)| name);
    let mut reasons = Vec::new();
    if let Some((_, seconds)) = best {
        let ratios =
            times.iter().skip(1).map(|(other, slower)| format!("{} x {other}", digits(slower / seconds)));
        reasons.push(ratios.collect::<Vec<_>>().join(", "));
        let of = if report.work.starts_with("model") { "request" } else { "run" };
        reasons.push(format!("{} s a {of}", digits(seconds)));
    }
    if name == CPU && candidates.len() == 1 {
        reasons.insert(0, nothing_faster(report, &good));
    }
    reasons.retain(|reason| !reason.is_empty());
    Some(match reasons.as_slice() {
        [] => format!("use --backend {name}"),
        reasons => format!("use --backend {name} ({})", reasons.join("; ")),
    })
}

/// Returns the backends of which every run succeeded and agrees, without the one that they were compared with.
pub(super) fn agreeing(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for c in &report.comparisons {
        if !names.contains(&c.lhs) {
            names.push(c.lhs.clone());
        }
    }
    let agrees =
        |name: &str| report.comparisons.iter().filter(|c| c.lhs == name).all(|c| c.disagreement.is_none());
    names.retain(|name| agrees(name) && is_sound(report, name));
    names
}

/// True if the backend ran, and every run of it has valid results that do not change.
fn is_sound(report: &Report, name: &str) -> bool {
    let mut own = report.records.iter().filter(|r| r.backend == name).peekable();
    own.peek().is_some() && own.all(Record::is_sound)
}

/// Returns the reason why a backend is not recommended, as the end of a sentence about it; `None` if it may be.
pub(in crate::compare) fn exclusion(report: &Report, name: &str) -> Option<String> {
    let mut devices = report.backends.iter().filter(|backend| backend.name == name).map(|b| &b.device);
    match name.parse() {
        Ok(BackendName::Reference | BackendName::Auto | BackendName::Null(_)) => Some(String::new()),
        Ok(name) if name.is_emulated() => Some("is emulated".into()),
        // `hip` in a process that has the library of virtual-kfd.
        _ if devices.clone().any(|device| device.ends_with(VIRTUAL)) => Some("is emulated".into()),
        _ => {
            let software = |device: &String| SOFTWARE.into_iter().find(|part| device.contains(part));
            let software = devices.find_map(software)?;
            Some(format!("is {software}, which runs on the processor"))
        }
    }
}

/// Returns the first device, or else the processor.
fn preferred<'a>(candidates: &[&'a str]) -> Option<&'a str> {
    candidates.iter().find(|name| **name != CPU).or_else(|| candidates.first()).copied()
}

/// Says that no card is left, with the reasons of those that agree.
fn nothing_faster(report: &Report, good: &[String]) -> String {
    let excluded = good.iter().filter_map(|name| Some((name, exclusion(report, name)?)));
    let reasons: Vec<String> =
        excluded.filter(|(_, why)| !why.is_empty()).map(|(name, why)| format!("{name} {why}")).collect();
    match reasons.as_slice() {
        [] => "nothing faster agrees".into(),
        reasons => format!("nothing faster agrees: {}", reasons.join(", ")),
    }
}

/// Recommends the processor if nothing is known against it. Nothing is recommended if the results that the others
/// were compared with are invalid.
fn without_candidates(report: &Report) -> Option<String> {
    if !is_sound(report, &report.reference) {
        return None;
    }
    let faster = nothing_faster(report, &agreeing(report));
    if report.reference == CPU {
        return Some(format!("use --backend {CPU} ({faster})"));
    }
    let ran = |r: &&Record| r.backend == CPU && r.status != Status::Unsupported;
    let was_not_compared = !report.records.iter().any(|r| ran(&r));
    was_not_compared.then(|| format!("use --backend {CPU} ({faster}; {CPU} was not compared)"))
}

/// Returns the seconds of a request of each backend that was measured, without loading: the median over the runs with
/// the offload of the shortest median. Only runs of the same work on the same machine are compared: of all such
/// groups that with the most backends counts.
fn request_times<'a>(report: &Report, candidates: &[&'a str]) -> Vec<(&'a str, f64)> {
    let mut groups: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in report.records.iter().filter(|r| r.case.is_none() && request(r).is_some()) {
        let key = comparable(report, record);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, records)) => records.push(record),
            None => groups.push((key, vec![record])),
        }
    }
    let measured = groups.iter().map(|(_, records)| {
        let times = candidates.iter().filter_map(|name| Some((*name, shortest(records, name)?)));
        times.collect::<Vec<_>>()
    });
    // The first of equally large groups.
    measured.reduce(|most, next| if next.len() > most.len() { next } else { most }).unwrap_or_default()
}

/// Returns what has to be equal for times to be comparable.
fn comparable(report: &Report, record: &Record) -> String {
    let run = report.runs.iter().find(|run| run.run_id == record.run_id);
    run.map_or(String::new(), |run| {
        let Run { work, precision, settings, host, .. } = run;
        format!("{work};{precision};{settings:?};{};{}", host.name, host.cpu)
    })
}

/// Returns the median of a backend's requests, with the offload of which it is shortest.
fn shortest(records: &[&Record], name: &str) -> Option<f64> {
    let mut by_offload: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.backend == name) {
        by_offload.entry(record.offload).or_default().extend(request(record));
    }
    by_offload.into_values().filter_map(median).min_by(f64::total_cmp)
}

/// Returns the seconds of prompt and generation of a run with results.
fn request(record: &Record) -> Option<f64> {
    let seconds = record.prompt_s? + record.eval_s.unwrap_or(0.0);
    (record.status == Status::Ok && seconds > 0.0).then_some(seconds)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// Formats a positive number with two significant digits.
fn digits(x: f64) -> String {
    let decimals = (1.0 - x.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{x:.decimals$}")
}
