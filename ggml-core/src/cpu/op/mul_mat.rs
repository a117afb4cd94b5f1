//! MUL_MAT kernels, also used by MUL_MAT_ID.
//!
//! Four methods, by the number of columns and the precision of activations:
//!
//! | | one column (few with 8 bits) | more |
//! | --- | --- | --- |
//! | F32 activations | `DotRows`: weights converted in registers | `Panel`: once for all columns |
//! | 8-bit activations | [`DotBlocks`]: eight rows at a time | [`BlockPanel`]: rearranged for all columns |
//!
//! The methods on the left read every weight once and are memory-bound; those on the right are compute-bound.
//! Left and right give bit-identical results (see [`crate::cpu::dot`]). A fifth, [`TilePanel`], is for many columns
//! on processors with tile registers: of 8-bit activations, with the same results, and of 16-bit activations with F16
//! and BF16 weights in [`Precision::Fast`]. A tile consists of [`TileProduct`]s:
//! a matrix of weights and the columns that it is multiplied with. A [`Recipe`] describes the operations that
//! are applied to products before they leave their thread. Several results with one input are computed in one
//! loop.
//!
//! [`TileProduct`]: columns::TileProduct

use super::kernel::{Args, Kernel};
use crate::cpu::dot::amx::{MIN_COLUMNS, ROWS as TILE_ROWS, TileKernels};
use crate::cpu::dot::float::SEGMENT;
use crate::cpu::dot::has_weight;
use crate::cpu::dot::int8::{MAX_PANEL_ROWS, PanelShape, ROWS as INT_ROWS};
use crate::cpu::dot::kernels::BlockKernels;
use crate::cpu::dot::quantize::RowScratch;
use crate::cpu::execution::{Execution, Line};
use crate::cpu::isa::Detected;
use crate::cpu::simd::dispatch;
use crate::cpu::window::{Input, MAX_RESULTS, Output, Tile, for_each_of};
use crate::dtype::DType;
use crate::precision::Precision;
use crate::tensor::Tensor;
use columns::tile_products;
use float::{Floats, PANEL_ROWS, SMALL_PANEL_ROWS};
use int8::{BlockPanel, DotBlocks, Quantize, Rows};
use tiles::{Blocks, TILE_COLUMNS, TilePanel};

mod columns;
mod float;
mod int8;
mod recipe;
mod tiles;

pub(super) use columns::Routes;
pub(super) use recipe::{Bias, Matrix, Recipe, Source};

/// Bytes of weights that a thread processes at a time for one column.
const CHUNK: usize = 64 << 10;

/// The same if there are few weights.
const SMALL_CHUNK: usize = 8 << 10;

/// Bytes of products that a thread stores in scratch memory in addition to its tile.
const PRODUCT_BYTES: usize = 128 << 10;

/// Matrix product.
#[derive(Debug)]
pub(super) struct MulMatKernel {
    dtype: DType,
    k: usize,
    /// Number of columns of the second operand.
    columns: usize,
    /// Number of blocks of its columns, as tiles have them.
    blocks: usize,
    /// Number of columns of the result.
    products: usize,
    /// Number of matrices that are read for them.
    matrices: usize,
    method: Method,
    /// True if activations are normalised first.
    normed: bool,
    /// True if some products stay in a thread's scratch memory.
    scratch_products: bool,
}

/// Method of the module's table.
#[derive(Clone, Copy, Debug)]
enum Method {
    DotRows,
    Panel,
    DotBlocks(BlockKernels),
    BlockPanel(BlockKernels, PanelShape),
    Tiles(TileKernels),
}

impl MulMatKernel {
    /// Creates the kernel for operands `a` and `b`.
    pub(super) fn new(
        src: &[&Tensor],
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatKernel, String> {
        let matrices = src[0].ne[2] * src[0].ne[3];
        let mut kernel = MulMatKernel::with(src, src[1].rows(), matrices, src[1].ne[1], precision, detected)?;
        if src[1].ne[1] >= MIN_COLUMNS && precision == Precision::Fast {
            let tiles = match &kernel.method {
                Method::BlockPanel(kernels, _) => kernels.tiles,
                _ => TileKernels::of_floats(src[0].dtype, detected),
            };
            kernel.method = tiles.map_or(kernel.method, Method::Tiles);
        }
        Ok(kernel)
    }

    /// Creates the kernel for operands `a`, `b` and `ids`.
    pub(super) fn routed(
        src: &[&Tensor],
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatKernel, String> {
        let products = src[2].rows() * src[2].ne[0];
        // With one token, no matrix has two columns unless an index occurs twice.
        let most = if src[2].ne[1] == 1 { 1 } else { products };
        MulMatKernel::with(src, products, products.min(src[0].ne[2]), most, precision, detected)
    }

    /// Creates the kernel. `most` is the maximum number of columns of a matrix.
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
        let kernels = match precision {
            Precision::Fast => BlockKernels::of(a.dtype, detected),
            Precision::Exact => None,
        };
        let method = match kernels.map(|kernels| (kernels, kernels.shape)) {
            None if most == 1 => Method::DotRows,
            None => Method::Panel,
            Some((kernels, Some(shape))) if most >= shape.min_columns => Method::BlockPanel(kernels, shape),
            Some((kernels, _)) => Method::DotBlocks(kernels),
        };
        Ok(MulMatKernel {
            dtype: a.dtype,
            k: a.ne[0],
            columns: b.rows(),
            blocks: Blocks::count(b.ne),
            products,
            matrices,
            method,
            normed: false,
            scratch_products: false,
        })
    }

    /// Adds a norm before the products.
    pub(super) fn with_norm(self) -> MulMatKernel {
        MulMatKernel { normed: true, ..self }
    }

    /// Allows products that leave a thread only as part of a GLU or a sum. A tile has at least `columns` of
    /// them.
    ///
    /// # Errors
    /// If there are too many columns.
    pub(super) fn with_scratch_products(self, columns: usize) -> Result<MulMatKernel, String> {
        if columns > PRODUCT_BYTES / 4 / MAX_PANEL_ROWS {
            return Err(format!("{columns} columns of products do not fit in scratch memory"));
        }
        Ok(MulMatKernel { scratch_products: true, ..self })
    }

    /// Computes results, each by its recipe; with `routes`, the products of MUL_MAT_ID. `shared` has at least
    /// [`Kernel::shared_bytes`].
    pub(super) fn multiply<'a>(
        &self,
        run: &Execution<'_>,
        b: Source<'a>,
        recipes: &[Option<Recipe<'a>>; MAX_RESULTS],
        outs: [Option<Output<'a>>; MAX_RESULTS],
        shared: &'a mut [Line],
        routes: Option<Routes<'a>>,
    ) {
        let product = Product { kernel: self, run, b, recipes, outs, shared, routes };
        match &self.method {
            Method::DotRows => product.with_floats(true),
            Method::Panel => product.with_floats(false),
            Method::DotBlocks(kernels) => product.with_blocks(kernels, None),
            Method::BlockPanel(kernels, shape) => product.with_blocks(kernels, Some(*shape)),
            Method::Tiles(kernels) => product.with_tiles(kernels),
        }
    }

    /// Returns the lines of a row of F32 activations.
    fn row_lines(&self) -> usize {
        (4 * self.k).div_ceil(size_of::<Line>())
    }

    /// Returns the lines of a thread's panel.
    fn panel_lines(&self) -> usize {
        let bytes = match self.method {
            Method::DotBlocks(_) => 0,
            Method::DotRows => SMALL_PANEL_ROWS * SEGMENT.min(self.k) * 4,
            Method::Panel => PANEL_ROWS * SEGMENT.min(self.k) * 4,
            Method::BlockPanel(_, shape) => self.panel_bytes(shape).iter().sum(),
            Method::Tiles(kernels) => return tiles::local_lines(&kernels, self.k),
        };
        bytes.div_ceil(size_of::<Line>())
    }

    /// Returns the layout of rows of 8-bit activations in scratch memory.
    fn row_scratch(&self) -> RowScratch {
        RowScratch::new(self.k, matches!(self.method, Method::BlockPanel(_, shape) if shape.wide))
    }

    /// Returns the bytes of a panel's values and of its scales.
    fn panel_bytes(&self, shape: PanelShape) -> [usize; 2] {
        let numbers = shape.rows * self.k * if shape.wide { 2 } else { 1 };
        [numbers, shape.rows * self.k / 32 * shape.factors * 4].map(|b| b.next_multiple_of(size_of::<Line>()))
    }
}

impl Kernel for MulMatKernel {
    fn shared_bytes(&self) -> usize {
        let lines = match self.method {
            Method::DotRows | Method::Panel if self.normed => self.row_lines(),
            Method::DotRows | Method::Panel => 0,
            Method::DotBlocks(_) | Method::BlockPanel(..) => self.row_scratch().lines(),
            Method::Tiles(kernels) => {
                return kernels.block_lines(self.k) * size_of::<Line>() * self.blocks;
            }
        };
        lines * size_of::<Line>() * self.columns
    }

    fn local_bytes(&self) -> usize {
        let normed = if self.normed { self.row_lines() } else { 0 };
        let products = if self.scratch_products { PRODUCT_BYTES } else { 0 };
        (self.panel_lines() * size_of::<Line>() + products).max(normed * size_of::<Line>())
    }

    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(a), Some(x), ..], out, shared, .. } = args else { return };
        let recipes = [Some(Recipe::plain(a)), None, None];
        self.multiply(run, Source { x, norm: None }, &recipes, [Some(out), None, None], shared, None);
    }
}

/// Results with one input.
struct Product<'a, 'b> {
    kernel: &'a MulMatKernel,
    run: &'a Execution<'b>,
    b: Source<'a>,
    recipes: &'a [Option<Recipe<'a>>; MAX_RESULTS],
    outs: [Option<Output<'a>>; MAX_RESULTS],
    shared: &'a mut [Line],
    routes: Option<Routes<'a>>,
}

impl<'a> Product<'a, '_> {
    /// Processes the tiles of all results. `rows` is the number of rows of a panel; without panels, the tile
    /// size is chosen for memory access. `product` writes the products with a matrix into a tile, using a
    /// panel in scratch memory.
    fn for_each_tile(
        self,
        rows: Option<usize>,
        product: impl Fn(&Input<'a>, &mut Tile<'_>, &mut [Line]) + Sync,
    ) {
        let Product { kernel, run, recipes, mut outs, routes, .. } = self;
        let all = recipes.iter().flatten().map(Recipe::rows).sum();
        let tiles = std::array::from_fn(|i| match (&recipes[i], &outs[i]) {
            (Some(recipe), Some(out)) => kernel.tile(run, recipe, out, all, rows, routes.is_some()),
            _ => [0; 4],
        });
        let panel = kernel.panel_lines();
        for_each_of(&mut outs, run, tiles, kernel.ns(all), &|i, tile| {
            let Some(recipe) = &recipes[i] else { return };
            run.local(|local| {
                let (panel, products) = local.split_at_mut(panel.min(local.len()));
                let products = bytemuck::cast_slice_mut(products);
                recipe.compute(run.detected(), tile, products, &mut |a, tile| product(a, tile, panel));
            });
        });
    }
}

impl Product<'_, '_> {
    /// Multiplies with F32 activations; `narrow` if no matrix has more than one column. A norm is computed
    /// first, once for each column.
    fn with_floats(mut self, narrow: bool) {
        let Product { kernel, run, b: source, routes, .. } = self;
        let shared = std::mem::take(&mut self.shared);
        let mut b = source.x;
        if source.norm.is_some() {
            let (lines, detected) = (kernel.row_lines(), run.detected());
            let shared = &mut shared[..lines * kernel.columns];
            run.for_each_chunk(shared, lines, kernel.columns * kernel.k / 2, |i, lines| {
                source.row(detected, [i, 0, 0], bytemuck::cast_slice_mut(lines));
            });
            let rows = bytemuck::cast_slice::<Line, f32>(shared);
            b = Input::of_scratch(rows, kernel.k, rows.len() / kernel.columns);
        }
        let rows = (!narrow).then_some(PANEL_ROWS);
        self.for_each_tile(rows, |a, tile, panel| {
            for of in tile_products(a, tile, routes) {
                let one = narrow || routes.is_some() && of.columns.len() == 1;
                let (b, panel) = (&b, bytemuck::cast_slice_mut(panel));
                Floats { detected: run.detected(), a, b, of, tile, panel }.compute(one);
            }
        });
    }

    /// Multiplies with 8-bit activations, in panels of `shape`. The activations are quantised first, each
    /// column once.
    fn with_blocks(mut self, kernels: &BlockKernels, shape: Option<PanelShape>) {
        let Product { kernel, run, b: source, routes, .. } = self;
        let row = kernel.row_scratch();
        let lines = row.lines();
        let shared = &mut std::mem::take(&mut self.shared)[..lines * kernel.columns];
        let b = source.x;
        let [_, n, b2, _] = b.ne();
        run.for_each_chunk(shared, lines, kernel.columns * kernel.k / 2, |i, lines| {
            run.local(|local| {
                let at = [i % n, i / n % b2, i / (n * b2)];
                let x = source.row(run.detected(), at, bytemuck::cast_slice_mut(local));
                dispatch(run.detected(), Quantize { row, sums: kernels.sums, x, lines });
            });
        });
        let x = Rows { b, row, lines: shared };
        self.for_each_tile(shape.map(|shape| shape.rows), |a, tile, panel| {
            for of in tile_products(a, tile, routes) {
                let x = &x;
                // In a tile with many columns, a matrix that few tokens selected has few.
                let Some(shape) = shape.filter(|s| routes.is_none() || of.columns.len() >= s.min_columns)
                else {
                    DotBlocks { kernels, a, of, tile, x }.compute();
                    continue;
                };
                let [numbers, scales] = kernel.panel_bytes(shape);
                let (numbers, panel) = bytemuck::cast_slice_mut::<Line, u8>(panel).split_at_mut(numbers);
                let scales = bytemuck::cast_slice_mut(&mut panel[..scales]);
                let panel = BlockPanel { kernels, a, of, tile, shape, numbers, scales, x };
                dispatch(run.detected(), panel);
            }
        });
    }

    /// Multiplies in tile registers. The columns are written into blocks first.
    fn with_tiles(mut self, kernels: &TileKernels) {
        let Product { kernel, run, b: source, .. } = self;
        let (block, ne) = (kernels.block_lines(kernel.k), source.x.ne());
        let shared = &mut std::mem::take(&mut self.shared)[..block * kernel.blocks];
        run.for_each_chunk(shared, block, kernel.columns * kernel.k / 2, |i, lines| {
            bytemuck::cast_slice_mut(lines).fill(0_u8);
            for (c, at) in Blocks::columns(ne, i).enumerate() {
                run.local(|local| {
                    let x = source.row(run.detected(), at, bytemuck::cast_slice_mut(local));
                    kernels.put(x, c, lines);
                });
            }
        });
        let x = Blocks { lines: shared, block, ne };
        self.for_each_tile(Some(TILE_ROWS), |a, tile, local| {
            for of in tile_products(a, tile, None) {
                TilePanel { kernels, a, of, tile, x, local }.compute(run.detected());
            }
        });
    }
}

impl MulMatKernel {
    /// Returns the time of `m` rows on one thread.
    fn ns(&self, m: usize) -> usize {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(0);
        // About 8 bytes of weights or 16 products per nanosecond.
        m * self.products * self.k / 16 + self.matrices * m * bytes / 8
    }

    /// Returns the extents of a result's tiles. `all` is the number of rows of weights of all results,
    /// `panel` that of a panel if panels are used.
    fn tile(
        &self,
        run: &Execution<'_>,
        recipe: &Recipe<'_>,
        out: &Output<'_>,
        all: usize,
        panel: Option<usize>,
        routed: bool,
    ) -> [usize; 4] {
        let [m, n, p2, _] = out.ne();
        let mut rows = panel.unwrap_or_else(|| self.narrow(run, recipe, all, routed));
        if routed {
            // A tile has all columns, and these rows of every matrix.
            let columns = recipe.scratch_columns(n * p2).max(1);
            return [rows.min(PRODUCT_BYTES / 4 / columns / INT_ROWS * INT_ROWS).max(INT_ROWS), n, p2, 1];
        }
        let mut columns = n;
        if panel.is_some() && run.threads() > 1 {
            // All columns unless there are few panels.
            let panels = m.max(all / recipe.matrices()).div_ceil(rows) * p2 * out.ne()[3];
            let (least, multiple) = if let Method::Tiles(_) = self.method { TILE_COLUMNS } else { (24, 6) };
            let cuts = (4 * run.threads()).div_ceil(panels).min(n.div_ceil(least));
            columns = n.div_ceil(cuts).next_multiple_of(multiple);
        }
        if recipe.scratch_columns(columns) > 0 {
            rows = rows.min(PRODUCT_BYTES / 4 / INT_ROWS);
            columns = columns.min(PRODUCT_BYTES / 4 / rows);
        }
        [rows, columns, 1, 1]
    }

    /// Returns the rows of a tile without panels: a fixed number of bytes of weights, but several tiles for
    /// each thread.
    fn narrow(&self, run: &Execution<'_>, recipe: &Recipe<'_>, all: usize, routed: bool) -> usize {
        let bytes = self.dtype.row_bytes(self.k).unwrap_or(1).max(1) * if routed { self.matrices } else { 1 };
        let parts = if run.is_shared(self.ns(all)) { 4 * run.threads() } else { 1 };
        let chunk = (bytes * all / parts).clamp(SMALL_CHUNK, CHUNK);
        (chunk / (bytes * recipe.matrices())).max(1).next_multiple_of(INT_ROWS)
    }
}
