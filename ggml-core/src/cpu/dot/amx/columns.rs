//! Blocks of 16 columns of activations.
//!
//! In 8 bits a block has for each group of 32 the values of all columns (column by column), the scales of all
//! columns, and for each minimum of the weights the sums that it is multiplied with
//! ([`Rounded::weighed`](crate::cpu::dot::column::Rounded::weighed)). In BF16 it has for each step of 32 elements
//! the upper parts of all columns, then the lower parts.

use super::COLUMNS;
use crate::cpu::dot::column::Rounded;
use crate::cpu::dot::quantize::{Sums, fill};
use crate::cpu::execution::Line;
use crate::cpu::isa::Detected;
use crate::cpu::simd::{Job, Simd, dispatch};

/// Groups whose sums are in registers at the same time.
pub(super) const AT_ONCE: usize = 4;

/// Lines of a step of a block in BF16.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 has tile registers"))]
pub(super) const STEP_LINES: usize = 2 * COLUMNS;

/// Returns the groups of a block: those of `k` elements and zeros, a multiple of [`AT_ONCE`].
pub(super) fn groups(k: usize) -> usize {
    (k / 32).next_multiple_of(AT_ONCE)
}

/// Returns the lines of a group: values, scales, sums for each minimum.
pub(super) const fn group_lines(minima: usize) -> usize {
    COLUMNS / 2 + 1 + minima
}

/// Returns the steps of a block in BF16.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 has tile registers"))]
pub(super) fn steps(k: usize) -> usize {
    k.div_ceil(32)
}

/// Quantises a column into a block.
pub(super) fn put_blocks(
    detected: Detected,
    x: &[f32],
    sums: Sums,
    minima: usize,
    c: usize,
    block: &mut [Line],
) {
    dispatch(detected, PutBlocks { x, sums, minima, c, block });
}

/// Operands of [`put_blocks`].
struct PutBlocks<'a> {
    x: &'a [f32],
    sums: Sums,
    minima: usize,
    c: usize,
    block: &'a mut [Line],
}

impl Job for PutBlocks<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut rounded = Rounded::default();
        for (x, group) in
            self.x.as_chunks().0.iter().zip(self.block.chunks_exact_mut(group_lines(self.minima)))
        {
            fill(s, self.sums, x, &mut rounded);
            put(&rounded, self.minima, self.c, group);
        }
    }
}

/// Writes 32 values of a column with their scale and sums.
#[inline(always)]
fn put(from: &Rounded, minima: usize, c: usize, group: &mut [Line]) {
    let (q, floats) = group.split_at_mut(COLUMNS / 2);
    let (q, floats): (&mut [[i8; 32]], &mut [[f32; COLUMNS]]) =
        (bytemuck::cast_slice_mut(q), bytemuck::cast_slice_mut(floats));
    q[c] = from.q;
    floats[0][c] = from.scale;
    for (to, sum) in floats[1..].iter_mut().zip(from.weighed()).take(minima) {
        to[c] = sum;
    }
}
