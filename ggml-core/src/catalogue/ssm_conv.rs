//! Test cases of SSM_CONV.

use super::case::{Case, Fill};
use crate::dtype::DType;

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
    let build = |(name, channels, taps, tokens, runs): (&str, usize, usize, usize, Vec<[usize; 3]>)| {
        Case::new(format!("SSM_CONV({name}: channels={channels}, taps={taps}, tokens={tokens})"), |g, c| {
            let slots = runs.len();
            let x = c.leaf(g, "x", DType::F32, [channels, tokens, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let w = c.leaf(g, "w", DType::F32, [taps, channels, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let state = [channels, taps - 1, slots, 1];
            let state = c.leaf(g, "state", DType::F32, state, Fill::Uniform(-1.0, 1.0))?;
            let values = Fill::Values(runs.iter().flatten().map(|&n| n as f32).collect());
            let runs = c.leaf(g, "runs", DType::I32, [3, slots, 1, 1], values)?;
            g.ssm_conv(x, w, state, runs)
        })
    };
    cases.into_iter().map(build).collect()
}
