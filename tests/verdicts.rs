//! Verdicts of `compare` on models that differ: rounding or an error, and if results depend on how they are
//! computed.

use crate::common;

use common::{compare, record, stdout, tiny};
use diptych::DType;
use diptych::ggml::gguf::{GgufFile, GgufWriter, TensorData};
use diptych::synthesize::{self, Shape};
use diptych::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::Value;
use std::path::Path;

fn write(folder: &Path, shape: &Shape) -> String {
    let path = folder.join("model.gguf");
    synthesize::write(shape, 1, &path).unwrap();
    path.to_str().unwrap().into()
}

/// Models that amplify rounding: every node is within the bound of its operation, and the verdict on the
/// whole relies on exact precision and reports that.
#[test]
fn rounding_is_no_difference() {
    let all = "cpu,vulkan,hip-virtual:gfx906";
    // Steps of the last model choose another expert at some positions, so that their logits differ widely.
    for (architecture, predict, backends) in
        [("qwen3moe", "2", all), ("qwen35", "2", all), ("gpt-oss", "4", "cpu")]
    {
        let dir = tempfile::tempdir().unwrap();
        let model = write(dir.path(), &Shape::small(architecture).with_type(DType::Q4_K));
        let args =
            ["--model", &model, "--predict", predict, "--per-node", "isolated", "--backends", backends];
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{architecture}: {}", stdout(&output));
        let comparisons = result["comparisons"].as_array().unwrap();
        for c in comparisons {
            let nodes = c["nodes"].as_array().unwrap();
            assert!(nodes.iter().any(|n| n["step"] == true), "kernels of a step");
            for n in nodes {
                assert!(n["nmse"].as_f64() <= n["bound"].as_f64(), "{n}");
                assert!(n["row"].as_f64() <= n["row_bound"].as_f64(), "{n}");
            }
            let fast = ["logits", "steps"].map(|of| c[of]["nmse"].as_f64().unwrap());
            let look = &c["second_look"];
            assert!(fast.iter().all(|nmse| *nmse <= 5e-3) || look["rounding"] == true, "{fast:?} {look}");
            if look.is_object() {
                assert!(look["exact"]["nmse"].as_f64().unwrap() < 1e-7, "{look}");
                let notes =
                    result["verdict"]["notes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap());
                let start = format!("{}: the logits of the ", c["lhs"].as_str().unwrap());
                let note = notes.into_iter().find(|note| note.starts_with(&start)).expect("a note");
                for words in [
                    "this is rounding: in exact precision it agrees (NMSE ",
                    "the best token is the same at",
                    "KL divergence",
                ] {
                    assert!(note.contains(words), "{note}");
                }
            }
        }
        // With these weights the mixture exceeds the bound of whole models, so that a second look is needed.
        let looked = comparisons.iter().any(|c| c["second_look"].is_object());
        assert!(looked || architecture == "qwen35");
    }
}

/// A weight that is NaN: the finding names the node that reads it, of the prompt and of a decode step alike.
#[test]
fn the_node_with_which_nan_begins_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = GgufFile::from_bytes(synthesize::bytes(&tiny("llama", DType::F16), 1).unwrap()).unwrap();
    let mut writer = GgufWriter::new();
    writer.set_all(file.metadata()).unwrap();
    for t in file.tensors() {
        let mut data = file.data(t).unwrap().to_vec();
        if t.name == "blk.1.ffn_down.weight" {
            data[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
        }
        writer.tensor(t.name.clone(), t.dtype, t.shape(), TensorData::from(data)).unwrap();
    }
    let path = dir.path().join("nan.gguf");
    writer.write_to(&path).unwrap();
    let args = ["--model", path.to_str().unwrap(), "--predict", "2", "--backends", "cpu"];
    let (output, result) = compare(&dir.path().join("out"), &args);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let node = "node 'blk.1.ffn_down";
    let finding = result["verdict"]["findings"][0].as_str().unwrap();
    assert!(finding.contains(&format!("NaN or infinite, from {node}")), "{finding}");
    for backend in ["reference", "cpu"] {
        let begin = record(&result, backend)["invalid_from"].as_str().unwrap_or_default();
        assert!(begin.contains(node) || begin.contains("blk.1.ffn_down .. "), "{backend}: {begin}");
    }
}

/// A model without an output layer: its hidden states are compared, no token is generated, and rounding is judged as
/// that of logits.
#[test]
fn hidden_states_are_compared() {
    for (dtype, precision) in [(DType::F16, "exact"), (DType::Q8_0, "fast")] {
        let dir = tempfile::tempdir().unwrap();
        let model = write(dir.path(), &Shape { heads_kv: 6, ..tiny("bert", dtype) });
        let args = ["--model", &model, "--predict", "8", "--per-node", "isolated", "--invariance"];
        let args = [&args[..], &["--backends", "cpu,hip-virtual:gfx906", "--precision", precision]].concat();
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let comparisons = result["comparisons"].as_array().unwrap();
        assert!(!comparisons.is_empty());
        for c in comparisons {
            assert_eq!((&c["logits"]["hidden"], &c["steps"]), (&true.into(), &Value::Null), "{c}");
            assert_eq!(c["logits"]["positions"], 32);
            assert!(c["logits"]["nmse"].as_f64() <= c["bound"].as_f64(), "{c}");
            assert!(c["nodes"].as_array().unwrap().len() > 20);
        }
        let record = record(&result, "cpu");
        assert!(record["token_ids"].as_array().is_none_or(Vec::is_empty), "{record}");
        let ways: Vec<&str> =
            record["variants"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
        assert_eq!(ways, ["memory elsewhere", "each step alone", "node by node", "step by step"]);
        assert!(!stdout(&output).contains("100%"), "no token is the best: {}", stdout(&output));
    }
}

/// Writes a model with attention so sharp that the last bit of a value changes the logits eight layers later.
fn sharp(folder: &Path) -> String {
    let path = write(folder, &Shape { layers: 8, ..tiny("qwen3", DType::F32) });
    let gguf = GgufFile::open(&path).unwrap();
    let mut places = Vec::new();
    for tensor in gguf.tensors().iter().filter(|t| t.name.ends_with("attn_q_norm.weight")) {
        let (file, bytes) = (gguf.part_bytes(0).unwrap(), gguf.data(tensor).unwrap());
        places.push((bytes.as_ptr() as usize - file.as_ptr() as usize, bytes.len()));
    }
    drop(gguf);
    let mut bytes = std::fs::read(&path).unwrap();
    for (at, len) in places {
        for value in bytes[at..at + len].chunks_exact_mut(4) {
            let scaled = 60.0 * f32::from_le_bytes(value.try_into().unwrap());
            value.copy_from_slice(&scaled.to_le_bytes());
        }
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Two correct backends diverge in exact precision too, and this is distinguished from an error: every node
/// agrees, and the steps diverge no more than the sum of the nodes' errors.
#[test]
fn what_a_model_makes_of_rounding_is_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let model = sharp(dir.path());
    for precision in ["exact", "fast"] {
        let args = ["--model", &model, "--predict", "2", "--precision", precision, "--backends"];
        let (output, result) = compare(dir.path(), &[&args[..], &["cpu,hip-virtual:gfx906"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        for c in result["comparisons"].as_array().unwrap() {
            let look = &c["second_look"];
            assert!(look["exact"]["nmse"].as_f64().unwrap() > 1e-7, "{c}");
            assert!(look["amplified"] == true && look["rounding"] == true, "{look}");
        }
        for note in result["verdict"]["notes"].as_array().unwrap() {
            assert!(
                note.as_str().unwrap().ends_with("this is rounding, which the model amplifies"),
                "{note}"
            );
        }
    }
}

/// A prompt in other batches, together with another sequence, step by step, in other memory and in parts.
#[test]
fn logits_do_not_depend_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let model = write(dir.path(), &tiny("qwen3", DType::Q8_0));
    for precision in ["exact", "fast"] {
        let args = ["--model", &model, "--predict", "1", "--invariance", "--precision", precision];
        let backends = ["--backends", "cpu,hip-virtual:gfx906"];
        let (output, result) = compare(dir.path(), &[&args[..], &backends].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        for (backend, count) in [("reference", 7), ("cpu", 7), ("hip-virtual:gfx906", 9)] {
            let record = record(&result, backend);
            if record["status"] == "ok" {
                let variants = record["variants"].as_array().unwrap();
                assert_eq!(variants.len(), count, "{record}");
                for way in ["memory elsewhere", "each step alone"] {
                    assert!(variants.iter().any(|v| v["name"] == way && v["nmse"] == 0.0), "{record}");
                }
            }
        }
    }
    let (output, _) = compare(dir.path(), &["--ops", "RELU", "--invariance"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A prompt given as text equals the prompt of its tokens.
#[test]
fn a_prompt_may_be_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &Shape { vocabulary: 300, ..tiny("llama", DType::F16) });
    let text = "Hello world, once more";
    let gguf = GgufFile::open(&path).unwrap();
    let ids = Tokenizer::from_gguf(&gguf).unwrap().encode(text, &EncodeOptions::default());
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    assert!(ids.contains(','), "{ids}");
    let tokens = |prompt: [&str; 2]| {
        let args = [&["--model", &path, "--predict", "6", "--backends", "cpu"][..], &prompt].concat();
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        (
            record(&result, "cpu")["token_ids"].clone(),
            std::fs::read(dir.path().join("cpu.logits.npy")).unwrap(),
        )
    };
    assert_eq!(tokens(["--prompt", text]), tokens(["--tokens", &ids]));
    let (output, _) = compare(dir.path(), &["--model", &path, "--prompt", ""]);
    assert_eq!(output.status.code(), Some(2), "no tokens: {}", stdout(&output));
}
