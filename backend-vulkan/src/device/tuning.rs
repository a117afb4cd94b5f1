//! Tuning: one table, architecture class x operation family.
//!
//! Register counts below are from Mesa's compiler. On GCN a kernel with more than 84 vector registers leaves
//! two wavefronts on a SIMD, too few to hide memory latency, so tiles are chosen to use at most 84 registers
//! and matrix-vector kernels at most 64.

pub use super::mat_vec::{MatVec, Narrow, Staged};
pub use super::tiles::{Fragment, Streamed, Tiles, Warptile};
use crate::arch::ArchClass;

/// Attention of few tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashVec {
    /// Invocations of a work-group.
    pub workgroup: u32,
    /// Number of positions up to which a work-group has twice the invocations. So few positions take one
    /// step, whose time is limited by the work of each invocation, not by memory.
    pub short: u32,
    /// Maximum query heads of a work-group that share keys and values.
    pub heads: u32,
    /// Positions in flight at a time, of the positions that invocations process one after the other.
    pub keys: u32,
    /// Minimum positions of a split, rounded up to whole steps: combining splits costs about as much as this many
    /// positions.
    pub split: u32,
}

/// Attention of many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashTile {
    /// Invocations of a work-group.
    pub workgroup: u32,
    /// Tokens of a work-group.
    pub br: u32,
    /// Positions of a step.
    pub bc: u32,
    /// Invocations along the positions.
    pub sc: u32,
}

/// Tuning of a device class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// True if reductions use subgroup arithmetic.
    pub subgroup_arithmetic: bool,
    /// Invocations of element-wise kernels.
    pub elementwise: u32,
    /// Invocations of kernels that reduce a row.
    pub row: u32,
    /// Matrix-vector kernels with 1, 2, 4 and 8 columns at a time.
    pub mat_vec: [MatVec; 4],
    /// Matrix-vector kernels with activations rounded to 8 bits, for devices with integer dot products. They
    /// have many rows, which share the work of rounding.
    pub mat_vec_int8: Option<[MatVec; 4]>,
    /// A matrix-vector kernel that also reads weights through workgroup-shared memory, for one column of long
    /// rows, on devices with enough registers for steps in flight.
    pub mat_vec_staged: Option<Staged>,
    /// A kernel for few columns on matrix units; `None` where it was not measured.
    pub narrow: Option<Narrow>,
    /// True if products of few columns with weights of Q8_0 are computed in F32 although the device has integer dot products:
    /// they unpack little, so rounding gains least there.
    pub q8_0_floats: bool,
    /// Activations rounded to 8 bits, over all columns, that a work-group holds in workgroup-shared memory.
    /// Eight activations need nine bytes, or eleven with the sums that some types need. A multiple of 512 for
    /// each column.
    pub vec_chunk: u32,
    /// Quads of activations that an invocation rounds at a time, 2 or 4: four need fewer instructions, two
    /// keep more invocations busy.
    pub vec_quads: u32,
    /// Maximum columns of a product for matrix-vector kernels; products with more columns use tiles.
    pub vec_columns: u32,
    /// F32 tiles, from small to large.
    pub tiles: &'static [Warptile],
    /// F16 tiles of weights of few bits for [`Precision::Fast`](ggml_core::precision::Precision::Fast), from small to large; empty where F32 tiles are
    /// as fast.
    pub f16_tiles: &'static [Warptile],
    /// Tiles of words for [`Precision::Fast`](ggml_core::precision::Precision::Fast), from small to large: of bytes on devices with integer dot
    /// products, else of pairs of F16 if there are [`f16_tiles`](Tuning::f16_tiles). Empty where other tiles are as fast.
    pub int8_tiles: &'static [Warptile],
    /// Tiles for matrix units, from small to large; empty if the class does not use matrix units.
    pub matrix_tiles: &'static [Warptile],
    /// The same for mixtures, whose matrices have few columns each.
    pub expert_tiles: &'static [Warptile],
    /// The tile of large products on matrix units that is shared between work-groups; `None` where it was not
    /// measured.
    pub streamed: Option<Streamed>,
    /// Minimum work-groups that a larger tile must yield, for a device whose compute units are unknown.
    pub enough_groups: u32,
    /// The same for each compute unit of a device that says how many it has.
    pub groups_of_unit: u32,
    /// Subgroup size that matrix-vector kernels and attention of few tokens require, on devices with several sizes; `None`:
    /// the compiler's choice.
    pub vector_lanes: Option<u32>,
    /// Attention of few tokens.
    pub flash_vec: FlashVec,
    /// Attention of many tokens.
    pub flash_tile: FlashTile,
}

pub(super) const fn tile(bm: u32, bn: u32, bk: u32, tm: u32, tn: u32, unroll: u32, slices: u32) -> Warptile {
    Warptile { bm, bn, bk, tm, tn, unroll, slices, buffers: 1 }
}

pub(super) const fn matrix_tile(bm: u32, bn: u32, tm: u32, tn: u32, slices: u32) -> Warptile {
    Warptile { bm, bn, bk: 64, tm, tn, unroll: 1, slices, buffers: 1 }
}

pub(super) const fn vec(workgroup: u32, teams: u32, rows: u32) -> MatVec {
    MatVec { workgroup, teams, rows, rows_of_32: rows }
}

/// 32 x 32 by four slices of one wavefront of 64, 64 x 64 by two wavefronts: 64 registers, four wavefronts on
/// a SIMD of GCN.
const TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 1, 4), tile(64, 64, 16, 8, 4, 1, 1)];
/// Packed F16 needs a second set of sums: 64 x 64 with 8 x 4 per invocation needs 128 registers, with 4 x 4
/// it needs 64.
const GCN_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 1, 4), tile(64, 64, 32, 4, 4, 1, 1)];
/// RDNA has twice the registers of GCN for a wavefront of 64, so 8 x 4, which reads less workgroup-shared
/// memory per product.
const RDNA_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 1, 4), tile(64, 64, 32, 8, 4, 1, 1)];
/// 8 x 4 by 16 bytes of four rows at a time: three reads of workgroup-shared memory for 32 dot products.
/// Steps are blocks of 32.
pub(super) const INT8_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 4, 4), tile(64, 64, 32, 8, 4, 4, 1)];
const NVIDIA_TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 4, 4), tile(64, 64, 16, 8, 4, 8, 1)];
const NVIDIA_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 4, 4), tile(64, 64, 32, 8, 4, 1, 1)];
/// Small code: the driver compiles with LLVM, for 4 to 16 lanes.
const CPU_TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 1, 1)];

/// Four subgroups, or eight. A tile of 64 x 128 by 32 x 64 needs 64 registers of 32 lanes for sums and reads
/// six matrices from workgroup-shared memory for eight products. Steps are long and workgroup-shared memory
/// has one buffer, because memory latency dominates. Thousands of tokens per second for prompts of 512 tokens
/// on an H200, with the same tile for all products:
///
/// | steps, buffers | 8 billion weights, Q4_K | 1 billion weights, Q8_0 |
/// | --- | --- | --- |
/// | 64, one | 9.9 | 41.3 |
/// | 64, two (tile 64 x 64) | 6.9 | 36.7 |
/// | 32, two | 8.7 | 35.9 |
///
/// Larger tiles leave too few work-groups: 128 x 128 by 64 x 64 gives 8.8 and 36.7.
///
/// Matrices of a whole work-group (VK_NV_cooperative_matrix2) were tried on the H200. From workgroup-shared
/// memory these prompts are 1.03 and 1.02 times as fast. With functions that decode a weight where the matrix
/// is loaded, products of 14336 x 4096 x 512 are 0.74 (F16) and 0.17 times as fast (Q8_0, Q4_K).
pub(super) const MATRIX_TILES: &[Warptile] = &[
    matrix_tile(32, 32, 16, 16, 2),
    matrix_tile(64, 32, 32, 16, 1),
    matrix_tile(64, 64, 32, 32, 1),
    matrix_tile(64, 128, 32, 64, 1),
];

/// Tiles of mixtures. Thousands of tokens per second of prompts on an H200, for eight layers of 128 experts, of which a token
/// uses eight (2048 x 768, Q4_K), by the tile of all products and by the columns of an expert:
///
/// | tile | 8 | 16 | 64 | 128 |
/// | --- | --- | --- | --- | --- |
/// | 32 x 32 by 16 x 16, two slices | 28.2 | 44.4 | | |
/// | 64 x 32 by 32 x 16 | 31.2 | 49.4 | 83.0 | |
/// | 64 x 64 by 32 x 32 | 27.8 | 45.8 | 83.2 | 93.0 |
/// | 128 x 64 by 32 x 32 | 28.5 | | 87.0 | |
/// | 128 x 64 by 64 x 32 | 26.5 | | 80.4 | |
/// | 64 x 128 by 32 x 64 | 21.9 | | 75.1 | 88.5 |
/// | 128 x 128 by 64 x 64 | 22.2 | | 79.4 | |
///
/// Steps of 128, two slices and two buffers are slower for those of them that were tried.
const NVIDIA_EXPERT_TILES: &[Warptile] = &[matrix_tile(64, 32, 32, 16, 1), matrix_tile(128, 64, 32, 32, 1)];

/// 128 x 128 by 64 x 64 of four subgroups: sums need 128 registers, a step needs 37 KB of workgroup-shared
/// memory, and two work-groups fit on a multiprocessor. Tflop/s on an H100, with MATRIX_TILES and with this
/// tile, for products with 512 and with 1024 columns:
///
/// | rows | 512 columns | 1024 columns |
/// | --- | --- | --- |
/// | Q4_K, 14336 of length 4096 | 142 and 178 | 168 and 195 |
/// | Q4_K, 4096 of length 14336 | 162 and 183 | 164 and 199 |
/// | Q8_0, 14336 of length 4096 | 136 and 175 | 166 and 194 |
/// | Q8_0, 4096 of length 14336 | 158 and 185 | 164 and 201 |
/// | F16 (14336) | 149 and 188 | 177 and 226 |
///
/// If all tiles are cut into parts and none is computed whole first, 512 columns of Q4_K give 167 and 170
/// Tflop/s. Other tiles, Q4_K in the order of the table: 128 x 128 by 64 x 32 of eight subgroups 157, 171,
/// 157, 164; with steps of 32 157, 175, 161, 179. With 32 steps per work-group (4096 x 4096, 512 columns)
/// smaller tiles give 151, this one 146.
const NVIDIA_STREAMED: Streamed = Streamed { tile: matrix_tile(128, 128, 64, 64, 1), groups: 2, least: 40 };

/// Tile for small products. Emulated units use it for products of any size, so that the kernel is tested
/// without a card. The number of work-groups is the same on every device.
pub(super) const SMALL_STREAMED: Streamed =
    Streamed { tile: matrix_tile(64, 64, 32, 32, 1), groups: 5, least: 2 };

/// The kernel for few columns on emulated matrix units.
pub(super) const EMULATED_NARROW: Narrow = Narrow { subgroups: 4, of_unit: 1, from: 2, most: 64 };

/// 32 rows share the work of rounding, which is about five operations per element.
const GCN_INT8: [MatVec; 4] = {
    let most = vec(512, 8, 4);
    let columns = MatVec { rows_of_32: 2, ..most };
    [most, columns, columns, columns]
};

/// llama.cpp's Vulkan backend calls the same cards AMD_GCN, by the same rule (subgroups of 64 only), and uses no
/// subgroup arithmetic on them either. Its numbers, as its logs and sources of 2026 give them, and these:
///
/// | | llama.cpp | here | reason |
/// | --- | --- | --- | --- |
/// | products, large tile | 64 x 64, steps of 32, 256 invocations with 4 x 4 sums (warptile 256, 64, 64, 32, 16, 16, 2, 2, 2, 1, 16) | 64 x 64, steps of 16, 128 invocations with 8 x 4 sums | 12 values are read for 32 products, not 8 for 16; 64 registers still |
/// | products in packed F16 | the same | steps of 32, 4 x 4 sums | 8 x 4 would need 128 registers |
/// | products, small tile | the same tile | 32 x 32, four parts along the length | four times the work-groups where a product has few tiles |
/// | one column, rows of a work-group of 64 | 2, K types 4 | 4 | all types read the column once for four rows |
/// | integer dot products, rows of a work-group | 2 to 4, activations rounded by a dispatch before | 32 by eight subgroups, rounded in the work-group | no second dispatch and no buffer between |
const GCN: Tuning = Tuning {
    subgroup_arithmetic: false,
    elementwise: 256,
    row: 256,
    mat_vec: [vec(64, 1, 4), vec(64, 1, 4), vec(64, 1, 2), vec(64, 1, 2)],
    mat_vec_int8: Some(GCN_INT8),
    mat_vec_staged: None,
    narrow: None,
    q8_0_floats: false,
    vec_chunk: 16384,
    vec_quads: 4,
    vec_columns: 16,
    tiles: TILES,
    f16_tiles: GCN_F16_TILES,
    int8_tiles: INT8_TILES,
    matrix_tiles: MATRIX_TILES,
    expert_tiles: MATRIX_TILES,
    streamed: None,
    enough_groups: 128,
    groups_of_unit: 2,
    vector_lanes: None,
    flash_vec: FlashVec { workgroup: 256, short: 0, heads: 4, keys: 4, split: 256 },
    flash_tile: FlashTile { workgroup: 256, br: 32, bc: 64, sc: 16 },
};

const RDNA: Tuning = Tuning { subgroup_arithmetic: true, f16_tiles: RDNA_F16_TILES, ..GCN };

/// Microseconds of gate and `up` of an 8B (Q4_K, 16 columns) on an H200 by subgroups and work-groups of a unit, when the kernel
/// still had its weights in shared memory: 8, 2: 91; 8, 3: 127; 4, 4: 93; 4, 6: 109. With columns in registers a kernel has 126
/// registers, so no more than 16 subgroups fit.
/// (An H200, 8B of Q4_K: with two tokens 519 a second, by the matrix-vector kernel 585.)
const NVIDIA_NARROW: Narrow = Narrow { subgroups: 8, of_unit: 2, from: 3, most: 64 };

/// Measured on an H200: products of [14336, 4096] with 1 to 512 columns, attention over 512 and 4096
/// positions.
const NVIDIA: Tuning = Tuning {
    subgroup_arithmetic: true,
    // In products with few rows, like a router's, one row gets the invocations of all four teams (see
    // `products::fill`).
    mat_vec: [vec(256, 4, 4), vec(64, 1, 2), vec(64, 1, 2), vec(128, 1, 4)],
    mat_vec_int8: Some([vec(256, 8, 4), vec(256, 8, 2), vec(256, 8, 2), vec(256, 8, 4)]),
    mat_vec_staged: Some(Staged { subgroups: 8, rows: 2, least: 1024, of_unit: 2 }),
    narrow: Some(NVIDIA_NARROW),
    tiles: NVIDIA_TILES,
    f16_tiles: NVIDIA_F16_TILES,
    // For cards without tensor cores: matrix units come first.
    int8_tiles: INT8_TILES,
    matrix_tiles: MATRIX_TILES,
    expert_tiles: NVIDIA_EXPERT_TILES,
    streamed: Some(NVIDIA_STREAMED),
    // With 4, decoding is 2 to 6 % slower on an H200 with models of 0.5B to 8B.
    vec_quads: 2,
    enough_groups: 264,
    flash_vec: FlashVec { workgroup: 256, short: 512, heads: 2, keys: 4, split: 256 },
    flash_tile: FlashTile { workgroup: 128, br: 64, bc: 32, sc: 8 },
    ..GCN
};

const CPU: Tuning = Tuning {
    subgroup_arithmetic: true,
    elementwise: 64,
    row: 64,
    mat_vec: [vec(32, 1, 2); 4],
    mat_vec_int8: None,
    mat_vec_staged: None,
    narrow: None,
    q8_0_floats: false,
    vec_chunk: 16384,
    vec_quads: 4,
    vec_columns: 2,
    tiles: CPU_TILES,
    f16_tiles: &[],
    int8_tiles: &[],
    streamed: None,
    matrix_tiles: &[],
    expert_tiles: &[],
    enough_groups: 4,
    groups_of_unit: 2,
    vector_lanes: None,
    flash_vec: FlashVec { workgroup: 64, short: 0, heads: 2, keys: 1, split: 64 },
    // Same as GCN: compiling it takes about ten seconds, and with equal constants the driver's cache serves
    // both classes.
    flash_tile: GCN.flash_tile,
};

impl Tuning {
    /// Returns the tuning of a class.
    pub fn of(class: ArchClass) -> Tuning {
        match class {
            ArchClass::AmdGcn | ArchClass::AmdCdna => GCN,
            ArchClass::AmdRdna1 | ArchClass::AmdRdna2 | ArchClass::AmdRdna3 | ArchClass::AmdRdna4 => RDNA,
            ArchClass::Nvidia => NVIDIA,
            // Subgroups may have one of several sizes, and matrix tiles are designed for one.
            ArchClass::Intel => Tuning { matrix_tiles: &[], ..RDNA },
            ArchClass::Cpu => CPU,
            ArchClass::Other => Tuning { matrix_tiles: &[], ..GCN },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::CANDIDATES;
    use super::*;

    #[test]
    fn tables_keep_the_rules_of_the_shaders() {
        let tables = ArchClass::ALL.map(|class| (class.name(), Tuning::of(class)));
        let changed = |&(class, table): &(&'static str, Tuning)| {
            let values = CANDIDATES.iter().map(move |c| (c.row.name, (c.change)(&table)));
            values.chain([(class, table)]).collect::<Vec<_>>()
        };
        for (class, t) in tables.iter().flat_map(changed) {
            assert!(t.row % 16 == 0 && t.flash_vec.workgroup % 64 == 0 && t.flash_vec.split > 0, "{class}");
            for v in t.mat_vec.iter().chain(t.mat_vec_int8.iter().flatten()) {
                assert!(
                    v.rows.is_power_of_two() && v.rows_of_32.is_power_of_two() && v.teams.is_power_of_two(),
                    "{class} {v:?}"
                );
                assert!(v.workgroup % (8 * v.teams) == 0, "{class} {v:?}");
            }
            assert!([2, 4].contains(&t.vec_quads), "{class}");
            // Sums of columns, rows and 16 subgroups are stored next to the activations.
            assert!(
                t.vec_chunk % (8 * 512) == 0 && t.vec_chunk / 8 * 11 + 8 * 4 * 16 * 4 <= 32768,
                "{class}"
            );
            let lanes_of = |fragment: Fragment| if fragment.is_matrix() { [32, 64] } else { [1, 1] };
            let f32_tiles =
                t.tiles.iter().flat_map(|tile| [(*tile, Fragment::F32), (tile.long(), Fragment::F32)]);
            let f16_tiles = t.f16_tiles.iter().map(|tile| (*tile, Fragment::F16));
            let matrix_tiles = t.matrix_tiles.iter().chain(t.expert_tiles);
            let matrix_tiles = matrix_tiles.map(|tile| (*tile, Fragment::Matrix));
            let words =
                t.int8_tiles.iter().flat_map(|tile| [Fragment::Int8, Fragment::Packed].map(|f| (*tile, f)));
            for (tile, fragment) in f32_tiles.chain(f16_tiles).chain(matrix_tiles).chain(words) {
                let steps = tile.bk / if fragment.is_f16() || fragment.has_words() { 4 } else { 2 };
                assert!(tile.bm % tile.tm == 0 && tile.bn % tile.tn == 0, "{class} {tile:?}");
                assert!([8, 16, 32, 64].contains(&tile.bk) && steps % tile.unroll == 0, "{class} {tile:?}");
                let load = match fragment {
                    Fragment::Int8 => 16,
                    Fragment::Packed => 8,
                    _ if fragment.is_matrix() => 8,
                    _ => 4,
                };
                for slice in lanes_of(fragment).map(|lanes| tile.slice(lanes)) {
                    assert!(tile.bm * tile.bk / 8 % slice == 0, "{class} {tile:?}");
                    assert!(tile.bn * tile.bk / load % slice == 0, "{class} {tile:?}");
                }
                // Candidates that a device has no room for are no candidates there.
                let is_candidate = class.contains('=');
                assert!(tile.shared_bytes(fragment) <= 32768 || is_candidate, "{class} {tile:?}");
            }
            for tile in t.int8_tiles {
                // Runs of four, whole groups of 16 elements, one block of each column, two groups of each
                // row.
                assert!(tile.tm % 4 == 0 && tile.tn % 4 == 0 && tile.bk == 32, "{class} {tile:?}");
                assert!(
                    4 % tile.unroll == 0 && tile.bn.max(2 * tile.bm) <= tile.slice(1),
                    "{class} {tile:?}"
                );
            }
            for tile in t.matrix_tiles.iter().chain(t.expert_tiles) {
                assert!(tile.tm % 16 == 0 && tile.tn % 16 == 0 && 16 % tile.slices == 0, "{class} {tile:?}");
                // Strips of sums reuse the memory of the tiles.
                let strips = tile.slice(1) * tile.slices * tile.tm * 16 * 4;
                assert!(strips + 12 <= tile.shared_bytes(Fragment::Matrix), "{class} {tile:?}");
            }
            let of_blocks = t.f16_tiles.iter().chain(t.matrix_tiles);
            assert!(
                of_blocks.into_iter().all(|tile| tile.bk % 32 == 0),
                "{class}: blocks of 32 take steps of 32"
            );
            let f = t.flash_tile;
            let (rows, per_row) = (f.workgroup / f.sc, f.workgroup / f.br);
            assert!(f.br % rows == 0 && f.workgroup % f.br == 0 && f.bc % f.sc == 0, "{class} {f:?}");
            assert!(f.bc % (4 * per_row) == 0 && f.bc % 16 == 0, "{class} {f:?}");
            // Eight quads of queries and of keys at a time, and eight or sixteen positions of values.
            assert!(f.br * 8 % f.workgroup == 0 && f.bc * 8 % f.workgroup == 0, "{class} {f:?}");
            assert!(16 * f.sc % f.workgroup == 0, "{class} {f:?}");
        }
    }
}
