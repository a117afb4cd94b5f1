//! Runs the same work on several backends and reports where they diverge.
//!
//! `cargo run --release --example compare -- --help`

use clap::{Parser, Subcommand};
use diptych::backends::{BackendName, VirtualTarget, hip_kfd_is_usable};
use diptych::compare::{
    BackendVariable, CompareOptions, Event, PerNode, Report, Style, Subject, VariantRow, child_entry, counts,
    page_path, read_variants, report, report_path, resume, run, table, text_report, work_of, write_page,
};
use diptych::ggml::escape::Escaped;
use diptych::model::Offload;
use diptych::program::{self, FAILED, WRONG_USE};
use diptych::{DType, Error, Precision, Result};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs the same work on several backends, each in its own process, and reports where they diverge: a model
/// (by default a small model with seeded random weights is written and used), a graph file, or the operation
/// tests. Exit status: 0 all agree; 1 something differs, crashes or hangs, be it only in a row of --variants; 2 wrong
/// use.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Task>,
    /// GGUF file (default: a small model with random weights).
    #[arg(long, group = "work")]
    model: Option<PathBuf>,
    /// Graph file (.json) with the contents of its leaves (.bin next to it).
    #[arg(long, group = "work")]
    graph: Option<PathBuf>,
    /// Operation tests: all (also without a filter), or those of the named operations and those whose names
    /// contain a text, separated by commas: "MUL_MAT,RMS_NORM", "Q8_0", or a full name as in the report.
    #[arg(long, group = "work", value_name = "FILTER", num_args = 0..=1, default_missing_value = "")]
    ops: Option<String>,
    /// Instead of comparing, count the work of the kernels of the emulated card's drivers for operations:
    /// instructions by class and bytes, one driver below the other. The filter is as for --ops.
    #[arg(long, group = "work", value_name = "FILTER")]
    counts: Option<String>,
    /// Backends: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N] (the HIP kernels on an NVIDIA card), and
    /// two drivers of one emulated AMD GPU: vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151] (code compiled
    /// by Mesa's RADV; needs Mesa 25.0) and hip-virtual[:gfx906|:gfx900|:gfx90a|:gfx942|:gfx1100|:gfx1151];
    /// hip-kfd, with the same processors, is AMD's own runtime on this card, if a libamdhip64 is there. A
    /// named backend that cannot run here is a failure [default: the available ones of reference, cpu, vulkan,
    /// hip, vulkan-virtual:vega20, hip-virtual:gfx906, hip-kfd:gfx906].
    #[arg(long, value_delimiter = ',')]
    backends: Option<Vec<BackendName>>,
    /// Backend that the others are compared with.
    #[arg(long, default_value = "reference")]
    reference: BackendName,
    /// Text of the prompt.
    #[arg(long, conflicts_with = "tokens")]
    prompt: Option<String>,
    /// Token ids of the prompt (default: 32 seeded ones).
    #[arg(long, value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// Models: score this text on every backend: its perplexity with the standard error, and the KL divergence
    /// from the reference. The first chunk is the prompt.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "tokens"])]
    text: Option<PathBuf>,
    /// Tokens of a chunk of the text, of which the second half is scored.
    #[arg(long, value_name = "N", default_value_t = 128, requires = "text")]
    chunk: usize,
    /// Chunks of the text to score, from its beginning. The reference needs seconds or minutes for each.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "text")]
    chunks: usize,
    /// Tokens to generate.
    #[arg(long, default_value_t = 16)]
    predict: usize,
    /// Models: number of the model's units on the device, a run for each: 0 nothing, 1 the output layer, 2 the
    /// output layer and the last layer and so on, -1 everything. `cpu` computes the rest.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "-1",
        allow_hyphen_values = true
    )]
    offload: Vec<Offload>,
    /// Models and graphs: repeat every run N times; the runs of an epoch follow each other.
    #[arg(long, value_name = "N", default_value_t = 1)]
    epochs: usize,
    /// Compare node by node: off, chained (errors add up) or isolated (each node gets the reference's
    /// operands). The default is isolated for one run of a model, off for graphs and several epochs.
    #[arg(long)]
    per_node: Option<PerNode>,
    /// Do the work N times on each backend: the results must have the same bits every time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Models: also compute the prompt with other methods (other batches, two sequences, step by step, other
    /// memory, other units on the device), which must not change the logits.
    #[arg(long)]
    invariance: bool,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// Models: type of the KV cache on every backend: f32, f16, q8_0 or q4_0 [default: f16, or f32 with
    /// --precision exact].
    #[arg(long)]
    cache: Option<DType>,
    /// Deadline of each phase in seconds.
    #[arg(long, value_name = "S", default_value = "300", value_parser = program::deadline, allow_hyphen_values = true)]
    timeout_s: Duration,
    /// Seed of the default model and prompt.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for report.html, result.json, events, logs and arrays.
    #[arg(long, default_value = "out/compare")]
    out: PathBuf,
    /// Continue your own interrupted run in this folder without repeating completed work. What a folder is not
    /// trusted with has to be given again: --hip-library, --env and --variants, which may have new rows. --cure
    /// is used too; other arguments are ignored.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Vulkan: tune for this architecture class (AMD_GCN, AMD_RDNA3, NVIDIA, CPU, ...) instead of the
    /// device's own.
    #[arg(long)]
    vulkan_arch: Option<String>,
    /// HIP: load this runtime library.
    #[arg(long)]
    hip_library: Option<PathBuf>,
    /// Set a variable for the children of one backend, or of all: hip:HSA_OVERRIDE_GFX_VERSION=9.0.0. Only
    /// variables that drivers or this library read; NAME= removes one.
    #[arg(long, value_name = "[BACKEND:]NAME=VALUE")]
    env: Vec<BackendVariable>,
    /// Models and graphs: also run the work with other settings, a row for each, in children of their own after
    /// the plain runs ("default"). Rows are separated by commas, or are the lines of a file (`#` begins a
    /// comment). A row is [BACKEND] NAME: SETTING+SETTING, of which backend and name may be absent. Settings:
    /// NAME=value (a variable), library=PATH (HIP), copies=kernel, graphs=off, null-stream, host-weights=off,
    /// rtc=force (HIP), matrix-units=off, shared-tiles=off, staged-weights=false, validation (Vulkan). A row runs
    /// on the backends that read one of its settings. The output says which row helps.
    #[arg(long, value_name = "FILE|LIST", value_parser = Rows::from_str)]
    variants: Option<Rows>,
    /// Models and graphs: after a crash or a hang, run the backend with harmless settings that may help (HIP: no
    /// SDMA, copies by a kernel, no graphs, the NULL stream; Vulkan: plain kernels, no cache), and say which does.
    #[arg(long)]
    cure: bool,
    /// Print the report as Markdown to paste into an issue tracker, without names of users and machines, paths, prompts
    /// and generated tokens.
    #[arg(long)]
    text_report: bool,
}

/// The rows of `--variants`.
#[derive(Clone)]
struct Rows(Vec<VariantRow>);

impl FromStr for Rows {
    type Err = Error;

    fn from_str(text: &str) -> Result<Rows> {
        read_variants(text).map(Rows)
    }
}

#[derive(Subcommand)]
enum Task {
    /// Makes the report of one or several folders of runs, for example of interrupted runs or of other
    /// machines.
    Report {
        /// Folders of runs.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
        /// File for the report as JSON (default: result.json in the folder, if there is one folder);
        /// report.html is written next to it.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Leave out names of users and of this machine, paths, prompts and generated tokens (the default with
        /// --out, for reports that are sent to others).
        #[arg(long, conflicts_with = "full")]
        redact: bool,
        /// Leave out nothing.
        #[arg(long)]
        full: bool,
        /// Print the report as Markdown to paste into an issue tracker, redacted: look through it before you send it.
        #[arg(long)]
        text_report: bool,
    },
}

/// Shows a bar on a terminal, or a spinner while there is no total; elsewhere a line, but none for parts of
/// the work.
fn show(bar: &ProgressBar, shown: bool, event: &Event) {
    let line = Escaped(format!("{}: {}", event.backend, event.what)).to_string();
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
    let defaults = CompareOptions::default();
    let require_all = args.backends.is_some();
    let once = matches!(work, Subject::Model(_)) && args.epochs == 1;
    let per_node = args.per_node.unwrap_or(if once { PerNode::Isolated } else { PerNode::Off });
    let mut backends = args.backends.unwrap_or_else(|| defaults.backends.clone());
    if !require_all && hip_kfd_is_usable() {
        backends.push(BackendName::HipKfd(VirtualTarget::default()));
    }
    defaults
        .with_work(work)
        .with_backends(backends)
        .with_require_all(require_all)
        .with_reference(args.reference)
        .with_prompt(args.prompt)
        .with_tokens(args.tokens)
        .with_text(args.text)
        .with_chunk(args.chunk)
        .with_chunks(args.chunks)
        .with_predict(args.predict)
        .with_offload(args.offload)
        .with_per_node(per_node)
        .with_repeat(args.repeat)
        .with_invariance(args.invariance)
        .with_precision(args.precision)
        .with_cache(args.cache)
        .with_epochs(args.epochs)
        .with_timeout(args.timeout_s)
        .with_seed(args.seed)
        .with_out(args.out)
        .with_vulkan_arch(args.vulkan_arch)
        .with_hip_library(args.hip_library)
        .with_environment(args.env)
        .with_variants(args.variants.map_or_else(Vec::new, |rows| rows.0))
        .with_cure(args.cure)
}

/// Returns a flag that is set when the user interrupts the program: the report is still made. A second signal
/// ends the program immediately.
fn interrupted() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // If registering fails, the signal ends the program and its child processes immediately, as by
        // default.
        let _ = flag::register_conditional_shutdown(signal, FAILED.into(), stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()));
    }
    stop
}

/// Writes what allows and blocks each card, from files alone, before anything that may end the machine. A run that
/// continues keeps what its beginning found.
#[cfg(feature = "probe")]
fn write_machine(path: &Path, hip_library: Option<&Path>) {
    use diptych::probe::{ProbeOptions, probe};
    if path.exists() {
        return;
    }
    let options =
        ProbeOptions::default().with_hip_library(hip_library.map(Path::to_path_buf)).with_children(false);
    let text = probe(&options).ok().and_then(|report| serde_json::to_string_pretty(&report).ok());
    // A run without this file is complete.
    let _ = text.map(|text| diptych::ggml::files::write_atomically(path, format!("{text}\n").as_bytes()));
}

#[cfg(not(feature = "probe"))]
fn write_machine(_path: &Path, _hip_library: Option<&Path>) {}

/// Runs a comparison, or continues one, and writes its report.
fn compare(args: Args) -> Result<ExitCode> {
    let bar = ProgressBar::new_spinner();
    let shown = std::io::stderr().is_terminal();
    if shown {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    let text_report = args.text_report;
    let (resumed, options) = (args.resume.clone(), options(args).with_stop(interrupted()));
    let mut machine = Some(resumed.as_ref().unwrap_or(&options.out).join("probe.json"));
    let mut progress = |event: &Event| {
        // The folder is this run's from its first event on.
        if let Some(path) = machine.take() {
            write_machine(&path, options.hip_library.as_deref());
        }
        show(&bar, shown, event);
    };
    let made = match &resumed {
        Some(folder) => work_of(folder).and_then(|work| {
            program::note(format_args!("continuing {}: it opens {work}", folder.display()));
            resume(folder, &options, &mut progress)
        }),
        None => run(&options, &mut progress),
    };
    bar.finish_and_clear();
    let path = report_path(resumed.as_ref().unwrap_or(&options.out));
    // No model, a broken model, a folder that cannot be written to: before any work, each of these is wrong
    // use.
    made.map_or_else(wrong_use, |report| conclude(&report, Some(&path), false, text_report))
}

/// Makes the report of folders. It is no failure if the report cannot be written there: the folders may be
/// from another machine.
fn report_of(folders: &[PathBuf], out: Option<&Path>, redact: bool, text_report: bool) -> Result<ExitCode> {
    let report = match report(folders) {
        Ok(report) => report,
        Err(error) => return wrong_use(error),
    };
    if let (None, [folder]) = (out, folders) {
        let path = report_path(folder);
        if let Err(error) = write(&report, &path, redact) {
            program::note(format_args!("the report was not written: {error}"));
        }
    }
    conclude(&report, out, redact, text_report)
}

/// Writes a report, and its page next to it, for others if `redact` is set.
fn write(report: &Report, path: &Path, redact: bool) -> Result<()> {
    let redacted = redact.then(|| report.redacted()).transpose()?;
    let report = redacted.as_ref().unwrap_or(report);
    report.write(path)?;
    write_page(report, &page_path(path.parent().unwrap_or(Path::new(""))))
}

fn wrong_use(error: Error) -> Result<ExitCode> {
    program::note(format_args!("error: {error}"));
    Ok(ExitCode::from(WRONG_USE))
}

/// Writes and prints a report, and returns the exit status, also if the output pipe is closed.
fn conclude(report: &Report, path: Option<&Path>, redact: bool, markdown: bool) -> Result<ExitCode> {
    let written = path.map_or(Ok(()), |path| write(report, path, redact));
    if let (Some(path), Ok(())) = (path, &written) {
        program::note(format_args!("report: {}", path.display()));
    }
    let style = if std::io::stdout().is_terminal() { Style::Coloured } else { Style::Plain };
    let text = if markdown { text_report(report)? } else { table(report, style) };
    let printed = match program::print(text) {
        Err(error) if error.io_kind() == Some(ErrorKind::BrokenPipe) => Ok(()),
        printed => printed,
    };
    written.and(printed)?;
    Ok(ExitCode::from(if report.verdict.agree { 0 } else { FAILED }))
}

fn run_with(args: Args) -> Result<ExitCode> {
    if let Some(Task::Report { folders, out, redact, full, text_report }) = &args.command {
        return report_of(folders, out.as_deref(), *redact || (out.is_some() && !full), *text_report);
    }
    match &args.counts {
        Some(filter) => {
            let backends = args.backends.unwrap_or_else(|| CompareOptions::default().backends);
            program::print(counts(filter, &backends, args.precision)?)?;
            Ok(ExitCode::SUCCESS)
        }
        None => compare(args),
    }
}

fn main() -> ExitCode {
    child_entry().unwrap_or_else(|| program::run(|| run_with(Args::parse())))
}
