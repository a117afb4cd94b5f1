//! Writes a GGUF file with its weights in another type.
//!
//! `cargo run --release --example quantize -- IN.gguf OUT.gguf Q4_K_M`
//! `cargo run --release --example quantize -- IN.gguf OUT.gguf IQ2_M --imatrix imatrix.gguf`

use clap::Parser;
use diptych::generate::Cancel;
use diptych::ggml::gguf::GgufFile;
use diptych::quantize::{Importance, Mix, Recipe, quantize};
use diptych::{Error, Result, program};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Writes a GGUF file with its weights in another type. The output file appears only when it is complete.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// File to read: F32, F16, BF16 or any block type; any part of a split file.
    input: PathBuf,
    /// File to write.
    out: PathBuf,
    /// Name of a mix such as Q4_K_M or of a type such as Q8_0; an unknown name prints the list.
    r#type: String,
    /// Use only the mix's main type for all matrices, and no better type.
    #[arg(long)]
    pure: bool,
    /// Importance matrix, as written by llama-imatrix (GGUF, or the older .dat). The errors of weights are
    /// then weighted by the activations that the model multiplied them by. IQ1, IQ2, IQ3_XXS and IQ3_XS need
    /// one.
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
}

fn run(args: &Args) -> Result<()> {
    let mix = Mix::named(&args.r#type)?;
    let input = GgufFile::open(&args.input)?;
    let importance = args.imatrix.as_ref().map(Importance::open).transpose()?;
    let recipe = Recipe { mix, pure: args.pure, importance: importance.as_ref() };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stop.clone()).map_err(|e| Error::io(&args.out, e))?;
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let summary = quantize(&input, &args.out, &recipe, &Cancel::from(stop), &progress)?;
    bar.finish_and_clear();
    for (name, count) in &summary.non_finite {
        program::note(format_args!(
            "warning: tensor '{name}' has {count} values that are NaN or infinite, as in the input"
        ));
    }
    let types: Vec<String> = summary.types.iter().map(|(dtype, n)| format!("{n} of {dtype}")).collect();
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let sizes = format!("{} MB to {} MB", megabytes(summary.before), megabytes(summary.after));
    program::print(format!("{}: {sizes}; {}\n", args.out.display(), types.join(", ")))?;
    summary.substitutions.iter().try_for_each(|instead| program::print_text(&format!("{instead}\n")))
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
