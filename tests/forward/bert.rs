//! Text embeddings of an encoder (Devlin et al. 2018, layer norm: Ba et al. 2016, GELU: Hendrycks and Gimpel
//! 2016) and of a decoder's layers.

use super::{CONTEXT, Formulas, TOKENS, add, backends, file, hidden, tiny, weight};
use diptych::ggml::metrics::distance;
use diptych::model::{ModelFile, Pooling};
use diptych::session::EmbedOptions;
use diptych::synthesize::Shape;
use diptych::{DType, Model, Precision, SessionOptions};

/// Returns `x` minus its mean, divided by its standard deviation, with weight and bias.
fn layer_norm(file: &ModelFile, name: &str, x: &[f64]) -> Vec<f64> {
    let get = |part: &str| weight(file, &format!("{name}.{part}")).expect("a norm").values.to_vec();
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let deviation = (variance + 1e-5).sqrt();
    let scaled = x.iter().zip(get("weight")).map(|(v, w)| (v - mean) / deviation * w);
    scaled.zip(get("bias")).map(|(v, b)| v + b).collect()
}

/// Returns `x (1 + erf(x / sqrt 2)) / 2`, with the integral of the normal density by Simpson's rule.
fn gelu(x: f64) -> f64 {
    let (steps, density) = (2000, |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt());
    let width = x / f64::from(steps);
    let inner = |i: i32| density(f64::from(i) * width) * if i % 2 == 1 { 4.0 } else { 2.0 };
    let sum = density(0.0) + density(x) + (1..steps).map(inner).sum::<f64>();
    x * (0.5 + sum * width / 3.0)
}

/// Returns the residual stream of an encoder after `depth` layers.
fn encoded(file: &ModelFile, tokens: &[u32], depth: usize) -> Vec<Vec<f64>> {
    super::begin_pass();
    let h = file.hparams();
    let get = |name: &str| weight(file, name).unwrap_or_else(|| panic!("{name}"));
    let (words, places, kinds) =
        (get("token_embd.weight"), get("position_embd.weight"), get("token_types.weight"));
    let embed = |(position, &token): (usize, &u32)| {
        let mut x = words.row(token as usize).to_vec();
        add(&mut x, places.row(position), 1.0);
        add(&mut x, kinds.row(0), 1.0);
        layer_norm(file, "token_embd_norm", &x)
    };
    let mut stream: Vec<Vec<f64>> = tokens.iter().enumerate().map(embed).collect();
    let (heads, d) = (h.attention[0].heads, h.attention[0].key_length);
    for layer in 0..depth {
        let linear = |part: &str, x: &[f64]| {
            let mut y = get(&format!("blk.{layer}.{part}.weight")).times(x);
            add(&mut y, &get(&format!("blk.{layer}.{part}.bias")).values, 1.0);
            y
        };
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"]
            .map(|part| stream.iter().map(|x| linear(part, x)).collect::<Vec<_>>());
        for (t, x) in stream.iter_mut().enumerate() {
            let mut attended = Vec::new();
            for head in (0..heads * d).step_by(d) {
                let part = |row: &[f64]| row[head..head + d].to_vec();
                let query = part(&q[t]);
                let score = |key: &Vec<f64>| -> f64 {
                    part(key).iter().zip(&query).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()
                };
                let weights: Vec<f64> = k.iter().map(|key| score(key).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mut out = vec![0.0; d];
                weights.iter().zip(&v).for_each(|(w, value)| add(&mut out, &part(value), w / total));
                attended.extend(out);
            }
            add(x, &linear("attn_output", &attended), 1.0);
            *x = layer_norm(file, &format!("blk.{layer}.attn_output_norm"), x);
            let inner: Vec<f64> = linear("ffn_up", x).into_iter().map(gelu).collect();
            add(x, &linear("ffn_down", &inner), 1.0);
            *x = layer_norm(file, &format!("blk.{layer}.layer_output_norm"), x);
        }
    }
    stream
}

/// Every pooling method, at every layer of an encoder and of a decoder.
#[test]
fn vectors_agree_with_the_formulas() {
    let encoder = Shape { heads_kv: 6, ..tiny("bert", DType::F16) };
    for shape in [encoder, tiny("qwen3", DType::F16)] {
        for (name, backend) in backends() {
            let model = Model::from_file(file(&shape), backend).unwrap();
            let options = SessionOptions::default().with_context(CONTEXT).with_precision(Precision::Exact);
            let mut session = model.session(&options).unwrap();
            for layer in 0..=2 {
                let rows = match shape.architecture.as_str() {
                    "bert" => encoded(model.file(), &TOKENS, layer),
                    _ => hidden(model.file(), &Formulas::new(model.file(), CONTEXT), &TOKENS, layer),
                };
                let n = shape.embedding;
                let mean: Vec<f64> =
                    (0..n).map(|i| rows.iter().map(|row| row[i]).sum::<f64>() / 19.0).collect();
                for (pooling, want) in
                    [(Pooling::Mean, &mean), (Pooling::First, &rows[0]), (Pooling::Last, &rows[18])]
                {
                    let options = EmbedOptions::default()
                        .with_pooling(pooling)
                        .with_layer(layer)
                        .with_normalised(false);
                    let got = session.embed(&[TOKENS], &options).unwrap();
                    let want: Vec<f32> = want.iter().map(|&x| x as f32).collect();
                    let nmse = distance(&got[0], &want).nmse;
                    assert!(
                        nmse < 1e-11,
                        "{} on {name}, {pooling:?} {layer}: {nmse:.1e}",
                        shape.architecture
                    );
                }
            }
        }
    }
}
