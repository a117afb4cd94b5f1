//! Cases of operations with a state and the nodes around them.

use super::{UNIT, case};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::Activation;

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    [convolutions(), deltas()].concat()
}

/// Cases with one to three slots. Each shape: true to compare the state instead of the rows; channels,
/// tokens, taps, true for a bias, the rows of the runs, and the runs.
fn convolutions() -> Vec<Case> {
    let shapes = [
        (false, 66, 1, 4, false, 3, vec![0.0, 1.0, 7.0]),
        (true, 66, 1, 4, false, 3, vec![0.0, 1.0, 7.0]),
        (false, 300, 5, 4, true, 3, vec![0.0, 2.0, 9.0, 3.0, 2.0, 0.0]),
        (true, 300, 5, 4, true, 3, vec![0.0, 2.0, 9.0, 3.0, 2.0, 0.0]),
        (true, 33, 8, 8, true, 3, vec![0.0, 0.0, 4.0, 1.0, 7.0, 3.0]),
        (true, 33, 3, 2, false, 3, vec![2.0, 1.0, 0.0, 0.0, 2.0, 1.0]),
        // Prompts: runs that begin at the end of a thread's tokens, and tokens of no run.
        (false, 70, 45, 4, true, 3, vec![0.0, 45.0, 2.0]),
        (true, 70, 45, 4, true, 3, vec![0.0, 45.0, 2.0]),
        (false, 40, 39, 8, false, 3, vec![0.0, 7.0, 3.0, 7.0, 30.0, 0.0]),
        (true, 40, 39, 8, false, 3, vec![0.0, 7.0, 3.0, 7.0, 30.0, 0.0]),
        (false, 40, 30, 3, true, 3, vec![6.0, 23.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.0, 1.0]),
        // Drafts, behind which the state is not stored.
        (true, 66, 3, 4, false, 4, vec![0.0, 3.0, 7.0, 1.0]),
        (false, 66, 3, 4, false, 4, vec![0.0, 3.0, 7.0, 1.0]),
        (true, 300, 21, 4, true, 4, vec![4.0, 17.0, 1.0, 13.0, 0.0, 4.0, 0.0, 0.0]),
    ];
    type Shape = (bool, usize, usize, usize, bool, usize, Vec<f32>);
    let build = |(of_state, channels, tokens, taps, biased, fields, runs): Shape| {
        let (slots, words) = (runs.len() / fields, if of_state { "state" } else { "rows" });
        let what = format!(
            "{words}, {channels} channels, {tokens} tokens, {taps} taps, bias={biased}, {slots} slots{}",
            if fields > 3 { ", drafts" } else { "" }
        );
        case("conv", what, move |p| {
            // Part of wider rows.
            let wide = p.plain("x", &[channels + 7, tokens])?;
            let row = 4 * (channels + 7);
            let x = p.g.view(wide, [channels, tokens, 1, 1], [4, row, row * tokens, row * tokens], 8)?;
            let w = p.plain("w", &[taps, channels])?;
            let state = p.c.state(p.g, "state", DType::F32, [channels, taps - 1, slots, 1], UNIT)?;
            let runs = p.leaf("runs", DType::I32, &[fields, slots], Fill::Values(runs))?;
            let both = p.g.ssm_conv(x, w, state, runs)?;
            let (row, behind) = (4 * channels, (taps - 1) * slots);
            let tail =
                p.g.view(both, [channels, behind, 1, 1], [4, row, row * behind, row * behind], row * tokens)?;
            let tail = p.g.reshape(tail, [channels, taps - 1, slots, 1])?;
            let kept = p.g.cpy(tail, state)?;
            let rows = p.g.view(both, [channels, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)?;
            let sum = if biased {
                let b = p.leaf("b", DType::F32, &[channels], UNIT)?;
                p.g.add(rows, b)?
            } else {
                rows
            };
            let rows = p.g.unary(Activation::Silu, sum)?;
            Ok(if of_state { kept } else { rows })
        })
    };
    shapes.into_iter().map(build).collect()
}

/// Cases with queries and keys from one tensor, like the output of a convolution.
fn deltas() -> Vec<Case> {
    let shapes = [
        (128, 2, 4, 96, 1, None),
        (64, 1, 3, 40, 5, None),
        (100, 2, 2, 33, 3, None),
        (128, 2, 4, 64, 4, Some(2)),
        (64, 1, 2, 64, 20, Some(17)),
    ];
    // Each with and without the nodes of decays and betas; the result is the state that replaces the old one, or the node's.
    // Keys of other lengths than a power of two are fused with their norms only.
    let forms = [[false, false], [true, false], [true, true]];
    let fits = |d: usize, gates: bool| !gates || d.is_power_of_two();
    let all = shapes.into_iter().flat_map(|shape| forms.map(|form| (shape, form)));
    let all = all.filter(|(shape, [gates, _])| fits(shape.0, *gates));
    type Shape = (usize, usize, usize, usize, usize, Option<usize>);
    let build = |((d, heads_k, heads, d_v, tokens, no_drafts), [gates, of_state]): (Shape, [bool; 2])| {
        let drafts = no_drafts.map_or(String::new(), |kept| format!(", {} of them drafts", tokens - kept));
        let form = match (gates, of_state) {
            (_, true) => ", gates, state",
            (true, false) => ", gates",
            (false, false) => "",
        };
        let what = format!("d={d}, heads={heads_k}, {heads} of {d_v}, tokens={tokens}{drafts}{form}");
        case("delta", what, move |p| {
            let row = 4 * (2 * heads_k * d + 16);
            let wide = p.plain("qk", &[row / 4, tokens])?;
            let x = p.g.view(wide, [d, 2 * heads_k, tokens, 1], [4, 4 * d, row, row * tokens], 16)?;
            let normed = p.g.rms_norm(x, 1e-6)?;
            let unit = p.g.scale(normed, 1.0 / (d as f32).sqrt(), 0.0)?;
            let strides = [4, 4 * d, 8 * d * heads_k, 8 * d * heads_k * tokens];
            let part = |g: &mut Graph, at| g.view(unit, [d, heads_k, tokens, 1], strides, at);
            let (q, k) = (part(p.g, 0)?, part(p.g, 4 * d * heads_k)?);
            let v = p.plain("v", &[d_v, heads, tokens])?;
            let mut g = p.leaf("g", DType::F32, &[heads, tokens], Fill::Uniform(-2.0, 0.0))?;
            let mut beta = p.leaf("beta", DType::F32, &[heads, tokens], Fill::Uniform(0.0, 1.0))?;
            if gates {
                let factor = p.leaf("factor", DType::F32, &[heads], Fill::Uniform(-1.0, 0.0))?;
                let step = p.g.unary(Activation::Softplus, g)?;
                (g, beta) = (p.g.mul(step, factor)?, p.g.unary(Activation::Sigmoid, beta)?);
            }
            let state = match of_state {
                true => p.c.state(p.g, "state", DType::F32, [d, d_v, heads, 1], UNIT)?,
                false => p.plain("state", &[d, d_v, heads, 1])?,
            };
            let run: Vec<f32> = [0, tokens, 3].into_iter().chain(no_drafts).map(|n| n as f32).collect();
            let runs = p.leaf("runs", DType::I32, &[run.len(), 1], Fill::Values(run))?;
            let net = p.g.gated_delta_net(0.5, [q, k, v, g, beta, state, runs])?;
            if !of_state {
                return Ok(net);
            }
            let row = 4 * d_v * heads;
            let ne = [d_v * heads, d, 1, 1];
            let tail = p.g.view(net, ne, [4, row, row * d, row * d], row * tokens)?;
            let tail = p.g.reshape(tail, [d, d_v, heads, 1])?;
            p.g.cpy(tail, state)
        })
    };
    all.map(build).collect()
}
