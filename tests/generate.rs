//! Generation: gives the tokens of manual decoding, ends as requested, and is cancelled within one token.

use crate::common;

use common::{backends, model, tiny};
use diptych::generate::{Finish, GenerateOptions, Generation, Generations, Piece};
use diptych::ggml::gguf::{Array, Metadata};
use diptych::{DType, Error, Model, SamplerOptions, SessionOptions, Tokenizer, greedy};

/// Returns a vocabulary of 203 words "t0 " .. "t202 " with an end token.
fn tokenizer(end: u32) -> Tokenizer {
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", "gpt2");
    m.insert("tokenizer.ggml.pre", "gpt-2");
    // U+0120 represents a space.
    let tokens: Vec<String> = (0..203).map(|i| format!("t{i}\u{120}")).collect();
    m.insert("tokenizer.ggml.tokens", Array::texts(&tokens));
    m.insert("tokenizer.ggml.token_type", Array::from(&[1i32; 203][..]));
    m.insert("tokenizer.ggml.merges", Array::texts(&[] as &[String]));
    m.insert("tokenizer.ggml.eos_token_id", end);
    Tokenizer::from_metadata(&m).expect("a tokenizer")
}

const PROMPT: [u32; 5] = [3, 14, 15, 92, 65];

fn options() -> SessionOptions {
    SessionOptions::default().with_context(64)
}

/// Returns greedy tokens after the prompt, one call each.
fn by_hand(model: &Model, count: usize) -> Vec<u32> {
    let mut session = model.session(&options()).expect("a session");
    let mut logits = session.prefill(&PROMPT).expect("a prompt");
    let mut tokens = Vec::new();
    for _ in 0..count {
        let token = greedy(&logits).unwrap();
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
        // A token that greedy decoding does not produce.
        let never = (0..203).find(|t| !wanted.contains(t)).expect("203 tokens are more than 12");
        let tokenizer = tokenizer(never);
        let mut session = model.session(&options()).expect("a session");
        let limited = GenerateOptions::default().with_predict(12);
        let mut generation =
            Generation::start(&mut session, &tokenizer, &PROMPT, &limited).expect("a prompt that fits");
        let (tokens, shown) = collect(&mut generation);
        assert_eq!((tokens.as_slice(), shown), (wanted.as_slice(), text(&wanted)), "{name}");
        let summary = generation.summary().clone();
        assert_eq!((summary.finish, summary.tokens, summary.prompt_tokens), (Some(Finish::Limit), 12, 5));
        assert!(generation.next().is_none());
        // The session ends at the last token, which is not yet computed.
        assert_eq!(session.position(), 5 + 11);
    }
}

/// A text that a full context has cut off goes on after a shorter prompt: with the tokens that follow it, in unbroken
/// text, up to the same limit.
#[test]
fn a_text_goes_on_after_a_shorter_prompt() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let tokenizer = tokenizer(202);
    let short = options().with_context(12);
    let mut session = model.session(&short).expect("a session");
    let limited = GenerateOptions::default().with_predict(14);
    let mut generation = Generation::start(&mut session, &tokenizer, &PROMPT, &limited).expect("a prompt");
    assert!(generation.go_on(&PROMPT[..1]).is_err(), "nothing is cut off");
    let (mut tokens, mut shown, mut cuts) = (Vec::new(), String::new(), 0);
    while let Some(piece) = generation.next() {
        let piece = piece.expect("no error");
        tokens.extend(piece.token);
        shown += &piece.text;
        if generation.summary().finish == Some(Finish::ContextFull) {
            let last = tokens.len() - 3;
            cuts += 1;
            assert!(generation.go_on(&[1; 12]).is_err(), "no room");
            generation.go_on(&[&PROMPT[..2], &tokens[last..]].concat()).expect("a shorter prompt");
        }
    }
    assert_eq!((tokens.len(), shown), (14, text(&tokens)));
    // The first 8 tokens fill the context, so do 8 more after a prompt of 5.
    assert_eq!((cuts, generation.summary().finish.clone()), (1, Some(Finish::Limit)));
    assert!(generation.go_on(&PROMPT[..1]).is_err(), "the text has ended");
    let mut fresh = model.session(&short).expect("a session");
    let after = [&PROMPT[..2], &tokens[5..8]].concat();
    let six = GenerateOptions::default().with_predict(6);
    let (rest, _) = collect(&mut Generation::start(&mut fresh, &tokenizer, &after, &six).expect("a prompt"));
    assert_eq!(tokens[8..], rest);
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
    let eight = GenerateOptions::default().with_predict(8);
    // The end token.
    let end = first(wanted[4]);
    let (tokens, shown, finish) = run(&tokenizer(wanted[4]), &eight, None);
    assert_eq!(
        (tokens.as_slice(), shown, finish),
        (&wanted[..end], text(&wanted[..end]), Finish::End(wanted[4]))
    );
    let on = eight.clone().with_ignore_end(true);
    assert_eq!(run(&tokenizer(wanted[4]), &on, None).0, wanted);
    // A stop text, which is not shown.
    let stop = format!("t{} ", wanted[3]);
    let stopping = eight.clone().with_stop(vec![stop.clone()]);
    let (_, shown, finish) = run(&tokenizer(never), &stopping, None);
    let whole = text(&wanted);
    assert_eq!((shown.as_str(), finish), (&whole[..whole.find(&stop).expect("there")], Finish::Stop(stop)));
    // Cancellation, by another thread or by the loop itself.
    let (tokens, _, finish) = run(&tokenizer(never), &eight, Some(3));
    assert_eq!((tokens.as_slice(), finish), (&wanted[..3], Finish::Cancelled));
    // The end of the context.
    let (tokens, _, finish) = run(&tokenizer(never), &GenerateOptions::default().with_ignore_end(true), None);
    assert_eq!((tokens.len(), finish), (64 - 5 + 1, Finish::ContextFull));
}

#[test]
fn seeds_repeat_and_misuse_is_an_error() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let tokenizer = tokenizer(0);
    let run = |seed: u64| {
        let sampler = SamplerOptions::default().with_temperature(1.0).with_seed(seed);
        let options = GenerateOptions::default().with_predict(20).with_sampler(sampler).with_ignore_end(true);
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
    let empty = defaults.with_stop(vec![String::new()]);
    assert!(Generation::start(&mut session, &tokenizer, &PROMPT, &empty).is_err());
}

/// Result of a parallel generation: tokens, text and the reason for its end.
struct Answer {
    tokens: Vec<u32>,
    text: String,
    finish: Option<Finish>,
}

/// Runs generations until none is left. `starts`: the step, the sequence, the prompt and the options of each.
fn side_by_side(
    model: &Model,
    tokenizer: &Tokenizer,
    starts: &[(usize, usize, &[u32], GenerateOptions)],
) -> Vec<Answer> {
    let options = options().with_sequences(starts.len());
    let mut session = model.session(&options).expect("a session");
    let mut generations = Generations::new(&mut session, tokenizer);
    let mut answers: Vec<Answer> =
        starts.iter().map(|_| Answer { tokens: Vec::new(), text: String::new(), finish: None }).collect();
    for step in 0.. {
        for (_, sequence, prompt, options) in starts.iter().filter(|start| start.0 == step) {
            generations.start(*sequence, prompt, options).expect("a prompt that fits");
            assert!(generations.start(*sequence, prompt, options).is_err(), "it runs");
        }
        if generations.running() == 0 {
            break;
        }
        for (sequence, piece) in generations.step().expect("no error") {
            let piece = piece.expect("a token");
            answers[sequence].tokens.extend(piece.token);
            answers[sequence].text += &piece.text;
        }
    }
    for (sequence, answer) in answers.iter_mut().enumerate() {
        answer.finish = generations.summary(sequence).expect("it ran").finish.clone();
    }
    answers
}

/// Each generation gives the same result as by itself, although they start and end at different times.
#[test]
fn generations_side_by_side() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let prompts: [&[u32]; 3] = [&PROMPT, &[7, 1], &[100, 101, 102, 9, 9, 30, 50]];
        let sampled = SamplerOptions::default().with_temperature(1.0).with_seed(5);
        let with = |predict, sampler| {
            GenerateOptions::default().with_predict(predict).with_sampler(sampler).with_ignore_end(true)
        };
        let options = [with(9, SamplerOptions::default()), with(4, sampled.clone()), with(6, sampled)];
        let tokenizer = tokenizer(0);
        let starts = [0, 0, 2].into_iter().zip(0..).zip(prompts).zip(&options);
        let starts: Vec<_> = starts.map(|(((at, i), p), o)| (at, i, p, o.clone())).collect();
        let answers = side_by_side(&model, &tokenizer, &starts);
        let mut session = model.session(&self::options()).expect("a session");
        for ((prompt, options), answer) in prompts.iter().zip(&options).zip(&answers) {
            session.reset();
            let mut alone =
                Generation::start(&mut session, &tokenizer, prompt, options).expect("a prompt that fits");
            let (tokens, text) = collect(&mut alone);
            assert_eq!((&answer.tokens, &answer.text), (&tokens, &text), "{name}");
            assert_eq!(answer.finish, Some(Finish::Limit), "{name}");
        }
    }
}

#[test]
fn one_of_several_ends_and_the_others_go_on() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let wanted = by_hand(&model, 8);
    let never = (0..203).find(|t| !wanted.contains(t)).expect("more tokens than 8");
    let tokenizer = tokenizer(never);
    let stop = GenerateOptions::default().with_stop(vec![format!("t{} ", wanted[3])]);
    let eight = GenerateOptions::default().with_predict(8);
    let starts = [(0, 0, &PROMPT[..], eight.clone()), (1, 1, &PROMPT[..], stop)];
    let answers = side_by_side(&model, &tokenizer, &starts);
    assert_eq!((&answers[0].tokens, &answers[0].text), (&wanted, &text(&wanted)));
    let first = wanted.iter().position(|&t| t == wanted[3]).expect("there");
    assert_eq!(answers[1].text, text(&wanted[..first]));
    assert!(matches!(answers[1].finish, Some(Finish::Stop(_))));
    // Cancelled externally, rejected, and restarted.
    let mut session = model.session(&options().with_sequences(2)).expect("a session of two sequences");
    let mut generations = Generations::new(&mut session, &tokenizer);
    assert!(generations.start(2, &PROMPT, &eight).is_err() && generations.start(0, &[], &eight).is_err());
    assert!(
        generations.start(0, &[1; 65], &eight).is_err() && generations.step().expect("nothing").is_empty()
    );
    let cancel = generations.start(0, &PROMPT, &eight).expect("a prompt");
    generations.start(1, &PROMPT, &eight).expect("a prompt");
    assert_eq!((generations.step().expect("two tokens").len(), generations.free()), (2, None));
    assert!(generations.reset(0).is_err(), "it runs");
    cancel.cancel();
    assert_eq!(generations.step().expect("one token").len(), 1);
    assert_eq!((generations.free(), generations.running()), (Some(0), 1));
    assert_eq!(generations.summary(0).expect("it ran").finish, Some(Finish::Cancelled));
    generations.reset(0).expect("it has ended");
    generations.start(0, &PROMPT, &eight).expect("a prompt");
    let mut again = Vec::new();
    while generations.running() > 0 {
        let pieces = generations.step().expect("no error").into_iter();
        again.extend(pieces.filter(|p| p.0 == 0).filter_map(|(_, piece)| piece.expect("a token").token));
    }
    assert_eq!(again, wanted);
}

#[test]
fn a_failing_device_ends_all() {
    let backend = common::backend("null=fail@compute").expect("always there");
    let model = model(&tiny("llama", DType::F16), &backend);
    let tokenizer = tokenizer(9);
    let mut session = model.session(&options().with_sequences(2)).expect("a session of two sequences");
    let mut generations = Generations::new(&mut session, &tokenizer);
    for sequence in [0, 1] {
        generations.start(sequence, &PROMPT, &GenerateOptions::default()).expect("a prompt");
    }
    // The programs of the prompts and of the first tokens run once, then fail.
    generations.step().expect("prompts");
    generations.step().expect("first tokens");
    assert!(matches!(generations.step(), Err(Error::Injected { .. })));
    assert_eq!(generations.summary(1).expect("it ran").finish, Some(Finish::Failed));
    assert_eq!((generations.running(), generations.session().position_of(1).expect("two")), (0, 6));
}
