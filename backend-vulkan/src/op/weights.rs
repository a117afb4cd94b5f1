//! The weight types that have kernels: one table for products and for rows.

use super::Operand;
use crate::device::tuning::Fragment;
use ggml_core::{DType, grids};

/// A type, and the variants of the kernels that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) dtype: DType,
    /// Matrix-vector variants: reduction in workgroup-shared memory, reduction by subgroup arithmetic, the
    /// latter with activations in 8 bits, and that one with weights read through workgroup-shared memory
    /// (some types only).
    vec: [&'static str; 4],
    /// Tile variants by fragment.
    tile: [&'static str; 6],
    /// Variants of the kernel for few columns on matrix units, and on emulated ones (some types only).
    narrow: [&'static str; 2],
    /// Variant that reads rows by index.
    pub(super) rows: &'static str,
    /// Weights of a row that an invocation of a matrix-vector kernel reads at a time.
    pub(super) piece: u32,
    /// True if even the smallest group of weights that is unpacked together (`SMALL_PIECES`) spans a block of
    /// 32, so that tiles need steps of 32.
    pub(super) long: bool,
}

macro_rules! weights {
    ($($dtype:ident $stem:literal $rows:literal $piece:literal $long:literal)*) => {
        [$(Weights {
            dtype: DType::$dtype,
            vec: [concat!($stem, "_lds"), concat!($stem, "_subgroup"), concat!($stem, "_int8"),
                concat!($stem, "_staged")],
            tile: [
                concat!($stem, "_tile32"),
                concat!($stem, "_tile16"),
                concat!($stem, "_matrix"),
                concat!($stem, "_emulated"),
                concat!($stem, "_int8"),
                concat!($stem, "_packed"),
            ],
            narrow: [concat!($stem, "_matrix"), concat!($stem, "_emulated")],
            rows: $rows,
            piece: $piece,
            long: $long,
        }),*]
    };
}

/// The table. The last two columns must match the types' files (`weights_32.glsl` and similar).
pub(super) const WEIGHTS: [Weights; 28] = weights! {
    F32 "f32" "w32" 8 false
    F16 "f16" "f16" 8 false
    BF16 "bf16" "bf16" 8 false
    Q8_0 "q8_0" "q8_0" 16 false
    Q4_0 "q4_0" "q4_0" 16 true
    Q4_1 "q4_1" "q4_1" 16 true
    Q5_0 "q5_0" "q5_0" 16 true
    Q5_1 "q5_1" "q5_1" 16 true
    IQ4_NL "iq4_nl" "iq4_nl" 16 true
    MXFP4 "mxfp4" "mxfp4" 16 true
    Q2_K "q2_k" "q2_k" 32 false
    Q3_K "q3_k" "q3_k" 32 false
    Q4_K "q4_k" "q4_k" 32 false
    Q5_K "q5_k" "q5_k" 32 false
    Q6_K "q6_k" "q6_k" 32 false
    IQ4_XS "iq4_xs" "iq4_xs" 32 true
    Q1_0 "q1_0" "q1_0" 32 false
    Q2_0 "q2_0" "q2_0" 32 false
    NVFP4 "nvfp4" "nvfp4" 16 false
    TQ1_0 "tq1_0" "tq1_0" 8 false
    TQ2_0 "tq2_0" "tq2_0" 32 false
    IQ1_S "iq1_s" "iq1_s" 32 false
    IQ1_M "iq1_m" "iq1_m" 32 false
    IQ2_XXS "iq2_xxs" "iq2_xxs" 32 false
    IQ2_XS "iq2_xs" "iq2_xs" 32 false
    IQ2_S "iq2_s" "iq2_s" 32 false
    IQ3_XXS "iq3_xxs" "iq3_xxs" 32 false
    IQ3_S "iq3_s" "iq3_s" 32 false
};

impl Weights {
    /// Returns the entry of a type, if it has kernels.
    pub(super) fn of(dtype: DType) -> Option<&'static Weights> {
        WEIGHTS.iter().find(|w| w.dtype == dtype)
    }

    /// Returns the weights that a subgroup holds in workgroup-shared memory in the matrix-vector kernel that
    /// reads them there (`stage.glsl`); `None` if the type has no such kernel.
    pub(super) fn stage(&self) -> Option<u32> {
        use DType::*;
        match self.dtype {
            Q8_0 => Some(2048),
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q4_K | Q5_K | Q6_K => Some(4096),
            _ => None,
        }
    }

    /// Returns the variant of the matrix-vector kernel of a form: "lds", "subgroup", or for quantised weights
    /// "int8" and "staged".
    pub(super) fn vec_variant(&self, form: &str) -> &'static str {
        self.vec[["lds", "subgroup", "int8", "staged"].iter().position(|&f| f == form).unwrap_or(0)]
    }

    /// Returns all variants of the matrix-vector kernel.
    pub(super) fn vec_variants(&self) -> &[&'static str] {
        &self.vec
    }

    /// Returns the variant of the tiled kernel.
    pub(super) fn tile_variant(&self, fragment: Fragment) -> &'static str {
        self.tile[fragment as usize]
    }

    /// Returns the variant of the kernel for few columns on matrix units, if the type has one.
    pub(super) fn narrow_variant(&self, fragment: Fragment) -> Option<&'static str> {
        let emulated = matches!(self.dtype, DType::Q8_0 | DType::Q4_K | DType::Q6_K);
        match fragment {
            Fragment::Matrix => self.stage().map(|_| self.narrow[0]),
            Fragment::Emulated if emulated => Some(self.narrow[1]),
            _ => None,
        }
    }

    /// Returns the operand that kernels bind last: the grid of values that weights index, for types with a
    /// grid.
    pub(super) fn table(&self) -> Option<Operand> {
        grids::grid(self.dtype).map(|_| Operand::Grid(self.dtype))
    }
}

/// Returns true if offsets and strides allow loads of 16 bytes: of `b` always, of `a` for plain types.
pub(super) fn aligned(dtype: DType, a: (u32, &[u32]), b: (u32, &[u32])) -> bool {
    let multiple = |unit: u32, (offset, strides): (u32, &[u32])| {
        offset.is_multiple_of(unit) && strides.iter().all(|s| s.is_multiple_of(unit))
    };
    let wide = match dtype {
        DType::F32 => multiple(4, a),
        DType::F16 | DType::BF16 => multiple(8, a),
        _ => true,
    };
    wide && multiple(4, b)
}

/// Returns true if the offsets and strides in blocks make each row begin at a whole word, for types whose
/// blocks may begin at a half-word.
pub(super) fn even(dtype: DType, offsets: &[u32], strides: &[u32]) -> bool {
    dtype.block_bytes() % 4 != 2 || offsets.iter().chain(strides).all(|n| n.is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shaders::ShaderId;

    #[test]
    fn every_variant_is_in_the_table_of_shaders() {
        for w in &WEIGHTS {
            for (stem, variant) in [
                ("mul_mat_vec", w.vec_variant("lds")),
                ("mul_mat_vec", w.vec_variant("subgroup")),
                ("mul_mat_id_vec", w.vec_variant("lds")),
                ("mul_mat_id_vec", w.vec_variant("subgroup")),
                ("get_rows", w.rows),
            ] {
                assert!(ShaderId::find(stem, variant).is_some(), "{stem}/{variant}");
            }
            for stem in ["mul_mat_tile", "mul_mat_id_tile"] {
                use Fragment::*;
                for fragment in [F32, F16, Matrix, Emulated, Int8, Packed] {
                    let variant = w.tile_variant(fragment);
                    let found = ShaderId::find(stem, variant).is_some();
                    assert_eq!(found, fragment.takes(w.dtype), "{stem}/{variant}");
                }
            }
            for stem in ["mul_mat_vec", "mul_mat_id_vec"] {
                let found = ShaderId::find(stem, w.vec_variant("int8")).is_some();
                assert_eq!(found, w.dtype.is_quantized(), "{stem}/{}", w.vec_variant("int8"));
            }
        }
    }
}
