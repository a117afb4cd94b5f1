//! Operation tests as text tables.

use super::by_operation;
use crate::compare::report::{Comparison, NodeReport, Report, Status};
use crate::compare::text::{Emphasis, Rows, Style, remarks, wrapped};
use ggml_core::escape::escaped_line;
use std::collections::BTreeMap;

/// Formats a row for each backend, then for each backend a row for each operation and its unsupported cases.
pub(in crate::compare) fn table(report: &Report, style: Style) -> String {
    let head =
        ["backend", "status", "cases", "agree", "differ", "unsupported", "failed", "seconds", "device"];
    let mut rows = Rows::new(head);
    for (record, backend) in report.backend_records() {
        let cases = report.comparisons.iter().find(|c| c.lhs == record.backend).map(|c| &c.nodes);
        let number = |select: &dyn Fn(&NodeReport) -> bool| {
            cases.map_or("-".into(), |all| all.iter().filter(|n| select(n)).count().to_string())
        };
        let fails = |n: &NodeReport| n.is_out_of_bounds() || has_failed(n);
        let emphasis = match record.status {
            Status::Ok if cases.is_some_and(|all| all.iter().any(fails)) => Emphasis::Bad,
            Status::Ok => Emphasis::Good,
            Status::Unsupported if !report.require_all => Emphasis::Neutral,
            _ => Emphasis::Bad,
        };
        rows.push(
            emphasis,
            [
                record.backend.clone(),
                record.status.to_string(),
                number(&|_| true),
                number(&agrees),
                number(&NodeReport::is_out_of_bounds),
                number(&|n| n.status == Status::Unsupported),
                number(&has_failed),
                format!("{:.1}", record.elapsed_s),
                if record.backend == report.reference {
                    format!("{} (reference)", backend.device)
                } else {
                    backend.device.clone()
                },
            ],
        );
    }
    let mut text = rows.text(style) + &remarks(report);
    for comparison in &report.comparisons {
        text.push_str(&operations(comparison, style));
    }
    text
}

fn agrees(n: &NodeReport) -> bool {
    n.status == Status::Ok && !n.is_out_of_bounds()
}

fn has_failed(n: &NodeReport) -> bool {
    !matches!(n.status, Status::Ok | Status::Unsupported)
}

/// Formats a backend's cases by operation.
fn operations(comparison: &Comparison, style: Style) -> String {
    let head = [
        "operation",
        "cases",
        "agree",
        "unsupported",
        "failed",
        "worst NMSE",
        "bound",
        "seconds",
        "worst case",
    ];
    let mut rows = Rows::new(head);
    for cases in by_operation(comparison.nodes.iter()) {
        let number =
            |select: &dyn Fn(&NodeReport) -> bool| cases.iter().filter(|n| select(n)).count().to_string();
        let compared = cases.iter().filter(|n| n.status == Status::Ok);
        let worst = compared.max_by(|a, b| a.excess().total_cmp(&b.excess()));
        let exponent = |value: Option<f64>| value.map_or("-".into(), |x| format!("{x:.1e}"));
        let emphasis = match cases.iter().any(|n| n.is_out_of_bounds() || has_failed(n)) {
            true => Emphasis::Bad,
            false => Emphasis::Neutral,
        };
        rows.push(
            emphasis,
            [
                cases[0].op.clone(),
                cases.len().to_string(),
                number(&agrees),
                number(&|n| n.status == Status::Unsupported),
                number(&has_failed),
                exponent(worst.map(|w| w.nmse)),
                exponent(worst.map(|w| w.bound)),
                format!("{:.2}", cases.iter().map(|n| n.elapsed_s).sum::<f64>()),
                worst.map_or("-".into(), |w| w.node.clone()),
            ],
        );
    }
    format!(
        "\n{}, against {}:\n{}{}",
        escaped_line(&comparison.lhs),
        escaped_line(&comparison.rhs),
        rows.text(style),
        refusals(&comparison.nodes)
    )
}

/// Lists the unsupported cases: a line for each operation and reason.
fn refusals(cases: &[NodeReport]) -> String {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for n in cases.iter().filter(|n| n.status == Status::Unsupported) {
        let reason = n.message.as_deref().unwrap_or("no reason given");
        reasons.entry((&n.op, reason)).or_default().push(&n.node);
    }
    let mut text = String::new();
    for ((op, reason), cases) in reasons {
        let which = match cases.as_slice() {
            [one] => one.to_string(),
            more => format!("{} cases of {op}", more.len()),
        };
        text.push_str(&wrapped(&format!("unsupported: {which}: {reason}"), ""));
    }
    text
}
