//! Runs that begin and are ended later.

use backend_hip::virtual_gpu::{Target, VirtualDriver, VirtualOptions};
use backend_hip::{HipBackend, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Source, TensorId};
use std::sync::Arc;

/// Number of steps; enough for graphs.
const STEPS: usize = 9;

/// Prepares a program that adds 1 to an input in each step. `None` if no code for the device was built in.
fn counting() -> Option<(Box<dyn Program>, TensorId, TensorId)> {
    if !hip_kernels::targets().contains(&"gfx906") {
        eprintln!("skipped: no code objects for gfx906 were built in");
        return None;
    }
    let driver = Arc::new(VirtualDriver::new(VirtualOptions::new(Target::Gfx906)));
    let backend = HipBackend::open_driver("hip-begun", HipOptions::default(), driver).unwrap();
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let mut y = x;
    for _ in 0..STEPS {
        y = g.scale(y, 1.0, 1.0).unwrap();
    }
    g.output(y).unwrap();
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).unwrap();
    let program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
    Some((program, x, y))
}

/// The device may still copy the inputs of a run that has begun: they must not change until it has ended. The
/// first run starts launch after launch, the others start graphs.
#[test]
fn a_program_that_has_begun_is_not_written() {
    let Some((mut program, x, y)) = counting() else { return };
    for round in 0..3 {
        let input = [round as f32 * 100.0; 64];
        program.write(x, bytemuck::cast_slice(&input)).unwrap();
        program.begin().unwrap();
        let error = program.write(x, bytemuck::cast_slice(&[7.0f32; 64])).expect_err("it has begun");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("has begun"), "{error}");
        program.finish().unwrap();
        let mut out = [0f32; 64];
        program.read(y, bytemuck::cast_slice_mut(&mut out)).unwrap();
        assert_eq!(out, [input[0] + STEPS as f32; 64], "round {round}");
    }
}
