//! Products with activations rounded to 8 bits.

use super::columns::TileProduct;
use crate::cpu::dot::block::Quant;
use crate::cpu::dot::int8::{MAX_PANEL_COLUMNS, MAX_PANEL_ROWS, MAX_TILE, PanelShape, ROWS};
use crate::cpu::dot::quantize::{Column, RowScratch};
use crate::cpu::run::Line;
use crate::cpu::simd::{Job, Simd};
use crate::cpu::window::{Input, Tile};
use std::marker::PhantomData;

/// A column of activations, rounded to 8 bits.
pub(super) struct Quantize<'a, Q> {
    pub(super) row: RowScratch,
    pub(super) x: &'a [f32],
    pub(super) lines: &'a mut [Line],
    pub(super) q: PhantomData<Q>,
}

impl<Q: Quant> Job for Quantize<'_, Q> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.row.fill::<S, Q>(s, self.x, self.lines);
    }
}

/// Few columns of 8-bit activations: rows of weights, eight at a time; a row that is read once from memory is in the
/// cache for the other columns.
pub(super) struct DotBlocks<'a, 'b, Q, F> {
    pub(super) a: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    pub(super) column: &'a F,
    pub(super) q: PhantomData<Q>,
}

impl<'a, Q: Quant, F: Fn([usize; 3]) -> Column<'a>> Job for DotBlocks<'_, '_, Q, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, columns) = (self.tile.range(0), &self.of.columns);
        let [a2, a3] = self.of.matrix;
        let ahead = ROWS * self.a.nb()[1];
        for first in rows.clone().step_by(ROWS) {
            // At the end the last row stands in for those that are missing.
            let group: [&[Q]; ROWS] = self.a.group(first, rows.end - 1, [a2, a3]);
            for at in (0..columns.len()).map(|c| columns.at(c)) {
                let products = s.dot8(group, (self.column)(at), ahead);
                let out = &mut self.tile.row(at)[first - rows.start..];
                let n = out.len().min(ROWS);
                out[..n].copy_from_slice(&products[..n]);
            }
        }
    }
}

/// Many columns of 8-bit activations: a panel of rows is rearranged and multiplied with all columns of the tile.
pub(super) struct BlockPanel<'a, 'b, Q, F> {
    pub(super) a: &'a Input<'a>,
    pub(super) of: TileProduct<'a>,
    pub(super) tile: &'a mut Tile<'b>,
    pub(super) shape: PanelShape,
    pub(super) numbers: &'a mut [u8],
    pub(super) scales: &'a mut [f32],
    pub(super) column: &'a F,
    pub(super) q: PhantomData<Q>,
}

impl<'a, Q: Quant, F: Fn([usize; 3]) -> Column<'a>> Job for BlockPanel<'_, '_, Q, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, columns, shape) = (self.tile.range(0), &self.of.columns, self.shape);
        let [a2, a3] = self.of.matrix;
        let mut out = [0.0; MAX_TILE];
        // At the ends the last row and the last column stand in for those that are missing.
        let group: [&[Q]; MAX_PANEL_ROWS] = self.a.group(rows.start, rows.end - 1, [a2, a3]);
        s.pack(&group[..shape.rows], self.numbers, self.scales);
        // The rows of the next panel, most likely this thread's too, come from memory meanwhile.
        let (ahead, steps) = (shape.rows * self.a.nb()[1], columns.len().div_ceil(shape.columns));
        let until = |step: usize| step * ahead.div_ceil(64) / steps;
        for (step, first) in (0..columns.len()).step_by(shape.columns).enumerate() {
            for line in until(step)..until(step + 1) {
                s.prefetch(&group[0][0], ahead + 64 * line);
            }
            let column = |c: usize| (self.column)(columns.at((first + c).min(columns.len() - 1)));
            let group: [Column<'_>; MAX_PANEL_COLUMNS] = std::array::from_fn(column);
            let count = shape.columns.min(columns.len() - first);
            s.panel::<Q>(self.numbers, self.scales, &group[..count], &mut out);
            for (c, products) in out.chunks_exact(shape.rows).take(count).enumerate() {
                let to = self.tile.row::<f32>(columns.at(first + c));
                to.copy_from_slice(&products[..to.len()]);
            }
        }
    }
}
