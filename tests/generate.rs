//! Generation: the tokens of decoding by hand, ended by what was asked for, and cancelled within a token.

mod common;

use common::{backends, model, tiny};
use diptych::core::gguf::{Array, Metadata};
use diptych::generate::{Finish, GenerateOptions, Generation, Piece};
use diptych::{DType, Error, Model, SamplerOptions, SessionOptions, Tokenizer, greedy};

/// A vocabulary of 203 words "t0 " .. "t202 " with a token that ends the text.
fn tokenizer(end: u32) -> Tokenizer {
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", "gpt2");
    m.insert("tokenizer.ggml.pre", "gpt-2");
    // U+0120 stands for a space.
    let tokens: Vec<String> = (0..203).map(|i| format!("t{i}\u{120}")).collect();
    m.insert("tokenizer.ggml.tokens", Array::texts(&tokens));
    m.insert("tokenizer.ggml.token_type", Array::from(&[1i32; 203][..]));
    m.insert("tokenizer.ggml.merges", Array::texts(&[] as &[String]));
    m.insert("tokenizer.ggml.eos_token_id", end);
    Tokenizer::from_metadata(&m).expect("a tokenizer")
}

const PROMPT: [u32; 5] = [3, 14, 15, 92, 65];

fn options() -> SessionOptions {
    SessionOptions { context: Some(64), ..SessionOptions::default() }
}

/// Greedy tokens after the prompt, one call each.
fn by_hand(model: &Model, count: usize) -> Vec<u32> {
    let mut session = model.session(&options()).expect("a session");
    let mut logits = session.prefill(&PROMPT).expect("a prompt");
    let mut tokens = Vec::new();
    for _ in 0..count {
        let token = greedy(&logits);
        tokens.push(token);
        logits = session.decode(token).expect("a token");
    }
    tokens
}

fn collect(generation: &mut Generation<'_>) -> (Vec<u32>, String) {
    let pieces: Vec<Piece> = generation.by_ref().collect::<Result<_, Error>>().expect("no error");
    (pieces.iter().filter_map(|p| p.token).collect(), pieces.iter().map(|p| p.text.as_str()).collect())
}

fn text(tokens: &[u32]) -> String {
    tokens.iter().map(|t| format!("t{t} ")).collect()
}

#[test]
fn tokens_are_those_of_decoding_by_hand() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let wanted = by_hand(&model, 12);
        // A token that greedy decoding does not meet.
        let never = (0..203).find(|t| !wanted.contains(t)).expect("203 tokens are more than 12");
        let tokenizer = tokenizer(never);
        let mut session = model.session(&options()).expect("a session");
        let limited = GenerateOptions { predict: Some(12), ..GenerateOptions::default() };
        let mut generation =
            Generation::start(&mut session, &tokenizer, &PROMPT, &limited).expect("a prompt that fits");
        let (tokens, shown) = collect(&mut generation);
        assert_eq!((tokens.as_slice(), shown), (wanted.as_slice(), text(&wanted)), "{name}");
        let summary = generation.summary().clone();
        assert_eq!((summary.finish, summary.tokens, summary.prompt_tokens), (Some(Finish::Limit), 12, 5));
        assert!(generation.next().is_none());
        // The conversation goes on where it ended, but for the last token.
        assert_eq!(session.position(), 5 + 11);
    }
}

#[test]
fn a_generation_ends_as_asked() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let wanted = by_hand(&model, 8);
    let first = |token: u32| wanted.iter().position(|&t| t == token).expect("it is there");
    let run = |tokenizer: &Tokenizer, options: &GenerateOptions, cancel_after: Option<usize>| {
        let mut session = model.session(&self::options()).expect("a session");
        let mut generation = Generation::start(&mut session, tokenizer, &PROMPT, options).expect("a prompt");
        let (mut tokens, mut shown) = (Vec::new(), String::new());
        while let Some(piece) = generation.next() {
            let piece = piece.expect("no error");
            tokens.extend(piece.token);
            shown += &piece.text;
            if cancel_after == Some(tokens.len()) {
                generation.cancel_handle().cancel();
            }
        }
        (tokens, shown, generation.summary().finish.clone().expect("it ended"))
    };
    let never = (0..203).find(|t| !wanted.contains(t)).expect("more tokens than 8");
    let eight = GenerateOptions { predict: Some(8), ..GenerateOptions::default() };
    // The token that ends the text.
    let end = first(wanted[4]);
    let (tokens, shown, finish) = run(&tokenizer(wanted[4]), &eight, None);
    assert_eq!(
        (tokens.as_slice(), shown, finish),
        (&wanted[..end], text(&wanted[..end]), Finish::End(wanted[4]))
    );
    let on = GenerateOptions { ignore_end: true, ..eight.clone() };
    assert_eq!(run(&tokenizer(wanted[4]), &on, None).0, wanted);
    // A text, which is not shown.
    let stop = format!("t{} ", wanted[3]);
    let stopping = GenerateOptions { stop: vec![stop.clone()], ..eight.clone() };
    let (_, shown, finish) = run(&tokenizer(never), &stopping, None);
    let whole = text(&wanted);
    assert_eq!((shown.as_str(), finish), (&whole[..whole.find(&stop).expect("there")], Finish::Stop(stop)));
    // Another thread, or the loop itself.
    let (tokens, _, finish) = run(&tokenizer(never), &eight, Some(3));
    assert_eq!((tokens.as_slice(), finish), (&wanted[..3], Finish::Cancelled));
    // The context.
    let (tokens, _, finish) =
        run(&tokenizer(never), &GenerateOptions { ignore_end: true, ..Default::default() }, None);
    assert_eq!((tokens.len(), finish), (64 - 5 + 1, Finish::ContextFull));
}

#[test]
fn seeds_repeat_and_misuse_is_an_error() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let tokenizer = tokenizer(0);
    let run = |seed: u64| {
        let sampler = SamplerOptions { temperature: 1.0, seed, ..SamplerOptions::default() };
        let options =
            GenerateOptions { predict: Some(20), sampler, ignore_end: true, ..GenerateOptions::default() };
        let mut session = model.session(&self::options()).expect("a session");
        collect(&mut Generation::start(&mut session, &tokenizer, &PROMPT, &options).expect("a prompt")).0
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let mut session = model.session(&options()).expect("a session");
    let defaults = GenerateOptions::default();
    let too_long: Vec<u32> = vec![1; 65];
    assert!(Generation::start(&mut session, &tokenizer, &too_long, &defaults).is_err());
    assert!(Generation::start(&mut session, &tokenizer, &[], &defaults).is_err());
    let empty = GenerateOptions { stop: vec![String::new()], ..defaults };
    assert!(Generation::start(&mut session, &tokenizer, &PROMPT, &empty).is_err());
}
