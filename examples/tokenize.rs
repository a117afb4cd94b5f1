//! Prints the tokens of a text.
//!
//! `cargo run --release --example tokenize -- --model F --text S [--no-special] [--json]`

use clap::Parser;
use diptych::ggml::gguf::GgufFile;
use diptych::tokenizer::{EncodeOptions, Tokenizer};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the tokens of a text: id and what it stands for.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file with a tokenizer.
    #[arg(long)]
    model: PathBuf,
    /// The text.
    #[arg(long, allow_hyphen_values = true)]
    text: String,
    /// Add no begin and end tokens and parse no special tokens in the text.
    #[arg(long)]
    no_special: bool,
    /// As JSON: an array of objects with `id`, `piece` and `special`.
    #[arg(long)]
    json: bool,
}

fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.piece(id).unwrap_or_default()).into_owned()
}

fn run(args: &Args) -> diptych::Result<String> {
    let file = GgufFile::open(&args.model)?;
    let tokenizer = Tokenizer::from_gguf(&file).map_err(|e| e.with_path(&args.model))?;
    let options = if args.no_special { EncodeOptions::PLAIN } else { EncodeOptions::default() };
    let ids = tokenizer.encode(&args.text, &options);
    if args.json {
        let tokens: serde_json::Value = ids
            .iter()
            .map(|&id| {
                serde_json::json!({ "id": id, "piece": piece(&tokenizer, id), "special": tokenizer.is_special(id) })
            })
            .collect();
        return Ok(format!("{tokens:#}\n"));
    }
    Ok(ids.iter().map(|&id| format!("{id:>7}  {:?}\n", piece(&tokenizer, id))).collect())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(text) => {
            // A reader that has seen enough may close the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
