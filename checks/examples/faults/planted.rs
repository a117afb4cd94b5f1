//! The faults: what each of them does to the result of a node.

use diptych::ggml::encode::encode;
use diptych::ggml::{DType, decode::decode};

/// Runs in which a fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Whenever the node is computed.
    Always,
    /// When it is computed in a group.
    Grouped,
    /// In the program that ships, not when steps are run one by one.
    Shipped,
    /// In the program that ships, in `fast` only: neither single nodes nor `exact` have it.
    ShippedFast,
}

/// Result of a node, of which the elements may be changed.
pub(crate) struct Result<'a> {
    /// Elements; those of a cache in F16, others as they are.
    pub(crate) values: &'a mut [f32],
    /// Extents.
    pub(crate) ne: [usize; 4],
    /// Elements before the node was computed, for nodes that write into an operand.
    pub(crate) before: &'a [f32],
    /// Elements of the same node in the run before, if there was one.
    pub(crate) earlier: Option<&'a [f32]>,
}

/// A fault.
pub(crate) struct Fault {
    /// Name.
    pub(crate) name: &'static str,
    /// Operations and parts of names of the nodes of layer 1 that have it; the first that a graph has is taken.
    pub(crate) nodes: &'static [(&'static str, &'static str)],
    /// Runs in which it shows.
    pub(crate) when: When,
    /// Changes a result.
    pub(crate) plant: fn(&mut Result<'_>),
}

/// All faults.
pub(crate) const FAULTS: &[Fault] = &[
    Fault { name: "zeros", nodes: DOWN, when: When::Always, plant: |r| r.values.fill(0.0) },
    Fault {
        name: "one NaN",
        nodes: DOWN,
        when: When::Always,
        plant: |r| r.values[r.values.len() / 2] = f32::NAN,
    },
    Fault { name: "last row", nodes: DOWN, when: When::Always, plant: |r| last_row(r).fill(0.0) },
    Fault { name: "edge of a tile", nodes: DOWN, when: When::Always, plant: edge },
    Fault { name: "one column", nodes: DOWN, when: When::Always, plant: column },
    Fault { name: "stale result", nodes: RESIDUAL, when: When::Shipped, plant: stale },
    Fault { name: "missing barrier", nodes: RESIDUAL, when: When::Shipped, plant: half_stale },
    Fault { name: "missing barrier of fast", nodes: RESIDUAL, when: When::ShippedFast, plant: partly_stale },
    Fault { name: "wrong member of a group", nodes: GLU, when: When::Grouped, plant: scaled },
    Fault { name: "swapped heads", nodes: ATTENTION, when: When::Always, plant: swapped },
    Fault { name: "F16 storage", nodes: RESIDUAL, when: When::Always, plant: halves },
    Fault { name: "TF32", nodes: ROUTER_OR_NORM, when: When::Always, plant: tf32 },
    Fault { name: "cache off by one row", nodes: CACHE, when: When::Always, plant: shifted },
    Fault {
        name: "order of top-k",
        nodes: TOP_K,
        when: When::Always,
        plant: |r| rows(r).for_each(|row| row.swap(0, 1)),
    },
    Fault { name: "wrong expert", nodes: TOP_K, when: When::Always, plant: other_expert },
    Fault { name: "clipped at F16", nodes: GLU, when: When::Always, plant: clipped },
];

const DOWN: &[(&str, &str)] = &[("MUL_MAT", "ffn_down"), ("MUL_MAT_ID", "down")];
const RESIDUAL: &[(&str, &str)] = &[("ADD", "attn_residual"), ("ADD", "residual")];
const GLU: &[(&str, &str)] = &[("SWIGLU", ""), ("GEGLU", ""), ("SWIGLU_OAI", "")];
const ATTENTION: &[(&str, &str)] = &[("FLASH_ATTN_EXT", ""), ("GATED_DELTA_NET", "")];
const ROUTER_OR_NORM: &[(&str, &str)] = &[("MUL_MAT", "router"), ("MUL", "ffn_norm"), ("MUL", "norm")];
const CACHE: &[(&str, &str)] = &[("SET_ROWS", "k.cache"), ("SET_ROWS", "")];
const TOP_K: &[(&str, &str)] = &[("TOP_K", "")];

fn rows<'a>(r: &'a mut Result<'_>) -> impl Iterator<Item = &'a mut [f32]> {
    r.values.chunks_mut(r.ne[0])
}

fn last_row<'a>(r: &'a mut Result<'_>) -> &'a mut [f32] {
    let begin = r.values.len() - r.ne[0];
    &mut r.values[begin..]
}

/// Leaves the last sixteen elements of every row as they were: zero.
fn edge(r: &mut Result<'_>) {
    rows(r).for_each(|row| {
        let begin = row.len() - 16;
        row[begin..].fill(0.0);
    });
}

fn column(r: &mut Result<'_>) {
    let of_row = |row: &mut [f32]| {
        let rms = (row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32).sqrt();
        row[3] += rms;
    };
    rows(r).for_each(of_row);
}

/// Puts the run before in the place of this one.
fn stale(r: &mut Result<'_>) {
    if let Some(earlier) = r.earlier {
        let count = earlier.len().min(r.values.len());
        r.values[..count].copy_from_slice(&earlier[earlier.len() - count..]);
    }
}

fn half_stale(r: &mut Result<'_>) {
    if let Some(earlier) = r.earlier {
        let count = (r.ne[0] / 2).min(earlier.len());
        r.values[..count].copy_from_slice(&earlier[earlier.len() - count..]);
    }
}

/// Mixes a little of the run before into this one: by the distance of its logits this could be rounding.
fn partly_stale(r: &mut Result<'_>) {
    let earlier = r.earlier.unwrap_or_default();
    let count = earlier.len().min(r.values.len());
    let mixed = r.values.iter_mut().zip(&earlier[earlier.len() - count..]);
    mixed.for_each(|(x, old)| *x += 0.25 * (old - *x));
}

fn scaled(r: &mut Result<'_>) {
    r.values.iter_mut().for_each(|x| *x *= 1.25);
}

fn swapped(r: &mut Result<'_>) {
    let (n, heads) = (r.ne[0], r.ne[1]);
    for token in r.values.chunks_mut(n * heads) {
        let (first, second) = token.split_at_mut(n);
        first.swap_with_slice(&mut second[..n]);
    }
}

fn halves(r: &mut Result<'_>) {
    let bytes = encode(DType::F16, r.values.len(), r.values).expect("F16 has an encoder");
    r.values.copy_from_slice(&decode(DType::F16, &bytes).expect("and a decoder"));
}

/// Rounds to the 11 significant bits of a matrix unit's F32.
fn tf32(r: &mut Result<'_>) {
    r.values.iter_mut().for_each(|x| *x = f32::from_bits((x.to_bits() + 0x1000) & !0x1fff));
}

/// Moves the last row that was written to the row after it.
fn shifted(r: &mut Result<'_>) {
    let n = r.ne[0];
    let written = |i: &usize| r.values[i * n..(i + 1) * n] != r.before[i * n..(i + 1) * n];
    let Some(row) = (0..r.values.len() / n).rev().find(written) else { return };
    let next = if (row + 2) * n <= r.values.len() { row + 1 } else { row - 1 };
    r.values.copy_within(row * n..(row + 1) * n, next * n);
    r.values[row * n..(row + 1) * n].copy_from_slice(&r.before[row * n..(row + 1) * n]);
}

/// Takes an expert that was not chosen.
fn other_expert(r: &mut Result<'_>) {
    rows(r).for_each(|row| {
        let free = (0..).map(|id| id as f32).find(|id| !row.contains(id)).unwrap_or_default();
        row[0] = free;
    });
}

/// Clips at the largest value of F16.
fn clipped(r: &mut Result<'_>) {
    r.values.iter_mut().for_each(|x| *x = x.clamp(-65504.0, 65504.0));
}
