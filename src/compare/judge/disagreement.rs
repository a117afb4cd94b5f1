//! Description of the first result that is out of its bound.

use super::Measure;
use super::results::differing_tokens;
use super::verdict::invalid_from;
use crate::compare::options::PerNode;
use crate::compare::report::{Comparison, NodeReport, Record, Status};
use std::collections::BTreeSet;

/// Different greedy tokens are no disagreement if the reference's two best logits are closer than this many
/// times the RMS error of the logits: either of them may win.
const MARGIN_FACTOR: f64 = 10.0;

pub(super) fn disagreement(
    c: &Comparison,
    per_node: PerNode,
    measure: &Measure,
    (record, reference): (&Record, &Record),
    rms: f64,
) -> Option<String> {
    if let Some(why) = unjudged_node(c) {
        return Some(why);
    }
    if c.logits.is_none() && c.nodes.is_empty() {
        return Some("there is no result to compare".into());
    }
    // Chained results include the errors of all earlier nodes, so only isolated results are held to the bound
    // of a node. A node out of its bound explains more than the outputs that follow from it.
    if per_node == PerNode::Isolated {
        if let Some(why) = differing_node(c) {
            return Some(why);
        }
    } else if let Measure::Outputs(bounds) = measure {
        let is_out = |n: &&NodeReport| match per_node {
            PerNode::Off => n.is_out_of_bounds(),
            _ => bounds.get(&n.node).is_some_and(|bound| !bound.holds(&n.distance())),
        };
        if let Some(n) = c.nodes.iter().find(is_out) {
            return Some(format!("output '{}' has {}", n.node, n.describe_error()));
        }
    }
    if let Measure::Logits(bound) | Measure::Hidden(bound) = measure {
        let text = c.text.map(|text| text.logits);
        let logits = [("prompt", c.logits), ("steps after the prompt", c.steps), ("text", text)];
        let mut logits = logits.into_iter().filter_map(|(of, l)| Some((of, l?)));
        if let Some((of, l)) = logits.find(|(_, l)| !bound.holds(&l.distance())) {
            let text = c.text.map(|text| format!("; {text}")).unwrap_or_default();
            let (what, excess) = (l.what(), bound.excess(&l.distance()));
            let begin = match l.non_finite {
                0 => String::new(),
                n => format!(": {n} are NaN or infinite{}", invalid_from(record)),
            };
            return Some(format!("the {what} of the {of} have {excess} ({l}){text}{begin}"));
        }
        if let Some(text) = c.text.filter(|text| !text.is_near()) {
            return Some(text.to_string());
        }
        if let Some(drafts) = c.drafts.filter(|drafts| !drafts.is_near()) {
            return Some(drafts.to_string());
        }
    }
    let margin = |at: usize| f64::from(reference.margins.get(at).copied().unwrap_or(0.0));
    let at = differing_tokens(record, reference).find(|&at| margin(at) > MARGIN_FACTOR * rms)?;
    Some(format!(
        "token {at} differs although the two best logits differ by {:.3} (RMS error {rms:.1e})",
        margin(at)
    ))
}

/// Describes the first node without a result to judge.
pub(in crate::compare) fn unjudged_node(c: &Comparison) -> Option<String> {
    let node = c.nodes.iter().find(|n| n.status != Status::Ok)?;
    let why = node.message.as_deref().unwrap_or("no reason given");
    Some(format!("node '{}' ({}) cannot be judged: {why}", node.node, node.op))
}

/// Describes the first node out of bounds, with the number of others.
pub(in crate::compare) fn differing_node(c: &Comparison) -> Option<String> {
    let mut out = c.nodes.iter().filter(|n| n.is_out_of_bounds());
    let first = out.next()?;
    let of = match (first.step, first.members.len()) {
        (false, 0) => "",
        (true, 0) => " of a decode step",
        (false, _) => ", computed in a group,",
        (true, _) => " of a decode step, computed in a group,",
    };
    let what = format!("node '{}' ({}){of} has {}", first.node, first.op, first.describe_error());
    let others: BTreeSet<&str> = out.map(|n| n.node.as_str()).filter(|name| *name != first.node).collect();
    // Groups follow the single nodes: if the first node out of bounds is a group, its members are correct by
    // themselves.
    let members = match first.members.len() {
        0 => "",
        _ => "; its members agree when they are computed separately",
    };
    Some(match others.len() {
        0 => format!("{what}{members}"),
        1 => format!("{what}{members} (and another node)"),
        n => format!("{what}{members} (and {n} other nodes)"),
    })
}
