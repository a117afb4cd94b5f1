//! Drafts of the layer that predicts further tokens.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::generate::{GenerateOptions, Generation, Summary};
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, Metadata};
use diptych::model::ModelFile;
use diptych::session::{Item, Want, greedy};
use diptych::synthesize::{Drafts, PREDICTING, Shape};
use diptych::{DType, Error, Model, Precision, SamplerOptions, Session, SessionOptions, Tokenizer};

const VOCABULARY: usize = 300;

fn shape(architecture: &str, drafts: Drafts) -> Shape {
    let mut shape = Shape { vocabulary: VOCABULARY, ..tiny(architecture, DType::F32) };
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    shape.with_predictor(drafts)
}

fn session(model: &Model, predictor: bool) -> Session {
    let options = SessionOptions::default()
        .with_context(200)
        .with_batch(16)
        .with_checkpoint_every(16)
        .with_precision(Precision::Exact)
        .with_predictor(predictor);
    model.session(&options).expect("a session")
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5) % VOCABULARY as u32).collect()
}

/// Generates after a prompt; returns the tokens and the summary.
fn text(session: &mut Session, options: &GenerateOptions) -> (Vec<u32>, Summary) {
    let tokenizer = Tokenizer::from_gguf(session.model().file().gguf()).expect("a tokenizer");
    let mut generation =
        Generation::continue_with(session, &tokenizer, &prompt(20), options).expect("a prompt");
    let tokens = generation.by_ref().filter_map(|piece| piece.expect("a piece").token).collect();
    (tokens, generation.summary().clone())
}

/// Values of an F32 tensor.
fn values(file: &GgufFile, name: &str) -> Vec<f64> {
    let bytes = file.data(file.require(name).expect("a tensor")).expect("data");
    bytes.as_chunks().0.iter().map(|&x| f64::from(f32::from_le_bytes(x))).collect()
}

/// RMS norm with the weight of this name.
fn normed(file: &GgufFile, name: &str, x: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let weight = values(file, name);
    x.iter().zip(weight).map(|(x, w)| x * w / (mean + 1e-5).sqrt()).collect()
}

/// The predictor of a file as a model of its own, made from the definition. Its tokens are the pairs of a token and the
/// hidden state before it, so it sees what the predictor has to see, by the code of an ordinary layer.
struct Alone<'a> {
    file: &'a GgufFile,
    layer: usize,
    /// Number of first tokens that are drafted.
    among: usize,
    /// Inputs of the predictor's layer so far.
    rows: Vec<f32>,
}

impl Alone<'_> {
    /// Adds the pair of a token and the hidden state before it.
    fn add(&mut self, token: u32, hidden: &[f64]) {
        let e = hidden.len();
        let part = |name: &str| format!("blk.{}.nextn.{name}.weight", self.layer);
        let table = values(self.file, "token_embd.weight");
        let embedded = &table[token as usize * e..][..e];
        let both =
            [normed(self.file, &part("enorm"), embedded), normed(self.file, &part("hnorm"), hidden)].concat();
        let projection = values(self.file, &part("eh_proj"));
        let products =
            projection.chunks_exact(2 * e).map(|row| row.iter().zip(&both).map(|(a, b)| a * b).sum());
        self.rows.extend(products.map(|sum: f64| sum as f32));
    }

    /// Returns the best token after the last pair, and the hidden state there.
    fn next(&self) -> (u32, Vec<f64>) {
        let e = self.file.require("token_embd.weight").expect("a tensor").ne[0];
        let count = self.rows.len() / e;
        let cpu = backend("cpu").expect("the CPU");
        let model = Model::from_file(self.model(e), cpu).expect("a model");
        let mut session = session(&model, false);
        let pairs: Vec<u32> = (0..count as u32).collect();
        let logits = session.prefill(&pairs).expect("logits");
        let best = greedy(&logits[..self.among]).expect("a best one");
        let hidden = session.hidden(&pairs, None).expect("hidden states");
        (best, hidden[(count - 1) * e..].iter().map(|&x| f64::from(x)).collect())
    }

    fn model(&self, e: usize) -> ModelFile {
        let metadata = self.file.metadata();
        let architecture = metadata.str("general.architecture").expect("a name");
        let mut all = Metadata::new();
        for (key, value) in metadata.iter().filter(|(key, _)| !key.ends_with("nextn_predict_layers")) {
            all.insert(key, value.clone());
        }
        all.insert(format!("{architecture}.block_count"), 1u32);
        for (key, value) in [("leading_dense_block_count", 0u32)] {
            if all.contains(&format!("{architecture}.{key}")) {
                all.insert(format!("{architecture}.{key}"), value);
            }
        }
        let recurrent = format!("{architecture}.attention.recurrent_layers");
        if all.contains(&recurrent) {
            all.insert(recurrent, Array::from(&[false][..]));
        }
        let mut writer = GgufWriter::new();
        writer.set_all(&all).expect("metadata");
        let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|x| x.to_le_bytes()).collect() };
        let mut table = self.rows.clone();
        let vocabulary = self.file.require("token_embd.weight").expect("a tensor").ne[1];
        table.resize(vocabulary * e, 0.0);
        writer.tensor("token_embd.weight", DType::F32, &[e, vocabulary], bytes(&table)).expect("a table");
        let prefix = format!("blk.{}.", self.layer);
        let norm = format!("{prefix}nextn.shared_head_norm.weight");
        let own = self.file.tensor(&norm).is_some();
        for tensor in self.file.tensors() {
            let name = match tensor.name.as_str() {
                "token_embd.weight" if self.file.tensor("output.weight").is_none() => "output.weight".into(),
                "output.weight" => "output.weight".into(),
                "output_norm.weight" if !own => "output_norm.weight".into(),
                name if name == norm => "output_norm.weight".into(),
                name => match name.strip_prefix(&prefix) {
                    Some(part) if !part.starts_with("nextn") => format!("blk.0.{part}"),
                    _ => continue,
                },
            };
            let data = self.file.data(tensor).expect("data").to_vec();
            writer.tensor(name, tensor.dtype, tensor.shape(), data).expect("a tensor");
        }
        let bytes = writer.to_bytes().expect("a file");
        ModelFile::from_gguf(GgufFile::from_bytes(bytes).expect("a file")).expect("a model")
    }
}

/// Checks the drafts after prompts of several lengths, after accepted and rejected drafts, and after going back.
#[test]
fn drafts_are_those_of_the_definition() {
    for (name, backend) in backends() {
        let all = if name == "cpu" { &PREDICTING[..] } else { &["qwen35", "deepseek2"] };
        for &architecture in all {
            let model = model(&shape(architecture, Drafts::Random), &backend);
            let (mut session, mut plain) = (session(&model, true), session(&model, false));
            let mut tokens = prompt(37);
            session.prefill(&tokens).expect("a prompt");
            let mut check = |session: &mut Session, tokens: &[u32], token: u32, count: usize| {
                let hidden = plain.hidden(tokens, None).expect("hidden states");
                let e = hidden.len() / tokens.len();
                let state =
                    |i: usize| -> Vec<f64> { hidden[i * e..][..e].iter().map(|&x| x.into()).collect() };
                let file = model.file().gguf();
                let mut alone = Alone { file, layer: 2, among: VOCABULARY, rows: Vec::new() };
                for (i, &token) in tokens.iter().enumerate().skip(1) {
                    alone.add(token, &state(i - 1));
                }
                alone.add(token, &state(tokens.len() - 1));
                let mut wanted = Vec::new();
                for _ in 0..count {
                    let (best, hidden) = alone.next();
                    wanted.push(best);
                    alone.add(best, &hidden);
                }
                assert_eq!(session.draft(token, count).expect("drafts"), wanted, "{name}, {architecture}");
                assert_eq!(session.tokens(0).expect("a sequence"), tokens);
            };
            check(&mut session, &tokens, 7, 3);
            for (token, drafts, kept) in [(7, &[1, 2, 3][..], 1), (9, &[4, 5], 2), (11, &[6], 0)] {
                session.verify(0, &[token], drafts, Want::Best(1), &mut |_| Ok(kept)).expect("drafts");
                tokens.push(token);
                tokens.extend(&drafts[..kept]);
                check(&mut session, &tokens, 8, 2);
            }
            // Back to where the state before is not kept: there are no drafts until it is.
            session.truncate(0, 20).expect("the past");
            tokens.truncate(20);
            assert!(session.draft(3, 4).expect("no drafts").is_empty());
            session.reset();
            tokens.truncate(9);
            session.prefill(&tokens).expect("a prompt");
            session.decode(4).expect("a token");
            tokens.push(4);
            check(&mut session, &tokens, 5, 2);
            // Greedy steps, each of which the device begins before the one before has been read.
            let mut next = 5;
            for _ in 0..4 {
                let items = [Item { sequence: 0, tokens: &[next] }];
                let best = session.append(&items, Want::Best(1)).expect("a token").get(0).expect("a row");
                tokens.push(next);
                next = best.greedy().expect("a token");
            }
            check(&mut session, &tokens, next, 2);
        }
    }
}

/// In a large vocabulary only the first tokens are drafted, as long as the text has few others.
#[test]
fn frequent_tokens_are_drafted() {
    let cpu = backend("cpu").expect("the CPU");
    let shape = Shape { vocabulary: 70_000, ..shape("qwen35", Drafts::Random) };
    let model = model(&shape, &cpu);
    for (tokens, among) in [([5, 42, 7, 9], 1 << 15), ([40_000, 50_000, 60_000, 9], 70_000)] {
        let (mut session, mut plain) = (session(&model, true), session(&model, false));
        session.prefill(&tokens).expect("a prompt");
        let hidden = plain.hidden(&tokens, None).expect("hidden states");
        let mut alone = Alone { file: model.file().gguf(), layer: 2, among, rows: Vec::new() };
        for (&token, state) in tokens[1..].iter().chain(&[8]).zip(hidden.chunks_exact(hidden.len() / 4)) {
            alone.add(token, &state.iter().map(|&x| x.into()).collect::<Vec<f64>>());
        }
        assert_eq!(session.draft(8, 1).expect("a draft"), [alone.next().0], "{among}");
    }
}

/// The text is the same as without drafts, whether the model agrees with many of them or with hardly any.
#[test]
fn the_text_is_the_same_as_without_a_predictor() {
    for (name, backend) in backends() {
        let all = if name == "cpu" { &PREDICTING[..] } else { &["qwen35", "glm4moe"] };
        let count = if name == "cpu" { 60 } else { 24 };
        for &architecture in all {
            for kind in [Drafts::Agreeing(0.01), Drafts::Random] {
                let model = model(&shape(architecture, kind), &backend);
                let sampled = SamplerOptions::default().with_temperature(0.7).with_top_k(5).with_seed(3);
                let greedy =
                    GenerateOptions::default().with_predict(count).with_ignore_end(true).with_draft(4);
                for options in [greedy.clone(), greedy.with_sampler(sampled)] {
                    let (tokens, _) = text(&mut session(&model, false), &options);
                    let mut with = session(&model, true);
                    let (got, summary) = text(&mut with, &options);
                    assert_eq!(got, tokens, "{name}, {architecture}, {kind:?}");
                    assert!(summary.drafts > 10, "{name}, {architecture}: {summary}");
                    let share = summary.accepted_drafts as f64 / summary.drafts as f64;
                    match kind {
                        Drafts::Random => assert!(share < 0.3, "{name}, {architecture}: {summary}"),
                        _ if options.sampler.temperature > 0.0 => {}
                        _ => assert!(share > 0.5, "{name}, {architecture}: {summary}"),
                    }
                    let (plain, summary) = text(&mut with, &options.clone().with_draft(0));
                    assert_eq!((plain, summary.drafts), (tokens, 0));
                }
            }
        }
    }
}

/// A session refuses what it cannot do.
#[test]
fn a_predictor_has_to_be_there() {
    let cpu = backend("cpu").expect("the CPU");
    let with = model(&shape("qwen35", Drafts::Random), &cpu);
    let without = model(&Shape { predictor: None, ..shape("qwen35", Drafts::Random) }, &cpu);
    assert!(with.file().has_predictor() && with.file().left_out().is_empty());
    assert!(!without.file().has_predictor());
    let options = SessionOptions::default().with_predictor(true);
    assert!(matches!(without.session(&options), Err(Error::InvalidArgument { .. })));
    // A generation without drafts leaves none; who asks gets them after the next batch.
    let mut again = session(&with, true);
    text(&mut again, &GenerateOptions::default().with_predict(3).with_draft(0));
    assert!(again.draft(3, 2).expect("no state").is_empty());
    again.decode(3).expect("logits");
    assert_eq!(again.draft(4, 2).expect("drafts").len(), 2);
    let mut plain = session(&with, false);
    plain.prefill(&[1, 2]).expect("a prompt");
    assert!(matches!(plain.draft(3, 2), Err(Error::InvalidArgument { .. })));
    // Saved sequences are for sessions of their kind.
    let mut drafting = session(&with, true);
    assert!(matches!(drafting.restore(&plain.save().expect("bytes")), Err(Error::InvalidArgument { .. })));
    drafting.prefill(&prompt(20)).expect("a prompt");
    let saved = drafting.save().expect("bytes");
    let mut other = session(&with, true);
    other.restore(&saved).expect("a sequence");
    assert!(other.draft(3, 2).expect("no state yet").is_empty());
    assert_eq!(other.decode(3).expect("logits"), drafting.decode(3).expect("logits"));
    assert_eq!(other.draft(4, 2).expect("drafts").len(), 2);
    assert!(drafting.draft(VOCABULARY as u32, 2).is_err());
    // Another architecture has none.
    let llama = Shape { predictor: Some(Drafts::Random), ..tiny("llama", DType::F32) };
    assert!(diptych::synthesize::bytes(&llama, 1).is_err());
}
