//! Prints the metadata and tensors of a GGUF file.
//!
//! `cargo run --release --example inspect -- F [--json]`

use clap::Parser;
use diptych::ggml::gguf::{GgufFile, Value};
use diptych::{Result, program};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the metadata and tensors of a GGUF file.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file; of a split file any part.
    file: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A metadata value; bytes that are no UTF-8 become replacement characters, as JSON has none.
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

fn text(gguf: &GgufFile) -> String {
    let mut out = String::new();
    for (key, value) in gguf.metadata().iter() {
        out += &format!("{key} = {value}\n");
    }
    let total: usize = gguf.tensors().iter().map(|t| t.bytes).sum();
    out += &format!("\n{} tensors, {total} bytes\n", gguf.tensors().len());
    for t in gguf.tensors() {
        out += &format!("{:<8} {:>12} {:?} {}\n", t.dtype, t.bytes, t.shape(), t.name);
    }
    out
}

fn run(args: &Args) -> Result<()> {
    let gguf = GgufFile::open(&args.file)?;
    let text = if args.json { format!("{:#}\n", json(&gguf)) } else { text(&gguf) };
    program::print(text)
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
