//! Test cases of GATED_DELTA_NET.

use super::case::{Case, Fill};
use super::ssm_conv::leaf_of_runs;
use crate::dtype::DType;
use std::ops::Range;

/// Parameters of a case: extents of keys and values, runs, fills.
struct Recurrence {
    name: &'static str,
    key: [usize; 2],
    value: [usize; 2],
    tokens: usize,
    runs: Vec<[usize; 3]>,
    /// Tokens of each run that are no drafts.
    kept: &'static [usize],
    gate: Fill,
    beta: Fill,
    /// Elements of q, k and v with other values.
    patches: Vec<(Range<usize>, f32)>,
}

impl Recurrence {
    /// Creates a case with usual gates and betas.
    fn new(
        name: &'static str,
        key: [usize; 2],
        value: [usize; 2],
        tokens: usize,
        runs: Vec<[usize; 3]>,
    ) -> Recurrence {
        let (gate, beta) = (Fill::Uniform(-1.5, 0.0), Fill::Uniform(0.0, 1.0));
        Recurrence { name, key, value, tokens, runs, kept: &[], gate, beta, patches: Vec::new() }
    }
}

fn case(s: Recurrence) -> Case {
    let ([d_k, heads_k], [d_v, heads_v], tokens, slots) = (s.key, s.value, s.tokens, s.runs.len());
    let name = format!(
        "GATED_DELTA_NET({}: k=[{d_k}, {heads_k}], v=[{d_v}, {heads_v}], tokens={tokens}, slots={slots})",
        s.name
    );
    Case::new(name, |g, c| {
        // q, k and v are windows of one tensor, like the output of a convolution; keys have about unit
        // length.
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
        let runs = leaf_of_runs(g, c, &s.runs, s.kept)?;
        g.gated_delta_net(1.0 / (d_k as f32).sqrt(), [q, k, v, gate, beta, state, runs])
    })
}

/// Test cases: one token and prompts, heads in groups, keys and values of different and odd lengths, several
/// slots.
pub(super) fn cases() -> Vec<Case> {
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
    let drafts = |kept, s| case(Recurrence { kept, ..s });
    let with_drafts = vec![
        drafts(&[4], Recurrence::new("no draft", [64, 1], [64, 2], 4, one(4, 3))),
        drafts(&[1], Recurrence::new("two drafts of three", [128, 2], [128, 4], 3, one(3, 0))),
        drafts(&[0], Recurrence::new("drafts alone", [256, 1], [64, 1], 5, one(5, 2))),
        drafts(&[0], Recurrence::new("drafts alone, first", [32, 1], [40, 1], 2, one(2, 0))),
        drafts(&[7, 0, 25], {
            let runs = vec![[30, 10, 1], [0, 0, 9], [0, 30, 0]];
            Recurrence::new("drafts behind many tokens", [128, 1], [32, 2], 41, runs)
        }),
    ];
    [few, with_drafts, chunk_cases()].concat()
}

/// Cases about chunks of 32 tokens: runs that end before, at and after a chunk's end, gates that are closed
/// or open, tokens that write nothing.
fn chunk_cases() -> Vec<Case> {
    let runs = |tokens, position| vec![[0, tokens, position]];
    let usual = |name, key, value, tokens, runs| Recurrence::new(name, key, value, tokens, runs);
    let gates =
        |name, gate, beta| case(Recurrence { gate, beta, ..usual(name, [64, 1], [32, 2], 70, runs(70, 3)) });
    let beta = || Fill::Uniform(0.0, 1.0);
    let open = Fill::Uniform(-1.5, 0.0);
    // NaNs in a value of token 40, the query of 45 and the key of 50. They affect these tokens; the first and
    // the last also affect later tokens, the first in one column only.
    let nan = [40 * 192 + 128 + 37, 45 * 192 + 3, 50 * 192 + 64 + 3].map(|at| (at..at + 1, f32::NAN));
    let no_numbers = usual("no numbers", [64, 1], [32, 2], 70, runs(70, 3));
    // Two heads: some tokens forget everything, others nothing.
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
    use crate::precision::Precision;

    /// With beta 1, no decay and orthonormal keys, the state is a dictionary: a query returns the last value
    /// of its key.
    #[test]
    fn a_state_is_a_dictionary() {
        let case = Case::new("dictionary", |g, c| {
            let values = |v: &[f32]| Fill::Values(v.to_vec());
            // Tokens: key 0 = 5, key 1 = 7, key 0 = 9; the queries are keys 0, 0, 1.
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
