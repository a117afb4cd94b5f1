//! Matrix-vector products that read weights through workgroup-shared memory (`mat_vec_staged.glsl`):
//! supported shapes, and constants.

use super::vec_shape::{Shape, VecSpec};
use crate::device::profile::Profile;
use crate::device::tuning::Staged;
use crate::route::Route;

/// Workgroup-shared memory for sums of up to 16 subgroups, in units of 16 bytes.
const SUMS: u32 = 36;

/// Returns the kernel for a shape, if it suits the shape and the device: one column, rows of some steps whose
/// activations fit into workgroup-shared memory, subgroups of a known size.
pub(super) fn spec(profile: &Profile, shape: &Shape<'_>) -> Option<VecSpec> {
    let (caps, t) = (&profile.caps, profile.tuning.mat_vec_staged?);
    let stage = shape.weights.stage()?;
    let lanes = caps.subgroup_min;
    let able = shape.staged && shape.int8 && shape.columns == 1 && shape.k >= t.least;
    let known = profile.uses(Route::StagedWeights);
    let rows = rows(profile, shape, t);
    let fits = shared_bytes(shape, stage, rows, t.subgroups) <= u64::from(caps.shared_bytes);
    if !(able && known && fits) || profile.workgroup(t.subgroups * lanes) != t.subgroups * lanes {
        return None;
    }
    let each = rows * t.subgroups / shape.pair;
    let groups = shape.rows.div_ceil(each.into());
    let constants = vec![
        t.subgroups * lanes,
        rows,
        1,
        shape.aligned as u32,
        shape.even as u32,
        t.subgroups,
        t.subgroups,
        chunk(shape.k, stage / rows),
        profile.tuning.vec_quads,
    ];
    Some(VecSpec {
        variant: shape.weights.vec_variant("staged"),
        constants,
        rows: each,
        columns: 1,
        subgroup: None,
        passes: groups.div_ceil(profile.units() * u64::from(t.of_unit)).min(u64::from(u32::MAX)) as u32,
    })
}

/// Returns the rows of a subgroup: fewer if there would be too few work-groups.
fn rows(profile: &Profile, shape: &Shape<'_>, t: Staged) -> u32 {
    let mut rows = t.rows.max(shape.pair);
    let groups = |rows: u32| shape.rows * u64::from(shape.pair) / u64::from(rows * t.subgroups);
    while groups(rows) < profile.units() * 3 / 4 && rows > shape.pair {
        rows /= 2;
    }
    rows
}

/// Returns the activations in workgroup-shared memory, rounded up to whole steps.
fn chunk(k: u32, step: u32) -> u32 {
    k.next_multiple_of(step)
}

/// Returns an upper bound on the kernel's workgroup-shared memory in bytes (`stage.glsl`).
fn shared_bytes(shape: &Shape<'_>, stage: u32, rows: u32, subgroups: u32) -> u64 {
    let step = stage / rows;
    let (block, bytes) = (shape.weights.dtype.block() as u32, shape.weights.dtype.block_bytes() as u32);
    let of_row = (step / block * bytes).div_ceil(16) + 1;
    let chunk = u64::from(chunk(shape.k, step));
    16 * (u64::from(SUMS + subgroups * rows * of_row) + chunk / 64 + chunk / 16)
}

#[cfg(test)]
mod tests {
    use super::super::weights::WEIGHTS;
    use super::*;
    use crate::arch::{ArchClass, Caps};
    use shaders::ShaderId;

    fn profile(shared_bytes: u32) -> Profile {
        Profile::new(Caps {
            subgroup_min: 32,
            subgroup_max: 32,
            shared_views: true,
            shared_bytes,
            compute_units: Some(132),
            ..Caps::imagined(ArchClass::Nvidia, 16)
        })
    }

    /// Checks that the module's own size is at most the computed one, and that rows of all lengths are
    /// computed by no more work-groups than the device runs at a time.
    #[test]
    fn shared_memory_is_no_more_than_was_counted() {
        let profile = profile(48 << 10);
        let mut kernels = 0;
        for weights in WEIGHTS.iter().filter(|w| w.stage().is_some()) {
            for (k, rows, pair) in [(4096, 14336, 1), (16384, 16384, 1), (2048, 40, 1), (14336, 4096, 2)] {
                let shape = Shape {
                    weights,
                    columns: 1,
                    rows,
                    k,
                    pair,
                    aligned: true,
                    even: true,
                    int8: true,
                    staged: true,
                };
                let Some(spec) = spec(&profile, &shape) else { continue };
                kernels += 1;
                let groups = rows.div_ceil(u64::from(spec.rows * spec.passes));
                assert!(groups <= 2 * 132 && spec.rows > 0, "{spec:?}");
                let shader = ShaderId::find("mul_mat_vec", spec.variant).unwrap();
                let constants = spec.of_products(0, 1);
                let pairs: Vec<(u32, u32)> = (0..).zip(constants).collect();
                let interface = shaders::reflect::reflect(shader.words().unwrap()).unwrap();
                let bytes = interface.shared_bytes(&pairs).unwrap();
                let counted = shared_bytes(&shape, weights.stage().unwrap(), spec.constants[1], 8);
                assert!(bytes <= counted && counted <= 48 << 10, "{spec:?}: {bytes} {counted}");
            }
        }
        assert!(kernels > 20, "{kernels}");
    }

    #[test]
    fn other_devices_and_shapes_take_the_other_kernel() {
        let weights = WEIGHTS.iter().find(|w| w.stage().is_some()).unwrap();
        let usual = Shape {
            weights,
            columns: 1,
            rows: 4096,
            k: 4096,
            pair: 1,
            aligned: true,
            even: true,
            int8: true,
            staged: true,
        };
        assert!(spec(&profile(48 << 10), &usual).is_some());
        assert!(spec(&profile(16 << 10), &usual).is_none(), "too little shared memory");
        for shape in [
            Shape { columns: 2, ..usual },
            Shape { k: 256, ..usual },
            Shape { int8: false, ..usual },
            Shape { staged: false, ..usual },
        ] {
            assert!(spec(&profile(48 << 10), &shape).is_none(), "{shape:?}");
        }
        let amd =
            Profile { tuning: crate::device::tuning::Tuning::of(ArchClass::AmdGcn), ..profile(64 << 10) };
        assert!(spec(&amd, &usual).is_none());
    }
}
