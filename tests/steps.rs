//! A session computes only what a call needs: similar lengths share a program, the last layer computes the
//! wanted rows, and only the best logits leave the device. None of this changes a result.

use crate::common;

use backend_hip::HipOptions;
use backend_hip::virtual_gpu::{Faults, Target, VirtualOptions, open_with};
use common::{backend, backends, file, model, tiny};
use diptych::generate::{GenerateOptions, Generation};
use diptych::ggml::backend::{Backend, Stats};
use diptych::ggml::decode::decode;
use diptych::ggml::evaluate::evaluate;
use diptych::ggml::gguf::{GgufFile, GgufWriter, TensorData};
use diptych::ggml::metrics::distance;
use diptych::ggml::rng::Rng;
use diptych::ggml::{Graph, Source};
use diptych::model::{BatchShape, BestNodes, LoadOptions, ModelFile, Offload, Predictor, Want};
use diptych::session::{Item, Row, Session};
use diptych::synthesize::{ARCHITECTURES, Shape};
use diptych::{DType, Error, Model, Precision, Sampler, SamplerOptions, SessionOptions, Tokenizer, greedy};
use std::collections::HashMap;
use std::sync::Arc;

fn exact() -> SessionOptions {
    SessionOptions::default().with_context(64).with_precision(Precision::Exact)
}

/// A tiny model; in a model with recurrent layers the first is an attention layer, so that the last one is
/// not.
fn shape(architecture: &str) -> Shape {
    let mut shape = tiny(architecture, DType::Q8_0);
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![false, true];
    }
    // If each layer has only one part, add a network to the layers with state.
    shape.feeding.fill(true);
    shape.window = shape.window.and(Some(5));
    shape
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5) % 203).collect()
}

/// Checks for the same bits on the reference, and for equality up to rounding elsewhere.
fn same(name: &str, got: &[f32], wanted: &[f32], what: &str) {
    let nmse = distance(got, wanted).nmse;
    assert!(if name == "reference" { got == wanted } else { nmse < 1e-10 }, "{name}, {what}: {nmse:.1e}");
}

/// Returns the counters that preparing a program would change.
fn prepared(stats: &Stats) -> [u64; 4] {
    [stats.programs, stats.recordings, stats.pipelines, stats.driver_allocations]
}

/// Programs exist for certain lengths. A length between them gives the result of a program of exactly that
/// length, and leaves the same state; only the first of several lengths prepares anything.
#[test]
fn lengths_like_each_other_share_a_program() {
    for (name, backend) in backends() {
        for architecture in ["gemma3", "gpt-oss", "qwen35"] {
            let model = model(&shape(architecture), &backend);
            let mut session = model.session(&exact()).unwrap();
            session.prefill(&prompt(36)).unwrap();
            session.decode(7).unwrap();
            let before = prepared(&backend.stats());
            let mut get = |n: usize| {
                session.reset();
                let first = session.prefill(&prompt(n)).unwrap();
                let saved = session.save().unwrap();
                (first, saved, session.decode(7).unwrap())
            };
            let (got33, got35) = (get(33), get(35));
            assert_eq!(prepared(&backend.stats()), before, "{name} {architecture}");
            for (n, got) in [(33, got33), (35, got35)] {
                // A batch does not exceed its limit, so this one is not padded.
                let mut alone = model.session(&exact().with_batch(n)).unwrap();
                same(name, &got.0, &alone.prefill(&prompt(n)).unwrap(), architecture);
                if name == "reference" {
                    assert!(got.1 == alone.save().unwrap(), "{architecture}: state");
                }
                same(name, &got.2, &alone.decode(7).unwrap(), architecture);
                assert!(prepared(&backend.stats()) > before, "{name} {architecture}: another program");
            }
        }
    }
}

/// Several sequences in a padded batch, with only some rows wanted.
#[test]
fn rows_of_several_sequences_are_found() {
    for (name, backend) in backends() {
        let model = model(&shape("qwen35"), &backend);
        let prompts: Vec<Vec<u32>> = (1..20).map(|n| prompt(n % 4 + 1)).collect();
        let items = |tokens: &'static [u32]| (0..19).map(move |sequence| Item { sequence, tokens });
        let mut session = model.session(&exact().with_sequences(19)).unwrap();
        let first: Vec<Item<'_>> =
            prompts.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
        let first = session.batch(&first).unwrap();
        let second = session.batch(&items(&[9]).collect::<Vec<_>>()).unwrap();
        let mut alone = model.session(&exact()).unwrap();
        for (i, prompt) in prompts.iter().enumerate() {
            alone.reset();
            same(name, &first[i], &alone.prefill(prompt).unwrap(), "prompt");
            same(name, &second[i], &alone.decode(9).unwrap(), "token");
        }
    }
}

/// One of nine tokens is wanted: after the state of the last layer, no tensor has rows for the others.
#[test]
fn the_last_layer_computes_what_is_needed() {
    let (cache, want) = (DType::F32, Want::Logits);
    for architecture in ARCHITECTURES {
        let mut shapes = vec![shape(architecture)];
        if let Some(recurrent) = &mut shapes[0].recurrent.clone() {
            recurrent.layers = vec![true, false];
            shapes.push(Shape { recurrent: Some(recurrent.clone()), ..shapes[0].clone() });
        }
        for shape in shapes {
            let batch = BatchShape {
                tokens: 9,
                kv: 16,
                context: 16,
                sequences: 1,
                outputs: 1,
                cache,
                want,
                drafts: false,
                predictor: Predictor::Unused,
            };
            let graph = file(&shape).graph(&batch).unwrap().graph;
            let rows = |name: &str| {
                let found = graph.ids().map(|id| graph.tensor(id)).find(|t| t.name == name);
                found.map(|t| t.ne[1..].iter().product::<usize>())
            };
            let experts = shape.experts.map_or(1, |experts| experts.used);
            for (part, per) in [
                ("attn_norm", 1),
                ("ffn_glu", 1),
                ("ffn_glu_exps", experts),
                ("attn_residual", 1),
                ("residual", 1),
            ] {
                let all = part == "attn_norm";
                for (layer, tokens) in [(0, 9), (1, if all { 9 } else { 1 })] {
                    let found = rows(&format!("blk.{layer}.{part}"));
                    // A layer may have only one kind of network, and no norm before attention.
                    let one_part = part == "residual" && !shape.feeding.is_empty();
                    let absent = found.is_none() && (part.starts_with("ffn_glu") || all || one_part);
                    assert!(absent || found == Some(tokens * per), "{architecture} {layer} {part} {found:?}");
                }
                let somewhere =
                    [0, 1].iter().any(|layer| rows(&format!("blk.{layer}.ffn_glu_exps")).is_some());
                assert_eq!(somewhere, shape.experts.is_some(), "{architecture}");
            }
            // Queries and gates too.
            let wanted_rows = match rows("blk.1.attn") {
                Some(attended) => Some(attended / shape.heads),
                None => ["attn_gate", "ssm_in.needed", "attn_norm.needed"]
                    .iter()
                    .find_map(|part| rows(&format!("blk.1.{part}"))),
            };
            assert_eq!(wanted_rows, Some(1), "{architecture}");
        }
    }
}

#[test]
fn needed_rows_are_those_of_all() {
    for (name, backend) in backends() {
        for architecture in ARCHITECTURES {
            let model = model(&shape(architecture), &backend);
            let all = model.session(&exact()).unwrap().logits(&prompt(9)).unwrap();
            let last = model.session(&exact()).unwrap().prefill(&prompt(9)).unwrap();
            same(name, &last, &all[8 * 203..], architecture);
        }
    }
}

/// Rows with equal elements, with NaN or infinity; lengths of one part and of several.
#[test]
fn the_best_are_those_of_a_search() {
    let mut rng = Rng::new(9);
    for (n, k) in [(203, 1), (203, 5), (2100, 1), (2100, 3), (2100, 64), (2100, 2100), (1031, 2)] {
        let rows = 3;
        let mut graph = Graph::new();
        let logits = graph.leaf("logits", DType::F32, [n, rows, 1, 1], Source::Input).unwrap();
        let best = BestNodes::new(&mut graph, logits, k).unwrap();
        assert_eq!(best.parts > 1, n == 2100 && (2..2100).contains(&k), "{n} in parts");
        best.outputs().into_iter().for_each(|id| graph.output(id).unwrap());
        let mut values: Vec<f32> = (0..n * rows).map(|_| rng.below(400) as f32 / 8.0).collect();
        values[n + n / 2] = f32::NAN;
        values[2 * n + n - 1] = f32::INFINITY;
        let data = HashMap::from([(logits, bytes(&values))]);
        for (name, backend) in backends() {
            let outputs = evaluate(backend.as_ref(), &graph, &data, Precision::Fast).unwrap();
            let tokens: Vec<u32> =
                outputs[1].bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
            let (chosen, sums) = (outputs[0].values().unwrap(), outputs[2].values().unwrap());
            for (row, values) in values.chunks_exact(n).enumerate() {
                let mut order: Vec<usize> = (0..n).collect();
                let key = |i: usize| if values[i].is_nan() { f32::NEG_INFINITY } else { values[i] };
                order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
                for (j, &wanted) in order[..k].iter().enumerate() {
                    let at = row * k + j;
                    assert_eq!(tokens[at], wanted as u32, "{name} {n} {k}: {j} of row {row}");
                    assert!(chosen[at].to_bits() == values[wanted].to_bits());
                }
                let finite = sums[row * best.parts..][..best.parts].iter().all(|sum| sum.is_finite());
                assert_eq!(finite, row == 0, "{name} {n} {k}, row {row}");
            }
        }
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A step gives the best of the logits that it would otherwise give, whatever the number of parts; the others
/// are not available.
#[test]
fn a_step_gives_the_best() {
    for (name, backend) in backends() {
        for vocabulary in [203, 2100] {
            let model = model(&Shape { vocabulary, ..shape("qwen2") }, &backend);
            let (mut all, mut some) = (model.session(&exact()).unwrap(), model.session(&exact()).unwrap());
            for (tokens, k) in [(&prompt(20)[..], 6), (&[7], 64)] {
                let item = [Item { sequence: 0, tokens }];
                let logits = all.prefill(tokens).unwrap();
                let mut order: Vec<usize> = (0..vocabulary).collect();
                order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
                let rows = some.append(&item, Want::Best(k)).unwrap();
                let Some(Row::Best(best)) = rows.get(0) else { panic!("{name}: {rows:?}") };
                assert!(best.valid && rows.len() == 1 && rows.get(1).is_none(), "{name}");
                assert!(best.tokens.iter().zip(&order).all(|(&t, &o)| t as usize == o), "{name}");
                let wanted: Vec<f32> = order[..k].iter().map(|&i| logits[i]).collect();
                same(name, best.logits, &wanted, "logits");
            }
            let most = some.append(&[Item { sequence: 0, tokens: &[1] }], Want::Best(usize::MAX)).unwrap();
            assert!(matches!(most.get(0), Some(Row::Best(best)) if best.tokens.len() == vocabulary));
            let none = some.append(&[Item { sequence: 0, tokens: &[1] }], Want::Best(0));
            assert!(matches!(none, Err(Error::InvalidArgument { .. })));
            assert!(some.rows().is_empty() && some.position() == 22, "{name}: as before the call");
        }
    }
}

/// A sampler accepts the best logits exactly if it accepts all of them, and chooses the same token: logits
/// whose squares overflow and minus infinity are fine, NaN and plus infinity are not.
#[test]
fn the_best_logits_are_as_good_as_all() {
    let plain = file(&Shape { vocabulary: 2100, ..shape("qwen2") });
    let weight = plain.gguf().require("token_embd.weight").unwrap();
    let values = decode(weight.dtype, plain.gguf().data(weight).unwrap()).unwrap();
    let width = weight.ne[0];
    let large = values.iter().map(|x| x * 1e25).collect::<Vec<f32>>();
    let lost = |x: f32, tokens: std::ops::Range<usize>| {
        let mut values = values.clone();
        values[tokens.start * width..tokens.end * width].fill(0.0);
        tokens.for_each(|token| values[token * width] = x);
        values
    };
    let cases = [large, lost(f32::INFINITY, 5..9), lost(f32::NEG_INFINITY, 5..9), lost(f32::NAN, 8..9)];
    for (name, backend) in backends() {
        let mut accepted = Vec::new();
        for values in &cases {
            let model = Model::from_file(with_output(&plain, values), backend.clone()).unwrap();
            let logits = model.session(&exact()).unwrap().prefill(&[3, 4]).unwrap();
            for (options, k) in [
                (SamplerOptions::default(), 1),
                (SamplerOptions::default().with_temperature(0.5).with_top_k(4), 4),
            ] {
                let mut session = model.session(&exact()).unwrap();
                let rows = session.append(&[Item { sequence: 0, tokens: &[3, 4] }], Want::Best(k)).unwrap();
                let some = Sampler::new(options.clone()).unwrap().sample_row(rows.get(0).unwrap());
                let all = Sampler::new(options).unwrap().sample(&logits);
                assert_eq!(some.as_ref().ok(), all.as_ref().ok(), "{name}: {some:?} and {all:?}");
                accepted.push(all.is_ok());
            }
        }
        // One of the infinities becomes plus infinity, by the sign of the element that it multiplies.
        let infinite = [accepted[2], accepted[4]];
        assert!(accepted[0] && infinite[0] != infinite[1] && !accepted[6], "{name}: {accepted:?}");
    }
}

/// Returns a model file whose output layer has these values and is not the token table.
fn with_output(file: &ModelFile, values: &[f32]) -> ModelFile {
    let gguf = file.gguf();
    let bytes = bytes(values);
    let mut writer = GgufWriter::new();
    writer.set_all(gguf.metadata()).unwrap();
    for t in gguf.tensors() {
        let data = TensorData::Bytes(gguf.data(t).unwrap().into());
        writer.tensor(t.name.clone(), t.dtype, t.shape(), data).unwrap();
    }
    let table = gguf.require("token_embd.weight").unwrap();
    let data = TensorData::Bytes((&bytes[..]).into());
    writer.tensor("output.weight", DType::F32, table.shape(), data).unwrap();
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

/// The nodes that choose are on the device of the output layer, in a prompt and in a step.
#[test]
fn a_divided_model_gives_the_best() {
    let (device, host) = (backend("cpu").unwrap(), backend("cpu").unwrap());
    let shape = shape("llama");
    let whole = model(&shape, &device);
    for offload in [Offload::None, Offload::Layers(1), Offload::Layers(2)] {
        let options = LoadOptions::default().with_offload(offload).with_host(host.clone());
        let model = Model::load_with(file(&shape), device.clone(), &options, &mut |_, _| ()).unwrap();
        let (mut divided, mut session) = (model.session(&exact()).unwrap(), whole.session(&exact()).unwrap());
        for tokens in [&prompt(9)[..], &[7], &[8]] {
            let rows = divided.append(&[Item { sequence: 0, tokens }], Want::Best(2)).unwrap();
            let best = rows.get(0).unwrap().greedy().unwrap();
            assert_eq!(best, greedy(&session.prefill(tokens).unwrap()).unwrap(), "{offload}");
        }
    }
}

/// On HIP the inputs of a step and its best logits travel with the step: the only driver calls are those that run the step and
/// wait for it.
#[test]
fn reading_a_token_takes_no_call() {
    let faults = Faults::default();
    let device = VirtualOptions { faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let backend: Arc<dyn Backend> = match open_with(device, HipOptions::default()) {
        Ok(backend) => Arc::new(backend),
        Err(Error::Unavailable { reason, .. }) => return eprintln!("skipped: {reason}"),
        Err(error) => panic!("{error}"),
    };
    // A vocabulary of more than one part.
    let model = model(&Shape { vocabulary: 2048, ..tiny("llama", DType::Q8_0) }, &backend);
    let names = ["hipMemcpyAsync", "hipModuleLaunchKernel", "hipGraphLaunch", "hipEventRecord"];
    for ahead in [false, true] {
        let mut session = model.session(&exact().with_ahead(ahead)).unwrap();
        let mut token = 1;
        for step in 0..7 {
            let before = names.map(|name| faults.count(name));
            let rows = session.append(&[Item { sequence: 0, tokens: &[token] }], Want::Best(1)).unwrap();
            token = rows.get(0).unwrap().greedy().unwrap();
            let after = names.map(|name| faults.count(name));
            let [copies, launches, graphs, marks] = [0, 1, 2, 3].map(|i| after[i] - before[i]);
            // First runs of a program record an event per launch; later runs one per graph, plus begin and
            // end.
            if step > 2 {
                let found = (copies, launches, marks);
                assert_eq!(found, (0, 0, graphs + 2), "step {step}, ahead: {ahead}");
            }
        }
    }
}

/// Returns the tokens of a sampler that gets all logits.
fn by_hand(session: &mut Session, options: &SamplerOptions, count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(options.clone()).unwrap();
    let mut logits = session.prefill(&prompt(5)).unwrap();
    prompt(5).into_iter().for_each(|token| sampler.accept(token));
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let token = sampler.sample(&logits).unwrap();
        sampler.accept(token);
        tokens.push(token);
        logits = session.decode(token).unwrap();
    }
    tokens
}

/// A sampler chooses the same token from the best logits as from all.
#[test]
fn samplers_choose_from_the_best_as_from_all() {
    let base = SamplerOptions::default().with_seed(5);
    let warm = base.clone().with_temperature(3.0);
    let samplers = [
        (base.clone(), Want::Best(1)),
        (warm.clone().with_top_k(7), Want::Best(7)),
        (warm.clone().with_top_k(40).with_top_p(0.9).with_min_p(0.05).with_typical_p(0.95), Want::Best(40)),
        (warm.clone().with_top_k(65), Want::Logits),
        (warm, Want::Logits),
        (base.clone().with_frequency_penalty(0.5), Want::Logits),
        (base.with_frequency_penalty(0.5).with_penalty_window(0), Want::Best(1)),
    ];
    let backend = backend("cpu").unwrap();
    let model = model(&Shape { vocabulary: 300, ..shape("llama") }, &backend);
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).unwrap();
    for (sampler, want) in samplers {
        assert_eq!(Sampler::new(sampler.clone()).unwrap().want(), want, "{sampler:?}");
        let mut session = model.session(&exact()).unwrap();
        let wanted = by_hand(&mut session, &sampler, 20);
        session.reset();
        let options =
            GenerateOptions::default().with_predict(20).with_ignore_end(true).with_sampler(sampler.clone());
        let generation = Generation::start(&mut session, &tokenizer, &prompt(5), &options).unwrap();
        let tokens: Vec<u32> = generation.filter_map(|piece| piece.unwrap().token).collect();
        assert_eq!(tokens, wanted, "{sampler:?}");
    }
}

/// A model whose output layer gives a NaN for one token: that token is never the best, and the NaN is
/// reported.
#[test]
fn a_logit_that_is_no_number_is_an_error() {
    let backend = backend("cpu").unwrap();
    let shape = Shape { vocabulary: 300, ..tiny("llama", DType::F32) };
    let mut bytes = diptych::synthesize::bytes(&shape, 11).unwrap();
    let gguf = diptych::ggml::gguf::GgufFile::from_bytes(bytes.clone()).unwrap();
    let row = gguf.data(gguf.require("output.weight").unwrap()).unwrap()[17 * 96 * 4..][..96 * 4].to_vec();
    let at = bytes.windows(row.len()).position(|window| window == row).unwrap();
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let gguf = diptych::ggml::gguf::GgufFile::from_bytes(bytes).unwrap();
    let file = diptych::model::ModelFile::from_gguf(gguf).unwrap();
    let model = Model::from_file(file, backend).unwrap();
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).unwrap();
    let mut session = model.session(&exact()).unwrap();
    let mut generation =
        Generation::start(&mut session, &tokenizer, &prompt(5), &GenerateOptions::default()).unwrap();
    let error = generation.next().expect("an item").expect_err("a NaN").to_string();
    assert!(error.contains("logits") && error.contains("finite"), "{error}");
}
