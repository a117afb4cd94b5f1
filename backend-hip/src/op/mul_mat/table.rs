//! Names of the kernels of MUL_MAT, by type of weights.

use super::super::types::of_type;
use ggml_core::DType;

/// Kernels of a type for F32 activations: one for each of [`TILES`](crate::tuning::TILES).
pub(super) struct Kernels {
    /// Stem of their source.
    pub(super) module: &'static str,
    /// True if all of them exist; else only those marked `of_every_type`.
    pub(super) all: bool,
    pub(super) tiles: [&'static str; 4],
    pub(super) int8: Int8Kernels,
    pub(super) half: HalfKernels,
}

impl Kernels {
    /// Returns true if the type has a variant with this `of_every_type`.
    pub(super) fn has(&self, of_every_type: bool) -> bool {
        self.all || of_every_type
    }
}

/// Kernels of a type for activations in 8 bits: one for each of the first three of [`TILES`](crate::tuning::TILES) (the sums of 128
/// x 128, in integers and F32, would need all registers).
pub(super) struct Int8Kernels {
    /// Stem of their source. Types without blocks and types of few bits have none.
    pub(super) module: Option<&'static str>,
    pub(super) tiles: [&'static str; 3],
}

/// Kernels of a type for activations in F16: one for each of [`HALF_TILES`](crate::tuning::HALF_TILES), the larger for matrix units
/// only, or one for each of [`MMA_TILES`](crate::tuning::MMA_TILES). Targets without dot products have packed ones, one for
/// each of the first three of [`TILES`](crate::tuning::TILES).
pub(super) struct HalfKernels {
    /// Stem of their source. Types whose values exceed F16 and types of few bits have none.
    pub(super) module: Option<&'static str>,
    /// The same for the packed kernels, which multiply a block's integers. Types of few bits have none.
    pub(super) packed: Option<&'static str>,
    pub(super) tiles: [&'static str; 2],
    pub(super) mma_tiles: [&'static str; 3],
    pub(super) packed_tiles: [&'static str; 3],
}

/// Builds the kernels of a type from its name in the kernels' names, the stems of their sources, and a flag if
/// all variants exist.
macro_rules! kernels {
    ($t:literal, $module:literal, $int8:expr, $half:expr, $packed:expr, $all:literal) => {
        Kernels {
            module: $module,
            all: $all,
            tiles: [
                concat!("mat_tile_", $t, "_64x32"),
                concat!("mat_tile_", $t, "_64x64"),
                concat!("mat_tile_", $t, "_128x64"),
                concat!("mat_tile_", $t, "_128x128"),
            ],
            int8: Int8Kernels {
                module: $int8,
                tiles: [
                    concat!("mat_tile_int8_", $t, "_64x32"),
                    concat!("mat_tile_int8_", $t, "_64x64"),
                    concat!("mat_tile_int8_", $t, "_128x64"),
                ],
            },
            half: HalfKernels {
                module: $half,
                packed: $packed,
                tiles: [concat!("mat_tile_half_", $t, "_64x64"), concat!("mat_tile_half_", $t, "_128x128")],
                mma_tiles: [
                    concat!("mat_tile_mma_", $t, "_64x64"),
                    concat!("mat_tile_mma_", $t, "_64x128"),
                    concat!("mat_tile_mma_", $t, "_128x128"),
                ],
                packed_tiles: [
                    concat!("mat_tile_packed_", $t, "_64x32"),
                    concat!("mat_tile_packed_", $t, "_64x64"),
                    concat!("mat_tile_packed_", $t, "_128x64"),
                ],
            },
        }
    };
}

/// Builds the kernels of a type by its kind.
macro_rules! entry {
    (plain $t:literal $all:literal) => {
        kernels!($t, "mul_mat", None, None, None, $all)
    };
    (f16 $t:literal $all:literal) => {
        kernels!($t, "mul_mat", None, Some("mul_mat_half"), None, $all)
    };
    (blocks_32 $t:literal $all:literal) => {
        entry!("mul_mat_32", "mul_mat_int8_32", "mul_mat_half_32", $t, $all)
    };
    (wide_32 $t:literal $all:literal) => {
        kernels!($t, "mul_mat_32", Some("mul_mat_int8_32"), None, Some("mul_mat_half_32"), $all)
    };
    (blocks_256 $t:literal $all:literal) => {
        entry!("mul_mat_256", "mul_mat_int8_256", "mul_mat_half_256", $t, $all)
    };
    (low $t:literal $all:literal) => {
        kernels!($t, "mul_mat_low", None, None, None, $all)
    };
    ($module:literal, $int8:literal, $half:literal, $t:literal, $all:literal) => {
        kernels!($t, $module, Some($int8), Some($half), Some($half), $all)
    };
}

/// Returns the kernels of a type of weights, if it has some.
pub(super) fn kernels(dtype: DType) -> Option<Kernels> {
    of_type!(dtype, entry)
}
