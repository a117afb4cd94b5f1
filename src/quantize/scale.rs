//! Scales that files have next to weights of NVFP4: the product with `name.weight` is multiplied by
//! `name.scale`, one F32, or one for each expert of a stack.
//!
//! The scale of 16 values is an E4M3 without a sign, whose steps are an eighth of a power of two from 2^-6 on
//! and 2^-9 below. Sixteen weights of a real model have a maximum near 0.05. A sixth of it is less than 2^-6,
//! so their scale would lose its bits. The additional scale moves all scales of a matrix to the upper end of
//! E4M3. It is a power of two, so that dividing by it is exact.

use ggml_core::decode::decode;
use ggml_core::gguf::{GgufFile, TensorInfo};
use ggml_core::{DType, Result};
use rayon::prelude::*;
use std::sync::OnceLock;

/// Largest E4M3 (448) times the largest E2M1 (6).
const LARGEST: f32 = 2688.0;

/// Parts of layers that get a scale: matrices of plain products and experts, but no token tables and no
/// output layer.
const PARTS: [&str; 20] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "attn_gate",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
    "ffn_gate_up_exps",
    "ssm_in",
    "ssm_out",
    "ssm_alpha",
    "ssm_beta",
];

/// Scales of a tensor that becomes NVFP4.
pub(super) struct Scales<'a> {
    input: &'a GgufFile,
    of: &'a TensorInfo,
    name: String,
    /// Tensor of this name in the input.
    before: Option<&'a TensorInfo>,
    found: OnceLock<Vec<f32>>,
}

impl<'a> Scales<'a> {
    /// Creates the scales for a tensor that becomes `dtype`; `None` if the file gets no scales for it.
    pub(super) fn new(input: &'a GgufFile, of: &'a TensorInfo, dtype: DType) -> Option<Scales<'a>> {
        let stem = of.name.strip_suffix(".weight")?;
        let mut parts = stem.strip_prefix("blk.")?.split('.');
        let known = parts.nth(1).is_some_and(|part| PARTS.contains(&part)) && parts.next().is_none();
        if dtype != DType::NVFP4 || of.dtype == dtype || !known || of.ne[3] != 1 {
            return None;
        }
        let name = format!("{stem}.scale");
        let before = input.tensor(&name);
        let fits = |t: &TensorInfo| t.dtype == DType::F32 && t.elements() == of.ne[2];
        before.is_none_or(fits).then(|| Scales { input, of, name, before, found: OnceLock::new() })
    }

    /// Returns the name of the tensor of scales.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of scales: one for each matrix.
    pub(super) fn count(&self) -> usize {
        self.of.ne[2]
    }

    /// True if the input has a tensor of this name.
    pub(super) fn replaces(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the divisors of the weights of each matrix.
    ///
    /// # Errors
    /// Errors of decoding.
    pub(super) fn divisors(&self) -> Result<&[f32]> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let data = self.input.data(self.of)?;
        let matrix = data.len() / self.count().max(1);
        let found = data.chunks(matrix.max(1)).map(|matrix| self.divisor(matrix)).collect::<Result<_>>()?;
        Ok(self.found.get_or_init(|| found))
    }

    /// Returns the power of two that makes the largest magnitude of a matrix at most [`LARGEST`] and more
    /// than half of it.
    fn divisor(&self, matrix: &[u8]) -> Result<f32> {
        let t = self.of;
        let row = matrix.len() / t.ne[1].max(1);
        let rows = (super::CHUNK / t.ne[0]).max(1) * row;
        let largest = |rows: &[u8]| -> Result<f32> {
            // NaN and infinity are ignored.
            Ok(decode(t.dtype, rows)?.into_iter().filter(|x| x.is_finite()).fold(0.0, |a, x| a.max(x.abs())))
        };
        let largest = matrix.par_chunks(rows.max(1)).map(largest).try_reduce(|| 0.0, |a, b| Ok(a.max(b)))?;
        // The bound keeps the power and its inverse normal floats.
        let power = (largest / LARGEST).log2().ceil().clamp(-100.0, 100.0);
        Ok(if largest > 0.0 { power.exp2() } else { 1.0 })
    }

    /// Returns the contents of the tensor: the divisors times the scales of the input.
    ///
    /// # Errors
    /// Errors of [`Self::divisors`].
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let before = self.before.map(|t| decode(t.dtype, self.input.data(t)?)).transpose()?;
        let before = before.unwrap_or_else(|| vec![1.0; self.count()]);
        let product = self.divisors()?.iter().zip(before).map(|(a, b)| a * b);
        Ok(product.flat_map(f32::to_le_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, quantized};
    use super::*;
    use crate::model::ModelFile;
    use crate::synthesize::Shape;
    use crate::{Model, Precision, SessionOptions};
    use ggml_core::gguf::{GgufWriter, TensorData};
    use ggml_core::metrics::distance;

    /// Returns the file with some tensors replaced or added, and others left out.
    fn with(file: &GgufFile, but: &[&str], new: &[(&str, DType, Vec<usize>, Vec<f32>)]) -> GgufFile {
        let mut writer = GgufWriter::new();
        writer.set_all(file.metadata()).unwrap();
        let stays = |name: &str| !but.contains(&name) && new.iter().all(|new| new.0 != name);
        for t in file.tensors().iter().filter(|t| stays(&t.name)) {
            let data = TensorData::Bytes(file.data(t).unwrap().into());
            writer.tensor(t.name.clone(), t.dtype, t.shape(), data).unwrap();
        }
        for (name, dtype, shape, values) in new {
            let bytes = ggml_core::encode::encode(*dtype, shape[0], values).unwrap();
            writer.tensor(*name, *dtype, shape, TensorData::from(bytes)).unwrap();
        }
        GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()
    }

    fn values(file: &GgufFile, name: &str) -> Vec<f32> {
        let t = file.require(name).unwrap();
        decode(t.dtype, file.data(t).unwrap()).unwrap()
    }

    /// Returns the effective values of a weight: its values, those of each matrix times their scale.
    fn scaled(file: &GgufFile, name: &str) -> Vec<f32> {
        let mut all = values(file, name);
        let scale = name.replace(".weight", ".scale");
        if file.tensor(&scale).is_some() {
            let scales = values(file, &scale);
            let matrix = all.len() / scales.len();
            all.chunks_mut(matrix).zip(scales).for_each(|(x, s)| x.iter_mut().for_each(|x| *x *= s));
        }
        all
    }

    fn logits(file: GgufFile) -> Vec<f32> {
        let cpu = crate::open("cpu", &crate::OpenOptions::default()).unwrap();
        let model = Model::from_file(ModelFile::from_gguf(file).unwrap(), cpu).unwrap();
        let options = SessionOptions::default().with_context(64).with_precision(Precision::Exact);
        model.session(&options).unwrap().logits(&[5, 42, 79, 116]).unwrap()
    }

    fn shape(architecture: &str) -> Shape {
        let small = Shape { layers: 1, vocabulary: 300, embedding: 128, ..Shape::small(architecture) };
        small.with_type(DType::F16)
    }

    /// Checks that small weights have scales with equally fine steps, and that the model uses the additional
    /// scales.
    #[test]
    fn small_weights_lose_no_more_than_large_ones() {
        for architecture in ["llama", "qwen3moe"] {
            let input = file(&shape(architecture));
            let mut small = Vec::new();
            for t in input.tensors().iter().filter(|t| t.name.starts_with("blk.") && t.n_dims > 1) {
                // Each matrix of a stack is 2^-7 times the previous one.
                let mut x = values(&input, &t.name);
                let matrix = t.ne[0] * t.ne[1];
                x.iter_mut().enumerate().for_each(|(i, x)| *x *= (-7.0 * (i / matrix + 1) as f32).exp2());
                small.push((t.name.as_str(), DType::F32, t.shape().to_vec(), x));
            }
            let input = with(&input, &[], &small);
            let out = quantized(&input, "NVFP4", None);
            let made: Vec<_> = out.tensors().iter().filter(|t| t.dtype == DType::NVFP4).collect();
            assert!(made.len() >= 5, "{architecture}: {made:?}");
            let mut plain = Vec::new();
            for t in made.iter().filter(|t| t.name.starts_with("blk.")) {
                assert_eq!(values(&out, &t.name.replace(".weight", ".scale")).len(), t.ne[2], "{}", t.name);
                let (got, want) = (scaled(&out, &t.name), scaled(&input, &t.name));
                let matrix = t.ne[0] * t.ne[1];
                for (got, want) in got.chunks(matrix).zip(want.chunks(matrix)) {
                    let lost = distance(got, want).nmse;
                    assert!(lost < 7.5e-3, "{architecture} {}: {lost:e}", t.name);
                }
                plain.push((t.name.as_str(), DType::F32, t.shape().to_vec(), got));
            }
            let scales: Vec<_> = made.iter().map(|t| t.name.replace(".weight", ".scale")).collect();
            let scales: Vec<_> = scales.iter().map(String::as_str).collect();
            let want = logits(with(&out, &scales, &plain));
            let error = distance(&logits(out), &want);
            assert!(error.nmse < 1e-9, "{architecture}: {error:?}");
        }
    }

    /// Checks that an existing scale of a weight of another type becomes part of the new one, that a tensor
    /// with another shape stays, and that weights outside the list get no scale.
    #[test]
    fn existing_scales_of_a_weight_count() {
        let (up, down) = ("blk.0.ffn_up.scale", "blk.0.ffn_down.scale");
        let input = file(&shape("llama"));
        let old = [(up, DType::F32, vec![1], vec![3.0]), (down, DType::F32, vec![2], vec![5.0, 7.0])];
        let input = with(&input, &[], &old);
        let out = quantized(&input, "NVFP4", None);
        let name = "blk.0.ffn_up.weight";
        assert!(distance(&scaled(&out, name), &scaled(&input, name)).nmse < 7.5e-3);
        let power = values(&out, up)[0] / 3.0;
        assert!(power < 0.1 && power.log2().fract() == 0.0, "{power}");
        assert_eq!(values(&out, down), [5.0, 7.0]);
        assert!(
            distance(&values(&out, "blk.0.ffn_down.weight"), &values(&input, "blk.0.ffn_down.weight")).nmse
                < 0.02
        );
        let has = |name: &str| out.tensor(name).is_some();
        assert!(has("blk.0.attn_q.scale") && !has("token_embd.scale") && !has("output.scale"));
        // Scales stay when a file is converted back or unchanged.
        let twice = quantized(&out, "NVFP4", None);
        assert_eq!(values(&twice, name), values(&out, name));
        let back = quantized(&out, "F16", None);
        assert_eq!(scaled(&back, name), scaled(&out, name));
    }
}
