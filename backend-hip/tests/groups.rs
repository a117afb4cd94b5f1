//! Products computed together, on the emulated devices: they are one step, and the result is right.

use backend_hip::{HipBackend, HipOptions, virtual_gpu};
use ggml_core::catalogue::{self, Case, CaseBuilder, Fill, Judged};
use ggml_core::op::{Activation, Glu};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Result, TensorId};

/// Returns the emulated devices whose code was built in.
fn backends() -> Vec<HipBackend> {
    let open = |target: &str| match virtual_gpu::open(target, HipOptions::default()) {
        Err(Error::Unavailable { reason, .. }) if !hip_kernels::targets().contains(&target) => {
            eprintln!("{target} skipped: {reason}");
            None
        }
        opened => Some(opened.expect("an emulated device")),
    };
    ["gfx906", "gfx900"].into_iter().filter_map(open).collect()
}

/// Runs cases on both devices under both precisions; each case must form one group.
fn agree(cases: &[Case]) {
    let reference = ReferenceBackend::default();
    let backends = backends();
    for case in cases {
        let judged = Judged::new(case.clone(), &reference).expect(&case.name);
        for backend in &backends {
            for precision in [Precision::Exact, Precision::Fast] {
                assert_eq!(catalogue::ungrouped(case, backend, precision), None);
                assert_eq!(judged.fault(backend, precision), None);
            }
        }
    }
}

/// Cases of the catalogue with these groups.
#[test]
fn groups_of_the_catalogue() {
    let ours = |case: &Case| matches!(case.group, Some("products" | "experts"));
    let cases: Vec<Case> = catalogue::cases().into_iter().filter(ours).collect();
    assert!(cases.len() > 40);
    agree(&cases);
}

/// Operations fused with products.
#[derive(Clone, Copy, Debug)]
struct Around {
    norm: bool,
    biases: bool,
    residual: bool,
    glu: Option<Glu>,
}

const NOTHING: Around = Around { norm: false, biases: false, residual: false, glu: None };

/// Builds products of `n` columns of length `k` with matrices of these rows. Their last result is checked.
fn products(dtype: DType, k: usize, n: usize, rows: &[usize], around: Around) -> Case {
    let name = format!("PRODUCTS({dtype}, k={k}, n={n}, rows={rows:?}, {around:?})");
    let mut case = Case::new(name, |g, c| build(g, c, dtype, [k, n], rows, around));
    case.group = Some("products");
    case
}

fn build(
    g: &mut Graph,
    c: &mut CaseBuilder,
    dtype: DType,
    [k, n]: [usize; 2],
    rows: &[usize],
    around: Around,
) -> Result<TensorId> {
    let unit = Fill::Uniform(-1.0, 1.0);
    let mut x = c.leaf(g, "x", DType::F32, [k, n, 1, 1], unit.clone())?;
    if around.norm {
        let weight = c.leaf(g, "norm", DType::F32, [k, 1, 1, 1], unit.clone())?;
        let normed = g.rms_norm(x, 1e-5)?;
        x = g.mul(normed, weight)?;
    }
    let mut results = Vec::new();
    for (i, &m) in rows.iter().enumerate() {
        let weight = c.leaf(g, &format!("w{i}"), dtype, [k, m, 1, 1], unit.clone())?;
        let product = g.mul_mat(weight, x)?;
        results.push(if around.biases {
            let bias = c.leaf(g, &format!("b{i}"), DType::F32, [m, 1, 1, 1], unit.clone())?;
            g.add(product, bias)?
        } else {
            product
        });
    }
    if let Some(glu) = around.glu {
        return g.glu(glu, results[0], results.get(1).copied());
    }
    let last = results[results.len() - 1];
    if !around.residual {
        return Ok(last);
    }
    let residual = c.leaf(g, "residual", DType::F32, [rows[0], n, 1, 1], unit)?;
    g.add(last, residual)
}

/// Each part with each kind of kernel: F32 through LDS and from memory, 8 bits rounded inside and before; odd
/// numbers of rows, and rows that exceed the part of a column in LDS and are no multiple of it.
#[test]
fn parts_of_groups() {
    let silu = Some(Glu::new(Activation::Silu));
    let swapped = Some(Glu { swapped: true, ..Glu::new(Activation::GeluQuick) });
    let all = Around { norm: true, biases: true, ..NOTHING };
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_K] {
        for n in [1, 2, 3, 8] {
            let k = if n == 2 { 768 } else { 1280 };
            cases.push(products(dtype, k, n, &[19, 37, 8], all));
            cases.push(products(dtype, k, n, &[21, 7], Around { biases: true, ..NOTHING }));
            cases.push(products(dtype, k, n, &[23, 23], Around { glu: silu, ..all }));
            cases.push(products(dtype, k, n, &[34], Around { glu: swapped, ..all }));
            cases.push(products(dtype, k, n, &[33], Around { residual: true, biases: true, ..NOTHING }));
            cases.push(products(dtype, k, n, &[33], Around { residual: true, norm: true, ..NOTHING }));
        }
        cases.push(products(dtype, 4352, 1, &[9, 5, 3], all));
        cases.push(products(dtype, 14848, 1, &[5, 5], Around { glu: silu, ..all }));
    }
    // Lengths that are no multiple of eight.
    cases.push(products(DType::F16, 1003, 1, &[19, 5], all));
    cases.push(products(DType::F32, 4099, 1, &[19], Around { residual: true, ..all }));
    cases.push(products(DType::BF16, 77, 4, &[19, 5], all));
    // Work-groups with several passes over rows.
    let clamped = Some(Glu::clamped(1.7, 2.0));
    cases.push(products(DType::Q4_0, 96, 1, &[9000, 8999], Around { norm: true, ..NOTHING }));
    cases.push(products(DType::Q4_0, 96, 1, &[9001, 9001], Around { glu: clamped, ..NOTHING }));
    agree(&cases);
}

/// Functions other than a product with a sigmoid stay nodes of their own, after the products.
#[test]
fn other_functions_stay_behind() {
    for backend in backends() {
        let glu = Some(Glu::new(Activation::GeluErf));
        let case = products(DType::Q8_0, 256, 1, &[40, 40], Around { glu, ..NOTHING });
        let plan = Plan::fused(case.graph.as_ref().unwrap(), &backend, Precision::Fast).unwrap();
        assert!(
            plan.steps.iter().any(|step| step.group.last() == case.node && step.group.nodes().len() == 1)
        );
        assert!(catalogue::ungrouped(&case, &backend, Precision::Fast).is_some());
    }
}
