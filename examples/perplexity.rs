//! Measures the perplexity of a model on a text.
//!
//! `cargo run --release --example perplexity -- --model F --text FILE --backend vulkan`

use clap::Parser;
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::perplexity::{PerplexityOptions, Score, chunks, perplexity};
use diptych::program::{self, FAILED};
use diptych::{DType, Error, Model, OpenOptions, Precision, Result, SessionOptions};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures the perplexity of a model on a text, as llama-perplexity does: the text is cut into chunks, each is
/// computed on its own, and the tokens of its second half are scored. Prints the perplexity so far after each
/// chunk, with its standard error. Exit status 1 if there is none because logits are NaN or infinite.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// File with the text.
    #[arg(long)]
    text: PathBuf,
    /// Tokens of a chunk.
    #[arg(long, value_name = "N", default_value_t = 512)]
    chunk: usize,
    /// The most chunks to use, from the beginning of the text [default: all].
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// Backend: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan+hip,
    /// vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151],
    /// hip-virtual[:gfx906|:gfx900|:gfx1100|:gfx1151] or auto (the fastest that works here).
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Part of the model on the backend's device: -1 everything, 0 nothing, 1 the output layer, 2 the output
    /// layer and the last layer and so on, auto as much as fits. The processor computes the rest.
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offload: Offload,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// Tokens of one batch [default: 512 on processors, 1024 on GPUs].
    #[arg(long)]
    batch: Option<usize>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0 [default: f16; f32 on reference and with --precision
    /// exact].
    #[arg(long)]
    cache: Option<DType>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Returns the numbers of a score. NaN and infinity become null.
fn numbers(score: &Score) -> serde_json::Value {
    serde_json::json!({
        "chunks": score.chunks, "tokens": score.tokens, "nll": score.nll(), "perplexity": score.perplexity(),
        "error": score.error(),
    })
}

fn words(score: &Score) -> String {
    format!("perplexity {:.4} +- {:.4}", score.perplexity(), score.error())
}

fn run(args: &Args) -> Result<ExitCode> {
    let file = ModelFile::open(&args.model)?;
    program::note_left_out(&file);
    program::note_rounding(&file, args.precision);
    let text = std::fs::read(&args.text).map_err(|e| Error::io(&args.text, e))?;
    let options = PerplexityOptions::default().with_chunk(args.chunk).with_chunks(args.chunks);
    let chunks = chunks(&file, &text, &options)?;
    let backend = program::open_for(&args.model, &args.backend, &OpenOptions::default())?;
    let options = SessionOptions::default()
        .with_context(args.chunk)
        .with_batch(args.batch)
        .with_cache(args.cache)
        .with_precision(args.precision);
    let loading = LoadOptions::default().with_offload(args.offload).with_session(options.clone());
    let model = Model::load_with(file, backend.clone(), &loading, &mut |_, _| ())?;
    program::note_division(&model);
    let (mut running, mut printed) = (Vec::new(), Ok(()));
    let score = perplexity(&mut model.session(&options)?, &chunks, &mut |score| {
        running.push(numbers(score));
        if !args.json {
            printed =
                program::print(format!("chunk {} of {}: {}\n", score.chunks, chunks.len(), words(score)));
        }
        let goes_well = printed.is_ok() && score.perplexity().is_finite();
        if goes_well { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    printed?;
    program::note_fallbacks(&model);
    let device = backend.device();
    if args.json {
        let report = serde_json::json!({
            "model": args.model.display().to_string(), "text": args.text.display().to_string(), "backend": args.backend, "device": device.name,
            "driver": device.driver, "offload": args.offload.to_string(), "precision": args.precision,
            "cache": options.cache_on(backend.as_ref()).name(), "batch": options.batch_on(backend.as_ref()),
            "chunk": args.chunk, "score": numbers(&score), "running": running,
        });
        program::print(format!("{report:#}\n"))?;
    } else {
        let (model, text) = (args.model.display(), args.text.display());
        let on = format!("{model} on {} ({}), {}", args.backend, device.name, args.precision.name());
        let of = format!("{} tokens in {} chunks of {} of {text}", score.tokens, score.chunks, args.chunk);
        program::print_text(&format!("{on}\n{}, {of}\n", words(&score)))?;
    }
    if score.perplexity().is_finite() {
        return Ok(ExitCode::SUCCESS);
    }
    program::note(format_args!(
        "error: {}: chunk {} has no perplexity: its logits are NaN, infinite, or minus infinity for a token of the text",
        args.backend, score.chunks
    ));
    Ok(ExitCode::from(FAILED))
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
