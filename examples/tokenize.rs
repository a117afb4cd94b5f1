//! Prints the tokens of a text.
//!
//! `cargo run --release --example tokenize -- --model F --text S [--no-special] [--json]`

use clap::Parser;
use diptych::ggml::gguf::GgufFile;
use diptych::tokenizer::{EncodeOptions, Tokenizer};
use diptych::{Result, program};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the tokens of a text: the id of each and the text that it represents.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file with a tokenizer.
    #[arg(long)]
    model: PathBuf,
    /// Text to tokenize.
    #[arg(long, allow_hyphen_values = true)]
    text: String,
    /// Add no begin and end tokens and do not parse special tokens in the text.
    #[arg(long)]
    no_special: bool,
    /// Print JSON: an array of objects with `id`, `piece` and `special`.
    #[arg(long)]
    json: bool,
}

fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.piece(id).unwrap_or_default()).into_owned()
}

fn run(args: &Args) -> Result<()> {
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
        return program::print(format!("{tokens:#}\n"));
    }
    let line = |&id: &u32| format!("{id:>7}  {:?}\n", piece(&tokenizer, id));
    program::print(ids.iter().map(line).collect::<String>())
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
