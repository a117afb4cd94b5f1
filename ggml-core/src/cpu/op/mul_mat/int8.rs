//! Products with activations quantised to 8 bits.

use super::columns::{TileProduct, source};
use crate::cpu::dot::column::Column;
use crate::cpu::dot::int8::{MAX_PANEL_COLUMNS, MAX_PANEL_ROWS, MAX_TILE, PanelShape, ROWS};
use crate::cpu::dot::kernels::BlockKernels;
use crate::cpu::dot::quantize::{RowScratch, Sums};
use crate::cpu::execution::Line;
use crate::cpu::simd::{Job, Simd};
use crate::cpu::window::{Input, Tile};

/// Job that quantises a column of activations to 8 bits.
pub(super) struct Quantize<'a> {
    pub(super) row: RowScratch,
    pub(super) sums: Sums,
    pub(super) x: &'a [f32],
    pub(super) lines: &'a mut [Line],
}

impl Job for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.row.fill(s, self.sums, self.x, self.lines);
    }
}

/// All columns, quantised.
pub(super) struct Rows<'a> {
    pub(super) b: Input<'a>,
    pub(super) row: RowScratch,
    pub(super) lines: &'a [Line],
}

impl<'a> Rows<'a> {
    /// Returns the column for a column of the result. (Not a closure: the compiler would not inline it and
    /// would pass its result through memory.)
    #[inline(always)]
    fn at(&self, at: [usize; 3]) -> Column<'a> {
        let ([j, s, t], [_, n, b2, _], lines) = (source(&self.b, at), self.b.ne(), self.row.lines());
        let first = ((t * b2 + s) * n + j) * lines;
        self.row.column(&self.lines[first..first + lines])
    }
}

/// Products of few columns of 8-bit activations: rows of weights, eight at a time. A row is read once from
/// memory and then from the cache for the other columns.
pub(super) struct DotBlocks<'a, 'b> {
    pub(super) kernels: &'a BlockKernels,
    pub(super) a: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    pub(super) x: &'a Rows<'a>,
}

impl DotBlocks<'_, '_> {
    /// Computes the products.
    pub(super) fn compute(self) {
        let (rows, columns) = (self.tile.range(0), &self.of.columns);
        let [a2, a3] = self.of.matrix;
        let ahead = ROWS * self.a.nb()[1];
        for first in rows.clone().step_by(ROWS) {
            // At the end, the last row replaces missing rows.
            let group: [&[u8]; ROWS] = self.a.group(first, rows.end - 1, [a2, a3]);
            for at in (0..columns.len()).map(|c| columns.at(c)) {
                let products = self.kernels.dot8(&group, self.x.at(at), ahead);
                let out = &mut self.tile.row(at)[first - rows.start..];
                let n = out.len().min(ROWS);
                out[..n].copy_from_slice(&products[..n]);
            }
        }
    }
}

/// Job for many columns of 8-bit activations: a panel of rows is rearranged and multiplied with all columns
/// of the tile.
pub(super) struct BlockPanel<'a, 'b> {
    pub(super) kernels: &'a BlockKernels,
    pub(super) a: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    pub(super) shape: PanelShape,
    pub(super) numbers: &'a mut [u8],
    pub(super) scales: &'a mut [f32],
    pub(super) x: &'a Rows<'a>,
}

impl Job for BlockPanel<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, columns, shape) = (self.tile.range(0), &self.of.columns, self.shape);
        let [a2, a3] = self.of.matrix;
        let mut out = [0.0; MAX_TILE];
        // At the end, the last row and the last column replace missing ones.
        let group: [&[u8]; MAX_PANEL_ROWS] = self.a.group(rows.start, rows.end - 1, [a2, a3]);
        self.kernels.pack(&group[..shape.rows], self.numbers, self.scales);
        // Meanwhile prefetch the rows of the next panel, which this thread most likely processes next.
        let (ahead, steps) = (shape.rows * self.a.nb()[1], columns.len().div_ceil(shape.columns));
        let until = |step: usize| step * ahead.div_ceil(64) / steps;
        for (step, first) in (0..columns.len()).step_by(shape.columns).enumerate() {
            for line in until(step)..until(step + 1) {
                s.prefetch(&group[0][0], ahead + 64 * line);
            }
            let count = shape.columns.min(columns.len() - first);
            let mut group = [self.x.at(columns.at(first)); MAX_PANEL_COLUMNS];
            for (c, column) in group.iter_mut().enumerate().take(count) {
                let at = columns.at(first + c);
                *column = self.x.at(at);
                // The destination of the products is probably not cached either.
                let to = self.tile.row::<f32>(at);
                s.prefetch(&to[0], 0);
                s.prefetch(&to[0], 64);
            }
            self.kernels.panel(self.numbers, self.scales, &group[..count], &mut out);
            for (c, products) in out.chunks_exact(shape.rows).take(count).enumerate() {
                put(self.tile.row(columns.at(first + c)), products);
            }
        }
    }
}

/// Copies as many products as fit, eight at a time: a copy of unknown length would be a function call.
#[inline(always)]
pub(super) fn put(to: &mut [f32], products: &[f32]) {
    let ((eights, rest), (from, from_rest)) = (to.as_chunks_mut::<8>(), products.as_chunks::<8>());
    let last = from.get(eights.len()).map_or(from_rest, |last| last);
    eights.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    rest.iter_mut().zip(last).for_each(|(to, from)| *to = *from);
}
