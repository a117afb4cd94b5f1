//! Activations in 8 bits: blocks of 32 with an F32 scale.
//!
//! The scale is the largest magnitude over 127; values are rounded to nearest, ties to even. A block with an infinity
//! or a NaN gets a NaN for its scale, so that a fault upstream shows in the result instead of vanishing here. Blocks
//! of magnitudes below [`SMALLEST`] become zeros.

use super::block::Quant;
use crate::cpu::run::Line;
use crate::cpu::simd::Simd;

/// Magnitude below which 127 over it could be infinite.
const SMALLEST: f32 = 1e-36;

/// A row of activations in 8 bits.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "numbers in 16 bits are for kernels of x86-64")
)]
pub(in crate::cpu) struct Column<'a> {
    /// Numbers, in blocks.
    pub(in crate::cpu) q: &'a [[i8; 32]],
    /// The same in 16 bits, where kernels want them so.
    pub(in crate::cpu) wide: &'a [[i16; 32]],
    /// Scale of each block.
    pub(in crate::cpu) scale: &'a [f32],
    /// Sums of the first 16 and of the last 16 numbers of each block.
    pub(in crate::cpu) sums: &'a [[i16; 2]],
}

impl Column<'_> {
    /// Sum of the numbers of a block.
    #[inline(always)]
    pub(in crate::cpu) fn sum(&self, block: usize) -> i32 {
        let [first, last] = self.sums[block];
        i32::from(first) + i32::from(last)
    }

    /// What the minima of a group of weights are multiplied with: the sum of the activations, or those of its halves.
    #[inline(always)]
    pub(in crate::cpu) fn weighed<Q: Quant>(&self, block: usize) -> [f32; 2] {
        let scale = self.scale[block];
        match Q::MINIMA {
            2 => self.sums[block].map(|sum| scale * f32::from(sum)),
            _ => [scale * self.sum(block) as f32, 0.0],
        }
    }
}

/// How the parts of a row lie in scratch memory, in lines.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct RowScratch {
    blocks: usize,
    wide: bool,
}

impl RowScratch {
    /// For rows of `k` numbers; `wide` asks for the numbers in 16 bits too.
    pub(in crate::cpu) fn new(k: usize, wide: bool) -> RowScratch {
        RowScratch { blocks: k / 32, wide }
    }

    /// Lines of the numbers, of the scales (and of the sums), of the numbers in 16 bits.
    fn parts(&self) -> [usize; 3] {
        let lines = |bytes: usize| bytes.div_ceil(size_of::<Line>());
        [lines(self.blocks * 32), lines(self.blocks * 4), if self.wide { lines(self.blocks * 64) } else { 0 }]
    }

    /// Lines of a row.
    pub(in crate::cpu) fn lines(&self) -> usize {
        let [q, scale, wide] = self.parts();
        q + 2 * scale + wide
    }

    /// A row in its scratch memory.
    #[inline]
    pub(in crate::cpu) fn column<'a>(&self, lines: &'a [Line]) -> Column<'a> {
        let [q, scale, _] = self.parts();
        let (q, lines) = lines.split_at(q);
        let (scales, lines) = lines.split_at(scale);
        let (sums, wide) = lines.split_at(scale);
        let n = self.blocks;
        Column {
            q: &bytemuck::cast_slice(q)[..n],
            scale: &bytemuck::cast_slice(scales)[..n],
            sums: &bytemuck::cast_slice(sums)[..n],
            wide: if self.wide { &bytemuck::cast_slice(wide)[..n] } else { &[] },
        }
    }

    /// Rounds a row into its scratch memory.
    #[inline(always)]
    pub(in crate::cpu) fn fill<S: Simd>(&self, s: S, x: &[f32], lines: &mut [Line]) {
        let [q, scale, _] = self.parts();
        let (q, lines) = lines.split_at_mut(q);
        let (scales, lines) = lines.split_at_mut(scale);
        let (sums, wide) = lines.split_at_mut(scale);
        let q: &mut [[i8; 32]] = bytemuck::cast_slice_mut(q);
        let scales: &mut [f32] = bytemuck::cast_slice_mut(scales);
        let sums: &mut [[i16; 2]] = bytemuck::cast_slice_mut(sums);
        for (((x, q), scale), sum) in x.as_chunks::<32>().0.iter().zip(&mut *q).zip(scales).zip(sums) {
            *scale = block(s, x, q);
            let half = |q: &[i8]| q.iter().map(|&q| i16::from(q)).sum();
            *sum = [half(&q[..16]), half(&q[16..])];
        }
        if self.wide {
            let wide: &mut [[i16; 32]] = bytemuck::cast_slice_mut(wide);
            wide.iter_mut().zip(q).for_each(|(wide, q)| *wide = q.map(i16::from));
        }
    }
}

/// Rounds a block; its scale.
#[inline(always)]
fn block<S: Simd>(s: S, x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    let mut most = s.splat(0.0);
    let mut finite = s.splat(0.0);
    for chunk in x.chunks_exact(S::LANES) {
        let v = s.load(chunk);
        most = s.max(s.abs(v), most);
        // Nothing but 0, unless a number is infinite or NaN.
        finite = s.add(finite, s.sub(v, v));
    }
    let most = s.greatest(most);
    if s.sum(finite) != 0.0 {
        *q = [0; 32];
        return f32::NAN;
    }
    if most < SMALLEST {
        *q = [0; 32];
        return 0.0;
    }
    let factor = s.splat(127.0 / most);
    for (chunk, q) in x.chunks_exact(S::LANES).zip(q.chunks_exact_mut(S::LANES)) {
        s.store_i8(q, s.mul(s.load(chunk), factor));
    }
    most / 127.0
}
