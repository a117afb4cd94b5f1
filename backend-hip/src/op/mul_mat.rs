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

/// The kernels of a type: mat-vec for one column with 1, 2, 4 rows of a wavefront; for one column with the row split
/// over a work-group; for 2, 4 and 8 columns; and one for each of [`TILES`].
struct Kernels {
    one_column: [&'static str; 3],
    split: &'static str,
    columns: [&'static str; 3],
    tiles: [&'static str; 4],
}

/// Rows of a wavefront of `one_column`, columns and rows of `columns`.
const ONE_COLUMN: [u32; 3] = [1, 2, 4];
const COLUMNS: [(u32, u32); 3] = [(2, 2), (4, 4), (8, 2)];

/// The kernels of a type for activations in 8 bits: mat-vec for each of [`INT8_VEC`], and one for each of the first
/// three of [`TILES`] (the sums of 128 x 128, in whole numbers and F32, would take all registers).
struct Int8Kernels {
    vec: [&'static str; 5],
    tiles: [&'static str; 3],
}

/// A mat-vec kernel for activations in 8 bits.
struct Int8Vec {
    columns: u32,
    rows: u32,
    /// Whether it rounds the activations itself. Otherwise a launch before it does.
    rounds: bool,
}

const INT8_VEC: [Int8Vec; 5] = [
    Int8Vec { columns: 1, rows: 4, rounds: true },
    Int8Vec { columns: 1, rows: 2, rounds: true },
    Int8Vec { columns: 2, rows: 4, rounds: true },
    Int8Vec { columns: 4, rows: 4, rounds: false },
    Int8Vec { columns: 8, rows: 4, rounds: false },
];

macro_rules! kernels {
    ($t:literal) => {
        Kernels {
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
        }
    };
}

macro_rules! int8_kernels {
    ($t:literal) => {
        Int8Kernels {
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
        }
    };
}

fn kernels(dtype: DType) -> Option<Kernels> {
    Some(match dtype {
        DType::F32 => kernels!("f32"),
        DType::F16 => kernels!("f16"),
        DType::BF16 => kernels!("bf16"),
        DType::Q8_0 => kernels!("q8_0"),
        DType::Q4_0 => kernels!("q4_0"),
        DType::Q6_K => kernels!("q6_k"),
        _ => return None,
    })
}

fn int8_kernels(dtype: DType) -> Option<Int8Kernels> {
    Some(match dtype {
        DType::Q8_0 => int8_kernels!("q8_0"),
        DType::Q4_0 => int8_kernels!("q4_0"),
        DType::Q6_K => int8_kernels!("q6_k"),
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
        && let Some(chosen) = choose_int8(c.profile, dtype, &p)
    {
        return int8_launches(c, &p, &chosen);
    }
    let (kernel, groups, threads) = choose(c.profile, &kernels, &p);
    Ok(vec![launch(c, ("mul_mat", kernel), tensors(&[src[0], src[1], c.node]), &p, groups, threads)?])
}

/// A product with activations in 8 bits.
#[derive(Debug, PartialEq)]
struct Int8Choice {
    kernel: &'static str,
    groups: [u64; 3],
    threads: u32,
    rounds: bool,
}

/// The product, and before it the rounding where the kernel does not do it.
fn int8_launches(c: &Context<'_>, p: &MulMatParams, chosen: &Int8Choice) -> Result<Vec<Launch>, Refusal> {
    const MODULE: &str = "mul_mat_int8";
    let src = c.graph.tensor(c.node).src();
    let product = |operands| launch(c, (MODULE, chosen.kernel), operands, p, chosen.groups, chosen.threads);
    if chosen.rounds {
        return Ok(vec![product(tensors(&[src[0], src[1], c.node]))?]);
    }
    let columns = u64::from(p.n) * u64::from(p.ne2) * u64::from(p.ne3);
    let [q, scales] = scratch(c, [(columns, p.k.into()), (columns, u64::from(p.k / 32) * 4)])?;
    let mut launches = by_rows(
        c,
        (MODULE, "quantize_int8"),
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
fn choose_int8(profile: &Profile, dtype: DType, p: &MulMatParams) -> Option<Int8Choice> {
    let kernels = int8_kernels(dtype)?;
    let tuning = Tuning::of(profile);
    let allowed = match tuning.int8 {
        Int8::None => false,
        Int8::Pairs => dtype != DType::Q8_0 && p.n >= tuning.tile_from,
        Int8::Dot4 => true,
    };
    let (m, n, batch) = (u64::from(p.m), u64::from(p.n), u64::from(p.ne2) * u64::from(p.ne3));
    if !allowed {
        return None;
    }
    if p.n >= tuning.tile_from {
        let (i, [x, y]) = choose_tile(profile, &tuning, tuning.largest_int8_tile, p);
        return Some(Int8Choice {
            kernel: kernels.tiles[i],
            groups: [x, y, batch],
            threads: TILES[i].threads,
            rounds: false,
        });
    }
    let i = INT8_VEC.iter().position(|v| v.columns >= p.n && fills(profile, &tuning, p, v.rows))?;
    let Int8Vec { columns, rows, rounds } = INT8_VEC[i];
    let waves = u64::from(INT8_VEC_THREADS / profile.wave);
    let groups = [m.div_ceil(waves * u64::from(rows)), n.div_ceil(columns.into()), batch];
    Some(Int8Choice { kernel: kernels.vec[i], groups, threads: INT8_VEC_THREADS, rounds })
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
        let (i, [x, y]) = choose_tile(profile, &tuning, tuning.largest_tile, p);
        return (kernels.tiles[i], [x, y, batch], TILES[i].threads);
    }
    let waves = u64::from(VEC_THREADS / profile.wave);
    if p.n == 1 {
        let stretch = 8 * profile.wave;
        // A row is split where rows do not fill the device and every wavefront of its work-group has something to do.
        if m * batch < 4 * tuning.units(profile) && u64::from(p.k) >= 2 * waves * u64::from(stretch) {
            return (kernels.split, [m, 1, batch], VEC_THREADS);
        }
        let suits =
            |&i: &usize| ONE_COLUMN[i] <= tuning.vec_rows && fills(profile, &tuning, p, ONE_COLUMN[i]);
        let i = (0..3).rev().find(suits).unwrap_or(0);
        return (
            kernels.one_column[i],
            [m.div_ceil(waves * u64::from(ONE_COLUMN[i])), 1, batch],
            VEC_THREADS,
        );
    }
    let columns = n.min(tuning.vec_columns.into());
    let i = COLUMNS.iter().position(|&(of, _)| u64::from(of) >= columns).unwrap_or(COLUMNS.len() - 1);
    let (columns, rows) = COLUMNS[i];
    let groups = [m.div_ceil(waves * u64::from(rows)), n.div_ceil(columns.into()), batch];
    (kernels.columns[i], groups, VEC_THREADS)
}

/// The largest tile that is not mostly empty and leaves enough work-groups; the smallest if there is none. Its number,
/// up to `largest`, and the work-groups across and down.
fn choose_tile(profile: &Profile, tuning: &Tuning, largest: usize, p: &MulMatParams) -> (usize, [u64; 2]) {
    let groups = |i: usize| [p.m.div_ceil(TILES[i].rows), p.n.div_ceil(TILES[i].columns)].map(u64::from);
    let fits = |i: &usize| {
        let [x, y] = groups(*i);
        let enough = u64::from(tuning.tile_groups) * tuning.units(profile);
        let full = p.n * 2 > TILES[*i].columns && p.m * 2 > TILES[*i].rows;
        full && x * y * u64::from(p.ne2) * u64::from(p.ne3) >= enough
    };
    // With few columns a wider tile is empty; then even too few work-groups are better than that.
    let i = (0..=largest).rev().find(fits).unwrap_or(if p.n <= 32 { 0 } else { 1 });
    (i, groups(i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use crate::kernels::{Embedded, KernelSet, Kernels as Code};
    use ggml_core::{Graph, Source};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn chosen(target: &str, m: u32, n: u32, k: u32) -> (&'static str, [u64; 3]) {
        let mut profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
        profile.compute_units = 60;
        let p = MulMatParams { m, n, k, ne2: 1, ne3: 1, ..MulMatParams::default() };
        let (kernel, groups, _) = choose(&profile, &kernels!("q8_0"), &p);
        (kernel, groups)
    }

    #[test]
    fn kernels_suit_the_shape() {
        assert_eq!(chosen("gfx906", 4096, 1, 4096), ("mat_vec_q8_0_n1_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx906", 896, 1, 896), ("mat_vec_q8_0_n1_r1", [448, 1, 1]));
        assert_eq!(chosen("gfx906", 128, 1, 4096), ("mat_vec_q8_0_split", [128, 1, 1]));
        assert_eq!(chosen("gfx906", 4096, 3, 4096), ("mat_vec_q8_0_n4_r4", [512, 1, 1]));
        assert_eq!(chosen("gfx803", 4096, 7, 4096), ("mat_vec_q8_0_n4_r4", [512, 2, 1]));
        assert_eq!(chosen("gfx906", 4096, 512, 4096), ("mat_tile_q8_0_128x128", [32, 4, 1]));
        assert_eq!(chosen("gfx906", 1024, 512, 1024), ("mat_tile_q8_0_64x64", [16, 8, 1]));
        assert_eq!(chosen("gfx906", 4096, 9, 4096), ("mat_tile_q8_0_64x32", [64, 1, 1]));
    }

    #[test]
    fn bytes_where_they_are_faster() {
        let chosen = |target: &str, m, n, k| {
            let mut profile = Profile::of(&Target::parse(target).unwrap()).unwrap();
            profile.compute_units = 60;
            let p = MulMatParams { m, n, k, ne2: 1, ne3: 1, ..MulMatParams::default() };
            let chosen = choose_int8(&profile, DType::Q4_0, &p)?;
            Some((chosen.kernel, chosen.groups, chosen.rounds))
        };
        let of_906 = |m, n, k| chosen("gfx906", m, n, k);
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
        assert_eq!(chosen("gfx1100", 4096, 8, 4096), Some(("mat_vec_int8_q4_0_n8_r4", [128, 1, 1], false)));
        // Pairs: tiles only, and not of Q8_0. gfx803 has neither instruction.
        assert_eq!(chosen("gfx900", 4096, 512, 4096), Some(("mat_tile_int8_q4_0_128x64", [32, 8, 1], false)));
        assert_eq!(chosen("gfx900", 4096, 1, 4096), None);
        assert_eq!(chosen("gfx803", 4096, 512, 4096), None);
        let p = MulMatParams { m: 4096, n: 512, k: 4096, ne2: 1, ne3: 1, ..MulMatParams::default() };
        let gfx1010 = Profile::of(&Target::parse("gfx1010").unwrap()).unwrap();
        assert_eq!(choose_int8(&gfx1010, DType::Q8_0, &p), None);
        assert!(choose_int8(&gfx1010, DType::Q6_K, &p).is_some());
    }
    /// Products too large for the operation catalogue take kernels that it does not meet. They are there, with the
    /// arguments that they are given.
    #[test]
    fn large_products_fit_the_code_objects() {
        // Enough for two rows of a wavefront, but not four, on the device of each family; enough for anything.
        const ROWS: [usize; 5] = [50, 1200, 2000, 5000, 16384];
        for name in Embedded.targets() {
            let target = Target::parse(name).unwrap();
            let profile = Profile::of(&target).unwrap();
            let code = Code::new(Arc::new(Embedded), &target);
            let mut met = BTreeSet::new();
            for dtype in [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q6_K] {
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
                        let int8 = launches.iter().any(|(launch, _)| launch.module == "mul_mat_int8");
                        assert!(!int8 || precision == Precision::Fast, "{name} {dtype} {m} x {n}");
                        met.extend(launches.iter().map(|(launch, _)| launch.kernel));
                    }
                }
            }
            // One kernel that rounds, and of bytes: all 8 of 3 types, the tiles of 2, none.
            let int8 = met.iter().filter(|k| k.contains("int8") || k.contains("rounding")).count();
            let most = match Tuning::of(&profile).int8 {
                Int8::Dot4 => 25,
                Int8::Pairs => 7,
                Int8::None => 0,
            };
            assert_eq!(int8, most, "{name}: {met:?}");
        }
    }
}
