//! The table of variants, and the sentences below it.

use super::super::circumstances;
use super::super::report::Report;
use super::super::text::{Emphasis, Rows, Style, wrapped};
use super::effects::{Group, outcome};
use ggml_core::escape::escaped_line;

/// Formats a row for each variant and backend, the plain runs of a backend first; empty without variants.
pub(in crate::compare) fn table(report: &Report, style: Style) -> String {
    let groups = Group::all(report);
    if groups.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(["variant", "backend", "result", "furthest phase", "s", "t/s"]);
    let mut run = "";
    for group in &groups {
        if report.runs.len() > 1 && run != group.run_id {
            run = group.run_id;
            rows.heading(&circumstances::title(report, run));
        }
        let Some(worst) = group.worst() else { continue };
        let n = group.records.len();
        let counts = if n > 1 { format!(" ({} of {n})", group.ok()) } else { String::new() };
        let step = worst.step.as_ref().map_or(String::new(), |step| format!(", {step}"));
        let furthest = match group.is_good() {
            true => "end".into(),
            false => worst.furthest.as_ref().map_or("-".into(), |phase| format!("{phase}{step}")),
        };
        let number = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.1}"));
        let emphasis = if group.is_good() { Emphasis::Good } else { Emphasis::Bad };
        let cells = [
            group.name().into(),
            group.label(),
            outcome(report, worst) + &counts,
            furthest,
            number(group.elapsed_s()),
            number(group.tokens_per_s()),
        ];
        rows.push(emphasis, cells);
    }
    format!("\nvariants (s: seconds of the process):\n{}", rows.text(style))
}

/// Formats the effects of the variants, or the command that tries some.
pub(in crate::compare) fn sentences(report: &Report) -> String {
    let mut text: String = report.variant_findings.iter().map(|line| wrapped(line, "")).collect();
    if let Some(command) = &report.cure_command {
        // In one line, however long: it is copied.
        text.push_str(&format!("what may help is tried by: {}\n", escaped_line(command)));
    }
    text
}
