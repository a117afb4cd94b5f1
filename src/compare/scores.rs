//! Scores of a text by backend, as lines of a table.

use super::report::{Record, Report};

/// Titles of the columns.
pub(super) const HEAD: [&str; 7] =
    ["backend", "perplexity", "+-", "KL divergence", "largest", "top-1", "tokens"];

/// Titles of the columns of drafts.
pub(super) const DRAFTS_HEAD: [&str; 4] = ["backend", "drafts", "accepted", "as the reference's"];

/// Returns a line for each run that drafted, with its record.
pub(super) fn draft_lines(report: &Report) -> Vec<(&Record, [String; 4])> {
    let line = |record: &'_ Record| {
        let count = Some(record.drafts.len()).filter(|&count| count > 0)?;
        let percent = |n: usize| format!("{:.0}%", 100.0 * n as f64 / count as f64);
        let same = report.comparison_of(record).and_then(|c| c.drafts).map(|drafts| percent(drafts.same));
        Some([
            record.label(),
            count.to_string(),
            percent(record.accepted_drafts()),
            same.unwrap_or_else(|| "-".into()),
        ])
    };
    let first = report.records.iter().filter(|record| record.epoch == 0);
    first.filter_map(|record| Some((record, line(record)?))).collect()
}

/// Returns a line for each run that scored the text, with its record.
pub(super) fn lines(report: &Report) -> Vec<(&Record, [String; 7])> {
    let line = |record: &'_ Record| {
        let score = record.score?;
        let text = report.comparison_of(record).and_then(|c| c.text);
        let number = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.1e}"));
        let epoch = if record.epoch == 0 { String::new() } else { format!(" epoch {}", record.epoch + 1) };
        Some([
            format!("{}{epoch}", record.label()),
            format!("{:.4}", score.perplexity),
            format!("{:.4}", score.error),
            number(text.map(|t| t.logits.kl)),
            number(text.map(|t| t.kl_max)),
            text.map_or("-".into(), |t| format!("{:.0}%", 100.0 * t.logits.top1_agreement)),
            score.tokens.to_string(),
        ])
    };
    report.records.iter().filter_map(|record| Some((record, line(record)?))).collect()
}
