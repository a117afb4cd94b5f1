//! Every driver call in the life of a program is made to fail, and made to hang. The tests check the caller's
//! error, that everything is freed, and that the next program works.

use crate::raw::faults::{self, Call, Fault};
use crate::{VulkanBackend, VulkanOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Phase, Result, Source};
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Lock for the single set of wrapped functions.
static ONE: Mutex<()> = Mutex::new(());

/// Functions whose failure the caller does not see: the backend works without their results.
const DISPENSABLE: &[&str] = &[
    "vkEnumerateInstanceExtensionProperties",
    "vkEnumerateDeviceExtensionProperties",
    "vkCreatePipelineCache",
    "vkGetPipelineCacheData",
    "vkCreateQueryPool",
    "vkGetQueryPoolResults",
    "vkGetSemaphoreCounterValue",
];

/// Returns the phases in which a part of the scenario may fail.
fn phases(part: &str) -> &'static [Phase] {
    match part {
        // The lane probe allocates, compiles, creates its descriptors and runs.
        "open" => &[
            Phase::LoadRuntime,
            Phase::Enumerate,
            Phase::OpenDevice,
            Phase::Allocate,
            Phase::Compile,
            Phase::Prepare,
        ],
        "load" => &[Phase::Allocate, Phase::Upload],
        "prepare" => &[Phase::Allocate, Phase::Compile, Phase::Prepare],
        _ => &[Phase::Upload, Phase::FirstCompute, Phase::Compute, Phase::Readback],
    }
}

const ROW: usize = 64;

/// Runs [`run`] on a separate thread with a fault; the result comes through the channel.
fn life(cache: &Path, limit: Duration, fault: Option<(Call, Fault)>) -> mpsc::Receiver<Result<f32>> {
    faults::begin(fault);
    let (sender, answer) = mpsc::channel();
    let cache = cache.to_path_buf();
    std::thread::spawn(move || sender.send(run(&cache, limit)));
    answer
}

/// Opens, loads, prepares, runs, reads and frees everything. Returns the sum of the results.
fn run(cache: &Path, limit: Duration) -> Result<f32> {
    faults::stage("open");
    let backend = VulkanBackend::open(VulkanOptions {
        functions: faults::functions(),
        deadlines: Deadlines::all(limit),
        pipeline_cache_dir: Some(cache.into()),
        force_staging: true,
        ..VulkanOptions::default()
    })?;
    faults::stage("load");
    let weights: Vec<u8> = (0..ROW).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let buffer = backend.allocate(weights.len(), Usage::Weights)?;
    backend.upload(&buffer, 0, &weights)?;
    faults::stage("prepare");
    let mut graph = Graph::new();
    let w = graph.leaf("w", DType::F32, [ROW, 1, 1, 1], Source::Weight)?;
    let x = graph.leaf("x", DType::F32, [ROW, 1, 1, 1], Source::Input)?;
    let y = graph.add(x, w)?;
    graph.output(y)?;
    let plan = Plan::new(&graph, backend.device().limits.alignment, Precision::Exact)?;
    let mut bindings = Bindings::default();
    bindings.leaves.insert(w, Slice { buffer, offset: 0 });
    let mut program = backend.prepare(&graph, &plan, &bindings, PrepareOptions::default())?;
    faults::stage("run");
    program.write(x, &[0; ROW * 4])?;
    program.run()?;
    program.run()?;
    let mut out = vec![0; ROW * 4];
    program.read(y, &mut out)?;
    faults::stage("close");
    Ok(out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).sum())
}

const RIGHT: f32 = (ROW * (ROW - 1) / 2) as f32;

/// Returns the calls of a run without faults; `None` with a message if there is no device.
fn calls(cache: &Path) -> Option<Vec<Call>> {
    if faults::functions().is_none() {
        eprintln!("skipped: no Vulkan loader");
        return None;
    }
    // The second run finds the pipeline cache filled.
    for _ in 0..2 {
        match life(cache, LONG, None).recv().unwrap() {
            Ok(sum) => assert_eq!(sum, RIGHT),
            Err(Error::Unavailable { reason, .. }) => {
                eprintln!("skipped: {reason}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(faults::live(), []);
    }
    Some(faults::calls())
}

const LONG: Duration = Duration::from_secs(60);

/// Waits until a thread left over from a timeout has freed its objects.
fn settled() -> bool {
    let start = Instant::now();
    while !faults::live().is_empty() && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(2));
    }
    faults::live().is_empty()
}

#[test]
fn every_call_fails_once() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = tempfile::tempdir().unwrap();
    let Some(calls) = calls(cache.path()) else { return };
    let mut failed = 0;
    for &call in &calls {
        let outcome = life(cache.path(), LONG, Some((call, Fault::Fail))).recv().unwrap();
        let (Call { part, function, .. }, context) = (call, format!("{call:?}: {outcome:?}"));
        // Everything created is freed, regardless of the outcome.
        assert!(settled(), "{context}: {:?}", faults::live());
        match outcome {
            Ok(sum) => {
                let may = DISPENSABLE.contains(&function) || part == "close" || !faults::met();
                assert!(sum == RIGHT && may, "{context}");
            }
            Err(error) => {
                failed += 1;
                let phase = error.phase().unwrap_or_else(|| panic!("{context}: no phase"));
                assert!(phases(part).contains(&phase), "{context}: {phase}");
                let typed = match &error {
                    Error::Driver { call, code, .. } => {
                        *call == function && *code == i64::from(faults::code_of(function).as_raw())
                    }
                    // The code may become one of these errors, which do not carry it.
                    Error::OutOfMemory { .. } | Error::DeviceLost { .. } | Error::Unavailable { .. } => true,
                    _ => false,
                };
                assert!(typed, "{context}");
            }
        }
    }
    assert!(failed * 2 > calls.len(), "{failed} of {} calls matter", calls.len());
    assert_eq!(life(cache.path(), LONG, None).recv().unwrap().unwrap(), RIGHT, "the next one works");
    assert!(settled(), "{:?}", faults::live());
}

/// Runs the best of a long row, whose work-groups arrive at a counter, in one submission for each work-group.
/// Returns the best token, element 5, of a run after one whose second submission failed.
fn best_after_a_partial_run() -> Result<i32> {
    const LENGTH: usize = 40_000;
    let second = Call { part: "run", function: "vkQueueSubmit", count: 1 };
    faults::begin(Some((second, Fault::Refuse)));
    faults::stage("open");
    let backend = VulkanBackend::open(VulkanOptions {
        functions: faults::functions(),
        pipeline_cache_dir: None,
        submission_budget: Duration::from_nanos(1),
        ..VulkanOptions::default()
    })?;
    let mut graph = Graph::new();
    let logits = graph.leaf("logits", DType::F32, [LENGTH, 1, 1, 1], Source::Input)?;
    let token_id = graph.top_k(logits, 1)?;
    let elements = graph.reshape(logits, [1, LENGTH, 1, 1])?;
    let value = graph.get_rows(elements, token_id)?;
    let squares = graph.mul_mat(logits, logits)?;
    for output in [token_id, value, squares] {
        graph.output(output)?;
    }
    let plan = Plan::fused(&graph, &backend, Precision::Exact)?;
    let mut program = backend.program(&graph, &plan, &Bindings::default(), PrepareOptions::default())?;
    assert!((plan.steps.len(), program.stats().steps) == (1, 1) && program.stats().segments > 3);
    let mut run = |stage, best: usize| {
        let mut values = vec![0.0f32; LENGTH];
        values[best] = best as f32;
        program.write(logits, bytemuck::cast_slice(&values))?;
        faults::stage(stage);
        program.run()?;
        let mut token = [0i32];
        program.read(token_id, bytemuck::cast_slice_mut(&mut token))?;
        Ok(token[0])
    };
    assert_eq!(run("before", LENGTH - 1)?, LENGTH as i32 - 1);
    let failed = run(second.part, 5);
    assert!(matches!(failed, Err(Error::Driver { call: "vkQueueSubmit", .. })), "{failed:?}");
    run("after", 5)
}

/// The work-groups of a part that was not submitted never arrive: counters must not wait for them in the next
/// run.
#[test]
fn a_run_after_one_that_was_submitted_in_part_is_right() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if faults::functions().is_none() {
        return eprintln!("skipped: no Vulkan loader");
    }
    match std::thread::spawn(best_after_a_partial_run).join().expect("no panic") {
        Ok(best) => assert_eq!(best, 5),
        Err(Error::Unavailable { reason, .. }) => eprintln!("skipped: {reason}"),
        Err(error) => panic!("{error}"),
    }
    assert!(settled(), "{:?}", faults::live());
}

/// Checks that a call which does not return becomes a timeout with its phase soon, except for calls made on
/// the caller's own thread. When it finally returns, everything is freed.
#[test]
fn every_call_hangs_once() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = tempfile::tempdir().unwrap();
    let Some(calls) = calls(cache.path()) else { return };
    let limit = Duration::from_millis(150);
    for &call in &calls {
        let Call { part, function, .. } = call;
        // Uploads, runs and reads run on the caller's thread (see the crate's contract).
        let is_guarded =
            matches!(part, "open" | "prepare") || part == "load" && function == "vkAllocateMemory";
        if !is_guarded {
            continue;
        }
        let outcome = life(cache.path(), limit, Some((call, Fault::Hang))).recv_timeout(LONG);
        let (met, context) = (faults::met(), format!("{call:?}: {outcome:?}"));
        faults::release();
        // A busy machine may miss a deadline before it reaches the call.
        match outcome {
            Ok(Err(Error::Timeout { phase, .. })) => {
                assert!(!met || phases(part).contains(&phase), "{context}")
            }
            Ok(Ok(sum)) => assert!(!met && sum == RIGHT, "{context}"),
            _ => panic!("{context}"),
        }
        assert!(settled(), "{context}: {:?}", faults::live());
    }
    assert_eq!(life(cache.path(), LONG, None).recv().unwrap().unwrap(), RIGHT, "the next one works");
    assert!(settled(), "{:?}", faults::live());
}
