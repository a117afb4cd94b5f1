//! Reports for each card and each driver, layer by layer, the conditions that allow or block its use.
//!
//! `cargo run --release --example probe`

use clap::Parser;
use diptych::ggml::routes::cards::write;
use diptych::probe::{ProbeOptions, probe, probe_program, program_table, record, table};
use diptych::program::{self, FAILED};
use diptych::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Reports for each card and each driver, layer by layer, the conditions that allow or block its use:
/// hardware, kernel driver, device nodes, firmware, runtime library, official support, code, recognition and
/// override, features, and a smoke test of each phase in its own process. Exit status: 0 if some card
/// computes (or, for a recorded system, nothing known prevents it); 1 if none does; 2 wrong use.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Root of system paths (/sys, /proc, /dev, /opt, /etc, /usr). For a system other than this one, only
    /// files are read; its environment is proc/self/environ there.
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Also write the files that were read to this new folder, without names of users and serial numbers:
    /// --root DIR reads them, on any machine.
    #[arg(long, value_name = "DIR", conflicts_with = "of")]
    record: Option<PathBuf>,
    /// Also write a report of the cards for others to this file: verdicts on their fast ways, times and versions, nothing
    /// personal. `qualify` makes the verdicts; docs/cards.md says how to send the report.
    #[arg(long, value_name = "FILE", conflicts_with = "of")]
    card_report: Option<PathBuf>,
    /// Judge another program in place of this one: a library such as libggml-hip.so, or a folder such as Ollama's.
    /// Prints the targets of its code objects, the libraries it would load, and the gate that blocks each card.
    /// Nothing of it is loaded. Exit status 1 if every card is blocked.
    #[arg(long, value_name = "PATH")]
    of: Option<PathBuf>,
    /// With --of: judge these processors (gfx900) in place of this machine's cards.
    #[arg(long, value_name = "TARGET", requires = "of", value_delimiter = ',')]
    target: Vec<String>,
    /// HIP: load this runtime library.
    #[arg(long)]
    hip_library: Option<PathBuf>,
    /// Runs of the smoke test on each driver of each card.
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: usize,
    /// Deadline of each phase in seconds.
    #[arg(long, default_value_t = 30)]
    timeout_s: u64,
}

fn run(args: Args) -> Result<ExitCode> {
    let options = ProbeOptions::default()
        .with_root(args.root)
        .with_hip_library(args.hip_library)
        .with_runs(args.runs)
        .with_timeout(Duration::from_secs(args.timeout_s));
    let (text, works) = match &args.of {
        Some(path) => {
            let report = probe_program(&options, path, &args.target)?;
            let text = if args.json { json(&report)? } else { program_table(&report) };
            (text, report.is_free())
        }
        None => {
            let report = match &args.record {
                Some(folder) => record(&options, folder)?,
                None => probe(&options)?,
            };
            if let Some(file) = &args.card_report {
                let cards = report.devices.iter().flat_map(|device| device.cards.clone());
                write(file, &cards.collect::<Vec<_>>())?;
            }
            (if args.json { json(&report)? } else { table(&report) }, report.works())
        }
    };
    program::print(text)?;
    Ok(ExitCode::from(if works { 0 } else { FAILED }))
}

fn json(report: &impl serde::Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(report).map_err(|e| Error::argument("report", e, ""))?;
    Ok(format!("{json}\n"))
}

fn main() -> ExitCode {
    program::run(|| run(Args::parse()))
}
