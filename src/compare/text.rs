//! Layout of the terminal output: tables with their columns and colours, remarks, and the wrapping
//! and shortening of texts.

use super::cards;
use super::report::{Report, Statistics, Status, label};
use ggml_core::escape::{escaped, escaped_line};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Maximum number of warnings of one backend that are printed.
const MAX_WARNINGS: usize = 2;

/// Maximum width of a line in characters.
pub(super) const WIDTH: usize = 100;

/// Minimum width to which columns are shortened.
const MIN_COLUMN: usize = 6;

/// Minimum width to which the last column is shortened before the others are.
const MIN_LAST: usize = 12;

/// Approximate maximum number of lines of one message; the report has the entire message.
const MAX_LINES: usize = 4;

/// Replacement for the middle of a text that is too long.
const GAP: &str = " ... ";

/// Style of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Plain text.
    #[default]
    Plain,
    /// Text with terminal colours.
    Coloured,
}

/// Meaning of a row or a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emphasis {
    /// No particular meaning.
    Neutral,
    /// Success.
    Good,
    /// A problem.
    Bad,
}

impl Style {
    pub(super) fn paint(self, emphasis: Emphasis, line: &str) -> String {
        let code = match emphasis {
            _ if self == Style::Plain => return line.into(),
            Emphasis::Neutral => return line.into(),
            Emphasis::Good => 32,
            Emphasis::Bad => 31,
        };
        format!("\x1b[{code}m{line}\x1b[0m")
    }
}

/// Rows of a table, with the meaning of each.
pub(super) struct Rows<const N: usize> {
    rows: Vec<(Emphasis, [String; N])>,
}

impl<const N: usize> Rows<N> {
    pub(super) fn new(head: [&str; N]) -> Rows<N> {
        Rows { rows: vec![(Emphasis::Neutral, head.map(String::from))] }
    }

    pub(super) fn push(&mut self, emphasis: Emphasis, row: [String; N]) {
        self.rows.push((emphasis, row.map(|cell| escaped_line(&cell).into_owned())));
    }

    /// Formats the rows. Columns are padded to their widest entry. If a line is then too long, the last
    /// column is shortened, but not below 12 characters, then always the widest one, but not below 6. With
    /// many columns a line may still be too long. If there is a row with a problem, such rows begin with `!
    /// `.
    pub(super) fn text(&self, style: Style) -> String {
        let marked = self.rows.iter().any(|(emphasis, _)| *emphasis == Emphasis::Bad);
        let room = WIDTH.saturating_sub(2 * (N - 1) + if marked { 2 } else { 0 });
        let rows: Vec<&[String; N]> = self.rows.iter().map(|(_, row)| row).collect();
        let widths = widths(&rows, room);
        let mut text = String::new();
        for (emphasis, row) in &self.rows {
            let mark = match (marked, emphasis) {
                (false, _) => "",
                (true, Emphasis::Bad) => "! ",
                (true, _) => "  ",
            };
            let line = format!("{mark}{}", joined(row, &widths));
            text.push_str(&style.paint(*emphasis, line.trim_end()));
            text.push('\n');
        }
        text
    }
}

/// Returns the widths of columns, shortened to fit into `room` together as far as the minimum widths allow.
fn widths<const N: usize>(rows: &[&[String; N]], room: usize) -> [usize; N] {
    let mut widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0));
    let over = widths.iter().sum::<usize>().saturating_sub(room);
    if let Some(last) = widths.last_mut() {
        *last -= over.min(last.saturating_sub(MIN_LAST));
    }
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max().filter(|w| **w > MIN_COLUMN) else { break };
        *widest -= 1;
    }
    widths
}

fn joined<const N: usize>(row: &[String; N], widths: &[usize; N]) -> String {
    let cells: Vec<String> =
        row.iter().zip(widths).map(|(cell, w)| format!("{:<w$}", fit(cell, *w), w = *w)).collect();
    cells.join("  ")
}

/// Pads columns to their widest entry, without a limit.
pub(super) fn align<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<&[String; N]> = rows.iter().collect();
    let widths = widths(&rows, usize::MAX);
    rows.iter().map(|row| format!("{}\n", joined(row, &widths).trim_end())).collect()
}

/// Formats the remarks: backends that drive the same card or different ones, parts that are left out, reasons why backends cannot run
/// here, and the first two warnings of each backend in alphabetical order. Warnings that are part of a
/// finding are left out.
pub(super) fn remarks(report: &Report) -> String {
    let mut text = String::new();
    for line in cards::remarks(report) {
        text.push_str(&wrapped(&line, ""));
    }
    // Warnings that are part of a finding are printed there.
    let findings = report.verdict.findings.join("\n");
    // Each backend warns of the parts that are left out, which are printed once.
    let left_out: Vec<String> = report.left_out.iter().map(|part| format!("left out: {part}")).collect();
    left_out.iter().for_each(|line| text.push_str(&wrapped(line, "")));
    let new = |what: &str| !findings.contains(what) && left_out.iter().all(|line| line != what);
    let mut seen = BTreeSet::new();
    for (record, _) in report.backend_records().filter(|(record, _)| record.variant.is_none()) {
        let backend = &record.backend;
        let is_absent = record.status == Status::Unsupported && !report.require_all;
        if is_absent && seen.insert(backend) {
            text.push_str(&wrapped(&format!("{backend} cannot run here: {}", record.headline()), ""));
        }
    }
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for record in report.records.iter().filter(|record| record.variant.is_none()) {
        let warnings = record.warnings.iter().map(String::as_str).filter(|w| new(w));
        all.entry(&record.backend).or_default().extend(warnings);
    }
    for (backend, warnings) in all {
        for warning in warnings.iter().take(MAX_WARNINGS) {
            text.push_str(&wrapped(&format!("{backend}: warning: {warning}"), ""));
        }
        if warnings.len() > MAX_WARNINGS {
            let more = warnings.len() - MAX_WARNINGS;
            let _ = writeln!(text, "{}: {more} more warnings: see the report", escaped_line(backend));
        }
    }
    text
}

/// Returns a label for each line of statistics, and a legend. Lines of the same backend and offload are
/// numbered, and the legend has the work and the device of each.
pub(super) fn statistics_labels(statistics: &[&Statistics]) -> (Vec<String>, Vec<String>) {
    let plain: Vec<String> = statistics.iter().map(|s| label(&s.backend, s.offload)).collect();
    let count = |name: &String, among: &[String]| among.iter().filter(|other| *other == name).count();
    let mut legend = Vec::new();
    let labels = plain.iter().zip(statistics).enumerate().map(|(i, (name, s))| {
        if count(name, &plain) < 2 {
            return name.clone();
        }
        let numbered = format!("{name} ({})", count(name, &plain[..=i]));
        let device = if s.device.is_empty() { String::new() } else { format!("; {}", s.device) };
        legend.push(format!("{numbered}: {}{device}", s.work));
        numbered
    });
    (labels.collect(), legend)
}

/// Wraps a text to the table's width. Each line begins with `indent`, continuation lines with two more
/// spaces. A text or a word that is too long is shortened by [`fit`]. Control characters are escaped.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let further = format!("{indent}  ");
    let text = escaped(text);
    let text = fit(&text, MAX_LINES * (WIDTH - further.len() - 10));
    let (mut out, mut line) = (String::new(), indent.to_string());
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.clone_from(&further);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&fit(word, WIDTH - further.len()));
        empty = false;
    }
    out + &line + "\n"
}

/// Shortens a text to at most `max` characters by leaving out its middle; below 10 characters it cuts the
/// end.
pub(super) fn fit(text: &str, max: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= max {
        return Cow::Borrowed(text);
    }
    if max < 2 * GAP.len() {
        return Cow::Owned(text.chars().take(max).collect());
    }
    let room = max - GAP.len();
    let head: String = text.chars().take(room / 2).collect();
    let tail: String = text.chars().skip(count - room.div_ceil(2)).collect();
    Cow::Owned(format!("{head}{GAP}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_string(), "bb".into()], ["ccc".into(), "d".into()]];
        assert_eq!(align(&rows), "a    bb\nccc  d\n");
        let mut marked = Rows::new(["a", "bb"]);
        marked.push(Emphasis::Good, ["ccc".into(), "d".into()]);
        assert_eq!(marked.text(Style::Plain), align(&rows));
        marked.push(Emphasis::Bad, ["e".into(), "f".into()]);
        assert_eq!(marked.text(Style::Plain), "  a    bb\n  ccc  d\n! e    f\n");
        let coloured = marked.text(Style::Coloured);
        assert_eq!(coloured, "  a    bb\n\x1b[32m  ccc  d\x1b[0m\n\x1b[31m! e    f\x1b[0m\n");
    }

    /// No line is longer than the table's width, whatever the names and messages.
    #[test]
    fn everything_fits() {
        assert_eq!(fit("abcdefghij", 10), "abcdefghij");
        assert_eq!(fit("aäbcdefghijklüj", 11), "aäb ... lüj");
        assert_eq!(fit("abcdefghij", 3), "abc");
        // A format width of more than 65,535 columns is a panic of the standard library.
        let mut rows = Rows::new(["name", "x", "y"]);
        rows.push(Emphasis::Bad, ["é".repeat(100_000), "x".into(), "y".repeat(70)]);
        let text = rows.text(Style::Plain);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("é ... é") && text.contains("y ... y"));

        let long = format!("a {} b {}", "ü".repeat(5000), "some words ".repeat(100));
        let text = wrapped(&long, "  ");
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().count() <= MAX_LINES + 2 && text.ends_with("some words\n"), "{text}");
        assert_eq!(wrapped("one two", "  "), "  one two\n");
        assert_eq!(wrapped(&"x ".repeat(60), ""), format!("{}x\n  {}x\n", "x ".repeat(49), "x ".repeat(9)));
    }
}
