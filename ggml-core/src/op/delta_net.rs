//! GATED_DELTA_NET: linear attention whose state forgets and corrects itself.
//!
//! Source: Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (2024). Like in ggml the new
//! state comes behind the result; other than there sequences of a batch may have different lengths, and the state of a
//! head is `[key, value]` with the key's elements next to each other.

use super::ssm_conv::Tokens;
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The largest length of a key.
pub const MAX_KEY: usize = 256;

/// The recurrence. For each value head `h`, with the key head `h mod heads_k`, and each token of a sequence in turn:
///
/// ```text
/// S     = exp(g) S
/// S    += k (beta (v - S^T k))^T
/// out   = scale S^T q
/// ```
///
/// * `q`, `k`: F32 `[d_k, heads_k, tokens]`, rows contiguous, `d_k` at most [`MAX_KEY`]
/// * `v`: F32 `[d_v, heads_v, tokens]`, rows contiguous, `heads_k` divides `heads_v`
/// * `g`, `beta`: F32 `[heads_v, tokens]`, contiguous; `g` is at most 0
/// * `state`: F32 `[d_k, d_v, heads_v, slots]`, contiguous
/// * `runs`: I32 `[3, slots]`: see [`Tokens`]
///
/// Result: F32 `[d_v * heads_v, tokens + d_k * slots]`: a row for each token (zeros for tokens of no run), then the new state,
/// slot after slot, each laid out as in `state`. A run that begins at position 0 begins with a state of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatedDeltaNet {
    /// Factor of the result, usually `1 / sqrt(d_k)`.
    #[serde(with = "super::lossless")]
    pub scale: f32,
}

impl Operation for GatedDeltaNet {
    fn name(&self) -> &'static str {
        "GATED_DELTA_NET"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 7, 7)?;
        let (q, k, v, g, beta, state) = (src[0], src[1], src[2], src[3], src[4], src[5]);
        for (t, role) in [(q, "q"), (k, "k"), (v, "v"), (g, "g"), (beta, "beta"), (state, "state")] {
            typed(t, &[DType::F32], role)?;
        }
        let slots = Tokens::slots(src[6])?;
        let ([d_k, heads_k, tokens, _], [d_v, heads_v, ..]) = (q.ne, v.ne);
        rule(q.ne == k.ne && q.ne[3] == 1, || "q and k must be [d_k, heads_k, tokens]".into())?;
        rule(v.ne[2] == tokens && v.ne[3] == 1, || "v must be [d_v, heads_v, tokens]".into())?;
        rule(d_k <= MAX_KEY, || format!("keys have {d_k} elements, at most {MAX_KEY} are possible"))?;
        rule(heads_k > 0 && heads_v % heads_k == 0, || "the heads of k must divide those of v".into())?;
        rule([q, k, v].iter().all(|t| t.rows_contiguous()), || "rows must be contiguous".into())?;
        for t in [g, beta] {
            let right = t.ne == [heads_v, tokens, 1, 1] && t.is_contiguous();
            rule(right, || "g and beta must be [heads_v, tokens], contiguous".into())?;
        }
        rule(state.ne == [d_k, d_v, heads_v, slots] && state.is_contiguous(), || {
            "state must be [d_k, d_v, heads_v, slots], contiguous".into()
        })?;
        Ok(Output::new(DType::F32, [d_v * heads_v, tokens + d_k * slots, 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (q, k, v, g, beta, state) = (&src[0], &src[1], &src[2], &src[3], &src[4], &src[5]);
        let ([d_k, heads_k, tokens, _], [d_v, heads_v, ..]) = (q.ne, v.ne);
        for t in 0..tokens {
            (0..d_v * heads_v).for_each(|i| out.set([i, t, 0, 0], 0.0));
        }
        for slot in 0..state.ne[3] {
            let run = Tokens::read(&src[6], slot, tokens);
            let keep = run.count == 0 || run.position > 0;
            for h in 0..heads_v {
                for j in 0..d_v {
                    let mut s = state.row([j, h, slot])?;
                    if !keep {
                        s.fill(0.0);
                    }
                    for t in run.first..run.first + run.count {
                        let (key, query) = (k.row([h % heads_k, t, 0])?, q.row([h % heads_k, t, 0])?);
                        let decay = g.at([h, t, 0, 0]).exp();
                        s.iter_mut().for_each(|x| *x *= decay);
                        let known: f64 = s.iter().zip(&key).map(|(x, k)| x * k).sum();
                        let delta = beta.at([h, t, 0, 0]) * (v.at([j, h, t, 0]) - known);
                        s.iter_mut().zip(&key).for_each(|(x, k)| *x += k * delta);
                        let sum: f64 = s.iter().zip(&query).map(|(x, q)| x * q).sum();
                        out.set([h * d_v + j, t, 0, 0], sum * f64::from(self.scale));
                    }
                    for (i, x) in s.into_iter().enumerate() {
                        let at = i + d_k * (j + d_v * h);
                        out.set([at % (d_v * heads_v), tokens + d_k * slot + at / (d_v * heads_v), 0, 0], x);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A case: extents of keys and values, and the runs.
struct Recurrence {
    name: &'static str,
    key: [usize; 2],
    value: [usize; 2],
    tokens: usize,
    runs: Vec<[usize; 3]>,
    gate: Fill,
    beta: Fill,
    /// Elements of q, k and v with values of their own.
    patches: Vec<(Range<usize>, f32)>,
}

impl Recurrence {
    /// With usual gates and betas.
    fn new(
        name: &'static str,
        key: [usize; 2],
        value: [usize; 2],
        tokens: usize,
        runs: Vec<[usize; 3]>,
    ) -> Recurrence {
        let (gate, beta) = (Fill::Uniform(-1.5, 0.0), Fill::Uniform(0.0, 1.0));
        Recurrence { name, key, value, tokens, runs, gate, beta, patches: Vec::new() }
    }
}

fn case(s: Recurrence) -> Case {
    let ([d_k, heads_k], [d_v, heads_v], tokens, slots) = (s.key, s.value, s.tokens, s.runs.len());
    let name = format!(
        "GATED_DELTA_NET({}: k=[{d_k}, {heads_k}], v=[{d_v}, {heads_v}], tokens={tokens}, slots={slots})",
        s.name
    );
    Case::new(name, |g, c| {
        // q, k and v are windows of one tensor, as a convolution gives them; keys have about the length of one.
        let row = 2 * d_k * heads_k + d_v * heads_v;
        let bound = 1.7 / (d_k as f32).sqrt();
        let all =
            c.leaf(g, "qkv", DType::F32, [row, tokens, 1, 1], Fill::Uniform(-bound, bound).but(s.patches))?;
        let mut window = |d: usize, heads: usize, first: usize| {
            g.view(all, [d, heads, tokens, 1], [4, 4 * d, 4 * row, 4 * row * tokens], 4 * first)
        };
        let q = window(d_k, heads_k, 0)?;
        let k = window(d_k, heads_k, d_k * heads_k)?;
        let v = window(d_v, heads_v, 2 * d_k * heads_k)?;
        let gate = c.leaf(g, "g", DType::F32, [heads_v, tokens, 1, 1], s.gate)?;
        let beta = c.leaf(g, "beta", DType::F32, [heads_v, tokens, 1, 1], s.beta)?;
        let state = c.leaf(g, "state", DType::F32, [d_k, d_v, heads_v, slots], Fill::Uniform(-0.1, 0.1))?;
        let values = Fill::Values(s.runs.iter().flatten().map(|&n| n as f32).collect());
        let runs = c.leaf(g, "runs", DType::I32, [3, slots, 1, 1], values)?;
        g.gated_delta_net(1.0 / (d_k as f32).sqrt(), [q, k, v, gate, beta, state, runs])
    })
}

/// Test cases: one token and prompts, heads in groups, keys and values of different and odd lengths, several slots.
pub fn cases() -> Vec<Case> {
    let one = |tokens, position| vec![[0, tokens, position]];
    let shape = |name, key, value, tokens, runs| case(Recurrence::new(name, key, value, tokens, runs));
    let few = vec![
        shape("one token, going on", [64, 2], [64, 4], 1, one(1, 5)),
        shape("one token, first", [128, 1], [128, 2], 1, one(1, 0)),
        shape("a prompt", [64, 2], [64, 2], 23, one(23, 0)),
        shape("a prompt that goes on", [128, 2], [128, 4], 9, one(9, 100)),
        shape("short keys", [32, 1], [48, 3], 6, one(6, 2)),
        shape("odd lengths", [20, 2], [7, 2], 5, one(5, 1)),
        shape("long keys", [256, 1], [64, 1], 4, one(4, 3)),
        shape("several slots", [32, 2], [32, 4], 9, vec![[5, 2, 1], [0, 0, 9], [0, 5, 0], [7, 1, 40]]),
    ];
    [few, chunk_cases()].concat()
}

/// Cases about chunks of 32 tokens: runs that end before, with and behind one, gates that are closed or open, tokens that
/// write nothing.
fn chunk_cases() -> Vec<Case> {
    let runs = |tokens, position| vec![[0, tokens, position]];
    let usual = |name, key, value, tokens, runs| Recurrence::new(name, key, value, tokens, runs);
    let gates =
        |name, gate, beta| case(Recurrence { gate, beta, ..usual(name, [64, 1], [32, 2], 70, runs(70, 3)) });
    let beta = || Fill::Uniform(0.0, 1.0);
    let open = Fill::Uniform(-1.5, 0.0);
    // No numbers in a value of token 40, the query of 45 and the key of 50: seen by these tokens, the first one and the last
    // one also by later ones, the first one in one column alone.
    let nan = [40 * 192 + 128 + 37, 45 * 192 + 3, 50 * 192 + 64 + 3].map(|at| (at..at + 1, f32::NAN));
    let no_numbers = usual("no numbers", [64, 1], [32, 2], 70, runs(70, 3));
    // Of two heads: some tokens forget everything, some of them nothing.
    let closed =
        [(10..12, f32::NEG_INFINITY), (62..68, f32::NEG_INFINITY), (100..101, -1e30), (101..110, 0.0)];
    vec![
        case(usual("a chunk but one", [128, 1], [128, 1], 31, runs(31, 4))),
        case(usual("a chunk", [64, 1], [64, 2], 32, runs(32, 0))),
        case(usual("a chunk and one", [128, 1], [64, 2], 33, runs(33, 0))),
        case(usual("two chunks and three", [128, 2], [128, 2], 67, runs(67, 9))),
        case(usual("many chunks", [128, 1], [32, 2], 200, runs(200, 1))),
        case(usual("chunks of short keys", [20, 1], [7, 3], 67, runs(67, 2))),
        case(usual("chunks of odd keys", [99, 2], [18, 2], 40, runs(40, 2))),
        case(usual("chunks of long keys", [192, 1], [16, 1], 40, runs(40, 2))),
        case(usual("chunks of two sequences", [128, 1], [48, 2], 111, vec![[42, 65, 7], [3, 37, 0]])),
        case(usual(
            "one run of many",
            [64, 1],
            [16, 1],
            80,
            vec![[0, 0, 3], [2, 1, 5], [4, 76, 1], [80, 0, 0]],
        )),
        gates("closed gates", Fill::Values(vec![f32::NEG_INFINITY]), beta()),
        gates("open gates", Fill::Values(vec![0.0]), beta()),
        gates("closed and open gates", open.clone().but(closed), beta()),
        gates("nearly closed gates", Fill::Uniform(-90.0, -60.0), beta()),
        gates("nothing is written", open.clone(), Fill::Values(vec![0.0])),
        gates("all is written", open, Fill::Values(vec![1.0])),
        case(Recurrence { patches: nan.to_vec(), ..no_numbers }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Precision;

    /// With beta 1, no decay and orthonormal keys the state is a dictionary: a query returns the last value of its key.
    #[test]
    fn a_state_is_a_dictionary() {
        let case = Case::new("dictionary", |g, c| {
            let values = |v: &[f32]| Fill::Values(v.to_vec());
            // Tokens: key 0 = 5, key 1 = 7, key 0 = 9; queries ask for key 0, 0, 1.
            let q = c.leaf(g, "q", DType::F32, [2, 1, 3, 1], values(&[1.0, 0.0, 1.0, 0.0, 0.0, 1.0]))?;
            let k = c.leaf(g, "k", DType::F32, [2, 1, 3, 1], values(&[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]))?;
            let v = c.leaf(g, "v", DType::F32, [1, 1, 3, 1], values(&[5.0, 7.0, 9.0]))?;
            let gate = c.leaf(g, "g", DType::F32, [1, 3, 1, 1], values(&[0.0]))?;
            let beta = c.leaf(g, "beta", DType::F32, [1, 3, 1, 1], values(&[1.0]))?;
            let state = c.leaf(g, "state", DType::F32, [2, 1, 1, 1], values(&[100.0]))?;
            let runs = c.leaf(g, "runs", DType::I32, [3, 1, 1, 1], values(&[0.0, 3.0, 0.0]))?;
            g.gated_delta_net(1.0, [q, k, v, gate, beta, state, runs])
        });
        let backend = crate::reference::ReferenceBackend::default();
        let got = crate::catalogue::run(&case, &backend, Precision::Exact).unwrap();
        assert_eq!(got, crate::catalogue::Outcome::Values(vec![5.0, 5.0, 7.0, 9.0, 7.0]));
    }
}
