//! The second examination of a model's difference: is it rounding or an error?
//!
//! Rounding of activations is no error, even if a router amplifies it by choosing another expert. Therefore
//! the backend runs again in `exact` precision, where it has to agree within the rounding of F32, and node by
//! node in `fast`, where each node has to be within the bound of its operation. The program that ships in
//! `fast` has to give the same bits when it is repeated, when its steps are submitted one by one and when it is
//! stored in other memory: a missing barrier shows in no node that runs alone. A difference that passes all of
//! these, and is small enough for rounding, is rounding. A node that could not be judged is no agreement.
//!
//! Some models amplify the rounding of F32 so much that two correct backends differ in `exact` precision too.
//! This is no error either, under two conditions. Every node that gets the reference's operands is within its
//! bound in `exact`. And the program gives the same bits when its steps are submitted and waited for one by
//! one, and when it is stored in other memory, so that no step reads a result that is unfinished or was never
//! written.
//!
//! Each examination is a run in a separate folder.

use super::comparison::MOST_DIVERGENCE;
use super::graph_runs::{plan_graph, plan_model};
use super::header::Header;
use super::options::{CompareOptions, Event, PerNode, Progress, Subject};
use super::report::{Comparison, LogitsReport, Report, SecondLook};
use super::{files, graph_runs, judge};
use crate::isolate::parent::Children;
use crate::isolate::protocol::ModelTask;
use crate::model::Offload;
use ggml_core::Result;
use ggml_core::precision::Precision;

/// The largest NMSE over all positions that rounding can cause when other experts are chosen at some of them.
/// Zeros have an NMSE of 1, unrelated vectors of equal norm one of 2. With 0.25 the correlation is at least
/// 0.86.
const MOST_ROUNDING: f64 = 0.25;

/// The same for the prompt or the decode steps alone, which may be few positions.
const MOST_IN_A_PART: f64 = 0.9;

/// The smallest share of positions whose best token is the reference's.
const LEAST_AGREEMENT: f64 = 0.5;

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
        let known = judge::differing_node(comparison).filter(|_| header.is_isolated());
        if comparison.logits.is_none() || known.or_else(|| judge::unjudged_node(comparison)).is_some() {
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
    let chunks = task.text.as_ref().map(|text| text.chunks.clone());
    let base = CompareOptions { text_chunks: chunks, ..single_backend(&header.options, c)? }
        .with_cache(task.cache)
        .with_work(Subject::Model(Some(task.model.as_ref().into())));
    let folder = |what: &str| {
        files::second_look(&header.options.out).join(format!("{}-{what}", files::stem(&c.lhs, c.offload, 0)))
    };
    // The prompt alone has every node; a text would be computed for nothing.
    let prompt = CompareOptions { text: None, text_chunks: None, ..base.clone() };
    let prompt = prompt.with_prompt(None).with_tokens(task.tokens.clone());
    let nodes = prompt.with_per_node(PerNode::Isolated).with_predict(header.options.predict.min(2));
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
        // The nodes are known already if the run itself was isolated.
        let per_node = if header.is_isolated() { PerNode::Off } else { PerNode::Isolated };
        let out = CompareOptions { same_bits: true, ..nodes.clone() }.with_per_node(per_node).with_repeat(2);
        let Some(ran) = run_nested(&out.with_out(folder("nodes")), children, progress)? else {
            return Ok(None);
        };
        found.node = differing_node(&ran, per_node);
        found.bits = differing_bits(&ran);
    }
    let numbers = found.exact.is_some_and(|logits| logits.non_finite == 0);
    if found.exact_disagreement.is_some() && found.node.is_none() && numbers {
        let nodes = CompareOptions { same_bits: true, ..nodes };
        let nodes = nodes.with_precision(Precision::Exact).with_out(folder("exact-nodes"));
        let Some(nodes) = run_nested(&nodes, children, progress)? else { return Ok(None) };
        found.exact_node = differing_node(&nodes, PerNode::Isolated).or_else(|| differing_bits(&nodes));
        found.amplified = found.exact_node.is_none();
    }
    Ok(Some(found))
}

fn failures(report: &Report) -> String {
    report.verdict.findings.join("; ")
}

/// Describes the first node of a run that is out of its bound or was not judged.
fn differing_node(ran: &Report, per_node: PerNode) -> Option<String> {
    let Some(comparison) = ran.comparisons.first() else {
        return Some(format!("the nodes cannot be compared: {}", failures(ran)));
    };
    let none = || {
        let missing = per_node == PerNode::Isolated && comparison.nodes.is_empty();
        missing.then(|| "no node was compared".into())
    };
    judge::differing_node(comparison).or_else(|| judge::unjudged_node(comparison)).or_else(none)
}

/// Describes the first way of execution that changes bits.
fn differing_bits(ran: &Report) -> Option<String> {
    ran.records.iter().flat_map(|record| judge::variance(record).chain(judge::instability(record))).next()
}

fn is_rounding(found: &SecondLook, c: &Comparison) -> bool {
    let text = c.text.map(|text| text.logits);
    let parts: Vec<LogitsReport> = [c.logits, c.steps, text].into_iter().flatten().collect();
    let positions: usize = parts.iter().map(|l| l.positions).sum();
    let mean = |of: fn(&LogitsReport) -> f64| {
        parts.iter().map(|l| of(l) * l.positions as f64).sum::<f64>() / positions as f64
    };
    let is_small = parts.iter().all(|l| l.non_finite == 0 && l.flat == 0 && l.nmse <= MOST_IN_A_PART)
        && mean(|l| l.nmse) <= MOST_ROUNDING
        && mean(|l| l.kl) <= MOST_DIVERGENCE
        && mean(|l| if l.hidden { 1.0 } else { l.top1_agreement }) >= LEAST_AGREEMENT
        && c.text.is_none_or(|text| text.is_near() && text.logits.kl <= MOST_DIVERGENCE);
    let exact = found.exact_disagreement.is_none() || found.amplified;
    exact && found.node.is_none() && found.bits.is_none() && is_small
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

#[cfg(test)]
mod tests {
    use super::super::report::{TextReport, TextScore};
    use super::*;

    /// Compares rows of eight logits, of which `change` alters a copy.
    fn looks_like_rounding(change: fn(usize, f32) -> f32) -> bool {
        let want: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
        let got: Vec<f32> = want.iter().enumerate().map(|(i, &x)| change(i, x)).collect();
        let logits = Some(LogitsReport::new(&got, &want, 8));
        is_rounding(&SecondLook::default(), &Comparison { logits, ..Comparison::default() })
    }

    #[test]
    fn zeros_and_other_vectors_are_no_rounding() {
        assert!(looks_like_rounding(|_, x| x));
        assert!(looks_like_rounding(|i, x| x + if i % 2 == 0 { 0.2 } else { -0.2 }));
        assert!(!looks_like_rounding(|_, _| 0.0), "nothing was written");
        assert!(!looks_like_rounding(|i, x| if i / 8 == 3 { 0.0 } else { x }), "a row was not written");
        assert!(!looks_like_rounding(|_, x| 2.0 * x), "scaled");
        assert!(!looks_like_rounding(|_, x| -x), "another sign");
        assert!(!looks_like_rounding(|i, _| (i as f32 * 1.3).cos() * 4.0), "unrelated");
        assert!(!looks_like_rounding(|i, x| if i == 5 { f32::NAN } else { x }));
        // Of hidden states only the squares count.
        let want: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
        for (factor, rounding) in [(0.6, true), (0.4, false)] {
            let got: Vec<f32> = want.iter().map(|x| factor * x).collect();
            let logits = Some(LogitsReport::of_hidden(&got, &want, 8));
            let compared = Comparison { logits, ..Comparison::default() };
            assert_eq!(is_rounding(&SecondLook::default(), &compared), rounding, "{factor}");
        }
    }

    /// A text whose logits differ, or whose perplexity does although its logits hardly differ.
    #[test]
    fn a_text_that_became_improbable_is_no_rounding() {
        let want: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
        let near: Vec<f32> = want.iter().map(|x| x + 0.1).collect();
        let score = |nll: f64| TextScore { nll, perplexity: nll.exp(), chunks: 1, ..TextScore::default() };
        let rounds = |got: &[f32], nll: f64| {
            let mut text = TextReport::new(score(nll), score(3.0));
            text.add(&want, &want, 8);
            text.add(got, &want, 8);
            let logits = Some(LogitsReport::new(&want, &want, 8));
            let comparison = Comparison { logits, text: Some(text), ..Comparison::default() };
            is_rounding(&SecondLook::default(), &comparison)
        };
        assert!(rounds(&near, 3.0) && rounds(&near, 3.4) && rounds(&near, 2.6));
        assert!(!rounds(&near, 3.6) && !rounds(&near, 2.4) && !rounds(&near, f64::INFINITY));
        assert!(!rounds(&near, f64::NAN) && !rounds(&vec![0.0; 64], 3.0));
    }

    #[test]
    fn what_was_not_judged_is_no_agreement() {
        use super::super::report::{NodeReport, Status};
        let node = NodeReport { node: "a".into(), status: Status::Ok, bound: 1.0, ..NodeReport::default() };
        let missing = NodeReport { node: "b".into(), status: Status::Error, ..NodeReport::default() };
        let mut ran = Report::new(&CompareOptions::default());
        assert!(differing_node(&ran, PerNode::Off).is_some(), "no comparison");
        let with = |nodes: Vec<NodeReport>| Comparison { nodes, ..Comparison::default() };
        for (nodes, words) in [(vec![], "no node"), (vec![node.clone(), missing], "'b' () cannot be judged")]
        {
            ran.comparisons = vec![with(nodes)];
            let text = differing_node(&ran, PerNode::Isolated).unwrap();
            assert!(text.contains(words), "{text}");
        }
        ran.comparisons = vec![with(vec![node])];
        assert_eq!(differing_node(&ran, PerNode::Isolated), None);
        assert_eq!(differing_bits(&ran), None);
        ran.records =
            vec![super::super::report::Record { unstable: 3, ..super::super::report::Record::default() }];
        assert!(differing_bits(&ran).unwrap().contains("3 values change"));
    }
}
