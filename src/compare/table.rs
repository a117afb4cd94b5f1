//! The table that `compare` prints at its end.

use super::report::{NodeReport, Record, Report, Statistics, Status, Verdict, label};
use super::text::{Emphasis, Rows, fit, remarks, statistics_labels, wrapped};
use super::{circumstances, ops, scores, variants};
use crate::statistics::Summary;
use ggml_core::escape::escaped_line;
use std::collections::BTreeSet;
use std::fmt::Write;

pub use super::text::Style;

/// The most characters of the last line, which is one sentence and not wrapped.
const MAX_ADVICE: usize = 600;

/// The most patterns over runs that are printed; the report has all of them.
const MAX_PATTERNS: usize = 16;

/// The most findings that are printed; the report has all of them.
const MAX_FINDINGS: usize = 20;

/// Formats the report as text. It has a row for each backend, the nodes with the largest errors or the
/// operations, statistics of repeated measurements, variants, the verdict, the effects of variants, and the
/// recommendation as the last line.
/// Other lines have at most as many columns as the terminal (`COLUMNS`, 100 by default), unless a word is longer.
pub fn table(report: &Report, style: Style) -> String {
    let is_ops = report.work.split(' ').next() == Some("ops");
    let mut text = if is_ops { ops::table(report, style) } else { graphs(report, style) };
    text.push_str(&variants::table(report, style));
    let verdict = &report.verdict;
    verdict.notes.iter().for_each(|note| text.push_str(&wrapped(&format!("note: {note}"), "")));
    text.push_str(&patterns(verdict));
    let emphasis = if verdict.agree { Emphasis::Good } else { Emphasis::Bad };
    text.push_str(&style.paint(emphasis, &format!("verdict: {}", verdict.sentence())));
    text.push('\n');
    text.push_str(&findings(verdict));
    text.push_str(&variants::sentences(report));
    text + &fit(&escaped_line(&verdict.advice), MAX_ADVICE) + "\n"
}

/// Formats the patterns. The last line has that of the first failure.
fn patterns(verdict: &Verdict) -> String {
    let patterns = verdict.patterns.iter().filter(|pattern| !verdict.advice.starts_with(pattern.as_str()));
    let patterns: Vec<&String> = patterns.collect();
    let lines = patterns.iter().map(|pattern| wrapped(&format!("pattern: {pattern}"), ""));
    let mut text: String = lines.take(MAX_PATTERNS).collect();
    if patterns.len() > MAX_PATTERNS {
        let _ = writeln!(text, "and {} more patterns: see the report", patterns.len() - MAX_PATTERNS);
    }
    text
}

/// Formats the findings, each with its cure first and its next command last. A cure or a command that several findings
/// share is printed once.
fn findings(verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut seen = BTreeSet::new();
    for finding in verdict.findings.iter().take(MAX_FINDINGS) {
        let detail = verdict.details.iter().find(|detail| detail.text == *finding);
        // The last line has the recommendation of another backend.
        let cures = detail.into_iter().flat_map(|detail| &detail.cure);
        for cure in cures.filter(|cure| !verdict.advice.contains(cure.as_str())) {
            if seen.insert(cure) {
                text.push_str(&wrapped(&format!("cure: {cure}"), "  "));
            }
        }
        text.push_str(&wrapped(finding, "  "));
        if let Some(next) = detail.and_then(|detail| detail.next.as_ref())
            && !finding.contains(next)
            && seen.insert(next)
        {
            text.push_str(&wrapped(&format!("next: {next}"), "    "));
        }
    }
    if verdict.findings.len() > MAX_FINDINGS {
        let _ = writeln!(text, "  and {} more: see the report", verdict.findings.len() - MAX_FINDINGS);
    }
    text
}

/// Formats the report of a model or a graph file.
fn graphs(report: &Report, style: Style) -> String {
    let head = ["backend", "status", "NMSE", "top-1", "load s", "prompt s", "eval s", "t/s", "device"];
    let mut rows = Rows::new(head);
    let mut run = "";
    let plain = report.backend_records().filter(|(r, _)| r.variant.is_none());
    for (record, backend) in plain.filter(|(r, _)| r.epoch == 0 || has_other_status(report, r)) {
        if report.runs.len() > 1 && run != record.run_id {
            run = &record.run_id;
            rows.heading(&circumstances::title(report, run));
        }
        let (emphasis, cells) = row(report, record, &backend.device);
        rows.push(emphasis, cells);
    }
    // The first screen is for the failure.
    let has_failed = report
        .records
        .iter()
        .any(|r| matches!(r.status, Status::Crash | Status::Hang | Status::Ended | Status::Error));
    let mut text = rows.text(style) + &remarks(report) + &scored(report, style);
    text += &drafted(report, style);
    text += &repeated(report, style);
    for c in report.comparisons.iter().filter(|c| !c.nodes.is_empty() && c.epoch == 0 && c.variant.is_none())
    {
        let name = label(&c.lhs, c.offload);
        text.push_str(&match has_failed
            && c.disagreement.is_none()
            && !c.nodes.iter().any(NodeReport::is_out_of_bounds)
        {
            true => format!("{}, {} nodes: all within their bounds\n", escaped_line(&name), c.nodes.len()),
            false => worst_nodes(&name, &c.nodes, style),
        });
    }
    text
}

/// Formats the drafts of the file's predictor.
fn drafted(report: &Report, style: Style) -> String {
    let lines = scores::draft_lines(report);
    if lines.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(scores::DRAFTS_HEAD);
    for (record, cells) in lines {
        rows.push(emphasis(report, record), cells);
    }
    format!("\npredictor\n{}", rows.text(style))
}

/// Formats the scores of the text.
fn scored(report: &Report, style: Style) -> String {
    let lines = scores::lines(report);
    if lines.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(scores::HEAD);
    for (record, cells) in lines {
        rows.push(emphasis(report, record), cells);
    }
    let what = report.text.as_deref().unwrap_or("a text");
    format!("\n{}{}", wrapped(&format!("perplexity of {what}"), ""), rows.text(style))
}

/// True if a run's status differs from that of the first run of the same backend and offload.
fn has_other_status(report: &Report, record: &Record) -> bool {
    let of = |r: &Record| (r.run_id.clone(), r.backend.clone(), r.offload);
    let first = report.records.iter().find(|r| of(r) == of(record));
    first.is_some_and(|first| first.status != record.status)
}

fn row(report: &Report, record: &Record, device: &str) -> (Emphasis, [String; 9]) {
    let seconds = |s: Option<f64>| s.map_or("-".into(), |s| format!("{s:.3}"));
    let c = report.comparison_of(record);
    let is_reference = report.is_reference(record);
    let logits = c.and_then(|c| c.logits);
    // Without logits, the largest error of a node is shown.
    let worst = c.and_then(|c| c.nodes.iter().map(|n| n.nmse).max_by(f64::total_cmp));
    let nmse = logits.map(|l| l.nmse).or(worst);
    let epoch = if record.epoch == 0 { String::new() } else { format!(" epoch {}", record.epoch + 1) };
    let cells = [
        format!("{}{epoch}", record.label()),
        record.status.to_string(),
        nmse.map_or(if is_reference { "reference".into() } else { "-".into() }, |x| format!("{x:.1e}")),
        logits.filter(|l| !l.hidden).map_or("-".into(), |l| format!("{:.0}%", 100.0 * l.top1_agreement)),
        seconds(record.load_s),
        seconds(record.prompt_s),
        seconds(record.eval_s),
        record.tokens_per_s.map_or("-".into(), |t| format!("{t:.1}")),
        device.into(),
    ];
    (emphasis(report, record), cells)
}

fn emphasis(report: &Report, record: &Record) -> Emphasis {
    let differs = || report.comparison_of(record).is_some_and(|c| c.disagreement.is_some());
    match record.status {
        Status::Ok if differs() => Emphasis::Bad,
        Status::Ok => Emphasis::Good,
        Status::Unsupported if !report.require_all => Emphasis::Neutral,
        _ => Emphasis::Bad,
    }
}

/// Formats the statistics of repeated measurements: mean, deviation, smallest and largest value.
fn repeated(report: &Report, style: Style) -> String {
    let several: Vec<&Statistics> = report.statistics.iter().filter(|s| s.runs > 1).collect();
    if several.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(["backend", "runs", "ok", "died", "of", "mean", "sd", "smallest", "largest"]);
    let (labels, legend) = statistics_labels(&several);
    for (s, label) in several.into_iter().zip(&labels) {
        let died = s.crashes + s.hangs;
        let emphasis = if died + s.errors + s.ended > 0 { Emphasis::Bad } else { Emphasis::Good };
        let quantities =
            [("t/s", s.tokens_per_s), ("total s", s.elapsed_s), ("died after s", s.time_to_crash_s)];
        for (what, summary) in quantities {
            let Some(Summary { mean, sd, min, max, .. }) = summary else { continue };
            let mut counts = [s.runs, s.ok, died].map(|n| n.to_string());
            if s.ended > 0 {
                counts[0] += &format!(" ({} ended from outside)", s.ended);
            }
            let numbers = [mean, sd, min, max].map(|x| format!("{x:.3}"));
            let [runs, ok, died] = counts;
            let [mean, sd, min, max] = numbers;
            rows.push(emphasis, [label.clone(), runs, ok, died, what.into(), mean, sd, min, max]);
        }
    }
    let legend: String = legend.iter().map(|line| wrapped(line, "")).collect();
    format!("\nover all runs (sd: standard deviation):\n{}{legend}", rows.text(style))
}

/// Formats the largest error of each operation.
fn worst_nodes(backend: &str, nodes: &[NodeReport], style: Style) -> String {
    let mut worst: Vec<&NodeReport> = Vec::new();
    for node in nodes {
        match worst.iter_mut().find(|w| w.op == node.op && w.operand_type == node.operand_type) {
            Some(w) if w.excess() >= node.excess() => {}
            Some(w) => *w = node,
            None => worst.push(node),
        }
    }
    let mut rows = Rows::new(["operation", "operand", "worst node", "NMSE", "max abs", "bound"]);
    for n in worst {
        let number = |x: f64| format!("{x:.1e}");
        let emphasis = if n.is_out_of_bounds() { Emphasis::Bad } else { Emphasis::Neutral };
        rows.push(
            emphasis,
            [
                n.op.clone(),
                n.operand_type.clone(),
                n.node.clone(),
                number(n.nmse),
                number(n.max_abs),
                number(n.bound),
            ],
        );
    }
    format!("\n{}, {} nodes:\n{}", escaped_line(backend), nodes.len(), rows.text(style))
}
