//! Programs: replay, shared memory, submissions, windows.

use crate::common;

use backend_vulkan::VulkanOptions;
use backend_vulkan::arch::ArchClass;
use common::{Layer, close, floats, heavy, open, options, values};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Support, Usage};
use ggml_core::op::FlashAttnExt;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Source, TensorId};
use std::time::Duration;

/// Returns options for both paths of data to the device: direct and staged.
fn ways() -> [VulkanOptions; 2] {
    [options(), VulkanOptions { force_staging: true, ..options() }]
}

#[test]
fn replays_record_compile_and_allocate_nothing() {
    let reference = ReferenceBackend::default();
    for options in ways() {
        let layer = Layer::new(2);
        let Some(backend) = open(options) else { return };
        let mut program = layer.program(&backend, &layer.bind(&backend));
        let mut wanted = layer.program(&reference, &layer.bind(&reference));
        let mut before = None;
        for at in [0, 2, 4, 6, 8, 10] {
            close(&format!("position {at}"), &layer.run(&mut *program, at), &layer.run(&mut *wanted, at));
            let stats = backend.stats();
            let fixed = (stats.driver_allocations, stats.pipelines, stats.programs, stats.recordings);
            assert_eq!(*before.get_or_insert(fixed), fixed, "a run is not only a submission");
        }
        // An unchanged input need not be written again, and an output can be read twice.
        program.run().expect("a run");
        wanted.run().expect("a run");
        close("again", &layer.output(&mut *program), &layer.output(&mut *wanted));
        close("read again", &layer.output(&mut *program), &layer.output(&mut *wanted));
    }
}

#[test]
fn programs_share_compute_memory_weights_and_state() {
    let reference = ReferenceBackend::default();
    for options in ways() {
        let Some(backend) = open(options) else { return };
        let (prompt, token) = (Layer::new(5), Layer::new(1));
        let outputs = [&backend as &dyn Backend, &reference].map(|backend| {
            let mut bindings = prompt.bind(backend);
            let longest = [&prompt, &token].map(|l| l.plan(backend).arena_bytes()).into_iter().max();
            bindings.compute = vec![backend.allocate(longest.unwrap_or(0), Usage::Compute).expect("memory")];
            let mut first = prompt.program(backend, &bindings);
            let mut then = token.program(backend, &token.rebind(&prompt, &bindings));
            let mut out = prompt.run(&mut *first, 0);
            for at in 5..9 {
                out.extend(token.run(&mut *then, at));
            }
            out.extend(prompt.run(&mut *first, 9));
            out.extend(token.run(&mut *then, 14));
            out
        });
        close("prompt, tokens, prompt, token", &outputs[0], &outputs[1]);
    }
}

#[test]
fn a_model_takes_few_allocations() {
    for options in ways() {
        let Some(backend) = open(options) else { return };
        let (prompt, token) = (Layer::new(8), Layer::new(1));
        let mut bindings = prompt.bind(&backend);
        bindings.compute =
            vec![backend.allocate(prompt.plan(&backend).arena_bytes(), Usage::Compute).expect("memory")];
        let mut first = prompt.program(&backend, &bindings);
        let mut then = token.program(&backend, &token.rebind(&prompt, &bindings));
        prompt.run(&mut *first, 0);
        token.run(&mut *then, 8);
        let stats = backend.stats();
        println!("{stats:?}");
        assert!((1..=8).contains(&stats.driver_allocations), "{stats:?}");
        drop((first, then, bindings));
        assert!(backend.stats().allocated_bytes <= stats.allocated_bytes);
    }
}

#[test]
fn long_work_becomes_several_submissions() {
    let reference = ReferenceBackend::default();
    let tight = VulkanOptions { submission_budget: Duration::from_nanos(1), ..options() };
    let Some(backend) = open(tight) else { return };
    let layer = Layer::new(3);
    let plan = layer.plan(&backend);
    let bindings = layer.bind(&backend);
    let mut program =
        backend.program(&layer.graph, &plan, &bindings, PrepareOptions::default()).expect("a program");
    let stats = program.stats();
    println!("{stats:?}");
    assert!(stats.segments > 4 && stats.dispatches >= stats.steps, "{stats:?}");
    let mut wanted = layer.program(&reference, &layer.bind(&reference));
    close("in pieces", &layer.run(&mut program, 0), &layer.run(&mut *wanted, 0));
    let timing = program.run().expect("a run");
    assert!(timing.device.is_none_or(|d| d > Duration::ZERO && d <= timing.host), "{timing:?}");
}

#[test]
fn barriers_stand_only_where_something_waits() {
    let Some(backend) = open(options()) else { return };
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 8, 1, 1], Source::Input).expect("x");
    let independent: Vec<TensorId> = (0..10).map(|i| g.scale(x, i as f32, 0.0).expect("scale")).collect();
    independent.iter().for_each(|&id| g.output(id).unwrap());
    let alignment = backend.device().limits.alignment;
    let plan = Plan::new(&g, alignment, Precision::Exact).expect("a plan");
    let wide =
        backend.program(&g, &plan, &Bindings::default(), PrepareOptions::default()).expect("a program");
    let sum = independent.iter().skip(1).fold(independent[0], |s, &id| g.add(s, id).expect("add"));
    g.output(sum).unwrap();
    let plan = Plan::new(&g, alignment, Precision::Exact).expect("a plan");
    let deep =
        backend.program(&g, &plan, &Bindings::default(), PrepareOptions::default()).expect("a program");
    println!("{:?} {:?}", wide.stats(), deep.stats());
    // One at the beginning and one for the host; if memory is staged, one after the inputs and one before the
    // outputs.
    let frame = wide.stats().barriers;
    assert!((2..=4).contains(&frame), "{frame}");
    assert_eq!(deep.stats().barriers, frame + 9, "one more for each link of the chain");
}

#[test]
fn steps_can_be_run_one_by_one() {
    let reference = ReferenceBackend::default();
    for options in ways() {
        let Some(backend) = open(options) else { return };
        let layer = Layer::new(3);
        let stepwise = PrepareOptions::STEPWISE;
        let nodes = [&backend as &dyn Backend, &reference].map(|backend| {
            let alignment = backend.device().limits.alignment;
            let plan = Plan::debug(&layer.graph, alignment, Precision::Exact).expect("a plan");
            let mut program =
                backend.prepare(&layer.graph, &plan, &layer.bind(backend), stepwise).expect("a program");
            layer.write(&mut *program, 4);
            let mut all = Vec::new();
            for (step, planned) in plan.steps.iter().enumerate() {
                program.run_step(step).expect("a step");
                let id = planned.node();
                let t = layer.graph.tensor(id);
                if t.dtype == DType::F32 && t.is_contiguous() {
                    let mut bytes = vec![0; t.dense_bytes()];
                    program.read(id, &mut bytes).expect("a node of a debug plan");
                    all.push((t.name.clone(), floats(&bytes)));
                }
            }
            assert!(program.run_step(plan.steps.len()).is_err());
            all
        });
        assert!(nodes[0].len() > 15);
        for ((name, got), (_, want)) in nodes[0].iter().zip(&nodes[1]) {
            close(name, got, want);
        }
        let mut whole = layer.program(&backend, &layer.bind(&backend));
        assert!(matches!(whole.run_step(0), Err(Error::InvalidArgument { .. })));
    }
}

#[test]
fn nodes_can_be_given_values_under_a_debug_plan() {
    let Some(backend) = open(VulkanOptions { force_staging: true, ..options() }) else { return };
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [8, 1, 1, 1], Source::Input).expect("x");
    let y = g.scale(x, 2.0, 0.0).expect("y");
    let z = g.scale(y, 1.0, 1.0).expect("z");
    g.output(z).unwrap();
    let plan = Plan::debug(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let stepwise = PrepareOptions::STEPWISE;
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), stepwise).expect("a program");
    program.write(y, bytemuck::cast_slice(&[3.0f32; 8])).expect("a node");
    program.run_step(1).expect("a step");
    let mut out = [0.0f32; 8];
    program.read(z, bytemuck::cast_slice_mut(&mut out)).expect("a result");
    assert_eq!(out, [4.0; 8]);
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let mut reused = backend.prepare(&g, &plan, &Bindings::default(), Default::default()).expect("a program");
    assert!(reused.write(y, &[0; 32]).is_err() && reused.read(y, &mut [0; 32]).is_err());
}

/// Computes a product with a weight stored at byte `offset` of its buffer, of which rows `from..to` are used.
fn product(
    dtype: DType,
    backend: &dyn Backend,
    offset: usize,
    from: usize,
    to: usize,
) -> Result<Vec<f32>, Error> {
    let (k, rows) = (dtype.block().max(64), 40);
    let mut g = Graph::new();
    let a = g.leaf("a", dtype, [k, rows, 1, 1], Source::Weight)?;
    let row = dtype.row_bytes(k).unwrap_or(0);
    let some = g.view(
        a,
        [k, to - from, 1, 1],
        [dtype.block_bytes(), row, row * (to - from), row * (to - from)],
        from * row,
    )?;
    let b = g.leaf("b", DType::F32, [k, 3, 1, 1], Source::Input)?;
    let b_part = g.view(b, [k, 2, 1, 1], [4, 4 * k, 8 * k, 8 * k], 4 * k)?;
    let d = g.mul_mat(some, b_part)?;
    g.output(d).unwrap();
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact)?;
    let bytes = values(&g, a, -1.0, 1.0);
    let buffer = backend.allocate(offset + bytes.len(), Usage::Weights)?;
    backend.upload(&buffer, offset, &bytes)?;
    let mut bindings = Bindings::default();
    bindings.leaves.insert(a, Slice { buffer, offset });
    let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default())?;
    program.write(b, &values(&g, b, -1.0, 1.0))?;
    program.run()?;
    let mut out = vec![0; (to - from) * 2 * 4];
    program.read(d, &mut out)?;
    Ok(floats(&out))
}

#[test]
fn windows_begin_anywhere_that_blocks_allow() {
    let reference = ReferenceBackend::default();
    let Some(backend) = open(options()) else { return };
    use DType::*;
    for dtype in [F32, F16, BF16, Q8_0, Q4_0, MXFP4, Q3_K, Q4_K, Q5_K] {
        let unit = dtype.block_bytes();
        for (offset, from, to) in
            [(0, 0, 40), (0, 7, 26), (unit, 0, 40), (unit * 5, 3, 4), (unit * 129, 39, 40)]
        {
            let got = product(dtype, &backend, offset, from, to)
                .unwrap_or_else(|e| panic!("{dtype} {offset}: {e}"));
            let want = product(dtype, &reference, offset, from, to).expect("the reference");
            close(&format!("{dtype} at {offset}, rows {from}..{to}"), &got, &want);
        }
    }
    // No aligned offset is a whole number of blocks before an odd byte: an error with a reason.
    match product(DType::Q8_0, &backend, 1, 0, 40) {
        Err(Error::Unsupported { op: "MUL_MAT", reason, .. }) => {
            assert!(reason.contains("34-byte"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_larger_than_a_window_are_split() {
    let reference = ReferenceBackend::default();
    let Some(backend) = open(VulkanOptions { max_binding: Some(32 << 10), ..options() }) else { return };
    assert_eq!(backend.device().limits.max_binding, 32 << 10);
    for dtype in [DType::Q8_0, DType::F32, DType::MXFP4, DType::Q3_K] {
        let mut g = Graph::new();
        let n = dtype.block().max(128);
        let table = g.leaf("table", dtype, [n, 1000, 1, 1], Source::Weight).expect("table");
        let ids = g.leaf("ids", DType::I32, [6, 1, 1, 1], Source::Input).expect("ids");
        let rows = g.get_rows(table, ids).expect("rows");
        let logits = g.mul_mat(table, rows).expect("logits");
        g.output(rows).unwrap();
        g.output(logits).unwrap();
        let run = |backend: &dyn Backend| {
            let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
            let bytes = values(&g, table, -1.0, 1.0);
            let buffer = backend.allocate(bytes.len(), Usage::Weights).expect("memory");
            backend.upload(&buffer, 0, &bytes).expect("upload");
            let mut bindings = Bindings::default();
            bindings.leaves.insert(table, Slice { buffer, offset: 0 });
            let mut program = backend.prepare(&g, &plan, &bindings, Default::default()).expect("a program");
            program.write(ids, &common::ints([0, 999, 500, 3, 777, 250])).expect("ids");
            program.run().expect("a run");
            let mut out = vec![0; 1000 * 6 * 4];
            program.read(logits, &mut out).expect("logits");
            let mut picked = vec![0; n * 6 * 4];
            program.read(rows, &mut picked).expect("rows");
            (floats(&out), floats(&picked))
        };
        let ((logits, rows), (want_logits, want_rows)) = (run(&backend), run(&reference));
        close(&format!("{dtype} rows"), &rows, &want_rows);
        close(&format!("{dtype} logits"), &logits, &want_logits);
    }
    // An operand that no kernel splits is refused with the sizes, before anything is prepared.
    let mut g = Graph::new();
    let big = g.leaf("big", DType::F32, [64, 1000, 1, 1], Source::Input).expect("big");
    let norm = g.rms_norm(big, 1e-5).expect("norm");
    g.output(norm).unwrap();
    match backend.supports(&g, norm) {
        Support::Unsupported { reason } => {
            assert!(reason.contains("256000") && reason.contains("32768"), "{reason}")
        }
        Support::Native => panic!("a window of 256000 bytes"),
    }
}

/// Includes few tokens, whose products have a separate kernel, and an index outside the matrices.
#[test]
fn matrices_larger_than_a_window_are_split() {
    let reference = ReferenceBackend::default();
    let Some(backend) = open(VulkanOptions { max_binding: Some(128 << 10), ..options() }) else { return };
    for (dtype, tokens) in [(DType::F32, 3), (DType::F32, 100), (DType::Q8_0, 100)] {
        let mut g = Graph::new();
        let a = g.leaf("a", dtype, [256, 16, 40, 1], Source::Weight).expect("a");
        let b = g.leaf("b", DType::F32, [256, 1, tokens, 1], Source::Input).expect("b");
        let ids = g.leaf("ids", DType::I32, [10, tokens, 1, 1], Source::Input).expect("ids");
        let used = g.view(ids, [8, tokens, 1, 1], [4, 40, 40 * tokens, 40 * tokens], 4).expect("a view");
        let d = g.mul_mat_id(a, b, used).expect("d");
        g.output(d).unwrap();
        let run = |backend: &dyn Backend| {
            let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
            let bytes = values(&g, a, -1.0, 1.0);
            let buffer = backend.allocate(bytes.len(), Usage::Weights).expect("memory");
            backend.upload(&buffer, 0, &bytes).expect("upload");
            let mut bindings = Bindings::default();
            bindings.leaves.insert(a, Slice { buffer, offset: 0 });
            let mut program = backend.prepare(&g, &plan, &bindings, Default::default()).expect("a program");
            program.write(b, &values(&g, b, -1.0, 1.0)).expect("b");
            program.write(ids, &common::ints((0..10 * tokens).map(|i| i * i % 41))).expect("ids");
            program.run().expect("a run");
            let mut out = vec![0; 16 * 8 * tokens * 4];
            program.read(d, &mut out).expect("d");
            floats(&out)
        };
        close(&format!("{dtype}, {tokens} tokens"), &run(&backend), &run(&reference));
    }
}

#[test]
fn two_threads_run_their_own_programs() {
    let Some(backend) = open(options()) else { return };
    let reference = ReferenceBackend::default();
    let layer = Layer::new(2);
    let mut wanted = layer.program(&reference, &layer.bind(&reference));
    let want: Vec<Vec<f32>> = (0..6).map(|i| layer.run(&mut *wanted, 2 * i)).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut program = layer.program(&backend, &layer.bind(&backend));
                for (i, want) in want.iter().enumerate() {
                    close("in a thread", &layer.run(&mut *program, 2 * i), want);
                }
            });
        }
    });
}

/// Attention to positions that are all masked takes much less time than its estimate. The first run of a program
/// teaches that, and other programs of the device know it.
#[test]
fn the_first_run_of_a_program_teaches() {
    let slow = VulkanOptions { arch: Some(ArchClass::Cpu), ..options() };
    let Some(backend) = open(slow) else { return };
    const SIZE: usize = 256;
    const TOKENS: usize = 64;
    const POSITIONS: usize = 2048;
    const STEPS: usize = 8;
    let mut g = Graph::new();
    let input = |g: &mut Graph, name: &str, dtype, rows| {
        g.leaf(name, dtype, [SIZE, rows, 1, 1], Source::Input).expect("an input")
    };
    let q = input(&mut g, "q", DType::F32, TOKENS);
    let [k, v] = ["k", "v"].map(|name| input(&mut g, name, DType::F16, POSITIONS));
    let mask = g.leaf("mask", DType::F16, [POSITIONS, TOKENS, 1, 1], Source::Input).expect("a mask");
    for i in 1..=STEPS {
        let op = FlashAttnExt { scale: i as f32, max_bias: 0.0, logit_softcap: 0.0 };
        let attended = g.flash_attn_ext(op, q, k, v, Some(mask)).expect("attention");
        g.output(attended).unwrap();
    }
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let prepare = || {
        let mut program =
            backend.program(&g, &plan, &Bindings::default(), Default::default()).expect("a program");
        // Minus infinity.
        program.write(mask, &[0x00, 0xfc].repeat(POSITIONS * TOKENS)).expect("a mask");
        program
    };
    let submissions = |program: &mut dyn Program| {
        let before = backend.stats().submissions;
        let timing = program.run().expect("a run");
        println!("{timing:?}");
        backend.stats().submissions - before
    };
    let mut program = prepare();
    let first = submissions(&mut program);
    assert_eq!((first, program.stats().segments), (STEPS as u64, STEPS), "each takes most of the budget");
    let second = submissions(&mut program);
    assert!(second <= 4, "{second}");
    let mut other = prepare();
    assert!(other.stats().segments <= 4 && submissions(&mut other) <= 4, "{:?}", other.stats());
}

/// The inputs of a run that has begun stay as they are until it has been finished.
#[test]
fn a_program_under_way_is_not_written() {
    for options in ways() {
        let Some(backend) = open(options) else { return };
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [8, 1, 1, 1], Source::Input).expect("x");
        let y = g.scale(x, 2.0, 0.0).expect("y");
        g.output(y).unwrap();
        // Under this plan nodes can be written too.
        let plan = Plan::debug(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
        let bindings = Bindings::default();
        let mut program = backend.prepare(&g, &plan, &bindings, Default::default()).expect("a program");
        let ones = bytemuck::cast_slice::<f32, u8>(&[1.0; 8]).to_vec();
        program.write(x, &ones).expect("an idle program");
        program.begin().expect("a run");
        let refused = [program.write(x, &ones), program.write(y, &ones), program.run().map(|_| ())];
        for error in refused {
            let text = error.expect_err("a run is under way").to_string();
            assert!(text.contains("has begun") && text.contains("finish"), "{text}");
        }
        program.finish().expect("its end");
        let mut out = [0.0f32; 8];
        program.read(y, bytemuck::cast_slice_mut(&mut out)).expect("y");
        assert_eq!(out, [2.0; 8]);
        program.write(y, &ones).expect("an idle program");
        program.read(y, bytemuck::cast_slice_mut(&mut out)).expect("y");
        assert_eq!(out, [1.0; 8]);
    }
}

/// Returns the result of a chain of products, the number of dispatches, and the device time of a run.
fn chain(options: VulkanOptions) -> Option<(Vec<f32>, usize, Option<Duration>)> {
    let backend = open(options)?;
    let (g, w, y) = heavy(192, 3);
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let buffer = backend.allocate(g.tensor(w).span_bytes(), Usage::Weights).expect("memory");
    backend.upload(&buffer, 0, &values(&g, w, -0.1, 0.1)).expect("upload");
    let mut bindings = Bindings::default();
    bindings.leaves.insert(w, Slice { buffer, offset: 0 });
    let mut program = backend.program(&g, &plan, &bindings, Default::default()).expect("a program");
    let x = g.find("x").expect("x");
    program.write(x, &values(&g, x, -1.0, 1.0)).expect("x");
    let timing = program.run().expect("a run");
    let mut out = vec![0; 192 * 192 * 4];
    program.read(y, &mut out).expect("y");
    Some((floats(&out), program.stats().dispatches, timing.device))
}

#[test]
fn a_dispatch_in_parts_gives_the_same_bits() {
    let Some((whole, dispatches, device)) = chain(options()) else { return };
    let tight = VulkanOptions { submission_budget: Duration::from_nanos(1), ..options() };
    let Some((parts, pieces, _)) = chain(tight) else { return };
    assert_eq!(dispatches, 3);
    assert!(pieces > 9, "{pieces} pieces");
    assert!(whole == parts && whole.iter().any(|&x| x != 0.0));
    assert!(device.is_none_or(|d| d > Duration::from_micros(20)), "{device:?}");
}

#[test]
fn a_graph_without_steps_passes_its_inputs_on() {
    for options in ways() {
        let Some(backend) = open(options) else { return };
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [4, 2, 1, 1], Source::Input).expect("x");
        let row = g.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 16).expect("a row");
        g.output(row).unwrap();
        let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
        let mut program =
            backend.prepare(&g, &plan, &Bindings::default(), Default::default()).expect("a program");
        program.write(x, bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])).expect("x");
        let mut out = [0.0f32; 4];
        program.read(row, bytemuck::cast_slice_mut(&mut out)).expect("before a run");
        assert_eq!(out, [5.0, 6.0, 7.0, 8.0]);
        let times: Vec<Duration> = (0..200).map(|_| program.run().expect("a run").host).collect();
        program.read(row, bytemuck::cast_slice_mut(&mut out)).expect("after it");
        assert_eq!(out, [5.0, 6.0, 7.0, 8.0]);
        println!("an empty submission takes {:?}", times.iter().min());
    }
}
