//! Windows: tensors at an address, as kernels read and write them.
//!
//! Except for [`super::memory`], [`super::crew`] and the vector loads of [`super::simd`] and [`super::dot`],
//! this is the only module with `unsafe` code. Its invariants:
//!
//! * A [`Window`] is within a memory that its program keeps alive, and is aligned for its elements. Both were
//!   checked when the program was prepared.
//! * [`Input`]s and [`Output`]s are made for one step, while the program holds the gates of all its memories.
//!   The step's outputs overlap none of its inputs: an operand that would overlap is either already stored in
//!   the output for the kernel, or is copied elsewhere first (see [`super::program`]). Outputs do not overlap
//!   each other either.
//! * The threads of a step access an output through [`Tile`]s. Tiles are boxes of one grid over the output's
//!   indices. No two tiles share an index and no two indices share an address; otherwise there is only one
//!   tile. Two outputs that are tiled together share no address.
//! * Scratch memory is an input or a tile only while it is borrowed.

use super::execution::Execution;
use crate::dtype::DType;
use crate::tensor::Tensor;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// Maximum number of results of a step.
pub(super) const MAX_RESULTS: usize = 3;

/// Location and layout of a tensor's elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    at: NonNull<u8>,
    span: usize,
    dtype: DType,
    ne: [usize; 4],
    nb: [usize; 4],
}

// SAFETY: a plain address; the conditions for its use are stated where `Input` and `Output` are made.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Returns the window of `tensor`, which spans `span` bytes from `at`. The caller has checked that the
    /// span is within a memory and aligned.
    pub(super) fn new(at: NonNull<u8>, span: usize, tensor: &Tensor) -> Window {
        Window { at, span, dtype: tensor.dtype, ne: tensor.ne, nb: tensor.nb }
    }

    /// Returns the bytes from the first to one past the last.
    pub(super) fn span(&self) -> usize {
        self.span
    }

    /// True if two windows share addresses, including gaps.
    pub(super) fn overlaps(&self, other: &Window) -> bool {
        let (a, b) = (self.at.addr().get(), other.at.addr().get());
        a < b + other.span && b < a + self.span
    }

    /// True if two windows have the same elements at the same addresses.
    pub(super) fn same(&self, other: &Window) -> bool {
        let key = |w: &Window| {
            (w.at, w.dtype, w.ne, std::array::from_fn(|d| if w.ne[d] == 1 { 0 } else { w.nb[d] }))
        };
        let (a, b): ((_, _, _, [usize; 4]), _) = (key(self), key(other));
        a == b
    }

    /// True if different indices certainly have different addresses: sorted by stride, each dimension's
    /// stride is at least the extent of all dimensions inside it.
    pub(super) fn injective(&self) -> bool {
        let mut dims = std::array::from_fn::<_, 4, _>(|d| {
            let n = if d == 0 { self.ne[0].div_ceil(self.dtype.block()) } else { self.ne[d] };
            // The stride of a single element is never used.
            if n > 1 { (self.nb[d], n) } else { (0, 1) }
        });
        dims.sort_unstable();
        let mut inner = self.dtype.block_bytes();
        dims.into_iter().filter(|&(_, n)| n > 1).all(|(stride, n)| {
            let steps_over = stride >= inner;
            inner += (n - 1) * stride;
            steps_over
        })
    }

    /// Returns the window for reading during a step.
    ///
    /// # Safety
    /// During all of `'a` the memory exists, and no code writes within the window.
    pub(super) unsafe fn input<'a>(&self) -> Input<'a> {
        Input { window: *self, life: PhantomData }
    }

    /// Returns the window for writing during a step.
    ///
    /// # Safety
    /// During all of `'a` the memory exists and is writable, and no other code reads or writes within the
    /// window.
    pub(super) unsafe fn output<'a>(&self) -> Output<'a> {
        Output { window: *self, injective: self.injective(), life: PhantomData }
    }

    /// Copies all bytes, including gaps, to a window of the same span.
    ///
    /// # Safety
    /// No code writes within this window, no other code reads or writes within `to`, both memories exist, and
    /// the windows do not overlap.
    pub(super) unsafe fn copy_to(&self, to: &Window) {
        // SAFETY: guaranteed by the caller; the smaller span is within both windows.
        unsafe { self.at.copy_to_nonoverlapping(to.at, self.span.min(to.span)) };
    }

    #[inline(always)]
    fn byte_offset(&self, [i0, i1, i2, i3]: [usize; 4]) -> usize {
        let [n0, n1, n2, n3] = self.ne;
        assert!(i0 < n0 && i1 < n1 && i2 < n2 && i3 < n3, "a kernel's index is outside of its operand");
        i0 / self.dtype.block() * self.nb[0] + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3]
    }

    /// Asserts that elements (blocks of block types) are of type `T`.
    #[inline(always)]
    fn assert_type<T: Pod>(&self) {
        let fits = size_of::<T>() == self.dtype.block_bytes()
            && self.at.addr().get().is_multiple_of(align_of::<T>());
        assert!(fits, "a kernel takes its operand for another type");
    }

    #[inline(always)]
    fn rows_contiguous(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes() || self.ne[0] == self.dtype.block()
    }
}

/// An operand of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    window: Window,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Input<'a> {
    /// Returns the extents.
    pub(super) fn ne(&self) -> [usize; 4] {
        self.window.ne
    }

    /// Returns the strides in bytes.
    pub(super) fn nb(&self) -> [usize; 4] {
        self.window.nb
    }

    /// Returns the element type.
    pub(super) fn dtype(&self) -> DType {
        self.window.dtype
    }

    /// True if the elements of a row are contiguous.
    pub(super) fn rows_contiguous(&self) -> bool {
        self.window.rows_contiguous()
    }

    /// Returns a row of contiguous elements (blocks of block types).
    #[inline(always)]
    pub(super) fn row<T: Pod>(&self, row: [usize; 3]) -> &'a [T] {
        self.window.assert_type::<T>();
        let bytes = self.bytes(row);
        // SAFETY: as many bytes as `bytes.len() / size_of::<T>()` elements, aligned for `T` (both asserted),
        // for which any bytes are a valid value.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>().max(1)) }
    }

    /// Returns the bytes of a row of contiguous elements.
    #[inline(always)]
    fn bytes(&self, [i1, i2, i3]: [usize; 3]) -> &'a [u8] {
        assert!(self.rows_contiguous(), "a kernel takes its operand's rows for contiguous");
        let at = self.window.byte_offset([0, i1, i2, i3]);
        let len = self.window.ne[0] / self.window.dtype.block() * self.window.dtype.block_bytes();
        // SAFETY: the row is within the window (`byte_offset`, and contiguous elements); no code writes there
        // during `'a` (guaranteed to `Window::input`).
        unsafe { std::slice::from_raw_parts(self.window.at.add(at).as_ptr(), len) }
    }

    /// Returns the bytes of `N` rows of a matrix from `first` on; beyond row `last`, row `last` is repeated.
    #[inline(always)]
    pub(super) fn group<const N: usize>(
        &self,
        first: usize,
        last: usize,
        [i2, i3]: [usize; 2],
    ) -> [&'a [u8]; N] {
        assert!(first <= last && last < self.window.ne[1], "a kernel's index is outside of its operand");
        let mut rows = [self.bytes([first, i2, i3]); N];
        for (i, row) in rows.iter_mut().enumerate().skip(1) {
            let skipped = i.min(last - first) * self.window.nb[1];
            // SAFETY: row `first + i` or `last`, both rows of the window by the assertion; otherwise as in
            // `bytes`.
            *row = unsafe { std::slice::from_raw_parts(row.as_ptr().byte_add(skipped), row.len()) };
        }
        rows
    }

    /// Returns one element of a plain type.
    pub(super) fn at<T: Pod>(&self, index: [usize; 4]) -> T {
        self.window.assert_type::<T>();
        let at = self.window.byte_offset(index);
        // SAFETY: as in `row`, for one element.
        unsafe { self.window.at.add(at).cast().read() }
    }

    /// Copies the elements of a row from `first` on into `out`, for any stride. Plain types only.
    pub(super) fn gather<T: Pod>(&self, [i1, i2, i3]: [usize; 3], first: usize, out: &mut [T]) {
        if out.is_empty() {
            return;
        }
        if self.rows_contiguous() {
            out.copy_from_slice(&self.row([i1, i2, i3])[first..first + out.len()]);
            return;
        }
        self.window.assert_type::<T>();
        let start = self.window.byte_offset([first, i1, i2, i3]);
        assert!(self.window.ne[0] - first >= out.len(), "a kernel reads beyond a row");
        for (i, x) in out.iter_mut().enumerate() {
            // SAFETY: element `first + i` is in the row, by the assertion above; otherwise as in `row`.
            *x = unsafe { self.window.at.add(start + i * self.window.nb[0]).cast().read() };
        }
    }
}

impl<'a> Input<'a> {
    /// Wraps rows of `n` elements in scratch memory, `stride` elements apart, as a matrix.
    pub(super) fn of_scratch(rows: &'a [f32], n: usize, stride: usize) -> Input<'a> {
        let count = rows.len() / stride.max(1);
        assert!(n <= stride && count > 0, "a kernel's scratch memory is too small");
        let (row, all) = (4 * stride, 4 * stride * count);
        let (ne, nb) = ([n, count, 1, 1], [4, row, all, all]);
        let at = NonNull::from(rows).cast();
        // All rows are within the slice, which is borrowed for `'a`.
        Input { window: Window { at, span: all, dtype: DType::F32, ne, nb }, life: PhantomData }
    }

    /// Returns rows `first .. first + count` of a matrix.
    pub(super) fn rows(&self, first: usize, count: usize) -> Input<'a> {
        let [n, _, n2, n3] = self.window.ne;
        self.part([0, first], [n, count, n2, n3])
    }

    /// Returns elements `first .. first + count` of each row. Plain types only.
    pub(super) fn elements(&self, first: usize, count: usize) -> Input<'a> {
        let [_, n1, n2, n3] = self.window.ne;
        assert!(self.window.dtype.block() == 1, "a kernel divides blocks");
        self.part([first, 0], [count, n1, n2, n3])
    }

    fn part(&self, [first, row]: [usize; 2], ne: [usize; 4]) -> Input<'a> {
        let within = first + ne[0] <= self.window.ne[0] && row + ne[1] <= self.window.ne[1];
        assert!(within && ne[0] > 0 && ne[1] > 0, "a kernel's index is outside of its operand");
        let offset = self.window.byte_offset([first, row, 0, 0]);
        // SAFETY: the address of an element of the window (`byte_offset`).
        let at = unsafe { self.window.at.add(offset) };
        Input { window: Window { at, span: self.window.span - offset, ne, ..self.window }, life: PhantomData }
    }
}

/// A result of a step.
#[derive(Debug)]
pub(super) struct Output<'a> {
    window: Window,
    injective: bool,
    life: PhantomData<&'a mut [u8]>,
}

impl Output<'_> {
    /// Returns the extents.
    pub(super) fn ne(&self) -> [usize; 4] {
        self.window.ne
    }

    /// True if the elements of a row are contiguous.
    pub(super) fn rows_contiguous(&self) -> bool {
        self.window.rows_contiguous()
    }

    /// Calls `f` for every tile of a grid, on several threads if worthwhile. `tile` has the extents of a
    /// tile; tiles at the borders are smaller. `ns` is the estimated total time on one thread. If several
    /// indices of the output share an address, there is one tile, and its rows are processed in the order of
    /// their indices.
    pub(super) fn for_each_tile(
        &mut self,
        run: &Execution<'_>,
        tile: [usize; 4],
        ns: usize,
        f: impl Fn(&mut Tile<'_>) + Sync,
    ) {
        let grid = self.grid(tile);
        run.for_each(grid.count(), ns, |n| f(&mut grid.tile(n)));
    }

    fn grid(&mut self, tile: [usize; 4]) -> Grid<'_> {
        let ne = self.window.ne;
        let extents = if self.injective { std::array::from_fn(|d| tile[d].clamp(1, ne[d])) } else { ne };
        let counts = std::array::from_fn(|d| ne[d].div_ceil(extents[d]));
        Grid { window: self.window, extents, counts, life: PhantomData }
    }

    /// Splits a contiguous result into its first elements, with extents `ne[0]`, and the remaining ones, with
    /// extents `ne[1]`. Plain types only.
    pub(super) fn split(self, ne: [[usize; 4]; 2]) -> [Self; 2] {
        let (window, [first, second]) = (self.window, ne.map(|ne| ne.iter().product::<usize>()));
        let size = window.dtype.block_bytes();
        let fits =
            window.ne.iter().product::<usize>() == first + second && window.span == (first + second) * size;
        assert!(fits && self.injective && window.dtype.block() == 1, "a kernel splits its result wrongly");
        let part = |offset: usize, ne: [usize; 4]| {
            let nb = [size, size * ne[0], size * ne[0] * ne[1], size * ne[0] * ne[1] * ne[2]];
            // SAFETY: `offset` is at most the window's span, which is within its memory.
            let at = unsafe { window.at.add(offset) };
            let span = size * ne.iter().product::<usize>();
            Output { window: Window { at, span, ne, nb, ..window }, injective: true, life: PhantomData }
        };
        // No two elements share an address, so neither do the two parts.
        [part(0, ne[0]), part(first * size, ne[1])]
    }
}

/// Calls `f` for pairs of tiles with the same index in the grids of two outputs, as [`Output::for_each_tile`]
/// does. Both grids must have the same number of tiles.
pub(super) fn for_each_pair(
    [a, b]: [&mut Output<'_>; 2],
    run: &Execution<'_>,
    tiles: [[usize; 4]; 2],
    ns: usize,
    f: impl Fn(&mut Tile<'_>, &mut Tile<'_>) + Sync,
) {
    let (a, b) = (a.grid(tiles[0]), b.grid(tiles[1]));
    assert!(a.count() == b.count(), "a kernel's results have different numbers of tiles");
    run.for_each(a.count(), ns, |n| f(&mut a.tile(n), &mut b.tile(n)));
}

/// Calls `f` with the output's index for every tile of several outputs in one loop, as
/// [`Output::for_each_tile`] does.
pub(super) fn for_each_of(
    outs: &mut [Option<Output<'_>>; MAX_RESULTS],
    run: &Execution<'_>,
    tiles: [[usize; 4]; MAX_RESULTS],
    ns: usize,
    f: &(dyn Fn(usize, &mut Tile<'_>) + Sync),
) {
    let mut tiles = tiles.into_iter();
    let grids = outs.each_mut().map(|out| out.as_mut().zip(tiles.next()).map(|(out, tile)| out.grid(tile)));
    let count = |grid: &Option<Grid<'_>>| grid.as_ref().map_or(0, Grid::count);
    run.for_each(grids.iter().map(count).sum(), ns, |mut n| {
        for (i, grid) in grids.iter().enumerate() {
            match grid {
                Some(grid) if n < grid.count() => return f(i, &mut grid.tile(n)),
                _ => n -= count(grid),
            }
        }
    });
}

/// Tiles of an output, for one loop that visits each tile once.
struct Grid<'a> {
    window: Window,
    extents: [usize; 4],
    counts: [usize; 4],
    life: PhantomData<&'a mut [u8]>,
}

impl Grid<'_> {
    fn count(&self) -> usize {
        self.counts.iter().product()
    }

    fn tile(&self, n: usize) -> Tile<'_> {
        let mut rest = n;
        let ranges = std::array::from_fn(|d| {
            let start = rest % self.counts[d] * self.extents[d];
            rest /= self.counts[d];
            start..(start + self.extents[d]).min(self.window.ne[d])
        });
        Tile { window: self.window, origin: [0; 4], ranges, life: PhantomData }
    }
}

/// Part of an output: a box of indices that one thread writes.
#[derive(Debug)]
pub(super) struct Tile<'a> {
    window: Window,
    /// Index of the window's first element.
    origin: [usize; 4],
    ranges: [Range<usize>; 4],
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Tile<'a> {
    /// Wraps scratch memory as contiguous F32 elements with the indices of `ranges`.
    pub(super) fn in_scratch(scratch: &'a mut [f32], ranges: [Range<usize>; 4]) -> Tile<'a> {
        let ne: [usize; 4] = std::array::from_fn(|d| ranges[d].len());
        let span = 4 * ne.iter().product::<usize>();
        assert!(span <= size_of_val(scratch) && span > 0, "a kernel's scratch memory is too small");
        let nb = [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]];
        let origin = std::array::from_fn(|d| ranges[d].start);
        // All elements are within the slice, which is borrowed for `'a` by this tile only.
        let window = Window { at: NonNull::from(scratch).cast(), span, dtype: DType::F32, ne, nb };
        Tile { window, origin, ranges, life: PhantomData }
    }

    /// Returns the extents of the whole result; for scratch memory those of the tile.
    pub(super) fn extents(&self) -> [usize; 4] {
        self.window.ne
    }

    /// Returns the index range of a dimension.
    pub(super) fn range(&self, d: usize) -> Range<usize> {
        self.ranges[d].clone()
    }

    /// Iterates over the rows of the tile in the order of their indices.
    pub(super) fn rows(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [_, r1, r2, r3] = self.ranges.clone();
        r3.flat_map(move |i3| {
            let r1 = r1.clone();
            r2.clone().flat_map(move |i2| r1.clone().map(move |i1| [i1, i2, i3]))
        })
    }

    /// Returns the tile's part of a row of contiguous elements, with the contents from before the step.
    #[inline(always)]
    pub(super) fn row<T: Pod>(&mut self, row: [usize; 3]) -> &mut [T] {
        assert!(self.window.rows_contiguous(), "a kernel takes its result's rows for contiguous");
        let at = self.byte_offset::<T>(row);
        let len = self.ranges[0].len() / self.window.dtype.block();
        // SAFETY: within the window and aligned as in `Input::row`. No other reference to this part of the
        // output exists: other tiles have other addresses (the module's invariant), inputs do not overlap it,
        // and this call borrows the tile.
        unsafe { std::slice::from_raw_parts_mut(self.window.at.add(at).cast().as_ptr(), len) }
    }

    /// Writes the tile's part of a row from the tile's element `first` on, for any stride. Plain types only.
    pub(super) fn scatter<T: Pod>(&mut self, row: [usize; 3], first: usize, values: &[T]) {
        let start = self.byte_offset::<T>(row);
        assert!(first + values.len() <= self.ranges[0].len(), "a kernel writes beyond its tile");
        for (i, &x) in values.iter().enumerate() {
            // SAFETY: the element is in the tile's part of the row, by the assertion; otherwise as in `row`.
            unsafe { self.window.at.add(start + (first + i) * self.window.nb[0]).cast().write(x) };
        }
    }

    /// Returns the byte offset of the tile's part of a row.
    #[inline(always)]
    fn byte_offset<T: Pod>(&self, [i1, i2, i3]: [usize; 3]) -> usize {
        self.window.assert_type::<T>();
        let mine =
            self.ranges[1].contains(&i1) && self.ranges[2].contains(&i2) && self.ranges[3].contains(&i3);
        assert!(mine, "a kernel writes to another thread's tile");
        let [o0, o1, o2, o3] = self.origin;
        self.window.byte_offset([self.ranges[0].start - o0, i1 - o1, i2 - o2, i3 - o3])
    }
}
