//! Tiles of matrix products: arithmetic and sizes.

use crate::arch::MatrixShape;
use ggml_core::DType;

/// The arithmetic of a tile: the variants of the tiled kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// F32 values in registers of an invocation.
    F32,
    /// Pairs of F16 values in registers of an invocation, with the factors of the weights.
    F16,
    /// Cooperative matrices of a subgroup.
    Matrix,
    /// Cooperative matrices emulated with ordinary instructions.
    Emulated,
    /// Bytes in registers of an invocation, multiplied by integer dot products.
    Int8,
    /// Pairs of F16 values in registers of an invocation: integers of blocks.
    Packed,
}

/// Returns true for types of few bits, which have no kernels for matrix units or byte tiles.
fn has_few_bits(dtype: DType) -> bool {
    use DType::*;
    let plain = matches!(dtype, Q1_0 | Q2_0 | NVFP4 | TQ1_0 | TQ2_0);
    plain || matches!(dtype, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S)
}

impl Fragment {
    /// Returns true if there is a kernel for weights of a type. The F16 fragment, for types of few bits, sums the
    /// products of a step in F16, which works only for small weights: not for NVFP4, which has an additional
    /// factor for the whole matrix. F16 cannot hold the range and precision of F32 and BF16. Emulated kernels
    /// exist for one type of each kind.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Fragment::F32 => true,
            Fragment::F16 => has_few_bits(dtype) && dtype != DType::NVFP4,
            Fragment::Matrix => dtype == DType::F16 || dtype.is_quantized() && !has_few_bits(dtype),
            Fragment::Int8 | Fragment::Packed => dtype.is_quantized() && !has_few_bits(dtype),
            Fragment::Emulated => [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K].contains(&dtype),
        }
    }

    /// Returns true if activations are rounded in a separate pass before the product.
    pub fn rounds(self) -> bool {
        self.is_matrix() || self.has_words()
    }

    /// Returns true if the fragment belongs to a subgroup rather than an invocation.
    pub fn is_matrix(self) -> bool {
        matches!(self, Fragment::Matrix | Fragment::Emulated)
    }

    /// Returns true if adjacent elements of activations and of blocks' integers are stored as words.
    pub fn has_words(self) -> bool {
        matches!(self, Fragment::Int8 | Fragment::Packed)
    }

    /// Returns true if operands are stored as F16 in workgroup-shared memory.
    pub fn is_f16(self) -> bool {
        !matches!(self, Fragment::F32 | Fragment::Int8)
    }
}

/// The candidate tiles for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Arithmetic of the tiles.
    pub fragment: Fragment,
    /// Tiles from small to large.
    pub tiles: &'static [Warptile],
    /// Tiles of mixtures from small to large.
    pub of_experts: &'static [Warptile],
    /// Minimum work-groups that a tile must yield to be preferred over a smaller one. For matrix units this
    /// is the minimum for tiles of 64 x 64; it scales with the tile's area.
    pub enough: u32,
    /// Invocations that own `tm` times `tn` elements together: a subgroup for matrices, otherwise one.
    pub lanes: u32,
    /// Required subgroup size, if any.
    pub subgroup: Option<u32>,
    /// Shape of the cooperative matrices.
    pub shape: Option<MatrixShape>,
    /// A tile shared between work-groups.
    pub streamed: Option<Streamed>,
}

impl Tiles {
    /// Returns the same for the products of a mixture.
    pub fn for_experts(self) -> Tiles {
        Tiles { tiles: self.of_experts, ..self }
    }
}

/// A tile of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warptile {
    /// Rows of `a` per work-group.
    pub bm: u32,
    /// Columns (rows of `b`) per work-group.
    pub bn: u32,
    /// Length of a step along k: 8, 16, 32 or 64. Types that unpack both halves of a block of 32 together
    /// need at least 32.
    pub bk: u32,
    /// Rows per invocation, or per subgroup with matrices.
    pub tm: u32,
    /// Columns per invocation, or per subgroup with matrices.
    pub tn: u32,
    /// Unroll factor of the inner loop.
    pub unroll: u32,
    /// Slices: parts of a work-group that divide the steps along k.
    pub slices: u32,
    /// Steps buffered in workgroup-shared memory at a time: with 2, a step is loaded while the previous one
    /// is multiplied.
    pub buffers: u32,
}

impl Warptile {
    /// Returns the invocations of a slice; `lanes` as in [`Tiles`].
    pub const fn slice(&self, lanes: u32) -> u32 {
        (self.bm / self.tm) * (self.bn / self.tn) * lanes
    }

    /// Returns the invocations of a work-group.
    pub const fn workgroup(&self, lanes: u32) -> u32 {
        self.slice(lanes) * self.slices
    }

    /// Returns the same tile with steps of at least 32, for types that unpack both halves of a block
    /// together. It has fewer slices, so that it needs no more workgroup-shared memory.
    pub const fn long(&self) -> Warptile {
        if self.bk >= 32 {
            return *self;
        }
        let slices = self.slices * self.bk / 32;
        Warptile { bk: 32, slices: if slices > 0 { slices } else { 1 }, ..*self }
    }

    /// Returns the workgroup-shared memory of a fragment with words, and a table of pairs. `line`: bytes of a row in a
    /// step; `factors`: those of what else a row of `a` has.
    const fn bytes_of_words(&self, line: u32, factors: u32) -> u32 {
        let sums = if self.slices > 1 { self.bm * self.bn * 4 } else { 4 };
        let step = (self.bm + self.bn + 16) * line + self.bm * factors + self.bn * 16;
        step * self.slices * self.buffers + sums + 1088
    }

    /// Returns the workgroup-shared memory in bytes.
    pub const fn shared_bytes(&self, fragment: Fragment) -> u32 {
        if let Fragment::Int8 = fragment {
            // Eight words for each row and for eight extra rows; two factors, the initial value of the sums
            // and two minima for each row of `a`; a scale and sums for each column; a table of pairs.
            return self.bytes_of_words(32, 24);
        }
        if let Fragment::Packed = fragment {
            // Sixteen words; two factors and two minima for each row of `a`; four sums for each column.
            return self.bytes_of_words(64, 16);
        }
        let row = match fragment {
            Fragment::F32 => (self.bk + 2) * 4,
            Fragment::F16 => (self.bk + 4) * 2,
            Fragment::Int8 => self.bk,
            Fragment::Packed => 2 * self.bk,
            Fragment::Matrix | Fragment::Emulated => (self.bk + 8) * 2,
        };
        let sums = match fragment {
            Fragment::F32 | Fragment::F16 if self.slices > 1 => self.bm * self.bn * 4,
            _ => 4,
        };
        (self.bm + self.bn) * row * self.slices * self.buffers + sums + 8
    }
}

/// A tile of matrix units shared between all work-groups that a device runs concurrently (`stream.glsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamed {
    /// The tile.
    pub tile: Warptile,
    /// Number of work-groups: per compute unit, as its registers allow, in the tuning tables; for the whole
    /// device in [`Tiles`].
    pub groups: u64,
    /// Minimum steps along k per work-group for which this tile is better than smaller ones.
    pub least: u64,
}
