//! Results of two runs, read from their files, and the distances between them.

use super::Measure;
use crate::compare::doubt::{self, Estimates};
use crate::compare::files;
use crate::compare::nodes::{Entry, NodeFile};
use crate::compare::options::{CompareOptions, PerNode};
use crate::compare::report::{
    Comparison, Divergence, DraftsReport, LogitsReport, NodeReport, Record, Status, TextReport,
};
use crate::npy;
use ggml_core::metrics::{Bound, Distance, distance, distance_in_rows, own_row_error};
use ggml_core::{DType, Error, Result};
use std::path::Path;

/// Compares all results of two runs and returns the root mean square error of a logit.
pub(super) fn compare_results(
    comparison: &mut Comparison,
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
    measure: &Measure,
) -> Result<f64> {
    let mut rms = 0.0;
    if let Measure::Logits(_) | Measure::Hidden(_) = measure {
        rms = compare_logits(comparison, record, reference, (options, measure))?;
        comparison.text = compare_text(record, reference, options)?;
        comparison.drafts = compare_drafts(record, reference);
        comparison.greedy_divergence_at = differing_tokens(record, reference).next();
    }
    if matches!(measure, Measure::Outputs(_)) || options.per_node != PerNode::Off {
        let path = |r: &Record| files::nodes(&options.out, &r.stem);
        let (got, want, rounding) = (path(record), path(reference), doubt::path(&options.out));
        comparison.nodes = compare_nodes(&got, &want, &rounding, options.per_node)?;
        let [got, want, rounding] = [got, want, rounding].map(|path| files::of_step(&path));
        if want.exists() {
            let steps = compare_nodes(&got, &want, &rounding, options.per_node)?.into_iter();
            comparison.nodes.extend(steps.map(|node| NodeReport { step: true, ..node }));
        }
        if let (Measure::Outputs(bounds), PerNode::Off) = (measure, options.per_node) {
            // The reference may have stored more than the outputs.
            let is_kept = |n: &NodeReport| {
                n.status == Status::Ok || !n.members.is_empty() || bounds.contains_key(&n.node)
            };
            comparison.nodes.retain(is_kept);
            for node in &mut comparison.nodes {
                node.hold_to(bounds.get(&node.node).unwrap_or(&Bound::default()));
            }
        }
    }
    let first = comparison.nodes.iter().find(|n| n.is_out_of_bounds());
    comparison.first_divergence = first.map(Divergence::new);
    Ok(rms)
}

/// Counts the logits of a reference that no token can be chosen by, see
/// [`can_choose`](crate::session::can_choose). A file that is missing is a finding of the comparison.
pub(super) fn invalid_logits(reference: &Record, options: &CompareOptions) -> usize {
    let read = npy::read(&files::logits(&options.out, &reference.stem));
    let invalid = |x: &&f32| x.is_nan() || **x == f32::INFINITY;
    read.map_or(0, |(_, _, logits)| logits.iter().filter(invalid).count())
}

/// Computes the distances of the logits or hidden states of the prompt and of the decode steps, and returns
/// the root mean square error of a logit.
fn compare_logits(
    comparison: &mut Comparison,
    record: &Record,
    reference: &Record,
    (options, measure): (&CompareOptions, &Measure),
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
    let report = if let Measure::Hidden(_) = measure { LogitsReport::of_hidden } else { LogitsReport::new };
    comparison.logits = Some(report(got_prompt, want_prompt, n));
    comparison.steps = (steps > 0).then(|| LogitsReport::new(got_steps, want_steps, n));
    Ok(rms_error(&distance(&got, &want), &want))
}

/// Compares the drafts of the file's predictor, if it has one.
fn compare_drafts(record: &Record, reference: &Record) -> Option<DraftsReport> {
    let drafts = reference.drafts.len();
    let same = record.drafts.iter().zip(&reference.drafts).filter(|(a, b)| a == b).count();
    let [accepted, reference_accepted] = [record, reference].map(Record::accepted_drafts);
    (drafts > 0).then_some(DraftsReport { drafts, same, accepted, reference_accepted })
}

/// Computes the distances of the logits of the text's scored tokens, chunk by chunk.
fn compare_text(record: &Record, reference: &Record, options: &CompareOptions) -> Result<Option<TextReport>> {
    let Some(want_score) = reference.score else { return Ok(None) };
    let missing = || Error::model("score of the text", "", "one, as of the reference");
    let mut report = TextReport::new(record.score.ok_or_else(missing)?, want_score);
    for chunk in 0..want_score.chunks {
        let path = |r: &Record| files::text(&options.out, &r.stem, chunk);
        let (_, _, got) = npy::read(&path(record))?;
        let (_, n, want) = npy::read(&path(reference))?;
        if want.is_empty() {
            return Err(Error::model("logits", 0, "at least one").with_path(path(reference)));
        }
        report.add(&got, &want, n);
    }
    Ok(Some(report))
}

/// Returns the root mean square error per logit.
fn rms_error(d: &Distance, want: &[f32]) -> f64 {
    let norm: f64 = want.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    (d.nmse * norm / want.len().max(1) as f64).sqrt()
}

/// Returns the positions at which a run's best token differs from the reference's. Both runs continued with
/// the reference's token.
pub(super) fn differing_tokens<'a>(
    record: &'a Record,
    reference: &'a Record,
) -> impl Iterator<Item = usize> + 'a {
    let pairs = record.token_ids.iter().zip(&reference.token_ids).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at)
}

/// Compares every node of the reference with the same node of a run, then the results of the run's groups. A
/// result that cannot be compared gets the reason instead. A node without a result of its own is skipped if a
/// group computed it.
fn compare_nodes(got: &Path, want: &Path, rounding: &Path, mode: PerNode) -> Result<Vec<NodeReport>> {
    let (got, want, estimates) = (NodeFile::open(got)?, NodeFile::open(want)?, Estimates::open(rounding)?);
    let compare_node = |own: Option<&Entry>, entry: &Entry, op: &str, bound: &Bound| {
        let mut node = not_compared(entry, op, bound);
        let measured = own.map(|own| measure(&mut node, (&got, own), (&want, entry), &estimates, mode));
        match measured {
            None => node.fail("it has no result"),
            Some(Ok(())) => {}
            Some(Err(error)) => node.fail(error),
        }
        node
    };
    let mut nodes = Vec::new();
    for entry in &want.entries {
        let own = got.find(&entry.name);
        if own.is_none() && got.groups_of(&entry.name).next().is_some() {
            continue;
        }
        nodes.push(compare_node(own, entry, &entry.op, &entry.bound));
    }
    for group in got.entries.iter().filter(|entry| !entry.members.is_empty()) {
        let mut node = match want.find(&group.name) {
            Some(entry) => compare_node(Some(group), entry, &group.op, &group.bound),
            None => {
                let mut node = not_compared(group, &group.op, &group.bound);
                node.fail("the reference has no result of it");
                node
            }
        };
        node.members = group.members.clone();
        nodes.push(node);
    }
    Ok(nodes)
}

/// Measures the distance of a result from the reference's, and from what rounding makes if that was estimated.
fn measure(
    node: &mut NodeReport,
    (got, own): (&NodeFile, &Entry),
    (want, entry): (&NodeFile, &Entry),
    estimates: &Estimates,
    mode: PerNode,
) -> Result<()> {
    let (got, want, n) = (got.values(own)?, want.values(entry)?, entry.ne[0]);
    node.set(&distance_in_rows(&got, &want, n));
    if mode == PerNode::Isolated {
        node.own = own_row_error(&got, &want, n, entry.dtype == DType::F32);
    }
    if mode != PerNode::Chained && node.non_finite == 0 {
        let estimate = estimates.find(&own.name, &own.members)?;
        node.rounding = estimate.map(|expected| expected.excess(&got, &want, n).min(f64::MAX));
    }
    Ok(())
}

/// Returns the description of a result that has not been compared yet.
fn not_compared(entry: &Entry, op: &str, bound: &Bound) -> NodeReport {
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
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::nodes::NodeResults;
    use ggml_core::encode::encode;
    use ggml_core::op::{Operation, SetRows};
    use ggml_core::precision::Precision;
    use ggml_core::rng::Rng;
    use ggml_core::{Graph, Source};

    /// One of 4,000 rows of a cache in which a part is wrong: neither the tensor's error nor that relative to all rows
    /// shows it. Of an element that is rounded the other way nothing is said.
    #[test]
    fn a_wrong_row_of_a_long_cache_is_out_of_its_bound() {
        const ROW: usize = 128;
        let dir = tempfile::tempdir().unwrap();
        let mut graph = Graph::new();
        let cache = graph.leaf("cache", DType::Q4_0, [ROW, 4000, 1, 1], Source::State).unwrap();
        let rows = graph.leaf("rows", DType::F32, [ROW, 4000, 1, 1], Source::Input).unwrap();
        let cells = graph.leaf("cells", DType::I32, [4000, 1, 1, 1], Source::Input).unwrap();
        let node = graph.set_rows(cache, rows, cells).unwrap();
        let mut rng = Rng::new(5);
        let values: Vec<f32> = (0..4000 * ROW).map(|_| rng.normal()).collect();
        let stored = encode(DType::Q4_0, ROW, &values).unwrap();
        let row = stored.len() / 4000;
        let write = |name: &str, bytes: &[u8]| {
            let mut results = NodeResults::new(Precision::Fast);
            results.add(&graph, node, &[], DType::Q4_0, bytes);
            let path = dir.path().join(name);
            results.write(&path).unwrap();
            path
        };
        let compared = |change: &dyn Fn(&mut [u8])| {
            let mut other = stored.clone();
            change(&mut other[7 * row..8 * row]);
            let (want, got) = (write("want", &stored), write("got", &other));
            let nodes = compare_nodes(&got, &want, &dir.path().join("none"), PerNode::Isolated).unwrap();
            nodes.into_iter().next().unwrap()
        };
        // Half of a block is zeros, which is an eighth of the row: codes of 4 bits after a scale of 2 bytes.
        let wrong = compared(&|row| row[2..10].fill(0x88));
        assert!(SetRows {}.bound(DType::Q4_0, Precision::Fast).holds(&wrong.distance()), "{wrong:?}");
        assert!(wrong.is_out_of_bounds() && wrong.describe_error().contains("of its own row"), "{wrong:?}");
        // The neighbour of a code.
        let rounded = compared(&|row| row[3] ^= 1);
        assert!(rounded.own > 0.0 && !rounded.is_out_of_bounds(), "{rounded:?}");
        assert!(!compared(&|_| ()).is_out_of_bounds());
    }
}
