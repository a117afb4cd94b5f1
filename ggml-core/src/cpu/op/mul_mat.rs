//! MUL_MAT.
//!
//! Four ways, by the number of columns and by how activations are rounded:
//!
//! | | one column (few with 8 bits) | more |
//! | --- | --- | --- |
//! | F32 activations | [`DotRows`]: weights are widened in registers | [`Panel`]: widened once for all columns |
//! | 8-bit activations | [`DotBlocks`]: eight rows at a time | [`BlockPanel`]: rearranged once for all columns |
//!
//! The left ones read every weight once and are bound by memory, the right ones by arithmetic. Left and right give
//! the same bits (see [`crate::cpu::dot`]).

use super::{Args, Kernel};
use crate::cpu::dot::float::{ROWS, SEGMENT, dot_rows, tiles, widen_segment};
use crate::cpu::dot::int8::{MAX_PANEL_COLUMNS, MAX_PANEL_ROWS, MAX_TILE, Quant, ROWS as INT_ROWS};
use crate::cpu::dot::quantize::{Column, Layout};
use crate::cpu::dot::{self, BlockQ4, BlockQ8, Weight};
use crate::cpu::isa::Detected;
use crate::cpu::run::{Line, Run};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Output, Tile};
use crate::dtype::DType;
use crate::plan::Precision;
use crate::tensor::Tensor;
use std::marker::PhantomData;

/// Rows of weights that are widened together: 128 KiB in F32, for a second-level cache.
const PANEL_ROWS: usize = 32;

/// Columns from which on rearranging weights for 8-bit products is worth it.
const FEW: usize = 6;

/// Bytes of weights that a thread takes at a time for one column.
const PIECE: usize = 64 << 10;

/// Matrix product.
#[derive(Debug)]
pub(super) struct MulMatKernel {
    dtype: DType,
    /// 8-bit activations.
    int8: bool,
    k: usize,
    /// Columns of all planes of the second operand.
    columns: usize,
    /// Rows of a panel and bytes of a weight in it.
    panel: (usize, usize),
    many: bool,
}

impl MulMatKernel {
    /// For operands `a` and `b`.
    pub(super) fn new(src: &[&Tensor], precision: Precision, detected: Detected) -> Result<MulMatKernel, String> {
        let (a, b) = (src[0], src[1]);
        if !crate::op::mul_mat::WEIGHT_TYPES.contains(&a.dtype) {
            return Err(format!("no product of {} weights", a.dtype));
        }
        let int8 = precision == Precision::Fast && a.dtype.is_quantized();
        let panel = dispatch(detected, PanelShape);
        let many = if int8 { b.ne[1] >= FEW && panel.0 > 0 } else { b.ne[1] > 1 };
        Ok(MulMatKernel { dtype: a.dtype, int8, k: a.ne[0], columns: b.rows(), panel, many })
    }

    fn layout(&self) -> Layout {
        Layout::new(self.k, self.many && self.panel.1 == 2)
    }

    /// Bytes of a panel's weights and of its scales.
    fn panel_bytes(&self) -> [usize; 2] {
        let (rows, bytes) = self.panel;
        [rows * self.k * bytes, rows * self.k / 32 * 4].map(|b| b.next_multiple_of(size_of::<Line>()))
    }
}

/// The shape of an instruction set's panels.
struct PanelShape;

impl Job for PanelShape {
    type Out = (usize, usize);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (usize, usize) {
        (S::PANEL_ROWS, S::PANEL_BYTES)
    }
}

impl Kernel for MulMatKernel {
    fn shared_bytes(&self) -> usize {
        if self.int8 { self.layout().lines() * size_of::<Line>() * self.columns } else { 0 }
    }

    fn local_bytes(&self) -> usize {
        match (self.many, self.int8) {
            (false, _) => 0,
            (true, false) => PANEL_ROWS * SEGMENT.min(self.k.next_multiple_of(16)) * 4,
            (true, true) => self.panel_bytes().iter().sum(),
        }
    }

    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [Some(a), Some(b), ..], out, shared } = args else { return };
        match (self.dtype, self.int8) {
            (DType::F32, _) => self.floats::<dot::F32>(run, &a, &b, out),
            (DType::F16, _) => self.floats::<dot::F16>(run, &a, &b, out),
            (DType::BF16, _) => self.floats::<dot::BF16>(run, &a, &b, out),
            (DType::Q8_0, false) => self.floats::<dot::Q8>(run, &a, &b, out),
            (DType::Q4_0, false) => self.floats::<dot::Q4>(run, &a, &b, out),
            (DType::Q8_0, true) => self.blocks::<BlockQ8>(run, &a, &b, out, shared),
            (_, _) => self.blocks::<BlockQ4>(run, &a, &b, out, shared),
        }
    }
}

impl MulMatKernel {
    /// Time on one thread.
    fn ns(&self, a: &Input<'_>, m: usize) -> usize {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(0);
        // About 8 bytes of weights or 16 products in a nanosecond.
        m * self.columns * self.k / 16 + a.ne()[2] * a.ne()[3] * m * bytes / 8
    }

    /// Extents of tiles for one column or few: rows of a certain number of bytes.
    fn narrow(&self, out: &Output<'_>) -> [usize; 4] {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(1).max(1);
        [(PIECE / bytes).max(1).next_multiple_of(INT_ROWS), out.ne()[1], 1, 1]
    }

    /// Extents of tiles for many columns: a panel of rows, and all columns unless there are few panels.
    fn wide(&self, run: &Run<'_>, out: &Output<'_>, rows: usize) -> [usize; 4] {
        let [m, n, p2, p3] = out.ne();
        let panels = m.div_ceil(rows) * p2 * p3;
        let parts = (4 * run.threads()).div_ceil(panels).min(n.div_ceil(24));
        let columns = if run.threads() == 1 { n } else { n.div_ceil(parts).next_multiple_of(6) };
        [rows, columns, 1, 1]
    }

    fn floats<W: Weight>(&self, run: &Run<'_>, a: &Input<'_>, b: &Input<'_>, mut out: Output<'_>) {
        let ns = self.ns(a, out.ne()[0]);
        if self.many {
            let tile = self.wide(run, &out, PANEL_ROWS);
            out.for_each_tile(run, tile, ns, |tile| {
                run.local(|local| {
                    let panel = bytemuck::cast_slice_mut(local);
                    dispatch(run.detected(), Panel::<W> { a, b, tile, panel, weight: PhantomData });
                });
            });
        } else {
            let tile = self.narrow(&out);
            out.for_each_tile(run, tile, ns, |tile| {
                dispatch(run.detected(), DotRows::<W> { a, b, tile, weight: PhantomData });
            });
        }
    }

    fn blocks<Q: Quant>(&self, run: &Run<'_>, a: &Input<'_>, b: &Input<'_>, mut out: Output<'_>, shared: &mut [Line]) {
        let layout = self.layout();
        let lines = layout.lines();
        let shared = &mut shared[..lines * self.columns];
        let [_, n, b2, _] = b.ne();
        run.for_each_chunk(shared, lines, self.columns * self.k / 2, |i, lines| {
            let x = b.row([i % n, i / n % b2, i / (n * b2)]);
            dispatch(run.detected(), Quantize { layout, x, lines });
        });
        let shared = &*shared;
        let column = |j: usize, s: usize, t: usize| {
            let first = ((t * b2 + s) * n + j) * lines;
            layout.column(&shared[first..first + lines])
        };
        let ns = self.ns(a, out.ne()[0]);
        if self.many {
            let tile = self.wide(run, &out, self.panel.0);
            let [values, scales] = self.panel_bytes();
            out.for_each_tile(run, tile, ns, |tile| {
                run.local(|local| {
                    let (panel, rest) = bytemuck::cast_slice_mut::<Line, u8>(local).split_at_mut(values);
                    let scales = bytemuck::cast_slice_mut(&mut rest[..scales]);
                    let column = &column;
                    dispatch(run.detected(), BlockPanel::<Q, _> { a, tile, panel, scales, column, q: PhantomData });
                });
            });
        } else {
            let tile = self.narrow(&out);
            out.for_each_tile(run, tile, ns, |tile| {
                dispatch(run.detected(), DotBlocks::<Q, _> { a, tile, column: &column, q: PhantomData });
            });
        }
    }
}

/// The planes of a tile: of `a`, and of `b` and the result.
#[inline(always)]
fn planes(a: &Input<'_>, tile: &Tile<'_>) -> impl Iterator<Item = ((usize, usize), (usize, usize))> + use<> {
    let [_, _, b2, b3] = tile.extents();
    let [_, _, a2, a3] = a.ne();
    let (r2, r3) = (b2 / a2, b3 / a3);
    let s = tile.range(2);
    tile.range(3).flat_map(move |t| s.clone().map(move |s| ((s / r2, t / r3), (s, t))))
}

/// One column: rows of weights, four at a time, widened in registers.
struct DotRows<'a, 'b, W> {
    a: &'a Input<'a>,
    b: &'a Input<'a>,
    tile: &'a mut Tile<'b>,
    weight: PhantomData<W>,
}

impl<W: Weight> Job for DotRows<'_, '_, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.tile.range(0);
        for ((a2, a3), (b2, b3)) in planes(self.a, self.tile) {
            for j in self.tile.range(1) {
                let x = self.b.row([j, b2, b3]);
                let out = self.tile.row([j, b2, b3]);
                for (first, out) in rows.clone().step_by(ROWS).zip(out.chunks_mut(ROWS)) {
                    // At the end the last row stands in for those that are missing.
                    let row = |r: usize| self.a.row([(first + r).min(rows.end - 1), a2, a3]);
                    let products = dot_rows::<S, W>(s, std::array::from_fn(row), x);
                    out.copy_from_slice(&products[..out.len()]);
                }
            }
        }
    }
}

/// Many columns: a panel of rows is widened segment by segment and multiplied with all columns of the tile.
struct Panel<'a, 'b, W> {
    a: &'a Input<'a>,
    b: &'a Input<'a>,
    tile: &'a mut Tile<'b>,
    panel: &'a mut [f32],
    weight: PhantomData<W>,
}

impl<W: Weight> Job for Panel<'_, '_, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, columns) = (self.tile.range(0), self.tile.range(1));
        let k = self.a.ne()[0];
        for ((a2, a3), (b2, b3)) in planes(self.a, self.tile) {
            for segment in 0..k.div_ceil(SEGMENT) {
                let start = segment * SEGMENT;
                let len = SEGMENT.min(k - start);
                for (i, out) in rows.clone().zip(self.panel.chunks_exact_mut(len)) {
                    widen_segment::<S, W>(s, self.a.row([i, a2, a3]), segment, out);
                }
                let panel = &*self.panel;
                let row = |i: usize| &panel[i * len..][..len];
                let column = |j: usize| &self.b.row([columns.start + j, b2, b3])[start..start + len];
                tiles(s, rows.len(), row, columns.len(), column, |j, products| {
                    let out = self.tile.row::<f32>([columns.start + j, b2, b3]);
                    if segment == 0 {
                        out.fill(0.0);
                    }
                    out.iter_mut().zip(products).for_each(|(out, x)| *out += x);
                });
            }
        }
    }
}

/// A column of activations, rounded to 8 bits.
struct Quantize<'a> {
    layout: Layout,
    x: &'a [f32],
    lines: &'a mut [Line],
}

impl Job for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.layout.fill(s, self.x, self.lines);
    }
}

/// Few columns of 8-bit activations: rows of weights, eight at a time; a row that is read once from memory is in the
/// cache for the other columns.
struct DotBlocks<'a, 'b, Q, F> {
    a: &'a Input<'a>,
    tile: &'a mut Tile<'b>,
    column: &'a F,
    q: PhantomData<Q>,
}

impl<'a, Q: Quant, F: Fn(usize, usize, usize) -> Column<'a>> Job for DotBlocks<'_, '_, Q, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.tile.range(0);
        for ((a2, a3), (b2, b3)) in planes(self.a, self.tile) {
            for first in rows.clone().step_by(INT_ROWS) {
                let row = |r: usize| self.a.row([(first + r).min(rows.end - 1), a2, a3]);
                let group: [&[Q]; INT_ROWS] = std::array::from_fn(row);
                for j in self.tile.range(1) {
                    let products = s.dot8(group, (self.column)(j, b2, b3));
                    let out = &mut self.tile.row([j, b2, b3])[first - rows.start..];
                    let n = out.len().min(INT_ROWS);
                    out[..n].copy_from_slice(&products[..n]);
                }
            }
        }
    }
}

/// Many columns of 8-bit activations: a panel of rows is rearranged and multiplied with all columns of the tile.
struct BlockPanel<'a, 'b, Q, F> {
    a: &'a Input<'a>,
    tile: &'a mut Tile<'b>,
    panel: &'a mut [u8],
    scales: &'a mut [f32],
    column: &'a F,
    q: PhantomData<Q>,
}

impl<'a, Q: Quant, F: Fn(usize, usize, usize) -> Column<'a>> Job for BlockPanel<'_, '_, Q, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rows, columns) = (self.tile.range(0), self.tile.range(1));
        let mut out = [0.0; MAX_TILE];
        for ((a2, a3), (b2, b3)) in planes(self.a, self.tile) {
            let row = |r: usize| self.a.row([(rows.start + r).min(rows.end - 1), a2, a3]);
            let group: [&[Q]; MAX_PANEL_ROWS] = std::array::from_fn(row);
            s.pack(&group[..S::PANEL_ROWS], self.panel, self.scales);
            for first in columns.clone().step_by(S::PANEL_COLUMNS) {
                let column = |c: usize| (self.column)((first + c).min(columns.end - 1), b2, b3);
                let group: [Column<'_>; MAX_PANEL_COLUMNS] = std::array::from_fn(column);
                let count = S::PANEL_COLUMNS.min(columns.end - first);
                s.panel::<Q>(self.panel, self.scales, &group[..count], &mut out);
                for (c, products) in out.chunks_exact(S::PANEL_ROWS).take(count).enumerate() {
                    let to = self.tile.row::<f32>([first + c, b2, b3]);
                    to.copy_from_slice(&products[..to.len()]);
                }
            }
        }
    }
}
