//! Checks and times the fast ways of a card on the card itself, and keeps the verdicts.
//!
//! `cargo run --release --example qualify -- --backend vulkan`

use clap::Parser;
use diptych::ggml::routes::cards::write;
use diptych::program;
use diptych::qualify::{CardReport, Qualification, QualifyOptions, State, qualify_with};
use diptych::{Result, devices};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Checks and times the fast ways of a card on the card itself: matrix units, dot products of bytes, graphs and other
/// routes beyond the plain ones. Each is compared with known answers, with the reference and with the plain way, in a
/// process of its own, and its verdict is kept for all programs. Where nothing is proved, the plain way is used. Then other
/// values of the numbers in the tuning table are measured; one is used from then on if it is more than 5 % faster. Exit
/// status 1 if a route or value was found to be wrong, or to hang or crash.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Backend: vulkan[:N], hip[:N], hip-nvidia[:N], or an emulated card (vulkan-virtual:navi31). Default: every driver
    /// of every card.
    #[arg(long)]
    backend: Vec<String>,
    /// Seconds for all checks of a backend; what is left is checked the next time.
    #[arg(long, value_name = "S", default_value = "3", value_parser = program::deadline)]
    limit_s: Duration,
    /// Deadline in seconds of each phase of the driver.
    #[arg(long, value_name = "S", default_value = "20", value_parser = program::deadline)]
    timeout_s: Duration,
    /// Run the cases of all types, without a limit of time unless --limit-s is more.
    #[arg(long)]
    full: bool,
    /// Check routes again that have a verdict.
    #[arg(long)]
    again: bool,
    /// Check routes only: leave out other values of the numbers in the tuning table.
    #[arg(long)]
    no_tuning: bool,
    /// Check only this route (vulkan.matrix-products), this number of the tuning table (vulkan.vectors), or this value of it
    /// (vulkan.vectors=256x4x4).
    #[arg(long, value_name = "ROUTE")]
    only: Vec<String>,
    /// Folder of the verdicts [default: diptych/routes in the user's cache folder].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Write a report of the cards for others to this file: verdicts, times and versions, nothing personal. docs/cards.md
    /// says how to send it.
    #[arg(long, value_name = "FILE")]
    card_report: Option<PathBuf>,
    /// Write the values that are used in place of the tuning table's to this file, for DIPTYCH_TUNE.
    #[arg(long, value_name = "FILE")]
    pins: Option<PathBuf>,
    /// Print each check before it begins, with the seconds so far.
    #[arg(long)]
    verbose: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Time of `--full`.
const FULL: Duration = Duration::from_secs(600);

fn run(args: &Args) -> Result<ExitCode> {
    let options = QualifyOptions::default()
        .with_limit(if args.full { args.limit_s.max(FULL) } else { args.limit_s })
        .with_timeout(args.timeout_s)
        .with_full(args.full)
        .with_tune(!args.no_tuning)
        .with_again(args.again)
        .with_only(args.only.clone())
        .with_folder(args.folder.clone());
    let names = if args.backend.is_empty() { all() } else { args.backend.clone() };
    let mut results: Vec<Qualification> = Vec::new();
    for name in &names {
        let result = qualify_with(name, &options, &mut |elapsed, what| {
            if args.verbose {
                eprintln!("{:7.3} s  {what}", elapsed.as_secs_f64());
            }
        })?;
        if !args.json {
            program::print(result.to_string())?;
        }
        results.push(result);
    }
    if let Some(file) = &args.card_report {
        let cards: Vec<CardReport> = results.iter().filter_map(|result| result.card.clone()).collect();
        write(file, &cards)?;
    }
    if let Some(file) = &args.pins {
        let pins: String = results.iter().map(Qualification::pins).collect();
        std::fs::write(file, pins).map_err(|error| diptych::Error::io(file, error))?;
    }
    if args.json {
        let of = |result: &Qualification| {
            serde_json::json!({
                "backend": result.backend, "device": result.device, "note": result.note,
                "seconds": result.elapsed.as_secs_f64(), "checked": result.checked, "verdicts": result.verdicts,
            })
        };
        program::print(format!("{:#}\n", serde_json::Value::from_iter(results.iter().map(of))))?;
    } else if names.is_empty() {
        program::print("no card is here that a driver lists\n")?;
    }
    let failed = |result: &Qualification| {
        result.checked.iter().any(|v| matches!(v.state, State::Wrong | State::Crashed | State::Hung))
    };
    Ok(if results.iter().any(failed) { ExitCode::from(program::FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the names of all drivers of all cards of this machine.
fn all() -> Vec<String> {
    let views = devices().devices.into_iter().flat_map(|device| device.views);
    views.filter(|view| !view.is_processor).map(|view| view.backend).collect()
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
