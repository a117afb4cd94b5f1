//! The reference's decoders of IQ1, IQ2 and IQ3: one element of a block of grid point indices.

use super::float::half_float;
use crate::grids;

fn word16(bytes: &[u8], n: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * n], bytes[2 * n + 1]])
}

fn word32(bytes: &[u8], n: usize) -> u32 {
    u32::from(word16(bytes, 2 * n)) | u32::from(word16(bytes, 2 * n + 1)) << 16
}

/// Returns nibble `n` of a sequence, the low one of a byte first.
fn nibble(bytes: &[u8], n: usize) -> u8 {
    bytes[n / 2] >> (4 * (n % 2)) & 15
}

/// Returns code `place` of a point of eight.
fn of_eight(points: &[u16], index: usize, place: usize) -> usize {
    usize::from(points[index] >> (2 * place) & 3)
}

/// Returns a magnitude of IQ2.
fn magnitude(points: &[u16], index: usize, place: usize) -> f64 {
    [8.0, 25.0, 43.0][of_eight(points, index, place)]
}

/// Returns the magnitude `place` of a point of four (IQ3).
fn of_four(points: &[u16], magnitudes: [u8; 8], index: usize, place: usize) -> f64 {
    f64::from(magnitudes[usize::from(points[index] >> (4 * place) & 15)])
}

/// Returns the sign of element `place` if seven of eight signs are stored: the number of negative ones is
/// even.
fn sign_of_seven(seven: u32, place: usize) -> f64 {
    let negative = if place < 7 { seven >> place & 1 } else { (seven & 127).count_ones() % 2 };
    1.0 - 2.0 * f64::from(negative)
}

/// Returns the sign of element `i` if all are stored, the first in the lowest bit.
fn sign(bits: &[u8], i: usize) -> f64 {
    1.0 - 2.0 * f64::from(bits[i / 8] >> (i % 8) & 1)
}

/// Decodes IQ2_XXS: F16 scale; for each 32 elements four indices of one byte, and a word of four times seven
/// signs with four bits `s` of a scale `(s + 1/2) / 4` above them.
pub(super) fn iq2_xxs(block: &[u8], i: usize) -> f64 {
    let (part, eight) = (&block[2 + i / 32 * 8..], i % 32 / 8);
    let word = word32(part, 1);
    let scale = half_float(block) * (f64::from(word >> 28) + 0.5) / 4.0;
    let value = magnitude(&grids::IQ2_XXS, part[eight].into(), i % 8);
    scale * value * sign_of_seven(word >> (7 * eight), i % 8)
}

/// Decodes IQ2_XS: F16 scale; for each eight elements nine bits of index and seven signs; for each 16 a
/// nibble `s` of a scale `(s + 1/2) / 4`.
pub(super) fn iq2_xs(block: &[u8], i: usize) -> f64 {
    let word = word16(&block[2..], i / 8);
    let scale = half_float(block) * (f64::from(nibble(&block[66..], i / 16)) + 0.5) / 4.0;
    let value = magnitude(&grids::IQ2_XS, (word & 511).into(), i % 8);
    scale * value * sign_of_seven((word >> 9).into(), i % 8)
}

/// Decodes IQ2_S: F16 scale; for each eight elements the low byte of an index; 256 signs; the high two bits
/// of the indices; scales as in IQ2_XS.
pub(super) fn iq2_s(block: &[u8], i: usize) -> f64 {
    let eight = i / 8;
    let high = block[66 + eight / 4] >> (2 * (eight % 4)) & 3;
    let index = usize::from(block[2 + eight]) | usize::from(high) << 8;
    let scale = half_float(block) * (f64::from(nibble(&block[74..], i / 16)) + 0.5) / 4.0;
    scale * magnitude(&grids::IQ2_S, index, i % 8) * sign(&block[34..], i)
}

/// Decodes IQ3_XXS: F16 scale; for each four elements an index of one byte; for each 32 a word as in IQ2_XXS,
/// where the scale is `(s + 1/2) / 2`.
pub(super) fn iq3_xxs(block: &[u8], i: usize) -> f64 {
    let word = word32(&block[66..], i / 32);
    let scale = half_float(block) * (f64::from(word >> 28) + 0.5) / 2.0;
    let magnitudes = [4, 12, 20, 28, 36, 44, 52, 62];
    let value = of_four(&grids::IQ3_XXS, magnitudes, block[2 + i / 4].into(), i % 4);
    scale * value * sign_of_seven(word >> (7 * (i % 32 / 8)), i % 8)
}

/// Decodes IQ3_S: F16 scale; for each four elements the low byte of an index; the ninth bits; 256 signs; for
/// each 32 a nibble `s` of a scale `2 s + 1`.
pub(super) fn iq3_s(block: &[u8], i: usize) -> f64 {
    let four = i / 4;
    let index = usize::from(block[2 + four]) | usize::from(block[66 + four / 8] >> (four % 8) & 1) << 8;
    let scale = half_float(block) * (2.0 * f64::from(nibble(&block[106..], i / 32)) + 1.0);
    let value = of_four(&grids::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15], index, i % 4);
    scale * value * sign(&block[74..], i)
}

/// Returns a value of IQ1: -1, 0 or 1, plus or minus an eighth.
fn shifted(index: usize, place: usize, less: bool) -> f64 {
    of_eight(&grids::IQ1, index, place) as f64 - 1.0 + if less { -0.125 } else { 0.125 }
}

/// Decodes IQ1_S: F16 scale; for each eight elements the low byte of an index; for each 32 a word of four
/// times three high bits, three bits `s` of a scale `2 s + 1`, and a bit that is set if an eighth is
/// subtracted.
pub(super) fn iq1_s(block: &[u8], i: usize) -> f64 {
    let (eight, word) = (i / 8, word16(&block[34..], i / 32));
    let index = usize::from(block[2 + eight]) | usize::from(word >> (3 * (eight % 4)) & 7) << 8;
    let scale = half_float(block) * (2.0 * f64::from(word >> 12 & 7) + 1.0);
    scale * shifted(index, i % 8, word >> 15 == 1)
}

/// Decodes IQ1_M: for each eight elements the low byte of an index, then a nibble with its three high bits
/// and a bit that is set if an eighth is subtracted; four words, each with three bits of four scales as in
/// IQ1_S, for 16 elements each, and above them four bits of the F16 scale, the lowest first.
pub(super) fn iq1_m(block: &[u8], i: usize) -> f64 {
    let (eight, scales) = (i / 8, &block[48..]);
    let high = nibble(&block[32..], eight);
    let index = usize::from(block[eight]) | usize::from(high & 7) << 8;
    let bits = (0..4).fold(0, |bits, n| bits | word16(scales, n) >> 12 << (4 * n));
    let part = word16(scales, i / 64) >> (3 * (i / 16 % 4)) & 7;
    half_float(&bits.to_le_bytes()) * (2.0 * f64::from(part) + 1.0) * shifted(index, i % 8, high & 8 != 0)
}
