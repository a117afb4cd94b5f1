//! Reports for each card and each driver, layer by layer, the conditions that allow or block its use.
//!
//! `cargo run --release --example probe`

use clap::Parser;
use diptych::probe::{ProbeOptions, probe, record, table};
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
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
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
    let report = match &args.record {
        Some(folder) => record(&options, folder)?,
        None => probe(&options)?,
    };
    program::print(match args.json {
        true => {
            let json = serde_json::to_string_pretty(&report).map_err(|e| Error::argument("report", e, ""))?;
            format!("{json}\n")
        }
        false => table(&report),
    })?;
    Ok(ExitCode::from(if report.works() { 0 } else { FAILED }))
}

fn main() -> ExitCode {
    program::run(|| run(Args::parse()))
}
