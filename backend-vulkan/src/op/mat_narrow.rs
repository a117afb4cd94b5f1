//! Products with few columns on matrix units (`mul_mat_narrow.comp`): the weights are read and decoded once for all columns.

use super::grid::cover;
use super::vec_shape::MATRICES;
use super::weights::{WEIGHTS, Weights, aligned, even};
use super::{Context, Dispatch, Operand, Refusal};
use crate::device::profile::Profile;
use crate::device::tuning::{Fragment, Narrow};
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::kernel::ProductsParams;
use ggml_core::precision::Precision;

/// Rows of a tile.
const ROWS: u32 = 16;
/// Columns of the kernels, and the multiple of elements along k to which columns are padded.
const COLUMNS: [u32; 7] = [8, 16, 24, 32, 40, 48, 64];
const PADDED: u64 = 256;
/// Invocations that round a column.
const ROUNDING: u32 = 512;

/// The kernel of a product: of which device, type and number of columns.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    weights: &'static Weights,
    variant: &'static str,
    columns: u32,
    lanes: u32,
    tuning: Narrow,
    /// Weights of a row in a step.
    step: u32,
}

impl Kernel {
    /// Returns the kernel for `n` columns of rows of `k` elements, if it suits the device and the type.
    fn of(profile: &Profile, precision: Precision, dtype: DType, n: u32) -> Option<Kernel> {
        let weights = Weights::of(dtype)?;
        let (stage, tuning) = (weights.stage()?, profile.narrow()?);
        let fragment = if profile.caps.emulated_matrices { Fragment::Emulated } else { Fragment::Matrix };
        let variant = weights.narrow_variant(fragment)?;
        if precision != Precision::Fast || !(tuning.from..=tuning.most).contains(&n) {
            return None;
        }
        let columns = COLUMNS.into_iter().find(|&columns| columns >= n)?;
        let lanes = profile.matrix_lanes()?;
        let kernel = Kernel { weights, variant, columns, lanes, tuning, step: stage / ROWS };
        kernel.fitting(profile)
    }

    /// Returns the kernel with as many subgroups as the device has room for.
    fn fitting(mut self, profile: &Profile) -> Option<Kernel> {
        let (lanes, shared) = (self.lanes, self.shared_bytes());
        let room = |subgroups: u32| {
            subgroups * shared <= profile.caps.shared_bytes
                && profile.workgroup(subgroups * lanes) == subgroups * lanes
        };
        while !room(self.tuning.subgroups) {
            self.tuning.subgroups /= 2;
            if self.tuning.subgroups == 0 {
                return None;
            }
        }
        Some(self)
    }

    /// Returns the half-words of a row in a step.
    fn step_halves(&self) -> u32 {
        let (block, bytes) = (self.weights.dtype.block() as u32, self.weights.dtype.block_bytes() as u32);
        self.step / block * bytes / 2
    }

    /// Returns the workgroup-shared memory of a subgroup in bytes (`stage.glsl`).
    fn shared_bytes(&self) -> u32 {
        let halves = self.step_halves();
        let of_row =
            if self.weights.dtype.block_bytes().is_multiple_of(16) { halves / 8 } else { (halves + 14) / 8 };
        let emulated = if self.variant.ends_with("_emulated") { ROWS * 2 + self.columns * 4 } else { 0 };
        (ROWS * (of_row | 1) + emulated).max(self.columns * 4) * 16
    }

    /// Distributes tiles of rows.
    fn split(&self, profile: &Profile, p: &ProductsParams) -> Split {
        let glu = p.parts & ProductsParams::GLU != 0;
        let rows = if glu { ROWS / 2 } else { ROWS };
        let used = p.m.iter().filter(|&&m| m > 0).count();
        let matrices: Vec<u32> = match used {
            2.. if !glu => p.m[..used].to_vec(),
            _ => vec![p.rows[1] - p.rows[0]],
        };
        let tiles: u64 = matrices.iter().map(|m| u64::from(m.div_ceil(rows))).sum();
        let tiles = tiles * u64::from(p.ne2);
        let subgroups = u64::from(self.tuning.subgroups);
        let slots = profile.units() * u64::from(self.tuning.of_unit) * subgroups;
        let steps = u64::from(p.k.div_ceil(self.step));
        // Steps that the last subgroup takes, and as much as one for each pass to add sums.
        let cost = |split: u64| (tiles * split).div_ceil(slots) * (steps.div_ceil(split) + 1);
        let splits = (0..=subgroups.ilog2()).map(|log2| 1u64 << log2).filter(|&split| split <= steps);
        let split = splits.min_by_key(|&split| (cost(split), split)).unwrap_or(1);
        let passes = (tiles * split).div_ceil(slots).clamp(1, 1 << 16) as u32;
        let each = u64::from(rows * passes) * subgroups / split;
        let groups = matrices.iter().map(|&m| u64::from(m).div_ceil(each)).sum();
        Split { split: split as u32, passes, groups }
    }

    /// Returns the weights of a row that a lane decodes, and whether they are runs that are not adjacent (`weights_k.glsl`).
    fn piece(&self) -> [u32; 2] {
        let of_256 = self.weights.dtype.block() == 256;
        [if of_256 { 64 } else { 32 }, (self.weights.dtype == DType::Q6_K).into()]
    }

    /// Returns the pipeline of products.
    fn pipeline(&self, split: &Split, even: bool, parts: u32, used: u32) -> PipelineSpec {
        let subgroups = self.tuning.subgroups;
        let of_work =
            [subgroups * self.lanes, self.columns, even.into(), subgroups, split.split, split.passes];
        let specialization = [&of_work[..], &[0, 0, 0, parts, used]].concat();
        PipelineSpec { shader: "mul_mat_narrow", variant: self.variant, specialization, subgroup: None }
    }

    /// Returns the pipeline that rounds their columns.
    fn rounding(&self, profile: &Profile, aligned: bool, norm: bool) -> PipelineSpec {
        let [span, runs] = self.piece();
        let constants =
            [profile.workgroup(ROUNDING), aligned.into(), 0, self.columns, norm.into(), span, runs];
        let variant = if profile.reduction() == "lds" { "lds_narrow" } else { "subgroup_narrow" };
        super::pipeline("mul_mat_round", variant, &constants)
    }
}

/// The distribution of tiles: subgroups that share one, tiles of such a team in sequence, and work-groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    split: u32,
    passes: u32,
    groups: u64,
}

/// Returns true if products of `n` columns with weights of this type use the kernels.
pub(super) fn takes(profile: &Profile, precision: Precision, dtype: DType, n: u32) -> bool {
    Kernel::of(profile, precision, dtype, n).is_some()
}

/// Returns two dispatches: one rounds the columns, with the norm if there is one, and one computes the products. `None` if
/// other kernels are used. `operands`: those of the matrix-vector kernel.
pub(super) fn plan(
    c: &Context<'_>,
    dtype: DType,
    operands: &[Operand],
    p: &ProductsParams,
) -> Option<Result<Vec<Dispatch>, Refusal>> {
    let kernel = Kernel::of(c.profile, c.precision, dtype, p.n)?;
    let columns = u64::from(kernel.columns) * u64::from(p.ne2);
    let bytes = columns * u64::from(p.k).next_multiple_of(PADDED) * 2 + u64::from(p.n) * u64::from(p.ne2) * 4;
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= c.window_limit())?;
    Some(dispatches(c, &kernel, (operands, bytes), p))
}

fn dispatches(
    c: &Context<'_>,
    kernel: &Kernel,
    (operands, bytes): (&[Operand], usize),
    p: &ProductsParams,
) -> Result<Vec<Dispatch>, Refusal> {
    let has = |part: u32| p.parts & part != 0;
    let rounded = Operand::Scratch(bytes);
    let (x, norm) = (operands[MATRICES], operands[MATRICES + 1]);
    let wide = aligned(DType::F32, (p.off1, &p.nb1), (p.off1, &p.nb1)) && p.offw.is_multiple_of(4);
    let ProductsParams { k, n, ne2, nb1, off1, offw, eps, .. } = *p;
    let of_columns = ProductsParams { k, n, ne2, nb1, off1, offw, eps, ..ProductsParams::default() };
    let round = Dispatch {
        pipeline: kernel.rounding(c.profile, wide, has(ProductsParams::NORM)),
        operands: vec![x, norm, rounded],
        written: 1,
        params: bytemuck::bytes_of(&of_columns).to_vec(),
        grid: grid(c, p, [n.into(), ne2.into(), 1])?,
    };
    // In place of operands that do not exist, the columns are bound.
    let mut operands = operands.to_vec();
    let exists = |i: usize| match i {
        3 | 4 => false,
        5..=7 => has(ProductsParams::BIAS << (i - 5)),
        8 => has(ProductsParams::RESIDUAL),
        _ => true,
    };
    operands.iter_mut().enumerate().filter(|&(i, _)| !exists(i)).for_each(|(_, operand)| *operand = rounded);
    let parts = p.parts & !ProductsParams::NORM;
    let used = p.m.iter().filter(|&&m| m > 0).count() as u32;
    let split = kernel.split(c.profile, p);
    // A step of Q6_K is a block: an odd number of half-words.
    let whole_words = kernel.step_halves().is_multiple_of(2);
    let even = whole_words && even(kernel.weights.dtype, &p.off0, &p.nb0);
    // Above 65535 groups of rows the shader continues in the second dimension of the grid.
    let across = split.groups.min(65535);
    let product = Dispatch {
        pipeline: kernel.pipeline(&split, even, parts, used),
        operands,
        written: MATRICES,
        params: bytemuck::bytes_of(&ProductsParams { parts, ..*p }).to_vec(),
        grid: grid(c, p, [across, split.groups.div_ceil(across.max(1)), ne2.into()])?,
    };
    Ok(vec![round, product])
}

fn grid(c: &Context<'_>, p: &ProductsParams, groups: [u64; 3]) -> Result<[u32; 3], Refusal> {
    let grid = cover(c.profile, groups);
    match grid.once {
        1 => Ok(grid.groups),
        _ => {
            Err(Refusal(format!("MUL_MAT of {} columns, {} matrices needs too many work-groups", p.n, p.ne2)))
        }
    }
}

/// Returns the pipelines of this family: one matrix without fused operations, and with a GLU.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    let split = Split { split: 1, passes: 1, groups: 1 };
    for (weights, n) in WEIGHTS.iter().flat_map(|weights| COLUMNS.map(|n| (weights, n))) {
        let Some(kernel) = Kernel::of(profile, Precision::Fast, weights.dtype, n) else { continue };
        let split = Split { split: kernel.tuning.subgroups, ..split };
        all.extend(
            [(0, 1), (ProductsParams::GLU, 2)]
                .map(|(parts, used)| kernel.pipeline(&split, true, parts, used)),
        );
        all.extend([false, true].map(|norm| kernel.rounding(profile, true, norm)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{ArchClass, Caps, MatrixShape, MatrixTypes, SubgroupOps};
    use crate::route::Route;
    use shaders::ShaderId;

    fn profile(arch: ArchClass, shared_bytes: u32, shapes: &[u32]) -> Profile {
        let shape = |&n: &u32| MatrixShape { m: 16, n, k: 16, types: MatrixTypes::F16F32 };
        Profile::new(Caps {
            subgroup_min: 32,
            subgroup_max: 32,
            subgroup_default: 32,
            subgroup: SubgroupOps { arithmetic: true, shuffle: true, ballot: true },
            shared_views: true,
            fp16: true,
            shared_bytes,
            matrices: shapes.iter().map(shape).collect(),
            compute_units: Some(132),
            ..Caps::imagined(arch, 16)
        })
    }

    #[test]
    fn few_columns_use_matrix_units_that_have_the_shape() {
        let card = profile(ArchClass::Nvidia, 48 << 10, &[16, 8]);
        let taken = |profile: &Profile, precision, n| takes(profile, precision, DType::Q4_K, n);
        let counts = [2, 3, 16, 64, 65].map(|n| taken(&card, Precision::Fast, n));
        assert_eq!(counts, [false, true, true, true, false]);
        assert!(!taken(&card, Precision::Exact, 8));
        assert!(
            !takes(&card, Precision::Fast, DType::F16, 8) && !takes(&card, Precision::Fast, DType::IQ4_XS, 8)
        );
        for other in [
            profile(ArchClass::Nvidia, 48 << 10, &[16]),
            profile(ArchClass::AmdRdna3, 64 << 10, &[16, 8]),
            Profile { routes: card.routes.without(Route::MatrixColumns), ..card.clone() },
        ] {
            assert!(!taken(&other, Precision::Fast, 8), "{other:?}");
        }
    }

    /// Checks that the module's own size is the computed one, and that smaller devices get fewer subgroups.
    #[test]
    fn shared_memory_is_what_was_counted() {
        let mut kernels = 0;
        for (shared_bytes, emulated) in [(48 << 10, false), (16 << 10, false), (32 << 10, true)] {
            let mut profile = profile(ArchClass::Nvidia, shared_bytes, &[16, 8]);
            profile.caps.emulated_matrices = emulated;
            for (weights, n) in WEIGHTS.iter().flat_map(|weights| COLUMNS.map(|n| (weights, n))) {
                let Some(kernel) = Kernel::of(&profile, Precision::Fast, weights.dtype, n) else { continue };
                kernels += 1;
                let split = Split { split: 1, passes: 1, groups: 1 };
                let spec = kernel.pipeline(&split, true, 0, 1);
                let shader = ShaderId::find(spec.shader, spec.variant).unwrap();
                let constants: Vec<(u32, u32)> = (0..).zip(spec.specialization).collect();
                let interface = shaders::reflect::reflect(shader.words().unwrap()).unwrap();
                let bytes = interface.shared_bytes(&constants).unwrap();
                assert_eq!(bytes, u64::from(kernel.tuning.subgroups * kernel.shared_bytes()), "{kernel:?}");
                assert!(bytes <= shared_bytes.into(), "{kernel:?}");
            }
        }
        assert!(kernels > 100, "{kernels}");
    }

    #[test]
    fn tiles_are_dealt_out() {
        let profile = profile(ArchClass::Nvidia, 48 << 10, &[16, 8]);
        let of = |k, m: [u32; 3], ne2, parts| {
            let kernel = Kernel::of(&profile, Precision::Fast, DType::Q4_K, 8).unwrap();
            let rows = [0, if parts == ProductsParams::GLU { m[0] } else { m.iter().sum() }];
            let p = ProductsParams { k, n: 8, m, rows, ne2, r2: 1, parts, ..ProductsParams::default() };
            let Split { split, passes, groups } = kernel.split(&profile, &p);
            (split, passes, groups)
        };
        // All subgroups share a tile if there are few; each matrix starts with a work-group of its own.
        assert_eq!(of(4096, [4096, 0, 0], 1, 0), (8, 1, 256));
        assert_eq!(of(4096, [4096, 1024, 1024], 1, 0), (4, 1, 192));
        assert_eq!(of(4096, [14336, 14336, 0], 1, ProductsParams::GLU), (1, 1, 224));
        assert_eq!(of(14336, [4096, 0, 0], 1, 0), (8, 1, 256));
        assert_eq!(of(4096, [128256, 0, 0], 1, 0), (1, 4, 251));
        // No more subgroups than steps.
        assert_eq!(of(256, [64, 0, 0], 1, 0), (1, 1, 1));
        assert_eq!(of(4096, [64, 0, 0], 32, 0), (8, 1, 4));
    }
}
