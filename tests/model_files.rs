//! Model files that are broken or unknown end in a typed error with one clear line.

use diptych::core::gguf::{GgufFile, GgufWriter, Metadata, TensorData};
use diptych::model::ModelFile;
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error};

/// The small model with changes to its metadata and tensors.
fn changed(
    metadata: impl FnOnce(&mut Metadata),
    keep: impl Fn(&str) -> bool,
    reshape: impl Fn(&str, &mut Vec<usize>, &mut DType),
) -> diptych::Result<ModelFile> {
    let shape = Shape { layers: 1, vocabulary: 64, ..Shape::small("qwen3").with_type(DType::F16) };
    let original = GgufFile::from_bytes(synthesize::bytes(&shape, 3)?)?;
    let mut all = Metadata::new();
    for (key, value) in original.metadata().iter() {
        all.insert(key, value.clone());
    }
    metadata(&mut all);
    let mut writer = GgufWriter::new();
    writer.set_all(&all)?;
    for t in original.tensors().iter().filter(|t| keep(&t.name)) {
        let (mut ne, mut dtype) = (t.shape().to_vec(), t.dtype);
        reshape(&t.name, &mut ne, &mut dtype);
        let rows: usize = ne[1..].iter().product();
        let bytes = dtype.row_bytes(ne[0]).unwrap_or(0) * rows;
        writer.tensor(t.name.clone(), dtype, &ne, TensorData::from(vec![0u8; bytes]))?;
    }
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes()?)?)
}

fn set(key: &'static str, value: u32) -> diptych::Result<ModelFile> {
    changed(|m| drop(m.insert(key, value)), |_| true, |_, _, _| {})
}

fn message(result: diptych::Result<ModelFile>) -> String {
    let error = result.expect_err("a broken file");
    assert!(matches!(error, Error::InvalidModel { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn the_unchanged_model_opens() {
    changed(|_| {}, |_| true, |_, _, _| {}).unwrap();
}

#[test]
fn unknown_architectures_are_named() {
    let text = message(changed(|m| drop(m.insert("general.architecture", "mamba3")), |_| true, |_, _, _| {}));
    assert!(text.contains("'mamba3'") && text.contains("qwen3"), "{text}");
}

#[test]
fn missing_keys_and_tensors_are_named() {
    let text = message(changed(|_| {}, |name| name != "blk.0.ffn_up.weight", |_, _, _| {}));
    assert!(text.contains("blk.0.ffn_up.weight"), "{text}");
    let text = message(changed(
        |m| {
            let mut rest = Metadata::new();
            for (key, value) in m.iter().filter(|(key, _)| *key != "qwen3.embedding_length") {
                rest.insert(key, value.clone());
            }
            *m = rest;
        },
        |_| true,
        |_, _, _| {},
    ));
    assert!(text.contains("qwen3.embedding_length"), "{text}");
}

#[test]
fn absurd_numbers_are_refused() {
    for key in
        ["qwen3.block_count", "qwen3.attention.head_count", "qwen3.embedding_length", "qwen3.context_length"]
    {
        for value in [0, u32::MAX] {
            let text = message(set(key, value));
            assert!(text.contains(key), "{text}");
        }
    }
    assert!(message(set("qwen3.block_count", 2)).contains("blk.1."));
    assert!(message(set("qwen3.attention.head_count_kv", 3)).contains("divide"));
    assert!(message(set("qwen3.vocab_size", 65)).contains("vocab_size"));
    let float = changed(|m| drop(m.insert("qwen3.rope.freq_base", f32::NAN)), |_| true, |_, _, _| {});
    assert!(message(float).contains("freq_base"));
    let kind = changed(|m| drop(m.insert("qwen3.block_count", "four")), |_| true, |_, _, _| {});
    assert!(message(kind).contains("block_count"));
    let scaling = changed(|m| drop(m.insert("qwen3.rope.scaling.type", "spiral")), |_| true, |_, _, _| {});
    assert!(message(scaling).contains("spiral"));
}

#[test]
fn tensors_of_other_shape_or_type_are_refused() {
    let text = message(changed(
        |_| {},
        |_| true,
        |name, ne, _| {
            if name == "blk.0.attn_k.weight" {
                ne[1] += 64;
            }
        },
    ));
    assert!(text.contains("blk.0.attn_k.weight"), "{text}");
    let text = message(changed(
        |_| {},
        |_| true,
        |name, _, dtype| {
            if name == "blk.0.ffn_up.weight" {
                *dtype = DType::IQ4_XS;
            }
        },
    ));
    assert!(text.contains("IQ4_XS"), "{text}");
    let text = message(changed(
        |_| {},
        |_| true,
        |name, _, dtype| {
            if name == "output_norm.weight" {
                *dtype = DType::F16;
            }
        },
    ));
    assert!(text.contains("must be F32"), "{text}");
}
