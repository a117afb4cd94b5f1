//! Tuning: one table, architecture class x operation family.
//!
//! Register counts below are those of Mesa's compiler. On GCN a kernel of more than 84 vector registers leaves two waves
//! on a SIMD, too few to hide the latency of memory, so tiles are chosen to stay at or below 84, mat-vec at or below 64.

use crate::arch::{ArchClass, Caps};

/// A device as the operations see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the device can do.
    pub caps: Caps,
    /// What suits its class.
    pub tuning: Tuning,
}

impl Profile {
    /// The profile of a device.
    pub fn new(caps: Caps) -> Profile {
        let tuning = Tuning::of(caps.arch);
        Profile { caps, tuning }
    }

    /// The variant that reduces over a work-group: by subgroup arithmetic where the table wants it and the device is
    /// known to compute it rightly.
    pub fn reduction(&self) -> &'static str {
        if self.tuning.subgroup_arithmetic && self.caps.subgroup.arithmetic { "subgroup" } else { "lds" }
    }

    /// A work-group size that the device allows.
    pub fn workgroup(&self, wanted: u32) -> u32 {
        let most = self.caps.max_invocations.min(self.caps.max_workgroup_size[0]).max(1);
        wanted.min(1 << most.ilog2())
    }
}

/// A tile of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warptile {
    /// Rows of `a` of a work-group.
    pub bm: u32,
    /// Columns (rows of `b`) of a work-group.
    pub bn: u32,
    /// Length along k of a step: 8, 16 or 32. Types that unpack both halves of a block of 32 together take 32 always.
    pub bk: u32,
    /// Rows of an invocation.
    pub tm: u32,
    /// Columns of an invocation.
    pub tn: u32,
    /// Steps of the inner loop that are written out.
    pub unroll: u32,
    /// Parts of a work-group that share the steps along k.
    pub slices: u32,
}

impl Warptile {
    /// Invocations of a slice.
    pub const fn slice(&self) -> u32 {
        (self.bm / self.tm) * (self.bn / self.tn)
    }

    /// Invocations.
    pub const fn workgroup(&self) -> u32 {
        self.slice() * self.slices
    }

    /// The same tile with steps of 32, for types that unpack both halves of a block together, with fewer slices so that
    /// it takes no more shared memory.
    pub const fn long(&self) -> Warptile {
        let slices = self.slices * self.bk / 32;
        Warptile { bk: 32, slices: if slices > 0 { slices } else { 1 }, ..*self }
    }

    /// Shared memory in bytes.
    pub const fn shared_bytes(&self, f16: bool) -> u32 {
        let tiles = (self.bm + self.bn) * if f16 { (self.bk + 4) * 2 } else { (self.bk + 2) * 4 };
        tiles * self.slices
            + if self.slices > 1 { self.bm * self.bn * 4 } else { 4 }
            + if f16 { 4 } else { 0 }
    }
}

/// A mat-vec kernel for some number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatVec {
    /// Invocations.
    pub workgroup: u32,
    /// Parts of the work-group that have rows of their own; a subgroup or more each.
    pub teams: u32,
    /// Rows of a team.
    pub rows: u32,
    /// The same of types with pieces of 32 weights, which take more registers.
    pub rows_of_32: u32,
}

/// Attention of few tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashVec {
    /// Invocations.
    pub workgroup: u32,
    /// Positions up to which a work-group has twice as many: so few are over in a step, and then the device waits for what
    /// each invocation has to do, not for memory.
    pub short: u32,
    /// Query heads of a work-group that share keys and values, at the most.
    pub heads: u32,
    /// Positions under way at a time, of those that invocations have after each other.
    pub keys: u32,
    /// Positions that a part of them has at least, rounded up to whole steps: joining parts costs about as much as so many.
    pub part: u32,
}

/// Attention of many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashTile {
    /// Invocations.
    pub workgroup: u32,
    /// Tokens of a work-group.
    pub br: u32,
    /// Positions of a step.
    pub bc: u32,
    /// Invocations along the positions.
    pub sc: u32,
}

/// What suits a class of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Whether reductions use subgroup arithmetic.
    pub subgroup_arithmetic: bool,
    /// Invocations of element-wise kernels.
    pub elementwise: u32,
    /// Invocations of kernels that reduce a row.
    pub row: u32,
    /// Mat-vec with 1, 2, 4 and 8 columns at a time.
    pub mat_vec: [MatVec; 4],
    /// The same with activations rounded to 8 bits, for devices with integer dot products: many rows, which share the
    /// work of rounding.
    pub mat_vec_int8: Option<[MatVec; 4]>,
    /// Activations in 8 bits of all columns together that a work-group has in shared memory; it takes nine bytes for
    /// eight. A multiple of 512 for each column.
    pub vec_chunk: u32,
    /// Quads of activations that an invocation rounds at a time, 2 or 4: more of them take fewer instructions, fewer of them
    /// keep more invocations busy.
    pub vec_quads: u32,
    /// The most columns of a product for mat-vec; products with more use tiles.
    pub vec_columns: u32,
    /// F32 tiles, from small to large.
    pub tiles: &'static [Warptile],
    /// F16 tiles of quantised weights for [`Precision::Fast`](ggml_core::plan::Precision::Fast), from small to large;
    /// none where F32 tiles are as fast.
    pub f16_tiles: &'static [Warptile],
    /// Work-groups that a larger tile must leave: about two for each compute unit.
    pub enough_groups: u32,
    /// Attention of few tokens.
    pub flash_vec: FlashVec,
    /// Attention of many tokens.
    pub flash_tile: FlashTile,
}

const fn tile(bm: u32, bn: u32, bk: u32, tm: u32, tn: u32, unroll: u32, slices: u32) -> Warptile {
    Warptile { bm, bn, bk, tm, tn, unroll, slices }
}

const fn vec(workgroup: u32, teams: u32, rows: u32) -> MatVec {
    MatVec { workgroup, teams, rows, rows_of_32: rows }
}

/// 32 x 32 by four slices of one wave of 64, 64 x 64 by two waves: 64 registers, four waves on a SIMD of GCN.
const TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 1, 4), tile(64, 64, 16, 8, 4, 1, 1)];
/// Packed F16 needs a second set of sums: 64 x 64 with 8 x 4 for each invocation takes 128 registers, with 4 x 4 64.
const GCN_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 1, 4), tile(64, 64, 32, 4, 4, 1, 1)];
/// Twice the registers of GCN for a wave of 64: 8 x 4, which reads less shared memory for each product.
const RDNA_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 1, 4), tile(64, 64, 32, 8, 4, 1, 1)];
const NVIDIA_TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 4, 4), tile(64, 64, 16, 8, 4, 8, 1)];
const NVIDIA_F16_TILES: &[Warptile] = &[tile(32, 32, 32, 4, 4, 4, 4), tile(64, 64, 32, 8, 4, 1, 1)];
/// Small code: the driver compiles with LLVM, for 4 to 16 lanes.
const CPU_TILES: &[Warptile] = &[tile(32, 32, 16, 4, 4, 1, 1)];

/// 32 rows share the work of rounding, which is about five operations for each element.
const GCN_INT8: [MatVec; 4] = {
    let most = vec(512, 8, 4);
    let columns = MatVec { rows_of_32: 2, ..most };
    [most, columns, columns, columns]
};

const GCN: Tuning = Tuning {
    subgroup_arithmetic: false,
    elementwise: 256,
    row: 256,
    mat_vec: [vec(64, 1, 4), vec(64, 1, 4), vec(64, 1, 2), vec(64, 1, 2)],
    mat_vec_int8: Some(GCN_INT8),
    vec_chunk: 16384,
    vec_quads: 4,
    vec_columns: 16,
    tiles: TILES,
    f16_tiles: GCN_F16_TILES,
    enough_groups: 128,
    flash_vec: FlashVec { workgroup: 256, short: 0, heads: 4, keys: 2, part: 256 },
    flash_tile: FlashTile { workgroup: 256, br: 32, bc: 64, sc: 16 },
};

const RDNA: Tuning = Tuning { subgroup_arithmetic: true, f16_tiles: RDNA_F16_TILES, ..GCN };

/// Measured on an H200, products of [14336, 4096] with 1 to 512 columns, attention over 512 and 4096 positions.
const NVIDIA: Tuning = Tuning {
    subgroup_arithmetic: true,
    // Few rows, as those of a router, get all four teams.
    mat_vec: [vec(256, 4, 4), vec(64, 1, 2), vec(64, 1, 2), vec(128, 1, 4)],
    mat_vec_int8: Some([vec(256, 8, 4), vec(256, 8, 2), vec(256, 8, 2), vec(256, 8, 4)]),
    tiles: NVIDIA_TILES,
    f16_tiles: NVIDIA_F16_TILES,
    // With 4 models of 0.5B to 8B decode 2 to 6 % slower on an H200.
    vec_quads: 2,
    enough_groups: 264,
    flash_vec: FlashVec { workgroup: 256, short: 512, heads: 2, keys: 4, part: 256 },
    flash_tile: FlashTile { workgroup: 128, br: 64, bc: 32, sc: 8 },
    ..GCN
};

const CPU: Tuning = Tuning {
    subgroup_arithmetic: true,
    elementwise: 64,
    row: 64,
    mat_vec: [vec(32, 1, 2); 4],
    mat_vec_int8: None,
    vec_chunk: 16384,
    vec_quads: 4,
    vec_columns: 2,
    tiles: CPU_TILES,
    f16_tiles: &[],
    enough_groups: 4,
    flash_vec: FlashVec { workgroup: 64, short: 0, heads: 2, keys: 1, part: 64 },
    flash_tile: FlashTile { workgroup: 64, br: 16, bc: 16, sc: 8 },
};

impl Tuning {
    /// The table.
    pub fn of(class: ArchClass) -> Tuning {
        match class {
            ArchClass::AmdGcn | ArchClass::AmdCdna => GCN,
            ArchClass::AmdRdna1 | ArchClass::AmdRdna2 | ArchClass::AmdRdna3 | ArchClass::AmdRdna4 => RDNA,
            ArchClass::Nvidia => NVIDIA,
            ArchClass::Intel => RDNA,
            ArchClass::Cpu => CPU,
            ArchClass::Other => GCN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_keep_the_rules_of_the_shaders() {
        for class in ArchClass::ALL {
            let t = Tuning::of(class);
            assert!(t.row % 16 == 0 && t.flash_vec.workgroup % 64 == 0 && t.flash_vec.part > 0, "{class}");
            for v in t.mat_vec.iter().chain(t.mat_vec_int8.iter().flatten()) {
                assert!(
                    v.rows.is_power_of_two() && v.rows_of_32.is_power_of_two() && v.teams.is_power_of_two(),
                    "{class} {v:?}"
                );
                assert!(v.workgroup % (8 * v.teams) == 0, "{class} {v:?}");
            }
            assert!([2, 4].contains(&t.vec_quads), "{class}");
            // Columns, rows and 16 subgroups besides the activations.
            assert!(t.vec_chunk % (8 * 512) == 0 && t.vec_chunk / 8 * 9 + 8 * 4 * 16 * 4 <= 32768, "{class}");
            let f32_tiles = t.tiles.iter().flat_map(|tile| [(*tile, false), (tile.long(), false)]);
            for (tile, f16) in f32_tiles.chain(t.f16_tiles.iter().map(|tile| (*tile, true))) {
                let (steps, slice) = (tile.bk / if f16 { 4 } else { 2 }, tile.slice());
                assert!(tile.bm % tile.tm == 0 && tile.bn % tile.tn == 0, "{class} {tile:?}");
                assert!([8, 16, 32].contains(&tile.bk) && steps % tile.unroll == 0, "{class} {tile:?}");
                assert!(tile.bm * tile.bk / 8 % slice == 0, "{class} {tile:?}");
                assert!(tile.bn * tile.bk / 4 % slice == 0, "{class} {tile:?}");
                assert!(tile.shared_bytes(f16) <= 32768, "{class} {tile:?}");
            }
            assert!(t.f16_tiles.iter().all(|tile| tile.bk == 32), "{class}: blocks of 32 take steps of 32");
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
