//! Prints the metadata and tensors of a GGUF file, or an outline of its graphs on a backend.
//!
//! `cargo run --release --example inspect -- F [--json] [--plan vulkan]`

use clap::Parser;
use diptych::ggml::gguf::{GgufFile, Value};
use diptych::model::{BatchShape, ModelFile, Outline, Predictor};
use diptych::session::{KV_STEP, Want};
use diptych::{OpenOptions, Precision, Result, SessionOptions, program};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the metadata and tensors of a GGUF file; with --plan it prints the steps, levels, dispatches and
/// barriers of a decode and of a prompt graph instead.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file; any part of a split file.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Backend whose plans are shown: reference, cpu, vulkan[:N], hip[:N], vulkan-virtual,
    /// hip-virtual[:gfx906] ... Weights are not loaded.
    #[arg(long, value_name = "BACKEND")]
    plan: Option<String>,
    /// Tokens of the prompt whose plan is shown.
    #[arg(long, default_value_t = 512, requires = "plan")]
    prompt_tokens: usize,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast", requires = "plan")]
    precision: Precision,
}

/// Returns the outlines of a decode step and of a prompt, as greedy text needs them.
fn outlines(args: &Args, backend: &str) -> Result<Vec<Outline>> {
    let backend = program::open(backend, &OpenOptions::default())?;
    let file = ModelFile::open(&args.file)?;
    program::note_left_out(&file);
    let context = file.hparams().context.min(4096);
    let shape = |tokens: usize| BatchShape {
        tokens,
        kv: context.min(KV_STEP.max(tokens)),
        context,
        sequences: 1,
        outputs: 1,
        cache: SessionOptions::default().with_precision(args.precision).cache_on(backend.as_ref()),
        want: Want::Best(1),
        drafts: false,
        predictor: Predictor::Unused,
    };
    let of = |tokens: usize| file.outline(backend.as_ref(), &shape(tokens), args.precision);
    Ok(vec![of(1)?, of(args.prompt_tokens.clamp(1, context))?])
}

/// Converts a metadata value; bytes that are not UTF-8 become replacement characters, as JSON cannot
/// represent them.
fn json_value(value: &Value) -> serde_json::Value {
    if let Some(array) = value.as_array() {
        return array.values().map(|v| json_value(&v)).collect();
    }
    if let Some(flag) = value.as_bool() {
        return flag.into();
    }
    if let Some(bytes) = value.as_bytes() {
        return String::from_utf8_lossy(bytes).into();
    }
    match value.as_integer() {
        Some(n) => {
            i64::try_from(n).map(Into::into).or_else(|_| u64::try_from(n).map(Into::into)).unwrap_or_default()
        }
        None => value.as_float().into(),
    }
}

fn json(gguf: &GgufFile) -> serde_json::Value {
    let metadata: serde_json::Map<String, serde_json::Value> =
        gguf.metadata().iter().map(|(key, value)| (key.to_string(), json_value(value))).collect();
    let tensors: Vec<serde_json::Value> = gguf
        .tensors()
        .iter()
        .map(|t| {
            serde_json::json!({ "name": t.name, "type": t.dtype.name(), "shape": t.shape(), "bytes": t.bytes,
                "part": t.part, "offset": t.offset })
        })
        .collect();
    serde_json::json!({ "metadata": metadata, "tensors": tensors })
}

/// Elements of an array that are printed; JSON has all.
const SHOWN: usize = 8;

/// Bytes of a text in an array that are printed.
const SHOWN_BYTES: usize = 200;

/// Formats a metadata value. Of an array only the first elements are printed, with their kind and number in front.
fn shown(value: &Value) -> String {
    let Some(array) = value.as_array() else { return value.to_string() };
    let element = |value: Value| match value.as_bytes() {
        Some(text) if text.len() > SHOWN_BYTES => format!("a text of {} bytes", text.len()),
        _ => value.to_string(),
    };
    let mut elements: Vec<String> = array.values().take(SHOWN).map(element).collect();
    if array.len() > SHOWN {
        elements.push("...".into());
    }
    format!("{value} {}", elements.join(", "))
}

fn text(gguf: &GgufFile) -> String {
    let mut out = String::new();
    for (key, value) in gguf.metadata().iter() {
        out += format!("{key} = {}", shown(value)).trim_end();
        out += "\n";
    }
    let total: usize = gguf.tensors().iter().map(|t| t.bytes).sum();
    out += &format!("\n{} tensors, {total} bytes\n", gguf.tensors().len());
    for t in gguf.tensors() {
        out += &format!("{:<8} {:>12} {:?} {}\n", t.dtype, t.bytes, t.shape(), t.name);
    }
    out
}

fn run(args: &Args) -> Result<()> {
    if let Some(backend) = &args.plan {
        let outlines = outlines(args, backend)?;
        let text = match args.json {
            true => format!("{:#}\n", serde_json::json!(outlines)),
            false => outlines.iter().map(ToString::to_string).collect(),
        };
        return program::print_text(&text);
    }
    let gguf = GgufFile::open(&args.file)?;
    let text = if args.json { format!("{:#}\n", json(&gguf)) } else { text(&gguf) };
    program::print_text(&text)
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
