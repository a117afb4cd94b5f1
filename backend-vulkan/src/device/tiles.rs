//! Tiles of matrix products: what multiplies their numbers, and how large they are.

use crate::arch::MatrixShape;
use ggml_core::DType;

/// What multiplies the numbers of a tile: the variants of the tiled kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// F32 numbers in registers of an invocation.
    F32,
    /// Pairs of F16 numbers in registers of an invocation.
    F16,
    /// Cooperative matrices of a subgroup.
    Matrix,
    /// The same with ordinary instructions.
    Emulated,
    /// Bytes in registers of an invocation, by dot products.
    Int8,
}

/// Types of few bits, which have no kernels for matrix units, nor tiles of bytes.
fn has_few_bits(dtype: DType) -> bool {
    use DType::*;
    let plain = matches!(dtype, Q1_0 | Q2_0 | NVFP4 | TQ1_0 | TQ2_0);
    plain || matches!(dtype, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S)
}

impl Fragment {
    /// Whether there is a kernel for weights of a type. Sums of pairs of F16 are short only where weights are small: where
    /// they are quantised, but for NVFP4, which has a factor for all of a matrix besides. F16 does not hold what F32 and BF16
    /// do. Emulated are one type of each kind.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Fragment::F32 => true,
            Fragment::F16 => dtype.is_quantized() && dtype != DType::NVFP4,
            Fragment::Matrix => dtype == DType::F16 || dtype.is_quantized() && !has_few_bits(dtype),
            Fragment::Int8 => dtype.is_quantized() && !has_few_bits(dtype),
            Fragment::Emulated => [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K].contains(&dtype),
        }
    }

    /// Whether its activations are rounded before.
    pub fn rounds(self) -> bool {
        self.is_matrix() || self == Fragment::Int8
    }

    /// Whether it belongs to a subgroup.
    pub fn is_matrix(self) -> bool {
        matches!(self, Fragment::Matrix | Fragment::Emulated)
    }

    /// Whether its numbers are F16 in shared memory.
    pub fn is_f16(self) -> bool {
        !matches!(self, Fragment::F32 | Fragment::Int8)
    }
}

/// The tiles that come into question for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// What they are made of.
    pub fragment: Fragment,
    /// From small to large.
    pub tiles: &'static [Warptile],
    /// Work-groups that a larger tile must leave; for matrices those of tiles of 64 x 64, and more where they are larger.
    pub enough: u32,
    /// Invocations that own `tm` times `tn` elements together: a subgroup with matrices, else one.
    pub lanes: u32,
    /// The size of subgroups to ask for.
    pub subgroup: Option<u32>,
    /// The matrices.
    pub shape: Option<MatrixShape>,
    /// A tile that work-groups share.
    pub streamed: Option<Streamed>,
}

/// A tile of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warptile {
    /// Rows of `a` of a work-group.
    pub bm: u32,
    /// Columns (rows of `b`) of a work-group.
    pub bn: u32,
    /// Length along k of a step: 8, 16, 32 or 64. Types that unpack both halves of a block of 32 together take 32 at the
    /// least.
    pub bk: u32,
    /// Rows of an invocation, or with matrices of a subgroup.
    pub tm: u32,
    /// Columns of it.
    pub tn: u32,
    /// Steps of the inner loop that are written out.
    pub unroll: u32,
    /// Parts of a work-group that share the steps along k.
    pub slices: u32,
    /// Steps that have a place in shared memory at a time: with 2 a step is loaded while the one before is multiplied.
    pub buffers: u32,
}

impl Warptile {
    /// Invocations of a slice; `lanes` as in [`Tiles`].
    pub const fn slice(&self, lanes: u32) -> u32 {
        (self.bm / self.tm) * (self.bn / self.tn) * lanes
    }

    /// Invocations.
    pub const fn workgroup(&self, lanes: u32) -> u32 {
        self.slice(lanes) * self.slices
    }

    /// The same tile with steps of 32 at the least, for types that unpack both halves of a block together, with fewer
    /// slices so that it takes no more shared memory.
    pub const fn long(&self) -> Warptile {
        if self.bk >= 32 {
            return *self;
        }
        let slices = self.slices * self.bk / 32;
        Warptile { bk: 32, slices: if slices > 0 { slices } else { 1 }, ..*self }
    }

    /// Shared memory in bytes.
    pub const fn shared_bytes(&self, fragment: Fragment) -> u32 {
        if let Fragment::Int8 = fragment {
            // Eight words of each row and of eight more; two factors, what their sums begin with and two minima; a scale and
            // sums of columns; a table of pairs.
            let sums = if self.slices > 1 { self.bm * self.bn * 4 } else { 4 };
            return ((self.bm + self.bn + 16) * 32 + self.bm * 24 + self.bn * 16)
                * self.slices
                * self.buffers
                + sums
                + 1088;
        }
        let row = match fragment {
            Fragment::F32 => (self.bk + 2) * 4,
            Fragment::F16 => (self.bk + 4) * 2,
            Fragment::Int8 => self.bk,
            Fragment::Matrix | Fragment::Emulated => (self.bk + 8) * 2,
        };
        let sums = match fragment {
            Fragment::F32 | Fragment::F16 if self.slices > 1 => self.bm * self.bn * 4,
            _ => 4,
        };
        (self.bm + self.bn) * row * self.slices * self.buffers + sums + 8
    }
}

/// A tile of matrix units that as many work-groups as a device has at a time share (`stream.glsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamed {
    /// The tile.
    pub tile: Warptile,
    /// Work-groups: in the tuning tables those of a compute unit, as its registers go, in [`Tiles`] those of the device.
    pub groups: u64,
    /// Steps along k of a work-group from which on this is better than smaller tiles.
    pub least: u64,
}
