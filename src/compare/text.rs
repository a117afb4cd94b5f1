//! Layout of the terminal output: tables with their columns and colours, remarks, and the wrapping
//! and shortening of texts.

use super::report::{Report, Statistics, Status, label};
use super::{cards, routes};
use ggml_core::escape::{escaped, escaped_line};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Maximum number of warnings of one backend that are printed.
const MAX_WARNINGS: usize = 2;

/// Maximum width of a line in characters if the terminal does not say its own.
const WIDTH: usize = 100;

/// Widths of terminals that are used as they are.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=240;

/// Minimum width to which columns are shortened.
const MIN_COLUMN: usize = 6;

/// Minimum width to which the last column is shortened before the others are.
const MIN_LAST: usize = 8;

/// Approximate maximum number of lines of one message; the report has the entire message.
const MAX_LINES: usize = 6;

/// The longest word that is not cut, even if it is wider than a line: a path, or NAME=value.
const MAX_WORD: usize = 400;

/// Spaces before the columns of a row whose name has a line of its own.
const STACKED: usize = 4;

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

/// Returns the maximum width of a line in characters: the terminal's (`COLUMNS`), or 100.
pub(super) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    columns.filter(|columns| WIDTHS.contains(columns)).unwrap_or(WIDTH)
}

/// A line of a table: a row with its meaning, or a text across all columns.
enum Line<const N: usize> {
    Row(Emphasis, [String; N]),
    Heading(String),
}

/// Rows of a table, with the meaning of each.
pub(super) struct Rows<const N: usize> {
    lines: Vec<Line<N>>,
}

impl<const N: usize> Rows<N> {
    pub(super) fn new(head: [&str; N]) -> Rows<N> {
        Rows { lines: vec![Line::Row(Emphasis::Neutral, head.map(String::from))] }
    }

    pub(super) fn push(&mut self, emphasis: Emphasis, row: [String; N]) {
        self.lines.push(Line::Row(emphasis, row.map(|cell| escaped_line(&cell).into_owned())));
    }

    /// Adds a line across all columns, for the rows that follow.
    pub(super) fn heading(&mut self, text: &str) {
        self.lines.push(Line::Heading(text.into()));
    }

    /// Formats the rows for a terminal of the width of [`width`]. Columns are padded to their widest entry. If a line is
    /// then too long, the last column is shortened at a space, but not below 8 characters; if that is not enough, the
    /// first column gets lines of its own. With many columns a line may still be too long. If there is a row with a
    /// problem, such rows begin with `! `.
    pub(super) fn text(&self, style: Style) -> String {
        self.text_in(width(), style)
    }

    fn text_in(&self, width: usize, style: Style) -> String {
        let marked = self.lines.iter().any(|line| matches!(line, Line::Row(Emphasis::Bad, _)));
        let room = width.saturating_sub(2 * (N - 1) + if marked { 2 } else { 0 });
        let rows = self.lines.iter().filter_map(|line| match line {
            Line::Row(_, row) => Some(row),
            Line::Heading(_) => None,
        });
        let rows: Vec<&[String; N]> = rows.collect();
        let wanted = widths(&rows, usize::MAX);
        let least: usize = wanted.iter().take(N - 1).sum::<usize>() + wanted[N - 1].min(MIN_LAST);
        let stacked = least > room && N > 1;
        let widths = match stacked {
            true => {
                let rest: Vec<[String; N]> = rows.iter().map(|row| without_first(row)).collect();
                let room = room.saturating_sub(STACKED);
                widths(&rest.iter().collect::<Vec<_>>(), room)
            }
            false => widths(&rows, room),
        };
        let mut text = String::new();
        for line in &self.lines {
            let (emphasis, row) = match line {
                Line::Row(emphasis, row) => (emphasis, row),
                Line::Heading(heading) => {
                    text.push_str(&wrapped_in(width, heading, ""));
                    continue;
                }
            };
            let mark = match (marked, emphasis) {
                (false, _) => "",
                (true, Emphasis::Bad) => "! ",
                (true, _) => "  ",
            };
            let mut push = |line: String| {
                text.push_str(&style.paint(*emphasis, line.trim_end()));
                text.push('\n');
            };
            if stacked {
                push(format!("{mark}{}", fit(&row[0], MAX_WORD.min(width - 2))));
                push(format!(
                    "{}{}",
                    " ".repeat(STACKED + mark.len() - 2),
                    joined(&without_first(row), &widths)
                ));
            } else {
                push(format!("{mark}{}", joined(row, &widths)));
            }
        }
        text
    }
}

/// Returns a row with an empty first cell.
fn without_first<const N: usize>(row: &[String; N]) -> [String; N] {
    let mut row = row.clone();
    row[0].clear();
    row
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
    for line in cards::remarks(report).into_iter().chain(routes::remarks(report)) {
        text.push_str(&wrapped(&line, ""));
    }
    // Warnings that are part of a finding, or its cure, are printed there.
    let findings = report.verdict.findings.join("\n");
    let cures: Vec<&String> = report.verdict.details.iter().flat_map(|finding| &finding.cure).collect();
    // Each backend warns of the parts that are left out, which are printed once.
    let left_out: Vec<String> = report.left_out.iter().map(|part| format!("left out: {part}")).collect();
    left_out.iter().for_each(|line| text.push_str(&wrapped(line, "")));
    let is_cure = |what: &str| cures.iter().any(|cure| what.contains(cure.as_str()));
    let new =
        |what: &str| !findings.contains(what) && !is_cure(what) && left_out.iter().all(|line| line != what);
    let mut seen = BTreeSet::new();
    for (record, _) in report.backend_records().filter(|(record, _)| record.variant.is_none()) {
        let backend = &record.backend;
        let is_absent = record.status == Status::Unsupported && !report.require_all;
        if is_absent && seen.insert(backend) {
            let reason = record.message.as_deref().unwrap_or("no reason given");
            text.push_str(&wrapped(&format!("{backend} cannot run here: {reason}"), ""));
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
            let _ = writeln!(
                text,
                "{}: {more} more warning{}: see the report",
                escaped_line(backend),
                if more == 1 { "" } else { "s" }
            );
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

/// Wraps a text to the width of the terminal. Each line begins with `indent`, continuation lines with two more
/// spaces. A text that is too long is shortened by [`fit`]. Control characters are escaped.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    wrapped_in(width(), text, indent)
}

fn wrapped_in(width: usize, text: &str, indent: &str) -> String {
    let further = format!("{indent}  ");
    let text = escaped(text);
    let text = fit(&text, MAX_LINES * (width - further.len() - 10));
    let (mut out, mut line) = (String::new(), indent.to_string());
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line.clone_from(&further);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&fit(word, MAX_WORD));
        empty = false;
    }
    out + &line + "\n"
}

/// Shortens a text to at most `max` characters by leaving out words in its middle. A word is cut only if no whole one
/// fits: in its middle, or below 10 characters at its end.
pub(super) fn fit(text: &str, max: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(GAP.len());
    if let Some(shortened) = without_middle(text, room).or_else(|| beginning(text, max)) {
        return Cow::Owned(shortened);
    }
    if max < 2 * GAP.len() {
        return Cow::Owned(text.chars().take(max).collect());
    }
    let head: String = text.chars().take(room / 2).collect();
    let tail: String = text.chars().skip(count - room.div_ceil(2)).collect();
    Cow::Owned(format!("{head}{GAP}{tail}"))
}

/// Returns words from the beginning and the end of a text, with at most `room` characters; `None` if the first word
/// does not fit.
fn without_middle(text: &str, room: usize) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut head, mut tail, mut used) = (0, 0, 0);
    let fits = |used: usize, word: Option<&&str>| {
        word.map(|word| used + word.chars().count() + 1).filter(|used| *used <= room + 1)
    };
    while head + tail < words.len() {
        let from_head = fits(used, words.get(head));
        let from_tail = fits(used, words.len().checked_sub(tail + 1).and_then(|at| words.get(at)));
        match (from_head, from_tail) {
            (Some(more), None) => (head, used) = (head + 1, more),
            (Some(more), Some(_)) if head <= tail => (head, used) = (head + 1, more),
            (_, Some(more)) => (tail, used) = (tail + 1, more),
            (None, None) => break,
        }
    }
    let end = words[words.len() - tail..].join(" ");
    (head > 0).then(|| format!("{}{GAP}{end}", words[..head].join(" ")).trim_end().into())
}

/// Returns the first words of a text, with at most `max` characters; `None` if not even one fits.
fn beginning(text: &str, max: usize) -> Option<String> {
    let mut begin = String::new();
    for word in text.split_whitespace() {
        let space = usize::from(!begin.is_empty());
        if begin.chars().count() + space + word.chars().count() > max {
            break;
        }
        begin.push_str(if space == 1 { " " } else { "" });
        begin.push_str(word);
    }
    (!begin.is_empty()).then_some(begin)
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

    /// No line is longer than the terminal, and no word is cut, unless a single word is longer than lines.
    #[test]
    fn everything_fits() {
        assert_eq!(fit("abcdefghij", 10), "abcdefghij");
        assert_eq!(fit("aäbcdefghijklüj", 11), "aäb ... lüj");
        assert_eq!(fit("abcdefghij", 3), "abc");
        assert_eq!(fit("llvmpipe (LLVM 19.1.7, 256 bits)", 12), "llvmpipe");
        assert_eq!(fit("AMD Radeon RX 7900 XT (RADV NAVI31)", 24), "AMD Radeon ... NAVI31)");
        // A format width of more than 65,535 columns is a panic of the standard library.
        let mut rows = Rows::new(["name", "x", "y"]);
        rows.push(Emphasis::Bad, ["é".repeat(100_000), "x".into(), "y".repeat(70)]);
        let text = rows.text_in(WIDTH, Style::Plain);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("é ... é") && text.contains(&"y".repeat(70)), "{text}");

        let long = format!("a {} b {}", "ü".repeat(5000), "some words ".repeat(100));
        let text = wrapped_in(WIDTH, &long, "  ");
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().count() <= MAX_LINES + 2 && text.ends_with("some words\n"), "{text}");
        assert!(text.starts_with("  a ... "), "{text}");
        assert_eq!(wrapped_in(WIDTH, "one two", "  "), "  one two\n");
        let wrapped = wrapped_in(WIDTH, &"x ".repeat(60), "");
        assert_eq!(wrapped, format!("{}x\n  {}x\n", "x ".repeat(49), "x ".repeat(9)));
    }

    /// A path and NAME=value stay whole even if they are wider than the terminal, and a name that is too long for its
    /// row has a line of its own.
    #[test]
    fn names_stay_whole() {
        let path = format!("/opt/{}/libamdhip64.so.7", "directory/".repeat(12));
        let variable = format!("LD_LIBRARY_PATH={path}");
        for word in [&path, &variable] {
            let text = wrapped_in(60, &format!("it was loaded from {word} and said so"), "");
            assert_eq!(text.split_whitespace().filter(|found| found == word).count(), 1, "{text}");
        }
        let name = "null=crash@first_compute:embedding offload 12";
        let head = ["backend", "status", "load s", "device"];
        let mut rows = Rows::new(head);
        rows.push(Emphasis::Good, [name, "crash", "1.234", "AMD Radeon RX 7900 XT"].map(String::from));
        let text = rows.text_in(60, Style::Plain);
        assert_eq!(text.lines().nth(2), Some(name), "{text}");
        assert_eq!(text.lines().nth(3), Some("    crash   1.234   AMD Radeon RX 7900 XT"), "{text}");
        let text = rows.text_in(WIDTH, Style::Plain);
        assert!(text.lines().count() == 2 && text.ends_with("RX 7900 XT\n"), "{text}");
        rows.heading("run a: predict 4");
        assert!(rows.text_in(WIDTH, Style::Plain).ends_with("run a: predict 4\n"));
    }
}
