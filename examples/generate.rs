//! Continues a prompt, or answers it in chat mode, and prints the text as it is generated.
//!
//! `cargo run --release --example generate -- --model F --prompt "The sea is"`

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use diptych::chat::{ChatInput, ChatTemplate, Conversation, Message};
use diptych::generate::{Finish, GenerateOptions, Generation};
use diptych::ggml::backend::Backend;
use diptych::ggml::gguf::Metadata;
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::tokenizer::EncodeOptions;
use diptych::{
    DType, Error, Model, OpenOptions, Precision, Result, SamplerOptions, Session, SessionOptions, Tokenizer,
    program,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;

/// Continues a prompt and prints the text as it is generated; prints tokens per second at the end, on
/// standard error.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Text to continue, or the user's message with --chat. A chat without it reads each line of standard
    /// input as a turn.
    #[arg(long, required_unless_present_any = ["chat", "estimate"])]
    prompt: Option<String>,
    /// Backend: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan-virtual[:vega20|:vega10],
    /// hip-virtual[:gfx906|:gfx900], or auto: the fastest of those that work here, by a measurement of two
    /// seconds whose result is cached.
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Part of the model on the backend's device: -1 everything, 0 nothing, 1 the output layer, 2 the output
    /// layer and the last layer and so on, auto as much as fits. The processor computes the rest.
    #[arg(long, default_value = "-1", allow_hyphen_values = true)]
    offload: Offload,
    /// Only print how much memory is needed.
    #[arg(long)]
    estimate: bool,
    /// Insert the prompt into the model's chat template.
    #[arg(long)]
    chat: bool,
    /// Chat template to use instead of the model's, with --chat.
    #[arg(long, value_name = "FILE", requires = "chat")]
    template: Option<PathBuf>,
    /// System message, with --chat.
    #[arg(long, requires = "chat")]
    system: Option<String>,
    /// Maximum number of tokens to generate.
    #[arg(long, default_value_t = 256)]
    predict: usize,
    /// Maximum number of positions in the context [default: the model's, or its half, quarter and so on if that
    /// would take more than half of the memory that the weights leave free, but not less than 4096]. A chat that
    /// fills it begins anew with its last turns.
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    context: Option<usize>,
    /// Type of the KV cache: f32, f16, q8_0 or q4_0 [default: f16; f32 on reference and with --precision
    /// exact].
    #[arg(long)]
    cache: Option<DType>,
    /// Temperature of the sampling; 0 always chooses the most probable token.
    #[arg(long, default_value_t = 0.0)]
    temp: f32,
    /// Number of most probable tokens that may be chosen; 0: all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Total probability of the most probable tokens that may be chosen.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Minimum probability of a token that may be chosen, as a share of the most probable token's.
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Seed of the sampling.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop at this text; may be given more than once.
    #[arg(long)]
    stop: Vec<String>,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
}

/// Format of the progress bar while a model is loaded.
const BAR: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";

/// Returns the user's messages in a chat: the prompt, or each line of standard input.
fn turns(prompt: Option<&String>) -> Box<dyn Iterator<Item = Result<String>> + '_> {
    match prompt {
        Some(prompt) => Box::new(std::iter::once(Ok(prompt.clone()))),
        None => {
            Box::new(std::io::stdin().lines().map(|line| line.map_err(|e| Error::io("standard input", e))))
        }
    }
}

/// Returns the given template, or the model's.
fn template(path: Option<&PathBuf>, metadata: &Metadata) -> Result<ChatTemplate> {
    let Some(path) = path else {
        return ChatTemplate::from_gguf(metadata, None).map_err(|e| Error::argument("chat template", e, ""));
    };
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    let template = ChatTemplate::new(text).map_err(|e| Error::argument(path.display().to_string(), e, ""))?;
    Ok(template.with_tokens_of(metadata))
}

/// Prints the text of a generation as it is produced, and returns it. Says so if the context ended it.
fn show(mut generation: Generation<'_>) -> Result<String> {
    let bar = ProgressBar::new(0).with_message("prompt");
    generation.prompt(&mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let mut text = String::new();
    for piece in generation.by_ref() {
        let piece = piece?;
        program::print_text(&piece.text)?;
        text += &piece.text;
    }
    program::print("\n")?;
    program::note(generation.summary());
    if generation.summary().finish == Some(Finish::ContextFull) {
        program::note("the text is cut off: --context N sets the number of positions");
    }
    Ok(text)
}

/// Checks that a prompt fits into the context.
fn check_context(what: &str, tokens: &[u32], context: usize) -> Result<()> {
    if tokens.len() <= context {
        return Ok(());
    }
    let expected = format!("at most {context}, the positions of the context; --context N sets their number");
    Err(Error::argument(what, format!("{} tokens", tokens.len()), expected))
}

/// Returns the tokens of a conversation. If the context has no room for them and an answer, the conversation
/// begins anew with its last turns: as many as fill half of the context, but at least one. After an error it is
/// unchanged.
fn prompt_of(
    conversation: &mut Conversation,
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    (context, predict): (usize, usize),
) -> Result<Vec<u32>> {
    let encode = |conversation: &Conversation| -> Result<Vec<u32>> {
        let input = ChatInput::new(conversation.messages().to_vec()).generation_prompt(true);
        let text = template.render(&input.guarded(&|text| tokenizer.guard(text)));
        let text =
            text.map_err(|e| Error::argument("chat template", e, "one that renders this conversation"))?;
        Ok(tokenizer.encode_chat(&text))
    };
    let mut tokens = encode(conversation)?;
    if tokens.len() + predict.min(context / 4) <= context {
        return Ok(tokens);
    }
    let (mut shorter, before) = (conversation.clone(), conversation.turns());
    while tokens.len() > context / 2 && shorter.drop_turn() {
        tokens = encode(&shorter)?;
    }
    check_context("message", &tokens, context)?;
    let turns = shorter.turns();
    if turns < before {
        program::note(format_args!(
            "the context of {context} positions is full: the conversation begins anew with the last {turns} of its \
             {before} turns; --context N has room for more"
        ));
        *conversation = shorter;
    }
    Ok(tokens)
}

/// Answers each turn. The conversation is rendered from its beginning each time; the session computes only
/// the new tokens. A message that is too long for the context is left out; it is an error if none has an answer.
fn chat(args: &Args, session: &mut Session, tokenizer: &Tokenizer, options: &GenerateOptions) -> Result<()> {
    let template = template(args.template.as_ref(), session.model().file().gguf().metadata())?;
    let mut conversation = Conversation::new(args.system.iter().map(Message::system));
    let room = (session.context(), args.predict);
    let (mut answered, mut refused) = (false, Ok(()));
    for message in turns(args.prompt.as_ref()) {
        conversation.push(Message::user(message?));
        let tokens = match prompt_of(&mut conversation, &template, tokenizer, room) {
            Ok(tokens) => tokens,
            Err(error) if args.prompt.is_some() => return Err(error),
            Err(error) => {
                program::note(format_args!("no answer: {error}"));
                conversation.pop();
                refused = Err(error);
                continue;
            }
        };
        if !answered {
            program::note_begin(tokenizer, &tokens);
        }
        let answer = show(Generation::advance_to(session, tokenizer, &tokens, options)?)?;
        conversation.push(Message::assistant(answer));
        answered = true;
    }
    if answered { Ok(()) } else { refused }
}

/// Returns the options for loading, with the context that was given or fits.
fn load_options(args: &Args, file: &ModelFile, backend: &dyn Backend) -> Result<LoadOptions> {
    let session = SessionOptions::default().with_cache(args.cache).with_precision(args.precision);
    let options = LoadOptions::default().with_offload(args.offload).with_session(session.clone());
    let context = match args.context {
        Some(context) => context,
        None => file.fitting_context(backend, &options)?,
    };
    let own = file.hparams().context;
    if args.context.is_none() && context < own {
        program::note(format_args!(
            "the context has {context} of the model's {own} positions: more would take over half of the memory that \
             is known to be free; --context N sets their number"
        ));
    }
    Ok(options.with_session(session.with_context(context)))
}

fn run(args: &Args) -> Result<()> {
    let backend = program::open(&args.backend, &OpenOptions::default())?;
    let file = ModelFile::open(&args.model)?;
    program::note_left_out(&file);
    program::note_rounding(&file, args.precision);
    let options = load_options(args, &file, backend.as_ref())?;
    if args.estimate {
        let context = options.session.context.unwrap_or_default();
        let estimate = file.estimate(backend.as_ref(), &options)?;
        return program::print(format!("context of {context} positions\n{estimate}"));
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
    let mut session = model.session(&options.session)?;
    bar.finish_and_clear();
    program::note_division(&model);
    if session.is_beyond_training() {
        program::note(format!("the model was trained on {} positions", model.hparams().context));
    }
    let options = generate_options(args);
    let Some(prompt) = args.prompt.as_ref().filter(|_| !args.chat) else {
        chat(args, &mut session, &tokenizer, &options)?;
        program::note_fallbacks(&model);
        return Ok(());
    };
    let tokens = tokenizer.encode(prompt, &EncodeOptions::default());
    program::note_begin(&tokenizer, &tokens);
    if tokens.is_empty() {
        return Err(Error::argument("--prompt", format!("{prompt:?}"), "a text to continue"));
    }
    check_context("--prompt", &tokens, session.context())?;
    show(Generation::start(&mut session, &tokenizer, &tokens, &options)?)?;
    program::note_fallbacks(&model);
    Ok(())
}

fn generate_options(args: &Args) -> GenerateOptions {
    let sampler = SamplerOptions::default()
        .with_temperature(args.temp)
        .with_top_k(args.top_k)
        .with_top_p(args.top_p)
        .with_min_p(args.min_p)
        .with_seed(args.seed);
    GenerateOptions::default().with_predict(args.predict).with_sampler(sampler).with_stop(args.stop.clone())
}

/// Says which options need less memory, if an error is about memory.
fn advise(error: &Error) {
    if matches!(error, Error::DoesNotFit { .. } | Error::OutOfMemory { .. }) {
        program::note("less memory is needed with a smaller --context, with --cache q8_0 or --offload auto");
    }
}

fn main() -> ExitCode {
    program::run(|| run(&Args::parse()).inspect_err(advise))
}
