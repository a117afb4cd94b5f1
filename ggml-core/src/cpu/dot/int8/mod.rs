//! Products of quantised weights with 8-bit activations.
//!
//! One element of a result is always the same sum, on every instruction set: groups of 32 in order, each the F32
//! product of the scales of weights and activations times the exact integer sum of its 32 products, and each minimum
//! times the scaled sum of its activations, added (not fused) to an F32 total. So these products equal each other bit for
//! bit whatever computes them. (Scales of halves of a group are in the integer sum, which stays below 2^24 and is exact
//! in F32. Where they are floats, their products with the sums of the halves are exact, and the sum of both is rounded.)
//!
//! Lanes are rows: the integer sums of eight rows (or of a panel's) fill a vector, so that scaling costs a few
//! instructions for all of them, and no sum over lanes is left for the end.

use super::block::Quant;
use super::quantize::Column;
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

/// Weights rearranged so that lanes are rows, for products of many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct PanelShape {
    /// Rows; a multiple of 8.
    pub(in crate::cpu) rows: usize,
    /// Columns that are multiplied with a panel together.
    pub(in crate::cpu) columns: usize,
    /// Whether numbers take 16 bits, those of the activations too, and not 8.
    pub(in crate::cpu) wide: bool,
    /// F32 numbers for each row and group: its scale and its minima.
    pub(in crate::cpu) factors: usize,
    /// Number of columns from which on rearranging is worth it (measured).
    pub(in crate::cpu) from: usize,
}

/// Most rows that a panel has on any instruction set.
pub(in crate::cpu) const MAX_PANEL_ROWS: usize = 32;

/// Most columns that are multiplied with a panel together.
pub(in crate::cpu) const MAX_PANEL_COLUMNS: usize = 6;

/// Most products of a panel with such columns.
pub(in crate::cpu) const MAX_TILE: usize = MAX_PANEL_ROWS * MAX_PANEL_COLUMNS;

/// Integer kernels of an instruction set. The defaults are portable.
pub(in crate::cpu) trait IntDot: Copy + Send + Sync + 'static {
    /// The shape of panels of a type; `None` if there are none.
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        None
    }

    /// Products of eight rows of the same length with a column. What lies `ahead` bytes after each row may be asked for.
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

    /// The numbers of a group.
    #[inline(always)]
    fn numbers<Q: Quant>(self, block: &Q, g: usize) -> [i8; 32] {
        let numbers = block.group(g).numbers();
        match Q::OFFSET {
            None => numbers,
            Some(offset) => numbers.map(|x| x - offset as i8),
        }
    }

    /// Rearranges rows into a panel. `values` has 8 or 16 bits for each number, `factors` what
    /// [`PanelShape::factors`] says.
    #[inline(always)]
    fn pack<Q: Quant>(self, _rows: &[&[Q]], _values: &mut [u8], _factors: &mut [f32]) {}

    /// Products of a panel with at most as many columns as its shape says: `out[column * rows + row]`.
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
