//! The reference's own rounding of rows to blocks.

use super::decode;
use crate::dtype::DType;
use half::f16;

/// Rounds the elements of one block and stores it; `values` has a block's length (1 for plain types).
pub(super) fn block(dtype: DType, at: &mut [u8], values: &[f64]) {
    let magnitude = values.iter().fold(0.0f64, |max, x| max.max(x.abs()));
    match dtype {
        // F16 scale, then 32 signed bytes.
        DType::Q8_0 => {
            let scale = magnitude / 127.0;
            at[..2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
            for (byte, x) in at[2..].iter_mut().zip(values) {
                *byte = if scale == 0.0 { 0 } else { (x / scale).round() as i8 as u8 };
            }
        }
        // F16 scale, then 16 bytes: elements 0..16 in the low nibbles, 16..32 in the high ones; code 8 is
        // zero. The first element of the largest magnitude becomes -8 steps.
        DType::Q4_0 => {
            let largest = values.iter().copied().find(|x| x.abs() == magnitude).unwrap_or(0.0);
            let scale = largest / -8.0;
            at[..2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
            let step =
                |x: f64| if scale == 0.0 { 8 } else { (x / scale + 8.5).floor().clamp(0.0, 15.0) as u8 };
            for (i, byte) in at[2..18].iter_mut().enumerate() {
                *byte = step(values[i]) | step(values[i + 16]) << 4;
            }
        }
        _ => decode::store(dtype, at, values[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_hand() {
        let mut values = vec![0.0; 32];
        (values[0], values[1], values[31]) = (127.0, -126.4, 0.6);
        let mut bytes = [0u8; 34];
        block(DType::Q8_0, &mut bytes, &values);
        // 1.0 in F16 is 0x3c00.
        assert_eq!((&bytes[..2], bytes[2], bytes[3] as i8, bytes[33]), (&[0x00, 0x3c][..], 127, -126, 1));
        (values[0], values[1], values[16]) = (-16.0, 3.1, 16.0);
        block(DType::Q4_0, &mut bytes, &values);
        // Scale 2.0: -16 is 0, 3.1 is 8 + 1.55, 16 is clamped to 15; 0.6 and 0 are 8.
        assert_eq!((&bytes[..4], bytes[17]), (&[0x00, 0x40, 0xf0, 0x8a][..], 0x88));
        block(DType::Q8_0, &mut bytes, &[0.0; 32]);
        assert_eq!(bytes, [0u8; 34]);
    }
}
