//! The verdict of a report: its findings and notes in words.

use crate::compare::advice::advice;
use crate::compare::report::{Comparison, Record, Report, Status, Verdict, label};
use ggml_core::metrics::Distance;

/// Sets the verdict of a report on graphs, from its records and comparisons.
pub(in crate::compare) fn set_verdict(report: &mut Report) {
    let mut findings: Vec<String> = report.records.iter().filter_map(failure).collect();
    findings.extend(report.records.iter().filter_map(instability));
    findings.extend(report.records.iter().flat_map(variance));
    findings.extend(report.records.iter().filter_map(without_perplexity));
    findings.extend(report.records.iter().filter_map(invalid));
    let differs = |c: &Comparison| {
        let why = c.disagreement.as_ref()?;
        let file = c.first_divergence.as_ref().and_then(|d| d.rerun.as_ref());
        let rerun = file.map(|command| format!("; to reproduce it: {command}")).unwrap_or_default();
        Some(format!("{} differs from {}: {why}{rerun}", label(&c.lhs, c.offload), c.rhs))
    };
    findings.extend(report.comparisons.iter().filter_map(differs));
    let is_explained = report.records.iter().any(|r| r.backend == report.reference && has_finding(r));
    if !report.reference_record().is_some_and(|r| r.status == Status::Ok) && !is_explained {
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

/// True if the record itself is a finding.
fn has_finding(record: &Record) -> bool {
    let of_results = instability(record).or_else(|| variance(record).next());
    let of_logits = without_perplexity(record).or_else(|| invalid(record));
    failure(record).or(of_results).or(of_logits).is_some()
}

/// Sets the verdict from all findings. If nothing was compared, the absence of differences is no agreement.
pub(in crate::compare) fn conclude(report: &mut Report, mut findings: Vec<String>, compared: bool) {
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
pub(in crate::compare) fn instability(record: &Record) -> Option<String> {
    (record.unstable > 0)
        .then(|| format!("{}: {} values change when the work is repeated", record.label(), record.unstable))
}

/// Describes the methods of computing a prompt that change its logits.
pub(in crate::compare) fn variance(record: &Record) -> impl Iterator<Item = String> + '_ {
    record.variants.iter().filter(|v| v.changed).map(|v| {
        let d = Distance { nmse: v.nmse, row: v.row, ..Distance::default() };
        format!("{}: the logits change with {}: {}", record.label(), v.name, v.bound.excess(&d))
    })
}

/// Describes a text that has no perplexity.
fn without_perplexity(record: &Record) -> Option<String> {
    let has_none = record.score.is_some_and(|score| !score.perplexity.is_finite());
    let why = "its logits are NaN, infinite, or minus infinity for a token of the text";
    has_none.then(|| format!("{}: the text has no perplexity: {why}", record.label()))
}

/// Describes a reference whose own logits are invalid. If it scored a text, it has no perplexity, which is said.
fn invalid(record: &Record) -> Option<String> {
    let n = record.invalid_logits;
    (n > 0 && without_perplexity(record).is_none()).then(|| {
        let begin = invalid_from(record);
        let what = format!("{n} of its own logits are NaN or infinite{begin}");
        format!("{}: {what}: nothing can agree with them", record.label())
    })
}

/// Says where NaN or infinity begins in the results of a run, as the end of a clause; empty if that is not known.
pub(in crate::compare) fn invalid_from(record: &Record) -> String {
    record.invalid_from.as_ref().map(|node| format!(", from {node} on")).unwrap_or_default()
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
pub(in crate::compare) fn failure(record: &Record) -> Option<String> {
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
    if matches!(record.status, Status::Crash | Status::Hang | Status::Ended) {
        text.extend(record.step.iter().map(|step| format!(" in {step}")));
        text.extend(record.last_call.iter().map(|call| format!(" after the call of {call}")));
        text.extend(record.library.iter().map(|library| format!(" ({library})")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::CompareOptions;

    /// A finding of `vulkan-virtual` does not explain why the reference `vulkan` has no result.
    #[test]
    fn findings_belong_to_one_backend() {
        let record = |backend: &str, status| Record {
            backend: backend.into(),
            offload: -1,
            status,
            ..Record::default()
        };
        let missing = "vulkan has no result: nothing to compare with".to_string();
        let mut report = Report { reference: "vulkan".into(), ..Report::new(&CompareOptions::default()) };
        report.records =
            vec![record("vulkan", Status::Unsupported), record("vulkan-virtual:vega20", Status::Crash)];
        set_verdict(&mut report);
        assert!(report.verdict.findings.contains(&missing), "{:?}", report.verdict.findings);
        report.records[0].status = Status::Crash;
        set_verdict(&mut report);
        assert!(!report.verdict.findings.contains(&missing), "{:?}", report.verdict.findings);
    }
}
