//! MUL_MAT: mat-vec for few columns, tiles for more. Where rounding is allowed and the device multiplies bytes, the
//! same with activations in 8 bits.

use super::grid::{by_rows, launch, no_kernel, scratch, tensors};
use super::{Context, Launch, Operand, Refusal};
use crate::arch::Profile;
use crate::tuning::{Int8, TILES, Tuning};
use ggml_core::DType;
use ggml_core::kernel::MulMatParams;
use ggml_core::plan::Precision;

/// Threads of a mat-vec work-group: F32, 8 bits.
const VEC_THREADS: u32 = 128;
const INT8_VEC_THREADS: u32 = 256;

/// The kernels of a type for F32: mat-vec for one column, for each of [`ONE_COLUMN`]; for one column with the row split
/// over a work-group; for each of [`COLUMNS`]; and one for each of [`TILES`].
struct Kernels {
    /// Stem of their source.
    module: &'static str,
    /// Whether all of them are there; else those that are marked as of every type.
    all: bool,
    one_column: [&'static str; 3],
    split: &'static str,
    columns: [&'static str; 3],
    tiles: [&'static str; 4],
    int8: Int8Kernels,
}

impl Kernels {
    /// Whether the type has a variant that is or is not of every type.
    fn has(&self, of_every_type: bool) -> bool {
        self.all || of_every_type
    }
}

/// The kernels of a type for activations in 8 bits: mat-vec for each of [`INT8_VEC`], and one for each of the first
/// three of [`TILES`] (the sums of 128 x 128, in whole numbers and F32, would take all registers).
struct Int8Kernels {
    /// Stem of their source. Types that are no blocks have none.
    module: Option<&'static str>,
    /// Whether the sums of a block's products fit 16 bits.
    pairs: bool,
    vec: [&'static str; 5],
    tiles: [&'static str; 3],
}

/// A mat-vec kernel.
struct MatVec {
    columns: u32,
    /// Of a wavefront.
    rows: u32,
    of_every_type: bool,
    /// In 8 bits, whether it rounds the activations itself. Otherwise a launch before it does.
    rounds: bool,
}

const fn mat_vec(columns: u32, rows: u32, of_every_type: bool, rounds: bool) -> MatVec {
    MatVec { columns, rows, of_every_type, rounds }
}

const ONE_COLUMN: [MatVec; 3] =
    [mat_vec(1, 1, true, false), mat_vec(1, 2, false, false), mat_vec(1, 4, true, false)];
const COLUMNS: [MatVec; 3] =
    [mat_vec(2, 2, false, false), mat_vec(4, 4, true, false), mat_vec(8, 2, false, false)];
const INT8_VEC: [MatVec; 5] = [
    mat_vec(1, 4, true, true),
    mat_vec(1, 2, false, true),
    mat_vec(2, 4, false, true),
    mat_vec(4, 4, true, false),
    mat_vec(8, 4, false, false),
];

/// Kernels by the type's name in theirs; the stems of their sources; whether all are there; whether sums of products
/// in 8 bits fit 16 bits.
macro_rules! kernels {
    ($t:literal, $module:literal, $int8:expr, $all:literal, $pairs:literal) => {
        Kernels {
            module: $module,
            all: $all,
            one_column: [
                concat!("mat_vec_", $t, "_n1_r1"),
                concat!("mat_vec_", $t, "_n1_r2"),
                concat!("mat_vec_", $t, "_n1_r4"),
            ],
            split: concat!("mat_vec_", $t, "_split"),
            columns: [
                concat!("mat_vec_", $t, "_n2_r2"),
                concat!("mat_vec_", $t, "_n4_r4"),
                concat!("mat_vec_", $t, "_n8_r2"),
            ],
            tiles: [
                concat!("mat_tile_", $t, "_64x32"),
                concat!("mat_tile_", $t, "_64x64"),
                concat!("mat_tile_", $t, "_128x64"),
                concat!("mat_tile_", $t, "_128x128"),
            ],
            int8: Int8Kernels {
                module: $int8,
                pairs: $pairs,
                vec: [
                    concat!("mat_vec_rounding_", $t, "_n1_r4"),
                    concat!("mat_vec_rounding_", $t, "_n1_r2"),
                    concat!("mat_vec_rounding_", $t, "_n2_r4"),
                    concat!("mat_vec_int8_", $t, "_n4_r4"),
                    concat!("mat_vec_int8_", $t, "_n8_r4"),
                ],
                tiles: [
                    concat!("mat_tile_int8_", $t, "_64x32"),
                    concat!("mat_tile_int8_", $t, "_64x64"),
                    concat!("mat_tile_int8_", $t, "_128x64"),
                ],
            },
        }
    };
}

/// The kernels of plain types, of blocks of 32, of blocks of 256.
macro_rules! plain {
    ($t:literal) => {
        kernels!($t, "mul_mat", None, true, false)
    };
}
macro_rules! blocks_32 {
    ($t:literal, $all:literal, $pairs:literal) => {
        kernels!($t, "mul_mat_32", Some("mul_mat_int8_32"), $all, $pairs)
    };
}
macro_rules! blocks_256 {
    ($t:literal, $all:literal, $pairs:literal) => {
        kernels!($t, "mul_mat_256", Some("mul_mat_int8_256"), $all, $pairs)
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    Some(match dtype {
        DType::F32 => plain!("f32"),
        DType::F16 => plain!("f16"),
        DType::BF16 => plain!("bf16"),
        DType::Q8_0 => blocks_32!("q8_0", true, false),
        DType::Q4_0 => blocks_32!("q4_0", true, true),
        DType::Q4_1 => blocks_32!("q4_1", false, true),
        DType::Q5_0 => blocks_32!("q5_0", false, true),
        DType::Q5_1 => blocks_32!("q5_1", false, false),
        DType::IQ4_NL => blocks_32!("iq4_nl", false, false),
        DType::MXFP4 => blocks_32!("mxfp4", false, true),
        DType::Q2_K => blocks_256!("q2_k", false, true),
        DType::Q3_K => blocks_256!("q3_k", false, true),
        DType::Q4_K => blocks_256!("q4_k", true, true),
        DType::Q5_K => blocks_256!("q5_k", true, false),
        DType::Q6_K => blocks_256!("q6_k", true, true),
        DType::IQ4_XS => blocks_256!("iq4_xs", false, false),
        _ => return None,
    })
}

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = MulMatParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let dtype = c.graph.tensor(src[0]).dtype;
    let kernels = kernels(dtype).ok_or_else(|| no_kernel(c, dtype))?;
    if p.k >= 1 << 29 {
        return Err(Refusal(format!(
            "MUL_MAT of rows of {} elements: a lane's offset in a row has 32 bits",
            p.k
        )));
    }
    if c.precision == Precision::Fast
        && let Some(chosen) = choose_int8(c.profile, &kernels, &p)
    {
        return int8_launches(c, &p, &chosen);
    }
    let (kernel, groups, threads) = choose(c.profile, &kernels, &p);
    Ok(vec![launch(c, (kernels.module, kernel), tensors(&[src[0], src[1], c.node]), &p, groups, threads)?])
}

/// A product with activations in 8 bits.
#[derive(Debug, PartialEq)]
struct Int8Choice {
    module: &'static str,
    kernel: &'static str,
    groups: [u64; 3],
    threads: u32,
    rounds: bool,
}

/// The product, and before it the rounding where the kernel does not do it.
fn int8_launches(c: &Context<'_>, p: &MulMatParams, chosen: &Int8Choice) -> Result<Vec<Launch>, Refusal> {
    let src = c.graph.tensor(c.node).src();
    let product =
        |operands| launch(c, (chosen.module, chosen.kernel), operands, p, chosen.groups, chosen.threads);
    if chosen.rounds {
        return Ok(vec![product(tensors(&[src[0], src[1], c.node]))?]);
    }
    let columns = u64::from(p.n) * u64::from(p.ne2) * u64::from(p.ne3);
    let [q, scales] = scratch(c, [(columns, p.k.into()), (columns, u64::from(p.k / 32) * 4)])?;
    let mut launches = by_rows(
        c,
        ("mul_mat_int8", "quantize_int8"),
        vec![Operand::Tensor(src[1]), q, scales],
        p,
        [p.k, p.n, p.ne2, p.ne3],
        8,
    )?;
    launches[0].written = 2;
    launches.push(product(vec![Operand::Tensor(src[0]), q, scales, Operand::Tensor(c.node)])?);
    Ok(launches)
}

/// What a product in 8 bits takes; `None` where F32 is better: where [`Int8`] says so, and for mat-vec with too few
/// rows to fill the device with several of them in each wavefront, where rounding would not be shared by enough rows
/// and nothing is limited by arithmetic.
fn choose_int8(profile: &Profile, kernels: &Kernels, p: &MulMatParams) -> Option<Int8Choice> {
    let module = kernels.int8.module?;
    let tuning = Tuning::of(profile);
    let allowed = match tuning.int8 {
        Int8::None => false,
        Int8::Pairs => kernels.int8.pairs && p.n >= tuning.tile_from,
        Int8::Dot4 => true,
    };
    let (m, n, batch) = (u64::from(p.m), u64::from(p.n), u64::from(p.ne2) * u64::from(p.ne3));
    if !allowed {
        return None;
    }
    if p.n >= tuning.tile_from {
        let (i, [x, y]) = choose_tile(profile, kernels, tuning.largest_int8_tile, p);
        return Some(Int8Choice {
            module,
            kernel: kernels.int8.tiles[i],
            groups: [x, y, batch],
            threads: TILES[i].threads,
            rounds: false,
        });
    }
    let there = |v: &MatVec| kernels.has(v.of_every_type);
    let widest = INT8_VEC.iter().filter(|v| there(v)).map(|v| v.columns).max()?;
    let suits = |v: &MatVec| there(v) && v.columns >= p.n.min(widest) && fills(profile, &tuning, p, v.rows);
    let i = INT8_VEC.iter().position(suits)?;
    let MatVec { columns, rows, rounds, .. } = INT8_VEC[i];
    let waves = u64::from(INT8_VEC_THREADS / profile.wave);
    let groups = [m.div_ceil(waves * u64::from(rows)), n.div_ceil(columns.into()), batch];
    Some(Int8Choice { module, kernel: kernels.int8.vec[i], groups, threads: INT8_VEC_THREADS, rounds })
}

/// Whether a mat-vec gives the device enough wavefronts with so many rows in each.
fn fills(profile: &Profile, tuning: &Tuning, p: &MulMatParams, rows: u32) -> bool {
    let waves = u64::from(p.m.div_ceil(rows)) * u64::from(p.ne2) * u64::from(p.ne3);
    waves >= 4 * tuning.units(profile) * u64::from(tuning.vec_waves)
}

/// Kernel, work-groups, threads of a work-group.
fn choose(profile: &Profile, kernels: &Kernels, p: &MulMatParams) -> (&'static str, [u64; 3], u32) {
    let tuning = Tuning::of(profile);
    let (m, n, batch) = (u64::from(p.m), u64::from(p.n), u64::from(p.ne2) * u64::from(p.ne3));
    if p.n >= tuning.tile_from {
        let (i, [x, y]) = choose_tile(profile, kernels, tuning.largest_tile, p);
        return (kernels.tiles[i], [x, y, batch], TILES[i].threads);
    }
    let waves = u64::from(VEC_THREADS / profile.wave);
    if p.n == 1 {
        let stretch = 8 * profile.wave;
        // A row is split where rows do not fill the device and every wavefront of its work-group has something to do.
        if m * batch < 4 * tuning.units(profile) && u64::from(p.k) >= 2 * waves * u64::from(stretch) {
            return (kernels.split, [m, 1, batch], VEC_THREADS);
        }
        let suits = |v: &MatVec| {
            kernels.has(v.of_every_type) && v.rows <= tuning.vec_rows && fills(profile, &tuning, p, v.rows)
        };
        let i = ONE_COLUMN.iter().rposition(suits).unwrap_or(0);
        let rows = u64::from(ONE_COLUMN[i].rows);
        return (kernels.one_column[i], [m.div_ceil(waves * rows), 1, batch], VEC_THREADS);
    }
    let there = |v: &MatVec| kernels.has(v.of_every_type);
    let wide = p.n.min(tuning.vec_columns);
    let i = COLUMNS.iter().position(|v| there(v) && v.columns >= wide);
    let i = i.or(COLUMNS.iter().rposition(there)).unwrap_or(0);
    let MatVec { columns, rows, .. } = COLUMNS[i];
    let groups = [m.div_ceil(waves * u64::from(rows)), n.div_ceil(columns.into()), batch];
    (kernels.columns[i], groups, VEC_THREADS)
}

/// The largest tile that is not mostly empty and leaves enough work-groups; the smallest if there is none. Its number,
/// up to `largest`, and the work-groups across and down.
fn choose_tile(profile: &Profile, kernels: &Kernels, largest: usize, p: &MulMatParams) -> (usize, [u64; 2]) {
    let tuning = Tuning::of(profile);
    let there = |i: &usize| kernels.has(TILES[*i].of_every_type);
    let groups = |i: usize| [p.m.div_ceil(TILES[i].rows), p.n.div_ceil(TILES[i].columns)].map(u64::from);
    let fits = |i: &usize| {
        let [x, y] = groups(*i);
        let enough = u64::from(tuning.tile_groups) * tuning.units(profile);
        let full = p.n * 2 > TILES[*i].columns && p.m * 2 > TILES[*i].rows;
        full && x * y * u64::from(p.ne2) * u64::from(p.ne3) >= enough
    };
    // With few columns a wider tile is empty; then even too few work-groups are better than that.
    let least = if p.n <= 32 || !there(&1) { 0 } else { 1 };
    let i = (0..=largest).rev().filter(there).find(fits).unwrap_or(least);
    (i, groups(i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use crate::code::kernels::{Embedded, KernelSet, Kernels as Code};
    use ggml_core::op::mul_mat::WEIGHT_TYPES;
    use ggml_core::{Graph, Source};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn profile(target: &str) -> Profile {
        let profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        Profile { compute_units: 60, ..profile }
    }

    fn params(m: u32, n: u32, k: u32) -> MulMatParams {
        MulMatParams { m, n, k, ne2: 1, ne3: 1, ..MulMatParams::default() }
    }

    fn chosen(target: &str, dtype: DType, m: u32, n: u32, k: u32) -> (&'static str, [u64; 3]) {
        let kernels = kernels(dtype).unwrap();
        let (kernel, groups, _) = choose(&profile(target), &kernels, &params(m, n, k));
        (kernel, groups)
    }

    fn chosen_int8(
        target: &str,
        dtype: DType,
        m: u32,
        n: u32,
        k: u32,
    ) -> Option<(&'static str, [u64; 3], bool)> {
        let chosen = choose_int8(&profile(target), &kernels(dtype).unwrap(), &params(m, n, k))?;
        Some((chosen.kernel, chosen.groups, chosen.rounds))
    }

    #[test]
    fn kernels_suit_the_shape() {
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 1, 4096), ("mat_vec_q8_0_n1_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 896, 1, 896), ("mat_vec_q8_0_n1_r1", [448, 1, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 128, 1, 4096), ("mat_vec_q8_0_split", [128, 1, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 3, 4096), ("mat_vec_q8_0_n4_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx803", DType::Q8_0, 4096, 7, 4096), ("mat_vec_q8_0_n4_r4", [512, 2, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 512, 4096), ("mat_tile_q8_0_128x128", [32, 4, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 1024, 512, 1024), ("mat_tile_q8_0_64x64", [16, 8, 1]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 9, 4096), ("mat_tile_q8_0_64x32", [64, 1, 1]));
    }

    #[test]
    fn bytes_where_they_are_faster() {
        let of_906 = |m, n, k| chosen_int8("gfx906", DType::Q4_0, m, n, k);
        assert_eq!(of_906(4096, 1, 4096), Some(("mat_vec_rounding_q4_0_n1_r4", [256, 1, 1], true)));
        assert_eq!(of_906(1024, 1, 4096), Some(("mat_vec_rounding_q4_0_n1_r2", [128, 1, 1], true)));
        assert_eq!(of_906(896, 1, 896), None);
        assert_eq!(of_906(4096, 2, 4096), Some(("mat_vec_rounding_q4_0_n2_r4", [256, 1, 1], true)));
        assert_eq!(of_906(1024, 2, 4096), None);
        assert_eq!(of_906(4096, 3, 4096), Some(("mat_vec_int8_q4_0_n4_r4", [256, 1, 1], false)));
        assert_eq!(of_906(4096, 8, 4096), Some(("mat_vec_int8_q4_0_n8_r4", [256, 1, 1], false)));
        assert_eq!(of_906(4096, 512, 4096), Some(("mat_tile_int8_q4_0_128x64", [32, 8, 1], false)));
        assert_eq!(of_906(64, 64, 256), Some(("mat_tile_int8_q4_0_64x64", [1, 1, 1], false)));
        // Wavefronts of 32: twice as many rows of a work-group.
        let of_1100 = chosen_int8("gfx1100", DType::Q4_0, 4096, 8, 4096);
        assert_eq!(of_1100, Some(("mat_vec_int8_q4_0_n8_r4", [128, 1, 1], false)));
        // Pairs: tiles only, and not of types whose sums do not fit. gfx803 has neither instruction.
        let of_900 = |dtype, n| chosen_int8("gfx900", dtype, 4096, n, 4096);
        assert_eq!(of_900(DType::Q4_K, 512), Some(("mat_tile_int8_q4_k_128x64", [32, 8, 1], false)));
        assert_eq!(of_900(DType::Q4_K, 1), None);
        assert_eq!(
            (of_900(DType::Q8_0, 512), of_900(DType::Q5_K, 512), of_900(DType::F16, 512)),
            (None, None, None)
        );
        assert_eq!(chosen_int8("gfx803", DType::Q4_0, 4096, 512, 4096), None);
    }

    /// Types that have the variants of every type only.
    #[test]
    fn few_kernels_do_for_any_shape() {
        let exact = |m, n| chosen("gfx906", DType::MXFP4, m, n, 4096);
        assert_eq!(exact(4096, 1), ("mat_vec_mxfp4_n1_r4", [512, 1, 1]));
        assert_eq!(exact(1000, 1), ("mat_vec_mxfp4_n1_r1", [500, 1, 1]));
        assert_eq!(exact(4096, 2), ("mat_vec_mxfp4_n4_r4", [512, 1, 1]));
        assert_eq!(exact(4096, 8), ("mat_vec_mxfp4_n4_r4", [512, 2, 1]));
        assert_eq!(exact(64, 64), ("mat_tile_mxfp4_64x32", [1, 2, 1]));
        assert_eq!(exact(4096, 512), ("mat_tile_mxfp4_128x64", [32, 8, 1]));
        let fast = |m, n| {
            chosen_int8("gfx906", DType::MXFP4, m, n, 4096).map(|(kernel, groups, _)| (kernel, groups))
        };
        assert_eq!(fast(4096, 1), Some(("mat_vec_rounding_mxfp4_n1_r4", [256, 1, 1])));
        assert_eq!(fast(1024, 1), None);
        assert_eq!(fast(4096, 2), Some(("mat_vec_int8_mxfp4_n4_r4", [256, 1, 1])));
        assert_eq!(fast(4096, 8), Some(("mat_vec_int8_mxfp4_n4_r4", [256, 2, 1])));
        assert_eq!(fast(64, 64), Some(("mat_tile_int8_mxfp4_64x32", [1, 2, 1])));
    }

    /// Products too large for the operation catalogue take kernels that it does not meet. They are there, with the
    /// arguments that they are given.
    #[test]
    fn large_products_fit_the_code_objects() {
        // Enough for two rows of a wavefront, but not four, on the device of each family; enough for anything.
        const ROWS: [usize; 6] = [50, 1200, 2000, 3000, 5000, 16384];
        for name in Embedded.targets() {
            let target = Target::parse(name).unwrap();
            let profile = Profile::of(&target).unwrap();
            let code = Code::new(Arc::new(Embedded), &target);
            let mut met = BTreeSet::new();
            let types = WEIGHT_TYPES.iter().copied();
            let (full, few): (Vec<DType>, Vec<DType>) =
                types.filter(|t| t.is_quantized()).partition(|&t| kernels(t).unwrap().all);
            for &dtype in full.iter().chain(&few).chain([&DType::F16]) {
                for (m, n) in [1, 2, 4, 7, 9, 64, 512].iter().flat_map(|&n| ROWS.map(|m| (m, n))) {
                    let mut graph = Graph::new();
                    let a = graph.leaf("a", dtype, [4096, m, 1, 1], Source::Weight).unwrap();
                    let b = graph.leaf("b", DType::F32, [4096, n, 1, 1], Source::Input).unwrap();
                    let node = graph.mul_mat(a, b).unwrap();
                    for precision in [Precision::Exact, Precision::Fast] {
                        let context = Context { graph: &graph, node, profile: &profile, precision };
                        let launches = code.plan(&context);
                        let launches =
                            launches.unwrap_or_else(|why| panic!("{name} {dtype} {m} x {n}: {why:?}"));
                        let int8 =
                            launches.iter().any(|(launch, _)| launch.module.starts_with("mul_mat_int8"));
                        assert!(!int8 || precision == Precision::Fast, "{name} {dtype} {m} x {n}");
                        met.extend(launches.iter().map(|(launch, _)| launch.kernel));
                    }
                }
            }
            // One kernel that rounds, and of bytes: mat-vec and tiles, the tiles of types whose sums fit, none.
            let int8 = met.iter().filter(|k| k.contains("int8") || k.contains("rounding")).count();
            let fit = |types: &[DType]| types.iter().filter(|&&t| kernels(t).unwrap().int8.pairs).count();
            let most = match Tuning::of(&profile).int8 {
                Int8::Dot4 => 1 + 8 * full.len() + 4 * few.len(),
                Int8::Pairs => 1 + 3 * fit(&full) + 2 * fit(&few),
                Int8::None => 0,
            };
            assert_eq!(int8, most, "{name}: {met:?}");
        }
    }
}
