//! Matrix of backend x offload x epoch, coloured by the outcome of each run; signs show the outcome without
//! colours.

use super::super::circumstances;
use super::super::report::{Record, Report, Status};
use super::text::Escaped;
use std::fmt::Write;

/// Outcome of a run: CSS class, sign, meaning.
type Outcome = (&'static str, &'static str, &'static str);

const OUTCOMES: [Outcome; 7] = [
    ("ok", "✓", "ok"),
    ("differs", "≠", "differs"),
    ("error", "E", "error"),
    ("crash", "C", "crash"),
    ("hang", "H", "hang"),
    ("unsupported", "–", "cannot run"),
    ("ended", "X", "ended from outside"),
];

fn outcome(report: &Report, record: &Record) -> Outcome {
    let differs = report.comparison_of(record).is_some_and(|c| c.disagreement.is_some());
    let at = match record.status {
        Status::Ok if differs => 1,
        Status::Ok => 0,
        Status::Error => 2,
        Status::Crash => 3,
        Status::Hang => 4,
        Status::Unsupported => 5,
        Status::Ended => 6,
    };
    OUTCOMES[at]
}

/// Formats a row for each backend and offload of a run, with a cell for each epoch.
pub(super) fn matrix(report: &Report) -> String {
    let mut rows: Vec<(&str, String, String, Vec<&Record>)> = Vec::new();
    for (record, backend) in report.backend_records() {
        let label = record.label();
        match rows.iter_mut().find(|row| row.0 == record.run_id && row.1 == label) {
            Some(row) => row.3.push(record),
            None => rows.push((&record.run_id, label, backend.device.clone(), vec![record])),
        }
    }
    if rows.is_empty() {
        return "<p>No run was recorded.</p>\n".into();
    }
    let mut text = String::from("<p class=\"legend\">");
    for (class, sign, meaning) in OUTCOMES {
        let _ = write!(text, "<span><b class=\"cell {class}\">{sign}</b> {meaning}</span> ");
    }
    text.push_str("</p>\n<table class=\"matrix\">\n");
    let (mut run, many) = ("", report.runs.len() > 1);
    for (run_id, label, device, records) in rows {
        if many && run != run_id {
            let title = circumstances::title(report, run_id);
            let _ = writeln!(text, "<tr><th colspan=\"2\" class=\"run\">{}</th></tr>", Escaped(&title));
            run = run_id;
        }
        let cells: String = records.iter().map(|record| cell(report, record)).collect();
        let _ = writeln!(
            text,
            "<tr><th>{}<small>{}</small></th><td>{cells}</td></tr>",
            Escaped(&label),
            Escaped(&device)
        );
    }
    if report.missing > 0 {
        let _ = writeln!(text, "<tr><th>not run</th><td>{}</td></tr>", report.missing);
    }
    text + "</table>\n"
}

fn cell(report: &Report, record: &Record) -> String {
    let (class, sign, meaning) = outcome(report, record);
    let mut title = format!("{} epoch {}: {meaning}", record.label(), record.epoch + 1);
    if record.status != Status::Ok {
        for (what, value) in
            [("in", &record.phase), ("at node", &record.node), ("last call", &record.last_call)]
        {
            if let Some(value) = value {
                let _ = write!(title, ", {what} {value}");
            }
        }
        let _ = write!(title, ": {}", record.headline());
    } else if let Some(logits) = report.comparison_of(record).and_then(|c| c.logits) {
        let _ = write!(title, ", NMSE {:.1e}; {logits}", logits.nmse);
    }
    format!(
        "<b class=\"cell {class}\" data-status=\"{}\" data-elapsed-s=\"{:e}\" title=\"{}\">{sign}</b>",
        record.status,
        record.elapsed_s,
        Escaped(&title)
    )
}
