//! Test cases of SSM_CONV.

use super::case::{Case, CaseBuilder, Fill};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Test cases: one token and many, runs shorter than the taps, several slots with and without tokens, first positions.
pub(super) fn cases() -> Vec<Case> {
    let one = |tokens, position| vec![[0, tokens, position]];
    let mixed = vec![[5, 2, 1], [0, 0, 9], [0, 5, 0], [7, 1, 40]];
    let cases = [
        ("one token, going on", 96, 4, 1, one(1, 17)),
        ("one token, first", 33, 4, 1, one(1, 0)),
        ("two tokens from position 1", 64, 4, 2, one(2, 1)),
        ("a prompt", 130, 4, 37, one(37, 0)),
        ("a prompt that goes on", 512, 4, 9, one(9, 64)),
        ("two taps", 40, 2, 5, one(5, 3)),
        ("several slots", 70, 4, 8, mixed.clone()),
        ("a token of no run", 70, 4, 9, mixed),
    ];
    let build = |(name, channels, taps, tokens, runs): Convolution, kept: &'static [usize]| {
        Case::new(format!("SSM_CONV({name}: channels={channels}, taps={taps}, tokens={tokens})"), |g, c| {
            let slots = runs.len();
            let x = c.leaf(g, "x", DType::F32, [channels, tokens, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let w = c.leaf(g, "w", DType::F32, [taps, channels, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let state = [channels, taps - 1, slots, 1];
            let state = c.leaf(g, "state", DType::F32, state, Fill::Uniform(-1.0, 1.0))?;
            let runs = leaf_of_runs(g, c, &runs, kept)?;
            g.ssm_conv(x, w, state, runs)
        })
    };
    let drafts: [(Convolution, &[usize]); 4] = [
        (("no draft", 64, 4, 2, one(2, 9)), &[2]),
        (("two drafts of three", 130, 4, 3, one(3, 1)), &[1]),
        (("drafts alone", 96, 4, 5, one(5, 2)), &[0]),
        (("drafts of some slots", 70, 4, 20, vec![[12, 8, 1], [0, 0, 9], [0, 11, 0]]), &[7, 0, 9]),
    ];
    let plain = cases.into_iter().map(|case| build(case, &[]));
    plain.chain(drafts.map(|(case, kept)| build(case, kept))).collect()
}

/// Name, channels, taps, tokens, runs.
type Convolution = (&'static str, usize, usize, usize, Vec<[usize; 3]>);

/// Creates the operand `runs`. `kept`: the tokens of each run that are no drafts; none if it has no such row.
pub(super) fn leaf_of_runs(
    g: &mut Graph,
    c: &mut CaseBuilder,
    runs: &[[usize; 3]],
    kept: &[usize],
) -> Result<TensorId> {
    let fields = if kept.is_empty() { 3 } else { 4 };
    let values = runs.iter().enumerate().flat_map(|(slot, run)| run.iter().chain(kept.get(slot)));
    let values = Fill::Values(values.map(|&n| n as f32).collect());
    c.leaf(g, "runs", DType::I32, [fields, runs.len(), 1, 1], values)
}
