//! Computes vectors of texts.
//!
//! `cargo run --release --example embed -- --model F "a text" "another one"`

use clap::Parser;
use diptych::model::{LoadOptions, ModelFile, Offload, Pooling};
use diptych::session::EmbedOptions;
use diptych::tokenizer::EncodeOptions;
use diptych::{Error, Model, Precision, Result, SessionOptions, Tokenizer, program};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Computes a vector of each text and prints it as an array of numbers on a line of its own, or writes all of
/// them to a NumPy array file.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Texts.
    texts: Vec<String>,
    /// File whose lines are also texts.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Text as token ids, separated by commas; may be given several times.
    #[arg(long)]
    tokens: Vec<String>,
    /// Pooling of the token vectors: mean, first or last [default: as in the file, or else mean for encoders and
    /// last for models that generate text].
    #[arg(long)]
    pooling: Option<Pooling>,
    /// Layer after which the vectors are read, 0 for the embedding of tokens [default: the last one].
    #[arg(long)]
    layer: Option<usize>,
    /// Do not scale the vectors to length 1.
    #[arg(long)]
    raw: bool,
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
    /// Tokens of one batch [default: 512 on processors, 1024 on GPUs]. An encoder computes all tokens of a text
    /// together, so the longest text raises it.
    #[arg(long)]
    batch: Option<usize>,
    /// Cut texts that are longer than the model's context, and for an encoder those that are longer than a given
    /// --batch. The token that ends a text stays.
    #[arg(long)]
    truncate: bool,
    /// Array file to write, F32 [texts, width].
    #[arg(long)]
    out: Option<PathBuf>,
    /// Deadline of each phase of the driver in seconds [default: 30 to 600, by phase].
    #[arg(long, value_name = "S", value_parser = program::deadline)]
    timeout_s: Option<Duration>,
    /// Show the backend's warnings, and all of the reason of the backend auto.
    #[arg(short, long)]
    verbose: bool,
}

/// Returns the texts as tokens, cut if they should be.
fn texts(args: &Args, file: &ModelFile) -> Result<Vec<Vec<u32>>> {
    let most = match args.batch {
        Some(batch) if !file.hparams().causal => batch.clamp(1, file.hparams().context),
        _ => file.hparams().context,
    };
    let most = if args.truncate { most } else { usize::MAX };
    let mut cut = 0;
    let mut texts = args.texts.clone();
    if let Some(path) = &args.file {
        let all = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        texts.extend(all.lines().map(String::from));
    }
    let mut tokens = Vec::new();
    if !texts.is_empty() {
        let tokenizer = Tokenizer::from_gguf(file.gguf())?;
        for text in &texts {
            let mut text = tokenizer.encode(text, &EncodeOptions::default());
            cut += usize::from(shortened(&mut text, most, tokenizer.add_eos()));
            tokens.push(text);
        }
    }
    for ids in &args.tokens {
        let wrong = |_| Error::argument("tokens", format!("'{ids}'"), "numbers separated by commas");
        let ids = ids.split(',').map(|id| id.trim().parse());
        let mut text = ids.collect::<Result<Vec<u32>, _>>().map_err(wrong)?;
        cut += usize::from(shortened(&mut text, most, false));
        tokens.push(text);
    }
    if cut > 0 {
        program::note(format!("{cut} of {} texts cut to {most} tokens", tokens.len()));
    }
    match tokens.is_empty() {
        true => Err(Error::argument("texts", "none", "at least one")),
        false => Ok(tokens),
    }
}

/// Cuts a text to a number of tokens, except for its last token if that ends it. Returns true if it was longer.
fn shortened(text: &mut Vec<u32>, most: usize, ends: bool) -> bool {
    let longer = text.len() > most;
    if let Some(last) = text.last().copied().filter(|_| longer) {
        text.truncate(most);
        if let Some(end) = text.last_mut().filter(|_| ends) {
            *end = last;
        }
    }
    longer
}

/// Writes to standard error which pooling is used, if neither file nor arguments give one.
fn note_pooling(args: &Args, file: &ModelFile) {
    let h = file.hparams();
    if args.pooling.is_none() && h.pooling.is_none() {
        let (pooling, name) = (h.usual_pooling(), &h.architecture);
        program::note(format!(
            "pooling: {pooling}, the default for {name}, as the file gives none (--pooling)"
        ));
    }
}

fn run(args: &Args) -> Result<()> {
    program::set_verbose(args.verbose);
    let backend = program::open_for(&args.model, &args.backend, &program::open_options(args.timeout_s))?;
    let file = ModelFile::open(&args.model)?;
    program::note_left_out(&file);
    note_pooling(args, &file);
    let texts = texts(args, &file)?;
    let longest = texts.iter().map(Vec::len).max().unwrap_or(1);
    let options = SessionOptions::default()
        .with_context(longest.clamp(1, file.hparams().context))
        .with_batch(args.batch)
        .with_precision(args.precision);
    let mut batch = options.batch_on(backend.as_ref());
    if !file.hparams().causal && longest > batch {
        // A text that is too long for the model is refused before anything is computed.
        batch = longest.min(file.hparams().context);
    }
    let options = options.with_batch(batch);
    let sequences = texts.len().min(batch.div_ceil(longest.max(1))).max(1);
    let options = options.with_sequences(sequences);
    let loading = LoadOptions::default().with_offload(args.offload).with_session(options.clone());
    let model = Model::load_with(file, backend, &loading, &mut |_, _| ())?;
    program::note_division(&model);
    let embedding =
        EmbedOptions::default().with_pooling(args.pooling).with_normalised(!args.raw).with_layer(args.layer);
    let vectors = model.session(&options)?.embed(&texts, &embedding)?;
    program::note_fallbacks(&model);
    if let Some(path) = &args.out {
        return diptych::npy::write(path, vectors.len(), model.hparams().embedding, &vectors.concat());
    }
    let line = |vector: &Vec<f32>| {
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        format!("[{}]\n", numbers.join(", "))
    };
    program::print(vectors.iter().map(line).collect::<String>())
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()))
}
