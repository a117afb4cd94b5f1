//! Dot products of quantised weights with 8-bit activations.
//!
//! An element of a result is always computed as the same sum, on every instruction set. For each group of 32
//! in order, an F32 total gets the F32 product of the scales of weights and activations times the exact
//! integer sum of the 32 products. Each minimum times the scaled sum of its activations is then added (not
//! fused). So results are equal bit for bit on all instruction sets. (Half scales are part of the integer
//! sum, which stays below 2^24 and is exact in F32. If they are floats, their products with the sums of the
//! halves are exact, and the sum of both is rounded.)
//!
//! Lanes are rows: the integer sums of eight rows (or of a panel's rows) fill a vector. Scaling then takes a
//! few instructions for all of them, and no final sum over lanes is needed.

use super::block::Quant;
use super::column::Column;
use half::f16;

#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) mod avx512;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;

/// Rows of weights that are multiplied together.
pub(in crate::cpu) const ROWS: usize = 8;

/// Shape of a panel: weights rearranged so that lanes are rows, for products of many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct PanelShape {
    /// Number of rows; a multiple of 8.
    pub(in crate::cpu) rows: usize,
    /// Number of columns that are multiplied with a panel together.
    pub(in crate::cpu) columns: usize,
    /// True if values, also those of the activations, have 16 bits instead of 8.
    pub(in crate::cpu) wide: bool,
    /// Number of F32 values for each row and group: its scale, its minima and further factors.
    pub(in crate::cpu) factors: usize,
    /// Number of columns from which rearranging is worthwhile (measured).
    pub(in crate::cpu) from: usize,
}

/// Maximum number of rows of a panel on any instruction set.
pub(in crate::cpu) const MAX_PANEL_ROWS: usize = 32;

/// Maximum number of columns that are multiplied with a panel together.
pub(in crate::cpu) const MAX_PANEL_COLUMNS: usize = 6;

/// Maximum number of products of a panel with these columns.
pub(in crate::cpu) const MAX_TILE: usize = MAX_PANEL_ROWS * MAX_PANEL_COLUMNS;

/// Integer kernels of an instruction set. The default implementations are portable.
pub(in crate::cpu) trait IntDot: Copy + Send + Sync + 'static {
    /// Returns the shape of panels for a type; `None` if panels are not used.
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        None
    }

    /// Returns the products of eight rows of the same length with a column. It may prefetch `ahead` bytes
    /// after each row.
    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        let _ = ahead;
        rows.map(|row| {
            let mut total = 0.0;
            for (b, block) in row.iter().enumerate() {
                let (scales, halves) = (block.scales(), block.half_floats());
                for g in 0..Q::GROUPS {
                    let at = b * Q::GROUPS + g;
                    let (numbers, x) = (self.numbers(block, g), &x.blocks[at]);
                    let half = |h: usize| -> i32 {
                        (16 * h..16 * h + 16).map(|i| i32::from(numbers[i]) * i32::from(x.q[i])).sum()
                    };
                    let sum = half(0) as f32 * halves[g][0] + half(1) as f32 * halves[g][1];
                    total += block.unit_f32() * f32::from(scales[g]) * x.scale * sum;
                    let unit = f16::from_bits(block.negative_unit()).to_f32_const();
                    for (h, x) in x.weighed().into_iter().enumerate().take(Q::MINIMA) {
                        total += unit * f32::from(block.minima(h)[g]) * x;
                    }
                }
            }
            total
        })
    }

    /// Returns the values of a group without the offset.
    #[inline(always)]
    fn numbers<Q: Quant>(self, block: &Q, g: usize) -> [i8; 32] {
        let numbers = block.group(g).numbers();
        match Q::OFFSET {
            None => numbers,
            Some(offset) => numbers.map(|x| x - offset as i8),
        }
    }

    /// Packs rows into a panel. `values` has 8 or 16 bits for each value; `factors` has
    /// [`PanelShape::factors`] floats for each row and group.
    #[inline(always)]
    fn pack<Q: Quant>(self, _rows: &[&[Q]], _values: &mut [u8], _factors: &mut [f32]) {}

    /// Computes the products of a panel with at most [`PanelShape::columns`] columns: `out[column * rows +
    /// row]`.
    #[inline(always)]
    fn panel<Q: Quant>(
        self,
        _values: &[u8],
        _factors: &[f32],
        _x: &[Column<'_>],
        _out: &mut [f32; MAX_TILE],
    ) {
    }
}

impl IntDot for crate::cpu::simd::scalar::Scalar {}
