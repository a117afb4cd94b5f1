//! The second examination of a model's difference: is it rounding or an error?
//!
//! Rounding of activations is no error, even if a router amplifies it by choosing another expert. Therefore
//! the backend runs again in `exact` precision, where it has to agree within the rounding of F32, and node by
//! node in `fast`, where each node has to be within the bound of its operation. A difference that passes both
//! is rounding.
//!
//! Some models amplify the rounding of F32 so much that two correct backends differ in `exact` precision too.
//! This is no error either, under two conditions. Every node that gets the reference's operands is within its
//! bound in `exact`. And the program gives the same bits when its steps are submitted and waited for one by
//! one, and when it is stored in other memory, so that no step reads a result that is unfinished or was never
//! written.
//!
//! Each examination is a run in a separate folder.

use super::graph_runs::{plan_graph, plan_model};
use super::header::Header;
use super::options::{CompareOptions, Event, PerNode, Progress, Subject};
use super::report::{Comparison, Report, SecondLook};
use super::{files, graph_runs, judge};
use crate::isolate::parent::Children;
use crate::isolate::protocol::ModelTask;
use crate::model::Offload;
use ggml_core::Result;
use ggml_core::precision::Precision;

/// The largest NMSE that rounding can cause when other experts are chosen at some positions. Unrelated
/// vectors of equal norm have an NMSE of 2, zeros one of 1; anything near that is no rounding.
const MOST_ROUNDING: f64 = 1.0;

/// Examines every difference again, unless a node out of its bound is already known.
pub(super) fn examine(
    header: &Header,
    task: &ModelTask,
    children: &Children,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let mut examined: Vec<(String, i64, SecondLook)> = Vec::new();
    for comparison in &mut report.comparisons {
        let Some(difference) = comparison.disagreement.clone() else { continue };
        if comparison.logits.is_none()
            || judge::differing_node(comparison).is_some_and(|_| header.is_isolated())
        {
            continue;
        }
        // The result of one epoch is valid for all epochs.
        let known = examined
            .iter()
            .find(|(lhs, offload, _)| (lhs, *offload) == (&comparison.lhs, comparison.offload));
        let known = known.map(|(_, _, found)| found.clone());
        let found = match known {
            Some(found) => Some(SecondLook { difference, ..found }),
            None => examine_one(header, task, children, comparison, difference, progress)?,
        };
        let Some(mut found) = found else { continue };
        found.rounding = is_rounding(&found, comparison);
        examined.push((comparison.lhs.clone(), comparison.offload, found.clone()));
        comparison.disagreement = (!found.rounding).then(|| found.words());
        comparison.second_look = Some(found);
    }
    judge::set_verdict(report);
    Ok(())
}

/// Runs the examinations of one comparison; `None` if they are missing and the run is over.
fn examine_one(
    header: &Header,
    task: &ModelTask,
    children: &Children,
    c: &Comparison,
    difference: String,
    progress: Progress<'_>,
) -> Result<Option<SecondLook>> {
    let is_exact = header.options.precision == Precision::Exact;
    progress(&Event::new(
        &c.lhs,
        match is_exact {
            true => "differs: running it node by node",
            false => "differs: running it in exact precision, and node by node",
        },
    ));
    let base = single_backend(&header.options, c)?
        .with_cache(task.cache)
        .with_work(Subject::Model(Some(task.model.as_ref().into())));
    let folder = |what: &str| {
        files::second_look(&header.options.out).join(format!("{}-{what}", files::stem(&c.lhs, c.offload, 0)))
    };
    let nodes = base.clone().with_per_node(PerNode::Isolated).with_predict(header.options.predict.min(2));
    let base = base.with_precision(Precision::Exact);
    let mut found = SecondLook { difference, ..SecondLook::default() };
    if is_exact {
        (found.exact, found.exact_disagreement) = (c.logits, c.disagreement.clone());
    } else {
        let Some(exact) = run_nested(&base.with_out(folder("exact")), children, progress)? else {
            return Ok(None);
        };
        let compared = exact.comparisons.first();
        found.exact = compared.and_then(|c| c.logits);
        found.exact_disagreement = match compared {
            Some(comparison) => comparison.disagreement.clone(),
            None => Some(format!("the results cannot be compared: {}", failures(&exact))),
        };
        if !header.is_isolated() {
            let out = nodes.clone().with_out(folder("nodes"));
            let Some(nodes) = run_nested(&out, children, progress)? else { return Ok(None) };
            found.node = differing_node(&nodes);
        }
    }
    let numbers = found.exact.is_some_and(|logits| logits.non_finite == 0);
    if found.exact_disagreement.is_some() && found.node.is_none() && numbers {
        let nodes = CompareOptions { same_bits: true, ..nodes };
        let nodes = nodes.with_precision(Precision::Exact).with_out(folder("exact-nodes"));
        let Some(nodes) = run_nested(&nodes, children, progress)? else { return Ok(None) };
        found.exact_node = differing_node(&nodes).or_else(|| differing_bits(&nodes));
        found.amplified = found.exact_node.is_none();
    }
    Ok(Some(found))
}

fn failures(report: &Report) -> String {
    report.verdict.findings.join("; ")
}

/// Describes the first node of a run that is out of its bound.
fn differing_node(nodes: &Report) -> Option<String> {
    match nodes.comparisons.first() {
        Some(comparison) => judge::differing_node(comparison),
        None => Some(format!("the nodes cannot be compared: {}", failures(nodes))),
    }
}

/// Describes the first variant of execution that changes bits.
fn differing_bits(nodes: &Report) -> Option<String> {
    nodes.records.iter().flat_map(judge::variance).next()
}

fn is_rounding(found: &SecondLook, c: &Comparison) -> bool {
    let worst = [c.logits, c.steps].into_iter().flatten().map(|l| l.nmse).fold(0.0, f64::max);
    let exact = found.exact_disagreement.is_none() || found.amplified;
    exact && found.node.is_none() && worst <= MOST_ROUNDING
}

/// Returns the options for a comparison's backend only, with its offload.
pub(super) fn single_backend(options: &CompareOptions, c: &Comparison) -> Result<CompareOptions> {
    let offload = match usize::try_from(c.offload) {
        Ok(0) => Offload::None,
        Ok(units) => Offload::Layers(units),
        Err(_) => Offload::All,
    };
    let options = options.clone().with_backends([c.lhs.parse()?]).with_offload([offload]).with_epochs(1);
    Ok(options.with_repeat(1).with_invariance(false).with_per_node(PerNode::Off))
}

/// Runs a comparison in its own folder, or continues the one that is there. Returns `None` if there is none
/// and the parent run is over.
pub(super) fn run_nested(
    options: &CompareOptions,
    children: &Children,
    progress: Progress<'_>,
) -> Result<Option<Report>> {
    let known = files::header(&options.out).exists();
    let header = if known {
        Header::nested(&options.out, options)?
    } else if children.is_over() {
        return Ok(None);
    } else {
        files::begin(&options.out)?;
        let header = match &options.work {
            Subject::Graph(path) => plan_graph(path, options)?,
            Subject::Model(path) => plan_model(path.as_deref(), options)?,
            Subject::Ops(_) => return Ok(None),
        };
        header.write()?;
        header
    };
    graph_runs::run(&header, &mut children.nested(&options.out, !known)?, progress).map(Some)
}
