//! Encoders of the types with few bits and one scale for a block: Q1_0, Q2_0, TQ1_0, TQ2_0. The rounding of
//! TQ1_0 and TQ2_0 is ggml's.

use super::{BlockMethod, extreme, inverse, put_half};

/// Encodes as scale = mean magnitude, which has the least error, then signs.
pub(super) fn q1_0(block: &[f32; 128], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    put_half(block.iter().map(|x| x.abs()).sum::<f32>() / 128.0, out);
    for eight in block.as_chunks::<8>().0 {
        out.push(eight.iter().enumerate().fold(0, |bits, (i, x)| bits | u8::from(*x >= 0.0) << i));
    }
}

/// Encodes codes -1 to 2 with the best of several scales, of either sign, between a third of the largest
/// magnitude and all of it.
pub(super) fn q2_0(block: &[f32; 64], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let number = |x: f32, inverse: f32| (x * inverse).round().clamp(-1.0, 2.0);
    let most = extreme(block);
    let mut best = (0.0, 0.0);
    for step in (-12..=-4).chain(4..=12) {
        let inverse = inverse(most * step as f32 / 12.0);
        let (q2, qx) = block.iter().fold((0.0, 0.0), |(q2, qx), &x| {
            let q = number(x, inverse);
            (q2 + q * q, qx + q * x)
        });
        // Reduction of the sum of squares by a fit to these codes.
        if q2 > 0.0 && qx * qx / q2 > best.0 {
            best = (qx * qx / q2, qx / q2);
        }
    }
    let inverse = inverse(best.1);
    put_half(best.1, out);
    for four in block.as_chunks::<4>().0 {
        let pairs = four.iter().enumerate();
        out.push(pairs.fold(0, |bits, (i, &x)| bits | ((number(x, inverse) + 1.0) as u8) << (2 * i)));
    }
}

/// Returns scale = largest magnitude, and codes -1, 0, 1 with 1 added.
fn ternary(block: &[f32; 256]) -> (f32, [u8; 256]) {
    let scale = extreme(block).abs();
    let inverse = inverse(scale);
    (scale, block.map(|x| ((x * inverse).round() + 1.0) as u8))
}

/// Packs codes as base-3 digits, the first the highest, into a byte: the value / 243 in 256ths, rounded up.
/// Missing digits are 0.
fn digits(numbers: impl Iterator<Item = u8>) -> u8 {
    let sum: u32 = numbers.zip([81, 27, 9, 3, 1]).map(|(q, weight)| u32::from(q) * weight).sum();
    (sum * 256).div_ceil(243) as u8
}

/// Encodes as bytes of digits of codes that are 32 apart, then 16 apart, then 4 apart; then the scale.
pub(super) fn tq1_0(block: &[f32; 256], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let (scale, q) = ternary(block);
    for (part, step) in [(&q[..160], 32), (&q[160..240], 16), (&q[240..], 4)] {
        out.extend((0..step).map(|i| digits(part[i..].iter().copied().step_by(step))));
    }
    put_half(scale, out);
}

/// Encodes as bit pairs, where codes 32 apart in each 128 share a byte; then the scale.
pub(super) fn tq2_0(block: &[f32; 256], _: BlockMethod<'_>, out: &mut Vec<u8>) {
    let (scale, q) = ternary(block);
    for half in q.as_chunks::<128>().0 {
        out.extend((0..32).map(|i| (0..4).fold(0, |bits, n| bits | half[32 * n + i] << (2 * n))));
    }
    put_half(scale, out);
}
