//! Error for an unknown architecture.

use super::architecture::Architecture;
use ggml_core::Error;
use ggml_core::gguf::GgufFile;

/// Substrings of tensor names that occur only in unsupported architectures, and the mechanism that each
/// indicates.
const MECHANISMS: &[(&str, &str)] = &[
    (".ssm_x.", "Mamba-1 layers"),
    (".time_mix_", "RWKV layers"),
    (".attn_norm.bias", "layer norms with biases"),
    (".ffn_gate_up_exps.bias", "biases in fused experts"),
    (".indexer.", "sparse attention with an indexer"),
    ("enc.blk.", "an encoder"),
    ("v.blk.", "an encoder of images"),
    ("cls.", "an output layer that classifies"),
];

/// Returns the error for an unknown architecture: the known ones, the nearest of them by name, and the
/// unsupported mechanisms that the file's tensors indicate.
pub(super) fn unknown(gguf: &GgufFile, name: &str, known: &[&dyn Architecture]) -> Error {
    let names: Vec<&str> = known.iter().map(|a| a.name()).collect();
    let mut expected = format!("one of {}", names.join(", "));
    if let Some(nearest) = names.iter().min_by_key(|known| distance(name, known)) {
        expected.push_str(&format!("; nearest to '{nearest}'"));
    }
    let mut unsupported: Vec<String> = Vec::new();
    for (part, mechanism) in MECHANISMS {
        let tensor = gguf.tensors().iter().find(|t| format!(".{}", t.name).contains(part));
        if let Some(tensor) = tensor
            && unsupported.iter().all(|m| !m.starts_with(mechanism))
        {
            unsupported.push(format!("{mechanism} (tensor '{}')", tensor.name));
        }
    }
    if !unsupported.is_empty() {
        expected.push_str(&format!("; not implemented: {}", unsupported.join(", ")));
    }
    Error::model("architecture", format!("'{name}'"), expected)
}

/// Returns the number of letters of both names that are not part of their common prefix.
fn distance(a: &str, b: &str) -> usize {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.len() + b.len() - 2 * common
}

#[cfg(test)]
mod tests {
    use super::super::file::ARCHITECTURES;
    use super::*;
    use ggml_core::DType;
    use ggml_core::gguf::GgufWriter;

    #[test]
    fn the_nearest_architecture_and_unsupported_mechanisms_are_named() {
        let mut writer = GgufWriter::new();
        writer.tensor("blk.0.ssm_x.weight", DType::F32, &[1], vec![0u8; 4]).unwrap();
        writer.tensor("blk.1.ssm_x.weight", DType::F32, &[1], vec![0u8; 4]).unwrap();
        let gguf = GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let text = unknown(&gguf, "granitehybrid2", ARCHITECTURES).to_string();
        assert!(text.contains("nearest to 'granitehybrid'"), "{text}");
        assert!(text.contains("not implemented: Mamba-1 layers (tensor 'blk.0.ssm_x.weight')"), "{text}");
        assert!(unknown(&gguf, "glm4", ARCHITECTURES).to_string().contains("nearest to 'glm4moe'"));
        assert!(unknown(&gguf, "deepseek3", ARCHITECTURES).to_string().contains("nearest to 'deepseek2'"));
    }
}
