//! Fragments of matrix units on a virtual GPU that has none: `kernels/written.h` emulates their instructions
//! lane by lane as documented by the manufacturers. Everything around them is the kernels' own: the rounding
//! of activations, the decoding of weights, the steps along k, the assignment of loads and stores to lanes.

use crate::written;

use ggml_core::catalogue::{self, Case, Fill, Outcome};
use ggml_core::kernel::MulMatParams;
use ggml_core::metrics::distance;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Result};
use std::sync::OnceLock;
use virtual_gpu::{Gpu, Launch, Module, Options, Target};

/// Returns the code object, compiled once; `None` if there is no compiler.
fn compiled() -> Option<&'static [u8]> {
    static OBJECT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    OBJECT.get_or_init(|| written::compile("fragments.hip", &[])).as_deref()
}

struct Device {
    gpu: Gpu,
    /// Kernels under test, and those that round.
    modules: [Module; 2],
}

impl Device {
    fn new() -> Option<Device> {
        let embedded = hip_kernels::code_object("gfx906", "mul_mat_half");
        if embedded.is_none() {
            eprintln!("skipped: nothing was built in for gfx906");
        }
        let (rounding, object) = (embedded?, compiled()?);
        let gpu = Gpu::new(Target::Gfx906, Options::default());
        let modules = [gpu.load(object).unwrap(), gpu.load(rounding).unwrap()];
        Some(Device { gpu, modules })
    }

    fn memory(&self, bytes: &[u8]) -> u64 {
        let address = self.gpu.allocate(bytes.len()).unwrap();
        self.gpu.write(address, bytes).unwrap();
        address
    }

    fn launch(&self, kernel: &str, groups: [u32; 3], threads: u32, pointers: &[u64], p: &MulMatParams) {
        let kernel = self.modules.iter().find_map(|module| module.kernel(kernel)).expect(kernel);
        let arguments = [bytemuck::cast_slice(pointers), bytemuck::bytes_of(p)].concat();
        let launch =
            Launch { groups, threads: [threads, 1, 1], dynamic_lds: 0, arguments: &arguments, windows: None };
        self.gpu.launch(&kernel, &launch).unwrap();
    }

    /// Computes a product with a kernel of tiles of `tile` rows and columns.
    fn product(&self, kernel: &str, tile: u32, case: &Case) -> Vec<f32> {
        let leaves = case.leaves().unwrap();
        let p = MulMatParams::new(case.graph.as_ref().unwrap(), case.node, &[]).unwrap();
        let planes = p.ne2 * p.ne3;
        let columns = (p.n * planes) as usize;
        let mut result = vec![0f32; columns * p.m as usize];
        let [a, b, d] =
            [&leaves[0].1, &leaves[1].1, bytemuck::cast_slice(&result)].map(|bytes| self.memory(bytes));
        let half = (p.k as usize).next_multiple_of(64) * 2;
        let [x, scales] = [columns * half, columns * 4].map(|bytes| self.gpu.allocate(bytes).unwrap());
        self.launch("round_half", [p.n, planes, 1], 256, &[b, x, scales], &p);
        let groups = [p.m.div_ceil(tile), p.n.div_ceil(tile), planes];
        self.launch(kernel, groups, tile * 2, &[a, x, scales, d], &p);
        self.gpu.read(d, bytemuck::cast_slice_mut(&mut result)).unwrap();
        result
    }
}

fn case(dtype: DType, [k, m, n]: [usize; 3], batch: [usize; 2], b: Fill) -> Case {
    Case::new(format!("{dtype} {k} {m} {n}"), |g, c| -> Result<_> {
        let a = c.leaf(g, "a", dtype, [k, m, 1, batch[0]], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [k, n, 2, batch[1]], b.clone())?;
        g.mul_mat(a, b)
    })
}

fn right(case: &Case) -> Vec<f32> {
    match catalogue::run(case, &ReferenceBackend::default(), Precision::Exact).unwrap() {
        Outcome::Values(right) => right,
        Outcome::Unsupported(why) => panic!("the reference refuses nothing: {why}"),
    }
}

const UNITS: [&str; 4] = ["wmma11", "wmma12", "mfma", "mma"];

/// Several tiles and steps, with remainders in every direction.
#[test]
fn lanes_hold_what_documents_say() {
    let Some(device) = Device::new() else { return };
    let plain = case(DType::F16, [147, 75, 70], [1, 2], Fill::Uniform(-1.0, 1.0));
    let blocks = case(DType::Q4_K, [512, 131, 129], [1, 1], Fill::Uniform(-1.0, 1.0));
    for (prefix, tile, case) in [("f16", 64, &plain), ("q4_k", 128, &blocks)] {
        let right = right(case);
        for unit in UNITS {
            let error = distance(&device.product(&format!("{prefix}_{unit}"), tile, case), &right).nmse;
            assert!(error < 5e-7, "{prefix} {unit}: {error:e}");
        }
    }
}

/// Columns with values beyond the range of F16 in both directions, and with non-finite values.
#[test]
fn activations_of_any_size() {
    let Some(device) = Device::new() else { return };
    let [k, n] = [64, 3];
    let scaled = |by: [f32; 3]| -> Vec<f32> {
        let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
        (0..k * n * 2).map(|i| number(i) * by[i / k % 3]).collect()
    };
    let large = case(DType::F16, [k, 33, n], [1, 1], Fill::Values(scaled([1e34, 1e-34, 1e5])));
    let right_large = right(&large);
    let mut values = scaled([1.0; 3]);
    (values[40], values[k + 7], values[k * 4]) = (f32::INFINITY, f32::NAN, f32::NEG_INFINITY);
    let special = case(DType::F16, [k, 33, n], [1, 1], Fill::Values(values));
    let right_special = right(&special);
    for unit in UNITS {
        let kernel = format!("f16_{unit}");
        for (got, right) in device.product(&kernel, 64, &large).chunks(33).zip(right_large.chunks(33)) {
            let error = distance(got, right).nmse;
            assert!(error < 5e-7, "{unit}: {error:e}");
        }
        let got = device.product(&kernel, 64, &special);
        let same = |(x, y): (&f32, &f32)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() < 0.01;
        assert!(got.iter().zip(&right_special).all(same), "{unit}: {got:?} instead of {right_special:?}");
    }
}
