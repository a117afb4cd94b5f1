//! Writes a GGUF file with random weights in the shape of a known model, so that anybody can measure and compare with
//! nothing downloaded.
//!
//! `cargo run --release --example synthesize -- --shape qwen2.5-0.5b --type Q8_0 OUT.gguf`

use clap::Parser;
use diptych::synthesize::{self, NAMED, Shape};
use diptych::{DType, Error, Result};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Writes a GGUF file with random weights in the shape of a known model.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The model whose shape it is; `list` prints them.
    #[arg(long)]
    shape: String,
    /// Type of all matrices.
    #[arg(long, default_value = "Q8_0")]
    r#type: String,
    /// Seed of the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File to write.
    out: Option<PathBuf>,
}

fn run(args: &Args) -> Result<()> {
    if args.shape == "list" {
        NAMED.iter().for_each(|row| println!("{}", row.0));
        return Ok(());
    }
    let names = || NAMED.iter().map(|row| row.0).collect::<Vec<_>>().join(", ");
    let shape = Shape::named(&args.shape)
        .ok_or_else(|| Error::argument("--shape", format!("'{}' is not one of {}", args.shape, names())))?;
    let dtype =
        ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q6_K"].contains(&args.r#type.to_ascii_uppercase().as_str());
    let dtype = dtype.then(|| DType::from_name(&args.r#type.to_ascii_uppercase())).flatten();
    let dtype = dtype.ok_or_else(|| {
        Error::argument("--type", format!("'{}' is not one of F32, F16, BF16, Q8_0, Q4_0, Q6_K", args.r#type))
    })?;
    let shape = shape.with_type(dtype);
    let out = args.out.as_ref().ok_or_else(|| Error::argument("OUT", "is missing"))?;
    let spinner = ProgressBar::new_spinner();
    let megabytes = synthesize::weight_bytes(&shape) / 1_000_000;
    spinner.set_message(format!("writing {} MB to {}", megabytes, out.display()));
    spinner.enable_steady_tick(Duration::from_millis(100));
    synthesize::write(&shape, args.seed, out)?;
    spinner.finish_and_clear();
    println!("{}: {} of {dtype}, {megabytes} MB", out.display(), args.shape);
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
