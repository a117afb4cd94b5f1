//! Reports: a `result.json` that parses is shown, redacted and written again, without a control character.
#![no_main]

use diptych::compare::{Report, Style, html, table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = serde_json::from_slice::<Report>(bytes) else { return };
    let redacted = report.redacted().expect("a report from JSON has a form as JSON");
    for report in [&report, &redacted] {
        for text in [table(report, Style::Plain), html(report)] {
            assert!(!text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "{text:?}");
        }
    }
});
