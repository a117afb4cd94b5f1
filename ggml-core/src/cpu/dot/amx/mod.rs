//! Products in the tile registers of AMX: panels of 32 rows of weights with blocks of 16 columns of activations.
//!
//! One instruction multiplies 16 columns with 16 rows, over 64 bytes of each. A tile of columns has a column in
//! each of its rows. A tile of weights has in each of its rows the next four bytes of 16 rows of weights, as the
//! panels of AVX-512 have. The result has a column in each row, and a row of weights in each lane.
//!
//! * [`int8`]: quantised weights, equal bit for bit to the kernels of the other instruction sets.
//! * [`bf16`]: F16 and BF16 weights. F16 values are the sum of two BF16 values; activations are rounded to the sum
//!   of two, 16 bits. Products are exact in F32, and sums are F32.
//!
//! Kernels are written over [`registers::Registers`], so that tests run them where there is no AMX.

use super::block::Quant;
use super::quantize::Sums;
use crate::cpu::execution::Line;
use crate::cpu::isa::Detected;
#[cfg(target_arch = "x86_64")]
use crate::cpu::isa::Isa;
use crate::dtype::DType;

#[cfg(target_arch = "x86_64")]
mod bf16;
mod columns;
#[cfg(target_arch = "x86_64")]
mod int8;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

/// Rows of weights of a panel.
pub(in crate::cpu) const ROWS: usize = 32;

/// Columns of a block.
pub(in crate::cpu) const COLUMNS: usize = 16;

/// Smallest number of columns for which tiles are worthwhile: a block costs as much as 10 to 15 columns with vectors.
pub(in crate::cpu) const MIN_COLUMNS: usize = 12;

/// Products of a panel with a block of columns.
pub(in crate::cpu) type Products = [[f32; ROWS]; COLUMNS];

/// Function of [`TileKernels::pack`].
type Pack = fn(&[&[u8]; ROWS], &mut [u8], &mut [f32]);

/// Function of [`TileKernels::multiply`].
type Multiply = fn(&[u8], &[f32], &[Line], &mut [Products]);

/// Layout of panels and of blocks of columns.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 has tile registers"))]
enum Layout {
    /// 8 bits with scales, for a type of quantised weights.
    Blocks8 { sums: Sums, minima: usize, factors: usize },
    /// Two BF16 values for each activation; as many for each weight.
    #[cfg(target_arch = "x86_64")]
    Halves { weights: usize },
}

/// Kernels of one type of weights. They exist only where [`Isa::Amx`] was detected.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct TileKernels {
    detected: Detected,
    layout: Layout,
    pack: Pack,
    multiply: Multiply,
}

#[cfg(target_arch = "x86_64")]
impl TileKernels {
    /// Returns the kernels of a type of quantised weights; `None` without AMX.
    pub(super) fn of_blocks<Q: Quant>(detected: Detected) -> Option<TileKernels> {
        let (pack, multiply) = int8::kernels::<Q>();
        let layout =
            Layout::Blocks8 { sums: Sums::of::<Q>(), minima: Q::MINIMA, factors: int8::factors::<Q>() };
        (detected.isa() == Isa::Amx).then_some(TileKernels { detected, layout, pack, multiply })
    }

    /// Returns the kernels of a plain type; `None` without AMX, and for F32.
    pub(in crate::cpu) fn of_floats(dtype: DType, detected: Detected) -> Option<TileKernels> {
        let (weights, (pack, multiply)) = match dtype {
            DType::F16 => (2, bf16::kernels::<2>()),
            DType::BF16 => (1, bf16::kernels::<1>()),
            _ => return None,
        };
        let layout = Layout::Halves { weights };
        (detected.isa() == Isa::Amx).then_some(TileKernels { detected, layout, pack, multiply })
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl TileKernels {
    /// Returns `None`: there is no AMX.
    pub(super) fn of_blocks<Q: Quant>(_: Detected) -> Option<TileKernels> {
        None
    }

    /// Returns `None`.
    pub(in crate::cpu) fn of_floats(_: DType, _: Detected) -> Option<TileKernels> {
        None
    }
}

impl TileKernels {
    /// Returns the lines of a block of columns of `k` elements.
    pub(in crate::cpu) fn block_lines(&self, k: usize) -> usize {
        match self.layout {
            Layout::Blocks8 { minima, .. } => columns::group_lines(minima) * columns::groups(k),
            #[cfg(target_arch = "x86_64")]
            Layout::Halves { .. } => columns::STEP_LINES * columns::steps(k),
        }
    }

    /// Returns the bytes of a panel's values and of its factors.
    pub(in crate::cpu) fn panel_bytes(&self, k: usize) -> [usize; 2] {
        match self.layout {
            Layout::Blocks8 { factors, .. } => {
                [32, 4 * factors].map(|bytes| ROWS * columns::groups(k) * bytes)
            }
            #[cfg(target_arch = "x86_64")]
            Layout::Halves { weights } => [ROWS * columns::steps(k) * 64 * weights, 0],
        }
    }

    /// Writes column `c` of a block. A block begins as zeros: those of missing columns, and of what is beyond the
    /// end of columns.
    pub(in crate::cpu) fn put(&self, x: &[f32], c: usize, block: &mut [Line]) {
        match self.layout {
            Layout::Blocks8 { sums, minima, .. } => {
                columns::put_blocks(self.detected, x, sums, minima, c, block);
            }
            #[cfg(target_arch = "x86_64")]
            Layout::Halves { .. } => bf16::put(x, c, block),
        }
    }

    /// Packs rows into a panel.
    pub(in crate::cpu) fn pack(&self, rows: &[&[u8]; ROWS], values: &mut [u8], factors: &mut [f32]) {
        (self.pack)(rows, values, factors);
    }

    /// Computes the products of a panel with as many blocks as `products` has.
    pub(in crate::cpu) fn multiply(
        &self,
        values: &[u8],
        factors: &[f32],
        x: &[Line],
        products: &mut [Products],
    ) {
        (self.multiply)(values, factors, x, products);
    }
}
