//! `report.html`: the report as one self-contained page, without scripts and external references.

mod bars;
mod errors;
mod evidence;
mod matrix;
mod text;

use super::files::replace;
use super::report::{Comparison, Report, Verdict};
use super::scores;
use ggml_core::Result;
use std::fmt::Write;
use std::path::Path;
use text::Escaped;

const STYLE: &str = include_str!("page.css");

/// Content security policy: nothing may be loaded, whatever text the report contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Formats the report as a page. All its values come from the report; drawn values are also in `data-`
/// attributes.
pub fn html(report: &Report) -> String {
    let title = format!("compare: {}", report.work);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        Escaped(&title)
    );
    page.push_str(&head(report));
    page.push_str(&section("Runs", "", &matrix::matrix(report)));
    page.push_str(&scores(report));
    page.push_str(&errors::errors(report));
    page.push_str(&bars::times_of_cases(report));
    page.push_str(&bars::times_of_steps(report));
    page.push_str(&bars::tokens_per_s(report));
    page.push_str(&bars::times_to_death(report));
    page.push_str(&section("Evidence", "", &evidence::evidence(report)));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Writes the page of [`html`] to a file.
pub fn write_page(report: &Report, path: &Path) -> Result<()> {
    replace(path, &html(report))
}

/// Formats the verdict, the recommendation and the findings.
fn head(report: &Report) -> String {
    let verdict = &report.verdict;
    let class = if verdict.agree { "good" } else { "bad" };
    let mut text = format!(
        "<header class=\"{class}\">\n<p class=\"about\">{} in {} precision, against {}; {}</p>\n<h1>{} {}</h1>\n",
        Escaped(&report.work),
        Escaped(&report.precision),
        Escaped(&report.reference),
        Escaped(&report.started_at),
        if verdict.agree { "✓" } else { "✗" },
        Escaped(verdict.sentence()),
    );
    if !verdict.advice.is_empty() {
        let _ = writeln!(text, "<p class=\"advice\">{}</p>", Escaped(&verdict.advice));
    }
    text.push_str("</header>\n");
    text.push_str(&findings(verdict));
    text.push_str(&list("patterns", verdict.patterns.iter()));
    text.push_str(&list("notes", verdict.notes.iter()));
    let left_out: Vec<String> = report.left_out.iter().map(|part| format!("left out: {part}")).collect();
    text.push_str(&list("notes", left_out.iter()));
    text
}

/// Formats the findings. Under each are its fields, if they are known: the cure first.
fn findings(verdict: &Verdict) -> String {
    let item = |finding: &String| {
        let detail = verdict.details.iter().find(|detail| detail.text == *finding);
        let fields = detail.map(evidence::of_finding).unwrap_or_default();
        let cures = detail.into_iter().flat_map(|detail| &detail.cure);
        let cures: String =
            cures.map(|cure| format!("<p class=\"cure\">Cure: {}</p>\n", Escaped(cure))).collect();
        format!("<li>\n{cures}{}\n{fields}</li>\n", Escaped(finding))
    };
    let items: String = verdict.findings.iter().map(item).collect();
    if items.is_empty() { items } else { format!("<ul class=\"findings\">\n{items}</ul>\n") }
}

fn list<'a>(class: &str, lines: impl Iterator<Item = &'a String>) -> String {
    let items: String = lines.map(|line| format!("<li>{}</li>\n", Escaped(line))).collect();
    if items.is_empty() { items } else { format!("<ul class=\"{class}\">\n{items}</ul>\n") }
}

/// Formats the scores of the text.
fn scores(report: &Report) -> String {
    let row = |cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", Escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let lines: String = scores::lines(report).iter().map(|(_, cells)| row(cells)).collect();
    if lines.is_empty() {
        return lines;
    }
    let what = Escaped(report.text.as_deref().unwrap_or_default()).to_string();
    let table = format!("<table>\n{}{lines}</table>\n", row(&scores::HEAD.map(String::from)));
    section("Perplexity", &what, &table)
}

/// Formats a section of the page; empty if its body is empty.
fn section(title: &str, explanation: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{title}</h2>\n<p class=\"hint\">{explanation}</p>\n{body}</section>\n")
        .replace("<p class=\"hint\"></p>\n", "")
}

/// Returns the comparisons with results of nodes or cases: those of the first epoch, and later ones if they
/// disagree.
fn with_nodes(report: &Report) -> impl Iterator<Item = &Comparison> {
    let is_shown = |c: &&Comparison| !c.nodes.is_empty() && (c.epoch == 0 || c.disagreement.is_some());
    report.comparisons.iter().filter(is_shown)
}

/// Returns a comparison's name, unique within the report.
fn name(report: &Report, comparison: &Comparison) -> String {
    let Comparison { lhs, offload, epoch, run_id, variant, .. } = comparison;
    let mut name = super::report::label(lhs, *offload);
    if let Some(variant) = variant {
        let _ = write!(name, " [{variant}]");
    }
    if *epoch > 0 {
        let _ = write!(name, " epoch {}", epoch + 1);
    }
    if report.runs.len() > 1 {
        let _ = write!(name, " ({run_id})");
    }
    name
}
