//! MUL_MAT, and the products of MUL_MAT_ID.
//!
//! Four ways, by the number of columns and by how activations are rounded:
//!
//! | | one column (few with 8 bits) | more |
//! | --- | --- | --- |
//! | F32 activations | [`DotRows`]: weights are widened in registers | [`Panel`]: widened once for all columns |
//! | 8-bit activations | [`DotBlocks`]: eight rows at a time | [`BlockPanel`]: rearranged once for all columns |
//!
//! The left ones read every weight once and are bound by memory, the right ones by arithmetic. Left and right give
//! the same bits (see [`crate::cpu::dot`]). A tile consists of [`TileProduct`]s: a matrix of weights with the columns that it is
//! multiplied with.
//!
//! [`TileProduct`]: columns::TileProduct

use super::{Args, Kernel};
use crate::cpu::dot::block::{ForQuant, Quant, with_quant};
use crate::cpu::dot::float::SEGMENT;
use crate::cpu::dot::int8::{PanelShape, ROWS as INT_ROWS};
use crate::cpu::dot::quantize::RowScratch;
use crate::cpu::dot::{ForWeight, Weight, has_weight, with_weight};
use crate::cpu::isa::Detected;
use crate::cpu::run::{Line, Run};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Output};
use crate::dtype::DType;
use crate::plan::Precision;
use crate::tensor::Tensor;
use columns::{source, tile_products};
use float::{DotRows, PANEL_ROWS, Panel};
use int8::{BlockPanel, DotBlocks, Quantize};
use std::marker::PhantomData;

mod columns;
mod float;
mod int8;

pub(super) use columns::Routes;

/// Bytes of weights that a thread takes at a time for one column.
const PIECE: usize = 64 << 10;

/// Matrix product.
#[derive(Debug)]
pub(super) struct MulMatKernel {
    dtype: DType,
    k: usize,
    /// Columns of the second operand.
    columns: usize,
    /// Columns of the result.
    products: usize,
    /// Matrices that are read for them.
    matrices: usize,
    way: Way,
}

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    DotRows,
    Panel,
    DotBlocks,
    BlockPanel(PanelShape),
}

impl MulMatKernel {
    /// For operands `a` and `b`.
    pub(super) fn new(
        src: &[&Tensor],
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatKernel, String> {
        let matrices = src[0].ne[2] * src[0].ne[3];
        MulMatKernel::with(src, src[1].rows(), matrices, src[1].ne[1], precision, detected)
    }

    /// For operands `a`, `b` and `ids`.
    pub(super) fn routed(
        src: &[&Tensor],
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatKernel, String> {
        let products = src[2].rows() * src[2].ne[0];
        // Of one token no matrix has two columns, unless an index is there twice.
        let most = if src[2].ne[1] == 1 { 1 } else { products };
        MulMatKernel::with(src, products, products.min(src[0].ne[2]), most, precision, detected)
    }

    /// `most` is the number of columns that a matrix may have.
    fn with(
        src: &[&Tensor],
        products: usize,
        matrices: usize,
        most: usize,
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatKernel, String> {
        let (a, b) = (src[0], src[1]);
        if !has_weight(a.dtype) {
            return Err(format!("no product of {} weights", a.dtype));
        }
        let shape = match precision {
            Precision::Fast => with_quant(a.dtype, ShapeOf(detected)),
            Precision::Exact => None,
        };
        let way = match shape {
            None if most == 1 => Way::DotRows,
            None => Way::Panel,
            Some(Some(shape)) if most >= shape.from => Way::BlockPanel(shape),
            Some(_) => Way::DotBlocks,
        };
        Ok(MulMatKernel { dtype: a.dtype, k: a.ne[0], columns: b.rows(), products, matrices, way })
    }

    /// Computes the product; with `routes` that of MUL_MAT_ID. `shared` is at least [`Kernel::shared_bytes`].
    pub(super) fn multiply<'a>(
        &self,
        run: &Run<'_>,
        [a, b]: [Input<'a>; 2],
        out: Output<'a>,
        shared: &'a mut [Line],
        routes: Option<Routes<'a>>,
    ) {
        let product = Product { kernel: self, run, a, b, out, shared, routes };
        match self.way {
            Way::DotRows | Way::Panel => with_weight(self.dtype, product),
            Way::DotBlocks | Way::BlockPanel(_) => with_quant(self.dtype, product),
        };
    }

    /// How rows of 8-bit activations lie in scratch memory.
    fn row_scratch(&self) -> RowScratch {
        RowScratch::new(self.k, matches!(self.way, Way::BlockPanel(shape) if shape.wide))
    }

    /// Bytes of a panel's numbers and of its scales.
    fn panel_bytes(&self, shape: PanelShape) -> [usize; 2] {
        let numbers = shape.rows * self.k * if shape.wide { 2 } else { 1 };
        [numbers, shape.rows * self.k / 32 * shape.factors * 4].map(|b| b.next_multiple_of(size_of::<Line>()))
    }
}

/// Asks for the shape of panels.
struct ShapeOf(Detected);

impl ForQuant for ShapeOf {
    type Out = Option<PanelShape>;

    fn call<Q: Quant>(self) -> Self::Out {
        struct Ask<Q>(PhantomData<Q>);
        impl<Q: Quant> Job for Ask<Q> {
            type Out = Option<PanelShape>;

            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> Self::Out {
                s.panel_shape::<Q>()
            }
        }
        dispatch(self.0, Ask::<Q>(PhantomData))
    }
}

impl Kernel for MulMatKernel {
    fn shared_bytes(&self) -> usize {
        match self.way {
            Way::DotRows | Way::Panel => 0,
            Way::DotBlocks | Way::BlockPanel(_) => {
                self.row_scratch().lines() * size_of::<Line>() * self.columns
            }
        }
    }

    fn local_bytes(&self) -> usize {
        match self.way {
            Way::DotRows | Way::DotBlocks => 0,
            Way::Panel => PANEL_ROWS * SEGMENT.min(self.k) * 4,
            Way::BlockPanel(shape) => self.panel_bytes(shape).iter().sum(),
        }
    }

    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [Some(a), Some(b), ..], out, shared } = args else { return };
        self.multiply(run, [a, b], out, shared, None);
    }
}

/// A product, once the type of its weights is known.
struct Product<'a, 'b> {
    kernel: &'a MulMatKernel,
    run: &'a Run<'b>,
    a: Input<'a>,
    b: Input<'a>,
    out: Output<'a>,
    shared: &'a mut [Line],
    routes: Option<Routes<'a>>,
}

impl ForWeight for Product<'_, '_> {
    type Out = ();

    fn call<W: Weight>(self) {
        let Product { kernel, run, a, b, mut out, routes, .. } = self;
        let ns = kernel.ns(out.ne()[0]);
        let narrow = kernel.way == Way::DotRows;
        let tile =
            if narrow { kernel.narrow(&out, routes) } else { kernel.wide(run, &out, PANEL_ROWS, routes) };
        out.for_each_tile(run, tile, ns, |tile| {
            for of in tile_products(&a, tile, routes) {
                let (a, b) = (&a, &b);
                if narrow || routes.is_some() && of.columns.len() == 1 {
                    dispatch(run.detected(), DotRows::<W> { a, b, of, tile, weight: PhantomData });
                    continue;
                }
                run.local(|local| {
                    let panel = bytemuck::cast_slice_mut(local);
                    dispatch(run.detected(), Panel::<W> { a, b, of, tile, panel, weight: PhantomData });
                });
            }
        });
    }
}

impl ForQuant for Product<'_, '_> {
    type Out = ();

    /// The activations are rounded first, each column once.
    fn call<Q: Quant>(self) {
        let Product { kernel, run, a, b, mut out, shared, routes } = self;
        let row = kernel.row_scratch();
        let lines = row.lines();
        let shared = &mut shared[..lines * kernel.columns];
        let [_, n, b2, _] = b.ne();
        run.for_each_chunk(shared, lines, kernel.columns * kernel.k / 2, |i, lines| {
            let x = b.row([i % n, i / n % b2, i / (n * b2)]);
            dispatch(run.detected(), Quantize { row, x, lines });
        });
        let shared = &*shared;
        let column = |at: [usize; 3]| {
            let [j, s, t] = source(&b, at);
            let first = ((t * b2 + s) * n + j) * lines;
            row.column(&shared[first..first + lines])
        };
        let ns = kernel.ns(out.ne()[0]);
        let shape = if let Way::BlockPanel(shape) = kernel.way { Some(shape) } else { None };
        let tile = match shape {
            Some(shape) => kernel.wide(run, &out, shape.rows, routes),
            None => kernel.narrow(&out, routes),
        };
        out.for_each_tile(run, tile, ns, |tile| {
            for of in tile_products(&a, tile, routes) {
                let (a, column) = (&a, &column);
                // Few columns of a tile of many are those of a matrix that few tokens chose.
                let Some(shape) = shape.filter(|s| routes.is_none() || of.columns.len() >= s.from) else {
                    dispatch(run.detected(), DotBlocks::<Q, _> { a, of, tile, column, q: PhantomData });
                    continue;
                };
                let [numbers, scales] = kernel.panel_bytes(shape);
                run.local(|local| {
                    let (numbers, local) = bytemuck::cast_slice_mut::<Line, u8>(local).split_at_mut(numbers);
                    let scales = bytemuck::cast_slice_mut(&mut local[..scales]);
                    let q = PhantomData;
                    let panel = BlockPanel::<Q, _> { a, of, tile, shape, numbers, scales, column, q };
                    dispatch(run.detected(), panel);
                });
            }
        });
    }
}

impl MulMatKernel {
    /// Time on one thread.
    fn ns(&self, m: usize) -> usize {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(0);
        // About 8 bytes of weights or 16 products in a nanosecond.
        m * self.products * self.k / 16 + self.matrices * m * bytes / 8
    }

    /// Extents of tiles for one column or few: rows of a certain number of bytes.
    fn narrow(&self, out: &Output<'_>, routes: Option<Routes<'_>>) -> [usize; 4] {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(1).max(1);
        let rows = |bytes: usize| (PIECE / bytes).max(1).next_multiple_of(INT_ROWS);
        match routes {
            // A tile has these rows of every matrix.
            Some(_) => [rows(bytes * self.matrices), out.ne()[1], out.ne()[2], 1],
            None => [rows(bytes), out.ne()[1], 1, 1],
        }
    }

    /// Extents of tiles for many columns: a panel of rows, and all columns unless there are few panels.
    fn wide(&self, run: &Run<'_>, out: &Output<'_>, rows: usize, routes: Option<Routes<'_>>) -> [usize; 4] {
        let [m, n, p2, p3] = out.ne();
        if routes.is_some() {
            return [rows, n, p2, 1];
        }
        let panels = m.div_ceil(rows) * p2 * p3;
        let cuts = (4 * run.threads()).div_ceil(panels).min(n.div_ceil(24));
        let columns = if run.threads() == 1 { n } else { n.div_ceil(cuts).next_multiple_of(6) };
        [rows, columns, 1, 1]
    }
}
