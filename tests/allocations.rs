//! A decode step allocates nothing after the first. A separate test program, because counting allocations
//! replaces the allocator.

mod common;

use allocation_counter::measure;
use common::{backends, model, tiny};
use diptych::ggml::backend::Backend;
use diptych::ggml::cpu::{CpuBackend, CpuOptions};
use diptych::session::{Item, Session, Want};
use diptych::{DType, SessionOptions};
use std::sync::Arc;

/// Returns the calling thread's allocations in `count` steps of all sequences.
fn of_steps(session: &mut Session, want: Want, count: usize) -> u64 {
    let items: Vec<Item<'_>> =
        (0..session.sequences()).map(|sequence| Item { sequence, tokens: &[7] }).collect();
    // The first step prepares the program.
    session.append(&items, want).expect("a step");
    let info = measure(|| {
        for _ in 0..count {
            let rows = session.append(&items, want).expect("a step");
            assert_eq!(rows.len(), items.len());
        }
    });
    info.count_total
}

fn session(shape: &diptych::synthesize::Shape, backend: &Arc<dyn Backend>) -> Session {
    let options = SessionOptions::default().with_context(400).with_sequences(2);
    model(shape, backend).session(&options).expect("a session")
}

/// One thread, for the allocations of session and backend.
#[test]
fn a_step_allocates_nothing() {
    let backend = CpuBackend::open(CpuOptions::default().with_threads(1)).expect("the CPU");
    let backend: Arc<dyn Backend> = Arc::new(backend);
    for architecture in ["qwen3", "gemma3", "gpt-oss", "qwen35"] {
        let mut session = session(&tiny(architecture, DType::Q8_0), &backend);
        session.append(&[Item { sequence: 1, tokens: &[3; 20] }], Want::Best(1)).expect("a prompt");
        for want in [Want::Best(1), Want::Best(40), Want::Logits] {
            assert_eq!(of_steps(&mut session, want, 30), 0, "{architecture} {want:?}");
        }
    }
}

/// Other backends use their drivers, so the allocations are only printed.
#[test]
fn the_allocations_of_a_step_are_shown() {
    for (name, backend) in backends() {
        let mut session = session(&tiny("qwen3", DType::Q8_0), &backend);
        for want in [Want::Best(1), Want::Logits] {
            println!("{name}, {want:?}: {} in 10 steps", of_steps(&mut session, want, 10));
        }
    }
}
