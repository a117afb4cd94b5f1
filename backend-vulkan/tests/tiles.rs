//! Products with many columns, and attention of many tokens, on matrix units. They run on the units of the
//! machine's device, and emulated on a virtual Vega, which also detects races in workgroup-shared memory. The
//! virtual Vega also runs products by dot products of bytes.

#[path = "common/catalogue.rs"]
#[allow(dead_code)]
mod agreement;
mod common;

use agreement::judged;
use backend_vulkan::{Matrices, SharedTiles, VulkanBackend, VulkanOptions};
use common::{floats, open, options, values};
use ggml_core::backend::Backend;
use ggml_core::catalogue::{self, Case, Judged};
use ggml_core::evaluate::{Contents, compare_backends, evaluate};
#[cfg(feature = "virtual")]
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
#[cfg(feature = "virtual")]
use ggml_core::routes::{Policy, Routes};
use ggml_core::{DType, Error, Graph, Source};

fn backends() -> Vec<VulkanBackend> {
    let units = VulkanOptions {
        matrices: Some(Matrices::Units),
        shared_tiles: Some(SharedTiles::Small),
        ..options()
    };
    let has_units = |backend: &VulkanBackend| backend.profile().matrix_shape().is_some();
    let mut all: Vec<VulkanBackend> = open(units).filter(has_units).into_iter().collect();
    if cfg!(feature = "virtual") {
        let card = VulkanOptions::for_name("vulkan-virtual:vega20").expect("a name");
        // Without matrix units it has dot products of bytes.
        let forms = [Matrices::Emulated, Matrices::Off]
            .map(|form| VulkanOptions { matrices: Some(form), ..card.clone() });
        all.extend(forms.into_iter().filter_map(open));
    }
    all
}

/// Returns the cases of the catalogue with products of enough columns for tiles or for matrix units, alone and joined with
/// other operations, and with attention of as many tokens.
fn cases() -> Vec<Case> {
    let extent = |case: &Case, i: usize| case.graph.as_ref().map_or(0, |graph| graph.tensor(case.node).ne[i]);
    let product = |case: &Case| case.name.starts_with("MUL_MAT") && extent(case, 1) > 2;
    let attention = |case: &Case| case.name.starts_with("FLASH_ATTN_EXT") && extent(case, 2) > 4;
    let joined = |case: &Case| case.name.starts_with("PRODUCTS") && extent(case, 1) > 2;
    let wanted = |case: &Case| match case.group {
        None => product(case) || attention(case),
        Some(_) => joined(case),
    };
    catalogue::cases().into_iter().filter(wanted).collect()
}

#[test]
fn the_catalogue_agrees_with_the_reference() {
    let all = cases();
    assert!(all.len() > 40, "{}", all.len());
    let all = judged(all);
    let mut wrong = Vec::new();
    for backend in backends() {
        let fault = |case: &Judged| case.fault(&backend, Precision::Fast);
        wrong.extend(all.iter().filter_map(fault).map(|why| format!("{}: {why}", backend.device().name)));
    }
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

/// Builds a product of `batch` matrices.
fn product(dtype: DType, [k, m, n, batch]: [usize; 4]) -> Result<Graph, Error> {
    let mut g = Graph::new();
    let a = g.leaf("a", dtype, [k, m, 1, 1], Source::Weight)?;
    let x = g.leaf("x", DType::F32, [k, n, batch, 1], Source::Input)?;
    let result = g.mul_mat(a, x)?;
    g.output(result)?;
    Ok(g)
}

fn contents(graph: &Graph) -> Contents {
    let leaves = graph.ids().filter(|&id| graph.tensor(id).op().is_none());
    leaves.map(|id| (id, values(graph, id, -1.0, 1.0))).collect()
}

/// Checks products with enough matrices that every tile size is used on each device, with full tiles and with
/// tiles that are mostly outside the result.
#[test]
fn tiles_of_all_sizes_agree() {
    let reference = ReferenceBackend::default();
    for backend in backends() {
        for (dtype, extents) in [
            (DType::Q8_0, [64, 65, 66, 46]),
            (DType::Q4_K, [256, 65, 33, 46]),
            (DType::F16, [71, 40, 48, 50]),
            (DType::F16, [128, 128, 128, 1]),
        ] {
            let graph = product(dtype, extents).expect("a graph");
            let data = contents(&graph);
            let all = compare_backends(&[&reference, &backend], &graph, &data, Precision::Fast);
            for found in all.expect("a run") {
                assert!(found.agrees(), "{} {dtype} {extents:?}: {found}", backend.device().name);
            }
        }
    }
}

/// Checks the larger tiles that are measured on cards, with products of enough matrices for them.
#[cfg(feature = "virtual")]
#[test]
fn larger_tiles_agree() {
    let reference = ReferenceBackend::default();
    for (candidate, form, constants) in [
        ("vulkan.byte-tiles=64x128:8x4", Matrices::Off, "[256, 64, 128, 32, 8, 4,"),
        ("vulkan.byte-tiles=64x128:8x8", Matrices::Off, "[128, 64, 128, 32, 8, 8,"),
        ("vulkan.matrix-tiles=128x128", Matrices::Emulated, ", 128, 128, 64, 32, 64,"),
    ] {
        let card = VulkanOptions::for_name("vulkan-virtual:vega20").expect("a name");
        let routes = Some(Routes::by(Policy::All).with(candidate, true));
        let Some(backend) = open(VulkanOptions { matrices: Some(form), routes, ..card }) else { return };
        let used = backend.device().candidates.iter().find(|other| other.name == candidate);
        assert!(used.is_some_and(|used| used.used), "{candidate}");
        // The tile of units is mostly outside the result: it takes 512 of them to be chosen.
        let small = [(DType::Q8_0, [64, 65, 65, 512])];
        let products = [(DType::Q8_0, [256, 66, 130, 33]), (DType::Q4_K, [256, 66, 130, 33])];
        for &(dtype, extents) in if form == Matrices::Off { &products[..] } else { &small } {
            let graph = product(dtype, extents).expect("a graph");
            let plan = Plan::fused(&graph, &backend, Precision::Fast).expect("a plan");
            let kernels = backend.kernels(&graph, &plan).expect("kernels");
            assert!(kernels.iter().any(|kernel| kernel.contains(constants)), "{candidate}: {kernels:?}");
            let data = contents(&graph);
            let all = compare_backends(&[&reference, &backend], &graph, &data, Precision::Fast);
            for found in all.expect("a run") {
                assert!(found.agrees(), "{candidate} {dtype} {extents:?}: {found}");
            }
        }
    }
}

/// Checks that columns too large for F16 are scaled, whether the first step or a later one contains the large
/// values, and that NaN and infinity affect their own column only.
#[test]
fn large_and_wrong_activations() {
    let reference = ReferenceBackend::default();
    for backend in backends() {
        for dtype in [DType::Q8_0, DType::F16] {
            let graph = product(dtype, [512, 40, 33, 1]).expect("a graph");
            let x = graph.find("x").expect("the input");
            let with = |changed: &[(usize, f32)]| {
                let mut data = contents(&graph);
                let mut faulty = floats(&data[&x]);
                changed.iter().for_each(|&(at, value)| faulty[at] = value);
                data.insert(x, faulty.iter().flat_map(|v| v.to_le_bytes()).collect());
                data
            };
            for changed in [&[(3, 7e4)][..], &[(512 + 300, -2e5), (512 + 400, 3e6)]] {
                let all = compare_backends(&[&reference, &backend], &graph, &with(changed), Precision::Fast);
                for found in all.expect("a run") {
                    assert!(found.agrees(), "{} {dtype} {changed:?}: {found}", backend.device().name);
                }
            }
            let data = with(&[(512 + 37, f32::NAN), (1024 + 500, f32::INFINITY)]);
            for output in evaluate(&backend, &graph, &data, Precision::Fast).expect("a run") {
                let values = output.values().expect("F32");
                for (i, column) in values.chunks(40).enumerate() {
                    let wrong = column.iter().filter(|v| !v.is_finite()).count();
                    assert_eq!(wrong, if [1, 2].contains(&i) { 40 } else { 0 }, "column {i}");
                }
            }
        }
    }
}

/// Checks tiles shared between five work-groups, on emulated units and on real ones if requested: parts of a
/// single tile, tiles left after whole rounds, and rounds with none left. Two products of one input in
/// sequence use the same memory for parts and counters, and their results are the same in each run.
#[test]
fn work_groups_share_tiles() {
    let reference = ReferenceBackend::default();
    for backend in backends() {
        for (dtype, [k, m, n]) in
            [(DType::F16, [1000, 60, 50]), (DType::Q8_0, [352, 190, 130]), (DType::Q4_K, [256, 320, 65])]
        {
            let mut g = product(dtype, [k, m, n, 1]).expect("a graph");
            let x = g.find("x").expect("the input");
            let other = g.leaf("other", dtype, [k, m + 3, 1, 1], Source::Weight).expect("weights");
            let result = g.mul_mat(other, x).expect("a product");
            g.output(result).expect("an output");
            let data = contents(&g);
            let all = compare_backends(&[&reference, &backend], &g, &data, Precision::Fast);
            for found in all.expect("a run") {
                assert!(found.agrees(), "{} {dtype} {k} {m} {n}: {found}", backend.device().name);
            }
            let run = || {
                let outputs = evaluate(&backend, &g, &data, Precision::Fast).expect("a run");
                outputs.iter().map(|output| output.values().expect("F32")).collect::<Vec<_>>()
            };
            assert!(run() == run(), "{} {dtype}: not the same twice", backend.device().name);
        }
    }
}
