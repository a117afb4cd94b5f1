//! From results to comparisons and a verdict.

use super::nodes::NodeFile;
use super::protocol::PerNode;
use super::report::{Comparison, Divergence, EVERYTHING, LogitsReport, NodeReport, Record, Report, Status};
use super::{CompareOptions, logits_path, nodes_path};
use crate::npy;
use ggml_core::encode::decode_plain;
use ggml_core::metrics::{Distance, distance, kl_divergence, top1_agreement};
use ggml_core::plan::Precision;
use ggml_core::{DType, Graph, Result};

/// Greedy ids that differ where the reference's two best logits are closer than this many times the RMS error of the
/// logits are no disagreement: either of them may win.
const MARGIN_FACTOR: f64 = 10.0;

/// What agreement is measured by, and the largest NMSE of it that counts as agreement.
pub(super) struct Measure {
    bound: f64,
    /// Names of a graph's outputs; `None`: logits.
    outputs: Option<Vec<String>>,
}

impl Measure {
    /// `steep`: the model makes much of small differences, see [`graph_bound`].
    pub(super) fn logits(precision: Precision, quantised: bool, steep: bool) -> Measure {
        Measure { bound: graph_bound(precision, quantised, steep), outputs: None }
    }

    pub(super) fn outputs(precision: Precision, graph: &Graph) -> Measure {
        let quantised = graph.tensors().iter().any(|t| t.dtype.is_quantized());
        // Node by node the results are those of computing nodes: of a view, of what it looks at.
        let ids = graph.outputs().iter().flat_map(|&o| [o, graph.producer(o)]);
        let names = ids.map(|id| graph.tensor(id).name.clone()).collect();
        Measure { bound: graph_bound(precision, quantised, false), outputs: Some(names) }
    }
}

/// Compares what the backends of a report computed, and gives the verdict.
pub(super) fn judge(report: &mut Report, options: &CompareOptions, measure: &Measure) -> Result<()> {
    let records = report.records.clone();
    let name = report.reference.clone();
    let is_reference = |r: &&Record| r.backend == name && r.offload == EVERYTHING;
    let reference = records.iter().find(is_reference);
    let mut findings: Vec<String> = records.iter().filter_map(failure).collect();
    findings.extend(records.iter().filter_map(instability));
    if let Some(reference) = reference.filter(|r| r.status == Status::Ok) {
        for record in records.iter().filter(|r| r.status == Status::Ok && !is_reference(r)) {
            let comparison = compare(record, reference, options, measure)?;
            if let Some(why) = &comparison.disagreement {
                findings.push(format!("{} differs from {}: {why}", record.label(), reference.label()));
            }
            report.comparisons.push(comparison);
        }
    } else if !findings.iter().any(|f| f.starts_with(&report.reference)) {
        findings.push(format!("{} has no result: nothing to compare with", report.reference));
    }
    report.verdict.agree = findings.is_empty();
    report.verdict.findings = findings;
    Ok(())
}

/// The largest NMSE of a whole graph's results that counts as agreement. Exact: what F32 rounding makes of some tens
/// of layers. Fast: activations rounded to F16 for float weights; to 8 bits for block-quantised ones, where published
/// native paths show up to 1e-3 for llama-like models. Steep models are those whose router may choose another expert where
/// two are nearly equal, and those with a delta net, where the norm of a head's small result doubles its error or flips its
/// sign: there rounding alone is seen to give 2e-2, and only exact results tell it from an error.
fn graph_bound(precision: Precision, quantised: bool, steep: bool) -> f64 {
    match (precision, quantised) {
        (Precision::Exact, _) => 1e-6,
        (Precision::Fast, false) if steep => 1e-3,
        (Precision::Fast, true) if steep => 0.1,
        (Precision::Fast, false) => 1e-5,
        (Precision::Fast, true) => 5e-3,
    }
}

/// A run that gives other bits when it is repeated.
fn instability(record: &Record) -> Option<String> {
    (record.unstable > 0)
        .then(|| format!("{}: {} values change when the work is repeated", record.label(), record.unstable))
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
        "{}: {}{}{}{}: {}",
        record.label(),
        record.status,
        at("in case", &record.case),
        at("in phase", &record.phase),
        at("at node", if record.node == record.case { &None } else { &record.node }),
        record.message.as_deref().unwrap_or("no message")
    ))
}

fn compare(
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
    measure: &Measure,
) -> Result<Comparison> {
    let mut comparison = Comparison {
        lhs: record.backend.clone(),
        rhs: reference.backend.clone(),
        offload: record.offload,
        bound: Some(measure.bound),
        ..Comparison::default()
    };
    let mut rms = 0.0;
    if measure.outputs.is_none() {
        let (logits, error) = compare_logits(record, reference, options)?;
        (comparison.logits, rms) = (Some(logits), error);
        let mut pairs = record.token_ids.iter().zip(&reference.token_ids);
        comparison.greedy_divergence_at = pairs.position(|(a, b)| a != b);
    }
    if measure.outputs.is_some() || options.per_node != PerNode::Off {
        comparison.nodes = compare_nodes(record, reference, options)?;
    }
    let first = comparison.nodes.iter().find(|n| n.is_out_of_bounds());
    comparison.first_divergence =
        first.map(|n| Divergence { node: n.node.clone(), op: n.op.clone(), nmse: n.nmse });
    comparison.disagreement = disagreement(&comparison, options.per_node, measure, reference, rms);
    Ok(comparison)
}

/// Distances of the logits, and the root mean square error of one.
fn compare_logits(
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
) -> Result<(LogitsReport, f64)> {
    let path = |r: &Record| logits_path(&options.out, &r.backend, r.offload);
    let (_, n, got) = npy::read(&path(record))?;
    let (_, _, want) = npy::read(&path(reference))?;
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
    let too_far = |nmse: f64| nmse.is_nan() || nmse > measure.bound;
    if let Some(l) = c.logits.filter(|l| too_far(l.nmse)) {
        return Some(format!("NMSE of the logits is {:.1e}, the bound {:.0e}", l.nmse, measure.bound));
    }
    // Chained results carry the errors of all nodes before, so only isolated ones are held to the bound of a node.
    if per_node == PerNode::Isolated {
        if let Some(d) = &c.first_divergence {
            return Some(format!("node '{}' ({}) has NMSE {:.1e}", d.node, d.op, d.nmse));
        }
    } else if let Some(outputs) = &measure.outputs {
        let mut results = c.nodes.iter().filter(|n| outputs.contains(&n.node));
        if let Some(n) = results.find(|n| too_far(n.nmse)) {
            return Some(format!(
                "output '{}' has NMSE {:.1e}, the bound {:.0e}",
                n.node, n.nmse, measure.bound
            ));
        }
    }
    let at = c.greedy_divergence_at?;
    let margin = f64::from(reference.margins.get(at).copied().unwrap_or(0.0));
    (margin > MARGIN_FACTOR * rms).then(|| {
        format!("token {at} differs although the two best logits are {margin:.3} apart (RMS error {rms:.1e})")
    })
}

/// The largest NMSE of one node: as in the operation tests, see [`ggml_core::catalogue::bound`].
fn node_bound(op: &str, operand: DType, precision: Precision) -> f64 {
    let fast = precision == Precision::Fast && operand != DType::F32;
    if op == "MUL_MAT" && fast { 5e-4 } else { 1e-7 }
}

fn compare_nodes(record: &Record, reference: &Record, options: &CompareOptions) -> Result<Vec<NodeReport>> {
    let path = |r: &Record| nodes_path(&options.out, &r.backend, r.offload);
    let (got, want) = (NodeFile::open(&path(record))?, NodeFile::open(&path(reference))?);
    let mut nodes = Vec::new();
    for entry in &want.entries {
        let mut node = NodeReport {
            node: entry.name.clone(),
            op: entry.op.clone(),
            dtype: entry.dtype.name().into(),
            operand_type: entry.operand_type.name().into(),
            shape: entry.ne,
            nmse: f64::INFINITY,
            max_abs: f64::INFINITY,
            ulp: u64::MAX,
            status: Status::Ok,
            bound: node_bound(&entry.op, entry.operand_type, options.precision),
            ..NodeReport::default()
        };
        if let Some(other) = got.find(&entry.name) {
            let x = decode_plain(other.dtype, got.bytes(other))?;
            let r = decode_plain(entry.dtype, want.bytes(entry))?;
            node.set(&distance(&x, &r));
        }
        nodes.push(node);
    }
    Ok(nodes)
}
