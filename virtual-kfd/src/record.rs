//! The log of what the process asked for, and counts of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use virtual_gpu::Counters;

/// Log and counts of one machine.
#[derive(Debug)]
pub(crate) struct Record {
    log: Option<Mutex<Output>>,
    counts: Option<PathBuf>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Numbers by group and name.
    numbers: BTreeMap<(String, String), u64>,
    /// Launches and what they executed, by kernel.
    kernels: BTreeMap<String, (u64, Counters)>,
}

#[derive(Debug)]
enum Output {
    Error,
    File(File),
}

impl Output {
    fn open(path: &Path) -> io::Result<Output> {
        if path.as_os_str() == "-" {
            return Ok(Output::Error);
        }
        Ok(Output::File(File::options().create(true).append(true).open(path)?))
    }

    /// Writes in one call, so that lines of several processes do not mix. Nothing helps if it fails.
    fn write(&mut self, text: &str) {
        let _ = match self {
            Output::Error => io::stderr().write_all(text.as_bytes()),
            Output::File(file) => file.write_all(text.as_bytes()),
        };
    }
}

impl Record {
    pub(crate) fn new(log: Option<&Path>, counts: Option<&Path>) -> io::Result<Record> {
        let log = log.map(Output::open).transpose()?.map(Mutex::new);
        Ok(Record { log, counts: counts.map(Path::to_path_buf), table: Mutex::default() })
    }

    /// Writes a line, if there is a log.
    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            let line = format!("virtual-kfd {}: {}\n", std::process::id(), line());
            log.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
        }
    }

    /// Returns true if there is a log.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Counts one thing of a group.
    pub(crate) fn count(&self, group: &str, name: &str) {
        if self.counts.is_some() {
            *self.table().numbers.entry((group.into(), name.into())).or_default() += 1;
        }
    }

    /// Counts a launch.
    pub(crate) fn launched(&self, kernel: impl FnOnce() -> String, counters: &Counters) {
        if self.counts.is_some() {
            let kernel = kernel();
            let mut table = self.table();
            let entry = table.kernels.entry(kernel).or_default();
            entry.0 += 1;
            entry.1 += *counters;
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the counts to their file: lines of group, name and number, separated by tabs; for kernels launches and
    /// each of the processor's counters with its name.
    pub(crate) fn write(&self, late: u64) {
        let Some(path) = &self.counts else { return };
        let table = self.table();
        let mut text = String::new();
        for ((group, name), number) in &table.numbers {
            text += &format!("{group}\t{name}\t{number}\n");
        }
        for (name, (launches, c)) in &table.kernels {
            text += &format!("kernel\t{name}\t{launches}");
            c.by_name().iter().for_each(|(counter, n)| text += &format!("\t{counter} {n}"));
            text.push('\n');
        }
        text += &format!("wait\tlost wake-ups\t{late}\n");
        if let Ok(mut output) = Output::open(path) {
            output.write(&text);
        }
    }
}
