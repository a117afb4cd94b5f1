//! From results to comparisons and a verdict.

use super::advice::advice;
use super::files;
use super::nodes::{Entry, NodeFile};
use super::options::{CompareOptions, PerNode};
use super::report::{
    Comparison, Divergence, EVERYTHING, LogitsReport, NodeReport, Record, Report, Status, Verdict,
};
use crate::npy;
use ggml_core::metrics::{Distance, distance, kl_divergence, top1_agreement};
use ggml_core::plan::Precision;
use ggml_core::{Error, Graph, Result, TensorId, bound};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Greedy ids that differ where the reference's two best logits are closer than this many times the RMS error of the
/// logits are no disagreement: either of them may win.
const MARGIN_FACTOR: f64 = 10.0;

/// What agreement is measured by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Measure {
    /// Logits, and the largest NMSE of them that counts as agreement.
    Logits(f64),
    /// The outputs of a graph by name, each with the largest NMSE that counts as agreement.
    Outputs(HashMap<String, f64>),
}

impl Measure {
    /// For the bounds see [`bound`].
    pub(super) fn logits(precision: Precision, quantised: bool, steep: bool) -> Measure {
        Measure::Logits(bound::of_graph(precision, quantised, steep))
    }

    pub(super) fn outputs(precision: Precision, graph: &Graph) -> Measure {
        let named = |&output: &TensorId| {
            // Node by node the results are those of computing nodes: of a view, of what it looks at.
            let names = [output, graph.producer(output)].map(|id| graph.tensor(id).name.clone());
            names.map(|name| (name, bound::of_output(graph, output, precision)))
        };
        Measure::Outputs(graph.outputs().iter().flat_map(named).collect())
    }

    /// The widest of its bounds.
    fn bound(&self) -> Option<f64> {
        match self {
            Measure::Logits(bound) => Some(*bound),
            Measure::Outputs(bounds) => bounds.values().copied().max_by(f64::total_cmp),
        }
    }
}

/// Compares what the backends of a report computed, and gives the verdict.
pub(super) fn judge(report: &mut Report, options: &CompareOptions, measure: &Measure) {
    let name = report.reference.clone();
    let is_reference = |r: &&Record| (&r.backend, r.offload, r.epoch) == (&name, EVERYTHING, 0);
    let reference = report.records.iter().find(is_reference).filter(|r| r.status == Status::Ok);
    let mut findings: Vec<String> = report.records.iter().filter_map(failure).collect();
    findings.extend(report.records.iter().filter_map(instability));
    let mut comparisons = Vec::new();
    if let Some(reference) = reference {
        for record in report.records.iter().filter(|r| r.status == Status::Ok && !is_reference(r)) {
            let comparison = compare(record, reference, options, measure);
            if let Some(why) = &comparison.disagreement {
                findings.push(format!("{} differs from {}: {why}", record.label(), reference.label()));
            }
            comparisons.push(comparison);
        }
    } else if !findings.iter().any(|f| f.starts_with(&name)) {
        findings.push(format!("{name} has no result: nothing to compare with"));
    }
    let compared = !comparisons.is_empty();
    report.comparisons = comparisons;
    conclude(report, findings, compared);
}

/// The verdict from all findings. That nothing differs where nothing was compared is no agreement.
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
    report.verdict = Verdict { agree, findings, advice: advice(report) };
}

/// A run that gives other bits when it is repeated.
fn instability(record: &Record) -> Option<String> {
    (record.unstable > 0)
        .then(|| format!("{}: {} values change when the work is repeated", record.label(), record.unstable))
}

/// Each finding once, with how often it was made.
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

/// A backend that was asked for and is not there, or cannot do the work.
fn absence(record: &Record) -> Option<String> {
    let why = record.message.as_deref().unwrap_or("no reason given");
    let is_absent = record.status == Status::Unsupported && record.case.is_none() && record.epoch == 0;
    is_absent.then(|| format!("{} cannot run here: {why}", record.label()))
}

/// A run that did not end well, in words.
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

/// What a process that died was doing; an error says that by itself.
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
        Ok(rms) => disagreement(&comparison, options.per_node, measure, reference, rms),
        Err(error) => Some(format!("the results cannot be judged: {error}")),
    };
    comparison
}

/// Compares all results of two runs; the root mean square error of a logit.
fn results(
    comparison: &mut Comparison,
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
    measure: &Measure,
) -> Result<f64> {
    let mut rms = 0.0;
    if let Measure::Logits(_) = measure {
        let (logits, error) = compare_logits(record, reference, options)?;
        (comparison.logits, rms) = (Some(logits), error);
        let mut pairs = record.token_ids.iter().zip(&reference.token_ids);
        comparison.greedy_divergence_at = pairs.position(|(a, b)| a != b);
    }
    if matches!(measure, Measure::Outputs(_)) || options.per_node != PerNode::Off {
        comparison.nodes = compare_nodes(record, reference, options)?;
    }
    let first = comparison.nodes.iter().find(|n| n.is_out_of_bounds());
    comparison.first_divergence =
        first.map(|n| Divergence { node: n.node.clone(), op: n.op.clone(), nmse: n.nmse });
    Ok(rms)
}

/// Distances of the logits, and the root mean square error of one.
fn compare_logits(
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
) -> Result<(LogitsReport, f64)> {
    let path = |r: &Record| files::logits(&options.out, &r.stem);
    let (_, n, got) = npy::read(&path(record))?;
    let (_, _, want) = npy::read(&path(reference))?;
    if want.is_empty() {
        return Err(Error::model("logits", 0, "at least one").with_path(path(reference)));
    }
    let d = distance(&got, &want);
    let logits = LogitsReport {
        nmse: d.nmse,
        max_abs: d.max_abs,
        kl: kl_divergence(&got, &want, n),
        top1_agreement: top1_agreement(&got, &want, n),
        non_finite: d.non_finite,
    };
    Ok((logits, rms_error(&d, &want)))
}

/// Root mean square error per logit.
fn rms_error(d: &Distance, want: &[f32]) -> f64 {
    let norm: f64 = want.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    (d.nmse * norm / want.len().max(1) as f64).sqrt()
}

fn disagreement(
    c: &Comparison,
    per_node: PerNode,
    measure: &Measure,
    reference: &Record,
    rms: f64,
) -> Option<String> {
    if let Some(n) = c.nodes.iter().find(|n| n.status != Status::Ok) {
        let why = n.message.as_deref().unwrap_or("no reason given");
        return Some(format!("node '{}' ({}) cannot be judged: {why}", n.node, n.op));
    }
    if c.logits.is_none() && c.nodes.is_empty() {
        return Some("there is no result to compare".into());
    }
    let too_far = |nmse: f64, bound: f64| nmse.is_nan() || nmse > bound;
    if let (Some(l), Measure::Logits(bound)) = (c.logits, measure)
        && too_far(l.nmse, *bound)
    {
        return Some(format!("NMSE of the logits is {:.1e}, the bound {bound:.0e}", l.nmse));
    }
    // Chained results carry the errors of all nodes before, so only isolated ones are held to the bound of a node.
    if per_node == PerNode::Isolated {
        if let Some(d) = c.nodes.iter().find(|n| n.is_out_of_bounds()) {
            let what = match d.members.len() {
                0 => "",
                _ => ", computed in a group whose members are right alone,",
            };
            return Some(format!("node '{}' ({}){what} has NMSE {:.1e}", d.node, d.op, d.nmse));
        }
    } else if let Measure::Outputs(bounds) = measure {
        let mut results = c.nodes.iter().filter_map(|n| Some((n, *bounds.get(&n.node)?)));
        if let Some((n, bound)) = results.find(|(n, bound)| too_far(n.nmse, *bound)) {
            return Some(format!("output '{}' has NMSE {:.1e}, the bound {bound:.0e}", n.node, n.nmse));
        }
    }
    let at = c.greedy_divergence_at?;
    let margin = f64::from(reference.margins.get(at).copied().unwrap_or(0.0));
    (margin > MARGIN_FACTOR * rms).then(|| {
        format!("token {at} differs although the two best logits are {margin:.3} apart (RMS error {rms:.1e})")
    })
}

/// Every node of the reference against the same node of a run, then the results of the run's groups. What cannot be
/// compared has the reason instead; a node without a result of its own that a group computed is not missed.
fn compare_nodes(record: &Record, reference: &Record, options: &CompareOptions) -> Result<Vec<NodeReport>> {
    let path = |r: &Record| files::nodes(&options.out, &r.stem);
    let (got, want) = (NodeFile::open(&path(record))?, NodeFile::open(&path(reference))?);
    let mut nodes = Vec::new();
    for entry in &want.entries {
        let own = got.find(&entry.name);
        if own.is_none() && got.groups_of(&entry.name).next().is_some() {
            continue;
        }
        let bound = bound_of(entry, options);
        nodes.push(compare_results((&got, own), (&want, entry), &entry.op, bound));
    }
    for group in got.entries.iter().filter(|entry| !entry.members.is_empty()) {
        let members = || group.members.iter().filter_map(|member| want.find(member));
        let bound = members().map(|member| bound_of(member, options)).sum();
        let Some(entry) = want.find(&group.name) else { continue };
        let mut node = compare_results((&got, Some(group)), (&want, entry), &group.op, bound);
        node.members = group.members.clone();
        nodes.push(node);
    }
    Ok(nodes)
}

fn bound_of(entry: &Entry, options: &CompareOptions) -> f64 {
    bound::of_operation(&entry.op, entry.operand_type, options.precision)
}

/// A result against the reference's.
fn compare_results(
    (got, own): (&NodeFile, Option<&Entry>),
    (want, entry): (&NodeFile, &Entry),
    op: &str,
    bound: f64,
) -> NodeReport {
    let mut node = NodeReport {
        node: entry.name.clone(),
        op: op.into(),
        dtype: entry.dtype.name().into(),
        operand_type: entry.operand_type.name().into(),
        shape: entry.ne,
        nmse: f64::INFINITY,
        max_abs: f64::INFINITY,
        ulp: u64::MAX,
        bound,
        ..NodeReport::default()
    };
    let distance_from = |other| Ok::<_, Error>(distance(&got.values(other)?, &want.values(entry)?));
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
    use std::path::Path;

    /// The report of a reference and a CPU that both say that they are done.
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
        let measure = Measure::logits(Precision::Fast, false, false);
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
