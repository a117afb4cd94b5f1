//! Integer dot products on Arm: SDOT multiplies four bytes with four bytes and adds the products, for four
//! lanes; SMMLA multiplies two rows of eight bytes with two columns of eight.
//!
//! Both use inline assembly, because stable Rust has no intrinsics for them.

use super::{IntDot, MAX_TILE, PanelShape, ROWS, factor_count};
use crate::cpu::dot::block::Quant;
use crate::cpu::dot::column::Column;
use crate::cpu::simd::neon::{DOT, MATRIX, Neon, PLAIN};
use half::f16;
use std::arch::aarch64::*;
use std::arch::asm;

impl IntDot for Neon<PLAIN> {}

/// Implements the kernels of a level.
macro_rules! kernels {
    ($level:ident, $features:literal) => {
        impl IntDot for Neon<$level> {
            #[inline(always)]
            fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
                Some(shape::<Q>())
            }

            #[inline(always)]
            fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, _ahead: usize) -> [f32; ROWS] {
                // SAFETY: a token of this level exists only on machines with its features.
                unsafe { dot8(self, rows, x) }
            }

            #[inline(always)]
            fn pack<Q: Quant>(self, rows: &[&[Q]], values: &mut [u8], factors: &mut [f32]) {
                pack::<Q, { $level }>(self, rows, values, factors);
            }

            #[inline(always)]
            fn panel<const HALVES: bool, const MINIMA: usize>(
                self,
                values: &[u8],
                factors: &[f32],
                x: &[Column<'_>],
                out: &mut [f32; MAX_TILE],
            ) {
                #[target_feature(enable = $features)]
                fn panels<const HALVES: bool, const MINIMA: usize>(
                    values: &[u8],
                    factors: &[f32],
                    x: &[Column<'_>],
                    out: &mut [f32; MAX_TILE],
                ) {
                    match *x {
                        [a, b, c, d] => {
                            panel::<HALVES, MINIMA, 4, { $level }>(values, factors, [a, b, c, d], out)
                        }
                        [a, b, c] => panel::<HALVES, MINIMA, 3, { $level }>(values, factors, [a, b, c], out),
                        [a, b] => panel::<HALVES, MINIMA, 2, { $level }>(values, factors, [a, b], out),
                        [a] => panel::<HALVES, MINIMA, 1, { $level }>(values, factors, [a], out),
                        _ => {}
                    }
                }
                // SAFETY: as above.
                unsafe { panels::<HALVES, MINIMA>(values, factors, x, out) }
            }
        }
    };
}

kernels!(DOT, "neon,dotprod");
kernels!(MATRIX, "neon,dotprod,i8mm");

/// Returns the shape: eight rows are two vectors of sums. With four columns, sums and totals take 16 of 32
/// registers.
const fn shape<Q: Quant>() -> PanelShape {
    let factors = factor_count(Q::HALVES, Q::MINIMA);
    PanelShape { rows: 8, columns: 4, wide: false, factors, min_columns: 4 }
}

/// Adds four byte products to each of four sums.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: accesses registers only, and the instruction is among this function's target features.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds the products of four bytes of each lane of `a` and bytes `4 LANE ..` of `b`, which all lanes share.
///
/// # Safety
/// The processor must support SDOT.
#[inline(always)]
unsafe fn sdot_lane<const LANE: i32>(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: accesses registers only, and the caller guarantees support of the instruction.
    unsafe {
        asm!(".arch_extension dotprod", "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]", inout(vreg) sum, in(vreg) a,
            in(vreg) b, const LANE, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds the products of two rows of eight bytes and two columns of eight: row 0 with both columns, then row
/// 1.
///
/// # Safety
/// The processor must support SMMLA.
#[inline(always)]
unsafe fn smmla(mut sum: int32x4_t, rows: int8x16_t, columns: int8x16_t) -> int32x4_t {
    // SAFETY: accesses registers only, and the caller guarantees support of the instruction.
    unsafe {
        asm!(".arch_extension i8mm", "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) rows,
            in(vreg) columns, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Loads 16 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn load(x: &[i8; 16]) -> int8x16_t {
    // SAFETY: the array is as long as the access.
    unsafe { vld1q_s8(x.as_ptr()) }
}

/// Loads four floats.
#[inline]
#[target_feature(enable = "neon")]
fn floats(x: &[f32; 4]) -> float32x4_t {
    // SAFETY: the array is as long as the access.
    unsafe { vld1q_f32(x.as_ptr()) }
}

/// Returns both halves of a group.
#[inline(always)]
fn halves(q: &[i8; 32]) -> &[[i8; 16]; 2] {
    bytemuck::cast_ref(q)
}

/// Multiplies eight rows with one column; the sums of the eight rows are scaled together.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot8<S: IntDot, Q: Quant>(s: S, rows: [&[Q]; ROWS], x: Column<'_>) -> [f32; ROWS] {
    let mut total = [0.0; ROWS];
    for b in 0..x.blocks.len() / Q::GROUPS {
        let mut units = [0.0; ROWS];
        let (mut scales, mut inner) = ([[1i8; 8]; ROWS], [[[1.0; 2]; 8]; ROWS]);
        for r in 0..ROWS {
            units[r] = rows[r][b].unit_f32();
            scales[r] = rows[r][b].scales();
            inner[r] = rows[r][b].half_floats();
        }
        for g in 0..Q::GROUPS {
            let x = &x.blocks[b * Q::GROUPS + g];
            let [first, last] = halves(&x.q);
            let (first, last) = (load(first), load(last));
            let mut sums = [0.0; ROWS];
            for r in 0..ROWS {
                let numbers = s.numbers(&rows[r][b], g);
                let [low, high] = halves(&numbers);
                let zero = vdupq_n_s32(0);
                sums[r] = if Q::HALVES {
                    inner[r][g][0] * vaddvq_s32(sdot(zero, load(low), first)) as f32
                        + inner[r][g][1] * vaddvq_s32(sdot(zero, load(high), last)) as f32
                } else {
                    vaddvq_s32(sdot(sdot(zero, load(low), first), load(high), last)) as f32
                };
            }
            for r in 0..ROWS {
                total[r] += units[r] * f32::from(scales[r][g]) * x.scale * sums[r];
            }
            for (h, weighed) in x.weighed().into_iter().enumerate().take(Q::MINIMA) {
                for r in 0..ROWS {
                    let unit = f16::from_bits(rows[r][b].negative_unit()).to_f32_const();
                    total[r] += unit * f32::from(rows[r][b].minima(h)[g]) * weighed;
                }
            }
        }
    }
    total
}

/// Packs a panel of 8 rows; each group is 16 vectors. SDOT: for each 4 of its 32 values one vector of rows 0
/// to 3 and one of rows 4 to 7. SMMLA: for each 8 of its values one vector for each two rows. The factors of
/// each group are the scales of all rows, their minima, the scales of the first halves and those of the last.
#[inline(always)]
fn pack<Q: Quant, const LEVEL: u8>(s: impl IntDot, rows: &[&[Q]], values: &mut [u8], factors: &mut [f32]) {
    let groups: &mut [[[i8; 16]; 16]] = bytemuck::cast_slice_mut(values);
    let all = groups.iter_mut().zip(factors.chunks_exact_mut(8 * shape::<Q>().factors));
    for (at, (values, factors)) in all.enumerate() {
        let (b, g) = (at / Q::GROUPS, at % Q::GROUPS);
        for (r, row) in rows.iter().enumerate().take(8) {
            let block = &row[b];
            let numbers = s.numbers(block, g);
            for (i, number) in numbers.into_iter().enumerate() {
                match LEVEL {
                    MATRIX => values[i / 8 * 4 + r / 2][r % 2 * 8 + i % 8] = number,
                    _ => values[i / 4 * 2 + r / 4][r % 4 * 4 + i % 4] = number,
                }
            }
            factors[r] = block.unit_f32() * f32::from(block.scales()[g]);
            let negative = f16::from_bits(block.negative_unit()).to_f32_const();
            for h in 0..Q::MINIMA {
                factors[8 * (1 + h) + r] = negative * f32::from(block.minima(h)[g]);
            }
            if Q::HALVES {
                for h in 0..2 {
                    factors[8 * (1 + Q::MINIMA + h) + r] = block.half_floats()[g][h];
                }
            }
        }
    }
}

/// Multiplies a panel with `C` columns. Half scales multiply the sums of the halves, which is exact in F32
/// (for float scales only the products are exact).
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn panel<const HALVES: bool, const MINIMA: usize, const C: usize, const LEVEL: u8>(
    values: &[u8],
    factors: &[f32],
    x: [Column<'_>; C],
    out: &mut [f32; MAX_TILE],
) {
    let n = x[0].blocks.len();
    let values: &[[[i8; 16]; 16]] = bytemuck::cast_slice(values);
    let groups = values[..n].iter().zip(factors.chunks_exact(8 * factor_count(HALVES, MINIMA)));
    let mut total = [[vdupq_n_f32(0.0); 2]; C];
    for (at, (values, factors)) in groups.enumerate() {
        let factors = factors.as_chunks::<4>().0;
        let mut sums = [[vdupq_n_s32(0); 2]; C];
        let mut sum = [[vdupq_n_f32(0.0); 2]; C];
        for half in 0..2 {
            // SAFETY: the level's features include the instruction, and the caller is compiled for them.
            sums = unsafe { half_sums::<C, LEVEL>(sums, values, &x, at, half) };
            if !HALVES {
                continue;
            }
            let scales = &factors[2 * (1 + MINIMA + half)..];
            for c in 0..C {
                for v in 0..2 {
                    let exact = vcvtq_f32_s32(sums[c][v]);
                    sum[c][v] = vfmaq_f32(sum[c][v], exact, floats(&scales[v]));
                    sums[c][v] = vdupq_n_s32(0);
                }
            }
        }
        for c in 0..C {
            let block = &x[c].blocks[at];
            for v in 0..2 {
                let sum = if HALVES { sum[c][v] } else { vcvtq_f32_s32(sums[c][v]) };
                let scale = vmulq_n_f32(floats(&factors[v]), block.scale);
                total[c][v] = vaddq_f32(total[c][v], vmulq_f32(scale, sum));
                for (h, weighed) in block.weighed().into_iter().enumerate().take(MINIMA) {
                    let minimum = vmulq_n_f32(floats(&factors[2 * (1 + h) + v]), weighed);
                    total[c][v] = vaddq_f32(total[c][v], minimum);
                }
            }
        }
    }
    for c in 0..C {
        for v in 0..2 {
            let Some(to) = out[c * 8 + v * 4..].first_chunk_mut::<4>() else { continue };
            // SAFETY: the array is as long as the access.
            unsafe { vst1q_f32(to.as_mut_ptr(), total[c][v]) };
        }
    }
}

/// Adds the products of half a group to the sums of eight rows with each column.
///
/// # Safety
/// The processor must support the instructions of the level.
#[inline(always)]
unsafe fn half_sums<const C: usize, const LEVEL: u8>(
    mut sums: [[int32x4_t; 2]; C],
    values: &[[i8; 16]; 16],
    x: &[Column<'_>; C],
    at: usize,
    half: usize,
) -> [[int32x4_t; 2]; C] {
    // SAFETY: the caller guarantees support of the instructions; loads are as long as their arrays.
    unsafe {
        let values = &values[8 * half..];
        let columns: [&[i8; 16]; C] = std::array::from_fn(|c| &halves(&x[c].blocks[at].q)[half]);
        if LEVEL == MATRIX {
            // Two columns at a time; the last column replaces a missing one.
            for pair in 0..C.div_ceil(2) {
                let (a, b) = (2 * pair, (2 * pair + 1).min(C - 1));
                let mut four = [vdupq_n_s32(0); 4];
                for eight in 0..2 {
                    let bytes = |c: usize| vld1_s8(columns[c].as_ptr().add(8 * eight));
                    let two = vcombine_s8(bytes(a), bytes(b));
                    for p in 0..4 {
                        four[p] = smmla(four[p], vld1q_s8(values[4 * eight + p].as_ptr()), two);
                    }
                }
                for v in 0..2 {
                    let (low, high) = (four[2 * v], four[2 * v + 1]);
                    sums[a][v] = vaddq_s32(sums[a][v], vuzp1q_s32(low, high));
                    if b > a {
                        sums[b][v] = vaddq_s32(sums[b][v], vuzp2q_s32(low, high));
                    }
                }
            }
            return sums;
        }
        for c in 0..C {
            let x = vld1q_s8(columns[c].as_ptr());
            for v in 0..2 {
                let weights = |four: usize| vld1q_s8(values[2 * four + v].as_ptr());
                let mut sum = sums[c][v];
                sum = sdot_lane::<0>(sum, weights(0), x);
                sum = sdot_lane::<1>(sum, weights(1), x);
                sum = sdot_lane::<2>(sum, weights(2), x);
                sums[c][v] = sdot_lane::<3>(sum, weights(3), x);
            }
        }
    }
    sums
}
