//! The table that `compare` ends with.

use super::ops;
use super::report::{EVERYTHING, NodeReport, Report, label};
use super::text::{align, line, remarks};
use std::fmt::Write;

/// Findings that are printed; all of them are in the report.
const MAX_FINDINGS: usize = 20;

/// The report as text: a row for each backend, the nodes with the largest errors or the operations, the verdict.
pub fn table(report: &Report) -> String {
    let is_ops = report.work.split(' ').next() == Some("ops");
    let mut text = if is_ops { ops::table(report) } else { graphs(report) };
    let findings = &report.verdict.findings;
    for note in &report.verdict.notes {
        let _ = writeln!(text, "note: {}", line(note));
    }
    if report.verdict.agree {
        text.push_str("verdict: all backends that can run here agree\n");
    } else {
        text.push_str("verdict: something differs\n");
        for finding in findings.iter().take(MAX_FINDINGS) {
            let _ = writeln!(text, "  {}", line(finding));
        }
        if findings.len() > MAX_FINDINGS {
            let _ = writeln!(text, "  and {} more: see the report", findings.len() - MAX_FINDINGS);
        }
    }
    text
}

/// A model or a graph file.
fn graphs(report: &Report) -> String {
    let mut rows = vec![
        ["backend", "status", "NMSE", "top-1", "load s", "prompt s", "eval s", "t/s", "device"]
            .map(String::from),
    ];
    let seconds = |s: Option<f64>| s.map_or("-".into(), |s| format!("{s:.3}"));
    for (record, backend) in report.backend_records() {
        let same = |lhs: &str, offload| lhs == record.backend && offload == record.offload;
        let c = report.comparisons.iter().find(|c| same(&c.lhs, c.offload));
        let is_reference = same(&report.reference, EVERYTHING);
        let logits = c.and_then(|c| c.logits);
        // Without logits the largest error of a node stands for the whole.
        let worst = c.and_then(|c| c.nodes.iter().map(|n| n.nmse).max_by(f64::total_cmp));
        let nmse = logits.map(|l| l.nmse).or(worst);
        rows.push([
            record.label(),
            record.status.to_string(),
            nmse.map_or(if is_reference { "reference".into() } else { "-".into() }, |x| format!("{x:.1e}")),
            logits.map_or("-".into(), |l| format!("{:.0}%", 100.0 * l.top1_agreement)),
            seconds(record.load_s),
            seconds(record.prompt_s),
            seconds(record.eval_s),
            record.tokens_per_s.map_or("-".into(), |t| format!("{t:.1}")),
            backend.device.clone(),
        ]);
    }
    let mut text = align(&rows);
    text.push_str(&remarks(report));
    for c in report.comparisons.iter().filter(|c| !c.nodes.is_empty()) {
        text.push_str(&worst_nodes(&label(&c.lhs, c.offload), &c.nodes));
    }
    text
}

/// The largest error of each operation.
fn worst_nodes(backend: &str, nodes: &[NodeReport]) -> String {
    let mut worst: Vec<&NodeReport> = Vec::new();
    for node in nodes {
        match worst.iter_mut().find(|w| w.op == node.op && w.operand_type == node.operand_type) {
            Some(w) if w.nmse >= node.nmse => {}
            Some(w) => *w = node,
            None => worst.push(node),
        }
    }
    let head = ["operation", "operand", "worst node", "NMSE", "max abs", "bound"].map(String::from);
    let rows: Vec<[String; 6]> = std::iter::once(head)
        .chain(worst.iter().map(|n| {
            let number = |x: f64| format!("{x:.1e}");
            [
                n.op.clone(),
                n.operand_type.clone(),
                n.node.clone(),
                number(n.nmse),
                number(n.max_abs),
                number(n.bound),
            ]
        }))
        .collect();
    format!("\n{backend}, {} nodes:\n{}", nodes.len(), align(&rows))
}
