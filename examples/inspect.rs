//! Prints the metadata and tensors of a GGUF file.
//!
//! `cargo run --release --example inspect -- F [--json]`

use clap::Parser;
use diptych::Result;
use diptych::core::gguf::GgufFile;
use std::io::Write;
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

fn json(gguf: &GgufFile) -> serde_json::Value {
    let metadata: serde_json::Map<String, serde_json::Value> =
        gguf.metadata().iter().map(|(key, value)| (key.to_string(), value.to_string().into())).collect();
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
    // A reader that has seen enough may close the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
