//! Writes a GGUF file with random weights in the shape of a known model, for measurements and comparisons
//! without downloads.
//!
//! `cargo run --release --example synthesize -- --shape qwen2.5-0.5b --type Q8_0 OUT.gguf`

use clap::Parser;
use diptych::ggml::dtype::DTYPES;
use diptych::synthesize::{self, Drafts, Shape};
use diptych::{DType, Error, Result, program};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Writes a GGUF file with random weights in the shape of a known model.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Known model whose shape is used; `list` prints them. Names that begin with "small-" are test models of
    /// some megabytes, one for each architecture.
    #[arg(long)]
    shape: String,
    /// Type of all matrices; matrices whose rows are not a multiple of its block size become Q8_0 or F16.
    #[arg(long, default_value = "Q8_0")]
    r#type: String,
    /// Add a layer that predicts further tokens: `random`, which hardly ever agrees with the model, or the factor of the
    /// model's layers, which makes the model agree the more often the smaller it is.
    #[arg(long, value_name = "random|F", value_parser = drafts)]
    predictor: Option<Drafts>,
    /// Seed of the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File to write.
    out: Option<PathBuf>,
}

/// Returns the types that weights can have.
fn types() -> impl Iterator<Item = DType> {
    DTYPES.iter().filter(|t| t.computable && t.dtype != DType::I32).map(|t| t.dtype)
}

/// Reads the kind of predictor.
fn drafts(text: &str) -> std::result::Result<Drafts, String> {
    match text.parse() {
        _ if text == "random" => Ok(Drafts::Random),
        Ok(factor) if (0.0..=1.0).contains(&factor) => Ok(Drafts::Agreeing(factor)),
        _ => Err("expected 'random' or a factor from 0 to 1".into()),
    }
}

fn run(args: &Args) -> Result<()> {
    if args.shape == "list" {
        return program::print(Shape::names().collect::<Vec<_>>().join("\n") + "\n");
    }
    let names = || format!("one of {}", Shape::names().collect::<Vec<_>>().join(", "));
    let shape = Shape::named(&args.shape)
        .ok_or_else(|| Error::argument("--shape", format!("'{}'", args.shape), names()))?;
    let dtype = DType::from_name(&args.r#type).filter(|dtype| types().any(|known| known == *dtype));
    let dtype = dtype.ok_or_else(|| {
        let known: Vec<&str> = types().map(DType::name).collect();
        Error::argument("--type", format!("'{}'", args.r#type), format!("one of {}", known.join(", ")))
    })?;
    let shape = shape.with_type(dtype);
    let shape = args.predictor.into_iter().fold(shape, Shape::with_predictor);
    let out = args.out.as_ref().ok_or_else(|| Error::argument("OUT", "", "a file to write"))?;
    let spinner = ProgressBar::new_spinner();
    let megabytes = synthesize::weight_bytes(&shape) / 1_000_000;
    spinner.set_message(format!("writing {} MB to {}", megabytes, out.display()));
    spinner.enable_steady_tick(Duration::from_millis(100));
    synthesize::write(&shape, args.seed, out)?;
    spinner.finish_and_clear();
    program::print(format!("{}: {} of {dtype}, {megabytes} MB\n", out.display(), args.shape))
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
