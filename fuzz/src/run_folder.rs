//! Run folders: any contents of their files are a report or an error.
//!
//! The input is the files `run.json`, `run.events.jsonl`, `cpu.events.jsonl` and `cpu.log`, each ended by a zero byte.
#![no_main]

use diptych::compare::{Style, report, table, work_of};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const FILES: [&str; 4] = ["run.json", "run.events.jsonl", "cpu.events.jsonl", "cpu.log"];

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.path();
    let mut contents = bytes.split(|byte| *byte == 0);
    for name in FILES {
        if std::fs::write(folder.join(name), contents.next().unwrap_or_default()).is_err() {
            return;
        }
    }
    let _ = work_of(folder);
    if let Ok(report) = report(&[folder.to_path_buf()]) {
        let _ = (table(&report, Style::Plain), report.redacted());
    }
    let files = std::fs::read_dir(folder).expect("the folder").count();
    assert_eq!(files, FILES.len(), "a report writes nothing");
});
