//! CACHE_MASK kernel.

use super::kernel::{Args, Kernel};
use crate::cpu::execution::Execution;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::op::CacheMask;

/// Minus infinity in F16.
const HIDDEN: u16 = 0xfc00;

/// Attention mask of cache cells for each token.
#[derive(Debug)]
pub(super) struct CacheMaskKernel(CacheMask);

impl CacheMaskKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: CacheMask) -> CacheMaskKernel {
        CacheMaskKernel(op)
    }

    /// Returns the first and the last position that a token at `position` attends to.
    fn seen(&self, position: i32) -> [i32; 2] {
        let CacheMask { causal, window, chunked } = self.0;
        let all = [0, if causal { position } else { i32::MAX }];
        // A window that does not fit into an i32 hides no position.
        let Some(size) = window.and_then(|size| i32::try_from(size).ok()).filter(|&size| size > 0) else {
            return all;
        };
        if chunked {
            let first = position - position % size;
            [first, all[1].min(first.saturating_add(size - 1))]
        } else {
            [(position - (size - 1)).max(0), all[1]]
        }
    }
}

impl Kernel for CacheMaskKernel {
    /// Each thread computes the rows of some tokens.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(cells), Some(tokens), ..], mut out, .. } = args else { return };
        let [kv, n, ..] = out.ne();
        let (positions, words) = (cells.row::<i32>([0, 0, 0]), cells.ne()[1] - 1);
        let rows = (4096 / kv.max(1)).max(1);
        out.for_each_tile(run, [kv, rows, 1, 1], kv * n / 4, |tile| {
            for i in tile.rows() {
                let row = tile.row::<u16>(i);
                let [sequence, position] = [0, 1].map(|field| tokens.at::<i32>([i[0], field, 0, 0]));
                let [word, bit] = CacheMask::place(usize::try_from(sequence).unwrap_or(usize::MAX));
                if position < 0 || word >= words {
                    row.fill(HIDDEN);
                    continue;
                }
                let holders = cells.row::<i32>([1 + word, 0, 0]);
                dispatch(run.detected(), Row { row, holders, positions, bit, seen: self.seen(position) });
            }
        });
    }
}

/// Mask row of a token: the word of the cells' sequences with the token's sequence and its bit there, the positions
/// of the cells, and those that the token attends to.
struct Row<'a> {
    row: &'a mut [u16],
    holders: &'a [i32],
    positions: &'a [i32],
    bit: usize,
    seen: [i32; 2],
}

impl Job for Row<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [first, last] = self.seen;
        for ((out, &holders), &at) in self.row.iter_mut().zip(self.holders).zip(self.positions) {
            let sees = (holders >> self.bit & 1 == 1) & (at >= first) & (at <= last);
            *out = if sees { 0 } else { HIDDEN };
        }
    }
}
