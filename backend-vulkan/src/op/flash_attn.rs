//! FLASH_ATTN_EXT: a kernel for few tokens, which may split the positions, one for many tokens, and one for
//! many tokens on matrix units.

use super::matrix_forms::{LONGEST_ROW, MatrixForm, matrix_splits};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use crate::route::Route;
use ggml_core::DType;
use ggml_core::kernel::FlashAttnParams;
use ggml_core::precision::Precision;

/// Number of tokens up to which each has separate work-groups.
const VEC_TOKENS: u32 = 4;
/// Maximum length of the rows of k and v in the kernel for few tokens: the rows of latent attention.
const VEC_ROW: u32 = 576;
/// Row length for which [`split`](crate::device::tuning::FlashVec::split) gives the positions of a split.
const SPLIT_ROW: u32 = 128;
/// Maximum sums of values in workgroup-shared memory of that kernel.
const VEC_SUMS: u32 = 4096;
/// Maximum length of the rows of v in the kernel for many tokens.
const TILE_ROW: u32 = 512;
/// Maximum splits of the positions that a work-group can join.
const MAX_VEC_SPLITS: u32 = 64;

/// Work distribution of the kernel for few tokens, for a row length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VecShape {
    workgroup: u32,
    /// Invocations that share a row, and the chunks of eight elements of each.
    lanes: u32,
    chunks: u32,
    /// Positions that a set of these invocations processes at a time.
    keys: u32,
    /// Maximum subgroups and maximum heads of a work-group.
    subgroups: u32,
    heads: u32,
    /// Required subgroup size, if any.
    required: Option<u32>,
}

impl VecShape {
    /// Chooses the distribution for a number of positions and rows of up to `length` elements.
    fn new(profile: &Profile, length: u32, positions: u32) -> VecShape {
        let (t, (smallest, largest, required)) = (profile.tuning.flash_vec, profile.vector_lanes());
        let wanted = if positions <= t.short { 2 * t.workgroup } else { t.workgroup };
        let lanes = length.div_ceil(8).next_power_of_two().min(smallest);
        let chunks = length.div_ceil(8 * lanes);
        // Maximum of subgroups times heads.
        let most = VEC_SUMS / (8 * lanes * chunks);
        // Subgroups are whole, whatever their size: the kernel adds over all their lanes, and those of an incomplete one
        // are undefined.
        let room = (most * smallest / largest * largest).max(largest);
        let workgroup = profile.workgroup(wanted).min(room);
        let subgroups = workgroup.div_ceil(smallest);
        let heads = (most / subgroups).clamp(1, t.heads);
        // Adjacent lanes get the scores of as many positions.
        let keys = (t.keys / chunks).max(1).min(lanes);
        let keys = 1 << keys.ilog2();
        VecShape { workgroup, lanes, chunks, keys, subgroups, heads, required }
    }

    /// Returns the positions of a step.
    fn step(&self) -> u32 {
        self.workgroup / self.lanes * self.keys
    }

    /// Returns the row length that a set of invocations has room for.
    fn row(&self) -> u32 {
        8 * self.lanes * self.chunks
    }

    /// Returns the pipeline for `heads` heads and rows of `d` elements of keys and values.
    fn spec(&self, variant: &'static str, heads: u32, d: [u32; 2]) -> PipelineSpec {
        let is_whole = d == [self.row(); 2];
        let constants =
            [self.workgroup, heads, self.keys, self.lanes, self.chunks, self.subgroups, is_whole.into()];
        PipelineSpec { subgroup: self.required, ..pipeline("flash_attn_vec", variant, &constants) }
    }
}

fn tile_spec(profile: &Profile, variant: &'static str, dv: u32, aligned: bool) -> PipelineSpec {
    let t = profile.tuning.flash_tile;
    // Powers of two, so that models share pipelines.
    let quads = dv.div_ceil(4 * t.sc).next_power_of_two();
    // Positions of v that are staged at a time: usually no more than the staging memory of queries and keys
    // holds.
    let positions = if quads <= 2 { 16 } else { 8 };
    // Compilers for processors take long, and nothing there waits for memory.
    let ahead = !profile.caps.software;
    let constants = [t.workgroup, t.br, t.bc, t.sc, quads, positions, aligned.into(), ahead.into()];
    pipeline("flash_attn_tile", variant, &constants)
}

/// Returns the pipeline on matrix units and its form for rows of `d` elements of q and k, and `dv` of v, if
/// `precision` allows it and the device is to use it. `dtype`: type of keys and values.
fn matrix_spec(
    profile: &Profile,
    precision: Precision,
    dtype: DType,
    [d, dv]: [u32; 2],
) -> Option<(PipelineSpec, MatrixForm)> {
    let &(_, [units, software]) = MATRIX_VARIANTS.iter().find(|(known, _)| *known == dtype)?;
    let caps = &profile.caps;
    let usual = profile.shape_of_units().is_some_and(|shape| [shape.m, shape.n, shape.k] == [16; 3]);
    let wanted = precision == Precision::Fast && profile.uses(Route::MatrixAttention);
    let lanes = profile.matrix_lanes().filter(|lanes| [32, 64].contains(lanes))?;
    let emulated = caps.emulated_matrices;
    let sixteens = [d, dv].map(|n| n.div_ceil(16));
    let fits = |form: &MatrixForm| {
        form.subgroups() * lanes <= caps.max_invocations
            && form.shared_bytes(sixteens, dtype, emulated) <= caps.shared_bytes
    };
    let form = MatrixForm::choose(profile, d.max(dv), dtype, fits)?;
    let spec = || {
        let variant = if emulated { software } else { units };
        let MatrixForm { positions, row_subgroups, stages, .. } = form;
        let subgroups = form.subgroups();
        let begin = [subgroups * lanes, sixteens[0], sixteens[1], positions];
        let spec = if form.in_registers {
            pipeline("flash_attn_fragment", variant, &[&begin[..], &[subgroups, stages]].concat())
        } else {
            let constants = [&begin[..], &[row_subgroups, subgroups, stages]].concat();
            pipeline("flash_attn_matrix", variant, &constants)
        };
        (PipelineSpec { subgroup: caps.subgroup_control.then_some(lanes), ..spec }, form)
    };
    (usual && wanted).then(spec)
}

/// Returns true if the rows of operands are aligned for the loads of the kernel on matrix units: q to four
/// elements, keys and values to eight, or blocks at any offset (`eights`), the mask to four.
fn suits_matrices(p: &FlashAttnParams, eights: bool) -> bool {
    let mask = p.mask_type & 3 == 0 || multiples(4, &p.nbm) && multiples(4, &[p.off[3], p.kv[0]]);
    multiples(8, &p.d) && multiples(4, &p.nbq) && multiples(4, &p.off[..1]) && eights && mask && p.kv[0] >= 4
}

/// Distribution of heads and positions over work-groups in the kernel for few tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distribution {
    /// Query heads of a work-group.
    heads: u32,
    /// Splits of the positions, each with separate work-groups.
    splits: u32,
}

/// Heads that share a work-group read keys and values fewer times, but a device with idle compute units is
/// faster with more work-groups. So a work-group gets as many heads as still leave enough work-groups,
/// assuming a split wherever one is possible. Then the positions are split as often as needed.
/// `sets`: heads of keys, times tokens, times batches. `positions` of the cache.
fn distribute(profile: &Profile, shape: &VecShape, per_kv: u32, sets: u64, positions: u32) -> Distribution {
    let enough = u64::from(profile.enough_groups());
    // Longer rows need fewer positions for the same work.
    let split = profile.tuning.flash_vec.split * SPLIT_ROW / shape.row().max(SPLIT_ROW);
    let least = split.div_ceil(shape.step());
    // Multiples of the minimum split.
    let steps = positions.div_ceil(shape.step() * least);
    let groups = |shared: u32| sets * u64::from(per_kv.div_ceil(shared));
    let most = per_kv.min(shape.heads);
    let filling =
        (1..=most).rev().find(|&heads| groups(heads) * u64::from(steps.min(MAX_VEC_SPLITS)) >= enough / 2);
    // As even as possible.
    let heads = per_kv.div_ceil(per_kv.div_ceil(filling.unwrap_or(1)));
    let wanted = enough.div_ceil(groups(heads).max(1)).min(MAX_VEC_SPLITS.into()) as u32;
    // Every split, including the last, has at least one step.
    let steps = positions.div_ceil(shape.step());
    Distribution { heads, splits: steps.div_ceil(steps.div_ceil(wanted).max(least)).max(1) }
}

fn multiples(unit: u32, values: &[u32]) -> bool {
    values.iter().all(|v| v.is_multiple_of(unit))
}

/// Variants by the type of keys and values.
const VARIANTS: [(DType, &str); 4] =
    [(DType::F32, "f32"), (DType::F16, "f16"), (DType::Q8_0, "q8_0"), (DType::Q4_0, "q4_0")];

/// Variants of the kernel on matrix units: with units, and emulated. F16 cannot hold F32.
const MATRIX_VARIANTS: [(DType, [&str; 2]); 3] = [
    (DType::F16, ["f16_matrix", "f16_emulated"]),
    (DType::Q8_0, ["q8_0_matrix", "q8_0_emulated"]),
    (DType::Q4_0, ["q4_0_matrix", "q4_0_emulated"]),
];

/// Returns the dispatch of a FLASH_ATTN_EXT node. The queries are bound in place of a missing mask or missing
/// sinks; without splits, the result is bound in place of scratch memory and counters.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let dtype = c.operand(1).dtype;
    let &(_, variant) = VARIANTS
        .iter()
        .find(|(known, _)| *known == dtype)
        .ok_or_else(|| Refusal(format!("FLASH_ATTN_EXT has no Vulkan kernel for keys of {dtype}")))?;
    let p = FlashAttnParams::new(c.graph, c.node, &c.offsets())?;
    let optional = |i| if c.operands() > i { c.src(i) } else { c.src(0) };
    let operands = [c.src(0), c.src(1), c.src(2), optional(3), optional(4), c.node];
    let ([d, dv], [tokens, heads, batch], [_, heads_kv]) = (p.d, p.ne, p.kv);
    let limits = c.profile.caps.max_workgroups;
    // With splits: the sums and statistics of each row for each split, and a counter for each set that joins
    // them.
    let rows = heads as usize * tokens as usize * batch as usize;
    let work = |splits: u32, sets: u64| match splits {
        1 => [Operand::Tensor(c.node); 2],
        _ => [
            Operand::Scratch(rows * splits as usize * (dv as usize + 2) * 4),
            Operand::Counters(sets as usize * 4),
        ],
    };
    let checked = |grid: [u32; 3]| match (0..3).all(|i| grid[i] <= limits[i]) {
        true => Ok(grid),
        false => Err(Refusal(format!(
            "FLASH_ATTN_EXT of {tokens} tokens, {heads} heads needs too many work-groups"
        ))),
    };

    // Rows of blocks consist of whole quads at any offset.
    let plain = if dtype.is_quantized() { 1 } else { 3 };
    let quads =
        [p.nbq, p.nbk, p.nbv][..plain].iter().all(|nb| multiples(4, nb)) && multiples(4, &p.off[..plain]);
    let eights =
        dtype != DType::F16 || [p.nbk, p.nbv].iter().all(|nb| multiples(8, nb)) && multiples(8, &p.off[1..3]);
    let sub = c.profile.caps.subgroup;
    let exchanges = sub.shuffle && sub.ballot;
    let few =
        tokens <= VEC_TOKENS && d.max(dv) <= VEC_ROW && multiples(8, &p.d) && quads && eights && exchanges;
    let per_kv = heads / heads_kv;
    let sets = u64::from(heads_kv) * u64::from(tokens) * u64::from(batch);
    // Heads that share a work-group share a mask.
    let shared = if p.mask_ne[0] == 1 { per_kv } else { 1 };
    if few {
        let shape = VecShape::new(c.profile, d.max(dv), p.kv[0]);
        let Distribution { heads: shared, splits } =
            distribute(c.profile, &shape, shared, sets * u64::from(per_kv / shared), p.kv[0]);
        let groups = heads_kv * per_kv.div_ceil(shared);
        let grid = checked([per_kv.div_ceil(shared), heads_kv, (splits * tokens).saturating_mul(batch)])?;
        let sets = u64::from(groups) * u64::from(tokens) * u64::from(batch);
        let mut dispatch = dispatch(shape.spec(variant, shared, p.d), operands, &p, grid);
        dispatch.operands.extend(work(splits, sets));
        return Ok(vec![Dispatch { written: 3, ..dispatch }]);
    }
    if dv > TILE_ROW {
        return Err(Refusal(format!(
            "FLASH_ATTN_EXT with value rows of {dv} elements; the maximum is {TILE_ROW}"
        )));
    }
    let suits = suits_matrices(&p, eights) && tokens > VEC_TOKENS;
    if let Some((spec, form)) = matrix_spec(c.profile, c.precision, dtype, p.d).filter(|_| suits) {
        let tiles = tokens.div_ceil(form.tokens());
        let groups = u64::from(tiles) * u64::from(heads) * u64::from(batch);
        let splits = matrix_splits(c.profile, &form, groups, p.kv[0]);
        let mut dispatch =
            dispatch(spec, operands, &p, checked([tiles.saturating_mul(splits), heads, batch])?);
        dispatch.operands.extend(work(splits, groups));
        return Ok(vec![Dispatch { written: 3, ..dispatch }]);
    }
    // The result is also stored by quads.
    let aligned = quads && multiples(4, &p.d) && multiples(4, &p.off[5..]);
    let spec = tile_spec(c.profile, variant, dv, aligned);
    if spec.specialization[0] > c.profile.caps.max_invocations {
        return Err(Refusal("FLASH_ATTN_EXT needs larger work-groups than the device has".into()));
    }
    let grid = checked([tokens.div_ceil(spec.specialization[1]), heads, batch])?;
    Ok(vec![dispatch(spec, operands, &p, grid)])
}

/// Returns the pipelines of this family, for usual lengths of value rows and numbers of heads.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    for (_, variant) in VARIANTS {
        for dv in [64, 128, 256, VEC_ROW] {
            let short = profile.tuning.flash_vec.short;
            let shapes = [short, u32::MAX].map(|positions| VecShape::new(profile, dv, positions));
            let specs = shapes[usize::from(short == 0)..]
                .iter()
                .flat_map(|shape| [1, shape.heads].map(|heads| shape.spec(variant, heads, [dv; 2])));
            let sub = profile.caps.subgroup;
            all.extend(specs.filter(|_| sub.shuffle && sub.ballot));
            if dv < VEC_ROW {
                all.extend([false, true].map(|aligned| tile_spec(profile, variant, dv, aligned)));
            }
        }
    }
    for (dtype, _) in MATRIX_VARIANTS {
        let rows = [[64, 64], [128, 128], [256, 256], [LONGEST_ROW, 512]];
        let specs = rows.iter().filter_map(|&d| matrix_spec(profile, Precision::Fast, dtype, d));
        all.extend(specs.map(|(spec, _)| spec));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{ArchClass, Caps, MatrixShape, MatrixTypes, SubgroupOps};

    #[test]
    fn long_caches_are_split_and_short_ones_are_not() {
        let of = |class, per_kv, sets, positions| {
            let profile = Profile::new(Caps::imagined(class, 16));
            let shape = VecShape::new(&profile, 128, positions);
            let Distribution { heads, splits } = distribute(&profile, &shape, per_kv, sets, positions);
            (heads, splits)
        };
        let (gcn, nvidia) = (ArchClass::AmdGcn, ArchClass::Nvidia);
        assert_eq!(of(gcn, 4, 8, 32), (1, 1), "short");
        assert_eq!(of(gcn, 4, 8, 1024), (2, 4));
        assert_eq!(of(gcn, 4, 8, 131072), (4, 16), "enough");
        assert_eq!(of(nvidia, 4, 8, 256), (1, 1), "no longer than a split");
        assert_eq!(of(nvidia, 4, 8, 4096), (2, 16), "two and two heads, not three and one");
        assert_eq!(of(nvidia, 8, 1, 1 << 20), (2, 64));
        assert_eq!(of(gcn, 1, 128, 4096), (1, 1), "enough heads");
    }

    /// Checks that attention of many tokens uses matrix units where products do, in `fast`, for rows that the
    /// registers of some subgroups hold.
    #[test]
    fn matrix_units_are_used_where_wanted_and_available() {
        let shape = MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 };
        let of_type = |dtype, emulated_matrices, shape: MatrixShape, precision, d, lanes| {
            let caps = Caps {
                matrices: vec![shape],
                emulated_matrices,
                fp16: true,
                shared_bytes: 48 << 10,
                subgroup_min: lanes,
                subgroup_max: lanes,
                subgroup_default: lanes,
                subgroup: SubgroupOps { shuffle: true, ballot: true, ..SubgroupOps::default() },
                ..Caps::imagined(ArchClass::Nvidia, 16)
            };
            let spec = matrix_spec(&Profile::new(caps), precision, dtype, d);
            spec.map(|(spec, _)| (spec.variant, spec.specialization))
        };
        let of =
            |matrices, shape, precision, d, lanes| of_type(DType::F16, matrices, shape, precision, d, lanes);
        let (exact, fast, units) = (Precision::Exact, Precision::Fast, false);
        let form = |variant, constants: &[u32]| Some((variant, constants.to_vec()));
        assert_eq!(of(units, shape, fast, [128, 64], 32), form("f16_matrix", &[128, 8, 4, 32, 1, 4, 2]));
        assert_eq!(of(units, shape, fast, [40, 24], 64), form("f16_matrix", &[256, 3, 2, 32, 1, 4, 1]));
        assert_eq!(of(true, shape, fast, [64, 64], 64), form("f16_emulated", &[256, 4, 4, 32, 4, 2]));
        assert_eq!(
            of(true, shape, fast, [128, 128], 64),
            form("f16_emulated", &[256, 8, 8, 32, 4, 1]),
            "shared memory"
        );
        assert_eq!(of(units, shape, exact, [64, 64], 32), None);
        assert_eq!(of(units, shape, fast, [256, 64], 32), form("f16_matrix", &[128, 16, 4, 32, 1, 4, 1]));
        assert_eq!(of(units, shape, fast, [576, 512], 32), form("f16_matrix", &[256, 36, 32, 16, 4, 8, 1]));
        assert_eq!(of(units, shape, fast, [584, 512], 32), None);
        assert_eq!(of(units, shape, fast, [64, 64], 16), None);
        assert_eq!(of(units, MatrixShape { k: 8, ..shape }, fast, [64, 64], 32), None);
        let blocks = |dtype, d| of_type(dtype, units, shape, fast, d, 32);
        assert_eq!(blocks(DType::Q4_0, [128, 96]), form("q4_0_matrix", &[128, 8, 6, 32, 1, 4, 1]));
        assert_eq!(blocks(DType::Q8_0, [576, 512]), form("q8_0_matrix", &[256, 36, 32, 16, 4, 8, 1]));
        assert_eq!(blocks(DType::Q8_0, [256, 256]), form("q8_0_matrix", &[128, 16, 16, 32, 2, 4, 1]));
        assert_eq!(blocks(DType::F32, [64, 64]), None);
    }

    /// Checks that scores stay in registers where the device has operations on rows of matrices, if the rows are short.
    #[test]
    fn scores_stay_in_registers_where_they_can() {
        let caps = Caps {
            matrices: vec![MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 }],
            matrix_rows: true,
            fp16: true,
            shared_bytes: 48 << 10,
            subgroup_min: 32,
            subgroup_max: 32,
            subgroup_default: 32,
            subgroup: SubgroupOps { shuffle: true, ballot: true, ..SubgroupOps::default() },
            ..Caps::imagined(ArchClass::Nvidia, 16)
        };
        let profile = Profile::new(caps);
        let of = |dtype, d: [u32; 2]| {
            let (spec, form) =
                matrix_spec(&profile, Precision::Fast, dtype, d).expect("a kernel on matrix units");
            assert_eq!(form.in_registers, spec.shader == "flash_attn_fragment");
            (spec.shader, spec.specialization)
        };
        let fragment = |constants: [u32; 6]| ("flash_attn_fragment", constants.to_vec());
        assert_eq!(of(DType::F16, [64, 64]), fragment([128, 4, 4, 64, 4, 2]));
        assert_eq!(of(DType::F16, [128, 40]), fragment([128, 8, 3, 32, 4, 2]));
        assert_eq!(of(DType::Q8_0, [128, 128]), fragment([128, 8, 8, 32, 4, 1]), "shared memory");
        assert_eq!(of(DType::F16, [256, 64]).0, "flash_attn_matrix");
    }

    /// Checks that no subgroup is incomplete, of those sizes between which a driver may choose.
    #[test]
    fn subgroups_for_few_tokens_are_whole() {
        for (class, smallest, largest) in [
            (ArchClass::AmdRdna3, 32, 64),
            (ArchClass::AmdGcn, 64, 64),
            (ArchClass::Nvidia, 32, 32),
            (ArchClass::Intel, 8, 32),
        ] {
            let caps = Caps { subgroup_min: smallest, subgroup_max: largest, ..Caps::imagined(class, 16) };
            let profile = Profile::new(caps);
            for length in (8..=1024).step_by(8) {
                for positions in [1, 1 << 20] {
                    let shape = VecShape::new(&profile, length, positions);
                    assert_eq!(shape.workgroup % largest, 0, "{class:?}, {length}: {shape:?}");
                }
            }
        }
    }

    /// Checks that every split has positions and that the splits cover all positions, by the rule of the
    /// shader.
    #[test]
    fn parts_cover_the_positions() {
        let profile = Profile::new(Caps::imagined(ArchClass::AmdGcn, 16));
        for positions in (0..40_000).step_by(77) {
            for sets in [1, 3, 8, 24] {
                let shape = VecShape::new(&profile, 128, positions);
                let splits = distribute(&profile, &shape, 4, sets, positions).splits;
                let steps = positions.div_ceil(shape.step());
                let each = steps.div_ceil(splits);
                assert!(
                    each * splits >= steps && (each * (splits - 1) < steps || steps == 0),
                    "{positions} {splits}"
                );
            }
        }
    }
}
