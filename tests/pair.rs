//! One card under two drivers: the same results, memory once, and any number of changes between prompts and decode.

use crate::common;

use backend_hip::HipOptions;
use backend_hip::virtual_gpu::{Faults, Injection, Target, VirtualOptions, open_with};
use common::{backend, model, tiny};
use diptych::ggml::backend::{Backend, KernelCounts, Usage};
use diptych::ggml::metrics::distance;
use diptych::ggml::pair::Pair;
use diptych::ggml::phase::Deadlines;
use diptych::ggml::precision::Precision;
use diptych::session::{Item, Want};
use diptych::{DType, Model, Session, SessionOptions};
use std::sync::Arc;
use std::time::Duration;

/// Tokens of a prompt: enough for the driver of prompts.
fn prompt() -> Vec<u32> {
    (0..40).map(|i| (i * 37 + 11) % 200).collect()
}

fn session(model: &Model, options: &SessionOptions) -> Session {
    let options = options.clone().with_context(128).with_precision(Precision::Exact);
    model.session(&options).expect("a session")
}

/// Computes a prompt and `count` greedy tokens after it; returns the logits of the prompt and the tokens.
fn turn(session: &mut Session, count: usize) -> (Vec<f32>, Vec<u32>) {
    session.reset();
    let logits = session.prefill(&prompt()).expect("a prompt");
    let mut token = diptych::greedy(&logits).expect("a token");
    let mut tokens = vec![token];
    for _ in 0..count {
        let item = Item { sequence: 0, tokens: &[token] };
        let rows = session.append(&[item], Want::Best(1)).expect("a step");
        token = rows.get(0).expect("a row").greedy().expect("a token");
        tokens.push(token);
    }
    (logits, tokens)
}

/// Returns the wavefronts that each driver has run.
fn waves(pair: &dyn Backend) -> [u64; 2] {
    let drivers = pair.drivers().expect("two drivers");
    let sum = |counts: Vec<KernelCounts>| counts.iter().map(|kernel| kernel.sum(&["waves"])).sum();
    [0, 1].map(|index| sum(drivers.driver(index).counts().expect("counters")))
}

fn reference(shape: &diptych::synthesize::Shape) -> (Vec<f32>, Vec<u32>) {
    let reference = backend("reference").expect("always there");
    turn(&mut session(&model(shape, &reference), &SessionOptions::default()), 4)
}

/// Changes of the phase give the reference's results each time; nothing is allocated after the first round.
fn changes_of_phase(pair: &Arc<dyn Backend>, architecture: &str, rounds: usize) {
    let shape = tiny(architecture, DType::Q8_0);
    let (expected, tokens) = reference(&shape);
    let model = model(&shape, pair);
    let mut session = session(&model, &SessionOptions::default());
    let mut after_first = None;
    for round in 0..rounds {
        let [steps, prompts] = waves(pair.as_ref());
        let (logits, found) = turn(&mut session, 4);
        let error = distance(&logits, &expected).nmse;
        assert!(error <= 1e-9, "{architecture}, round {round}: {error:e}");
        assert_eq!(found, tokens, "{architecture}, round {round}");
        let [more_steps, more_prompts] = waves(pair.as_ref());
        assert!(more_steps > steps && more_prompts > prompts, "both drivers work in each round");
        let stats = pair.stats();
        let memory = (stats.allocated_bytes, stats.driver_allocations);
        assert_eq!(*after_first.get_or_insert(memory), memory, "{architecture}, round {round}");
    }
}

/// Twenty changes, ten of them on the memory of a model that was freed.
#[test]
fn two_drivers_of_a_vega() {
    let Some(pair) = backend("vulkan-virtual:vega20+hip-virtual:gfx906") else { return };
    let held = || pair.stats().allocated_bytes;
    changes_of_phase(&pair, "llama", 5);
    let before = held();
    changes_of_phase(&pair, "llama", 5);
    assert_eq!(held(), before, "everything was freed");
    let buffer = pair.allocate(50 << 20, Usage::Weights).expect("memory");
    let taken = held() - before;
    assert!((50 << 20..51 << 20).contains(&taken), "{taken} bytes: memory of both drivers is there once");
    drop(buffer);
    assert_eq!(held(), before);
}

/// Recurrent state is in the shared memory too; the memory of an integrated GPU is the host's.
#[test]
fn two_drivers_of_an_integrated_gpu() {
    let Some(pair) = backend("vulkan-virtual:gfx1151+hip-virtual:gfx1151") else { return };
    changes_of_phase(&pair, "qwen35", 2);
}

/// A step that began before its token was asked for is in flight when the next prompt begins on the other driver.
#[test]
fn steps_ahead_end_before_the_other_driver_begins() {
    let Some(pair) = backend("vulkan-virtual:vega20+hip-virtual:gfx906") else { return };
    let model = model(&tiny("llama", DType::Q8_0), &pair);
    let mut results = [true, false].map(|ahead| {
        let mut session = session(&model, &SessionOptions::default().with_ahead(ahead));
        (0..2).map(|_| turn(&mut session, 5)).collect::<Vec<_>>()
    });
    let without = results[1].clone();
    assert_eq!(results[0], without);
    assert_eq!(results[0].pop(), results[0].pop(), "the second time as the first");
}

/// Two sessions use different drivers at the same time, each with memory of its own.
#[test]
fn two_threads_use_both_drivers() {
    let Some(pair) = backend("vulkan-virtual:vega20+hip-virtual:gfx906") else { return };
    let model = model(&tiny("llama", DType::Q8_0), &pair);
    let wanted = turn(&mut session(&model, &SessionOptions::default()), 3);
    let run = || {
        let mut session = session(&model, &SessionOptions::default());
        for _ in 0..3 {
            assert_eq!(turn(&mut session, 3), wanted);
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(run);
        run();
        other.join().expect("the same results");
    });
}

#[test]
fn two_cards_are_no_pair() {
    for name in ["vulkan-virtual:vega20+hip-virtual:gfx900", "vulkan-virtual:vega10+hip-virtual:gfx906"] {
        match diptych::open(name, &diptych::OpenOptions::default()).map(|_| ()) {
            Err(diptych::Error::Unavailable { reason, .. }) => {
                let here = reason.contains("two drivers of one card are needed") || reason.contains("RADV");
                assert!(here, "{reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Opens a Vega under both drivers, whose HIP side has faults.
fn with_faults(faults: Faults, limit: Duration) -> Option<diptych::Result<Pair>> {
    let vulkan = backend("vulkan-virtual:vega20")?;
    let device = VirtualOptions { faults, ..VirtualOptions::new(Target::Gfx906) };
    let options = HipOptions { deadlines: Deadlines::all(limit), routes_dir: None, ..HipOptions::default() };
    let hip = open_with(device, options).expect("a virtual device");
    Some(Pair::new(vulkan, Arc::new(hip)))
}

/// If memory is refused when a pair is opened, there is no pair; if it is refused later, one driver goes on with the model.
#[test]
fn a_refused_import_leaves_one_driver() {
    let minute = Duration::from_secs(60);
    let refused = |n| Faults::default().at("hipImportExternalMemory", n, Injection::Fail(2));
    let Some(none) = with_faults(refused(0), minute) else { return };
    assert!(none.is_err_and(|error| error.to_string().contains("hipImportExternalMemory")));
    // The proof, the weights, the state, then the arena.
    let shape = tiny("llama", DType::Q8_0);
    let (expected, tokens) = reference(&shape);
    for n in 1..4 {
        let pair: Arc<dyn Backend> =
            Arc::new(with_faults(refused(n), minute).expect("as above").expect("a pair"));
        let model = model(&shape, &pair);
        let (logits, found) = turn(&mut session(&model, &SessionOptions::default()), 4);
        assert!(distance(&logits, &expected).nmse <= 1e-9, "import {n} is refused");
        assert_eq!(found, tokens);
        let drivers = pair.drivers().expect("two drivers");
        assert_eq!(drivers.driver(1).device().backend, drivers.driver(0).device().backend);
    }
}

/// Work of a driver that does not end is waited for until the deadline, and the error names that driver.
#[test]
fn a_driver_that_hangs_is_named() {
    let faults = Faults::default();
    let Some(pair) = with_faults(faults.clone(), Duration::from_secs(2)) else { return };
    let pair: Arc<dyn Backend> = Arc::new(pair.expect("a pair"));
    let model = model(&tiny("llama", DType::Q8_0), &pair);
    let mut session = session(&model, &SessionOptions::default());
    let before = faults.count("hipModuleLaunchKernel");
    let _ = faults.clone().at("hipModuleLaunchKernel", before + 3, Injection::Stall);
    match session.prefill(&prompt()) {
        Err(diptych::Error::Timeout { backend, .. }) => {
            assert!(backend.starts_with("hip-virtual"), "{backend}")
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}
