//! The error along the graph, in one plot for each backend.

use super::super::report::{Comparison, NodeReport, Report, Status};
use super::text::Escaped;
use super::{name, section, with_nodes};
use std::fmt::Write;

/// Height of a plot, and of its margin above and below.
const HEIGHT: f64 = 200.0;
const MARGIN: f64 = 14.0;

/// Margins in per cent of the width: at the left for the labels, and at the right.
const LEFT: f64 = 13.0;
const RIGHT: f64 = 2.0;

/// Range of decades that are drawn. Errors outside of it, including 0 and infinity, are drawn on the edge.
const DECADES: (i32, i32) = (-16, 2);

/// Decades between grid lines.
const STEP: usize = 3;

pub(super) fn errors(report: &Report) -> String {
    let plots: String = with_nodes(report).map(|c| plot(&name(report, c), c)).collect();
    let plots = if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") };
    section(
        "Error along the graph",
        "NMSE of each node or case in the order of the graph, on a logarithmic scale. Dots are within their bound (the dashed \
         lines), crosses are not. Point at a mark for its node.",
        &plots,
    )
}

/// Returns the vertical position of an error.
fn y(error: f64) -> f64 {
    let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
    let decade = if error.is_nan() { high } else { error.log10().clamp(low, high) };
    MARGIN + (HEIGHT - 2.0 * MARGIN) * (high - decade) / (high - low)
}

fn plot(name: &str, comparison: &Comparison) -> String {
    let nodes = &comparison.nodes;
    let x = |at: f64| LEFT + (100.0 - LEFT - RIGHT) * at / nodes.len() as f64;
    let out = nodes.iter().filter(|n| n.is_out_of_bounds()).count();
    let without = nodes.iter().filter(|n| n.status != Status::Ok).count();
    let mut text = format!(
        "<figure>\n<figcaption><b>{}</b> {} nodes, {out} out of bounds, {without} without a result</figcaption>\n\
         <svg class=\"plot\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"error along the graph\">\n",
        Escaped(name),
        nodes.len()
    );
    for decade in (DECADES.0..=DECADES.1).step_by(STEP) {
        let y = y(10f64.powi(decade));
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}%\" x2=\"{}%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}%\" y=\"{:.1}\" text-anchor=\"end\">1e{decade}</text>",
            100.0 - RIGHT,
            LEFT - 1.0,
            y + 4.0
        );
    }
    text.push_str(&bounds(nodes, x));
    // Nodes out of bounds are drawn last, on top of the others.
    for out in [false, true] {
        for (at, node) in nodes.iter().enumerate() {
            if node.status == Status::Ok && node.is_out_of_bounds() == out {
                text.push_str(&mark(node, x(at as f64 + 0.5), out));
            }
        }
    }
    text + "</svg>\n</figure>\n"
}

/// Draws a line for each stretch of nodes with the same bound.
fn bounds(nodes: &[NodeReport], x: impl Fn(f64) -> f64) -> String {
    let (mut text, mut from) = (String::new(), 0);
    for stretch in nodes.chunk_by(|a, b| a.bound == b.bound) {
        let (to, bound) = (from + stretch.len(), stretch[0].bound);
        let _ = writeln!(
            text,
            "<line class=\"bound\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>bound {bound:.1e}</title></line>",
            x(from as f64),
            x(to as f64),
            y = y(bound)
        );
        from = to;
    }
    text
}

fn mark(node: &NodeReport, x: f64, out: bool) -> String {
    let step = if node.step { " of a decode step" } else { "" };
    let title = format!(
        "{}{step}: {} {} {:?}, NMSE {:.1e}, bound {:.1e}",
        node.node, node.op, node.operand_type, node.shape, node.nmse, node.bound
    );
    let title = if out { format!("{title}: {}", node.describe_error()) } else { title };
    let (title, nmse, y) = (Escaped(&title), node.nmse, y(node.nmse));
    if out {
        // A nested image can be positioned in per cent; a path cannot.
        return format!(
            "<svg class=\"out\" x=\"{x:.2}%\" y=\"{y:.1}\" overflow=\"visible\" data-nmse=\"{nmse:e}\">\
             <path d=\"M-5-5L5 5M-5 5L5-5\"/><title>{title}</title></svg>\n"
        );
    }
    format!(
        "<circle cx=\"{x:.2}%\" cy=\"{y:.1}\" r=\"2.5\" data-nmse=\"{nmse:e}\"><title>{title}</title></circle>\n"
    )
}
