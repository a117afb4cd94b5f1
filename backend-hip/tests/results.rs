//! Results that are on the host as soon as the run is complete: reading them makes no driver call.

use backend_hip::virtual_gpu::{Faults, Target, VirtualDriver, VirtualOptions};
use backend_hip::{HipBackend, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Graph, Source, TensorId};
use std::sync::Arc;

/// Creates a device that counts calls. `None` if no code for it was built in.
pub(crate) fn device() -> Option<(HipBackend, Faults)> {
    if !hip_kernels::targets().contains(&"gfx906") {
        eprintln!("skipped: no code objects for gfx906 were built in");
        return None;
    }
    let faults = Faults::default();
    let device = VirtualOptions { faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let driver = Arc::new(VirtualDriver::new(device));
    Some((HipBackend::open_driver("hip-counted", HipOptions::default(), driver).unwrap(), faults))
}

pub(crate) fn program(backend: &HipBackend, graph: &Graph, stepwise: bool) -> Box<dyn Program> {
    let plan = Plan::new(graph, backend.device().limits.alignment, Precision::Exact).unwrap();
    backend
        .prepare(graph, &plan, &Bindings::default(), PrepareOptions { stepwise, ..PrepareOptions::default() })
        .unwrap()
}

pub(crate) fn read(program: &mut dyn Program, id: TensorId, count: usize) -> Vec<f32> {
    let mut out = vec![0f32; count];
    program.read(id, bytemuck::cast_slice_mut(&mut out)).unwrap();
    out
}

/// Returns the number of calls that submit work to the stream or query its progress.
fn calls(faults: &Faults) -> usize {
    let names =
        ["hipMemcpyAsync", "hipModuleLaunchKernel", "hipGraphLaunch", "hipEventRecord", "hipEventQuery"];
    names.iter().map(|name| faults.count(name)).sum()
}

/// More outputs than a launch gathers, of lengths from one word to many; one output is a part of another.
#[test]
fn small_results_come_with_the_run() {
    let Some((backend, faults)) = device() else { return };
    let mut g = Graph::new();
    let mut outputs = Vec::new();
    let mut inputs = Vec::new();
    for n in [1, 33, 1000, 64, 257, 7] {
        let x = g.leaf(&format!("x{n}"), DType::F32, [n, 1, 1, 1], Source::Input).unwrap();
        let y = g.scale(x, 2.0, 1.0).unwrap();
        g.output(y).unwrap();
        inputs.push((x, n));
        outputs.push((y, n));
    }
    let part = g.view(outputs[2].0, [100, 1, 1, 1], [4, 400, 400, 400], 40).unwrap();
    g.output(part).unwrap();
    let mut program = program(&backend, &g, false);
    for round in 0..3 {
        let value = |n: usize, i: usize| (i + n * round) as f32;
        for &(x, n) in &inputs {
            let values: Vec<f32> = (0..n).map(|i| value(n, i)).collect();
            program.write(x, bytemuck::cast_slice(&values)).unwrap();
        }
        program.run().unwrap();
        let before = calls(&faults);
        for &(y, n) in &outputs {
            let wanted: Vec<f32> = (0..n).map(|i| value(n, i) * 2.0 + 1.0).collect();
            assert_eq!(read(&mut *program, y, n), wanted, "{n}, run {round}");
        }
        let wanted: Vec<f32> = (10..110).map(|i| value(1000, i) * 2.0 + 1.0).collect();
        assert_eq!(read(&mut *program, part, 100), wanted);
        assert_eq!(calls(&faults), before, "run {round}");
    }
    // Data written after the run is read back.
    let (y, n) = outputs[1];
    program.write(y, bytemuck::cast_slice(&vec![5.0f32; n])).unwrap();
    assert_eq!(read(&mut *program, y, n), vec![5.0; n]);
    program.run().unwrap();
    assert_ne!(read(&mut *program, y, n), vec![5.0; n]);
}

/// Large results, results that are no whole words, and results of single steps are copied on request.
#[test]
fn other_results_are_fetched() {
    let Some((backend, faults)) = device() else { return };
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [20_001, 1, 1, 1], Source::Input).unwrap();
    let large = g.scale(x, -1.0, 0.0).unwrap();
    let small = g.view(large, [7, 1, 1, 1], [4, 28, 28, 28], 0).unwrap();
    let small = g.scale(small, 3.0, 0.0).unwrap();
    for id in [large, small] {
        g.output(id).unwrap();
    }
    let values: Vec<f32> = (0..20_001).map(|i| i as f32).collect();
    let negative: Vec<f32> = values.iter().map(|x| -x).collect();
    let mut whole = program(&backend, &g, false);
    whole.write(x, bytemuck::cast_slice(&values)).unwrap();
    whole.run().unwrap();
    let before = calls(&faults);
    assert_eq!(read(&mut *whole, small, 7), [0.0, -3.0, -6.0, -9.0, -12.0, -15.0, -18.0]);
    assert_eq!(calls(&faults), before);
    assert_eq!(read(&mut *whole, large, 20_001), negative);
    assert!(calls(&faults) > before);

    let mut steps = program(&backend, &g, true);
    steps.write(x, bytemuck::cast_slice(&values)).unwrap();
    for (step, (id, count)) in [(large, 20_001), (small, 7)].into_iter().enumerate() {
        steps.run_step(step).unwrap();
        let before = calls(&faults);
        read(&mut *steps, id, count);
        assert!(calls(&faults) > before);
    }
}
