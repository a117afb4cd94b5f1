//! Products with F32 activations.

use super::columns::{Columns, TileProduct, source};
use crate::cpu::dot::float::{ROWS, SEGMENT, Tiles, dot_rows, tiles};
use crate::cpu::dot::{ForWeight, Weight, with_weight};
use crate::cpu::isa::Detected;
use crate::cpu::op::rows::widen;
use crate::cpu::simd::map::zip;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use std::marker::PhantomData;

/// Rows of weights that are converted together: 128 KiB in F32, to fit a second-level cache.
pub(super) const PANEL_ROWS: usize = 32;

/// The same for at most [`FEW`] columns, which are read again for each panel: 16 KiB, to fit a first-level
/// cache.
pub(super) const SMALL_PANEL_ROWS: usize = 4;

/// Maximum number of columns for small panels.
const FEW: usize = 8;

/// Operands of products with F32 activations.
pub(super) struct Floats<'a, 'b> {
    pub(super) detected: Detected,
    pub(super) a: &'a Input<'a>,
    pub(super) b: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    /// Memory for the rows that are converted together.
    pub(super) panel: &'a mut [f32],
}

impl Floats<'_, '_> {
    /// Computes the products; `one` for a matrix with one column.
    pub(super) fn compute(self, one: bool) {
        let (detected, dtype) = (self.detected, self.a.dtype());
        if one {
            with_weight(dtype, self);
        } else {
            dispatch(detected, Panel(self));
        }
    }
}

impl ForWeight for Floats<'_, '_> {
    type Out = ();

    fn call<W: Weight>(self) {
        dispatch(self.detected, DotRows::<W>(self, PhantomData));
    }
}

/// Job for one column: rows of weights, four at a time, converted in registers.
struct DotRows<'a, 'b, W>(Floats<'a, 'b>, PhantomData<W>);

impl<W: Weight> Job for DotRows<'_, '_, W> {
    type Out = ();

    /// Portable code has no loop of its own for each type; the result is the same.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if S::PORTABLE {
            return dispatch(self.0.detected, Panel(self.0));
        }
        let Floats { a, b, of, tile, .. } = self.0;
        let rows = tile.range(0);
        let ahead = ROWS * a.nb()[1];
        for at in (0..of.columns.len()).map(|c| of.columns.at(c)) {
            let x = b.row(source(b, at));
            let out = tile.row(at);
            for (first, out) in rows.clone().step_by(ROWS).zip(out.chunks_mut(ROWS)) {
                // At the end, the last row replaces missing rows.
                let group: [&[u8]; ROWS] = a.group(first, rows.end - 1, of.matrix);
                let mut weights: [&[W::Block]; ROWS] = [&[]; ROWS];
                for (row, bytes) in weights.iter_mut().zip(group) {
                    *row = bytemuck::cast_slice(bytes);
                }
                let products = dot_rows::<S, W>(s, weights, x, ahead);
                out.copy_from_slice(&products[..out.len()]);
            }
        }
    }
}

/// Job for any type: a panel of rows is converted segment by segment and multiplied with all columns of the
/// tile.
struct Panel<'a, 'b>(Floats<'a, 'b>);

impl Job for Panel<'_, '_> {
    type Out = ();

    /// Completes one segment of all rows before the next, so that the segments of the columns stay in the
    /// cache.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Floats { detected, a, b, of, tile, panel } = self.0;
        let (rows, columns, [a2, a3]) = (tile.range(0), &of.columns, of.matrix);
        let k = a.ne()[0];
        let at_once = if columns.len() <= FEW { SMALL_PANEL_ROWS } else { PANEL_ROWS };
        for segment in 0..k.div_ceil(SEGMENT) {
            let start = segment * SEGMENT;
            let len = SEGMENT.min(k - start);
            for first in (0..rows.len()).step_by(at_once) {
                let count = at_once.min(rows.len() - first);
                for (i, out) in panel.chunks_exact_mut(len).take(count).enumerate() {
                    widen(detected, a, [rows.start + first + i, a2, a3], segment, out);
                }
                let (panel, tile) = (&*panel, &mut *tile);
                tiles(s, count, columns.len(), Segment { panel, b, start, len, first, columns, tile });
            }
        }
    }
}

/// A segment of a panel and of the columns of a tile.
struct Segment<'a, 'b, 'c> {
    panel: &'a [f32],
    b: &'a Input<'a>,
    start: usize,
    len: usize,
    /// First row, relative to the tile.
    first: usize,
    columns: &'a Columns<'a>,
    tile: &'c mut Tile<'b>,
}

impl<'a> Tiles<'a> for Segment<'a, '_, '_> {
    #[inline(always)]
    fn row(&self, i: usize) -> &'a [f32] {
        &self.panel[i * self.len..][..self.len]
    }

    #[inline(always)]
    fn column(&self, j: usize) -> &'a [f32] {
        &self.b.row(source(self.b, self.columns.at(j)))[self.start..self.start + self.len]
    }

    /// Adds the sums of the segments in order.
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, j: usize, products: &[f32]) {
        let row = self.tile.row::<f32>(self.columns.at(j));
        let out = &mut row[self.first..self.first + products.len()];
        if self.start == 0 {
            out.fill(0.0);
        }
        zip!(s, out, products, |sum, x| s.add(sum, x));
    }
}
