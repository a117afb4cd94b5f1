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
    DType, Error, Model, Precision, Result, SamplerOptions, Session, SessionOptions, Tokenizer, program,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    /// Backend: reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan+hip,
    /// vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151],
    /// hip-virtual[:gfx906|:gfx900|:gfx1100|:gfx1151], or auto: the fastest of those that work here, by a
    /// measurement of two seconds whose result is cached.
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
    /// fills it begins anew with its last turns, and an answer that fills it goes on after these.
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
    /// GGUF file of a smaller model with the same vocabulary, on the same backend: it drafts tokens, and the model verifies
    /// several in one step. The text is the same as without it.
    #[arg(long, value_name = "FILE")]
    draft_model: Option<PathBuf>,
    /// Draft at most N tokens in a step: with --draft-model (default 8), without it with the layer of the file that predicts
    /// further tokens.
    #[arg(long, value_name = "N")]
    draft: Option<usize>,
    /// Stop at this text; may be given more than once.
    #[arg(long)]
    stop: Vec<String>,
    /// exact: no activation below F32; fast: F16 or 8-bit activations allowed.
    #[arg(long, default_value = "fast")]
    precision: Precision,
    /// Deadline of each phase of the driver in seconds [default: 30 to 600, by phase].
    #[arg(long, value_name = "S", value_parser = program::deadline)]
    timeout_s: Option<Duration>,
    /// Show the backend's warnings, and all of the reason of the backend auto.
    #[arg(short, long)]
    verbose: bool,
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

/// Computes the prompt of a generation, with a progress bar.
fn compute_prompt(generation: &mut Generation<'_>) -> Result<()> {
    let bar = ProgressBar::new(0).with_message("prompt");
    generation.prompt(&mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Gets the tokens of a text that a full context cuts off, and returns a prompt after which it goes on, or `None`.
type Shorten<'a> = &'a mut dyn FnMut(&[u32]) -> Result<Option<Vec<u32>>>;

/// Prints the text of a generation as it is produced, and returns it. If a full context cuts it off, `shorten` gets its
/// tokens and returns a prompt after which it goes on, or `None`. What a full context has changed is said at the end.
fn show(mut generation: Generation<'_>, shorten: Shorten<'_>) -> Result<String> {
    compute_prompt(&mut generation)?;
    let (mut text, mut tokens) = (String::new(), Vec::new());
    while let Some(piece) = generation.next() {
        let piece = piece?;
        program::print_text(&piece.text)?;
        text += &piece.text;
        tokens.extend(piece.token);
        if piece.token.is_some()
            && generation.summary().finish == Some(Finish::ContextFull)
            && let Some(prompt) = shorten(&tokens)?
        {
            generation.go_on(&prompt)?;
        }
    }
    program::print("\n")?;
    program::note(generation.summary());
    Ok(text)
}

/// Says that a full context has cut off a text, and how much is missing at most.
fn note_cut_off(tokens: usize, predict: usize, context: usize) {
    program::note(format_args!(
        "the text is cut off after {tokens} of at most {predict} tokens, since the context of {context} positions is \
         full: --context N has room for the rest"
    ));
}

/// Checks that a prompt fits into the context.
fn check_context(what: &str, tokens: &[u32], context: usize) -> Result<()> {
    if tokens.len() <= context {
        return Ok(());
    }
    let expected = format!("at most {context}, the positions of the context; --context N sets their number");
    Err(Error::argument(what, format!("{} tokens", tokens.len()), expected))
}

/// A chat: the conversation and how it becomes tokens.
struct Chat<'a> {
    conversation: Conversation,
    template: ChatTemplate,
    tokenizer: &'a Tokenizer,
    /// Positions of the context.
    context: usize,
    /// Maximum number of tokens of an answer.
    predict: usize,
}

impl Chat<'_> {
    /// Returns the tokens of a conversation up to the beginning of its next answer.
    fn encode(&self, conversation: &Conversation) -> Result<Vec<u32>> {
        let input = ChatInput::new(conversation.messages().to_vec()).generation_prompt(true);
        let text = self.template.render(&input.guarded(&|text| self.tokenizer.guard(text)));
        let text =
            text.map_err(|e| Error::argument("chat template", e, "one that renders this conversation"))?;
        Ok(self.tokenizer.encode_chat(&text))
    }

    /// Returns the conversation's last turns, as many as fill half of the context together with `more` tokens, but at
    /// least one, and their tokens.
    fn last_turns(&self, more: usize) -> Result<(Conversation, Vec<u32>)> {
        let mut shorter = self.conversation.clone();
        let mut tokens = self.encode(&shorter)?;
        while tokens.len() + more > self.context / 2 && shorter.drop_turn() {
            tokens = self.encode(&shorter)?;
        }
        Ok((shorter, tokens))
    }

    /// Returns the tokens of the conversation. If the context has no room for them and an answer, the conversation
    /// begins anew with its last turns. After an error it is unchanged.
    fn prompt(&mut self) -> Result<Vec<u32>> {
        let tokens = self.encode(&self.conversation)?;
        let context = self.context;
        if tokens.len() + self.predict.min(context / 4) <= context {
            return Ok(tokens);
        }
        let before = self.conversation.turns();
        let (shorter, tokens) = self.last_turns(0)?;
        check_context("message", &tokens, context)?;
        let turns = shorter.turns();
        if turns < before {
            program::note(format_args!(
                "the context of {context} positions is full: the conversation begins anew with the last {turns} of its \
                 {before} turns; --context N has room for more"
            ));
            self.conversation = shorter;
        }
        Ok(tokens)
    }

    /// Prints the answer to the last message and adds it to the conversation. If it fills the context, its rest follows
    /// after the conversation's last turns; without further turns to leave out it is cut off.
    fn answer(
        &mut self,
        session: &mut Session,
        draft: Option<&mut Session>,
        tokens: &[u32],
        options: &GenerateOptions,
    ) -> Result<()> {
        let (before, context) = (self.conversation.turns(), self.context);
        let (mut cut_off, mut shorter) = (None, None);
        let mut shorten = |answer: &[u32]| {
            let (turns, mut prompt) = self.last_turns(answer.len())?;
            prompt.extend(answer);
            let known = shorter.as_ref().map_or(before, Conversation::turns);
            if turns.turns() == known || prompt.len() >= context {
                cut_off = Some(answer.len());
                return Ok(None);
            }
            shorter = Some(turns);
            Ok(Some(prompt))
        };
        let generation = Generation::continue_with(session, self.tokenizer, tokens, options)?;
        let text = show(with_drafts(generation, draft)?, &mut shorten)?;
        if let Some(shorter) = shorter {
            let turns = shorter.turns();
            program::note(format_args!(
                "the context of {context} positions was full: the rest of this answer was computed after the last \
                 {turns} of {before} turns; --context N has room for more"
            ));
            self.conversation = shorter;
        }
        if let Some(tokens) = cut_off {
            note_cut_off(tokens, self.predict, context);
        }
        self.conversation.push(Message::assistant(text));
        Ok(())
    }
}

/// Answers each turn. The conversation is rendered from its beginning each time; the session computes only
/// the new tokens. A message that is too long for the context is left out; it is an error if none has an answer.
fn chat(
    args: &Args,
    session: &mut Session,
    mut draft: Option<&mut Session>,
    tokenizer: &Tokenizer,
    options: &GenerateOptions,
) -> Result<()> {
    let template = template(args.template.as_ref(), session.model().file().gguf().metadata())?;
    let conversation = Conversation::new(args.system.iter().map(Message::system));
    let (context, predict) = (session.context(), args.predict);
    let mut chat = Chat { conversation, template, tokenizer, context, predict };
    let (mut answered, mut refused) = (false, Ok(()));
    for message in turns(args.prompt.as_ref()) {
        chat.conversation.push(Message::user(message?));
        let tokens = match chat.prompt() {
            Ok(tokens) => tokens,
            Err(error) if args.prompt.is_some() => return Err(error),
            Err(error) => {
                program::note(format_args!("no answer: {error}"));
                chat.conversation.pop();
                refused = Err(error);
                continue;
            }
        };
        if !answered {
            program::note_begin(tokenizer, &tokens);
        }
        chat.answer(session, draft.as_deref_mut(), &tokens, options)?;
        answered = true;
    }
    if answered { Ok(()) } else { refused }
}

/// Returns the options for loading, with the context that was given or fits.
fn load_options(args: &Args, file: &ModelFile, backend: &dyn Backend) -> Result<LoadOptions> {
    let predicts = args.draft.is_some_and(|most| most > 0) && args.draft_model.is_none();
    if predicts && !file.has_predictor() {
        let expected = "a file with a layer that predicts further tokens, or --draft-model FILE";
        return Err(Error::argument("--draft", "no predictor in the file", expected));
    }
    let session = SessionOptions::default().with_cache(args.cache).with_precision(args.precision);
    let session = session.with_predictor(predicts);
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
    program::set_verbose(args.verbose);
    let backend = program::open_for(&args.model, &args.backend, &program::open_options(args.timeout_s))?;
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
    program::note_phases(&model);
    if session.is_beyond_training() {
        program::note(format!("the model was trained on {} positions", model.hparams().context));
    }
    let mut draft = draft_session(args, &session)?;
    let options = generate_options(args);
    let Some(prompt) = args.prompt.as_ref().filter(|_| !args.chat) else {
        chat(args, &mut session, draft.as_mut(), &tokenizer, &options)?;
        program::note_fallbacks(&model);
        return Ok(());
    };
    let tokens = tokenizer.encode(prompt, &EncodeOptions::default());
    program::note_begin(&tokenizer, &tokens);
    if tokens.is_empty() {
        return Err(Error::argument("--prompt", format!("{prompt:?}"), "a text to continue"));
    }
    check_context("--prompt", &tokens, session.context())?;
    let (mut cut_off, context) = (None, session.context());
    let mut shorten = |text: &[u32]| {
        cut_off = Some(text.len());
        Ok(None)
    };
    let generation = Generation::start(&mut session, &tokenizer, &tokens, &options)?;
    show(with_drafts(generation, draft.as_mut())?, &mut shorten)?;
    if let Some(tokens) = cut_off {
        note_cut_off(tokens, args.predict, context);
    }
    program::note_fallbacks(&model);
    Ok(())
}

/// Loads the model that drafts, if there is one, for texts as long as those of `session`.
fn draft_session(args: &Args, session: &Session) -> Result<Option<Session>> {
    let Some(path) = &args.draft_model else { return Ok(None) };
    let model = Model::load(path, session.model().backend().clone())?;
    let options = SessionOptions::default().with_context(session.context()).with_precision(args.precision);
    model.session(&options).map(Some)
}

/// Lets a model draft for a generation, if there is one.
fn with_drafts<'a>(generation: Generation<'a>, draft: Option<&'a mut Session>) -> Result<Generation<'a>> {
    match draft {
        Some(draft) => generation.draft_with(draft),
        None => Ok(generation),
    }
}

fn generate_options(args: &Args) -> GenerateOptions {
    let sampler = SamplerOptions::default()
        .with_temperature(args.temp)
        .with_top_k(args.top_k)
        .with_top_p(args.top_p)
        .with_min_p(args.min_p)
        .with_seed(args.seed);
    let options = GenerateOptions::default();
    let most = args.draft.unwrap_or(options.draft);
    options.with_predict(args.predict).with_sampler(sampler).with_stop(args.stop.clone()).with_draft(most)
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
