//! Checks that the catalogue has cases for all kernels of products and attention, on devices of each class. A
//! kernel without a case is never compared.

use super::{Context, ExactWindows, all_pipelines, plan_group};
use crate::arch::{ArchClass, Caps, Matrices, MatrixShape, MatrixTypes, SubgroupOps};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use crate::route::Route;
use ggml_core::catalogue::{self, Case};
use ggml_core::fuse::Group;
use ggml_core::precision::Precision;
use ggml_core::routes::Table;
use std::collections::BTreeSet;

/// A kernel by its shader and variant. The kernels of MUL_MAT_ID read each type of weights like those of
/// MUL_MAT, so only the part of their variant after the type is used.
type Kernel = (&'static str, &'static str);

fn kernel(spec: &PipelineSpec) -> Kernel {
    let form = spec.variant.rsplit_once('_').map_or(spec.variant, |(_, form)| form);
    (spec.shader, if spec.shader.starts_with("mul_mat_id") { form } else { spec.variant })
}

/// Returns a device with all optional features of its class; dot products of bytes only if `bytes` is true, operations on
/// rows of matrices only if `rows` is.
fn device(arch: ArchClass, matrices: Matrices, [bytes, rows]: [bool; 2]) -> Profile {
    let lanes = if matches!(arch, ArchClass::AmdGcn | ArchClass::AmdCdna) { 64 } else { 32 };
    let profile = Profile::new(Caps {
        subgroup_min: lanes,
        subgroup_max: lanes,
        subgroup_default: lanes,
        subgroup: SubgroupOps { arithmetic: true, shuffle: true, ballot: true },
        shared_bytes: 64 << 10,
        fp16: true,
        int8: true,
        int16: true,
        shared_views: true,
        int_dot: bytes,
        int_dot_signed: bytes,
        matrices: [16, 8].map(|n| MatrixShape { m: 16, n, k: 16, types: MatrixTypes::F16F32 }).to_vec(),
        matrix_rows: rows,
        emulated_matrices: matrices == Matrices::Emulated,
        ..Caps::imagined(arch, 64)
    });
    match matrices {
        Matrices::Off => {
            let routes = profile.routes.without(Route::MatrixProducts).without(Route::MatrixAttention);
            Profile { routes, ..profile }
        }
        Matrices::Units | Matrices::Emulated => profile,
    }
}

/// Returns the kernels that compute the node of a case.
fn kernels(profile: &Profile, case: &Case) -> Vec<Kernel> {
    let Ok(graph) = &case.graph else { return Vec::new() };
    let plan = |precision| {
        let context = Context { graph, node: case.node, profile, precision, windows: &ExactWindows };
        plan_group(&context, &Group::Node(case.node)).unwrap_or_default()
    };
    let dispatches = [Precision::Exact, Precision::Fast].into_iter().flat_map(plan);
    dispatches.map(|d| kernel(&d.pipeline)).collect()
}

#[test]
fn the_catalogue_takes_every_kernel_of_products_and_attention() {
    let cases = catalogue::cases();
    let chosen = |kernel: &Kernel| ["mul_mat", "flash_attn"].iter().any(|begin| kernel.0.starts_with(begin));
    let mut missing = BTreeSet::new();
    for arch in ArchClass::ALL {
        let forms = [Matrices::Off, Matrices::Units, Matrices::Emulated];
        let devices =
            forms.into_iter().flat_map(|form| [false, true].map(|more| device(arch, form, [more; 2])));
        let (mut all, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for profile in devices {
            all.extend(all_pipelines(&profile).iter().map(kernel));
            taken.extend(cases.iter().flat_map(|case| kernels(&profile, case)));
        }
        let not_taken = all.difference(&taken).filter(|kernel| chosen(kernel));
        missing.extend(not_taken.map(|&(shader, variant)| format!("{shader} {variant} ({arch})")));
    }
    assert!(missing.is_empty(), "no case takes {missing:#?}");
}

/// Checks that each route changes the kernels of some case: otherwise no check of it compares anything.
#[test]
fn every_route_is_taken_by_a_case() {
    let cases = catalogue::cases();
    let pipelines = |profile: &Profile, case: &Case| -> Vec<PipelineSpec> {
        let Ok(graph) = &case.graph else { return Vec::new() };
        let plan = |precision| {
            let context = Context { graph, node: case.node, profile, precision, windows: &ExactWindows };
            plan_group(&context, &Group::Node(case.node)).unwrap_or_default()
        };
        let dispatches = [Precision::Exact, Precision::Fast].into_iter().flat_map(plan);
        dispatches.map(|d| d.pipeline).collect()
    };
    // It changes how pipelines are made, not which.
    let mechanisms = [Route::ParallelCompilation];
    for &route in Route::ALL.iter().filter(|route| !mechanisms.contains(route)) {
        let taken = ArchClass::ALL.iter().any(|&arch| {
            let mut profile = device(arch, Matrices::Units, [true; 2]);
            profile.caps.small_shared_tiles = true;
            let without = Profile { routes: profile.routes.without(route), ..profile.clone() };
            profile.uses(route) && cases.iter().any(|c| pipelines(&profile, c) != pipelines(&without, c))
        });
        assert!(taken, "no case takes {route:?}");
    }
}

/// Checks that products of the catalogue share tiles if requested, on a device where by default only large
/// products do.
#[test]
fn the_catalogue_has_products_with_shared_tiles() {
    let mut profile = device(ArchClass::Nvidia, Matrices::Units, [false; 2]);
    let cases = catalogue::cases();
    let routes = profile.routes;
    let mut sharing = |is_used: bool, small: bool| {
        profile.routes = if is_used { routes } else { routes.without(Route::SharedTiles) };
        profile.caps.small_shared_tiles = small;
        let shares = |case: &&Case| {
            let Ok(graph) = &case.graph else { return false };
            let precision = Precision::Fast;
            let context =
                Context { graph, node: case.node, profile: &profile, precision, windows: &ExactWindows };
            let plan = plan_group(&context, &Group::Node(case.node)).unwrap_or_default();
            // The number of work-groups is the 14th constant.
            plan.iter().any(|d| d.pipeline.shader == "mul_mat_tile" && d.pipeline.specialization.len() == 14)
        };
        cases.iter().filter(shares).count()
    };
    assert_eq!([sharing(false, true), sharing(true, false)], [0, 0]);
    assert!(sharing(true, true) > 4, "{}", sharing(true, true));
}
