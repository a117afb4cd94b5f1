//! Encoders: F32 values into the bytes of a type, for writing models and test data.
//!
//! The rounding of Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 is ggml's reference rounding, so that a file quantised here
//! equals one quantised there. The other direction is [`crate::decode`].

use crate::dtype::DType;
use crate::error::{Error, Result};
use half::{bf16, f16};

mod blocks;
mod k;
mod points;
mod search;
mod table;
mod ternary;

/// How the scales of K-quants and IQ4 are found, which are no matter of a formula. Other types know one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// From the range of the values and one fit.
    Quick,
    /// Some scales are tried, as ggml does, for 10 to 20 times the work.
    Search,
}

/// [`encode_with`] little effort.
///
/// # Errors
/// As [`encode_with`].
pub fn encode(dtype: DType, n: usize, values: &[f32]) -> Result<Vec<u8>> {
    encode_with(dtype, n, values, Effort::Quick)
}

/// Encodes rows of `n` values. Every type that [`computable`](crate::dtype::DTypeInfo::computable) says can be an operand.
///
/// # Errors
/// [`Error::InvalidArgument`] if the values are no rows of `n`, `n` is no multiple of the type's block, or the type
/// cannot be written.
pub fn encode_with(dtype: DType, n: usize, values: &[f32], effort: Effort) -> Result<Vec<u8>> {
    let Some(row_bytes) = dtype.row_bytes(n).filter(|_| n > 0 && values.len().is_multiple_of(n)) else {
        let expected = format!("rows of {n}, each whole blocks of {dtype}");
        return Err(Error::argument("values", values.len(), expected));
    };
    let mut out = Vec::with_capacity(values.len() / n * row_bytes);
    let small = |put: fn(&[f32; 32], &mut Vec<u8>), out: &mut Vec<u8>| each(values, put, out);
    let large = |put: fn(&[f32; 256], &mut Vec<u8>), out: &mut Vec<u8>| each(values, put, out);
    let searched = |put: fn(&[f32; 256], Effort, &mut Vec<u8>), out: &mut Vec<u8>| {
        each(values, |block, out| put(block, effort, out), out);
    };
    match dtype {
        DType::F32 => values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
        DType::F16 => values.iter().for_each(|v| put_half(*v, &mut out)),
        DType::BF16 => values.iter().for_each(|v| out.extend_from_slice(&bf16::from_f32(*v).to_le_bytes())),
        DType::I32 => values.iter().for_each(|v| out.extend_from_slice(&(*v as i32).to_le_bytes())),
        DType::Q8_0 => small(blocks::q8_0, &mut out),
        DType::Q4_0 => small(blocks::q4_0, &mut out),
        DType::Q4_1 => small(blocks::q4_1, &mut out),
        DType::Q5_0 => small(blocks::q5_0, &mut out),
        DType::Q5_1 => small(blocks::q5_1, &mut out),
        DType::Q2_K => searched(k::q2_k, &mut out),
        DType::Q3_K => searched(k::q3_k, &mut out),
        DType::Q4_K => searched(k::q4_k, &mut out),
        DType::Q5_K => searched(k::q5_k, &mut out),
        DType::Q6_K => searched(k::q6_k, &mut out),
        DType::IQ4_NL => each(values, |block, out| table::iq4_nl(block, effort, out), &mut out),
        DType::IQ4_XS => searched(table::iq4_xs, &mut out),
        DType::MXFP4 => small(table::mxfp4, &mut out),
        DType::NVFP4 => each(values, table::nvfp4, &mut out),
        DType::Q1_0 => each(values, ternary::q1_0, &mut out),
        DType::Q2_0 => each(values, ternary::q2_0, &mut out),
        DType::TQ1_0 => large(ternary::tq1_0, &mut out),
        DType::TQ2_0 => large(ternary::tq2_0, &mut out),
        DType::IQ2_XXS => large(points::iq2_xxs, &mut out),
        DType::IQ2_XS => large(points::iq2_xs, &mut out),
        DType::IQ2_S => large(points::iq2_s, &mut out),
        DType::IQ3_XXS => large(points::iq3_xxs, &mut out),
        DType::IQ3_S => large(points::iq3_s, &mut out),
        DType::IQ1_S => large(points::iq1_s, &mut out),
        DType::IQ1_M => large(points::iq1_m, &mut out),
        _ => return Err(Error::argument("type", dtype, "one that has an encoder")),
    }
    Ok(out)
}

fn each<const N: usize>(values: &[f32], put: impl Fn(&[f32; N], &mut Vec<u8>), out: &mut Vec<u8>) {
    values.as_chunks().0.iter().for_each(|block| put(block, out));
}

fn put_half(x: f32, out: &mut Vec<u8>) {
    out.extend_from_slice(&f16::from_f32(x).to_le_bytes());
}

/// The value of largest magnitude, the first of those.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
}

/// 0 for 0: what has no scale becomes zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Scales as multiples `-steps .. steps` of one F16: the one of largest magnitude becomes `-steps`.
fn signed_scales<const N: usize>(scales: &[f32; N], steps: f32) -> (f16, [i8; N]) {
    let unit = f16::from_f32(extreme(scales) / -steps);
    let inverse = inverse(unit.to_f32());
    (unit, scales.map(|s| (s * inverse).round().clamp(-steps, steps - 1.0) as i8))
}

#[cfg(test)]
mod tests;
