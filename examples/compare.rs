//! Runs the same work on several backends and says where they part.
//!
//! `cargo run --release --example compare -- --help`

use clap::Parser;
use diptych::backends::BackendName;
use diptych::compare::{
    CompareOptions, Event, PerNode, Subject, child_entry, counts, report_path, run, table,
};
use diptych::model::Offload;
use diptych::program::{self, FAILED, WRONG_USE};
use diptych::{DType, Precision, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the same work on several backends, each in a process of its own, and says where they part: a model (without
/// one a small model with seeded random weights is written and used), a graph file, or the operation tests. Exit status:
/// 0 all agree; 1 something differs, crashes or hangs; 2 wrong use.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file (default: a small model with random weights).
    #[arg(long, group = "work")]
    model: Option<PathBuf>,
    /// Graph file (.json) with the contents of its leaves (.bin beside it).
    #[arg(long, group = "work")]
    graph: Option<PathBuf>,
    /// Operation tests: all, or those of the named operations and those whose names contain a text, by comma:
    /// "MUL_MAT,RMS_NORM", "Q8_0", or a whole name as in the report.
    #[arg(long, group = "work", value_name = "FILTER", num_args = 0..=1, default_missing_value = "")]
    ops: Option<String>,
    /// Count what the kernels of the emulated card's drivers do for operations, instead of comparing: instructions by
    /// class and bytes, the drivers one below the other. A filter as for --ops.
    #[arg(long, group = "work", value_name = "FILTER")]
    counts: Option<String>,
    /// Backends: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N] (the HIP kernels on an NVIDIA card),
    /// and two drivers of one emulated AMD GPU: vulkan-virtual[:vega20|:vega10] (what Mesa's RADV compiles; needs Mesa
    /// 25.0) and hip-virtual[:gfx906|:gfx900].
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "reference,cpu,vulkan,hip,vulkan-virtual:vega20,hip-virtual:gfx906"
    )]
    backends: Vec<BackendName>,
    /// The backend that the others are measured against.
    #[arg(long, default_value = "reference")]
    reference: BackendName,
    /// Prompt.
    #[arg(long, conflicts_with = "tokens")]
    prompt: Option<String>,
    /// Token ids of the prompt (default: 32 seeded ones).
    #[arg(long, value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// Tokens to generate.
    #[arg(long, default_value_t = 16)]
    predict: usize,
    /// Models: how much lies on the device, a run for each: 0 nothing, 1 the output layer, 2 that and the last layer and
    /// so on, -1 everything. `cpu` computes the rest.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "-1",
        allow_hyphen_values = true
    )]
    offload: Vec<Offload>,
    /// Compare node by node: off, chained (errors add up) or isolated (each node gets the reference's operands).
    #[arg(long, default_value = "off")]
    per_node: PerNode,
    /// Do the work so often on each backend: the results must be the same bits every time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Models: compute the prompt in other ways too (other batches, two sequences, step by step, other memory and parts
    /// on the device), which must not change the logits.
    #[arg(long)]
    invariance: bool,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// Models: type of the KV cache on every backend: f32, f16, q8_0 or q4_0 [default: f16, or f32 with --precision exact].
    #[arg(long)]
    cache: Option<DType>,
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

/// On a terminal a bar, or a spinner while there is nothing to count; elsewhere a line, but none for single parts.
fn show(bar: &ProgressBar, shown: bool, event: &Event) {
    let line = format!("{}: {}", event.backend, event.what);
    match event.done {
        _ if !shown && event.done.is_some() => {}
        _ if !shown => program::note(line),
        Some((done, all)) => {
            if bar.length() != Some(all as u64) {
                let style = ProgressStyle::with_template("{spinner} {wide_bar} {pos}/{len} {msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar.set_length(all as u64);
            }
            bar.set_position(done as u64);
            bar.set_message(line);
        }
        None => bar.set_message(line),
    }
}

fn options(args: Args) -> CompareOptions {
    let work = match (args.ops, args.graph) {
        (Some(filter), _) => Subject::Ops(filter),
        (None, Some(path)) => Subject::Graph(path),
        (None, None) => Subject::Model(args.model),
    };
    CompareOptions::default()
        .with_work(work)
        .with_backends(args.backends)
        .with_reference(args.reference)
        .with_prompt(args.prompt)
        .with_tokens(args.tokens)
        .with_predict(args.predict)
        .with_offload(args.offload)
        .with_per_node(args.per_node)
        .with_repeat(args.repeat)
        .with_invariance(args.invariance)
        .with_precision(args.precision)
        .with_cache(args.cache)
        .with_timeout(Duration::from_secs(args.timeout_s))
        .with_seed(args.seed)
        .with_out(args.out)
        .with_vulkan_arch(args.vulkan_arch)
        .with_hip_library(args.hip_library)
}

/// The exit status of a comparison: what its report says counts also where nobody reads the table.
fn compare(options: &CompareOptions) -> Result<ExitCode> {
    let bar = ProgressBar::new_spinner();
    let shown = std::io::stderr().is_terminal();
    if shown {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    let report = run(options, &mut |event| show(&bar, shown, event));
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        // No model, a broken model, a folder that cannot be written to: before any work, all of it is wrong use.
        Err(error) => {
            program::note(format_args!("error: {error}"));
            return Ok(ExitCode::from(WRONG_USE));
        }
    };
    let path = report_path(&options.out);
    let written = report.write(&path);
    let mut text = table(&report);
    if written.is_ok() {
        text.push_str(&format!("report: {}\n", path.display()));
    }
    let printed = match program::print(text) {
        Err(error) if error.io_kind() == Some(ErrorKind::BrokenPipe) => Ok(()),
        printed => printed,
    };
    written.and(printed)?;
    Ok(ExitCode::from(if report.verdict.agree { 0 } else { FAILED }))
}

fn run_with(args: Args) -> Result<ExitCode> {
    match &args.counts {
        Some(filter) => {
            program::print(counts(filter, &args.backends, args.precision)?)?;
            Ok(ExitCode::SUCCESS)
        }
        None => compare(&options(args)),
    }
}

fn main() -> ExitCode {
    child_entry().unwrap_or_else(|| program::run(|| run_with(Args::parse())))
}
