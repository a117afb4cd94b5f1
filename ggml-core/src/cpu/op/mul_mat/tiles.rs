//! Products in tile registers.

use super::columns::TileProduct;
use super::int8::put;
use crate::cpu::dot::amx::{COLUMNS, Products, ROWS, TileKernels};
use crate::cpu::execution::Line;
use crate::cpu::isa::Detected;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};

/// Blocks of columns between which rows of the next panel are prefetched.
const BLOCKS: usize = 2;

/// Smallest number of columns of a tile if there are few panels, and the number that it is a multiple of.
pub(super) const TILE_COLUMNS: (usize, usize) = (BLOCKS * COLUMNS, COLUMNS);

/// Lines of the products of these blocks.
const PRODUCT_LINES: usize = BLOCKS * size_of::<Products>() / size_of::<Line>();

/// Returns the lines of a thread's scratch memory: values of a panel, its factors, products.
pub(super) fn local_lines(kernels: &TileKernels, k: usize) -> usize {
    kernels.panel_bytes(k).iter().sum::<usize>() / size_of::<Line>() + PRODUCT_LINES
}

/// Blocks of all columns. Those of each matrix begin a block.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) lines: &'a [Line],
    /// Lines of a block.
    pub(super) block: usize,
    /// Extents of the columns' tensor.
    pub(super) ne: [usize; 4],
}

impl<'a> Blocks<'a> {
    /// Returns the number of blocks for columns with extents `ne`.
    pub(super) fn count([_, n, b2, b3]: [usize; 4]) -> usize {
        n.div_ceil(COLUMNS) * b2 * b3
    }

    /// Returns the columns of block `i`, which belong to one matrix.
    pub(super) fn columns(ne: [usize; 4], i: usize) -> impl Iterator<Item = [usize; 3]> {
        let [_, n, b2, _] = ne;
        let (of_matrix, first) = (n.div_ceil(COLUMNS), i % n.div_ceil(COLUMNS) * COLUMNS);
        let [s, t] = [i / of_matrix % b2, i / of_matrix / b2];
        (first..n.min(first + COLUMNS)).map(move |j| [j, s, t])
    }

    /// Returns up to [`BLOCKS`] blocks from the one that begins with a column of the result on.
    fn from(&self, [j, s, t]: [usize; 3]) -> &'a [Line] {
        let of_matrix = self.ne[1].div_ceil(COLUMNS);
        let blocks = (of_matrix - j / COLUMNS).min(BLOCKS);
        let first = (t * self.ne[2] + s) * of_matrix + j / COLUMNS;
        &self.lines[first * self.block..(first + blocks) * self.block]
    }
}

/// Panel of weights that is packed and multiplied with all columns of a tile. The columns of the tile begin a
/// block.
pub(super) struct TilePanel<'a, 'b> {
    pub(super) kernels: &'a TileKernels,
    pub(super) a: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    pub(super) x: Blocks<'a>,
    /// Scratch memory of [`local_lines`].
    pub(super) local: &'a mut [Line],
}

impl TilePanel<'_, '_> {
    /// Computes the products.
    pub(super) fn compute(self, detected: Detected) {
        let TilePanel { kernels, a, of, tile, x, local } = self;
        let (rows, columns) = (tile.range(0), &of.columns);
        // At the end, the last row replaces missing rows.
        let group: [&[u8]; ROWS] = a.group(rows.start, rows.end - 1, of.matrix);
        let (panel, products) = local.split_at_mut(local.len() - PRODUCT_LINES);
        let (values, factors) =
            bytemuck::cast_slice_mut::<Line, u8>(panel).split_at_mut(kernels.panel_bytes(a.ne()[0])[0]);
        let factors = bytemuck::cast_slice_mut(factors);
        kernels.pack(&group, values, factors);
        let products: &mut [Products] = bytemuck::cast_slice_mut(products);
        let (ahead, steps) = (ROWS * a.nb()[1], columns.len().div_ceil(BLOCKS * COLUMNS));
        for (step, first) in (0..columns.len()).step_by(BLOCKS * COLUMNS).enumerate() {
            // Rows of the next panel, which this thread most likely processes next.
            let lines = [step, step + 1].map(|step| step * ahead.div_ceil(64) / steps);
            dispatch(detected, Prefetch { from: &group[0][0], ahead, lines });
            let count = (columns.len() - first).min(BLOCKS * COLUMNS);
            let products = &mut products[..count.div_ceil(COLUMNS)];
            kernels.multiply(values, factors, x.from(columns.at(first)), products);
            for (c, products) in products.as_flattened().iter().enumerate().take(count) {
                put(tile.row(columns.at(first + c)), products);
            }
        }
    }
}

/// Job that prefetches some lines after `from` at a distance of `ahead` bytes.
struct Prefetch<'a> {
    from: &'a u8,
    ahead: usize,
    lines: [usize; 2],
}

impl Job for Prefetch<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for line in self.lines[0]..self.lines[1] {
            s.prefetch(self.from, self.ahead + 64 * line);
        }
    }
}
