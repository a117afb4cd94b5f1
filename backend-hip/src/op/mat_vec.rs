//! Matrix-vector products: up to three matrices of one type times a few columns, fused with the operations
//! before and after.

use super::grid::{by_rows, launch, scratch};
use super::types::of_type;
use super::{Context, Launch, Operand, Refusal};
use crate::arch::{Family, Profile};
use crate::tuning::{Int8, Tuning};
use bytemuck::{Pod, Zeroable};
use ggml_core::DType;
use ggml_core::kernel::{MatVecParams, MulMatParams, ProductsParams};
use ggml_core::precision::Precision;

/// Threads of a work-group.
const THREADS: u32 = 256;
/// Elements that a lane processes at a time, and elements of a column in LDS: as F32, in 8 bits, in 8 bits on
/// NVIDIA's processors.
const EIGHT: u32 = 8;
const CHUNK: [u32; 3] = [4096, 14336, 16384];
/// LDS for weights in flight (`mat_vec_ring.h`), the row length from which that is faster, and the row length
/// if a wavefront makes several passes. An H200 reads 4096 rows of 4096 and 14336 elements in 0.89 and 0.79
/// of the time, 8192 rows of 2048 in 1.02 (Q4_K). A model of 0.5 billion weights, whose output layer is
/// 151936 rows of 896, gave 1237 tokens a second with it and, in another run, 1208 without.
const RING_BYTES: u32 = 76 << 10;
const RING_FROM: u32 = 4096;
const RING_FROM_PASSES: u32 = 512;
/// Maximum number of passes of a wavefront: a work-group then has at least 64 rows, which makes the cost of
/// preparing the activations small.
const MOST_PASSES: u32 = 4;

/// Longest row with which no work-groups follow others: what a work-group does besides its rows, such as to read its
/// arguments and to round the activations, takes as long as a pass. On gfx906 a Q4_0 row of 896 takes 7.9 instructions
/// a weight in two passes and 8.7 in one (4864 rows).
const SHORT_ROW: u32 = 1024;

/// Kernels of a type: one for each of [`EXACT`] and of [`INT8`], and the stems of their sources. Types
/// without blocks have none for 8 bits.
struct Kernels {
    modules: [Option<&'static str>; 2],
    /// True if all variants exist; else only those marked `of_every_type`.
    all: bool,
    names: [[&'static str; 4]; 2],
    /// Kernel for 8 bits and one column that copies weights to LDS, used if the code has asynchronous copies.
    ring: Option<&'static str>,
}

/// Variant of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Variant {
    columns: u32,
    /// Rows per wavefront.
    rows: u32,
    of_every_type: bool,
    /// True if the kernel loads the columns into LDS and rounds and normalises them on the way. Otherwise a
    /// separate launch does that before.
    stages: bool,
}

const fn variant(columns: u32, rows: u32, of_every_type: bool, stages: bool) -> Variant {
    Variant { columns, rows, of_every_type, stages }
}

const EXACT: [Variant; 4] = [
    variant(1, 4, true, true),
    variant(2, 2, false, false),
    variant(4, 4, true, false),
    variant(8, 2, false, false),
];
const INT8: [Variant; 4] = [
    variant(1, 4, true, true),
    variant(2, 4, false, true),
    variant(4, 4, true, false),
    variant(8, 2, false, false),
];

/// Builds the kernels of a type from its name in the kernels' names, the stems of their sources, and a flag
/// if all variants exist.
macro_rules! kernels {
    ($t:literal, $module:literal, $int8:expr, $all:literal, $ring:expr) => {
        Kernels {
            modules: [Some($module), $int8],
            all: $all,
            ring: $ring,
            names: [
                [
                    concat!("mat_vec_", $t, "_n1_r4"),
                    concat!("mat_vec_", $t, "_n2_r2"),
                    concat!("mat_vec_", $t, "_n4_r4"),
                    concat!("mat_vec_", $t, "_n8_r2"),
                ],
                [
                    concat!("mat_vec_rounding_", $t, "_n1_r4"),
                    concat!("mat_vec_rounding_", $t, "_n2_r4"),
                    concat!("mat_vec_int8_", $t, "_n4_r4"),
                    concat!("mat_vec_int8_", $t, "_n8_r2"),
                ],
            ],
        }
    };
}

/// Builds the kernels of a type by its kind.
macro_rules! entry {
    (blocks_32 $t:literal $all:literal) => {
        kernels!($t, "mul_mat_32", Some("mul_mat_int8_32"), $all, Some(concat!("mat_vec_ring_", $t)))
    };
    (wide_32 $t:literal $all:literal) => {
        entry!(blocks_32 $t $all)
    };
    (blocks_256 $t:literal $all:literal) => {
        kernels!($t, "mul_mat_256", Some("mul_mat_int8_256"), $all, Some(concat!("mat_vec_ring_", $t)))
    };
    (low $t:literal $all:literal) => {
        kernels!($t, "mul_mat_low", Some("mul_mat_int8_low"), $all, None)
    };
    ($plain:ident $t:literal $all:literal) => {
        kernels!($t, "mul_mat", None, $all, None)
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    of_type!(dtype, entry)
}

/// Operation to compute. The parameters `begin`, `passes` and `split` are chosen by [`plan`].
#[derive(Clone, Debug)]
pub(super) struct MatVec {
    pub(super) dtype: DType,
    pub(super) products: ProductsParams,
    pub(super) more: MatVecParams,
    /// Planes of the results.
    pub(super) planes: u64,
    pub(super) weights: Vec<Operand>,
    pub(super) input: Operand,
    /// Weight of the norm.
    pub(super) norm: Option<Operand>,
    pub(super) biases: [Option<Operand>; 3],
    pub(super) residual: Option<Operand>,
    /// Indices of the experts, and their weights in a sum.
    pub(super) experts: [Option<Operand>; 2],
    pub(super) results: Vec<Operand>,
}

/// Parameters of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct VecParams {
    pub(super) products: ProductsParams,
    pub(super) more: MatVecParams,
}

/// Plans the launches; `None` if there are no kernels for the type.
pub(super) fn plan(c: &Context<'_>, work: &MatVec) -> Option<Result<Vec<Launch>, Refusal>> {
    let kernels = kernels(work.dtype)?;
    Some(launches(c, work, &kernels))
}

fn launches(c: &Context<'_>, work: &MatVec, kernels: &Kernels) -> Result<Vec<Launch>, Refusal> {
    let p = &work.products;
    let choice = choose(c.profile, kernels, work, c.precision);
    let (mut input, mut products) = ([work.input, work.norm.unwrap_or(work.input)], *p);
    let mut launches = Vec::new();
    let rounded = choice.int8 && !choice.variant.stages;
    if rounded {
        let columns = u64::from(p.n) * work.planes;
        let [q, scales] = scratch(c, [(columns, p.k.into()), (columns, u64::from(p.k / 32) * 4)])?;
        launches = match work.norm {
            Some(norm) => normalize(c, "normalize_int8", vec![work.input, norm, q, scales], p)?,
            None => round(c, work, [q, scales])?,
        };
        launches[0].written = 2;
        input = [q, scales];
    } else if let Some(norm) = work.norm.filter(|_| !choice.variant.stages) {
        let [y] = scratch(c, [(p.n.into(), u64::from(p.k) * 4)])?;
        launches = normalize(c, "normalize_f32", vec![work.input, norm, y], p)?;
        products.nb1 = [p.k, 0];
        input = [y, y];
    }
    if work.norm.is_some() && !choice.variant.stages {
        products.parts &= !ProductsParams::NORM;
    }
    let operands = operands(work, input);
    let params = VecParams { products, more: choice.more };
    let last = launch(c, (choice.module, choice.kernel), operands, &params, choice.groups, THREADS)?;
    launches.push(Launch { written: 3, lds_bytes: choice.lds_bytes, ..last });
    Ok(launches)
}

/// Returns the operands of a launch; `input`: the input and the norm's weight, or rounded columns and their scales.
pub(super) fn operands(work: &MatVec, input: [Operand; 2]) -> Vec<Operand> {
    let any = work.weights[0];
    let three = |list: &[Operand], any| [0, 1, 2].map(|i| list.get(i).copied().unwrap_or(any));
    let mut operands = three(&work.weights, any).to_vec();
    operands.extend(input);
    operands.extend(work.biases.map(|bias| bias.unwrap_or(any)));
    operands.push(work.residual.unwrap_or(any));
    operands.extend(work.experts.map(|of| of.unwrap_or(any)));
    operands.extend(three(&work.results, work.results[0]));
    operands
}

/// Returns the launch before the product that computes the norm.
fn normalize(
    c: &Context<'_>,
    kernel: &'static str,
    operands: Vec<Operand>,
    p: &ProductsParams,
) -> Result<Vec<Launch>, Refusal> {
    Ok(vec![launch(c, ("mul_mat_int8", kernel), operands, p, [p.n.into(), 1, 1], THREADS)?])
}

/// Returns the launch before the product that rounds the activations.
fn round(c: &Context<'_>, work: &MatVec, [q, scales]: [Operand; 2]) -> Result<Vec<Launch>, Refusal> {
    let p = &work.products;
    let ne2 = p.ne2.max(1);
    let ne3 = (work.planes / u64::from(ne2)) as u32;
    let of_input = MulMatParams {
        k: p.k,
        n: p.n,
        ne2,
        ne3,
        nb1: [p.nb1[0], p.nb1[1], work.more.nb13],
        ..MulMatParams::default()
    };
    let rounding = ("mul_mat_int8", "quantize_int8");
    by_rows(c, rounding, vec![work.input, q, scales], &of_input, [p.k, p.n, ne2, ne3], 8)
}

/// Chosen kernel and grid.
#[derive(Debug, PartialEq)]
struct Choice {
    int8: bool,
    variant: Variant,
    module: &'static str,
    kernel: &'static str,
    more: MatVecParams,
    groups: [u64; 3],
    /// LDS of the launch in bytes.
    lds_bytes: u32,
}

/// Chooses 8 bits if rounding is allowed and the device multiplies bytes. If the rounding needs a launch of
/// its own, it also requires enough rows to make arithmetic the limit.
fn choose(profile: &Profile, kernels: &Kernels, work: &MatVec, precision: Precision) -> Choice {
    let tuning = Tuning::of(profile);
    let allowed = precision == Precision::Fast && tuning.int8 == Int8::Dot4;
    let int8 = |variant: &Variant| variant.stages || waves(work, variant) >= enough(profile, &tuning);
    let bytes = kernels.modules[1].filter(|_| allowed).and_then(|module| {
        let i = suitable(kernels, &INT8, work.products.n, 8);
        int8(&INT8[i]).then_some((module, 1, i))
    });
    let of_f32 = || {
        let module = kernels.modules[0].unwrap_or_default();
        (module, 0, suitable(kernels, &EXACT, work.products.n, tuning.vec_columns))
    };
    let (module, form, i) = bytes.unwrap_or_else(of_f32);
    let variant = [EXACT, INT8][form][i];
    let nvidia = usize::from(form == 1 && profile.family == Family::Nvidia);
    let (more, groups) = shape(profile, work, &variant, CHUNK[form + nvidia] / variant.columns);
    let least = if more.passes > 1 { RING_FROM_PASSES } else { RING_FROM };
    let long = work.products.k >= least;
    let ring = kernels.ring.filter(|_| form == 1 && variant.columns == 1 && profile.copies && long);
    Choice {
        int8: form == 1,
        variant,
        module,
        kernel: ring.unwrap_or(kernels.names[form][i]),
        more,
        groups,
        lds_bytes: if ring.is_some() { RING_BYTES } else { 0 },
    }
}

/// Returns the index of the narrowest variant that covers `n` columns, else of the widest.
fn suitable(kernels: &Kernels, variants: &[Variant; 4], n: u32, most: u32) -> usize {
    let there = |v: &Variant| (kernels.all || v.of_every_type) && v.columns <= most;
    let wide = variants.iter().position(|v| there(v) && v.columns >= n);
    wide.or(variants.iter().rposition(there)).unwrap_or(0)
}

/// Returns the rows of each matrix to distribute over wavefronts, and the rows per wavefront.
fn rows(work: &MatVec, variant: &Variant) -> (Vec<u32>, u32) {
    let p = &work.products;
    match p.parts & ProductsParams::GLU {
        0 => (p.m.into_iter().filter(|&m| m > 0).collect(), variant.rows),
        _ => (vec![p.m[0]], variant.rows / 2),
    }
}

/// Returns the number of wavefronts with rows of their own.
fn waves(work: &MatVec, variant: &Variant) -> u64 {
    let (matrices, each) = rows(work, variant);
    let columns = work.products.n.div_ceil(variant.columns);
    matrices.iter().map(|m| u64::from(m.div_ceil(each))).sum::<u64>() * u64::from(columns) * work.planes
}

/// Returns the number of wavefronts that keep the device busy.
pub(super) fn enough(profile: &Profile, tuning: &Tuning) -> u64 {
    4 * tuning.units(profile) * u64::from(tuning.vec_waves)
}

/// Distributes rows. With few rows, wavefronts share them. With many rows and a whole column in LDS, a
/// work-group processes several sets of rows one after the other.
fn shape(profile: &Profile, work: &MatVec, variant: &Variant, chunk: u32) -> (MatVecParams, [u64; 3]) {
    let tuning = Tuning::of(profile);
    let p = &work.products;
    let (matrices, each) = rows(work, variant);
    let waves = waves(work, variant);
    let of_group = THREADS / profile.wave;
    let mut split = 0;
    while waves << split < enough(profile, &tuning)
        && 1 << split < of_group
        && p.k >= (2 * EIGHT * profile.wave) << split
    {
        split += 1;
    }
    let of_pass = (of_group >> split) * each;
    let groups = |rows: u32| matrices.iter().map(|m| m.div_ceil(rows)).collect::<Vec<u32>>();
    let columns = u64::from(p.n.div_ceil(variant.columns));
    let all = groups(of_pass).iter().map(|&n| u64::from(n)).sum::<u64>() * columns * work.planes;
    let enough = u64::from(tuning.vec_groups) * tuning.units(profile);
    let rounds_up = tuning.vec_at_once || p.k <= SHORT_ROW;
    let spare = if rounds_up { all.div_ceil(enough) } else { all / enough };
    let whole = variant.stages && p.k <= chunk && work.more.summed == 0;
    // If all work-groups run at the same time, none has to follow them.
    let most = if tuning.vec_at_once { u32::MAX } else { MOST_PASSES };
    let passes = if whole { spare.clamp(1, most.into()) as u32 } else { 1 };
    let groups = groups(of_pass * passes);
    let begin = [1, 2].map(|i| if i < groups.len() { groups[..i].iter().sum() } else { u32::MAX });
    let more = MatVecParams { begin, passes, split, ..work.more };
    (more, [groups.iter().map(|&n| u64::from(n)).sum(), columns, work.planes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use ggml_core::TensorId;

    fn chosen(target: &str, dtype: DType, m: [u32; 3], n: u32, k: u32, parts: u32, fast: bool) -> Choice {
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        let profile = Profile { compute_units: 60, ..profile };
        let any = Operand::Tensor(TensorId(0));
        let work = MatVec {
            dtype,
            products: ProductsParams { k, n, m, ne2: 1, r2: 1, parts, ..ProductsParams::default() },
            more: MatVecParams::default(),
            planes: 1,
            weights: vec![any],
            input: any,
            norm: None,
            biases: [None; 3],
            residual: None,
            experts: [None; 2],
            results: vec![any],
        };
        let precision = if fast { Precision::Fast } else { Precision::Exact };
        choose(&profile, &kernels(dtype).unwrap(), &work, precision)
    }

    #[test]
    fn kernels_suit_the_shape() {
        let of = |target: &str, dtype, m, n, fast| {
            let choice = chosen(target, dtype, [m, 0, 0], n, 4096, 0, fast);
            (choice.kernel, choice.groups)
        };
        let exact = |m, n| of("gfx906", DType::Q8_0, m, n, false);
        assert_eq!(exact(4096, 1), ("mat_vec_q8_0_n1_r4", [256, 1, 1]));
        assert_eq!(exact(4096, 2), ("mat_vec_q8_0_n2_r2", [512, 1, 1]));
        assert_eq!(exact(4096, 3), ("mat_vec_q8_0_n4_r4", [256, 1, 1]));
        assert_eq!(exact(4096, 7), ("mat_vec_q8_0_n8_r2", [512, 1, 1]));
        assert_eq!(of("gfx803", DType::Q8_0, 4096, 7, false), ("mat_vec_q8_0_n4_r4", [256, 2, 1]));
        let fast = |m, n| of("gfx906", DType::Q8_0, m, n, true);
        assert_eq!(fast(4096, 1), ("mat_vec_rounding_q8_0_n1_r4", [256, 1, 1]));
        assert_eq!(fast(4096, 2), ("mat_vec_rounding_q8_0_n2_r4", [256, 1, 1]));
        assert_eq!(fast(4096, 3), ("mat_vec_int8_q8_0_n4_r4", [256, 1, 1]));
        assert_eq!(fast(4096, 8), ("mat_vec_int8_q8_0_n8_r2", [512, 1, 1]));
        // Too few rows for a separate launch that rounds.
        assert_eq!(fast(512, 8), exact(512, 8));
        // Types with the `of_every_type` variants only.
        let few = |n, fast| of("gfx906", DType::MXFP4, 4096, n, fast);
        assert_eq!(few(2, false), ("mat_vec_mxfp4_n4_r4", [256, 1, 1]));
        assert_eq!(few(8, false), ("mat_vec_mxfp4_n4_r4", [256, 2, 1]));
        assert_eq!(few(2, true), ("mat_vec_int8_mxfp4_n4_r4", [256, 1, 1]));
        // Wavefronts of 32: twice as many rows per work-group. Without dot4, and for plain types, F32.
        let on_1100 = of("gfx1100", DType::Q4_0, 4096, 8, true);
        assert_eq!(on_1100, ("mat_vec_int8_q4_0_n8_r2", [256, 1, 1]));
        assert_eq!(of("gfx900", DType::Q4_K, 4096, 1, true), ("mat_vec_q4_k_n1_r4", [256, 1, 1]));
        assert_eq!(of("gfx906", DType::F16, 4096, 1, true), ("mat_vec_f16_n1_r4", [256, 1, 1]));
    }

    /// Weights are copied to LDS if rows are long or a wavefront makes several passes; not in PTX for earlier
    /// processors.
    #[test]
    fn weights_are_copied_where_that_pays() {
        let of = |target: &str, dtype, m, k| {
            let choice = chosen(target, dtype, [m, 0, 0], 1, k, 0, true);
            (choice.kernel, choice.lds_bytes, choice.more.passes)
        };
        let direct = "mat_vec_rounding_q4_k_n1_r4";
        assert_eq!(of("sm_80", DType::Q4_K, 2048, 4096), ("mat_vec_ring_q4_k", RING_BYTES, 1));
        assert_eq!(of("sm_80", DType::Q4_K, 2048, 2048), (direct, 0, 1));
        assert_eq!(of("sm_80", DType::Q4_K, 1 << 16, 2048), ("mat_vec_ring_q4_k", RING_BYTES, 18));
        assert_eq!(of("sm_80", DType::Q4_K, 1 << 16, 256), (direct, 0, 18));
        assert_eq!(of("sm_70", DType::Q4_K, 2048, 4096), (direct, 0, 1));
        assert_eq!(of("gfx906", DType::Q4_K, 2048, 4096), (direct, 0, 1));
        assert_eq!(of("sm_80", DType::F16, 2048, 4096), ("mat_vec_f16_n1_r4", 0, 1));
        assert_eq!(of("sm_80", DType::TQ2_0, 2048, 4096), ("mat_vec_rounding_tq2_0_n1_r4", 0, 1));
    }

    #[test]
    fn rows_are_dealt_out() {
        let of = |m, k, parts| {
            let Choice { more, groups, .. } = chosen("gfx906", DType::Q8_0, m, 1, k, parts, true);
            (more.split, more.passes, more.begin, groups[0])
        };
        const NONE: u32 = u32::MAX;
        // Few rows: two or four wavefronts share a row, but no more than have work.
        assert_eq!(of([1024, 0, 0], 4096, 0), (1, 1, [NONE; 2], 128));
        assert_eq!(of([128, 0, 0], 4096, 0), (2, 1, [NONE; 2], 32));
        assert_eq!(of([128, 0, 0], 896, 0), (0, 1, [NONE; 2], 8));
        // Many rows: several passes, unless a column is longer than its part of LDS.
        assert_eq!(of([32768, 0, 0], 4096, 0), (0, 4, [NONE; 2], 512));
        assert_eq!(of([32768, 0, 0], 16384, 0), (0, 1, [NONE; 2], 2048));
        // Short rows: no more work-groups than run at the same time.
        assert_eq!(of([4864, 0, 0], 1024, 0), (0, 2, [NONE; 2], 152));
        assert_eq!(of([4864, 0, 0], 1280, 0), (0, 1, [NONE; 2], 304));
        // Each matrix starts with a work-group of its own.
        assert_eq!(of([4096, 1024, 1000], 4096, 0), (0, 1, [256, 320], 383));
        // Gate and up: half as many rows of each.
        assert_eq!(of([4096, 4096, 0], 4096, ProductsParams::GLU), (0, 2, [NONE; 2], 256));
    }
}
