//! CPY and CONT kernels.

use super::kernel::{Args, Kernel};
use crate::cpu::execution::Execution;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::dtype::DType;
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;

/// Elements converted at a time, in buffers on the stack.
const CHUNK: usize = 256;

/// Copy of elements in the order of their indices, with type conversion.
#[derive(Debug)]
pub(super) struct CopyKernel {
    from: DType,
    to: DType,
    /// True if operand 1 is the destination.
    aliased: bool,
}

impl CopyKernel {
    /// Creates a kernel from one type to another; `aliased` for CPY, whose second operand is the destination.
    pub(super) fn new(from: DType, to: DType, aliased: bool) -> Result<CopyKernel, String> {
        let float = |t: DType| matches!(t, DType::F32 | DType::F16 | DType::BF16);
        if from == to && from == DType::I32 || float(from) && float(to) {
            return Ok(CopyKernel { from, to, aliased });
        }
        Err(format!("no conversion from {from} to {to}"))
    }
}

impl Kernel for CopyKernel {
    fn reads(&self, i: usize) -> bool {
        i == 0 || !self.aliased
    }

    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(x), ..], mut out, .. } = args else { return };
        let ne = out.ne();
        let ns = ne.iter().product::<usize>();
        // If rows of an operand are columns in memory: square tiles, so that each cache line is fully used
        // while cached. Otherwise long tiles.
        let straight = x.rows_contiguous() && out.rows_contiguous();
        let tile = if straight { [4096, (4096 / ne[0]).max(1), 1, 1] } else { [32, 32, 1, 1] };
        out.for_each_tile(run, tile, ns, |tile| match (self.from, self.to) {
            (DType::F32, DType::F32) | (DType::I32, _) => copy(&x, tile, Same::<u32>(PhantomData)),
            (DType::F32, DType::F16) => convert::<AsF32, AsF16>(run, &x, tile),
            (DType::F32, _) => convert::<AsF32, AsBF16>(run, &x, tile),
            (DType::F16, DType::F32) => convert::<AsF16, AsF32>(run, &x, tile),
            (DType::BF16, DType::F32) => convert::<AsBF16, AsF32>(run, &x, tile),
            (DType::F16, DType::BF16) => convert::<AsF16, AsBF16>(run, &x, tile),
            (DType::BF16, DType::F16) => convert::<AsBF16, AsF16>(run, &x, tile),
            _ => copy(&x, tile, Same::<u16>(PhantomData)),
        });
    }
}

/// Copies the elements of a tile, in chunks within one row of the source.
#[inline(always)]
fn copy<P: ChunkConversion>(x: &Input<'_>, tile: &mut Tile<'_>, conversion: P) {
    let [s0, s1, s2, _] = x.ne();
    let [n0, n1, n2, _] = tile.extents();
    let (mut from, mut to) = ([P::From::zeroed(); CHUNK], [P::To::zeroed(); CHUNK]);
    let columns = tile.range(0);
    for [i1, i2, i3] in tile.rows() {
        // Index of the row's first element in the order of all elements, then in the source.
        let mut n = ((i3 * n2 + i2) * n1 + i1) * n0 + columns.start;
        let mut done = 0;
        while done < columns.len() {
            let at = n % s0;
            let len = (columns.len() - done).min(s0 - at).min(CHUNK);
            let row = n / s0;
            x.gather([row % s1, row / s1 % s2, row / (s1 * s2)], at, &mut from[..len]);
            conversion.convert(&from[..len], &mut to[..len]);
            tile.scatter([i1, i2, i3], done, &to[..len]);
            done += len;
            n += len;
        }
    }
}

/// Conversion of a chunk.
trait ChunkConversion {
    /// Element type of the source.
    type From: Pod;
    /// Element type of the destination.
    type To: Pod;
    /// Converts `x.len()` elements.
    fn convert(&self, x: &[Self::From], out: &mut [Self::To]);
}

/// Copy without conversion.
struct Same<T>(PhantomData<T>);

impl<T: Pod> ChunkConversion for Same<T> {
    type From = T;
    type To = T;

    #[inline(always)]
    fn convert(&self, x: &[T], out: &mut [T]) {
        out.copy_from_slice(x);
    }
}

/// Conversion through F32.
struct Through<S, A, B>(S, PhantomData<(A, B)>);

impl<S: Simd, A: FloatFormat, B: FloatFormat> ChunkConversion for Through<S, A, B> {
    type From = A::Bits;
    type To = B::Bits;

    #[inline(always)]
    fn convert(&self, x: &[A::Bits], out: &mut [B::Bits]) {
        let mut wide = [0.0; CHUNK];
        A::widen(self.0, x, &mut wide[..x.len()]);
        B::narrow(self.0, &wide[..x.len()], out);
    }
}

fn convert<A: FloatFormat, B: FloatFormat>(run: &Execution<'_>, x: &Input<'_>, tile: &mut Tile<'_>) {
    dispatch(run.detected(), Convert::<A, B> { x, tile, types: PhantomData });
}

/// Job that copies a tile with conversion from `A` to `B`.
struct Convert<'a, 'b, A, B> {
    x: &'a Input<'a>,
    tile: &'a mut Tile<'b>,
    types: PhantomData<(A, B)>,
}

impl<A: FloatFormat, B: FloatFormat> Job for Convert<'_, '_, A, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        copy(self.x, self.tile, Through::<S, A, B>(s, PhantomData));
    }
}

/// Float type as stored.
trait FloatFormat: Send + Sync {
    /// Bits of a stored value.
    type Bits: Pod;
    /// Converts to F32, exactly.
    fn widen<S: Simd>(s: S, x: &[Self::Bits], out: &mut [f32]);
    /// Converts from F32, rounded to nearest, ties to even.
    fn narrow<S: Simd>(s: S, x: &[f32], out: &mut [Self::Bits]);
}

struct AsF32;
struct AsF16;
struct AsBF16;

impl FloatFormat for AsF32 {
    type Bits = f32;

    #[inline(always)]
    fn widen<S: Simd>(_: S, x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
    }

    #[inline(always)]
    fn narrow<S: Simd>(_: S, x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
    }
}

impl FloatFormat for AsF16 {
    type Bits = u16;

    #[inline(always)]
    fn widen<S: Simd>(s: S, x: &[u16], out: &mut [f32]) {
        for (x, out) in x.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
            let mut full = [0; crate::cpu::simd::MAX_LANES];
            full[..x.len()].copy_from_slice(x);
            s.store_partial(out, s.load_f16(&full));
        }
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: &[f32], out: &mut [u16]) {
        narrow_f16(s, x, out);
    }
}

impl FloatFormat for AsBF16 {
    type Bits = u16;

    #[inline(always)]
    fn widen<S: Simd>(_: S, x: &[u16], out: &mut [f32]) {
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = f32::from_bits(u32::from(x) << 16));
    }

    #[inline(always)]
    fn narrow<S: Simd>(_: S, x: &[f32], out: &mut [u16]) {
        for (out, x) in out.iter_mut().zip(x) {
            let bits = x.to_bits();
            let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
            *out = if x.is_nan() { 0x7fc0 } else { rounded };
        }
    }
}

/// Converts F32 to binary16, rounded to nearest, ties to even.
#[inline(always)]
pub(super) fn narrow_f16<S: Simd>(s: S, x: &[f32], out: &mut [u16]) {
    let mut from = x.chunks_exact(S::LANES);
    let mut to = out.chunks_exact_mut(S::LANES);
    for (x, out) in (&mut from).zip(&mut to) {
        s.store_f16(out, s.load(x));
    }
    let mut full = [0; crate::cpu::simd::MAX_LANES];
    s.store_f16(&mut full, s.load_partial(from.remainder()));
    to.into_remainder().iter_mut().zip(full).for_each(|(out, x)| *out = x);
}
