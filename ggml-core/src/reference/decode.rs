//! The reference's own decoders: one element of a block, as the format's text says.

use crate::dtype::DType;
use half::f16;

/// Element `i` of the block that begins at `block[0]`.
pub(super) fn element(dtype: DType, block: &[u8], i: usize) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
        DType::F16 => half_float(block),
        DType::BF16 => f64::from(f32::from_bits(u32::from(u16::from_le_bytes([block[0], block[1]])) << 16)),
        DType::I32 => f64::from(i32::from_le_bytes([block[0], block[1], block[2], block[3]])),
        // F16 scale, then 32 signed bytes.
        DType::Q8_0 => half_float(block) * f64::from(block[2 + i] as i8),
        // F16 scale, then 16 bytes: elements 0..16 in the low nibbles, 16..32 in the high ones; 8 stands for zero.
        DType::Q4_0 => {
            let byte = block[2 + i % 16];
            let nibble = if i < 16 { byte & 15 } else { byte >> 4 };
            half_float(block) * (f64::from(nibble) - 8.0)
        }
        DType::Q6_K => q6_k(block, i),
        _ => f64::NAN,
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, one F16 scale of the scales; 32 stands for
/// zero. Elements come in halves of 128, each of four quarters of 32: quarters 0 and 1 in the low nibbles of 64 bytes,
/// 2 and 3 in their high nibbles; quarter `n` in bits `2 n` of the half's 32 bytes of pairs; a scale for 16 elements.
fn q6_k(block: &[u8], i: usize) -> f64 {
    let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
    let byte = block[half * 64 + quarter % 2 * 32 + lane];
    let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
    let high = block[128 + half * 32 + lane] >> (2 * quarter) & 3;
    let scale = block[192 + half * 8 + quarter * 2 + lane / 16] as i8;
    half_float(&block[208..]) * f64::from(scale) * (f64::from(high << 4 | low) - 32.0)
}

/// An IEEE binary16 from its fields.
fn half_float(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    }
}

/// Rounds a value to a plain type and stores it.
pub(super) fn store(dtype: DType, at: &mut [u8], value: f64) {
    match dtype {
        DType::F32 => at[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        DType::I32 => at[..4].copy_from_slice(&(value as i32).to_le_bytes()),
        DType::F16 => at[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::BF16 => {
            // An F32 in between would round twice where the value has more bits than an F32; sources never have.
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
    fn every_half_float() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_float(&bits.to_le_bytes()), f16::from_bits(bits).to_f64());
            assert!(got == want || got.is_nan() && want.is_nan(), "{bits:#x}");
        }
    }

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
}
