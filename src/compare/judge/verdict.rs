//! The verdict of a report: its findings and notes in words.

use super::cure;
use crate::compare::advice::{advice, recommended};
use crate::compare::finding::{Finding, Location};
use crate::compare::report::{Comparison, Record, Report, Status, Verdict, label};
use ggml_core::metrics::Distance;

/// Sets the verdict of a report on graphs, from its records and comparisons.
pub(in crate::compare) fn set_verdict(report: &mut Report) {
    let mut findings: Vec<Finding> = report.records.iter().filter_map(finding).collect();
    findings.extend(report.records.iter().filter_map(|r| about(r, "unstable result", instability(r)?)));
    let variances =
        |r| variance(r).filter_map(move |text| about(r, "result that depends on the method", text));
    findings.extend(report.records.iter().flat_map(variances));
    findings.extend(report.records.iter().filter_map(|r| about(r, "no perplexity", without_perplexity(r)?)));
    findings.extend(report.records.iter().filter_map(|r| about(r, "invalid logits", invalid(r)?)));
    findings.extend(report.comparisons.iter().filter_map(difference));
    let is_explained = report.records.iter().any(|r| r.backend == report.reference && has_finding(r));
    if !report.reference_record().is_some_and(|r| r.status == Status::Ok) && !is_explained {
        findings.push(format!("{} has no result: nothing to compare with", report.reference).into());
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

/// Creates a finding about a run whose only evidence is its text.
fn about(record: &Record, cause: &str, text: String) -> Option<Finding> {
    Some(Finding::about(&record.backend, record.offload, cause, text))
}

/// Describes a difference from the reference.
fn difference(c: &Comparison) -> Option<Finding> {
    let why = c.disagreement.as_ref()?;
    let divergence = c.first_divergence.as_ref();
    let next = divergence.and_then(|d| d.rerun.clone());
    let rerun = next.as_ref().map(|command| format!("; to reproduce it: {command}")).unwrap_or_default();
    let text = format!("{} differs from {}: {why}{rerun}", label(&c.lhs, c.offload), c.rhs);
    let mut finding = Finding::about(&c.lhs, c.offload, "difference", text);
    finding.location.node = divergence.map(|d| d.node.clone());
    finding.location.step = divergence.filter(|d| d.step).map(|_| "decode step".into());
    finding.evidence.push(why.clone());
    Some(Finding { next, ..finding })
}

/// True if the record itself is a finding.
fn has_finding(record: &Record) -> bool {
    let of_results = instability(record).or_else(|| variance(record).next());
    let of_logits = without_perplexity(record).or_else(|| invalid(record));
    failure(record).or(of_results).or(of_logits).is_some()
}

/// Sets the verdict from all findings. If nothing was compared, the absence of differences is no agreement.
pub(in crate::compare) fn conclude(report: &mut Report, mut findings: Vec<Finding>, compared: bool) {
    findings.extend(report.records.iter().filter(|_| report.require_all).filter_map(absence));
    if report.missing > 0 {
        findings.push(format!("{} of the planned runs were not made", report.missing).into());
    }
    if findings.is_empty() && !compared {
        findings.push(format!("nothing was compared with {}", report.reference).into());
    }
    let mut details = counted(findings);
    let recommended = recommended(report);
    for finding in &mut details {
        finding.run_id.clone_from(&report.run_id);
        cure::complete(finding, report, recommended.as_deref());
    }
    let findings: Vec<String> = details.iter().map(|finding| finding.text.clone()).collect();
    let (agree, advice) = (findings.is_empty(), advice(report));
    report.verdict = Verdict { agree, findings, details, advice, ..Verdict::default() };
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
fn counted(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: Vec<(Finding, usize)> = Vec::new();
    for finding in findings {
        match counts.iter_mut().find(|(known, _)| known.text == finding.text) {
            Some((_, count)) => *count += 1,
            None => counts.push((finding, 1)),
        }
    }
    let counted = |(mut finding, count): (Finding, usize)| {
        if count > 1 {
            finding.text = format!("{} ({count} times)", finding.text);
        }
        finding
    };
    counts.into_iter().map(counted).collect()
}

/// Describes a requested backend that is absent or cannot do the work.
fn absence(record: &Record) -> Option<Finding> {
    let is_absent = record.status == Status::Unsupported && record.case.is_none() && record.epoch == 0;
    let reason = record.message.as_deref().unwrap_or("no reason given");
    let text = format!("{} cannot run here: {reason}", record.label());
    let mut finding = Finding::about(&record.backend, record.offload, "not available", text);
    finding.location.phase.clone_from(&record.phase);
    finding.evidence.push(reason.into());
    is_absent.then_some(finding)
}

/// Describes a run that failed, with its fields.
pub(in crate::compare) fn finding(record: &Record) -> Option<Finding> {
    let text = failure(record)?;
    let location = Location {
        offload: Some(record.offload),
        phase: record.phase.clone(),
        step: record.step.clone(),
        case: record.case.clone(),
        node: record.node.clone(),
        call: record.last_call.clone(),
        waits_for: record.waits_for.clone(),
    };
    let mut evidence: Vec<String> = record.message.iter().cloned().collect();
    evidence.extend(record.library.iter().map(|library| format!("library {library}")));
    evidence.push(format!("{:.2} s after its start", record.elapsed_s));
    evidence.extend(Some(&record.stem).filter(|stem| !stem.is_empty()).map(|stem| format!("{stem}.log")));
    let cause = match &record.signal {
        Some(signal) => format!("{} ({signal})", record.status),
        None => record.status.to_string(),
    };
    let cure = cure::known(record);
    let finding = Finding::about(&record.backend, record.offload, cause, text);
    Some(Finding { location, evidence, cure, ..finding })
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
        match &record.waits_for {
            Some(call) => text.push_str(&format!(" waiting for {call}")),
            None => text.extend(record.last_call.iter().map(|call| format!(" after the call of {call}"))),
        }
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
