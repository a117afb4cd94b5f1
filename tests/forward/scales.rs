//! Weights stored without a factor, which the file stores separately.

use super::{TOKENS, backends, file, options, tiny};
use diptych::ggml::gguf::{GgufFile, GgufWriter};
use diptych::ggml::metrics::distance;
use diptych::model::ModelFile;
use diptych::{DType, Model, Precision};

/// Returns true if files of small floats store this weight without its factor.
fn is_divided(name: &str) -> bool {
    let part = name.strip_suffix(".weight").unwrap_or_default().rsplit('.').next().unwrap_or_default();
    let matrix = ["attn_", "ffn_", "output"].iter().any(|kind| part.starts_with(kind));
    matrix && !part.ends_with("_norm") && !part.starts_with("ffn_gate_inp") && part != "attn_sinks"
}

/// Returns the same model with weights divided by powers of two, a different one per expert, and the
/// corresponding scales.
fn divided(original: &ModelFile) -> ModelFile {
    let original = original.gguf();
    let mut writer = GgufWriter::new();
    writer.set_all(original.metadata()).unwrap();
    for t in original.tensors() {
        let mut bytes = original.data(t).unwrap().to_vec();
        if is_divided(&t.name) {
            let experts = if t.name.contains("_exps.") { t.ne[2] } else { 1 };
            let scales: Vec<f32> = (0..experts).map(|i| 2f32.powi(-3 - i as i32 % 5)).collect();
            let part = bytes.len() / experts;
            for (i, value) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *value = (f32::from_le_bytes(*value) / scales[4 * i / part]).to_le_bytes();
            }
            let name = t.name.strip_suffix("weight").unwrap();
            for kind in ["scale", "input_scale"] {
                let scales: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
                writer.tensor(format!("{name}{kind}"), DType::F32, &[experts], scales).unwrap();
            }
        }
        writer.tensor(t.name.clone(), t.dtype, t.shape(), bytes).unwrap();
    }
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

/// Products with biases, of experts with biases and with weights before and after, and of heads.
#[test]
fn scales_of_weights_are_applied() {
    for architecture in ["llama", "qwen2", "qwen3moe", "gpt-oss", "llama4", "deepseek2"] {
        let shape = tiny(architecture, DType::F32);
        let scales = divided(&file(&shape));
        let scales = scales.gguf().tensors().iter().filter(|t| t.name.ends_with("_scale")).count();
        assert!(scales >= 14, "{architecture}: {scales}");
        for (name, backend) in backends().into_iter().filter(|(name, _)| ["reference", "cpu"].contains(name))
        {
            let logits = |file: ModelFile| {
                let model = Model::from_file(file, backend.clone()).unwrap();
                model.session(&options(Precision::Exact)).unwrap().logits(&TOKENS[..9]).unwrap()
            };
            let error = distance(&logits(divided(&file(&shape))), &logits(file(&shape))).nmse;
            assert!(error < 1e-12, "{architecture} on {name}: {error:.1e}");
        }
    }
}
