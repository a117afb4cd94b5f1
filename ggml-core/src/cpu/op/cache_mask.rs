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
        let [sequences, positions] = [0, 1].map(|i| cells.row::<i32>([i, 0, 0]));
        let rows = (4096 / kv.max(1)).max(1);
        out.for_each_tile(run, [kv, rows, 1, 1], kv * n / 4, |tile| {
            for i in tile.rows() {
                let row = tile.row::<u16>(i);
                let [sequence, position] = [0, 1].map(|field| tokens.at::<i32>([i[0], field, 0, 0]));
                if sequence < 0 || position < 0 {
                    row.fill(HIDDEN);
                    continue;
                }
                let seen = self.seen(position);
                dispatch(run.detected(), Row { row, sequences, positions, sequence, seen });
            }
        });
    }
}

/// Mask row of a token: the token's sequence, the positions that it attends to, and the cells' sequences and
/// positions.
struct Row<'a> {
    row: &'a mut [u16],
    sequences: &'a [i32],
    positions: &'a [i32],
    sequence: i32,
    seen: [i32; 2],
}

impl Job for Row<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [first, last] = self.seen;
        for ((out, &of), &at) in self.row.iter_mut().zip(self.sequences).zip(self.positions) {
            let sees = (of == self.sequence) & (at >= first) & (at <= last);
            *out = if sees { 0 } else { HIDDEN };
        }
    }
}
