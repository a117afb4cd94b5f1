//! Files as various converters write them: with parts that text does not need, with other names, without keys
//! or with tables of other lengths. Reports: llama.cpp issues 25334 and 27349.

use crate::common;

use common::{backend, example, model, stdout, tiny};
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, Metadata, TensorData, Value};
use diptych::model::{ModelFile, Pooling, RopeScaling};
use diptych::session::EmbedOptions;
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, Precision, Session, SessionOptions, Tokenizer};
use std::path::Path;
use std::process::Command;

/// Changes to the file of a shape.
#[derive(Default)]
struct Changes<'a> {
    /// Keys and their new values; `None` removes a key.
    keys: Vec<(&'a str, Option<Value>)>,
    /// Another name of the architecture.
    architecture: Option<&'a str>,
    /// Keys without the architecture, and their new names.
    moved: Vec<(&'a str, &'a str)>,
    /// Ends of tensor names and their replacements.
    renamed: Vec<(&'a str, &'a str)>,
    /// Further tensors.
    added: Vec<&'a str>,
    /// Further rows of tables with a row for each token.
    rows: usize,
}

impl Changes<'_> {
    fn bytes(&self, shape: &Shape) -> Vec<u8> {
        let original = GgufFile::from_bytes(synthesize::bytes(shape, 11).unwrap()).unwrap();
        let mut all = Metadata::new();
        let changed = |key: &str| self.keys.iter().any(|(name, _)| *name == key);
        let own = self.architecture.unwrap_or(&shape.architecture);
        for (key, value) in original.metadata().iter().filter(|(key, _)| !changed(key)) {
            let Some(name) = key.strip_prefix(&format!("{}.", shape.architecture)) else {
                all.insert(key, if key == "general.architecture" { own.into() } else { value.clone() });
                continue;
            };
            let moved = self.moved.iter().find(|(from, _)| *from == name);
            all.insert(format!("{own}.{}", moved.map_or(name, |(_, to)| to)), value.clone());
        }
        for (key, value) in self.keys.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            all.insert(*key, value.clone());
        }
        let mut writer = GgufWriter::new();
        writer.set_all(&all).unwrap();
        for t in original.tensors() {
            let (mut ne, mut data) = (t.shape().to_vec(), original.data(t).unwrap().to_vec());
            if ["token_embd.weight", "output.weight"].contains(&t.name.as_str()) {
                ne[1] += self.rows;
                // Rows that would give the largest logits.
                let last = data[data.len() - t.dtype.row_bytes(ne[0]).unwrap()..].to_vec();
                (0..self.rows).for_each(|_| data.extend(&last));
            }
            let mut name = t.name.clone();
            for (end, other) in &self.renamed {
                if let Some(stem) = name.strip_suffix(end) {
                    name = format!("{stem}{other}");
                }
            }
            writer.tensor(name, t.dtype, &ne, TensorData::from(data)).unwrap();
        }
        for name in &self.added {
            writer.tensor(name.to_string(), DType::F32, &[8, 8], TensorData::from(vec![0u8; 256])).unwrap();
        }
        writer.to_bytes().unwrap()
    }

    fn file(&self, shape: &Shape) -> diptych::Result<ModelFile> {
        ModelFile::from_gguf(GgufFile::from_bytes(self.bytes(shape)).unwrap())
    }
}

fn session(file: ModelFile, backend_name: &str) -> Option<Session> {
    let model = Model::from_file(file, backend(backend_name)?).unwrap();
    let options = SessionOptions::default().with_context(64).with_batch(64).with_precision(Precision::Exact);
    Some(model.session(&options).unwrap())
}

fn logits(file: ModelFile, backend: &str) -> Option<Vec<f32>> {
    Some(session(file, backend)?.logits(&[3, 1, 4, 1, 5]).unwrap())
}

fn refused<T>(result: diptych::Result<T>) -> String {
    match result {
        Err(error @ (Error::InvalidArgument { .. } | Error::InvalidModel { .. })) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn other_names_and_other_parts_change_nothing() {
    let shape = |architecture: &str| Shape { layers: 2, ..tiny(architecture, DType::F16) };
    let towers = vec!["v.blk.0.attn_q.weight", "v.patch_embd.weight", "a.blk.0.ln1.weight", "mm.0.weight"];
    let steps = vec![(".ssm_dt.bias", ".ssm_dt")];
    for (architecture, renamed, added, parts) in [
        ("qwen35", steps.clone(), [towers, vec!["mtp.layers.0.input_layernorm.weight"]].concat(), 4),
        ("qwen3next", steps.clone(), vec![], 0),
        ("granitehybrid", steps, vec![], 0),
        ("llama", vec![], vec!["mtp.norm.weight", "mtp.fc.weight", "model.vision_tower.a.weight"], 2),
        ("gpt-oss", vec![(".attn_sinks.weight", ".attn_sinks")], vec![], 0),
        ("lfm2", vec![("token_embd_norm.weight", "output_norm.weight")], vec![], 0),
    ] {
        let shape = match architecture {
            "granitehybrid" => Shape { layers: 4, ..shape(architecture) },
            _ => shape(architecture),
        };
        let changes = Changes { renamed, added, ..Changes::default() };
        let file = changes.file(&shape).unwrap_or_else(|error| panic!("{architecture}: {error}"));
        assert_eq!(file.left_out().len(), parts, "{:?}", file.left_out());
        if architecture == "qwen35" {
            assert_eq!(file.left_out()[0], "an encoder of images: 2 tensors, first 'v.blk.0.attn_q.weight'");
        }
        let want = logits(Changes::default().file(&shape).unwrap(), "cpu");
        assert_eq!(logits(file, "cpu"), want, "{architecture}");
    }
    for unknown in ["blk.0.v.weight", "output.bias", "blk.2.attn_norm.weight"] {
        let changes = Changes { added: vec![unknown], ..Changes::default() };
        assert!(refused(changes.file(&shape("llama"))).contains(unknown));
    }
}

/// Files as Ollama's converters write them: other names of architectures, keys and tensors, and keys that are missing
/// where the model's own value is the default.
#[test]
fn files_of_ollama_are_the_same_models() {
    let number = |n: usize| Some(Value::from(n as u32));
    let gpt_oss = Shape { layers: 2, ..tiny("gpt-oss", DType::F16) };
    let experts = gpt_oss.experts.expect("a mixture");
    let deepseek = tiny("deepseek2", DType::F16);
    let latent = deepseek.latent.expect("latent attention");
    let gemma = [("gemma3.attention.layer_norm_rms_epsilon", Some(Value::from(1e-6f32)))];
    let all: [(Shape, Changes<'_>, Changes<'_>); 6] = [
        (
            gpt_oss.clone(),
            Changes::default(),
            Changes {
                architecture: Some("gptoss"),
                keys: vec![
                    ("gpt-oss.rope.scaling.type", None),
                    ("gpt-oss.expert_feed_forward_length", None),
                    ("gpt-oss.feed_forward_length", None),
                    ("gptoss.feed_forward_length", number(experts.feed_forward)),
                ],
                renamed: vec![
                    (".attn_output.weight", ".attn_out.weight"),
                    (".attn_output.bias", ".attn_out.bias"),
                    (".attn_sinks.weight", ".attn_sinks"),
                    (".post_attention_norm.weight", ".ffn_norm.weight"),
                ],
                ..Changes::default()
            },
        ),
        (
            tiny("olmo2", DType::F16),
            Changes::default(),
            Changes { architecture: Some("olmo3"), ..Changes::default() },
        ),
        (
            deepseek.clone(),
            Changes::default(),
            Changes {
                architecture: Some("glm4moelite"),
                keys: vec![
                    ("deepseek2.attention.head_count_kv", None),
                    ("glm4moelite.attention.head_count_kv", number(deepseek.heads)),
                    ("deepseek2.attention.key_length", None),
                    ("glm4moelite.attention.key_length", number(latent.plain + latent.rotated)),
                    ("deepseek2.attention.value_length", None),
                    ("glm4moelite.attention.value_length", number(latent.value_length)),
                    ("deepseek2.attention.key_length_mla", None),
                    ("glm4moelite.attention.key_length_mla", number(latent.rank + latent.rotated)),
                    ("deepseek2.attention.value_length_mla", None),
                ],
                ..Changes::default()
            },
        ),
        (
            tiny("mistral3", DType::F16),
            Changes {
                keys: vec![
                    ("mistral3.rope.scaling.yarn_beta_fast", Some(8.0f32.into())),
                    ("mistral3.rope.scaling.yarn_beta_slow", Some(2.0f32.into())),
                ],
                ..Changes::default()
            },
            Changes {
                keys: vec![
                    ("mistral3.rope.scaling.beta_fast", Some(8.0f32.into())),
                    ("mistral3.rope.scaling.beta_slow", Some(2.0f32.into())),
                    ("mistral3.rope.scaling.mscale", Some(1.0f32.into())),
                ],
                moved: vec![
                    ("rope.scaling.yarn_log_multiplier", "rope.scaling.mscale_all_dim"),
                    ("attention.temperature_scale", "rope.scaling_beta"),
                ],
                ..Changes::default()
            },
        ),
        // A model without scaling: the converter writes the keys all the same.
        (
            tiny("mistral3", DType::F16),
            Changes { keys: vec![("mistral3.rope.scaling.type", Some("none".into()))], ..Changes::default() },
            Changes {
                keys: vec![
                    ("mistral3.rope.scaling.type", Some("".into())),
                    ("mistral3.rope.scaling.factor", Some(0.0f32.into())),
                    ("mistral3.rope.scaling.beta_fast", Some(0.0f32.into())),
                ],
                ..Changes::default()
            },
        ),
        (
            Shape { freq_base: 1e6, ..tiny("gemma3", DType::F16) },
            Changes { keys: gemma.to_vec(), ..Changes::default() },
            Changes {
                keys: vec![
                    ("gemma3.attention.layer_norm_rms_epsilon", None),
                    ("gemma3.rope.freq_base", None),
                    ("gemma3.rope.local.freq_base", Some(10000.0f32.into())),
                ],
                ..Changes::default()
            },
        ),
    ];
    for (shape, usual, ollama) in all {
        let name = ollama.architecture.unwrap_or(&shape.architecture).to_string();
        let file = ollama.file(&shape).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.hparams().architecture, name);
        let want = logits(usual.file(&shape).unwrap(), "cpu").unwrap();
        assert_eq!(logits(file, "cpu").unwrap(), want, "{name}");
    }
}

/// The larger models of gemma3 divide positions in their global layers, which files of Ollama do not say.
#[test]
fn long_models_of_gemma3_divide_positions() {
    let shape = tiny("gemma3", DType::F16);
    let scaling = |context: u32, eps: Option<Value>| {
        let keys = vec![
            ("gemma3.context_length", Some(context.into())),
            ("gemma3.attention.layer_norm_rms_epsilon", eps),
        ];
        let file = Changes { keys, ..Changes::default() }.file(&shape).unwrap();
        let local = file.hparams().attention[0].rope.unwrap().freq_scale;
        (file.hparams().scaling, local)
    };
    assert_eq!(scaling(131_072, None), (RopeScaling::Linear(8.0), 1.0));
    assert_eq!(scaling(32_768, None), (RopeScaling::None, 1.0));
    assert_eq!(scaling(131_072, Some(1e-6f32.into())), (RopeScaling::None, 1.0));
}

/// An architecture that is not implemented is said to be so, not as a key or a tensor that is missing.
#[test]
fn models_of_ollama_that_do_not_run_say_so() {
    let refused_with = |architecture: &str, added: &'static str| {
        let shape = tiny(architecture, DType::F16);
        refused(Changes { added: vec![added], ..Changes::default() }.file(&shape))
    };
    assert!(refused_with("gpt-oss", "blk.0.ffn_gate_up_exps.weight").contains("an older converter"));
    assert!(refused_with("gemma3", "dense.0.weight").contains("EmbeddingGemma"));
    let olmo = Changes { architecture: Some("olmo"), ..Changes::default() };
    assert!(refused(olmo.file(&tiny("llama", DType::F16))).contains("nearest to 'olmo2'"));
}

/// The end tokens that are listed end a text, besides those known by their names.
#[test]
fn listed_end_tokens_end_a_text() {
    let shape = Shape { vocabulary: 300, ..tiny("llama", DType::F16) };
    let keys = vec![("tokenizer.ggml.eos_token_ids", Some(Array::from(&[5i32, 7, -1, 4000][..]).into()))];
    let file = Changes { keys, ..Changes::default() }.file(&shape).unwrap();
    let ends: Vec<u32> = Tokenizer::from_gguf(file.gguf()).unwrap().ends().collect();
    assert!(ends.contains(&5) && ends.contains(&7) && !ends.contains(&4000), "{ends:?}");
}

/// Tables with more rows than the vocabulary, which is the larger of `vocab_size` and the tokens.
#[test]
fn rows_after_the_vocabulary_are_left_out() {
    for tied in [false, true] {
        let shape = Shape { tied, ..tiny("llama", DType::F16) };
        let changes = Changes { rows: 5, ..Changes::default() };
        for name in ["cpu", "vulkan"] {
            let file = changes.file(&shape).unwrap();
            assert_eq!(file.hparams().vocabulary, 203);
            assert_eq!(file.left_out(), ["5 rows of 'token_embd.weight' after the 203 of the vocabulary"]);
            let Some(mut long) = session(file, name) else { continue };
            assert!(refused(long.prefill(&[203])).contains("below 203"));
            let want = logits(Changes::default().file(&shape).unwrap(), name).unwrap();
            assert_eq!(long.logits(&[3, 1, 4, 1, 5]).unwrap(), want, "{name}");
        }
    }
    let shape = Shape { vocabulary: 300, ..tiny("llama", DType::F16) };
    let key = "llama.vocab_size";
    for (declared, vocabulary) in [(Some(290u32), 300), (None, 300), (Some(304), 304)] {
        let changes = Changes { rows: 5, keys: vec![(key, declared.map(Value::from))], ..Changes::default() };
        let file = changes.file(&shape).unwrap();
        assert_eq!(file.hparams().vocabulary, vocabulary, "{declared:?}");
        assert_eq!(Tokenizer::from_gguf(file.gguf()).unwrap().len(), 300);
    }
    let changes = Changes { keys: vec![(key, Some(301u32.into()))], ..Changes::default() };
    assert!(refused(changes.file(&shape)).contains("1 to 300"));
}

/// Files of models that also read images have tokens without a row.
#[test]
fn tokens_without_a_row_are_left_out() {
    let shape = Shape { vocabulary: 300, ..tiny("gemma3", DType::F16) };
    let original = GgufFile::from_bytes(synthesize::bytes(&shape, 11).unwrap()).unwrap();
    let texts = original.metadata().array_str("tokenizer.ggml.tokens").unwrap();
    let texts: Vec<&str> = texts.into_iter().chain(["<image_soft_token>"]).collect();
    let mut kinds = original.metadata().array_i32("tokenizer.ggml.token_type").unwrap();
    let mut with_kind = |kind: i32| {
        kinds.truncate(300);
        kinds.push(kind);
        let keys = vec![
            ("tokenizer.ggml.tokens", Some(Array::texts(&texts).into())),
            ("tokenizer.ggml.token_type", Some(Array::from(&kinds[..]).into())),
        ];
        Changes { keys, ..Changes::default() }.file(&shape).unwrap()
    };
    let file = with_kind(4);
    assert_eq!(file.left_out(), ["1 token without a row of 'token_embd.weight'"]);
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    assert_eq!((tokenizer.len(), tokenizer.find("<image_soft_token>")), (300, None));
    // Ordinary text without a row means that the vocabulary is another model's.
    assert!(refused(Tokenizer::from_gguf(with_kind(1).gguf())).contains("at most 300, the rows of"));
}

fn bert() -> Shape {
    Shape { heads_kv: 6, ..tiny("bert", DType::F16) }
}

#[test]
fn pooling_has_a_default() {
    let text: &[&[u32]] = &[&[3, 1, 4, 1, 5]];
    let rank = vec!["cls.output.weight"];
    for (shape, value, added, want) in [
        (bert(), None, vec![], Pooling::Mean),
        (bert(), Some(0u32), vec![], Pooling::Mean),
        (bert(), Some(4), rank.clone(), Pooling::First),
        (tiny("qwen3", DType::F16), None, vec![], Pooling::Last),
        (tiny("qwen3", DType::F16), Some(4), rank, Pooling::Last),
    ] {
        let key = format!("{}.pooling_type", shape.architecture);
        let keys = vec![(key.as_str(), value.map(Value::from))];
        let file = Changes { keys, added, ..Changes::default() }.file(&shape).unwrap();
        assert_eq!((file.hparams().pooling, file.hparams().usual_pooling()), (None, want));
        let mut session = session(file, "cpu").unwrap();
        let got = session.embed(text, &EmbedOptions::default()).unwrap();
        assert_eq!(got, session.embed(text, &EmbedOptions::default().with_pooling(want)).unwrap());
    }
}

/// A session may have more positions than a learnt table; a text may not.
#[test]
fn positions_end_with_their_table() {
    let mut session = session(common::file(&Shape { context: 8, ..bert() }), "cpu").unwrap();
    for _ in 0..2 {
        let error = refused(session.embed(&[[1u32; 9]], &EmbedOptions::default()));
        assert!(error.contains("at most 8, the rows of the model's table of positions"), "{error}");
        assert!(refused(session.hidden(&[1; 40], None)).contains("at most 8"));
        assert_eq!(session.embed(&[[1u32; 8]], &EmbedOptions::default()).unwrap().len(), 1);
    }
}

/// Returns the status and the standard error of a program, and the lines of its output.
fn run(program: &str, model: &Path, args: &[&str]) -> (Option<i32>, String, Vec<String>) {
    let output = Command::new(example(program)).arg("--model").arg(model).args(args).output().unwrap();
    let lines = stdout(&output).lines().map(String::from).collect();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), lines)
}

#[test]
fn programs_say_once_what_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("towers.gguf");
    let shape = Shape { vocabulary: 300, ..tiny("llama", DType::F16) };
    let changes = Changes { added: vec!["v.blk.0.attn_q.weight", "v.x.weight"], ..Changes::default() };
    std::fs::write(&path, changes.bytes(&shape)).unwrap();
    let (code, error, _) = run("generate", &path, &["--prompt", "ab", "--predict", "3"]);
    assert_eq!((code, error.matches("left out: an encoder of images").count()), (Some(0), 1), "{error}");
    let (code, error, lines) = run("embed", &path, &["ab"]);
    assert_eq!((code, lines.len()), (Some(0), 1), "{error}");
    assert_eq!(error.matches("pooling: last, the default for llama").count(), 1, "{error}");
    let (_, error, _) = run("embed", &path, &["ab", "--pooling", "mean"]);
    assert!(!error.contains("pooling"), "{error}");
}

/// `embed` computes a text that is longer than a batch, and cuts what is longer than the model's context.
#[test]
fn long_texts_fit_a_batch_or_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bert.gguf");
    let shape = Shape { vocabulary: 300, context: 32, ..bert() };
    std::fs::write(&path, synthesize::bytes(&shape, 11).unwrap()).unwrap();
    let ids = |n: u32| (0..n).map(|i| (i * 37 % 203).to_string()).collect::<Vec<_>>().join(",");
    let (long, too_long, start) = (ids(20), ids(40), ids(8));
    let (code, error, lines) = run("embed", &path, &["--batch", "8", "--tokens", &long, "--tokens", "7"]);
    assert_eq!((code, lines.len()), (Some(0), 2), "{error}");
    assert_eq!(lines[..1], run("embed", &path, &["--tokens", &long]).2);
    let (code, error, _) = run("embed", &path, &["--tokens", &too_long]);
    assert!(code == Some(2) && error.contains("at most 32"), "{error}");
    let cut = ["--tokens", &too_long, "--truncate"];
    let (code, error, lines) = run("embed", &path, &cut);
    assert!(code == Some(0) && error.contains("1 of 1 texts cut to 32 tokens"), "{error}");
    assert_eq!(lines, run("embed", &path, &["--tokens", &ids(32)]).2);
    let lines = run("embed", &path, &[&cut[..], &["--batch", "8"]].concat()).2;
    assert_eq!(lines, run("embed", &path, &["--tokens", &start]).2);
}

/// A chat template need not write the token that texts begin with, and there is one in either case.
#[test]
fn a_text_begins_once() {
    let shape = Shape { vocabulary: 300, ..tiny("llama", DType::F16) };
    let keys = |template: &str| {
        vec![
            ("tokenizer.ggml.bos_token_id", Some(256u32.into())),
            ("tokenizer.ggml.add_bos_token", Some(true.into())),
            ("tokenizer.chat_template", Some(template.into())),
        ]
    };
    let file = Changes { keys: keys(""), ..Changes::default() }.file(&shape).unwrap();
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    for (text, begin, twice) in
        [("a", &[256, 97][..], false), ("<|end|>a", &[256, 97], false), ("", &[256], false)]
    {
        let tokens = tokenizer.encode_chat(text);
        assert_eq!((&tokens[..], tokenizer.begins_twice(&tokens)), (begin, twice), "{text}");
    }
    assert!(tokenizer.begins_twice(&tokenizer.encode_chat("<|end|><|end|>a")));
    let plain = model(&shape, &backend("cpu").unwrap());
    let without = Tokenizer::from_gguf(plain.file().gguf()).unwrap();
    assert_eq!(without.encode_chat("a"), [97]);

    let dir = tempfile::tempdir().unwrap();
    for (i, (template, tokens, noted)) in [
        ("{{ messages[0].content }}", 2, false),
        ("{{ bos_token }}a", 2, false),
        ("{{ bos_token }}{{ bos_token }}a", 3, true),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{i}.gguf"));
        std::fs::write(&path, Changes { keys: keys(template), ..Changes::default() }.bytes(&shape)).unwrap();
        let (_, error, _) = run("generate", &path, &["--chat", "--prompt", "a", "--predict", "1"]);
        assert!(error.contains(&format!("prompt {tokens} tokens")), "{template}: {error}");
        assert_eq!(error.contains("two begin tokens"), noted, "{template}: {error}");
    }
    let (_, error, _) =
        run("generate", &dir.path().join("0.gguf"), &["--prompt", "<|end|>a", "--predict", "1"]);
    assert_eq!(error.matches("two begin tokens").count(), 1, "{error}");
}
