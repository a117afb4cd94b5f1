//! Products of one input as one step: every combination of the operations fused before and after them, on
//! every kernel that computes them, compared with the unfused members on the reference.

use crate::common;

use backend_vulkan::arch::ArchClass;
use backend_vulkan::{Route, VulkanBackend, VulkanOptions};
use common::{floats, ints, open, options, values};
use ggml_core::backend::Backend;
use ggml_core::evaluate::{Contents, compare_backends, evaluate};
use ggml_core::fuse::Group;
use ggml_core::op::{Activation, Glu};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Source, TensorId};

/// The GLU of a case: of two products, or of the halves of one.
#[derive(Clone, Copy, Debug)]
enum Gate {
    None,
    Two(Glu),
    Halves(Glu),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    k: usize,
    n: usize,
    /// Rows of the matrices.
    m: &'static [usize],
    norm: bool,
    bias: bool,
    gate: Gate,
    residual: bool,
}

impl Case {
    /// Returns a case of products without fused operations.
    const fn of(dtype: DType, k: usize, n: usize, m: &'static [usize]) -> Case {
        Case { dtype, k, n, m, norm: false, bias: false, gate: Gate::None, residual: false }
    }

    fn graph(&self) -> Result<Graph, Error> {
        let mut g = Graph::new();
        let weight =
            |g: &mut Graph, name: &str, dtype, k, m| g.leaf(name, dtype, [k, m, 1, 1], Source::Weight);
        let x = g.leaf("x", DType::F32, [self.k, self.n, 1, 1], Source::Input)?;
        let mut input = x;
        if self.norm {
            let w = weight(&mut g, "norm", DType::F32, self.k, 1)?;
            let normed = g.rms_norm(x, 1e-5)?;
            input = g.mul(normed, w)?;
        }
        let mut results = Vec::new();
        for (i, &m) in self.m.iter().enumerate() {
            let a = weight(&mut g, &format!("a{i}"), self.dtype, self.k, m)?;
            let product = g.mul_mat(a, input)?;
            results.push(product);
        }
        if self.bias {
            for (i, &m) in self.m.iter().enumerate() {
                let b = weight(&mut g, &format!("bias{i}"), DType::F32, m, 1)?;
                results[i] = g.add(results[i], b)?;
            }
        }
        match self.gate {
            Gate::None => {}
            Gate::Two(glu) => results = vec![g.glu(glu, results[0], Some(results[1]))?],
            Gate::Halves(glu) => results = vec![g.glu(glu, results[0], None)?],
        }
        if self.residual {
            let r = g.leaf("r", DType::F32, [self.m[0], self.n, 1, 1], Source::Input)?;
            results = vec![g.add(r, results[0])?];
        }
        for result in results {
            g.output(result)?;
        }
        Ok(g)
    }
}

fn contents(graph: &Graph) -> Contents {
    let leaves = graph.ids().filter(|&id| graph.tensor(id).op().is_none());
    leaves.map(|id| (id, values(graph, id, -1.0, 1.0))).collect()
}

/// Returns cases with all combinations of fused operations, then lengths that are no multiple of a chunk, and
/// long ones. There are few forms of few types, because compiling for a CPU is slow.
fn cases() -> Vec<Case> {
    let silu = Glu::new(Activation::Silu);
    let swapped = Glu { swapped: true, ..Glu::new(Activation::Gelu) };
    let clamped = Glu::clamped(1.702, 3.0);
    let q8 = |k, n, m| Case::of(DType::Q8_0, k, n, m);
    let mut all = Vec::new();
    for (norm, bias) in [(false, true), (true, false), (true, true)] {
        all.push(Case { norm, bias, ..q8(160, 1, &[40, 24, 9]) });
        all.push(Case { norm, bias, gate: Gate::Two(silu), ..q8(256, 1, &[35, 35]) });
        all.push(Case { norm, bias, gate: Gate::Halves(swapped), ..q8(256, 1, &[50]) });
        all.push(Case { norm, bias, residual: true, ..Case::of(DType::F16, 67, 1, &[37]) });
    }
    all.push(q8(160, 1, &[33, 70]));
    all.push(Case { residual: true, ..q8(160, 3, &[37]) });
    all.push(Case { norm: true, bias: true, ..q8(160, 3, &[40, 24, 9]) });
    all.push(Case { gate: Gate::Halves(silu), ..Case::of(DType::F32, 36, 3, &[50]) });
    all.push(Case { gate: Gate::Two(clamped), norm: true, ..Case::of(DType::Q6_K, 512, 8, &[20, 20]) });
    all.push(Case { norm: true, ..Case::of(DType::Q4_K, 2048 + 256, 8, &[7, 5, 3]) });
    all.push(Case { norm: true, residual: true, ..Case::of(DType::Q4_K, 16384 + 512, 1, &[5]) });
    all
}

/// Returns the backends that a case runs on: the machine's own, one with the kernels of GCN, and a virtual
/// Vega, whose kernels round activations to 8 bits.
fn backends() -> Vec<VulkanBackend> {
    let gcn = VulkanOptions { arch: Some(ArchClass::AmdGcn), ..options() };
    let mut all = vec![options(), gcn];
    if cfg!(feature = "virtual") {
        all.extend(VulkanOptions::for_name("vulkan-virtual:vega20"));
    }
    all.into_iter().filter_map(open).collect()
}

#[test]
fn groups_are_one_step_and_agree_with_their_members() {
    let reference = ReferenceBackend::default();
    let mut wrong = Vec::new();
    for backend in backends() {
        for case in cases() {
            // Some devices compute only few columns without tiles.
            if case.n as u32 > backend.profile().tuning.vec_columns {
                continue;
            }
            let graph = case.graph().expect("a graph");
            let data = contents(&graph);
            for precision in [Precision::Exact, Precision::Fast] {
                let plan = Plan::fused(&graph, &backend, precision).expect("a plan");
                let joined = matches!(&plan.steps[..], [step] if matches!(step.group, Group::Products(_)));
                let single = graph.computed().count() == 1;
                if !joined && !single {
                    wrong.push(format!("{case:?} {precision:?}: not one step\n{}", plan.describe(&graph)));
                }
                for found in
                    compare_backends(&[&reference, &backend], &graph, &data, precision).expect("a run")
                {
                    if !found.agrees() {
                        wrong.push(format!("{} {case:?} {precision:?}: {found}", backend.device().arch));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// Opens a card that reads weights through workgroup-shared memory. Devices of the class with that kernel are
/// rare; a virtual Vega can execute it, and rows of fewer lanes suit it as well.
fn staged() -> Option<VulkanBackend> {
    let card = VulkanOptions::for_name("vulkan-virtual:vega20").ok().filter(|_| cfg!(feature = "virtual"))?;
    open(VulkanOptions { arch: Some(ArchClass::Nvidia), staged_weights: Some(true), ..card })
}

/// Checks long rows of one column whose weights are read through workgroup-shared memory: all types that have
/// the kernel, blocks that begin at any half-word, incomplete steps, all fused operations, and several rows
/// one after the other.
#[test]
fn weights_may_go_through_shared_memory() {
    let Some(backend) = staged() else { return };
    // If one of these is missing, another kernel computes everything; op/staged.rs tests the other
    // conditions.
    let (caps, tuning) = (&backend.profile().caps, &backend.profile().tuning);
    assert!(backend.profile().uses(Route::StagedWeights) && caps.int_dot_signed && caps.subgroup.shuffle);
    assert!(caps.subgroup_min == caps.subgroup_max && tuning.mat_vec_staged.is_some());
    let reference = ReferenceBackend::default();
    let glu = Gate::Two(Glu::new(Activation::Silu));
    let mut all = Vec::new();
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1] {
        all.push(Case::of(dtype, 1024 + 32, 1, &[67]));
    }
    for dtype in [DType::Q4_K, DType::Q5_K, DType::Q6_K] {
        all.push(Case { norm: true, ..Case::of(dtype, 4096 + 256, 1, &[40, 24, 9]) });
        all.push(Case { norm: true, bias: true, gate: glu, ..Case::of(dtype, 1024 + 256, 1, &[35, 35]) });
        all.push(Case { residual: true, ..Case::of(dtype, 1024, 1, &[33]) });
    }
    // Each work-group computes several rows of one matrix one after the other.
    all.push(Case { bias: true, ..Case::of(DType::Q6_K, 1024 + 256, 1, &[4000, 100]) });
    all.push(Case { gate: glu, ..Case::of(DType::Q8_0, 1024 + 32, 1, &[2100, 2100]) });
    let mut wrong = Vec::new();
    for case in all {
        let graph = case.graph().expect("a graph");
        let found = compare_backends(&[&reference, &backend], &graph, &contents(&graph), Precision::Fast);
        for found in found.expect("a run") {
            if !found.agrees() {
                wrong.push(format!("{case:?}: {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks that work-groups with weights in workgroup-shared memory read only their own rows: less than twice
/// the weights, because invocations without their own 16 bytes read some again, plus the column that every
/// eight rows are multiplied with.
#[test]
fn rows_that_go_through_shared_memory_are_read_once() {
    let Some(backend) = staged() else { return };
    let case = Case::of(DType::Q8_0, 4096, 1, &[67]);
    let (weights, column) = (67 * 4096 / 32 * 34, 67_u64.div_ceil(8) * 4096 * 4);
    let graph = case.graph().expect("a graph");
    evaluate(&backend, &graph, &contents(&graph), Precision::Fast).expect("a run");
    let kernels = backend.counts().expect("counters").into_iter();
    let staged = kernels.filter(|kernel| kernel.kernel.contains("staged")).flat_map(|kernel| kernel.counts);
    let read: u64 = staged.filter(|&(what, _)| what == "global_read").map(|(_, bytes)| bytes).sum();
    assert!((weights..2 * weights + column).contains(&read), "{read} bytes of {weights} and {column}");
}

/// Checks that NaN and infinity in the input reach every row of their column, and no other column.
#[test]
fn a_nan_and_an_infinity_reach_the_results() {
    for backend in backends() {
        let case = Case { norm: false, ..Case::of(DType::Q8_0, 512, 3, &[9, 6]) };
        if case.n as u32 > backend.profile().tuning.vec_columns {
            continue;
        }
        for (norm, gate) in
            [(false, Gate::None), (true, Gate::None), (true, Gate::Two(Glu::new(Activation::Silu)))]
        {
            let m: &[usize] = if matches!(gate, Gate::None) { &[9, 6] } else { &[9, 9] };
            let graph = Case { norm, gate, m, ..case }.graph().expect("a graph");
            let mut data = contents(&graph);
            let x = graph.find("x").expect("the input");
            let mut faulty = floats(&data[&x]);
            faulty[512 + 37] = f32::NAN;
            faulty[1024 + 500] = f32::INFINITY;
            data.insert(x, faulty.iter().flat_map(|v| v.to_le_bytes()).collect());
            for precision in [Precision::Exact, Precision::Fast] {
                for output in evaluate(&backend, &graph, &data, precision).expect("a run") {
                    let values = output.values().expect("F32");
                    let columns: Vec<&[f32]> = values.chunks(output.ne[0]).collect();
                    let what = format!("{} {norm} {precision:?}: {columns:?}", backend.device().arch);
                    assert!(columns[0].iter().all(|v| v.is_finite()), "{what}");
                    assert!(columns[1].iter().all(|v| v.is_nan()), "{what}");
                    // An infinity of either sign, or a NaN where the weight is zero.
                    assert!(columns[2].iter().all(|v| !v.is_finite()), "{what}");
                }
            }
        }
    }
}

/// Checks that products with different types or many columns are separate steps.
#[test]
fn what_has_no_kernel_is_not_joined() {
    let Some(backend) = open(options()) else { return };
    let steps = |build: &dyn Fn(&mut Graph, TensorId) -> Result<(), Error>, n: usize| {
        let mut graph = Graph::new();
        let x = graph.leaf("x", DType::F32, [64, n, 1, 1], Source::Input).expect("x");
        build(&mut graph, x).expect("a graph");
        Plan::fused(&graph, &backend, Precision::Exact).expect("a plan").steps.len()
    };
    let pair = |second: DType| {
        move |g: &mut Graph, x: TensorId| {
            for (name, dtype) in [("a", DType::Q8_0), ("b", second)] {
                let a = g.leaf(name, dtype, [64, 8, 1, 1], Source::Weight)?;
                let product = g.mul_mat(a, x)?;
                g.output(product)?;
            }
            Ok(())
        }
    };
    assert_eq!(steps(&pair(DType::Q8_0), 1), 1);
    assert_eq!(steps(&pair(DType::Q4_0), 1), 2);
    assert_eq!(steps(&pair(DType::Q8_0), 64), 2);
}

/// Returns a product of `n` columns with matrices of `m` rows; `a` and `b` are the outer extents of its
/// operands.
fn of_matrices([m, n]: [usize; 2], a: [usize; 2], b: [usize; 2]) -> Graph {
    let mut g = Graph::new();
    let weight = g.leaf("a", DType::F32, [4, m, a[0], a[1]], Source::Weight).expect("a");
    let x = g.leaf("b", DType::F32, [4, n, b[0], b[1]], Source::Input).expect("b");
    let product = g.mul_mat(weight, x).expect("a product");
    g.output(product).expect("an output");
    g
}

/// Checks products of more matrices than a dimension of a grid may have work-groups, as vectors and as tiles:
/// in either dimension, in both together, and with matrices of `a` for several of `b`.
#[test]
fn there_may_be_more_matrices_than_work_groups() {
    let Some(backend) = open(options()) else { return };
    let reference = ReferenceBackend::default();
    let columns = backend.profile().tuning.vec_columns as usize + 1;
    for (rows, a, b) in [
        ([2, 1], [66_000, 1], [66_000, 1]),
        ([2, 1], [1, 66_000], [1, 66_000]),
        ([2, 1], [1, 1], [3, 66_000]),
        ([2, columns], [300, 1], [300, 220]),
        ([2, columns], [1, 1], [66_000, 1]),
        ([1, 2], [330, 100], [660, 100]),
    ] {
        let graph = of_matrices(rows, a, b);
        for precision in [Precision::Exact, Precision::Fast] {
            let found = compare_backends(&[&reference, &backend], &graph, &contents(&graph), precision);
            for found in found.unwrap_or_else(|error| panic!("{rows:?} {a:?} {b:?}: {error}")) {
                assert!(found.agrees(), "{rows:?} {a:?} {b:?}: {found}");
            }
        }
    }
}

/// Checks the same for experts whose columns are computed in tiles, with few work-groups allowed.
#[test]
fn there_may_be_more_experts_than_work_groups() {
    let Some(backend) = open(VulkanOptions { max_workgroups: Some(3), ..options() }) else { return };
    let (mut graph, experts, tokens) = (Graph::new(), 7, 7 * 20);
    let a = graph.leaf("a", DType::F32, [4, 2, experts, 1], Source::Weight).expect("a");
    let b = graph.leaf("b", DType::F32, [4, 1, tokens, 1], Source::Input).expect("b");
    let ids = graph.leaf("ids", DType::I32, [1, tokens, 1, 1], Source::Input).expect("ids");
    let product = graph.mul_mat_id(a, b, ids).expect("a product");
    graph.output(product).expect("an output");
    let mut data = contents(&graph);
    data.insert(ids, ints((0..tokens).map(|token| token % experts)));
    let found = compare_backends(&[&ReferenceBackend::default(), &backend], &graph, &data, Precision::Exact);
    for found in found.expect("a run") {
        assert!(found.agrees(), "{found}");
    }
}
