//! The report as text: a table that fits a terminal of 100 columns.

use super::report::{Answer, DeviceReport, Line, Report, State};
use ggml_core::escape::{escaped, escaped_line};
use std::fmt::Write;

/// Width of the table in columns.
const WIDTH: usize = 100;

/// Column where the text of a line starts.
const INDENT: usize = 34;

/// Formats the matrix of each device and its verdicts.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let kernel = report.kernel.as_deref().unwrap_or("unknown");
    let head = format!("diptych {}, kernel {kernel}, system paths below {}", report.diptych, report.root);
    let _ = writeln!(out, "{}", escaped_line(&head));
    for (name, value) in &report.environment {
        wrapped(&mut out, "set: ", &format!("{name}={value}"), 5);
    }
    if !report.machine.is_empty() {
        let _ = writeln!(out, "\nno usable graphics card");
        report.machine.iter().for_each(|line| write_line(&mut out, line));
    }
    report.devices.iter().for_each(|device| matrix(&mut out, device));
    out.push('\n');
    report.summary.iter().for_each(|sentence| wrapped(&mut out, "", sentence, 0));
    out
}

fn matrix(out: &mut String, device: &DeviceReport) {
    let parts = [&device.target, &device.ids, &device.pci];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let _ = writeln!(out, "\n{}", escaped_line(&format!("{}{parts}", device.name)));
    device.lines.iter().for_each(|line| write_line(out, line));
    for verdict in &device.verdicts {
        let answers = [
            ("officially supported", &verdict.supported),
            ("executes here", &verdict.executes),
            ("has code for the card", &verdict.artifacts),
            ("stable in these runs", &verdict.stable),
        ];
        for (what, answer) in answers {
            let head = format!("  {:<7} {what:<22} ", verdict.way.name());
            wrapped(out, &head, &describe(answer), INDENT);
        }
        let head = format!("  {:<7} {:<22} ", verdict.way.name(), "in one sentence");
        wrapped(out, &head, &verdict.sentence, INDENT);
    }
    for route in &device.routes {
        let state = if route.used { "used" } else { "not used" };
        let head = format!("  {:<7} {state:<14} ", "route");
        let gain = format!("{}: {}; {}", route.name, route.about, route.why);
        wrapped(out, &head, &gain, INDENT);
    }
}

fn describe(answer: &Answer) -> String {
    let word = match answer.answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    format!("{word}: {}", answer.why)
}

pub(super) fn write_line(out: &mut String, line: &Line) {
    let state = match line.state {
        State::Blocks => "BLOCKS",
        state => state.name(),
    };
    let head = format!("  {:<7} {:<14} {state:<8} ", line.way.name(), line.gate.name());
    wrapped(out, &head, &line.evidence, INDENT);
    for advice in &line.advice {
        wrapped(out, &format!("{:INDENT$}-> ", ""), advice, INDENT + 3);
    }
}

/// Appends a heading and a text wrapped at spaces; continuation lines are indented by `indent`.
pub(super) fn wrapped(out: &mut String, head: &str, text: &str, indent: usize) {
    let mut line = format!("{:<indent$}", escaped_line(head));
    let mut is_empty = true;
    for word in escaped(text).split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
