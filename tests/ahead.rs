//! Speculative steps, which begin before the previous step has been read: results must be the same as without
//! them.

use crate::common;

use common::{backends, model, tiny};
use diptych::session::{Item, KV_STEP, Row, Session, Want};
use diptych::{DType, Model, SessionOptions};

/// Appends tokens; returns the best token and the bits of its logit.
fn step(session: &mut Session, tokens: &[u32], want: Want) -> (u32, u32) {
    let rows = session.append(&[Item { sequence: 0, tokens }], want).expect("a step");
    let row = rows.get(0).expect("a row");
    match row {
        Row::Best(best) => (row.greedy().unwrap(), best.logits[0].to_bits()),
        Row::Logits(logits) => (row.greedy().unwrap(), logits[row.greedy().unwrap() as usize].to_bits()),
    }
}

fn sessions(model: &Model, context: usize) -> [Session; 2] {
    [true, false].map(|ahead| {
        let options = SessionOptions::default().with_context(context).with_ahead(ahead);
        model.session(&options).expect("a session")
    })
}

/// Greedy text, beyond the length at which programs grow, up to the end of the context.
#[test]
fn greedy_text_is_the_same() {
    for (name, backend) in backends() {
        for architecture in ["llama", "gemma3", "gpt-oss", "qwen35"] {
            let model = model(&tiny(architecture, DType::Q8_0), &backend);
            let prompt = vec![5; KV_STEP - 3];
            let texts = sessions(&model, KV_STEP + 4).map(|mut session| {
                let mut chosen = vec![step(&mut session, &prompt, Want::Best(1))];
                while session.position() < session.context() {
                    let token = chosen[chosen.len() - 1].0;
                    chosen.push(step(&mut session, &[token], Want::Best(1)));
                }
                chosen
            });
            assert_eq!(texts[0].len(), 8);
            assert_eq!(texts[0], texts[1], "{name} {architecture}");
        }
    }
}

/// Actions of an application between steps: another token than the best, truncation, prompts, all logits,
/// restored sequences.
#[test]
fn wrong_guesses_leave_no_trace() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::F16), &backend);
        let [mut ahead, mut plain] = sessions(&model, 64);
        let saved = {
            step(&mut plain, &[9, 8, 7, 6], Want::Best(1));
            plain.save_sequence(0).expect("a saved sequence")
        };
        plain.reset();
        let run = |session: &mut Session| {
            let mut all = vec![step(session, &[1, 2, 3], Want::Best(1))];
            for round in 0..24u32 {
                let best = all[all.len() - 1].0;
                match round % 8 {
                    3 => all.push(step(session, &[(best + 1) % 200], Want::Best(1))),
                    4 => session.truncate(0, session.position() - 2).expect("a shorter sequence"),
                    5 => all.push(step(session, &[4, 5], Want::Best(1))),
                    6 => all.push(step(session, &[best], Want::Logits)),
                    7 if round > 16 => session.restore_sequence(0, &saved).expect("a sequence"),
                    _ => all.push(step(session, &[best], Want::Best(1))),
                }
            }
            // The same length and token again, but after other tokens.
            let best = step(session, &[11], Want::Best(1));
            let length = session.position();
            session.truncate(0, length - 2).expect("a shorter sequence");
            all.push(step(session, &[12, 13], Want::Logits));
            all.push(step(session, &[best.0], Want::Best(1)));
            all
        };
        assert_eq!(run(&mut ahead), run(&mut plain), "{name}");
    }
}

/// On devices that support it, the next step begins while a step is read; nothing further is prepared, and
/// asking for the program of the next step does not drop the step that has begun.
#[test]
fn the_next_step_has_begun() {
    for (name, backend) in backends() {
        let model = model(&tiny("llama", DType::Q4_K), &backend);
        let [mut session, _] = sessions(&model, 64);
        let (mut token, _) = step(&mut session, &[1, 2], Want::Best(1));
        session.prepare_decode(Want::Best(1)).expect("programs");
        let before = backend.stats();
        for _ in 0..5 {
            session.prepare_decode(Want::Best(1)).expect("programs");
            token = step(&mut session, &[token], Want::Best(1)).0;
        }
        let after = backend.stats();
        let made =
            |s: &diptych::ggml::backend::Stats| [s.programs, s.recordings, s.pipelines, s.driver_allocations];
        assert_eq!(made(&after), made(&before), "{name}");
        let steps = if backend.begins() { 6 } else { 5 };
        if name.starts_with("vulkan") {
            assert!(backend.begins());
            // The first token is uploaded.
            assert!((steps..steps + 2).contains(&(after.submissions - before.submissions)), "{name}");
        }
    }
}
