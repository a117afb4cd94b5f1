//! Conversion of a tensor's data from one type to another, some rows at a time.

use super::CHUNK;
use super::finite::{count_in, encode_finite};
use super::progress::Progress;
use super::scale::Scales;
use ggml_core::decode::decode;
use ggml_core::encode::{Effort, encode_weighted, encode_with};
use ggml_core::gguf::{GgufFile, TensorInfo, TensorSink};
use ggml_core::{DType, Result};
use rayon::prelude::*;

/// Number of chunks that are encoded in parallel before they are written.
const GROUP: usize = 64;

/// Bytes of an unchanged tensor that are written at a time.
const UNCHANGED: usize = 16 << 20;

/// Conversion of a tensor to another type.
pub(super) struct Conversion<'a> {
    pub(super) dtype: DType,
    /// Importance of the columns, for each matrix of a stack.
    pub(super) importance: Option<&'a [f32]>,
    /// Scales that divide the weights first.
    pub(super) scales: Option<&'a Scales<'a>>,
}

impl Conversion<'_> {
    /// Encodes some rows in their new type. `importance` is that of their matrix, and `divisor` divides them
    /// first. Returns the bytes and the number of values that are NaN or infinite.
    fn encoded(
        &self,
        t: &TensorInfo,
        rows: &[u8],
        importance: Option<&[f32]>,
        divisor: f32,
    ) -> Result<(Vec<u8>, usize)> {
        let mut values = decode(t.dtype, rows)?;
        if divisor != 1.0 {
            values.iter_mut().for_each(|x| *x /= divisor);
        }
        encode_finite(&t.name, self.dtype, &values, |values| match importance {
            Some(importance) => encode_weighted(self.dtype, t.ne[0], values, importance),
            None => encode_with(self.dtype, t.ne[0], values, Effort::Search),
        })
    }

    /// Writes the contents of a tensor in another type. Returns the number of values that are NaN or infinite.
    pub(super) fn write(
        &self,
        input: &GgufFile,
        t: &TensorInfo,
        progress: &Progress<'_>,
        sink: &mut TensorSink<'_>,
    ) -> Result<usize> {
        let data = input.data(t)?;
        if self.dtype == t.dtype {
            return data.chunks(UNCHANGED).try_fold(0, |kept, chunk| {
                progress.advance(chunk.len())?;
                sink.put(chunk)?;
                Ok(kept + count_in(t.dtype, chunk)?)
            });
        }
        let (columns, row_bytes) = (t.ne[0], data.len() / (t.elements() / t.ne[0]).max(1));
        let chunk = (CHUNK / columns).max(1) * row_bytes;
        let mut kept = 0;
        let mut convert = |rows: &[u8], importance: Option<&[f32]>, divisor: f32| {
            rows.chunks(chunk * GROUP).try_for_each(|group| {
                progress.advance(group.len())?;
                let encode = |rows: &[u8]| self.encoded(t, rows, importance, divisor);
                let encoded = group.par_chunks(chunk).map(encode).collect::<Result<Vec<_>>>()?;
                encoded.iter().try_for_each(|(bytes, count)| {
                    kept += count;
                    sink.put(bytes)
                })
            })
        };
        let divisors = self.scales.map(Scales::divisors).transpose()?;
        if self.importance.is_none() && divisors.is_none() {
            convert(data, None, 1.0)?;
            return Ok(kept);
        }
        // One matrix of the stack after the other; rows of importance and divisors repeat for further ones.
        for (i, matrix) in data.chunks(t.ne[1] * row_bytes).enumerate() {
            let of_matrix = |all: &[f32], n: usize| i % (all.len() / n).max(1) * n;
            let importance = self.importance.map(|all| &all[of_matrix(all, columns)..][..columns]);
            convert(matrix, importance, divisors.map_or(1.0, |all| all[of_matrix(all, 1)]))?;
        }
        Ok(kept)
    }
}
