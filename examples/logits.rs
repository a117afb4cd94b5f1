//! Writes the logits of a prompt as an array file.
//!
//! `cargo run --release --example logits -- --model F --tokens 1,2,3 --out X.npy`

use clap::Parser;
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::{DType, Error, Model, OpenOptions, Precision, Result, SessionOptions, greedy, program};
use std::path::PathBuf;
use std::process::ExitCode;

/// Computes the logits after every token of a prompt and writes them as a NumPy array file, F32 [tokens,
/// vocabulary].
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Token ids of the prompt, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    tokens: Vec<u32>,
    /// Backend: reference, cpu, vulkan[:N], hip[:N] or auto (the fastest that works here).
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
    /// Generate this many tokens greedily after the prompt and print their ids.
    #[arg(long, default_value_t = 0)]
    predict: usize,
    /// Array file to write.
    #[arg(long)]
    out: PathBuf,
}

fn run(args: &Args) -> Result<()> {
    let backend = program::open_for(&args.model, &args.backend, &OpenOptions::default())?;
    let file = ModelFile::open(&args.model)?;
    program::note_left_out(&file);
    let context = args.tokens.len() + args.predict;
    if context > file.hparams().context {
        let expected = format!("at most {}, the model's context", file.hparams().context);
        return Err(Error::argument("tokens", format!("{context} positions"), expected));
    }
    let options = SessionOptions::default()
        .with_context(context)
        .with_batch(args.batch)
        .with_cache(args.cache)
        .with_precision(args.precision);
    let loading = LoadOptions::default().with_offload(args.offload).with_session(options.clone());
    let model = Model::load_with(file, backend, &loading, &mut |_, _| ())?;
    program::note_division(&model);
    let mut session = model.session(&options)?;
    let logits = session.logits(&args.tokens)?;
    let vocabulary = model.hparams().vocabulary;
    diptych::npy::write(&args.out, args.tokens.len(), vocabulary, &logits)?;
    let mut row = logits[logits.len() - vocabulary..].to_vec();
    let mut ids = Vec::new();
    for i in 0..args.predict {
        let token = greedy(&row)?;
        ids.push(token.to_string());
        if i + 1 < args.predict {
            row = session.decode(token)?;
        }
    }
    if ids.is_empty() { Ok(()) } else { program::print(format!("{}\n", ids.join(","))) }
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
