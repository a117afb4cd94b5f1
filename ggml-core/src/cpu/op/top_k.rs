//! TOP_K kernel.

use super::kernel::{Args, Kernel};
use crate::cpu::execution::Execution;
use crate::op::TopK;

/// Indices of the largest elements of rows.
#[derive(Debug)]
pub(super) struct TopKKernel(TopK);

impl TopKKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: TopK) -> TopKKernel {
        TopKKernel(op)
    }
}

impl Kernel for TopKKernel {
    /// Each thread processes some rows. The result itself holds the best elements so far in order: most
    /// elements are compared with the last of them only.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(x), ..], mut out, .. } = args else { return };
        let ne = out.ne();
        let n = x.ne()[0];
        let rows = (4096 / n).max(1);
        // The best elements change more often while few elements have been processed.
        let ns = ne[1] * ne[2] * ne[3] * (n + 20 * ne[0]);
        out.for_each_tile(run, [ne[0], rows, 1, 1], ns, |tile| {
            for i in tile.rows() {
                let best = &mut tile.row(i)[..self.0.k];
                top(x.row(i), best);
                let first = if self.0.flat { (i[0] * n) as i32 } else { 0 };
                best.iter_mut().for_each(|index| *index += first);
            }
        });
    }
}

/// True if `a` ranks before `b`, given that `b` has the lower index.
fn precedes(a: f32, b: f32) -> bool {
    (a > b) | (b.is_nan() & !a.is_nan())
}

/// Elements that are compared together, in vectors: few elements of a long row are among the best.
const TOGETHER: usize = 64;

/// Writes the indices of the largest elements of `x` to `best`, as many as it holds.
pub(super) fn top(x: &[f32], best: &mut [i32]) {
    let mut count = 0;
    for (first, chunk) in (0..).step_by(TOGETHER).zip(x.chunks(TOGETHER)) {
        if count == best.len() {
            let last = x[best[count - 1] as usize];
            if !chunk.iter().fold(false, |any, &new| any | precedes(new, last)) {
                continue;
            }
        }
        for (i, &new) in (first..).zip(chunk) {
            let full = count == best.len();
            if full && !precedes(new, x[best[count - 1] as usize]) {
                continue;
            }
            let place = best[..count].partition_point(|&j| !precedes(new, x[j as usize]));
            // Once `best` is full, the last entry is dropped.
            count += usize::from(!full);
            best.copy_within(place..count - 1, place + 1);
            best[place] = i;
        }
    }
}
