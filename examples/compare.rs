//! Runs the same model on several backends and says where they part.
//!
//! `cargo run --release --example compare -- --help`

use clap::Parser;
use diptych::backends::BackendName;
use diptych::compare::protocol::PerNode;
use diptych::compare::{CompareOptions, child_entry, run, table};
use diptych::{Precision, Result};
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the same model on several backends, each in a process of its own, and says where they part. Without a model a
/// small one with seeded random weights is written and used. Exit status: 0 all agree; 1 something differs, crashes or
/// hangs; 2 wrong use.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file (default: a small model with random weights).
    #[arg(long)]
    model: Option<PathBuf>,
    /// Backends: reference, cpu, vulkan[:N], hip[:N].
    #[arg(long, value_delimiter = ',', default_value = "reference,cpu,vulkan,hip")]
    backends: Vec<BackendName>,
    /// The backend that the others are measured against.
    #[arg(long, default_value = "reference")]
    reference: BackendName,
    /// Token ids of the prompt (default: 32 seeded ones).
    #[arg(long, value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// Tokens to generate.
    #[arg(long, default_value_t = 16)]
    predict: usize,
    /// Compare node by node: off, chained (errors add up) or isolated (each node gets the reference's operands).
    #[arg(long, default_value = "off")]
    per_node: PerNode,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast", value_parser = parse_precision)]
    precision: Precision,
    /// Deadline of each phase in seconds.
    #[arg(long, default_value_t = 300)]
    timeout_s: u64,
    /// Seed of the default model and prompt.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for result.json, logs and arrays.
    #[arg(long, default_value = "out/compare")]
    out: PathBuf,
    /// Vulkan: tune for this architecture class (AMD_GCN, AMD_RDNA3, NVIDIA, CPU, ...) instead of the device's own.
    #[arg(long)]
    vulkan_arch: Option<String>,
    /// HIP: load this runtime library.
    #[arg(long)]
    hip_library: Option<PathBuf>,
}

fn parse_precision(text: &str) -> std::result::Result<Precision, String> {
    Precision::from_name(text).ok_or_else(|| format!("'{text}' is neither exact nor fast"))
}

fn compare(args: Args) -> Result<bool> {
    let options = CompareOptions {
        model: args.model,
        backends: args.backends,
        reference: args.reference,
        tokens: args.tokens,
        predict: args.predict,
        per_node: args.per_node,
        precision: args.precision,
        timeout: Duration::from_secs(args.timeout_s),
        seed: args.seed,
        out: args.out,
        vulkan_arch: args.vulkan_arch,
        hip_library: args.hip_library,
    };
    let bar = ProgressBar::new_spinner();
    let shown = std::io::stderr().is_terminal();
    if shown {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    let report = run(&options, &mut |line| {
        if shown { bar.set_message(line.to_string()) } else { eprintln!("{line}") }
    });
    bar.finish_and_clear();
    let report = report?;
    print!("{}", table(&report));
    println!("report: {}", options.out.join("result.json").display());
    Ok(report.verdict.agree)
}

fn main() -> ExitCode {
    if let Some(status) = child_entry() {
        return ExitCode::from(status as u8);
    }
    match compare(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
