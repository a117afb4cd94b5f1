//! Encoders: F32 values into the bytes of a type, for writing models and test data.
//!
//! The rounding of Q8_0 and Q4_0 is ggml's reference rounding, so that a file quantised here equals one quantised
//! there. Decoding of blocks is not here: each backend has its own.

use crate::dtype::DType;
use crate::error::{Error, Result};
use half::{bf16, f16};

/// Encodes rows of `n` values. Plain types, Q8_0, Q4_0 and Q6_K.
pub fn encode(dtype: DType, n: usize, values: &[f32]) -> Result<Vec<u8>> {
    let Some(row_bytes) = dtype.row_bytes(n).filter(|_| n > 0 && values.len().is_multiple_of(n)) else {
        return Err(Error::argument("values", format!("{} values are no rows of {n} {dtype}", values.len())));
    };
    let mut out = Vec::with_capacity(values.len() / n * row_bytes);
    match dtype {
        DType::F32 => values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
        DType::F16 => values.iter().for_each(|v| out.extend_from_slice(&f16::from_f32(*v).to_le_bytes())),
        DType::BF16 => values.iter().for_each(|v| out.extend_from_slice(&bf16::from_f32(*v).to_le_bytes())),
        DType::I32 => values.iter().for_each(|v| out.extend_from_slice(&(*v as i32).to_le_bytes())),
        DType::Q8_0 => values.chunks_exact(32).for_each(|b| q8_0(b, &mut out)),
        DType::Q4_0 => values.chunks_exact(32).for_each(|b| q4_0(b, &mut out)),
        DType::Q6_K => values.chunks_exact(256).for_each(|b| q6_k(b, &mut out)),
        _ => return Err(Error::argument("type", format!("{dtype} cannot be written from F32 values"))),
    }
    Ok(out)
}

/// Scale = largest magnitude / 127, F16; values rounded half away from zero.
fn q8_0(block: &[f32], out: &mut Vec<u8>) {
    let max = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let scale = max / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    out.extend_from_slice(&f16::from_f32(scale).to_le_bytes());
    out.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
}

/// Scale = the value of largest magnitude / -8, F16; values `x / scale + 8.5` truncated, at most 15; the first 16 in
/// the low nibbles.
fn q4_0(block: &[f32], out: &mut Vec<u8>) {
    let extreme = block.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    let scale = extreme / -8.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    out.extend_from_slice(&f16::from_f32(scale).to_le_bytes());
    let nibble = |v: f32| ((v * inverse + 8.5) as i32).clamp(0, 15) as u8;
    out.extend((0..16).map(|i| nibble(block[i]) | nibble(block[i + 16]) << 4));
}

/// A scale for 16 values so that the one of largest magnitude becomes -32; these scales as signed bytes of one F16 scale.
/// Plain rounding: ggml searches for better scales, so its files differ in some bits.
fn q6_k(block: &[f32], out: &mut Vec<u8>) {
    let extreme = |values: &[f32]| values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    let scales: Vec<f32> = block.chunks_exact(16).map(|c| extreme(c) / -32.0).collect();
    let all = f16::from_f32(extreme(&scales) / -128.0);
    let unit = all.to_f32();
    let scale_bytes: Vec<i8> = scales
        .iter()
        .map(|s| if unit == 0.0 { 0 } else { (s / unit).round().clamp(-128.0, 127.0) as i8 })
        .collect();
    let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
    for (i, &value) in block.iter().enumerate() {
        let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
        // Scales lie in element order of 16, which is half, quarter, lane / 16.
        let step = unit * f32::from(scale_bytes[i / 16]);
        let q = if step == 0.0 { 32 } else { ((value / step).round() as i32 + 32).clamp(0, 63) } as u8;
        low[half * 64 + quarter % 2 * 32 + lane] |= (q & 15) << (4 * (quarter / 2));
        high[half * 32 + lane] |= (q >> 4) << (2 * quarter);
    }
    out.extend_from_slice(&low);
    out.extend_from_slice(&high);
    out.extend(scale_bytes.iter().map(|&s| s as u8));
    out.extend_from_slice(&all.to_le_bytes());
}

/// Values of plain types as F32 (I32 converted).
pub fn decode_plain(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    let two = |b: &[u8]| [b[0], b[1]];
    let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    Ok(match dtype {
        DType::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes(four(b))).collect(),
        DType::I32 => bytes.chunks_exact(4).map(|b| i32::from_le_bytes(four(b)) as f32).collect(),
        DType::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes(two(b)).to_f32()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(two(b)).to_f32()).collect(),
        _ => return Err(Error::argument("type", format!("{dtype} is no plain type"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_hand() {
        let mut x = [0.0f32; 32];
        x[0] = 127.0;
        x[1] = -63.5;
        x[31] = 1.4;
        let b = encode(DType::Q8_0, 32, &x).unwrap();
        assert_eq!((b.len(), &b[..2], b[2], b[3] as i8, b[33]), (34, &[0x00, 0x3c][..], 127, -64, 1));
        let mut y = [0.0f32; 32];
        y[0] = -8.0;
        y[16] = 7.0;
        y[5] = 3.4;
        let b = encode(DType::Q4_0, 32, &y).unwrap();
        assert_eq!((b.len(), &b[..2], b[2], b[3], b[7]), (18, &[0x00, 0x3c][..], 0xf0, 0x88, 0x8b));
        // Every value of Q6_K within half a step of the largest in its 16, plus what rounding of the scale adds.
        let x: Vec<f32> = (0..256).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let bytes = encode(DType::Q6_K, 256, &x).unwrap();
        assert_eq!(bytes.len(), 210);
        let tensor = crate::tensor::Tensor {
            name: "t".into(),
            dtype: DType::Q6_K,
            ne: [256, 1, 1, 1],
            nb: [210; 4],
            root: crate::TensorId(0),
            offset: 0,
            source: crate::Source::Input,
        };
        let decoded = crate::reference::Operand::new(&tensor, &bytes).row([0, 0, 0]);
        assert!(decoded.iter().zip(&x).all(|(d, x)| (d - f64::from(*x)).abs() < 0.035));
        assert!(encode(DType::Q8_0, 31, &x[..31]).is_err());
        assert!(encode(DType::Q4_K, 256, &[0.0; 256]).is_err());
    }
}
