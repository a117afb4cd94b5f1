//! Products of quantised weights with 8-bit activations.
//!
//! One element of a result is always the same sum, on every instruction set: groups of 32 in order, each the F32
//! product of the two scales times the exact integer sum of its 32 products, added (not fused) to an F32 total. So
//! these products equal each other bit for bit whatever computes them. (Types with scales of parts of a block have
//! them in the integer sum, which stays below 2^24 and is exact in F32.)
//!
//! Lanes are rows: the integer sums of eight rows (or of a panel's) fill a vector, so that scaling costs a few
//! instructions for all of them, and no sum over lanes is left for the end.

use super::quantize::Column;
use super::{BlockQ4, BlockQ6, BlockQ8};
use crate::dtype::DType;
use bytemuck::Pod;
use half::f16;

#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) mod avx512;

/// A group of 32 quantised weights, as kernels take it apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) enum Group<'a> {
    /// 32 signed bytes.
    Bytes(&'a [i8; 32]),
    /// 32 nibbles that are 8 too large, the first 16 numbers in the low ones.
    Nibbles(&'a [u8; 16]),
    /// Six bits and two scales.
    Six(super::GroupQ6<'a>),
}

/// Which of the forms of [`Group`] a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Form {
    /// [`Group::Bytes`].
    Bytes,
    /// [`Group::Nibbles`].
    Nibbles,
    /// [`Group::Six`].
    Six,
}

/// A block of quantised weights.
pub(in crate::cpu) trait Quant: Pod + Send + Sync {
    /// Form of its groups.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for integer kernels of x86-64"))]
    const FORM: Form;
    /// Groups of 32 in a block.
    const GROUPS: usize = 1;
    /// Bits of the block's scale.
    fn scale(&self) -> u16;
    /// A group.
    fn group(&self, g: usize) -> Group<'_>;

    /// A number of a group, its scale within the block included.
    #[inline(always)]
    fn number(&self, g: usize, i: usize) -> i32 {
        match self.group(g) {
            Group::Bytes(q) => i32::from(q[i]),
            Group::Nibbles(q) => i32::from(if i < 16 { q[i] & 15 } else { q[i - 16] >> 4 }) - 8,
            Group::Six(q) => {
                let (low, high) = (q.low[i] >> q.low_shift & 15, q.high[i] >> q.high_shift & 3);
                (i32::from(high << 4 | low) - 32) * i32::from(q.scales[i / 16])
            }
        }
    }
}

impl Quant for BlockQ8 {
    const FORM: Form = Form::Bytes;

    #[inline(always)]
    fn scale(&self) -> u16 {
        u16::from_le_bytes(self.scale)
    }

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Bytes(&self.q)
    }
}

impl Quant for BlockQ4 {
    const FORM: Form = Form::Nibbles;

    #[inline(always)]
    fn scale(&self) -> u16 {
        u16::from_le_bytes(self.scale)
    }

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Nibbles(&self.q)
    }
}

impl Quant for BlockQ6 {
    const FORM: Form = Form::Six;
    const GROUPS: usize = 8;

    #[inline(always)]
    fn scale(&self) -> u16 {
        u16::from_le_bytes(self.scale)
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        Group::Six(self.group(g))
    }
}

/// Does something for a type of quantised weights that is known when the program runs.
pub(in crate::cpu) trait ForQuant {
    /// What comes out.
    type Out;
    /// Does it.
    fn call<Q: Quant>(self) -> Self::Out;
}

/// Calls `f` for the type; `None` if it has no integer products.
pub(in crate::cpu) fn with_quant<F: ForQuant>(dtype: DType, f: F) -> Option<F::Out> {
    Some(match dtype {
        DType::Q8_0 => f.call::<BlockQ8>(),
        DType::Q4_0 => f.call::<BlockQ4>(),
        DType::Q6_K => f.call::<BlockQ6>(),
        _ => return None,
    })
}

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
            let groups = row.iter().flat_map(|block| (0..Q::GROUPS).map(move |g| (block, g)));
            groups.zip(x.q).zip(x.scale).fold(0.0, |total, (((block, g), q), scale)| {
                let sum: i32 = (0..32).map(|i| block.number(g, i) * i32::from(q[i])).sum();
                total + f16::from_bits(block.scale()).to_f32_const() * scale * sum as f32
            })
        })
    }

    /// Rearranges rows into a panel. `values` has 8 or 16 bits for each number, `scales` a number for each row and
    /// group.
    #[inline(always)]
    fn pack<Q: Quant>(self, _rows: &[&[Q]], _values: &mut [u8], _scales: &mut [f32]) {}

    /// Products of a panel with at most as many columns as its shape says: `out[column * rows + row]`.
    #[inline(always)]
    fn panel<Q: Quant>(self, _values: &[u8], _scales: &[f32], _x: &[Column<'_>], _out: &mut [f32; MAX_TILE]) {
    }
}

impl IntDot for crate::cpu::simd::scalar::Scalar {}

#[cfg(target_arch = "aarch64")]
impl IntDot for crate::cpu::simd::neon::Neon {}
