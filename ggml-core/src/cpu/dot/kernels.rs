//! Kernels of a type of quantised weights, as a table that is looked up when a product is planned.
//!
//! Code that is generic over the type of weights is compiled for each pair of a type and an instruction set,
//! so there is little of it: what reads blocks. Loops over rows and columns call it through this table.

use super::amx::TileKernels;
use super::block::{ForQuant, Quant, with_quant};
use super::column::Column;
use super::int8::{MAX_PANEL_ROWS, MAX_TILE, PanelShape, ROWS};
use super::quantize::Sums;
use crate::cpu::isa::Detected;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::dtype::DType;
use std::marker::PhantomData;

/// Function of [`BlockKernels::dot8`].
type DotEight = fn(Detected, &[&[u8]; ROWS], Column<'_>, usize) -> [f32; ROWS];

/// Function of [`BlockKernels::pack`].
type PackRows = fn(Detected, &[&[u8]], &mut [u8], &mut [f32]);

/// Function of [`BlockKernels::panel`].
type MultiplyPanel = fn(Detected, &[u8], &[f32], &[Column<'_>], &mut [f32; MAX_TILE]);

/// Kernels of one type of weights, for one instruction set. Rows of weights are bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct BlockKernels {
    detected: Detected,
    /// Shape of panels; `None` if panels are not used.
    pub(in crate::cpu) shape: Option<PanelShape>,
    /// Sums that blocks of activations need.
    pub(in crate::cpu) sums: Sums,
    /// Kernels in tile registers, where there are some.
    pub(in crate::cpu) tiles: Option<TileKernels>,
    dot8: DotEight,
    pack: PackRows,
    panel: MultiplyPanel,
}

impl BlockKernels {
    /// Returns the kernels of a type; `None` if it has no blocks.
    pub(in crate::cpu) fn of(dtype: DType, detected: Detected) -> Option<BlockKernels> {
        with_quant(dtype, Table(detected))
    }

    /// Returns the products of eight rows with a column. It may prefetch the rows that begin `ahead` bytes after
    /// these.
    pub(in crate::cpu) fn dot8(&self, rows: &[&[u8]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        (self.dot8)(self.detected, rows, x, ahead)
    }

    /// Packs rows into a panel of [`BlockKernels::shape`].
    pub(in crate::cpu) fn pack(&self, rows: &[&[u8]], values: &mut [u8], factors: &mut [f32]) {
        (self.pack)(self.detected, rows, values, factors);
    }

    /// Computes the products of a panel with at most [`PanelShape::columns`] columns: `out[column * rows +
    /// row]`.
    pub(in crate::cpu) fn panel(
        &self,
        values: &[u8],
        factors: &[f32],
        x: &[Column<'_>],
        out: &mut [f32; MAX_TILE],
    ) {
        (self.panel)(self.detected, values, factors, x, out);
    }
}

/// Fills the table for a type.
struct Table(Detected);

impl ForQuant for Table {
    type Out = BlockKernels;

    fn call<Q: Quant>(self) -> BlockKernels {
        // Blocks are byte structures, which may be at any address.
        const { assert!(align_of::<Q>() == 1) };
        const { assert!(matches!((Q::HALVES, Q::MINIMA), (false, 0 | 1) | (true, 0 | 2))) };
        BlockKernels {
            detected: self.0,
            shape: dispatch(self.0, Shape::<Q>(PhantomData)),
            sums: Sums::of::<Q>(),
            tiles: TileKernels::of_blocks::<Q>(self.0),
            dot8: dot8::<Q>,
            pack: pack::<Q>,
            panel: match (Q::HALVES, Q::MINIMA) {
                (false, 0) => panel::<false, 0>,
                (false, _) => panel::<false, 1>,
                (true, 0) => panel::<true, 0>,
                (true, _) => panel::<true, 2>,
            },
        }
    }
}

/// Job that returns the shape of panels.
struct Shape<Q>(PhantomData<Q>);

impl<Q: Quant> Job for Shape<Q> {
    type Out = Option<PanelShape>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        s.panel_shape::<Q>()
    }
}

/// Operands of [`BlockKernels::dot8`].
struct Dot8<'a, Q> {
    rows: &'a [&'a [u8]; ROWS],
    x: Column<'a>,
    ahead: usize,
    q: PhantomData<Q>,
}

impl<Q: Quant> Job for Dot8<'_, Q> {
    type Out = [f32; ROWS];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; ROWS] {
        let mut rows: [&[Q]; ROWS] = [&[]; ROWS];
        for (row, bytes) in rows.iter_mut().zip(self.rows) {
            *row = bytemuck::cast_slice(bytes);
        }
        s.dot8(rows, self.x, self.ahead)
    }
}

fn dot8<Q: Quant>(detected: Detected, rows: &[&[u8]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
    dispatch(detected, Dot8::<Q> { rows, x, ahead, q: PhantomData })
}

/// Operands of [`BlockKernels::pack`].
struct Pack<'a, Q> {
    rows: &'a [&'a [u8]],
    values: &'a mut [u8],
    factors: &'a mut [f32],
    q: PhantomData<Q>,
}

impl<Q: Quant> Job for Pack<'_, Q> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut rows: [&[Q]; MAX_PANEL_ROWS] = [&[]; MAX_PANEL_ROWS];
        for (row, bytes) in rows.iter_mut().zip(self.rows) {
            *row = bytemuck::cast_slice(bytes);
        }
        s.pack(&rows[..self.rows.len().min(MAX_PANEL_ROWS)], self.values, self.factors);
    }
}

fn pack<Q: Quant>(detected: Detected, rows: &[&[u8]], values: &mut [u8], factors: &mut [f32]) {
    dispatch(detected, Pack::<Q> { rows, values, factors, q: PhantomData });
}

/// Operands of [`BlockKernels::panel`].
struct Panel<'a, const HALVES: bool, const MINIMA: usize> {
    values: &'a [u8],
    factors: &'a [f32],
    x: &'a [Column<'a>],
    out: &'a mut [f32; MAX_TILE],
}

impl<const HALVES: bool, const MINIMA: usize> Job for Panel<'_, HALVES, MINIMA> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        s.panel::<HALVES, MINIMA>(self.values, self.factors, self.x, self.out);
    }
}

fn panel<const HALVES: bool, const MINIMA: usize>(
    detected: Detected,
    values: &[u8],
    factors: &[f32],
    x: &[Column<'_>],
    out: &mut [f32; MAX_TILE],
) {
    dispatch(detected, Panel::<HALVES, MINIMA> { values, factors, x, out });
}
