//! Encoders: F32 values into the bytes of a type, for writing models and test data.
//!
//! The rounding of Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 is ggml's reference rounding, so that a file quantised here
//! equals one quantised there. The other direction is [`crate::decode`].

use crate::dtype::DType;
use crate::error::{Error, Result};
use half::{bf16, f16};

mod blocks;
mod k;
mod lattice;
mod points;
mod search;
mod table;
mod ternary;

/// How the scales of K-quants and of IQ1 to IQ4 are found, which are no matter of a formula. Other types know one
/// way; with the importance of columns there is [`encode_weighted`].
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
    let way = match effort {
        Effort::Quick => Way::Quick,
        Effort::Search => Way::Search,
    };
    rows(dtype, n, values, way)
}

/// Encodes rows of `n` values by a search in which the error of column `i` counts `importance[i]` times as much as
/// that of a column of importance 1: K-quants, IQ1 to IQ4, Q4_0, Q4_1, Q5_0 and Q5_1. Other types are what
/// [`encode_with`] makes.
///
/// # Errors
/// As [`encode_with`]; also if there are not `n` importances, or one is negative or not finite.
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
    rows(dtype, n, values, Way::Weighted(importance))
}

/// How all rows are encoded; importance is that of the columns.
#[derive(Clone, Copy)]
enum Way<'a> {
    Quick,
    Search,
    Weighted(&'a [f32]),
}

/// How a block is encoded.
#[derive(Clone, Copy)]
enum How<'a> {
    Quick,
    Search,
    /// By importance of its numbers, with the mean square of their row.
    Weighted(&'a [f32], f32),
}

fn rows(dtype: DType, n: usize, values: &[f32], way: Way<'_>) -> Result<Vec<u8>> {
    let Some(row_bytes) = dtype.row_bytes(n).filter(|_| n > 0 && values.len().is_multiple_of(n)) else {
        let expected = format!("rows of {n}, each whole blocks of {dtype}");
        return Err(Error::argument("values", values.len(), expected));
    };
    let mut out = Vec::with_capacity(values.len() / n * row_bytes);
    let rows = Rows { n, values, way };
    let small = |put: fn(&[f32; 32], How<'_>, &mut Vec<u8>), out: &mut Vec<u8>| rows.each(put, out);
    let large = |put: fn(&[f32; 256], How<'_>, &mut Vec<u8>), out: &mut Vec<u8>| rows.each(put, out);
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

/// Rows of `n` values, and how they are encoded.
struct Rows<'a> {
    n: usize,
    values: &'a [f32],
    way: Way<'a>,
}

impl Rows<'_> {
    /// Puts all blocks.
    fn each<const N: usize>(&self, put: impl Fn(&[f32; N], How<'_>, &mut Vec<u8>), out: &mut Vec<u8>) {
        for row in self.values.chunks_exact(self.n) {
            let blocks = row.as_chunks().0.iter();
            match self.way {
                Way::Quick => blocks.for_each(|block| put(block, How::Quick, out)),
                Way::Search => blocks.for_each(|block| put(block, How::Search, out)),
                Way::Weighted(importance) => {
                    let mean = mean_square(row);
                    let of_blocks = importance.chunks_exact(N);
                    blocks.zip(of_blocks).for_each(|(block, of)| put(block, How::Weighted(of, mean), out));
                }
            }
        }
    }
}

fn mean_square(x: &[f32]) -> f32 {
    x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32
}

/// What the errors of a block's numbers count: importance times `sqrt(square + x^2)` (ggml's, after its imatrix), or
/// importance alone where `square` is `None`. Importance is taken as a part of the block's largest and no less than a
/// millionth of it, so that what was never used is not lost altogether.
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
    signed_multiples(f16::from_f32(extreme(scales) / -steps), scales, steps)
}

/// The nearest multiples `-steps .. steps` of an F16.
fn signed_multiples<const N: usize>(unit: f16, scales: &[f32; N], steps: f32) -> (f16, [i8; N]) {
    let inverse = inverse(unit.to_f32());
    (unit, scales.map(|s| (s * inverse).round().clamp(-steps, steps - 1.0) as i8))
}

#[cfg(test)]
mod tests;
