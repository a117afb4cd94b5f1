//! GET_ROWS and SET_ROWS kernels.

use super::copy::narrow_f16;
use super::kernel::{Args, Kernel};
use crate::cpu::dot::{self, BlockQ4, BlockQ8, ForWeight, Weight, Widen};
use crate::cpu::execution::Execution;
use crate::cpu::isa::Detected;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::dtype::DType;
use bytemuck::Pod;
use half::f16;

/// GET_ROWS: copies rows by index and converts them to F32.
#[derive(Debug)]
pub(super) struct GetRowsKernel(DType);

impl GetRowsKernel {
    /// Creates the kernel for rows of a type.
    pub(super) fn new(dtype: DType) -> Result<GetRowsKernel, String> {
        if dtype == DType::I32 || dot::has_weight(dtype) {
            return Ok(GetRowsKernel(dtype));
        }
        Err(format!("rows of {dtype} cannot be widened"))
    }
}

/// Converts an index to `usize` if it is in `0..rows`.
pub(super) fn valid(index: i32, rows: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|&i| i < rows)
}

impl Kernel for GetRowsKernel {
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(a), Some(ids), ..], out, .. } = args else { return };
        let mut out = out;
        let ne = out.ne();
        let ns = ne.iter().product::<usize>() / 2;
        let rows = (4096 / ne[0]).max(1);
        out.for_each_tile(run, [ne[0], rows, 1, 1], ns, |tile| {
            for [j, i2, i3] in tile.rows() {
                let to: &mut [u32] = tile.row([j, i2, i3]);
                match valid(ids.at([j, i2, i3, 0]), a.ne()[1]) {
                    Some(index) if self.0 == DType::I32 => to.copy_from_slice(a.row([index, i2, i3])),
                    Some(index) => {
                        widen(run.detected(), &a, [index, i2, i3], 0, bytemuck::cast_slice_mut(to));
                    }
                    // All bits zero: 0 in F32 and in I32.
                    None => to.fill(0),
                }
            }
        });
    }
}

/// Converts as many elements as `out` has to F32, from segment `segment` of row `at` of `x` on. Does nothing
/// for types without [`Weight`].
pub(super) fn widen(detected: Detected, x: &Input<'_>, at: [usize; 3], segment: usize, out: &mut [f32]) {
    dot::with_weight(x.dtype(), WidenRow { detected, x, at, segment, out });
}

/// Operands of [`widen`].
struct WidenRow<'a> {
    detected: Detected,
    x: &'a Input<'a>,
    at: [usize; 3],
    segment: usize,
    out: &'a mut [f32],
}

impl ForWeight for WidenRow<'_> {
    type Out = ();

    fn call<W: Weight>(self) {
        dispatch(self.detected, Widen::<W>::segment(self.x.row(self.at), self.segment, self.out));
    }
}

/// SET_ROWS: writes rows by index.
#[derive(Debug)]
pub(super) struct SetRowsKernel(DType);

impl SetRowsKernel {
    /// Creates the kernel for a destination type.
    pub(super) fn new(dtype: DType) -> Result<SetRowsKernel, String> {
        if stores(dtype) {
            return Ok(SetRowsKernel(dtype));
        }
        Err(format!("rows of {dtype} cannot be written"))
    }
}

impl Kernel for SetRowsKernel {
    fn reads(&self, i: usize) -> bool {
        i != 0
    }

    /// Runs on one thread, because two indices might select the same row although the definition forbids it.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [_, Some(values), Some(ids), ..], mut out, .. } = args else { return };
        let rows = out.ne()[1];
        let [_, n_ids, b2, b3] = values.ne();
        out.for_each_tile(run, out.ne(), 0, |tile| {
            for i3 in 0..b3 {
                for i2 in 0..b2 {
                    for j in 0..n_ids {
                        let index = ids.at([j, i2 % ids.ne()[1], i3 % ids.ne()[2], 0]);
                        let Some(index) = valid(index, rows) else { continue };
                        let x: &[f32] = values.row([j, i2, i3]);
                        store(run.detected(), self.0, x, tile, [index, i2, i3]);
                    }
                }
            }
        });
    }
}

/// True if rows of a type can be written.
pub(super) fn stores(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Q8_0 | DType::Q4_0)
}

/// Converts and writes the tile's part of a row.
pub(super) fn store(detected: Detected, dtype: DType, x: &[f32], tile: &mut Tile<'_>, to: [usize; 3]) {
    match dtype {
        DType::F16 => dispatch(detected, Narrow { x, out: tile.row(to) }),
        DType::Q8_0 => dispatch(detected, Blocks::<BlockQ8> { x, out: tile.row(to) }),
        DType::Q4_0 => dispatch(detected, Blocks::<BlockQ4> { x, out: tile.row(to) }),
        _ => tile.row(to).copy_from_slice(x),
    }
}

/// Job that converts an F32 row to binary16.
struct Narrow<'a> {
    x: &'a [f32],
    out: &'a mut [u16],
}

impl Job for Narrow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        narrow_f16(s, self.x, self.out);
    }
}

/// Block type of a cache, rounded as defined by SET_ROWS. Plain loops, which the compiler vectorises.
trait CacheBlock: Pod {
    /// Quantises 32 values to a block.
    fn round(x: &[f32; 32]) -> Self;
}

/// Returns the largest magnitude.
#[inline(always)]
fn magnitude(x: &[f32; 32]) -> f32 {
    x.iter().fold(0.0f32, |most, x| most.max(x.abs()))
}

impl CacheBlock for BlockQ8 {
    #[inline(always)]
    fn round(x: &[f32; 32]) -> BlockQ8 {
        let scale = magnitude(x) / 127.0;
        let q = if scale == 0.0 { [0; 32] } else { x.map(|x| (x / scale).round() as i8) };
        BlockQ8 { scale: f16::from_f32_const(scale).to_le_bytes(), q }
    }
}

impl CacheBlock for BlockQ4 {
    #[inline(always)]
    fn round(x: &[f32; 32]) -> BlockQ4 {
        let most = magnitude(x);
        let scale = x.iter().find(|x| x.abs() == most).unwrap_or(&0.0) / -8.0;
        let q = if scale == 0.0 { [8; 32] } else { x.map(|x| (x / scale + 8.5).clamp(0.0, 15.0) as u8) };
        let q = std::array::from_fn(|i| q[i] | q[i + 16] << 4);
        BlockQ4 { scale: f16::from_f32_const(scale).to_le_bytes(), q }
    }
}

/// Job that converts an F32 row to blocks.
struct Blocks<'a, B> {
    x: &'a [f32],
    out: &'a mut [B],
}

impl<B: CacheBlock> Job for Blocks<'_, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.x.as_chunks().0.iter().zip(self.out).for_each(|(x, out)| *out = B::round(x));
    }
}
