//! Measures tokens per second of prompt and generation.
//!
//! `cargo run --release --example bench -- --model F --backend vulkan`

use clap::Parser;
use diptych::bench::{BenchOptions, bench};
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::{DType, Model, OpenOptions, Precision, Result, SessionOptions, program};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures tokens per second of a prompt (pp) and of generation (tg): mean and standard deviation of several runs.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan-virtual[:vega20|:vega10] or hip-virtual[:gfx906|:gfx900].
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// How much lies on the backend's device: -1 everything, 0 nothing, 1 the output layer, 2 that and the last layer
    /// and so on, auto as much as fits. The processor computes the rest.
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offload: Offload,
    /// Tokens of the prompt; 0 leaves it out.
    #[arg(long, default_value_t = 512)]
    prompt_tokens: usize,
    /// Tokens to generate; 0 leaves generation out.
    #[arg(long, default_value_t = 128)]
    predict: usize,
    /// Tokens in the cache before each measurement.
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Runs of each.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Tokens of one batch of the prompt.
    #[arg(long, default_value_t = 512)]
    batch: usize,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0 [default: f16; f32 on reference and with --precision exact].
    #[arg(long)]
    cache: Option<DType>,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn run(args: &Args) -> Result<()> {
    let backend = diptych::open(&args.backend, &OpenOptions::default())?;
    let options = BenchOptions::default()
        .with_prompt_tokens(args.prompt_tokens)
        .with_predict(args.predict)
        .with_depth(args.depth)
        .with_repeat(args.repeat)
        .with_session(
            SessionOptions::default()
                .with_batch(args.batch)
                .with_cache(args.cache)
                .with_precision(args.precision)
                .with_context(
                    args.depth.saturating_add(args.prompt_tokens.max(args.predict.saturating_add(1))),
                ),
        );
    let loading = LoadOptions::default().with_offload(args.offload).with_session(options.session.clone());
    let file = ModelFile::open(&args.model)?;
    let model = Model::load_with(file, backend.clone(), &loading, &mut |_, _| ())?;
    if let Some(estimate) = model.estimate().filter(|e| e.is_partial()) {
        program::note(estimate.to_string().trim_end());
    }
    let kinds = usize::from(args.prompt_tokens > 0) + usize::from(args.predict > 0);
    let bar = ProgressBar::new((kinds * args.repeat) as u64);
    let measured = bench(&model, &options, &mut |name, seconds| {
        bar.set_message(format!("{name}: {seconds:.3} s"));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let device = backend.device();
    if args.json {
        let report = serde_json::json!({
            "model": args.model, "backend": args.backend, "device": device.name, "driver": device.driver,
            "offload": args.offload.to_string(), "precision": args.precision, "cache": options.session.cache_on(backend.as_ref()).name(),
            "batch": args.batch, "measurements": measured,
        });
        return program::print(format!("{report:#}\n"));
    }
    let mut text = format!("{} on {} ({})\n", args.model.display(), args.backend, device.name);
    for m in measured {
        text += &format!("{:>8}  {:10.2} +- {:.2} t/s\n", m.name, m.mean, m.sd);
    }
    program::print(text)
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
