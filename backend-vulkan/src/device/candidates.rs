//! Candidates for the numbers of the tuning table: values that are measured on the card itself.
//!
//! Most numbers for AMD's cards follow from registers, instruction counts and other programs, not from measurements.
//! Each number here is one that cards are known to disagree about.

use super::tiles::{Fragment, Warptile};
use super::tuning::{FlashVec, INT8_TILES, MATRIX_TILES, MatVec, Tuning, matrix_tile, tile, vec};
use crate::arch::Caps;
use ggml_core::routes::Candidate;

/// Byte tiles with a larger one: twice the columns, so weights are unpacked half as often.
const WIDE_BYTE_TILES: &[Warptile] = &byte_tiles(tile(64, 128, 32, 8, 4, 4, 1));

/// The same with 8 x 8 sums: four reads of workgroup-shared memory for 64 dot products in place of three for 32, which is
/// what limits GCN, but twice the registers.
const SQUARE_BYTE_TILES: &[Warptile] = &byte_tiles(tile(64, 128, 32, 8, 8, 4, 1));

const fn byte_tiles(largest: Warptile) -> [Warptile; 3] {
    [INT8_TILES[0], INT8_TILES[1], largest]
}

/// The tiles of the table with a larger one of eight subgroups; RADV's users measured it faster on Strix Halo (llama.cpp
/// PR 18749). With 64 x 64 of four subgroups, registers spill on RDNA3.
const LARGE_MATRIX_TILES: &[Warptile] =
    &[MATRIX_TILES[0], MATRIX_TILES[1], MATRIX_TILES[2], MATRIX_TILES[3], matrix_tile(128, 128, 32, 64, 1)];

/// The tiles of the table without the largest.
const SMALL_MATRIX_TILES: &[Warptile] = &[MATRIX_TILES[0], MATRIX_TILES[1], MATRIX_TILES[2]];

const VECTORS: &str = "shape of products of one token by dot products of bytes: work-group x teams x rows";
const Q8_0_VECTORS: &str = "arithmetic of products of few tokens with weights of Q8_0";
const FLOAT_VECTORS: &str = "shape of products of one token in F32: work-group x teams x rows";
const COLUMNS: &str = "tokens up to which products are computed without tiles";
const LANES: &str = "size of the subgroups in products of few tokens, and in attention of few";
const BYTE_TILES: &str = "largest tile of dot products of bytes, rows x columns, and sums of an invocation";
const MATRIX_TILES_ABOUT: &str = "largest tile on matrix units";
const HALF_TILES: &str = "packed F16 in tiles of few-bit weights";
const GROUPS: &str = "work-groups for each compute unit that keep the device busy";
const SPLIT: &str = "smallest part of the positions in attention of few tokens";

const fn free(name: &'static str, about: &'static str, change: fn(&Tuning) -> Tuning) -> Candidate<Tuning> {
    Candidate::new(name, about, None, change)
}

/// The candidates. Values that equal the table's, and those that do not fit a device, are left out there.
pub const CANDIDATES: &[Candidate<Tuning>] = &[
    Candidate::new("vulkan.vectors=512x8x4", VECTORS, DOT_VECTORS, |t| vectors(t, vec(512, 8, 4))),
    Candidate::new("vulkan.vectors=256x8x4", VECTORS, DOT_VECTORS, |t| vectors(t, vec(256, 8, 4))),
    Candidate::new("vulkan.vectors=256x4x4", VECTORS, DOT_VECTORS, |t| vectors(t, vec(256, 4, 4))),
    Candidate::new("vulkan.vectors=256x8x2", VECTORS, DOT_VECTORS, |t| vectors(t, vec(256, 8, 2))),
    Candidate::new("vulkan.vectors=64x1x4", VECTORS, DOT_VECTORS, |t| vectors(t, vec(64, 1, 4))),
    Candidate::new("vulkan.q8_0-vectors=floats", Q8_0_VECTORS, DOT_VECTORS, |t| Tuning {
        q8_0_floats: true,
        ..*t
    }),
    free("vulkan.float-vectors=64x1x4", FLOAT_VECTORS, |t| float_vectors(t, vec(64, 1, 4))),
    free("vulkan.float-vectors=64x1x2", FLOAT_VECTORS, |t| float_vectors(t, vec(64, 1, 2))),
    free("vulkan.float-vectors=256x4x4", FLOAT_VECTORS, |t| float_vectors(t, vec(256, 4, 4))),
    free("vulkan.vector-columns=4", COLUMNS, |t| Tuning { vec_columns: 4, ..*t }),
    free("vulkan.vector-columns=8", COLUMNS, |t| Tuning { vec_columns: 8, ..*t }),
    free("vulkan.vector-columns=16", COLUMNS, |t| Tuning { vec_columns: 16, ..*t }),
    free("vulkan.vector-lanes=32", LANES, |t| Tuning { vector_lanes: Some(32), ..*t }),
    free("vulkan.vector-lanes=64", LANES, |t| Tuning { vector_lanes: Some(64), ..*t }),
    Candidate::new("vulkan.byte-tiles=64x128:8x4", BYTE_TILES, DOT_TILES, |t| int8_tiles(t, WIDE_BYTE_TILES)),
    Candidate::new("vulkan.byte-tiles=64x128:8x8", BYTE_TILES, DOT_TILES, |t| {
        int8_tiles(t, SQUARE_BYTE_TILES)
    }),
    Candidate::new("vulkan.matrix-tiles=64x64", MATRIX_TILES_ABOUT, MATRIX_PRODUCTS, |t| {
        matrix_tiles(t, SMALL_MATRIX_TILES)
    }),
    Candidate::new("vulkan.matrix-tiles=128x128", MATRIX_TILES_ABOUT, MATRIX_PRODUCTS, |t| {
        matrix_tiles(t, LARGE_MATRIX_TILES)
    }),
    free("vulkan.half-tiles=off", HALF_TILES, |t| Tuning { f16_tiles: &[], ..*t }),
    free("vulkan.groups-of-unit=1", GROUPS, |t| Tuning { groups_of_unit: 1, ..*t }),
    free("vulkan.groups-of-unit=3", GROUPS, |t| Tuning { groups_of_unit: 3, ..*t }),
    free("vulkan.groups-of-unit=4", GROUPS, |t| Tuning { groups_of_unit: 4, ..*t }),
    free("vulkan.attention-part=128", SPLIT, |t| part(t, 128)),
    free("vulkan.attention-part=512", SPLIT, |t| part(t, 512)),
];

const DOT_VECTORS: Option<&str> = Some("vulkan.dot-vectors");
const DOT_TILES: Option<&str> = Some("vulkan.dot-tiles");
const MATRIX_PRODUCTS: Option<&str> = Some("vulkan.matrix-products");

fn vectors(t: &Tuning, shape: MatVec) -> Tuning {
    let mat_vec_int8 = t.mat_vec_int8.map(|[_, two, four, eight]| [shape, two, four, eight]);
    Tuning { mat_vec_int8, ..*t }
}

fn float_vectors(t: &Tuning, shape: MatVec) -> Tuning {
    let [_, two, four, eight] = t.mat_vec;
    Tuning { mat_vec: [shape, two, four, eight], ..*t }
}

fn int8_tiles(t: &Tuning, tiles: &'static [Warptile]) -> Tuning {
    if t.int8_tiles.is_empty() { *t } else { Tuning { int8_tiles: tiles, ..*t } }
}

fn matrix_tiles(t: &Tuning, tiles: &'static [Warptile]) -> Tuning {
    if t.matrix_tiles.is_empty() { *t } else { Tuning { matrix_tiles: tiles, ..*t } }
}

fn part(t: &Tuning, split: u32) -> Tuning {
    Tuning { flash_vec: FlashVec { split, ..t.flash_vec }, ..*t }
}

/// True if a device could use a table: its work-groups and their shared memory are within the limits, and the subgroup size
/// can be chosen. The numbers of processors' drivers are left alone.
pub(super) fn fits(caps: &Caps, tuning: &Tuning) -> bool {
    let shared = |tiles: &[Warptile], fragment| {
        tiles.iter().all(|tile| tile.shared_bytes(fragment) <= caps.shared_bytes)
    };
    let threads = tuning.int8_tiles.iter().map(|tile| tile.workgroup(1)).max().unwrap_or(0);
    let sizes = caps.subgroup_min..=caps.subgroup_max;
    let chosen =
        |lanes: u32| caps.subgroup_control && caps.subgroup_min < caps.subgroup_max && sizes.contains(&lanes);
    caps.arch != crate::arch::ArchClass::Cpu
        && threads <= caps.max_invocations
        && shared(tuning.int8_tiles, Fragment::Int8)
        && shared(tuning.matrix_tiles, Fragment::Matrix)
        && tuning.vector_lanes.is_none_or(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchClass;
    use crate::route::Route;
    use ggml_core::routes::Table;
    use std::collections::HashSet;

    #[test]
    fn names_say_number_and_value() {
        let names: HashSet<&str> = CANDIDATES.iter().map(|candidate| candidate.row.name).collect();
        assert_eq!(names.len(), CANDIDATES.len());
        assert!(CANDIDATES.len() <= 64, "a set has 64 bits");
        for candidate in CANDIDATES {
            assert!(candidate.row.name.starts_with("vulkan.") && candidate.number() != candidate.row.name);
            let base = candidate.row.on_top_of;
            assert!(base.is_none_or(|base| Route::ALL.iter().any(|route| route.row().name == base)));
        }
    }

    /// Every candidate changes the table of a class, and most tables have the value of some.
    #[test]
    fn every_candidate_is_another_value_somewhere() {
        for candidate in CANDIDATES {
            let differs = |class: &ArchClass| (candidate.change)(&Tuning::of(*class)) != Tuning::of(*class);
            assert!(ArchClass::ALL.iter().any(differs), "{}", candidate.row.name);
        }
        let caps = |class, max| Caps { subgroup_min: 32, subgroup_max: max, ..Caps::imagined(class, 64) };
        let wave = Tuning { vector_lanes: Some(32), ..Tuning::of(ArchClass::AmdRdna3) };
        let free = Caps { subgroup_control: true, ..caps(ArchClass::AmdRdna3, 64) };
        assert!(fits(&free, &wave) && !fits(&caps(ArchClass::AmdRdna3, 32), &wave));
        assert!(!fits(&caps(ArchClass::Cpu, 64), &Tuning::of(ArchClass::Cpu)));
    }
}
