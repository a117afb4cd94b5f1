//! Encoders of the types with blocks of 256 and scales of sub-blocks (parts): Q2_K to Q6_K.
//!
//! Every part gets the scale (and minimum) of its range, improved by one least-squares fit to the resulting
//! codes, or the best result of a [`search`]. The scales of a block are then rounded to a few bits of a
//! common F16 scale ([`Parts`]), and the codes are chosen again. ggml rounds in another order, so its files
//! differ in some bits.

use super::parts::Parts;
use super::{BlockMethod, extreme, inverse, mean_square, search, signed_scales, weights};
use half::f16;

/// A block as `scale * q - minimum`, with a scale and a minimum for each part.
struct Affine<const PARTS: usize> {
    /// F16 scales of the integer scales and of the integer minima.
    units: [f16; 2],
    scales: [u8; PARTS],
    minima: [u8; PARTS],
    q: [u8; 256],
}

/// Parameters of an [`affine`] block: the largest code, the largest integer scale, and the multiple
/// of the block's mean square in the error weights with importance.
struct Shape {
    top: u8,
    steps: u8,
    squares: f32,
}

/// Returns codes `0..=top` for `PARTS` equal parts, with scales and minima in `0..=steps`. Except for
/// `BlockMethod::Quick`, the scales come from a search.
fn affine<const PARTS: usize>(block: &[f32; 256], shape: Shape, method: BlockMethod<'_>) -> Affine<PARTS> {
    let Shape { top, steps, squares } = shape;
    let size = 256 / PARTS;
    let range = f32::from(top);
    let searched = |weights: &[f32; 256]| {
        let parts = Parts::new(block, weights, PARTS);
        let search = search::Affine { top: range, above_zero: false };
        parts.affine_multiples::<PARTS>(&parts.map(|x, weights| search.best(x, weights)), [top, steps])
    };
    let (units, [scales, minima]) = match method {
        BlockMethod::Quick => {
            let mut fits = [[0.0f32; 2]; PARTS];
            fits.iter_mut()
                .zip(block.chunks_exact(size))
                .for_each(|(fit, part)| *fit = fit_affine(part, range));
            let units =
                [0, 1].map(|i| f16::from_f32(fits.iter().fold(0.0, |m, f| f[i].max(m)) / f32::from(steps)));
            let inverses = units.map(|u| inverse(u.to_f32()));
            (units, [0, 1].map(|i| fits.map(|f| ((f[i] * inverses[i]).round() as u8).min(steps))))
        }
        BlockMethod::Search => searched(&[1.0; 256]),
        BlockMethod::Weighted(importance, _) => {
            searched(&weights(block, importance, Some(squares * mean_square(block))))
        }
    };
    let mut q = [0; 256];
    for (i, (q, x)) in q.iter_mut().zip(block).enumerate() {
        let part = i / size;
        let inverse = inverse(units[0].to_f32() * f32::from(scales[part]));
        let minimum = units[1].to_f32() * f32::from(minima[part]);
        *q = search::nearest(((x + minimum) * inverse).max(0.0).min(range)) as u8;
    }
    Affine { units, scales, minima, q }
}

/// Returns the least-squares scale and minimum (subtracted, not negative) of `x` for codes `0..=top`.
fn fit_affine(x: &[f32], top: f32) -> [f32; 2] {
    let low = x.iter().copied().fold(0.0, f32::min);
    let high = x.iter().copied().fold(0.0, f32::max);
    let scale = (high - low) / top;
    let inverse = inverse(scale);
    let n = x.len() as f32;
    let [mut q1, mut q2, mut x1, mut qx] = [0.0f32; 4];
    for &v in x {
        let q = ((v - low) * inverse).round();
        q1 += q;
        q2 += q * q;
        x1 += v;
        qx += q * v;
    }
    let determinant = n * q2 - q1 * q1;
    let fitted = [(n * qx - q1 * x1) / determinant, (q1 * qx - q2 * x1) / determinant];
    match fitted {
        // All codes are equal, or a value is NaN or infinite.
        _ if !(determinant > 0.0 && fitted[0] > 0.0) => [scale, -low],
        [_, minimum] if minimum < 0.0 => [qx / q2, 0.0],
        _ => fitted,
    }
}

/// Splits the index of an element of Q2_K, Q3_K or Q6_K: half of 128, quarter of 32 in the half, lane.
fn split_index(i: usize) -> (usize, usize, usize) {
    (i / 128, i % 128 / 32, i % 32)
}

/// Packs bits `shift` and `shift + 1` of all codes: quarter `n` of a half in bits `2 n` and up of its 32
/// bytes.
fn bit_pairs(q: &[u8; 256], shift: u32) -> [u8; 64] {
    let mut pairs = [0; 64];
    for (i, q) in q.iter().enumerate() {
        let (half, quarter, lane) = split_index(i);
        pairs[half * 32 + lane] |= (q >> shift & 3) << (2 * quarter);
    }
    pairs
}

/// Encodes 16 parts: scale and minimum in the nibbles of a byte, codes of 2 bits.
pub(super) fn q2_k(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let shape = Shape { top: 3, steps: 15, squares: 1.0 };
    let Affine { units, scales, minima, q } = affine::<16>(block, shape, method);
    out.extend(scales.iter().zip(minima).map(|(s, m)| s | m << 4));
    out.extend_from_slice(&bit_pairs(&q, 0));
    out.extend(units.iter().flat_map(|u| u.to_le_bytes()));
}

/// Encodes 16 signed scales in 6 bits with offset 32, and codes of 3 bits with offset 4.
pub(super) fn q3_k(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let (unit, scales, q) = centred(block, 4.0, 32.0, method);
    let mut high = [0u8; 32];
    for (i, q) in q.iter().enumerate() {
        let (half, quarter, lane) = split_index(i);
        high[lane] |= (q >> 2) << (4 * half + quarter);
    }
    let mut packed = [0u8; 12];
    for (i, scale) in scales.iter().map(|s| (s + 32) as u8).enumerate() {
        packed[i % 8] |= (scale & 15) << (4 * (i / 8));
        packed[8 + i % 4] |= (scale >> 4) << (2 * (i / 4));
    }
    out.extend_from_slice(&high);
    out.extend_from_slice(&bit_pairs(&q, 0));
    out.extend_from_slice(&packed);
    out.extend_from_slice(&unit.to_le_bytes());
}

/// Packs eight scales and eight minima of 6 bits into 12 bytes. The first four scales are the low bits of
/// bytes 0 to 3, the first four minima those of bytes 4 to 7. The other scales and minima have their low four
/// bits in the nibbles of bytes 8 to 11 and their upper two bits above those of the first four.
fn put_scales(scales: &[u8; 8], minima: &[u8; 8], out: &mut Vec<u8>) {
    for values in [scales, minima] {
        out.extend((0..4).map(|i| values[i] | values[i + 4] >> 4 << 6));
    }
    out.extend((4..8).map(|i| (scales[i] & 15) | minima[i] << 4));
}

/// Returns the nibbles of eight parts; two parts share 32 bytes.
fn paired_nibbles(q: &[u8; 256]) -> impl Iterator<Item = u8> + '_ {
    q.chunks_exact(64).flat_map(|two| (0..32).map(|i| (two[i] & 15) | two[i + 32] << 4))
}

/// Encodes eight parts of 4 bits.
pub(super) fn q4_k(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let shape = Shape { top: 15, steps: 63, squares: 2.0 };
    let Affine { units, scales, minima, q } = affine(block, shape, method);
    out.extend(units.iter().flat_map(|u| u.to_le_bytes()));
    put_scales(&scales, &minima, out);
    out.extend(paired_nibbles(&q));
}

/// Encodes eight parts of 5 bits; the fifth bits of part `n` are bit `n` of 32 bytes.
pub(super) fn q5_k(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let shape = Shape { top: 31, steps: 63, squares: 2.0 };
    let Affine { units, scales, minima, q } = affine(block, shape, method);
    out.extend(units.iter().flat_map(|u| u.to_le_bytes()));
    put_scales(&scales, &minima, out);
    let mut high = [0u8; 32];
    for (i, q) in q.iter().enumerate() {
        high[i % 32] |= (q >> 4) << (i / 32);
    }
    out.extend_from_slice(&high);
    out.extend(paired_nibbles(&q));
}

/// Encodes 16 signed scales of 8 bits, and codes of 6 bits with offset 32.
pub(super) fn q6_k(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let (unit, scales, q) = centred(block, 32.0, 128.0, method);
    let mut low = [0u8; 128];
    for (i, q) in q.iter().enumerate() {
        let (half, quarter, lane) = split_index(i);
        low[half * 64 + quarter % 2 * 32 + lane] |= (q & 15) << (4 * (quarter / 2));
    }
    out.extend_from_slice(&low);
    out.extend_from_slice(&bit_pairs(&q, 4));
    out.extend(scales.iter().map(|&s| s as u8));
    out.extend_from_slice(&unit.to_le_bytes());
}

/// Returns the F16 unit, the scales `-steps .. steps` of 16 parts in this unit, and the codes:
/// `-zero .. zero` with `zero` added.
fn centred(block: &[f32; 256], zero: f32, steps: f32, method: BlockMethod<'_>) -> (f16, [i8; 16], [u8; 256]) {
    let code = |x: f32| search::nearest(x.max(-zero).min(zero - 1.0));
    let searched = |weights: &[f32; 256]| {
        let parts = Parts::new(block, weights, 16);
        let fits = parts.map(|x, weights| search::signed(x, weights, zero));
        parts.multiples::<16>(&fits, steps, code)
    };
    let (unit, scales) = match method {
        BlockMethod::Quick => {
            let mut fits = [0.0f32; 16];
            for (fit, part) in fits.iter_mut().zip(block.chunks_exact(16)) {
                let scale = extreme(part) / -zero;
                let fitted = search::fit(part, &[1.0; 16], inverse(scale), code).0;
                *fit = if fitted == 0.0 { scale } else { fitted };
            }
            signed_scales(&fits, steps)
        }
        BlockMethod::Search => searched(&[1.0; 256]),
        // ggml weights the errors of Q6_K, with scales of 8 bits, by importance only.
        BlockMethod::Weighted(importance, _) => {
            searched(&weights(block, importance, (steps < 128.0).then(|| 2.0 * mean_square(block))))
        }
    };
    let mut q = [0; 256];
    for (i, (q, &x)) in q.iter_mut().zip(block).enumerate() {
        *q = (code(x * inverse(unit.to_f32() * f32::from(scales[i / 16]))) + zero) as u8;
    }
    (unit, scales, q)
}
