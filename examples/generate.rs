//! Continues a prompt, or answers it in chat mode, and prints the text as it comes.
//!
//! `cargo run --release --example generate -- --model F --prompt "The sea is"`

use clap::Parser;
use diptych::chat::{ChatInput, ChatTemplate, Message};
use diptych::generate::{GenerateOptions, Generation};
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::tokenizer::EncodeOptions;
use diptych::{
    DType, Error, Model, OpenOptions, Precision, Result, SamplerOptions, SessionOptions, Tokenizer,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Continues a prompt and prints the text as it comes; tokens per second at the end, on standard error.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Text to continue; with --chat what the user says.
    #[arg(long)]
    prompt: String,
    /// reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N] or hip-virtual[:gfx906|:gfx900].
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// How much lies on the backend's device: -1 everything, 0 nothing, 1 the output layer, 2 that and the last layer
    /// and so on, auto as much as fits. The processor computes the rest.
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offload: Offload,
    /// Only print what memory is needed.
    #[arg(long)]
    estimate: bool,
    /// Put the prompt into the model's chat template.
    #[arg(long)]
    chat: bool,
    /// What the system says, with --chat.
    #[arg(long, requires = "chat")]
    system: Option<String>,
    /// Tokens at the most.
    #[arg(long, default_value_t = 256)]
    predict: usize,
    /// Positions of the context.
    #[arg(long)]
    context: Option<usize>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0.
    #[arg(long, default_value = "f32")]
    cache: DType,
    /// Sharpness of the choice; 0 takes the most probable token.
    #[arg(long, default_value_t = 0.0)]
    temp: f32,
    /// Tokens that stay in the choice; 0: all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Probability of the tokens that stay in the choice.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Share of the most probable token's probability that a token needs.
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Seed of the choice.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// End where this text comes; may be given more than once.
    #[arg(long)]
    stop: Vec<String>,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
}

/// The bar while a model is loaded.
const BAR: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";

/// The prompt as tokens. A template writes the first token itself.
fn prompt(args: &Args, model: &Model, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    if !args.chat {
        return Ok(tokenizer.encode(&args.prompt, &EncodeOptions::default()));
    }
    let why = |e: diptych::chat::ChatError| Error::argument_said("chat template", e.to_string());
    let template = ChatTemplate::from_gguf(model.file().gguf().metadata(), None).map_err(why)?;
    let system = args.system.iter().map(Message::system);
    let messages = system.chain([Message::user(&args.prompt)]).collect::<Vec<_>>();
    let text = template.render(&ChatInput::new(messages).generation_prompt(true)).map_err(why)?;
    Ok(tokenizer.encode(&text, &EncodeOptions { add_special: false, parse_special: true }))
}

fn run(args: &Args) -> Result<()> {
    let backend = diptych::open(&args.backend, &OpenOptions::default())?;
    let file = ModelFile::open(&args.model)?;
    let session = SessionOptions {
        context: args.context,
        cache: args.cache,
        precision: args.precision,
        ..SessionOptions::default()
    };
    let options = LoadOptions { offload: args.offload, session, ..LoadOptions::default() };
    if args.estimate {
        print!("{}", file.estimate(backend.as_ref(), &options)?);
        return Ok(());
    }
    let bar = ProgressBar::new(0).with_message(format!("loading {}", args.model.display()));
    bar.set_style(
        ProgressStyle::default_bar().template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let model = Model::load_with(file, backend, &options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    let tokenizer = Tokenizer::from_gguf(model.file().gguf())?;
    let tokens = prompt(args, &model, &tokenizer)?;
    let mut session = model.session(&options.session)?;
    bar.finish_and_clear();
    if let Some(estimate) = model.estimate().filter(|e| e.is_partial()) {
        eprint!("{estimate}");
    }
    let sampler = SamplerOptions {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
        ..SamplerOptions::default()
    };
    let options = GenerateOptions {
        predict: Some(args.predict),
        sampler,
        stop: args.stop.clone(),
        ..GenerateOptions::default()
    };
    let mut generation = Generation::start(&mut session, &tokenizer, &tokens, &options)?;
    let mut out = std::io::stdout().lock();
    let broken = |e: std::io::Error| Error::argument_said("standard output", e.to_string());
    for piece in generation.by_ref() {
        out.write_all(piece?.text.as_bytes()).and_then(|()| out.flush()).map_err(broken)?;
    }
    writeln!(out).map_err(broken)?;
    let s = generation.summary();
    let speed = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    eprintln!(
        "prompt {} tokens, {:.1} t/s; {} tokens, {:.1} t/s; ended by {:?}",
        s.prompt_tokens,
        speed(s.prompt_tokens, s.prompt_time),
        s.tokens,
        speed(s.tokens, s.time),
        s.finish
    );
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
