//! Test cases of ROPE.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::{Rope, RopeMode};

/// Test cases: both modes, partial rotation, factors, YaRN, far positions, strides.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, op: Rope, ne: [usize; 4], first: f32, factors: bool| {
        cases.push(Case::new(
            format!("ROPE({name}, {:?}, {ne:?}, n_dims={})", op.mode, op.n_dims),
            |g, c| {
                let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-1.0, 1.0))?;
                let positions = (0..ne[2]).map(|t| first + 3.0 * t as f32).collect();
                let positions =
                    c.leaf(g, "positions", DType::I32, [ne[2], 1, 1, 1], Fill::Values(positions))?;
                let factors = match factors {
                    true => Some(c.leaf(
                        g,
                        "factors",
                        DType::F32,
                        [op.n_dims / 2, 1, 1, 1],
                        Fill::Uniform(1.0, 32.0),
                    )?),
                    false => None,
                };
                g.rope(op, x, positions, factors)
            },
        ));
    };
    for mode in [RopeMode::Normal, RopeMode::Neox] {
        add("plain", Rope::plain(mode, 64, 10000.0), [64, 4, 5, 1], 0.0, false);
        add("plain", Rope::plain(mode, 128, 500000.0), [128, 3, 7, 2], 100.0, false);
        add("partial", Rope::plain(mode, 48, 10000.0), [80, 2, 3, 1], 7.0, false);
        add("factors", Rope::plain(mode, 32, 500000.0), [32, 4, 9, 1], 50.0, true);
        add("far", Rope::plain(mode, 64, 10000.0), [64, 2, 4, 1], 131000.0, false);
        let yarn =
            Rope { n_ctx_orig: 4096, freq_scale: 0.25, ext_factor: 1.0, ..Rope::plain(mode, 64, 10000.0) };
        add("yarn", yarn, [64, 2, 6, 1], 9000.0, false);
        let linear = Rope { freq_scale: 0.5, attn_factor: 1.25, ..Rope::plain(mode, 64, 10000.0) };
        add("linear", linear, [64, 2, 6, 1], 11.0, false);
    }
    cases.push(Case::new("ROPE(window of a fused tensor)", |g, c| {
        let x = c.leaf(g, "x", DType::F32, [64 * 6, 5, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let x = g.view(x, [64, 2, 5, 1], [4, 256, 1536, 7680], 512)?;
        let positions = c.leaf(g, "positions", DType::I32, [5, 1, 1, 1], Fill::Ids(5000))?;
        g.rope(Rope::plain(RopeMode::Neox, 64, 10000.0), x, positions, None)
    }));
    cases
}
