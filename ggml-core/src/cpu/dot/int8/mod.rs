//! Dot products of quantised weights with 8-bit activations.
//!
//! Every instruction set adds the same terms in the same order, so results are equal bit for bit. The groups
//! of 32 are added to an F32 total in order. A group first adds the product of the scales of weights and
//! activations times the exact integer sum of the 32 products. Then it adds each minimum times the scaled sum
//! of its activations (not fused).
//!
//! A group of two halves of 16 may have a scale for each half. Integer ones are inside the exact sum, which
//! stays below 2^24 and so is exact in F32. With float ones, each half's product is exact and their sum is
//! rounded.
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

/// Number of rows that [`IntDot::dot8`] multiplies with one column.
pub(in crate::cpu) const ROWS: usize = 8;

/// Shape of a panel: weights rearranged so that lanes are rows, for products of many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct PanelShape {
    /// Number of rows; a multiple of 8.
    pub(in crate::cpu) rows: usize,
    /// Maximum number of columns of one call of [`IntDot::panel`].
    pub(in crate::cpu) columns: usize,
    /// True if values, also those of the activations, have 16 bits instead of 8.
    pub(in crate::cpu) wide: bool,
    /// Number of F32 values for each row and group: its scale, its minima and any scales of its halves,
    /// unless [`IntDot::pack`] multiplies the values by these.
    pub(in crate::cpu) factors: usize,
    /// Minimum number of columns for which packing a panel is worthwhile (measured).
    pub(in crate::cpu) min_columns: usize,
}

/// Returns the number of factors of a row and group with scales of halves: scale, minima, these scales.
pub(super) const fn factor_count(halves: bool, minima: usize) -> usize {
    1 + minima + if halves { 2 } else { 0 }
}

/// Maximum number of rows of a panel on any instruction set.
pub(in crate::cpu) const MAX_PANEL_ROWS: usize = 32;

/// Maximum number of columns of one call of [`IntDot::panel`] on any instruction set.
pub(in crate::cpu) const MAX_PANEL_COLUMNS: usize = 6;

/// Maximum number of results of one call of [`IntDot::panel`].
pub(in crate::cpu) const MAX_TILE: usize = MAX_PANEL_ROWS * MAX_PANEL_COLUMNS;

/// Integer kernels of an instruction set. The default `dot8` and `numbers` are portable. By default `pack`
/// and `panel` do nothing; they are never called for a type without a [`IntDot::panel_shape`].
pub(in crate::cpu) trait IntDot: Copy + Send + Sync + 'static {
    /// Returns the shape of panels for a type; `None` if panels are not used.
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        None
    }

    /// Returns the products of eight rows of the same length with a column. It may prefetch the rows that begin
    /// `ahead` bytes after these.
    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        let _ = ahead;
        rows.map(|row| portable_dot(row, x))
    }

    /// Returns the quantised values of a group with the type's offset ([`Quant::OFFSET`]) subtracted.
    #[inline(always)]
    fn numbers<Q: Quant>(self, block: &Q, g: usize) -> [i8; 32] {
        portable_numbers(block, g)
    }

    /// Packs rows into a panel. `values` has 8 or 16 bits for each value; `factors` has
    /// [`PanelShape::factors`] floats for each row and group.
    #[inline(always)]
    fn pack<Q: Quant>(self, _rows: &[&[Q]], _values: &mut [u8], _factors: &mut [f32]) {}

    /// Computes the products of a panel with at most [`PanelShape::columns`] columns: `out[column * rows +
    /// row]`. A packed panel shows of its type only whether halves have scales, and the number of minima.
    #[inline(always)]
    fn panel<const HALVES: bool, const MINIMA: usize>(
        self,
        _values: &[u8],
        _factors: &[f32],
        _x: &[Column<'_>],
        _out: &mut [f32; MAX_TILE],
    ) {
    }
}

impl IntDot for crate::cpu::simd::scalar::Scalar {}

/// Returns the quantised values of a group without the offset.
#[inline(always)]
fn portable_numbers<Q: Quant>(block: &Q, g: usize) -> [i8; 32] {
    let numbers = block.group(g).numbers();
    match Q::OFFSET {
        None => numbers,
        Some(offset) => numbers.map(|x| x - offset as i8),
    }
}

/// Returns the product of a row with a column. Not inlined: there is one for each type, in plain code.
#[inline(never)]
fn portable_dot<Q: Quant>(row: &[Q], x: Column<'_>) -> f32 {
    let mut total = 0.0;
    for (block, x) in row.iter().zip(x.blocks.chunks_exact(Q::GROUPS)) {
        let (scales, halves, unit) = (block.scales(), block.half_floats(), block.unit_f32());
        for (g, x) in x.iter().enumerate() {
            let numbers = portable_numbers(block, g);
            let half = |h: usize| -> i32 {
                (16 * h..16 * h + 16).map(|i| i32::from(numbers[i]) * i32::from(x.q[i])).sum()
            };
            let sum = half(0) as f32 * halves[g][0] + half(1) as f32 * halves[g][1];
            total += unit * f32::from(scales[g]) * x.scale * sum;
            let unit = f16::from_bits(block.negative_unit()).to_f32_const();
            for (h, x) in x.weighed().into_iter().enumerate().take(Q::MINIMA) {
                total += unit * f32::from(block.minima(h)[g]) * x;
            }
        }
    }
    total
}
