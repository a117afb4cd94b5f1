//! Broken or unknown model files give a typed error with one clear line.

use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, Metadata, TensorData, Value};
use diptych::model::{BatchShape, Hparams, ModelFile, Predictor, Want};
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error};

/// Opens the small qwen3 with changes to its metadata and tensors.
fn changed(
    metadata: impl FnOnce(&mut Metadata),
    keep: impl Fn(&str) -> bool,
    reshape: impl Fn(&str, &mut Vec<usize>, &mut DType),
) -> diptych::Result<ModelFile> {
    changed_of("qwen3", metadata, keep, reshape, None)
}

/// Opens the small model of an architecture with changes to its metadata and tensors, and optionally an
/// additional vector.
fn changed_of(
    architecture: &str,
    metadata: impl FnOnce(&mut Metadata),
    keep: impl Fn(&str) -> bool,
    reshape: impl Fn(&str, &mut Vec<usize>, &mut DType),
    added: Option<&str>,
) -> diptych::Result<ModelFile> {
    let shape = Shape { layers: 1, vocabulary: 64, ..Shape::small(architecture).with_type(DType::F16) };
    changed_shape(&shape, metadata, keep, reshape, added)
}

/// Opens the model of a shape with these changes.
fn changed_shape(
    shape: &Shape,
    metadata: impl FnOnce(&mut Metadata),
    keep: impl Fn(&str) -> bool,
    reshape: impl Fn(&str, &mut Vec<usize>, &mut DType),
    added: Option<&str>,
) -> diptych::Result<ModelFile> {
    let original = GgufFile::from_bytes(synthesize::bytes(shape, 3)?)?;
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
    if let Some(name) = added {
        writer.tensor(name.to_string(), DType::F32, &[8], TensorData::from(vec![0u8; 32]))?;
    }
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes()?)?)
}

/// Opens the model of an architecture with one key set.
fn with_key(architecture: &str, key: &str, value: impl Into<Value>) -> diptych::Result<ModelFile> {
    changed_of(architecture, |m| drop(m.insert(key, value)), |_| true, |_, _, _| {}, None)
}

/// Opens the model of an architecture without a tensor.
fn without(architecture: &str, tensor: &str) -> diptych::Result<ModelFile> {
    changed_of(architecture, |_| {}, |name| name != tensor, |_, _, _| {}, None)
}

/// Opens the model of an architecture without a key.
fn without_key(architecture: &str, removed: &str) -> diptych::Result<ModelFile> {
    let remove = |m: &mut Metadata| {
        let mut rest = Metadata::new();
        for (key, value) in m.iter().filter(|(key, _)| *key != removed) {
            rest.insert(key, value.clone());
        }
        *m = rest;
    };
    changed_of(architecture, remove, |_| true, |_, _, _| {}, None)
}

fn set(key: &str, value: u32) -> diptych::Result<ModelFile> {
    with_key("qwen3", key, value)
}

fn message(result: diptych::Result<ModelFile>) -> String {
    let error = result.expect_err("a broken file");
    assert!(matches!(error, Error::InvalidModel { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn the_unchanged_models_open() {
    for architecture in synthesize::ARCHITECTURES {
        changed_of(architecture, |_| {}, |_| true, |_, _, _| {}, None).unwrap();
    }
}

#[test]
fn unknown_architectures_are_named() {
    let text = message(with_key("qwen3", "general.architecture", "mamba3"));
    assert!(text.contains("'mamba3'") && text.contains("qwen3"), "{text}");
}

#[test]
fn missing_keys_and_tensors_are_named() {
    let text = message(without("qwen3", "blk.0.ffn_up.weight"));
    assert!(text.contains("blk.0.ffn_up.weight"), "{text}");
    let text = message(without_key("qwen3", "qwen3.embedding_length"));
    assert!(text.contains("qwen3.embedding_length"), "{text}");
}

#[test]
fn unknown_tensors_are_named() {
    for (architecture, name) in
        [("llama", "blk.0.attn_sinks.weight"), ("qwen3", "output.bias"), ("gemma3", "blk.1.attn_norm.weight")]
    {
        let text = message(changed_of(architecture, |_| {}, |_| true, |_, _, _| {}, Some(name)));
        assert!(text.contains(name) && text.contains(architecture), "{text}");
    }
}

#[test]
fn what_an_architecture_needs_besides_is_checked() {
    for tensor in ["rope_factors_short.weight", "rope_factors_long.weight", "blk.0.attn_qkv.weight"] {
        assert!(message(without("phi3", tensor)).contains(tensor));
    }
    let text = message(with_key("qwen3", "qwen3.rope.scaling.type", "longrope"));
    assert!(text.contains("original_context_length"), "{text}");
    let text = message(without_key("phi3", "phi3.rope.scaling.original_context_length"));
    assert!(text.contains("original_context_length"), "{text}");
    let window = with_key("phi3", "phi3.attention.sliding_window", u32::MAX);
    assert!(message(window).contains("sliding_window"));
    for tensor in ["blk.0.post_ffw_norm.weight", "blk.0.attn_k_norm.weight"] {
        assert!(message(without("gemma3", tensor)).contains(tensor));
    }
    for key in ["gemma3.attention.sliding_window_pattern", "gemma3.rope.freq_base_swa"] {
        assert!(message(with_key("gemma3", key, "six")).contains(key));
    }
    let text = message(with_key("gemma3", "gemma3.final_logit_softcapping", -30.0f32));
    assert!(text.contains("final_logit_softcapping"), "{text}");
    assert!(message(without_key("granite", "granite.logit_scale")).contains("granite.logit_scale"));
    for key in ["granite.logit_scale", "granite.residual_scale", "granite.attention.scale"] {
        assert!(message(with_key("granite", key, -1.0f32)).contains(key));
    }
    let without_positions = with_key("granite", "granite.rope.scaling.finetuned", false).unwrap();
    assert_eq!(without_positions.hparams().attention[0].rope, None);
}

#[test]
fn mixtures_and_recurrent_layers_are_checked() {
    for architecture in ["qwen3moe", "gpt-oss"] {
        let key = |name: &str| format!("{architecture}.{name}");
        for name in ["expert_count", "expert_used_count"] {
            assert!(message(without_key(architecture, &key(name))).contains(&key(name)));
            assert!(message(with_key(architecture, &key(name), 0u32)).contains(&key(name)));
        }
        let text = message(with_key(architecture, &key("expert_used_count"), 9u32));
        assert!(text.contains("9 of 8 experts"), "{text}");
        let text = message(with_key(architecture, &key("expert_feed_forward_length"), 255u32));
        assert!(text.contains("ffn_gate_exps"), "{text}");
        for tensor in ["blk.0.ffn_gate_inp.weight", "blk.0.ffn_down_exps.weight"] {
            assert!(message(without(architecture, tensor)).contains(tensor));
        }
    }
    let many = |m: &mut Metadata| {
        m.insert("qwen3moe.expert_count", 300u32);
        m.insert("qwen3moe.expert_used_count", 300u32);
    };
    let text = message(changed_of("qwen3moe", many, |_| true, |_, _, _| {}, None));
    assert!(text.contains("300 of 300 experts"), "{text}");
    assert!(message(without("gpt-oss", "blk.0.attn_sinks.weight")).contains("attn_sinks"));
    for name in ["conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"] {
        let key = format!("qwen35.ssm.{name}");
        assert!(message(without_key("qwen35", &key)).contains(&key));
        assert!(message(with_key("qwen35", &key, u32::MAX)).contains(&key));
    }
    assert!(message(with_key("qwen35", "qwen35.ssm.group_count", 3u32)).contains("3 key heads"));
    assert!(message(with_key("qwen35", "qwen35.ssm.state_size", 512u32)).contains("attn_qkv"));
    let none = Array::from(&[][..] as &[bool]);
    assert!(message(with_key("qwen35", "qwen35.attention.recurrent_layers", none)).contains("0 entries"));
    for tensor in ["blk.0.ssm_a", "blk.0.ssm_conv1d.weight", "blk.0.post_attention_norm.weight"] {
        assert!(message(without("qwen35", tensor)).contains(tensor));
    }
    // Without the list every fourth layer is an attention layer, so the only layer here is not.
    assert!(without_key("qwen35", "qwen35.attention.recurrent_layers").is_ok());
}

#[test]
fn layers_that_predict_further_tokens_are_left_alone() {
    let with_layer = |key: Option<u32>, tensor: &str| {
        let set = |m: &mut Metadata| {
            m.insert("qwen35.block_count", 2u32);
            key.map(|n| m.insert("qwen35.nextn_predict_layers", n));
        };
        changed_of("qwen35", set, |_| true, |_, _, _| {}, Some(tensor))
    };
    let file = with_layer(Some(1), "blk.1.nextn.eh_proj.weight").unwrap();
    assert_eq!((file.hparams().layers, file.hparams().further_layers), (1, 1));
    assert!(message(with_layer(None, "blk.1.nextn.eh_proj.weight")).contains("blk.1."));
    assert!(message(with_layer(Some(1), "blk.2.nextn.eh_proj.weight")).contains("blk.2.nextn"));
    assert!(message(with_layer(Some(2), "blk.1.x")).contains("2 of 2 layers"));
}

#[test]
fn hyperparameters_of_windows_and_factors() {
    let of_layers = |architecture: &str, layers: usize, key: &str, value: u32| {
        let shape = Shape { layers, vocabulary: 64, ..Shape::small(architecture) };
        let set = |m: &mut Metadata| {
            m.insert(format!("{architecture}.{key}"), value);
        };
        changed_shape(&shape, set, |_| true, |_, _, _| {}, None).unwrap()
    };
    let gemma = of_layers("gemma3", 4, "attention.sliding_window_pattern", 3);
    let window = gemma.hparams().window.unwrap();
    let windowed = |h: &Hparams| h.attention.iter().map(|a| a.windowed).collect::<Vec<_>>();
    let base = |h: &Hparams, layer: usize| h.attention[layer].rope.unwrap().freq_base;
    assert_eq!(windowed(gemma.hparams()), [true, true, false, true]);
    assert_eq!((window.size, base(gemma.hparams(), 1), base(gemma.hparams(), 2)), (512, 1e4, 1e6));
    assert!(window.reaches(600, 89) && !window.reaches(600, 88) && window.reaches(3, 0));
    assert_eq!(gemma.hparams().scales.embedding, 16.0);
    let gemma2 = with_key("gemma2", "gemma2.final_logit_softcapping", 20.0f32).unwrap().hparams().clone();
    assert_eq!((gemma2.soft_caps.scores, gemma2.soft_caps.logits), (50.0, 20.0));
    assert_eq!(windowed(&gemma2), [true]);
    let gemma2 = of_layers("gemma2", 4, "attention.sliding_window", 9);
    assert_eq!(windowed(gemma2.hparams()), [true, false, true, false]);
    let yarn = with_key("gpt-oss", "gpt-oss.rope.scaling.yarn_truncate", false).unwrap();
    let rope = yarn.hparams().attention[0].rope.unwrap();
    assert!(!rope.truncate && rope.ext_factor == 1.0);
    // Files of models without a window store 0.
    assert_eq!(with_key("phi3", "phi3.attention.sliding_window", 0u32).unwrap().hparams().window, None);
    let phi = with_key("phi3", "phi3.attention.sliding_window", 7u32).unwrap().hparams().clone();
    assert_eq!(windowed(&phi), [true]);
    assert_eq!((phi.attention[0].rope.unwrap().n_dims, phi.attention[0].key_length), (48, 64));
    let granite = without_key("granite", "granite.attention.scale").unwrap();
    assert_eq!((granite.hparams().scales.attention, granite.hparams().scales.logits), (0.125, 0.125));
}

#[test]
fn groups_latents_and_layers_of_several_kinds_are_checked() {
    let wrong = |architecture: &str, name: &str, value: Value| {
        message(with_key(architecture, &format!("{architecture}.{name}"), value))
    };
    assert!(wrong("glm4moe", "expert_gating_func", 9u32.into()).contains("expert_gating_func"));
    assert!(wrong("glm4moe", "expert_weights_scale", f32::NAN.into()).contains("expert_weights_scale"));
    assert!(wrong("deepseek2", "expert_group_count", 3u32.into()).contains("2 of 3 groups of 8 experts"));
    assert!(wrong("deepseek2", "expert_group_used_count", 5u32.into()).contains("5 of 4 groups"));
    assert!(wrong("deepseek2", "attention.key_length_mla", 32u32.into()).contains("key_length_mla"));
    assert!(wrong("gemma4", "attention.shared_kv_layers", 1u32.into()).contains("1 of 1 layers"));
    assert!(wrong("lfm2", "shortconv.l_cache", 1u32.into()).contains("1; expected 2 to"));
    assert!(wrong("granitehybrid", "ssm.group_count", 3u32.into()).contains("3 key heads, 4 value heads"));
    assert!(wrong("nemotron_h_moe", "ssm.conv_kernel", 1u32.into()).contains("and 1 taps"));
    assert!(wrong("nemotron_h_moe", "attention.head_count", 0u32.into()).contains("head_count"));
    assert!(wrong("nemotron_h", "attention.layer_norm_epsilon", f32::NAN.into()).contains("NaN"));
    let none = || Array::from(&[][..] as &[u32]).into();
    assert!(wrong("qwen3", "attention.head_count_kv", none()).contains("0 entries"));
    assert!(wrong("gemma4", "feed_forward_length", none()).contains("0 entries"));
    let (gone, older) = ("blk.0.attn_k_b.weight", "blk.0.attn_kv_b.weight");
    let text = message(changed_of("deepseek2", |_| {}, |name| name != gone, |_, _, _| {}, Some(older)));
    assert!(text.contains("older converter"), "{text}");
    let deepseek = with_key("deepseek2", "deepseek2.rope.scaling.yarn_log_multiplier", 0.5f32).unwrap();
    let (h, longer) = (deepseek.hparams(), 1.0 + 0.5 * 4f32.ln());
    assert_eq!((h.attention[0].key_length, h.attention[0].value_length), (160, 128));
    assert!((h.scales.attention * 96f32.sqrt() - longer * longer).abs() < 1e-5);
    // A rotation with YaRN has this additional factor.
    let usual = 1.0 + 0.1 * 4f32.ln();
    assert!(h.attention[0].rope.is_some_and(|rope| (rope.attn_factor * usual - 1.0).abs() < 1e-6));
    let mistral = with_key("mistral3", "mistral3.rope.scaling.yarn_log_multiplier", 0.7f32).unwrap();
    let rope = mistral.hparams().attention[0].rope;
    assert!(rope.is_some_and(|rope| (rope.attn_factor * usual - 1.0).abs() < 1e-6));
    // With sigmoid scores the two best experts of a group count; files of this architecture do not state that
    // they use sigmoids.
    assert!(wrong("nemotron_h_moe", "expert_group_count", 8u32.into()).contains("of 2 experts or more"));
    // Without the key, rotated elements have the usual factor, and the scores none.
    let deepseek = without_key("deepseek2", "deepseek2.rope.scaling.yarn_log_multiplier").unwrap();
    let h = deepseek.hparams();
    assert!((h.scales.attention * 96f32.sqrt() - 1.0).abs() < 1e-6);
    assert_eq!(h.attention[0].rope.map(|rope| rope.attn_factor), Some(1.0));
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
    assert!(message(set("qwen3.block_count", 100_000)).contains("tensors"));
    assert!(message(set("qwen3.attention.head_count_kv", 3)).contains("divides"));
    assert!(message(set("qwen3.vocab_size", 65)).contains("vocab_size"));
    assert!(message(with_key("qwen3", "qwen3.rope.freq_base", f32::NAN)).contains("freq_base"));
    assert!(message(with_key("qwen3", "qwen3.block_count", "four")).contains("block_count"));
    assert!(message(with_key("qwen3", "qwen3.rope.scaling.type", "spiral")).contains("spiral"));
}

#[test]
fn absurd_batches_are_refused() {
    let file = set("qwen3.context_length", 64).unwrap();
    let (cache, want) = (DType::F32, Want::Best(2));
    let right = BatchShape {
        tokens: 2,
        kv: 8,
        context: 8,
        sequences: 1,
        outputs: 1,
        cache,
        want,
        drafts: false,
        predictor: Predictor::Unused,
    };
    assert!(file.graph(&right).is_ok());
    for wrong in [
        BatchShape { tokens: 0, ..right },
        BatchShape { outputs: 3, ..right },
        BatchShape { kv: 9, ..right },
        BatchShape { context: 1 << 31, ..right },
        BatchShape { want: Want::Best(0), ..right },
        BatchShape { want: Want::Best(1 << 20), ..right },
        BatchShape { context: usize::MAX, sequences: 2, ..right },
    ] {
        assert!(matches!(file.graph(&wrong), Err(Error::InvalidArgument { .. })), "{wrong:?}");
    }
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
                *dtype = DType::Q8_K;
            }
        },
    ));
    assert!(text.contains("Q8_K"), "{text}");
    let text = message(changed(
        |_| {},
        |_| true,
        |name, _, dtype| {
            if name == "output_norm.weight" {
                *dtype = DType::F16;
            }
        },
    ));
    assert!(text.contains("F16; expected F32"), "{text}");
}
