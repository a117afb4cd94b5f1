//! The second look at a difference of models in `fast` precision: whether it is rounding or an error.
//!
//! Rounding of activations is no error, however much a router that chooses another expert makes of it. So the backend runs
//! again in `exact` precision, where it has to agree within what F32 rounds, and node by node in `fast`, where each node
//! has to be within the bound of its operation. What passes both is rounding. Each is a run in a folder of its own.

use super::header::Header;
use super::options::{CompareOptions, Event, PerNode, Progress, Subject};
use super::parent::Children;
use super::protocol::ModelTask;
use super::report::{Comparison, Report, SecondLook};
use super::whole::{plan_graph, plan_model};
use super::{files, judge, whole};
use crate::model::Offload;
use ggml_core::Result;
use ggml_core::plan::Precision;

/// What rounding gives at the most, where other experts are chosen at some positions: half of what unrelated numbers of the
/// same size give. What is beyond it has nothing of the reference's left, whatever each node does.
const MOST_ROUNDING: f64 = 1.0;

/// Looks again at what differs in `fast` precision, unless a node is known that does.
pub(super) fn look(
    header: &Header,
    task: &ModelTask,
    children: &Children,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    if header.options.precision != Precision::Fast {
        return Ok(());
    }
    let mut looks: Vec<(String, i64, SecondLook)> = Vec::new();
    for comparison in &mut report.comparisons {
        let Some(difference) = comparison.disagreement.clone() else { continue };
        if comparison.logits.is_none()
            || judge::differing_node(comparison).is_some_and(|_| header.is_isolated())
        {
            continue;
        }
        // What one epoch shows is true of all.
        let known =
            looks.iter().find(|(lhs, offload, _)| (lhs, *offload) == (&comparison.lhs, comparison.offload));
        let known = known.map(|(_, _, look)| look.clone());
        let look = match known {
            Some(look) => Some(SecondLook { difference, ..look }),
            None => look_at(header, task, children, comparison, difference, progress)?,
        };
        let Some(mut look) = look else { continue };
        look.rounding = is_rounding(&look, comparison);
        looks.push((comparison.lhs.clone(), comparison.offload, look.clone()));
        comparison.disagreement = (!look.rounding).then(|| look.words());
        comparison.second_look = Some(look);
    }
    judge::give_verdict(report);
    Ok(())
}

/// Both runs; `None` where they were not made and the run is over.
fn look_at(
    header: &Header,
    task: &ModelTask,
    children: &Children,
    c: &Comparison,
    difference: String,
    progress: Progress<'_>,
) -> Result<Option<SecondLook>> {
    progress(&Event::new(&c.lhs, "differs: again in exact precision, and node by node"));
    let base = alone(&header.options, c)?
        .with_cache(task.cache)
        .with_work(Subject::Model(Some(task.model.as_ref().into())));
    let folder = |what: &str| {
        files::again(&header.options.out).join(format!("{}-{what}", files::stem(&c.lhs, c.offload, 0)))
    };
    let exact = base.clone().with_precision(Precision::Exact).with_out(folder("exact"));
    let Some(exact) = run(&exact, children, progress)? else { return Ok(None) };
    let nodes = base.with_per_node(PerNode::Isolated).with_predict(header.options.predict.min(2));
    let nodes = match header.is_isolated() {
        true => None,
        false => match run(&nodes.with_out(folder("nodes")), children, progress)? {
            None => return Ok(None),
            nodes => nodes,
        },
    };
    let failed = |report: &Report| report.verdict.findings.join("; ");
    let node = nodes.and_then(|nodes| match nodes.comparisons.first() {
        Some(comparison) => judge::differing_node(comparison),
        None => Some(format!("its nodes cannot be compared: {}", failed(&nodes))),
    });
    let compared = exact.comparisons.first();
    let exact_disagreement = match compared {
        Some(comparison) => comparison.disagreement.clone(),
        None => Some(format!("it cannot be compared: {}", failed(&exact))),
    };
    let exact = compared.and_then(|c| c.logits);
    Ok(Some(SecondLook { exact, exact_disagreement, node, rounding: false, difference }))
}

fn is_rounding(look: &SecondLook, fast: &Comparison) -> bool {
    let worst = [fast.logits, fast.steps].into_iter().flatten().map(|l| l.nmse).fold(0.0, f64::max);
    look.exact_disagreement.is_none() && look.node.is_none() && worst <= MOST_ROUNDING
}

/// The options for the backend of a comparison alone.
pub(super) fn alone(options: &CompareOptions, c: &Comparison) -> Result<CompareOptions> {
    let offload = match usize::try_from(c.offload) {
        Ok(0) => Offload::None,
        Ok(units) => Offload::Layers(units),
        Err(_) => Offload::All,
    };
    let options = options.clone().with_backends([c.lhs.parse()?]).with_offload([offload]).with_epochs(1);
    Ok(options.with_repeat(1).with_invariance(false).with_per_node(PerNode::Off))
}

/// A run in a folder of its own, which is begun unless it is there. `None` if it is not and the run that it belongs to is
/// over.
pub(super) fn run(
    options: &CompareOptions,
    children: &Children,
    progress: Progress<'_>,
) -> Result<Option<Report>> {
    let known = files::header(&options.out).exists();
    let header = if known {
        Header::read(&options.out)?
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
    whole::play(&header, &mut children.beside(&options.out, !known)?, progress).map(Some)
}
