//! Pieces of the table: columns, remarks, texts that fit.

use super::report::Report;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Warnings of one backend that are printed.
const MAX_WARNINGS: usize = 2;

/// Characters of a cell. The names of all cases of the catalogue fit, names in graph files may be of any length.
const MAX_CELL: usize = 200;

/// Characters of a line.
const MAX_LINE: usize = 2000;

/// What stands for the middle of a text that is too long.
const GAP: &str = " ... ";

/// Backends that are drivers of one card, messages of the backends, and the first of their warnings.
pub(super) fn remarks(report: &Report) -> String {
    let mut text = String::new();
    for (device, names) in cards(report) {
        let _ = writeln!(text, "one card: {} ({})", names.join(", "), line(&device));
    }
    for (record, _) in report.backend_records() {
        let backend = record.label();
        if let Some(message) = &record.message {
            let _ = writeln!(text, "{backend}: {}", line(message));
        }
        let own = report.records.iter().filter(|r| r.label() == backend);
        let warnings: BTreeSet<&str> = own.flat_map(|r| r.warnings.iter().map(String::as_str)).collect();
        for warning in warnings.iter().take(MAX_WARNINGS) {
            let _ = writeln!(text, "{backend}: warning: {}", line(warning));
        }
        if warnings.len() > MAX_WARNINGS {
            let _ =
                writeln!(text, "{backend}: {} more warnings: see the report", warnings.len() - MAX_WARNINGS);
        }
    }
    text
}

/// Devices that several backends drive, known by their UUID, with the names of these backends.
fn cards(report: &Report) -> Vec<(String, Vec<String>)> {
    // Drivers write the same 16 bytes with and without dashes.
    let key = |uuid: &str| uuid.trim_start_matches("GPU-").replace('-', "").to_lowercase();
    let mut cards: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for (_, backend) in report.backend_records() {
        let Some(uuid) = &backend.uuid else { continue };
        let (_, names) = cards.entry(key(uuid)).or_insert_with(|| (backend.device.clone(), Vec::new()));
        if !names.contains(&backend.name) {
            names.push(backend.name.clone());
        }
    }
    cards.into_values().filter(|(_, names)| names.len() > 1).collect()
}

/// Columns padded to their widest entry, the last one as it is.
pub(super) fn align<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[Cow<'_, str>; N]> = rows.iter().map(|r| r.each_ref().map(|c| fit(c, MAX_CELL))).collect();
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}", w = *w)).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A message as one that can be printed.
pub(super) fn line(message: &str) -> Cow<'_, str> {
    fit(message, MAX_LINE)
}

/// A text of at most so many characters: where there are more, the middle is left out.
fn fit(text: &str, max: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= max {
        return Cow::Borrowed(text);
    }
    let kept = max.saturating_sub(GAP.len());
    let head: String = text.chars().take(kept / 2).collect();
    let tail: String = text.chars().skip(count - kept.div_ceil(2)).collect();
    Cow::Owned(format!("{head}{GAP}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a".to_string(), "bb".into()], ["ccc".into(), "d".into()]];
        assert_eq!(align(&rows), "a    bb\nccc  d\n");
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(fit("abcdefghij", 10), "abcdefghij");
        assert_eq!(fit("aäbcdefghüj", 9), "aä ... üj");
        // A width of more than 65,535 columns is a panic of the standard library.
        let rows = [["é".repeat(100_000), "x".into()]];
        let text = align(&rows);
        assert_eq!(text.chars().count(), MAX_CELL + "  x\n".len());
        ggml_core::catalogue::cases().iter().for_each(|c| assert_eq!(fit(&c.name, MAX_CELL), c.name));
    }
}
