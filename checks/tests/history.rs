//! Sequences that go back, continue another text, or begin as others do: the results are those of a session that
//! computes everything, and no more is computed than from the last checkpoint on.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::ggml::metrics::distance;
use diptych::session::Item;
use diptych::synthesize::ARCHITECTURES;
use diptych::{DType, Error, Model, Precision, Session, SessionOptions};
use std::ops::ControlFlow;

/// Positions between checkpoints.
const EVERY: usize = 8;

const CONTEXT: usize = 160;

fn options(sequences: usize) -> SessionOptions {
    SessionOptions::default()
        .with_context(CONTEXT)
        .with_sequences(sequences)
        .with_batch(32)
        .with_checkpoint_every(EVERY)
        .with_precision(Precision::Exact)
}

/// A tiny model; one with recurrent layers has an attention layer too, if its architecture has them.
fn tiny_model(architecture: &str, backend: &std::sync::Arc<dyn diptych::ggml::backend::Backend>) -> Model {
    let mut shape = tiny(architecture, DType::F16);
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    model(&shape, backend)
}

fn text(seed: usize, n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i * 7 + i * 37 + 61 * seed + 5) % 203) as u32).collect()
}

fn close(got: &[f32], wanted: &[f32], bound: f64, what: &str) {
    let nmse = distance(got, wanted).nmse;
    assert!(got.len() == wanted.len() && nmse <= bound, "{what}: {nmse:.1e}");
}

/// Appends tokens to a sequence; returns the logits after the last one.
fn append(session: &mut Session, sequence: usize, tokens: &[u32]) -> Vec<f32> {
    session.batch(&[Item { sequence, tokens }]).expect("tokens").remove(0)
}

/// Every architecture goes back to any position.
#[test]
fn a_sequence_goes_back_to_any_position() {
    let backend = backend("cpu").expect("the CPU");
    for architecture in ARCHITECTURES {
        let model = tiny_model(architecture, &backend);
        if !model.hparams().causal {
            continue;
        }
        let [mut session, mut fresh] = [(); 2].map(|()| model.session(&options(1)).expect("a session"));
        let mut tokens = text(0, 45);
        session.prefill(&tokens).expect("a prompt");
        for position in [44, 45, 41, 33, 32, 23, 9, 7, 1, 0] {
            session.truncate(0, position.min(tokens.len())).expect("an earlier position");
            tokens.truncate(position);
            assert_eq!(session.tokens(0).expect("a sequence"), tokens, "{architecture}");
            tokens.extend(text(position + 1, 3));
            let got = session.prefill(&tokens[tokens.len() - 3..]).expect("other tokens");
            fresh.reset();
            close(&got, &fresh.prefill(&tokens).expect("a prompt"), 1e-12, architecture);
        }
    }
}

/// The same on all drivers, with the rows of several tokens, and with state that is moved while tokens are owed.
#[test]
fn what_is_owed_is_computed_first() {
    for (name, backend) in backends() {
        for &architecture in &["qwen35", "granitehybrid"][usize::from(name.contains("vulkan"))..] {
            let model = tiny_model(architecture, &backend);
            let mut session = model.session(&options(1)).expect("a session");
            let mut tokens = text(0, 29);
            let mut fresh = model.session(&options(1)).expect("a session");
            tokens.extend([3, 4]);
            let wanted = fresh.logits(&tokens[..21]).expect("rows");
            session.prefill(&tokens).expect("a prompt");
            session.truncate(0, 19).expect("an earlier position");
            let saved = session.save().expect("a sequence");
            let vocabulary = model.hparams().vocabulary;
            let got = session.logits(&tokens[19..21]).expect("rows");
            close(&got, &wanted[19 * vocabulary..], 1e-10, name);
            session.reset();
            session.restore(&saved).expect("a sequence");
            assert_eq!(session.tokens(0).expect("a sequence"), &tokens[..19], "{name}");
            assert_eq!(session.catch_up(0).expect("tokens"), 3, "{name}: 16 of 19 have a checkpoint");
            let got = session.logits(&tokens[19..21]).expect("rows");
            close(&got, &wanted[19 * vocabulary..], 1e-10, name);
        }
    }
}

/// Returns the logits after `tokens` and how many of them were computed.
fn turn(session: &mut Session, tokens: &[u32]) -> (Vec<f32>, usize) {
    let kept = session.keep_common(0, tokens).expect("a sequence");
    let mut computed = 0;
    let mut watch = |_: usize, all: usize| {
        computed = all;
        ControlFlow::Continue(())
    };
    let logits = session.prefill_with(&tokens[kept..], &mut watch).expect("a prompt").expect("not stopped");
    (logits, computed)
}

/// A chat of 40 turns, edited somewhere in each: what is computed is the new part and at most a checkpoint's distance.
#[test]
fn an_edited_chat_computes_little() {
    let backend = backend("cpu").expect("the CPU");
    for architecture in ["qwen35", "qwen3next", "granitehybrid", "nemotron_h", "lfm2", "qwen3"] {
        let model = tiny_model(architecture, &backend);
        let [mut session, mut fresh] = [(); 2].map(|()| model.session(&options(1)).expect("a session"));
        let mut tokens = text(0, 100);
        session.continue_with(&tokens).expect("a prompt");
        for seed in 1..=40 {
            let edited = seed * 53 % tokens.len();
            tokens.truncate(edited);
            tokens.extend(text(seed, 20.min(CONTEXT - edited)));
            if seed % 3 == 0 {
                tokens.resize(CONTEXT - 20, 1);
            }
            // The texts may happen to go on in the same way.
            let held = session.tokens(0).expect("a sequence");
            let common = held.iter().zip(&tokens).take_while(|(a, b)| a == b).count().min(tokens.len() - 1);
            let (got, computed) = turn(&mut session, &tokens);
            let least = tokens.len() - common;
            let distance = if architecture != "qwen3" { EVERY } else { 1 };
            let range = least..least + distance;
            assert!(range.contains(&computed), "{architecture}, turn {seed}: {computed} of {range:?}");
            fresh.reset();
            close(&got, &fresh.prefill(&tokens).expect("a prompt"), 1e-12, architecture);
        }
    }
}

/// With little memory, checkpoints thin out and results stay the same; with none, everything is computed again.
#[test]
fn memory_of_checkpoints_is_bounded() {
    let backend = backend("cpu").expect("the CPU");
    let model = tiny_model("qwen35", &backend);
    let mut fresh = model.session(&options(1)).expect("a session");
    let tokens = text(0, 150);
    let wanted = fresh.prefill(&tokens[..71]).expect("a prompt");
    // A saved position has its own rows and the recurrent state; the header is small.
    let [two, one] = [2, 1].map(|n| {
        fresh.truncate(0, n).expect("an earlier position");
        fresh.catch_up(0).expect("tokens");
        fresh.save().expect("a sequence").len() as u64
    });
    let owed = [1 << 30, 9 * (2 * one - two), 0].map(|memory| {
        let mut session = model.session(&options(1).with_checkpoint_memory(memory)).expect("a session");
        session.prefill(&tokens).expect("a prompt");
        session.truncate(0, 70).expect("an earlier position");
        let owed = session.catch_up(0).expect("tokens");
        close(&session.decode(tokens[70]).expect("a token"), &wanted, 1e-12, "qwen35");
        owed
    });
    assert_eq!((owed[0], owed[2]), (6, 70));
    assert!((6..70).contains(&owed[1]), "{owed:?}");
}

/// A prefix of several sequences is computed once, on all drivers; what the sequences append is their own.
#[test]
fn sequences_share_a_prefix() {
    for (name, backend) in backends() {
        let all = ["qwen3", "qwen35", "lfm2"];
        for &architecture in &all[if name == "cpu" { 0..3 } else { 1..2 }] {
            let model = tiny_model(architecture, &backend);
            let mut session = model.session(&options(4)).expect("a session");
            let mut fresh = model.session(&options(1)).expect("a session");
            let mut after = |tokens: &[u32]| {
                fresh.reset();
                fresh.prefill(tokens).expect("a prompt")
            };
            let prefix = text(0, 40);
            append(&mut session, 1, &prefix);
            session.share_prefix(1, 0, 40).expect("two sequences");
            session.share_prefix(1, 3, 30).expect("two sequences");
            let mut texts = [&prefix[..], &prefix, &[], &prefix[..30]].map(<[u32]>::to_vec);
            // In one batch, long enough for masks that the device makes.
            let new: Vec<Vec<u32>> = [0, 1, 3].map(|i| text(i + 1, 20)).to_vec();
            let items: Vec<Item<'_>> =
                [0, 1, 3].iter().zip(&new).map(|(&sequence, tokens)| Item { sequence, tokens }).collect();
            let got = session.batch(&items).expect("a batch");
            for ((i, new), got) in [0, 1, 3].into_iter().zip(&new).zip(&got) {
                texts[i].extend(new);
                close(got, &after(&texts[i]), 1e-10, name);
            }
            // One goes away, another goes back: the others stay as they are.
            session.reset_sequence(1).expect("a sequence");
            session.truncate(0, 35).expect("an earlier position");
            texts[0].truncate(35);
            append(&mut session, 2, &text(9, 50));
            for i in [3, 0] {
                texts[i].push(8);
                close(&append(&mut session, i, &[8]), &after(&texts[i]), 1e-10, name);
            }
            // A prompt of another sequence takes what it has in common.
            let other = [&texts[0][..34], &[1, 2, 3]].concat();
            let kept = session.keep_common(2, &other).expect("a sequence");
            assert_eq!(kept, if architecture == "qwen3" { 34 } else { 32 }, "{name}");
            close(&append(&mut session, 2, &other[kept..]), &after(&other), 1e-10, name);
        }
    }
}

#[test]
fn wrong_sequences_and_positions_are_refused() {
    let backend = backend("cpu").expect("the CPU");
    let model = tiny_model("qwen35", &backend);
    let mut session = model.session(&options(2)).expect("a session");
    append(&mut session, 0, &text(0, 20));
    let refused = |result: diptych::Result<()>| matches!(result, Err(Error::InvalidArgument { .. }));
    assert!(refused(session.truncate(0, 21)) && refused(session.truncate(2, 0)));
    assert!(refused(session.share_prefix(0, 0, 5)) && refused(session.share_prefix(0, 2, 5)));
    assert!(refused(session.share_prefix(0, 1, 21)) && refused(session.share_prefix(2, 1, 0)));
    assert!(refused(session.catch_up(2).map(|_| ())) && refused(session.keep_checkpoint(2)));
    assert_eq!([0, 1].map(|i| session.position_of(i).expect("a sequence")), [20, 0]);
    assert!(model.session(&options(1).with_checkpoint_every(0)).is_err());
}
