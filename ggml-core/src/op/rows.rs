//! GET_ROWS and SET_ROWS: rows of a matrix by index.

use super::flash_attn::CACHE_TYPES;
use super::mul_mat::WEIGHT_TYPES;
use super::{Alias, Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Reads rows by index.
///
/// * `a`: `[n, rows, b2, b3]` of a weight type or I32
/// * `ids`: I32 `[n_ids, b2, b3]`, each in `0..rows`
///
/// Result: F32 (I32 for I32) `[n, n_ids, b2, b3]`. An index outside `0..rows` gives a row of zeros on every
/// backend; nothing outside the operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRows {}

/// Writes rows by index. The result aliases the destination.
///
/// * `dst`: F32, F16, Q8_0 or Q4_0 `[n, rows, b2, b3]`
/// * `values`: F32 `[n, n_ids, b2, b3]`
/// * `ids`: I32 `[n_ids, i2, i3]`, `i2` divides `b2`, `i3` divides `b3`; each in `0..rows`, none twice
///
/// An index outside `0..rows` writes nothing. Blocks are rounded as in ggml: the scale is the largest
/// magnitude divided by 127 (Q8_0), or the element of largest magnitude divided by -8 (Q4_0), rounded to F16.
/// Elements are divided by the unrounded scale and rounded to nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRows {}

/// Returns the index if it is in `0..rows`.
fn valid(index: f64, rows: usize) -> Option<usize> {
    (index >= 0.0 && index < rows as f64).then_some(index as usize)
}

impl Operation for GetRows {
    fn name(&self) -> &'static str {
        "GET_ROWS"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 2, 2)?;
        let (a, ids) = (src[0], src[1]);
        rule(WEIGHT_TYPES.contains(&a.dtype) || a.dtype == DType::I32, || {
            format!("rows of {} cannot be picked", a.dtype)
        })?;
        typed(ids, &[DType::I32], "ids")?;
        rule(a.ne[2] == ids.ne[1] && a.ne[3] == ids.ne[2] && ids.ne[3] == 1, || {
            "ids must be [n, b2, b3] for a = [.., .., b2, b3]".into()
        })?;
        rule(a.rows_contiguous(), || "rows must be contiguous".into())?;
        let dtype = if a.dtype == DType::I32 { DType::I32 } else { DType::F32 };
        Ok(Output::new(dtype, [a.ne[0], ids.ne[0], a.ne[2], a.ne[3]]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (a, ids) = (&src[0], &src[1]);
        let [n, n_ids, b2, b3] = out.ne;
        for i3 in 0..b3 {
            for i2 in 0..b2 {
                for j in 0..n_ids {
                    let index = valid(ids.at([j, i2, i3, 0]), a.ne[1]);
                    for i in 0..n {
                        let x = index.map_or(0.0, |index| a.at([i, index, i2, i3]));
                        out.set([i, j, i2, i3], x);
                    }
                }
            }
        }
        Ok(())
    }
    /// Rows of floats are copied; scales of blocks are multiplied.
    fn bound(&self, operand: DType, precision: Precision) -> Bound {
        if operand.block() == 1 { Bound::EQUAL } else { Bound::plain(precision) }
    }
}

impl Operation for SetRows {
    fn name(&self) -> &'static str {
        "SET_ROWS"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 3, 3)?;
        let (dst, values, ids) = (src[0], src[1], src[2]);
        typed(dst, CACHE_TYPES, "dst")?;
        typed(values, &[DType::F32], "values")?;
        typed(ids, &[DType::I32], "ids")?;
        rule(dst.ne[0] == values.ne[0], || "dst and values must have rows of the same length".into())?;
        rule(dst.ne[2..] == values.ne[2..], || "dst and values must have the same outer extents".into())?;
        rule(ids.ne[0] == values.ne[1], || "one index for each row of values is needed".into())?;
        let fits = ids.ne[1] > 0 && ids.ne[2] > 0 && ids.ne[3] == 1;
        rule(fits && values.ne[2] % ids.ne[1] == 0 && values.ne[3] % ids.ne[2] == 0, || {
            "the outer extents of ids must divide those of values".into()
        })?;
        rule(dst.rows_contiguous() && values.rows_contiguous(), || "rows must be contiguous".into())?;
        Ok(Output { dtype: dst.dtype, ne: dst.ne, alias: Some(Alias { src: 0, nb: dst.nb, offset: 0 }) })
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (values, ids) = (&src[1], &src[2]);
        let [_, n_ids, b2, b3] = values.ne;
        for i3 in 0..b3 {
            for i2 in 0..b2 {
                for j in 0..n_ids {
                    let index = ids.at([j, i2 % ids.ne[1], i3 % ids.ne[2], 0]);
                    let Some(index) = valid(index, out.ne[1]) else { continue };
                    out.set_row([index, i2, i3], &values.row([j, i2, i3])?);
                }
            }
        }
        Ok(())
    }

    /// If the values are computed in the same launch, an element halfway between two codes may be rounded to
    /// either: one in a thousand such elements has an NMSE of 1e-7 (Q8_0) or 3e-5 (Q4_0). The error in its
    /// row is one step: for a cache of one row 2^-10 of an element (F16), or 1/127 or 1/8 of the largest of
    /// its block.
    fn bound(&self, operand: DType, _precision: Precision) -> Bound {
        match operand {
            DType::Q4_0 => Bound { nmse: 1e-4, row: 0.25 },
            DType::Q8_0 => Bound { nmse: 1e-6, row: 1e-3 },
            DType::F16 => Bound { row: 2e-5, ..Bound::FAST },
            _ => Bound::EQUAL,
        }
    }
}
