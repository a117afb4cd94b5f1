//! Encoders: convert F32 values to the bytes of a type, for writing models and test data. [`crate::decode`]
//! is the inverse.
//!
//! Q8_0, Q4_0, Q5_0 and MXFP4 are rounded as by ggml's reference code, so that a file quantised here equals
//! one quantised by ggml. So are Q4_1 and Q5_1 with [`Effort::Quick`].

use crate::dtype::DType;
use crate::error::{Error, Result};
use half::{bf16, f16};

mod blocks;
mod k;
mod lattice;
mod parts;
mod points;
mod search;
mod table;
mod ternary;

/// Method to find the scales of K-quants, of IQ1 to IQ4, and of Q4_1 and Q5_1. Other types have one method
/// only. [`encode_weighted`] uses the importance of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// From the range of the values and one fit.
    Quick,
    /// The best of several scales by the sum of squared errors, at 10 to 20 times the cost.
    Search,
}

/// Encodes rows of `n` values with [`Effort::Quick`].
///
/// # Errors
/// As [`encode_with`].
pub fn encode(dtype: DType, n: usize, values: &[f32]) -> Result<Vec<u8>> {
    encode_with(dtype, n, values, Effort::Quick)
}

/// Encodes rows of `n` values in any [`computable`](crate::dtype::DTypeInfo::computable) type.
///
/// # Errors
/// [`Error::InvalidArgument`] if the length of `values` is no multiple of `n`, `n` is no multiple of the
/// type's block, or the type has no encoder.
pub fn encode_with(dtype: DType, n: usize, values: &[f32], effort: Effort) -> Result<Vec<u8>> {
    let method = match effort {
        Effort::Quick => Method::Quick,
        Effort::Search => Method::Search,
    };
    rows(dtype, n, values, method)
}

/// Encodes rows of `n` values by a search that weights the error of column `i` by `importance[i]`. It applies
/// to K-quants, IQ1 to IQ4, Q4_0, Q4_1, Q5_0 and Q5_1; other types are encoded as by [`encode_with`].
///
/// # Errors
/// As [`encode_with`]; also if `importance` does not have `n` entries, or an entry is negative or not finite.
pub fn encode_weighted(dtype: DType, n: usize, values: &[f32], importance: &[f32]) -> Result<Vec<u8>> {
    if importance.len() != n {
        return Err(Error::argument(
            "importance",
            importance.len(),
            format!("a number for each of {n} columns"),
        ));
    }
    if let Some(wrong) = importance.iter().find(|v| !(**v >= 0.0 && v.is_finite())) {
        return Err(Error::argument("importance", wrong, "numbers that are finite and not negative"));
    }
    rows(dtype, n, values, Method::Weighted(importance))
}

/// Method to encode rows; importance is given per column.
#[derive(Clone, Copy)]
enum Method<'a> {
    Quick,
    Search,
    Weighted(&'a [f32]),
}

/// Method to encode a block.
#[derive(Clone, Copy)]
enum BlockMethod<'a> {
    Quick,
    Search,
    /// Importance of each element, and the mean square of the row.
    Weighted(&'a [f32], f32),
}

fn rows(dtype: DType, n: usize, values: &[f32], method: Method<'_>) -> Result<Vec<u8>> {
    let Some(row_bytes) = dtype.row_bytes(n).filter(|_| n > 0 && values.len().is_multiple_of(n)) else {
        let expected = format!("rows of {n}, each whole blocks of {dtype}");
        return Err(Error::argument("values", values.len(), expected));
    };
    let mut out = Vec::with_capacity(values.len() / n * row_bytes);
    let rows = Rows { n, values, method };
    let small =
        |encode: fn(&[f32; 32], BlockMethod<'_>, &mut Vec<u8>), out: &mut Vec<u8>| rows.each(encode, out);
    let large =
        |encode: fn(&[f32; 256], BlockMethod<'_>, &mut Vec<u8>), out: &mut Vec<u8>| rows.each(encode, out);
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
        DType::Q2_K => large(k::q2_k, &mut out),
        DType::Q3_K => large(k::q3_k, &mut out),
        DType::Q4_K => large(k::q4_k, &mut out),
        DType::Q5_K => large(k::q5_k, &mut out),
        DType::Q6_K => large(k::q6_k, &mut out),
        DType::IQ4_NL => small(table::iq4_nl, &mut out),
        DType::IQ4_XS => large(table::iq4_xs, &mut out),
        DType::MXFP4 => small(table::mxfp4, &mut out),
        DType::NVFP4 => rows.each(table::nvfp4, &mut out),
        DType::Q1_0 => rows.each(ternary::q1_0, &mut out),
        DType::Q2_0 => rows.each(ternary::q2_0, &mut out),
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

/// Rows of `n` values and the method to encode them.
struct Rows<'a> {
    n: usize,
    values: &'a [f32],
    method: Method<'a>,
}

impl Rows<'_> {
    /// Encodes all blocks.
    fn each<const N: usize>(
        &self,
        encode: impl Fn(&[f32; N], BlockMethod<'_>, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        for row in self.values.chunks_exact(self.n) {
            let blocks = row.as_chunks().0.iter();
            match self.method {
                Method::Quick => blocks.for_each(|block| encode(block, BlockMethod::Quick, out)),
                Method::Search => blocks.for_each(|block| encode(block, BlockMethod::Search, out)),
                Method::Weighted(importance) => {
                    let mean = mean_square(row);
                    let of_blocks = importance.chunks_exact(N);
                    blocks
                        .zip(of_blocks)
                        .for_each(|(block, of)| encode(block, BlockMethod::Weighted(of, mean), out));
                }
            }
        }
    }
}

fn mean_square(x: &[f32]) -> f32 {
    x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32
}

/// Returns the weight of each element's error: importance times `sqrt(square + x^2)` (as in ggml, after its
/// imatrix), or importance only if `square` is `None`. Importance is relative to the largest of the block and
/// at least 1e-6, so that columns that were never used keep some precision.
fn weights<const N: usize>(block: &[f32; N], importance: &[f32], square: Option<f32>) -> [f32; N] {
    let most = importance.iter().copied().fold(0.0, f32::max);
    let mut weights = [1.0; N];
    for ((weight, x), importance) in weights.iter_mut().zip(block).zip(importance) {
        if most > 0.0 {
            *weight = (importance / most).max(1e-6);
        }
        if let Some(square) = square {
            *weight *= (square + x * x).sqrt();
        }
    }
    weights
}

fn put_half(x: f32, out: &mut Vec<u8>) {
    out.extend_from_slice(&f16::from_f32(x).to_le_bytes());
}

/// Returns the value of largest magnitude, the first among equal ones.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
}

/// Returns the reciprocal, or 0 for 0: values with scale 0 become zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Rounds scales to multiples `-steps .. steps` of one F16; the scale of largest magnitude becomes `-steps`.
fn signed_scales<const N: usize>(scales: &[f32; N], steps: f32) -> (f16, [i8; N]) {
    signed_multiples(f16::from_f32(extreme(scales) / -steps), scales, steps)
}

/// Rounds scales to the nearest multiples `-steps .. steps` of an F16.
fn signed_multiples<const N: usize>(unit: f16, scales: &[f32; N], steps: f32) -> (f16, [i8; N]) {
    let inverse = inverse(unit.to_f32());
    (unit, scales.map(|s| (s * inverse).round().clamp(-steps, steps - 1.0) as i8))
}

#[cfg(test)]
mod tests;
