//! Encoders of the types whose 4-bit codes are indices of a value table: IQ4_NL, IQ4_XS, MXFP4, NVFP4.

use super::blocks::put_nibbles;
use super::parts::Parts;
use super::{BlockMethod, extreme, inverse, mean_square, put_half, search, signed_scales, weights};

/// Values of IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`), denser around zero.
const NONLINEAR: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// Values of E2M1 by their bits (OCP Microscaling Formats, 5.3.3).
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Returns the nearest table entry, the first among equal ones.
fn nearest(table: &[f32; 16], x: f32) -> u8 {
    let mut best = (0, (x - table[0]).abs());
    for (i, entry) in table.iter().enumerate().skip(1) {
        let distance = (x - entry).abs();
        if distance < best.1 {
            best = (i, distance);
        }
    }
    best.0 as u8
}

/// Middles between neighbours of [`NONLINEAR`], each with the distance of the neighbours.
const GAPS: [(f32, f32); 15] = {
    let mut gaps = [(0.0, 0.0); 15];
    let mut i = 0;
    while i < 15 {
        gaps[i] = (0.5 * (NONLINEAR[i] + NONLINEAR[i + 1]), NONLINEAR[i + 1] - NONLINEAR[i]);
        i += 1;
    }
    gaps
};

/// Returns the nearest entry of [`NONLINEAR`], the first among equal ones, without a branch: the first entry
/// plus the gaps below the value.
fn nonlinear(x: f32) -> f32 {
    GAPS.iter().fold(NONLINEAR[0], |entry, (middle, gap)| entry + if x > *middle { *gap } else { 0.0 })
}

/// Returns the scale of a block. With `BlockMethod::Quick`, the value of largest magnitude maps to -127 and a
/// least-squares fit to the resulting entries follows. Otherwise it is the best of several targets around
/// -127 and around 113, refined.
fn fit(block: &[f32], weights: &[f32], method: BlockMethod<'_>) -> f32 {
    let most = inverse(extreme(block));
    if matches!(method, BlockMethod::Quick) {
        return search::fit(block, weights, NONLINEAR[0] * most, nonlinear).0;
    }
    let inverses =
        (-7..=7).flat_map(|step| [NONLINEAR[0], NONLINEAR[15]].map(|end| (end + step as f32) * most));
    search::centred(block, weights, inverses, nonlinear)
}

/// Returns the weights of errors.
fn weigh<const N: usize>(block: &[f32; N], method: BlockMethod<'_>) -> [f32; N] {
    match method {
        BlockMethod::Quick | BlockMethod::Search => [1.0; N],
        BlockMethod::Weighted(importance, _) => weights(block, importance, Some(2.0 * mean_square(block))),
    }
}

fn put_numbers(table: &[f32; 16], block: &[f32; 32], inverse: f32, out: &mut Vec<u8>) {
    put_nibbles(&block.map(|x| nearest(table, x * inverse)), out);
}

/// Encodes as F16 scale, nibbles.
pub(super) fn iq4_nl(block: &[f32; 32], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let scale = fit(block, &weigh(block, method), method);
    put_half(scale, out);
    put_numbers(&NONLINEAR, block, inverse(scale), out);
}

/// Encodes as an F16 unit and eight scales of 6 bits with offset 32: the two high bits of each in 16 bits,
/// the nibbles in 4 bytes.
pub(super) fn iq4_xs(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let weights = weigh(block, method);
    let parts = Parts::new(block, &weights, 8);
    let fits = parts.map(|x, weights| fit(x, weights, method));
    let (unit, scales) = match method {
        BlockMethod::Quick => signed_scales(&fits, 32.0),
        _ => parts.multiples::<8>(&fits, 32.0, nonlinear),
    };
    let (mut high, mut low) = (0u16, [0u8; 4]);
    for (i, scale) in scales.iter().map(|s| (s + 32) as u8).enumerate() {
        high |= u16::from(scale >> 4) << (2 * i);
        low[i / 2] |= (scale & 15) << (4 * (i % 2));
    }
    out.extend_from_slice(&unit.to_le_bytes());
    out.extend_from_slice(&high.to_le_bytes());
    out.extend_from_slice(&low);
    for (part, scale) in block.as_chunks::<32>().0.iter().zip(scales) {
        put_numbers(&NONLINEAR, part, inverse(unit.to_f32() * f32::from(scale)), out);
    }
}

/// Encodes with a power of two as scale, so that the largest magnitude is in `4 .. 8`; values above 6 become
/// 6. The scale byte is the exponent plus 127.
pub(super) fn mxfp4(block: &[f32; 32], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let exponent = (extreme(block).abs().to_bits() >> 23).saturating_sub(2);
    // In F64, because the reciprocal of the smallest scale is not representable in F32.
    let inverse = 2f64.powi(127 - exponent as i32);
    out.push(exponent as u8);
    put_nibbles(&block.map(|x| nearest(&E2M1, (f64::from(x) * inverse) as f32)), out);
}

/// Returns the value of an unsigned E4M3.
fn ue4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3), f32::from(bits & 7));
    if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7) }
}

/// Returns the nearest E4M3 that is no NaN, the smaller of two equally near ones; 0 for a NaN.
fn nearest_ue4m3(x: f32) -> u8 {
    (1..=126)
        .fold(0, |best, bits| if (ue4m3(bits) - x).abs() < (ue4m3(best) - x).abs() { bits } else { best })
}

/// Returns the scale of 16 elements: the one that maps the largest magnitude to 6, or a neighbour with less
/// error.
fn fit_nvfp4(part: &[f32; 16]) -> u8 {
    let first = nearest_ue4m3(extreme(part).abs() / 6.0);
    let lost = |bits: u8| -> f32 {
        let (scale, inverse) = (ue4m3(bits), inverse(ue4m3(bits)));
        part.iter().map(|&x| (x - scale * E2M1[usize::from(nearest(&E2M1, x * inverse))]).powi(2)).sum()
    };
    let near = (first.saturating_sub(3)..=(first + 4).min(126)).map(|bits| (bits, lost(bits)));
    near.fold((first, lost(first)), |best, next| if next.1 < best.1 { next } else { best }).0
}

/// Encodes as four scales, then the 16 nibbles of each.
pub(super) fn nvfp4(block: &[f32; 64], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let parts = block.as_chunks::<16>().0;
    let scales = [0, 1, 2, 3].map(|i| fit_nvfp4(&parts[i]));
    out.extend_from_slice(&scales);
    for (part, scale) in parts.iter().zip(scales) {
        let q = part.map(|x| nearest(&E2M1, x * inverse(ue4m3(scale))));
        out.extend((0..8).map(|j| q[j] | q[j + 8] << 4));
    }
}
