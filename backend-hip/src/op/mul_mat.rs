//! MUL_MAT: matrix-vector products or matrix units for few columns, tiles for more. If rounding is allowed and the device
//! multiplies bytes, activations are in 8 bits; tiles of some types use activations in F16.

use super::grid::{ROW_THREADS, launch, no_kernel, row_groups, rows_of, scratch, tensors};
use super::mat_narrow;
use super::mat_vec::{self, MatVec};
use super::{Context, Launch, Operand, Refusal};
use crate::arch::{Family, Profile};
use crate::tuning::{HALF_TILES, Half, Int8, MMA_TILES, MmaTile, TILES, Tuning};
use ggml_core::kernel::{MatVecParams, MulMatParams, ProductsParams};
use ggml_core::precision::Precision;
use ggml_core::{DType, TensorId};
use table::{Kernels, kernels};

mod table;

/// Plans the launches of a node of this family.
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
    let tuning = Tuning::of(c.profile);
    let work = vec(&p, dtype, [src[0], src[1], c.node]);
    if let Some(launches) = mat_narrow::plan(c, &work) {
        return launches;
    }
    if p.n < tuning.tile_from || p.has_few_rows(tuning.units(c.profile)) {
        return mat_vec::plan(c, &work).unwrap_or_else(|| Err(no_kernel(c, dtype)));
    }
    if c.precision == Precision::Fast
        && let Some(module) = half_module(c.profile, &kernels, dtype)
    {
        return half_launches(c, &p, module, &kernels);
    }
    if c.precision == Precision::Fast
        && let Some(module) = int8_module(c.profile, &kernels)
        && offsets_fit(dtype, p.nb0[0], p.k, u64::from(TILES[2].columns))
    {
        return int8_launches(c, &p, module, &kernels);
    }
    let (i, [x, y]) = choose_tile(c.profile, &kernels, tuning.largest_tile, &p);
    let groups = [x, y, u64::from(p.ne2) * u64::from(p.ne3)];
    let kernel = (kernels.module, kernels.tiles[i]);
    Ok(vec![launch(c, kernel, tensors(&[src[0], src[1], c.node]), &p, groups, TILES[i].threads)?])
}

/// Describes a product of weights, input and result for the mat-vec kernels.
fn vec(p: &MulMatParams, dtype: DType, [weights, input, result]: [TensorId; 3]) -> MatVec {
    MatVec {
        dtype,
        products: ProductsParams {
            k: p.k,
            n: p.n,
            m: [p.m, 0, 0],
            ne2: p.ne2,
            r2: p.r2,
            nb0: [p.nb0[0], p.nb0[1]],
            nb1: [p.nb1[0], p.nb1[1]],
            ..ProductsParams::default()
        },
        more: MatVecParams { r3: p.r3, nb03: p.nb0[2], nb13: p.nb1[2], ..MatVecParams::default() },
        planes: u64::from(p.ne2) * u64::from(p.ne3),
        weights: tensors(&[weights]),
        input: Operand::Tensor(input),
        norm: None,
        biases: [None; 3],
        residual: None,
        experts: [None; 2],
        results: tensors(&[result]),
    }
}

/// Returns true if a lane's offsets within the 128 rows of a tile, and within `columns` rounded columns, fit
/// 32 bits.
pub(super) fn offsets_fit(dtype: DType, stride: u32, k: u32, columns: u64) -> bool {
    let row = u64::from(stride) * dtype.block_bytes() as u64;
    row <= u64::from(u32::MAX) / 128 && u64::from(k) * columns <= u64::from(u32::MAX)
}

/// Returns true if 8-bit tiles use activations in blocks of 256 (`mat_tile_int8_k.h`).
pub(super) fn has_blocks_k(profile: &Profile, dtype: DType) -> bool {
    matches!(dtype, DType::Q4_K | DType::Q5_K) && Tuning::of(profile).int8 == Int8::Dot4
}

/// Returns the bytes of a rounded column, and the bytes of its blocks' scales.
pub(super) fn int8_column(profile: &Profile, dtype: DType, k: u32) -> [u64; 2] {
    let blocks = if has_blocks_k(profile, dtype) { u64::from(k / 256) * 64 } else { u64::from(k / 32) * 4 };
    [k.into(), blocks]
}

/// Returns the source of the 8-bit tiles if [`Int8`] prefers them to F32.
fn int8_module(profile: &Profile, kernels: &Kernels) -> Option<&'static str> {
    kernels.int8.module.filter(|_| Tuning::of(profile).int8 == Int8::Dot4)
}

/// Returns the source of the F16 tiles if [`Half`] prefers them to bytes and F32.
fn half_module(profile: &Profile, kernels: &Kernels, dtype: DType) -> Option<&'static str> {
    let half = Tuning::of(profile).half;
    let module = if half == Half::Packed { kernels.half.packed } else { kernels.half.module };
    module.filter(|_| half.is_used_for(dtype))
}

/// Returns the launch that rounds columns of activations to F16 and computes their scale factors.
pub(super) fn round_half(
    c: &Context<'_>,
    p: &MulMatParams,
    b: Operand,
    to: [Operand; 2],
) -> Result<Launch, Refusal> {
    let groups = [p.n.into(), u64::from(p.ne2) * u64::from(p.ne3), 1];
    let rounding = ("mul_mat_half", "round_half");
    let launch = launch(c, rounding, vec![b, to[0], to[1]], p, groups, ROW_THREADS)?;
    Ok(Launch { written: 2, ..launch })
}

/// Returns the bytes of a column of activations in F16, padded to whole steps of a tile.
pub(super) fn half_column(k: u32) -> u64 {
    u64::from(k).next_multiple_of(64) * 2
}

/// Plans two launches: one rounds the columns to F16, one computes the product.
fn half_launches(
    c: &Context<'_>,
    p: &MulMatParams,
    module: &'static str,
    kernels: &Kernels,
) -> Result<Vec<Launch>, Refusal> {
    let product = if c.profile.family == Family::Nvidia {
        let (i, groups) = choose_mma_tile(c.profile, p);
        let MmaTile { tile, lds_bytes, .. } = MMA_TILES[i];
        let kernel = (module, kernels.half.mma_tiles[i]);
        Tiles { kernel, groups, threads: tile.threads, lds_bytes, columns: MMA_COLUMNS }
    } else if Tuning::of(c.profile).half == Half::Packed {
        let (i, groups) = choose_tile(c.profile, kernels, Tuning::of(c.profile).largest_int8_tile, p);
        let kernel = (module, kernels.half.packed_tiles[i]);
        Tiles { kernel, groups, threads: TILES[i].threads, lds_bytes: 0, columns: 1 }
    } else {
        let (i, groups) = choose_half_tile(c.profile, p);
        let kernel = (module, kernels.half.tiles[i]);
        Tiles { kernel, groups, threads: HALF_TILES[i].threads, lds_bytes: 0, columns: 1 }
    };
    rounded(c, p, [half_column(p.k), 4], round_half, product)
}

/// Returns the work-groups in x and y for tiles of this size.
fn groups_of(p: &MulMatParams, rows: u32, columns: u32) -> [u64; 2] {
    [p.m.div_ceil(rows), p.n.div_ceil(columns)].map(u64::from)
}

/// Returns the number of tiles on the busiest compute unit.
fn busiest(profile: &Profile, p: &MulMatParams, [x, y]: [u64; 2]) -> u64 {
    (x * y * u64::from(p.ne2) * u64::from(p.ne3)).div_ceil(Tuning::of(profile).units(profile))
}

/// Chooses the tile of AMD's matrix units or dot2, and the work-groups in x and y. A large tile takes four
/// fifths of the time of four small ones if a compute unit has two large tiles, each hiding the other's
/// latency.
fn choose_half_tile(profile: &Profile, p: &MulMatParams) -> (usize, [u64; 2]) {
    let [small, large] = HALF_TILES.map(|tile| groups_of(p, tile.rows, tile.columns));
    let [of_small, of_large] = [small, large].map(|groups| busiest(profile, p, groups));
    let better = of_large >= 2 && of_large * 4 * 4 <= of_small * 5;
    if better && Tuning::of(profile).half == Half::Matrix { (1, large) } else { (0, small) }
}

/// Chooses the tile of NVIDIA's matrix units that minimises the time of the busiest processor, and the
/// work-groups.
fn choose_mma_tile(profile: &Profile, p: &MulMatParams) -> (usize, [u64; 2]) {
    let of = |i: usize| groups_of(p, MMA_TILES[i].tile.rows, MMA_TILES[i].tile.columns);
    let time = |i: &usize| busiest(profile, p, of(*i)) * MMA_TILES[*i].cost;
    let best = (0..MMA_TILES.len()).min_by_key(time).unwrap_or(0);
    (best, of(best))
}

/// Plans two launches: one rounds the columns to 8 bits, one computes the product.
fn int8_launches(
    c: &Context<'_>,
    p: &MulMatParams,
    module: &'static str,
    kernels: &Kernels,
) -> Result<Vec<Launch>, Refusal> {
    let (i, groups) = choose_tile(c.profile, kernels, Tuning::of(c.profile).largest_int8_tile, p);
    let kernel = (module, kernels.int8.tiles[i]);
    let product = Tiles { kernel, groups, threads: TILES[i].threads, lds_bytes: 0, columns: 1 };
    let dtype = c.graph.tensor(c.graph.tensor(c.node).src()[0]).dtype;
    let round = if has_blocks_k(c.profile, dtype) { round_int8_k } else { round_int8 };
    rounded(c, p, int8_column(c.profile, dtype, p.k), round, product)
}

/// Columns of NVIDIA's largest tile. All tiles read whole tiles, including those beyond the last column, and
/// products may share rounded columns.
const MMA_COLUMNS: u32 = 128;

/// Launch of tiles of rounded columns: kernel, work-groups in x and y, threads and LDS of a work-group, and
/// the alignment of a plane's scratch in columns.
struct Tiles {
    kernel: (&'static str, &'static str),
    groups: [u64; 2],
    threads: u32,
    lds_bytes: u32,
    columns: u32,
}

/// Plans two launches: `round` rounds the activations into scratch memory, then the product reads them.
/// `column`: bytes of a rounded column and of its scales.
fn rounded(
    c: &Context<'_>,
    p: &MulMatParams,
    column: [u64; 2],
    round: fn(&Context<'_>, &MulMatParams, Operand, [Operand; 2]) -> Result<Launch, Refusal>,
    tiles: Tiles,
) -> Result<Vec<Launch>, Refusal> {
    let src = c.graph.tensor(c.node).src();
    let batch = u64::from(p.ne2) * u64::from(p.ne3);
    let columns = u64::from(p.n) * batch;
    // Planes follow each other without gaps; padding after the last plane lets a whole tile be read.
    let room = columns + u64::from(p.n.next_multiple_of(tiles.columns) - p.n);
    let [q, scales] = scratch(c, column.map(|bytes| (room, bytes)))?;
    let operands = vec![Operand::Tensor(src[0]), q, scales, Operand::Tensor(c.node)];
    let [x, y] = tiles.groups;
    let product = launch(c, tiles.kernel, operands, p, [x, y, batch], tiles.threads)?;
    let product = Launch { lds_bytes: tiles.lds_bytes, ..product };
    Ok(vec![round(c, &p.of_columns(), Operand::Tensor(src[1]), [q, scales])?, product])
}

/// Returns the launch that rounds columns of activations to 8 bits.
pub(super) fn round_int8(
    c: &Context<'_>,
    p: &MulMatParams,
    b: Operand,
    to: [Operand; 2],
) -> Result<Launch, Refusal> {
    round_columns(c, "quantize_int8", p, [b, to[0], to[1]])
}

/// Returns the launch that rounds columns of activations to 8 bits in blocks of 256.
pub(super) fn round_int8_k(
    c: &Context<'_>,
    p: &MulMatParams,
    b: Operand,
    to: [Operand; 2],
) -> Result<Launch, Refusal> {
    round_columns(c, "quantize_int8_k", p, [b, to[0], to[1]])
}

fn round_columns(
    c: &Context<'_>,
    kernel: &'static str,
    p: &MulMatParams,
    operands: [Operand; 3],
) -> Result<Launch, Refusal> {
    let groups = row_groups(p.k.div_ceil(8), rows_of([p.k, p.n, p.ne2, p.ne3])?);
    let launch = launch(c, ("mul_mat_int8", kernel), operands.to_vec(), p, [groups, 1, 1], ROW_THREADS)?;
    Ok(Launch { written: 2, ..launch })
}

/// Chooses the largest tile that is not mostly empty and leaves enough work-groups, else the smallest.
/// Returns its index, up to `largest`, and the work-groups in x and y.
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
    // With few columns a wider tile is mostly empty, which is worse than too few work-groups.
    let least = if p.n <= 32 || !there(&1) { 0 } else { 1 };
    let i = (0..=largest).rev().filter(there).find(fits).unwrap_or(least);
    (i, groups(i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;
    use crate::code::kernels::{Embedded, KernelSet, Kernels as Code};
    use crate::tuning::GIVEN_LDS;
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

    fn chosen(target: &str, dtype: DType, m: u32, n: u32, k: u32) -> (&'static str, [u64; 2]) {
        let (profile, kernels) = (profile(target), kernels(dtype).unwrap());
        let largest = Tuning::of(&profile).largest_tile;
        let (i, groups) = choose_tile(&profile, &kernels, largest, &params(m, n, k));
        (kernels.tiles[i], groups)
    }

    #[test]
    fn kernels_suit_the_shape() {
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 512, 4096), ("mat_tile_q8_0_128x128", [32, 4]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 1024, 512, 1024), ("mat_tile_q8_0_64x64", [16, 8]));
        assert_eq!(chosen("gfx906", DType::Q8_0, 4096, 9, 4096), ("mat_tile_q8_0_64x32", [64, 1]));
        // Types with the `of_every_type` variants only.
        assert_eq!(chosen("gfx906", DType::MXFP4, 64, 64, 4096), ("mat_tile_mxfp4_64x32", [1, 2]));
        assert_eq!(chosen("gfx906", DType::MXFP4, 4096, 512, 4096), ("mat_tile_mxfp4_128x64", [32, 8]));
    }

    #[test]
    fn halves_by_matrix_units() {
        let module = |target: &str, dtype| half_module(&profile(target), &kernels(dtype).unwrap(), dtype);
        for target in ["sm_80", "gfx1100", "gfx1201", "gfx908", "gfx942"] {
            assert_eq!(module(target, DType::Q4_K), Some("mul_mat_half_256"), "{target}");
            assert_eq!((module(target, DType::MXFP4), module(target, DType::BF16)), (None, None));
        }
        assert_eq!((module("sm_70", DType::Q8_0), module("gfx1030", DType::Q8_0)), (None, None));
        assert_eq!(
            (module("gfx906", DType::F16), module("gfx900", DType::F16)),
            (Some("mul_mat_half"), None)
        );
        // Large tiles if enough of them remain.
        let tile = |target: &str, m, n| choose_half_tile(&profile(target), &params(m, n, 4096));
        assert_eq!((tile("gfx1100", 14336, 512), tile("gfx1100", 4096, 512)), ((1, [112, 4]), (0, [64, 8])));
        // A lane's share of a large tile would need all registers.
        assert_eq!(tile("gfx906", 14336, 512), (0, [224, 8]));
    }

    #[test]
    fn tiles_of_nvidia_leave_no_processor_behind() {
        // An H200.
        let profile = Profile { compute_units: 132, ..profile("sm_80") };
        let tile = |m, n| choose_mma_tile(&profile, &params(m, n, 4096));
        assert_eq!((tile(14336, 512), tile(4096, 512)), ((2, [112, 4]), (2, [32, 4])));
        assert_eq!((tile(2048, 512), tile(6144, 512)), ((1, [32, 4]), (1, [96, 4])));
        assert_eq!((tile(512, 512), tile(14336, 32)), ((0, [8, 8]), (0, [224, 1])));
        assert!(MMA_TILES.iter().all(|tile| MMA_COLUMNS.is_multiple_of(tile.tile.columns)));
        // LDS holds two slices of F16: rows, and twice the columns.
        assert!(MMA_TILES.iter().all(|tile| tile.lds_bytes <= GIVEN_LDS));
        assert_eq!(MMA_TILES[2].lds_bytes, 2 * 2 * 64 * (128 + 2 * 128));
    }

    #[test]
    fn bytes_where_they_are_faster() {
        let module = |target: &str, dtype| int8_module(&profile(target), &kernels(dtype).unwrap());
        assert_eq!(module("gfx906", DType::Q8_0), Some("mul_mat_int8_32"));
        assert_eq!(module("gfx906", DType::F16), None);
        // Without dot4 pairs of F16 are multiplied instead. gfx803 has neither instruction.
        assert_eq!((module("gfx900", DType::Q4_K), module("gfx803", DType::Q4_0)), (None, None));
        let packed = |target: &str, dtype| half_module(&profile(target), &kernels(dtype).unwrap(), dtype);
        assert_eq!(packed("gfx900", DType::Q4_K), Some("mul_mat_half_256"));
        assert_eq!(packed("gfx1010", DType::MXFP4), Some("mul_mat_half_32"));
        assert_eq!((packed("gfx900", DType::TQ2_0), packed("gfx803", DType::Q8_0)), (None, None));
    }

    /// Products that are too large for the operation catalogue use kernels that it does not cover. These
    /// exist and declare the arguments that launches pass.
    #[test]
    fn large_products_fit_the_code_objects() {
        // The first three are enough for bytes on the device of each family, the last is enough for any type.
        const ROWS: [usize; 4] = [50, 1200, 5000, 16384];
        for name in Embedded.targets() {
            let target = Target::parse(name).unwrap();
            let profile = Profile::of(&target).unwrap();
            let code = Code::new(Arc::new(Embedded), &target);
            let mut met = BTreeSet::new();
            let types = WEIGHT_TYPES.iter().copied();
            let (full, few): (Vec<DType>, Vec<DType>) =
                types.filter(|t| t.is_quantized()).partition(|&t| kernels(t).unwrap().all);
            for &dtype in full.iter().chain(&few).chain([&DType::F16]) {
                let long = [1, 2, 4, 7, 9, 64, 512].iter().flat_map(|&n| ROWS.map(|m| (4096, m, n)));
                for (k, m, n) in long.chain([(1024, 5000, 1)]) {
                    let mut graph = Graph::new();
                    let a = graph.leaf("a", dtype, [k, m, 1, 1], Source::Weight).unwrap();
                    let b = graph.leaf("b", DType::F32, [k, n, 1, 1], Source::Input).unwrap();
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
            // One kernel that rounds. For bytes: mat-vec and tiles, only the tiles of types whose sums fit,
            // or none. If a type has F16 tiles, they replace those of bytes.
            let int8 = met.iter().filter(|k| k.contains("int8") || k.contains("rounding")).count();
            let rings = met.iter().filter(|k| k.contains("ring")).count();
            assert_eq!(rings, if profile.copies { 13 } else { 0 }, "{name}: {met:?}");
            let tuning = Tuning::of(&profile);
            let in_half = |t: DType| half_module(&profile, &kernels(t).unwrap(), t).is_some();
            let tiles = |types: &[DType]| {
                let used = |t: DType| !in_half(t) && int8_module(&profile, &kernels(t).unwrap()).is_some();
                types.iter().filter(|&&t| used(t)).count()
            };
            // Tiles of Q4_K and Q5_K have a rounding kernel of their own.
            let by_block = usize::from(tiles(&[DType::Q4_K]) > 0);
            let most = match tuning.int8 {
                Int8::Dot4 => {
                    1 + by_block + 4 * full.len() + 2 * few.len() + 3 * tiles(&full) + 2 * tiles(&few)
                }
                Int8::None => 0,
            };
            let names = ["half", "mma", "packed"];
            let half = met.iter().filter(|k| names.iter().any(|name| k.contains(name))).count();
            let types = full.iter().chain(&few).filter(|&&t| in_half(t)).count() + 1;
            let packed = |types: &[DType]| types.iter().filter(|&&t| in_half(t)).count();
            let all_half = match tuning.half {
                Half::None => 0,
                Half::Dot2 => 2,
                Half::Packed => 1 + 3 * packed(&full) + 2 * packed(&few),
                Half::Matrix if profile.family == Family::Nvidia => 1 + 3 * types,
                Half::Matrix => 1 + 2 * types,
            };
            assert_eq!(half, all_half, "{name}: {met:?}");
            assert_eq!(int8, most, "{name}: {met:?}");
        }
    }
}
