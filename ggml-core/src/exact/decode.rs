//! The reference's own decoders: one element of a block, as defined by the format.

use super::float::{e2m1, half_float, power_of_two, ue4m3};
use super::points;
use crate::dtype::DType;
use half::f16;

/// Decodes element `i` of the block that begins at `block[0]`.
pub(super) fn element(dtype: DType, block: &[u8], i: usize) -> f64 {
    let mut value = [0.0];
    elements(dtype, block, i, &mut value);
    value[0]
}

/// Decodes the elements from `first` on of the block that begins at `block[0]`. For a plain type, of any number of
/// elements without gaps.
pub(super) fn elements(dtype: DType, block: &[u8], first: usize, values: &mut [f64]) {
    let to = Range { block, first, values };
    match dtype {
        DType::F32 => to.fill(|row, i| f64::from(f32::from_le_bytes(bytes(row, i)))),
        DType::F16 => to.fill(|row, i| half_float(&row[2 * i..])),
        DType::BF16 => {
            to.fill(|row, i| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes(row, i))) << 16)))
        }
        DType::I32 => to.fill(|row, i| f64::from(i32::from_le_bytes(bytes(row, i)))),
        // F16 scale, then 32 signed bytes.
        DType::Q8_0 => to.fill(|block, i| half_float(block) * f64::from(block[2 + i] as i8)),
        // F16 scale, then 16 bytes: elements 0..16 in the low nibbles, 16..32 in the high ones; code 8 is
        // zero.
        DType::Q4_0 => to.fill(|block, i| half_float(block) * (f64::from(nibble(&block[2..], i)) - 8.0)),
        // F16 scale, F16 minimum, nibbles as in Q4_0.
        DType::Q4_1 => to
            .fill(|block, i| half_float(block) * f64::from(nibble(&block[4..], i)) + half_float(&block[2..])),
        // F16 scale, fifth bits, nibbles; code 16 is zero.
        DType::Q5_0 => to.fill(|block, i| half_float(block) * (f64::from(five_bits(&block[2..], i)) - 16.0)),
        // F16 scale, F16 minimum, fifth bits, nibbles.
        DType::Q5_1 => to.fill(|block, i| {
            half_float(block) * f64::from(five_bits(&block[4..], i)) + half_float(&block[2..])
        }),
        DType::Q2_K => to.fill(q2_k),
        DType::Q3_K => to.fill(q3_k),
        DType::Q4_K => to.fill(q4_k),
        DType::Q5_K => to.fill(q5_k),
        DType::Q6_K => to.fill(q6_k),
        // F16 scale, nibbles as in Q4_0.
        DType::IQ4_NL => to.fill(|block, i| half_float(block) * nonlinear(nibble(&block[2..], i))),
        DType::IQ4_XS => to.fill(iq4_xs),
        // Exponent, nibbles as in Q4_0. ggml has no NaN here: 255 is an ordinary exponent.
        DType::MXFP4 => {
            to.fill(|block, i| power_of_two(i32::from(block[0]) - 127) * e2m1(nibble(&block[1..], i)))
        }
        // Four scales, then 8 bytes for each 16 elements: the first eight in the low nibbles.
        DType::NVFP4 => to.fill(|block, i| {
            let byte = block[4 + i / 16 * 8 + i % 8];
            ue4m3(block[i / 16]) * e2m1(if i % 16 < 8 { byte & 15 } else { byte >> 4 })
        }),
        // F16 scale, then a bit for each element, the first in the lowest.
        DType::Q1_0 => to.fill(|block, i| {
            half_float(block) * if block[2 + i / 8] >> (i % 8) & 1 == 1 { 1.0 } else { -1.0 }
        }),
        // F16 scale, then two bits for each element, the first in the lowest; code 1 is zero.
        DType::Q2_0 => {
            to.fill(|block, i| half_float(block) * (f64::from(block[2 + i / 4] >> (2 * (i % 4)) & 3) - 1.0))
        }
        DType::TQ1_0 => to.fill(tq1_0),
        // Bit pairs in the order of Q6_K, F16 scale; code 1 is zero.
        DType::TQ2_0 => to.fill(|block, i| {
            let pair = block[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
            half_float(&block[64..]) * (f64::from(pair) - 1.0)
        }),
        DType::IQ2_XXS => to.fill(points::iq2_xxs),
        DType::IQ2_XS => to.fill(points::iq2_xs),
        DType::IQ2_S => to.fill(points::iq2_s),
        DType::IQ3_XXS => to.fill(points::iq3_xxs),
        DType::IQ3_S => to.fill(points::iq3_s),
        DType::IQ1_S => to.fill(points::iq1_s),
        DType::IQ1_M => to.fill(points::iq1_m),
        _ => to.fill(|_, _| f64::NAN),
    }
}

/// Returns the bytes of plain element `i`.
fn bytes<const N: usize>(row: &[u8], i: usize) -> [u8; N] {
    std::array::from_fn(|n| row[N * i + n])
}

/// Elements of a block that are decoded.
struct Range<'a> {
    block: &'a [u8],
    first: usize,
    values: &'a mut [f64],
}

impl Range<'_> {
    /// Decodes each element with the decoder of its type, which gets the block and the number of the element.
    fn fill(self, decode: impl Fn(&[u8], usize) -> f64) {
        for (i, value) in self.values.iter_mut().enumerate() {
            *value = decode(self.block, self.first + i);
        }
    }
}

/// Returns nibble `i` of 16 bytes: elements 0..16 are the low ones.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }
}

/// Returns code `i` of 4 bytes with a fifth bit for each element, the first in the lowest, and 16 bytes of
/// nibbles.
fn five_bits(bytes: &[u8], i: usize) -> u8 {
    (bytes[i / 8] >> (i % 8) & 1) << 4 | nibble(&bytes[4..], i)
}

/// Decodes Q2_K: 16 bytes with a scale in the low nibble and a minimum in the high one, 64 bytes of bit
/// pairs, F16 scale of the scales, F16 scale of the minima. The order of elements is that of Q6_K.
fn q2_k(block: &[u8], i: usize) -> f64 {
    let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
    let part = block[i / 16];
    let q = block[16 + half * 32 + lane] >> (2 * quarter) & 3;
    half_float(&block[80..]) * f64::from(part & 15) * f64::from(q)
        - half_float(&block[82..]) * f64::from(part >> 4)
}

/// Decodes Q3_K: 32 bytes of third bits, 64 bytes of bit pairs, 16 scales of 6 bits in 12 bytes, F16 scale of
/// the scales. The order of elements is that of Q6_K; the third bit of quarter `n` of half `m` is bit
/// `4 m + n`. Code 4 is zero; for scales code 32. Scales 0..8 have their low four bits in the low nibbles of
/// 8 bytes, 8..16 in the high ones; the other bits of scale `n` are bits `2 (n / 4)` of byte `8 + n % 4`.
fn q3_k(block: &[u8], i: usize) -> f64 {
    let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
    let q = block[32 + half * 32 + lane] >> (2 * quarter) & 3;
    let third = block[lane] >> (4 * half + quarter) & 1;
    let (n, bytes) = (i / 16, &block[96..108]);
    let low = if n < 8 { bytes[n] & 15 } else { bytes[n - 8] >> 4 };
    let scale = low | (bytes[8 + n % 4] >> (2 * (n / 4)) & 3) << 4;
    half_float(&block[108..]) * (f64::from(scale) - 32.0) * (f64::from(third << 2 | q) - 4.0)
}

/// Returns scale and minimum `n` of eight, 6 bits each, in 12 bytes. Scales and minima 0..4 are the low bits
/// of bytes 0..4 and 4..8. For 4..8, the low four bits are the nibbles of bytes 8..12, and the high two bits
/// are those of the bytes of `n - 4`.
fn six_bit_scale(bytes: &[u8], n: usize) -> (u8, u8) {
    if n < 4 {
        return (bytes[n] & 63, bytes[n + 4] & 63);
    }
    let low = bytes[n + 4];
    (low & 15 | bytes[n - 4] >> 6 << 4, low >> 4 | bytes[n] >> 6 << 4)
}

/// Decodes Q4_K: F16 scale of the scales, F16 scale of the minima, 12 bytes of scales and minima of 32
/// elements, 128 bytes of nibbles. 64 elements share 32 bytes: the first 32 elements are the low nibbles.
fn q4_k(block: &[u8], i: usize) -> f64 {
    let byte = block[16 + i / 64 * 32 + i % 32];
    scaled_4_or_5(block, i, if i % 64 < 32 { byte & 15 } else { byte >> 4 })
}

/// Decodes Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles: bit `n` belongs to elements
/// `32 n ..`.
fn q5_k(block: &[u8], i: usize) -> f64 {
    let byte = block[48 + i / 64 * 32 + i % 32];
    let fifth = block[16 + i % 32] >> (i / 32) & 1;
    scaled_4_or_5(block, i, fifth << 4 | if i % 64 < 32 { byte & 15 } else { byte >> 4 })
}

/// Scales a code of Q4_K or Q5_K and subtracts its minimum.
fn scaled_4_or_5(block: &[u8], i: usize, q: u8) -> f64 {
    let (scale, minimum) = six_bit_scale(&block[4..16], i / 32);
    half_float(block) * f64::from(scale) * f64::from(q) - half_float(&block[2..]) * f64::from(minimum)
}

/// Decodes IQ4_XS: F16 scale of the scales, 16 bits with the high two bits of eight scales, 4 bytes with
/// their low nibbles (the first the lower), 16 bytes of nibbles for 32 elements as in Q4_0. For scales code
/// 32 is zero.
fn iq4_xs(block: &[u8], i: usize) -> f64 {
    let n = i / 32;
    let low = block[4 + n / 2] >> (4 * (n % 2)) & 15;
    let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * n) & 3;
    let scale = f64::from(u16::from(low) | high << 4) - 32.0;
    half_float(block) * scale * nonlinear(nibble(&block[8 + 16 * n..], i % 32))
}

/// Returns the value of a nibble in IQ4_NL and IQ4_XS (ggml's table).
fn nonlinear(nibble: u8) -> f64 {
    let values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    f64::from(values[usize::from(nibble % 16)])
}

/// Decodes TQ1_0: five base-3 digits in a byte, as the fraction `digits / 243` in 256ths, rounded up; digit 1
/// is zero. 32 bytes hold elements 0..160 (the first 32 the highest digits), 16 bytes 160..240, 4 bytes
/// 240..256 with four digits each; then the F16 scale.
fn tq1_0(block: &[u8], i: usize) -> f64 {
    let (byte, digit) = match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    };
    // Remainder of the fraction after the higher digits.
    let rest = usize::from(block[byte]) * 3usize.pow(digit as u32) % 256;
    half_float(&block[52..]) * ((rest * 3 / 256) as f64 - 1.0)
}

/// Decodes Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, one F16 scale of
/// the scales; code 32 is zero. Elements come in halves of 128, each of four quarters of 32: quarters 0 and 1
/// in the low nibbles of 64 bytes, 2 and 3 in their high nibbles; quarter `n` in bits `2 n` of the half's 32
/// bytes of pairs; a scale for 16 elements.
fn q6_k(block: &[u8], i: usize) -> f64 {
    let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
    let byte = block[half * 64 + quarter % 2 * 32 + lane];
    let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
    let high = block[128 + half * 32 + lane] >> (2 * quarter) & 3;
    let scale = block[192 + half * 8 + quarter * 2 + lane / 16] as i8;
    half_float(&block[208..]) * f64::from(scale) * (f64::from(high << 4 | low) - 32.0)
}

/// Rounds a value to a plain type and stores it.
pub(super) fn store(dtype: DType, at: &mut [u8], value: f64) {
    match dtype {
        DType::F32 => at[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        DType::I32 => at[..4].copy_from_slice(&(value as i32).to_le_bytes()),
        DType::F16 => at[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::BF16 => {
            // Conversion through F32 would round twice if the value had more bits than an F32; sources never
            // have.
            let bits = (value as f32).to_bits();
            let rounded = if value.is_nan() { 0x7fc0 } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 };
            at[..2].copy_from_slice(&(rounded as u16).to_le_bytes());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_hand() {
        let mut q8 = vec![0x00, 0x38]; // 0.5
        q8.extend((0..32).map(|i| (i as i8 - 16) as u8));
        assert_eq!((element(DType::Q8_0, &q8, 0), element(DType::Q8_0, &q8, 31)), (-8.0, 7.5));
        let mut q4 = vec![0x00, 0xc0]; // -2
        q4.extend((0..16).map(|i| i as u8 | (0xf0 - (i as u8)) << 4));
        assert_eq!((element(DType::Q4_0, &q4, 3), element(DType::Q4_0, &q4, 8)), (10.0, 0.0));
        let mut q6 = vec![0u8; 210];
        (q6[209], q6[192 + 8 + 5]) = (0x3c, 3); // scale 1; the scale of elements 208..224 is 3
        (q6[64 + 16], q6[128 + 32 + 16]) = (0x5a, 0b11_10_01_00);
        // Element 208: second half, third quarter, lane 16: high nibble 5, pair 2.
        assert_eq!(element(DType::Q6_K, &q6, 208), 3.0 * (2.0 * 16.0 + 5.0 - 32.0));
        let mut out = [0; 2];
        store(DType::BF16, &mut out, 1.00390625); // half-way: to even
        assert_eq!(u16::from_le_bytes(out), 0x3f80);
    }

    /// Returns a block of zeros except for some bytes.
    fn block(dtype: DType, bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut block = vec![0; dtype.block_bytes()];
        bytes.iter().for_each(|&(at, byte)| block[at] = byte);
        block
    }

    /// High bytes of binary16 values.
    const ONE: u8 = 0x3c;
    const TWO: u8 = 0x40;

    #[test]
    fn blocks_of_32_by_hand() {
        // Element 3 is 0x7, element 19 is 0xa; fifth bits of elements 3 and 18.
        let q4_1 = block(DType::Q4_1, &[(1, TWO), (3, ONE), (4 + 3, 0xa7)]);
        assert_eq!([3, 19, 0].map(|i| element(DType::Q4_1, &q4_1, i)), [15.0, 21.0, 1.0]);
        let q5_0 = block(DType::Q5_0, &[(1, TWO), (2, 8), (4, 4), (6 + 3, 0xa7)]);
        assert_eq!([3, 19, 18, 0].map(|i| element(DType::Q5_0, &q5_0, i)), [14.0, -12.0, 0.0, -32.0]);
        let q5_1 = block(DType::Q5_1, &[(1, TWO), (3, ONE), (4, 8), (6, 4), (8 + 3, 0xa7)]);
        assert_eq!([3, 19, 18, 0].map(|i| element(DType::Q5_1, &q5_1, i)), [47.0, 21.0, 33.0, 1.0]);
        let iq4_nl = block(DType::IQ4_NL, &[(1, TWO), (2 + 3, 0xa7)]);
        assert_eq!([3, 19, 0].map(|i| element(DType::IQ4_NL, &iq4_nl, i)), [-20.0, 50.0, -254.0]);
        let mxfp4 = block(DType::MXFP4, &[(0, 129), (1 + 3, 0xa7), (1 + 4, 0x91)]);
        assert_eq!([3, 19, 4, 20, 0].map(|i| element(DType::MXFP4, &mxfp4, i)), [24.0, -4.0, 2.0, -2.0, 0.0]);
        let extremes = [0, 255].map(|e| element(DType::MXFP4, &block(DType::MXFP4, &[(0, e), (1, 1)]), 0));
        assert_eq!(extremes, [2f64.powi(-128), 2f64.powi(127)]);
    }

    #[test]
    fn blocks_of_256_by_hand() {
        // Element 213 = 128 + 2 * 32 + 21: second half, third quarter, lane 21, part 13.
        let q2 = block(DType::Q2_K, &[(81, TWO), (83, ONE), (13, 0x95), (16 + 32 + 21, 0b11_10_01_00)]);
        assert_eq!([213, 208].map(|i| element(DType::Q2_K, &q2, i)), [2.0 * 5.0 * 2.0 - 9.0, -9.0]);
        // Scale 13: low bits in the high nibble of byte 5, high bits in bits 6 and 7 of byte 8 + 1.
        let q3 = [(109, TWO), (96 + 5, 0x90), (96 + 9, 0xc0), (32 + 32 + 21, 0b11_10_01_00), (21, 0x40)];
        let q3 = block(DType::Q3_K, &q3);
        assert_eq!([213, 208].map(|i| element(DType::Q3_K, &q3, i)), [2.0 * 25.0 * 2.0, 2.0 * 25.0 * -4.0]);
        assert_eq!(element(DType::Q3_K, &q3, 80), 2.0 * -32.0 * -4.0 + 2.0 * 0.0);
        // Element 213 is 21 of part 6: the low nibble of byte 3 * 32 + 21. Part 6: nibbles of byte 10, high
        // bits of bytes 2 and 6.
        let scales = [(1, TWO), (3, ONE), (4 + 2, 0x81), (4 + 6, 0xc2), (4 + 10, 0x53)];
        let (q4_6, q4_2) = (2.0 * f64::from(0x23 * 11) - f64::from(0x35), -2.0);
        let q4 = block(DType::Q4_K, &[&scales[..], &[(16 + 117, 0x7b)]].concat());
        assert_eq!([213, 64].map(|i| element(DType::Q4_K, &q4, i)), [q4_6, q4_2]);
        assert_eq!(element(DType::Q4_K, &q4, 245), 0.0);
        let q5 = block(DType::Q5_K, &[&scales[..], &[(48 + 117, 0x7b), (16 + 21, 0x40)]].concat());
        assert_eq!(element(DType::Q5_K, &q5, 213), 2.0 * f64::from(0x23 * 27) - f64::from(0x35));
        // Scale 6: low nibble of byte 3, bits 12 and 13.
        let iq4 = block(DType::IQ4_XS, &[(1, TWO), (3, 0x20), (4 + 3, 0x07), (8 + 96 + 5, 0xa7)]);
        assert_eq!(
            [197, 213].map(|i| element(DType::IQ4_XS, &iq4, i)),
            [2.0 * 7.0 * -10.0, 2.0 * 7.0 * 25.0]
        );
    }
}
