//! Measures tokens per second of prompt and generation.
//!
//! `cargo run --release --example bench -- --model F --backend vulkan`

use clap::Parser;
use diptych::backends::BackendName;
use diptych::bench::{
    BenchOptions, Breakdown, DraftMeasurement, bench, bench_drafts, bench_parallel, copy_bandwidth, profile,
};
use diptych::generate::GenerateOptions;
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::{DType, Error, Model, Precision, Result, SessionOptions, program};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures tokens per second of a prompt (pp) and of generation (tg): mean and standard deviation of several
/// runs.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Backend: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan+hip,
    /// vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151] or
    /// hip-virtual[:gfx906|:gfx900|:gfx1100|:gfx1151].
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Number of the model's units on the backend's device: -1 everything, 0 nothing, 1 the output layer, 2 the
    /// output layer and the last layer and so on, auto as many as fit. The processor computes the rest.
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offload: Offload,
    /// Tokens of the prompt; 0 skips the prompt.
    #[arg(long, default_value_t = 512)]
    prompt_tokens: usize,
    /// Tokens to generate; 0 skips generation.
    #[arg(long, default_value_t = 128)]
    predict: usize,
    /// Tokens in the cache before each measurement.
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Runs of each measurement.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Seconds of uncounted runs before each measurement, in which a GPU raises its clocks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = program::seconds)]
    warm_up: Duration,
    /// Tokens of one batch of the prompt [default: 512 on processors, 1024 on GPUs].
    #[arg(long)]
    batch: Option<usize>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0 [default: f16; f32 on reference and with --precision
    /// exact].
    #[arg(long)]
    cache: Option<DType>,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// GGUF file of a smaller model with the same vocabulary: generation is measured with its drafts too, with the share
    /// of them that is accepted.
    #[arg(long, value_name = "FILE")]
    draft_model: Option<PathBuf>,
    /// Measure generation with at most N drafts in a step: those of --draft-model (default 8), without it those of the layer
    /// of the file that predicts further tokens.
    #[arg(long, value_name = "N")]
    draft: Option<usize>,
    /// Measure generation for this many sequences that take their steps together too.
    #[arg(long, value_name = "N")]
    parallel: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Measure the steps of a batch of the prompt and of a decode step instead: time by operation, by node
    /// and by layer, with the bytes that each step moves and the bytes that a copy on the device moves in the
    /// same time.
    #[arg(long)]
    profile: bool,
    /// Measure the steps and write them to this file, for chrome://tracing and similar viewers.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Deadline of each phase of the driver in seconds [default: 30 to 600, by phase].
    #[arg(long, value_name = "S", value_parser = program::deadline)]
    timeout_s: Option<Duration>,
    /// Show the backend's warnings, and all of the reason of the backend auto.
    #[arg(short, long)]
    verbose: bool,
}

/// Label of times that are no card's.
const EMULATED: &str =
    "the card is emulated: these times are the emulation's or made up, and say nothing of a card\n";

/// True if the backend's card is emulated.
fn is_emulated(args: &Args) -> bool {
    args.backend.parse().is_ok_and(|name: BackendName| name.is_emulated())
}

/// Returns the first lines of the output.
fn heading(args: &Args, device: &str) -> String {
    let label = if is_emulated(args) { EMULATED } else { "" };
    format!("{} on {} ({device})\n{label}", args.model.display(), args.backend)
}

/// Measures the steps of a batch.
fn profiled(args: &Args, model: &Model, options: &BenchOptions) -> Result<()> {
    let backend = model.backend();
    let bandwidth = copy_bandwidth(backend.as_ref())?;
    let profiles = profile(model, options)?;
    let all: Vec<Breakdown> = profiles.into_iter().map(|p| Breakdown::new(p, bandwidth)).collect();
    if let Some(path) = &args.trace {
        let events: Vec<_> = all.iter().flat_map(|b| b.trace(&args.backend)).collect();
        let json = serde_json::json!({"traceEvents": events, "displayTimeUnit": "ns"});
        std::fs::write(path, format!("{json}\n")).map_err(|e| Error::io(path.display().to_string(), e))?;
    }
    if args.json {
        let device = backend.device();
        let report = serde_json::json!({
            "model": args.model, "backend": args.backend, "device": device.name, "driver": device.driver, "emulated": is_emulated(args), "profiles": all,
        });
        return program::print(format!("{report:#}\n"));
    }
    let mut text = heading(args, &backend.device().name);
    all.iter().for_each(|breakdown| text += &format!("\n{breakdown}"));
    program::print_text(&text)
}

/// Measures generation with drafts, if there is a model that drafts.
fn measure_drafts(
    args: &Args,
    model: &Model,
    options: &BenchOptions,
    bar: &ProgressBar,
) -> Result<Option<DraftMeasurement>> {
    if args.predict == 0 || (args.draft_model.is_none() && args.draft.is_none()) {
        return Ok(None);
    }
    let load = |path: &PathBuf| Model::load(path, model.backend().clone());
    let draft = args.draft_model.as_ref().map(load).transpose()?;
    let most = args.draft.unwrap_or(GenerateOptions::default().draft);
    let mut progress = |name: &str, seconds| bar.set_message(format!("{name}: {seconds:.3} s"));
    bench_drafts(model, draft.as_ref(), most, options, &mut progress).map(Some)
}

fn run(args: &Args) -> Result<()> {
    program::set_verbose(args.verbose);
    let backend = program::open_for(&args.model, &args.backend, &program::open_options(args.timeout_s))?;
    let file = ModelFile::open(&args.model)?;
    let options = BenchOptions::default()
        .with_prompt_tokens(args.prompt_tokens)
        .with_predict(args.predict)
        .with_depth(args.depth)
        .with_repeat(args.repeat)
        .with_warm_up(args.warm_up)
        .with_session(
            SessionOptions::default()
                .with_batch(args.batch)
                .with_cache(args.cache)
                .with_precision(args.precision)
                .with_context(
                    args.depth.saturating_add(args.prompt_tokens.max(args.predict.saturating_add(1))),
                ),
        );
    let predicts = args.draft.is_some() && args.draft_model.is_none();
    let session = options.session.clone().with_predictor(predicts);
    let loading = LoadOptions::default().with_offload(args.offload).with_session(session);
    program::note_left_out(&file);
    let model = Model::load_with(file, backend.clone(), &loading, &mut |_, _| ())?;
    program::note_division(&model);
    if args.profile || args.trace.is_some() {
        return profiled(args, &model, &options);
    }
    let kinds = usize::from(args.prompt_tokens > 0) + usize::from(args.predict > 0);
    let bar = ProgressBar::new((kinds * args.repeat) as u64);
    let mut measured = bench(&model, &options, &mut |name, seconds| {
        bar.set_message(format!("{name}: {seconds:.3} s"));
        bar.inc(1);
    })?;
    if let Some(sequences) = args.parallel.filter(|_| args.predict > 0) {
        let mut progress = |name: &str, seconds| bar.set_message(format!("{name}: {seconds:.3} s"));
        measured.push(bench_parallel(&model, sequences, &options, &mut progress)?);
    }
    let drafted = measure_drafts(args, &model, &options, &bar)?;
    bar.finish_and_clear();
    program::note_phases(&model);
    program::note_fallbacks(&model);
    let device = backend.device();
    if args.json {
        let report = serde_json::json!({
            "model": args.model, "backend": args.backend, "device": device.name, "driver": device.driver,
            "offload": args.offload.to_string(), "precision": args.precision, "cache": options.session.cache_on(backend.as_ref()).name(),
            "batch": options.session.batch_on(backend.as_ref()), "emulated": is_emulated(args), "measurements": measured, "drafts": drafted,
        });
        return program::print(format!("{report:#}\n"));
    }
    let mut text = heading(args, &device.name);
    for m in measured {
        text += &format!("{:>8}  {:10.2} +- {:.2} t/s\n", m.name, m.mean, m.sd);
    }
    if let Some(d) = drafted {
        let m = &d.speed;
        let (share, of_a_step) = (100.0 * d.share(), d.tokens_of_a_step());
        text += &format!(
            "{:>8}  {:10.2} +- {:.2} t/s; {} of {} drafts accepted ({share:.0} %), {of_a_step:.2} tokens a step\n",
            m.name, m.mean, m.sd, d.accepted, d.drafts
        );
    }
    program::print_text(&text)
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
