//! The second look at a difference of models in `fast` precision: whether it is rounding or an error.
//!
//! Rounding of activations is no error, however much a router that chooses another expert makes of it. So the backend runs
//! again in `exact` precision, where it has to agree within what F32 rounds, and node by node in `fast`, where each node
//! has to be within the bound of its operation. What passes both is rounding.

use super::judge;
use super::options::{CompareOptions, Event, PerNode, Progress};
use super::report::{Comparison, Report, SecondLook};
use super::whole::{cache, run_model};
use crate::model::Offload;
use ggml_core::Result;
use ggml_core::plan::Precision;
use std::path::Path;

/// What rounding gives at the most, even where another expert is chosen: beyond it something else is wrong, such as the
/// order of steps, which shows in no single node.
const MOST_ROUNDING: f64 = 0.1;

/// Looks again at what differs in `fast` precision, unless a node is known that does.
pub(super) fn look(
    model: &Path,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    if options.precision != Precision::Fast {
        return Ok(());
    }
    let isolated = options.per_node == PerNode::Isolated;
    for i in 0..report.comparisons.len() {
        let comparison = &report.comparisons[i];
        let Some(difference) = comparison.disagreement.clone() else { continue };
        let known = isolated && judge::differing_node(comparison).is_some();
        if comparison.logits.is_none() || known {
            continue;
        }
        progress(&Event::new(&comparison.lhs, "differs: again in exact precision and node by node"));
        let base = again(options, comparison)?;
        let exact = base.clone().with_precision(Precision::Exact).with_out(options.out.join("exact"));
        let nodes = base.with_per_node(PerNode::Isolated).with_predict(options.predict.min(2));
        let nodes = nodes.with_out(options.out.join("nodes"));
        let exact = once(model, &exact, progress)?;
        let nodes = if isolated { None } else { Some(once(model, &nodes, progress)?) };
        let comparison = &mut report.comparisons[i];
        let look = conclude(difference, comparison, &exact, nodes.as_ref());
        comparison.disagreement = (!look.rounding).then(|| look.words());
        comparison.second_look = Some(look);
    }
    judge::give_verdict(report);
    Ok(())
}

/// The options for one backend of a comparison, all else being as it was.
fn again(options: &CompareOptions, c: &Comparison) -> Result<CompareOptions> {
    let offload = match usize::try_from(c.offload) {
        Ok(0) => Offload::None,
        Ok(units) => Offload::Layers(units),
        Err(_) => Offload::All,
    };
    let again =
        options.clone().with_backends([c.lhs.parse()?]).with_offload([offload]).with_cache(cache(options));
    Ok(again.with_repeat(1).with_invariance(false).with_per_node(PerNode::Off))
}

/// A comparison in a folder of its own.
fn once(model: &Path, options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    super::files::begin(&options.out)?;
    let mut report = Report::new(options);
    run_model(model, options, &mut report, progress)?;
    report.write(&super::files::report(&options.out))?;
    Ok(report)
}

fn conclude(difference: String, fast: &Comparison, exact: &Report, nodes: Option<&Report>) -> SecondLook {
    let failed = |report: &Report| report.verdict.findings.join("; ");
    let compared = exact.comparisons.first();
    let node = nodes.and_then(|nodes| match nodes.comparisons.first() {
        Some(comparison) => judge::differing_node(comparison),
        None => Some(format!("its nodes cannot be compared: {}", failed(nodes))),
    });
    let exact_disagreement = match compared {
        Some(comparison) => comparison.disagreement.clone(),
        None => Some(format!("it cannot be compared: {}", failed(exact))),
    };
    let worst = [fast.logits, fast.steps].into_iter().flatten().map(|l| l.nmse).fold(0.0, f64::max);
    let rounding = exact_disagreement.is_none() && node.is_none() && worst <= MOST_ROUNDING;
    SecondLook { exact: compared.and_then(|c| c.logits), exact_disagreement, node, rounding, difference }
}
