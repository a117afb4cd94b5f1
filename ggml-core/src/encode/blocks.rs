//! Encoders of the evenly spaced types with blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1. The rounding is
//! ggml's reference rounding, or a [`search`] finds the scales: of all but Q8_0 with the importance of
//! columns, of Q4_1 and Q5_1 also without.

use super::{BlockMethod, extreme, inverse, put_half, search, weights};
use half::f16;

/// Writes 32 codes below 16 as 16 bytes, the first 16 codes in the low nibbles.
pub(super) fn put_nibbles(q: &[u8; 32], out: &mut Vec<u8>) {
    out.extend((0..16).map(|i| (q[i] & 15) | q[i + 16] << 4));
}

/// Writes the fifth bits of 32 codes, the first in the lowest bit, then their nibbles.
fn put_five_bits(q: &[u8; 32], out: &mut Vec<u8>) {
    let high = q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4 & 1) << i);
    out.extend_from_slice(&high.to_le_bytes());
    put_nibbles(q, out);
}

/// Encodes with scale = largest magnitude / 127; codes are rounded half away from zero.
pub(super) fn q8_0(block: &[f32; 32], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let scale = extreme(block).abs() / 127.0;
    let inverse = inverse(scale);
    put_half(scale, out);
    out.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
}

/// Writes the scale and returns the codes. Scale = the value of largest magnitude / -2^(bits - 1), so that
/// this value gets the lowest code, or with importance the result of a search; codes are
/// `x / scale + 2^(bits - 1) + 0.5` truncated. Without importance a search lowers the squared error by 10 to
/// 20 percent, but shortens the largest values, and trained models get no better by it.
fn centred(block: &[f32; 32], method: BlockMethod<'_>, bits: u32, out: &mut Vec<u8>) -> [u8; 32] {
    let zero = (1 << (bits - 1)) as f32;
    let scale = match method {
        BlockMethod::Weighted(importance, square) => {
            // Rounded as it is stored, so that the codes are the nearest ones for the stored scale.
            let fit = search::signed(block, &weights(block, importance, Some(square)), zero);
            f16::from_f32(fit).to_f32()
        }
        _ => extreme(block) / -zero,
    };
    let inverse = inverse(scale);
    put_half(scale, out);
    block.map(|v| ((v * inverse + zero + 0.5) as u8).min((1 << bits) - 1))
}

/// Writes the scale and the minimum and returns the codes. Scale = range / (2^bits - 1), or the result of a
/// search; codes are `(x - minimum) / scale + 0.5` truncated.
fn ranged(block: &[f32; 32], method: BlockMethod<'_>, bits: u32, out: &mut Vec<u8>) -> [u8; 32] {
    let top = (1u8 << bits) - 1;
    let weights = match method {
        BlockMethod::Quick => None,
        BlockMethod::Search => Some([1.0; 32]),
        BlockMethod::Weighted(importance, square) => Some(weights(block, importance, Some(square))),
    };
    let (scale, low) = match weights {
        Some(weights) => {
            let search = search::Affine { top: f32::from(top), above_zero: true };
            let [scale, minimum] = search.best(block, &weights);
            (f16::from_f32(scale).to_f32(), f16::from_f32(-minimum).to_f32())
        }
        None => {
            let low = block.iter().copied().fold(f32::INFINITY, f32::min);
            let high = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            ((high - low) / f32::from(top), low)
        }
    };
    let inverse = inverse(scale);
    put_half(scale, out);
    put_half(low, out);
    block.map(|v| (((v - low) * inverse + 0.5) as u8).min(top))
}

/// Encodes as scale, nibbles with offset 8.
pub(super) fn q4_0(block: &[f32; 32], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let q = centred(block, method, 4, out);
    put_nibbles(&q, out);
}

/// Encodes as scale, minimum, nibbles.
pub(super) fn q4_1(block: &[f32; 32], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let q = ranged(block, method, 4, out);
    put_nibbles(&q, out);
}

/// Encodes as scale, fifth bits, nibbles with offset 16.
pub(super) fn q5_0(block: &[f32; 32], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let q = centred(block, method, 5, out);
    put_five_bits(&q, out);
}

/// Encodes as scale, minimum, fifth bits, nibbles.
pub(super) fn q5_1(block: &[f32; 32], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let q = ranged(block, method, 5, out);
    put_five_bits(&q, out);
}
