//! Test cases of CACHE_MASK.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::error::Error;
use crate::op::CacheMask;

/// Contents of `n` cells, some of them free: positions, then words of sequences. The sequences are interleaved in
/// groups of five. One cell in seven is held by all of them, as those of a shared prefix are.
fn cells(n: usize, sequences: usize) -> Fill {
    let words = CacheMask::words(sequences);
    let mut lengths = vec![0; sequences];
    let (mut at, mut holders) = (Vec::new(), vec![0u32; n * words]);
    for i in 0..n {
        let sequence = i / 5 % sequences;
        let free = i % 11 == 7;
        let held = if i % 7 == 3 { 0..sequences } else { sequence..sequence + 1 };
        for [word, bit] in held.filter(|_| !free).map(CacheMask::place) {
            holders[word * n + i] |= 1 << bit;
        }
        at.push(if free { -1.0 } else { lengths[sequence] as f32 });
        lengths[sequence] += usize::from(!free);
    }
    at.extend(holders.into_iter().map(|word| word as i32 as f32));
    Fill::Values(at)
}

/// Contents of `n` tokens: sequences, then positions. Tokens lie from the beginning of their sequence to
/// beyond its end; some belong to none and see nothing.
fn tokens(n: usize, sequences: usize, positions: usize) -> Fill {
    let of = (0..n).map(|i| if i % 6 == 4 { -1.0 } else { (i % sequences) as f32 });
    let at = (0..n).map(|i| (i * positions / n + i % 3) as f32);
    Fill::Values(of.chain(at).collect())
}

/// Test cases: one cell, rows of whole words and others, one sequence and several, all kinds of windows,
/// positions at the ends of their range and below it, operands inside larger tensors.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, op: CacheMask, [kv, n]: [usize; 2], fills: [Fill; 2]| {
        let (causal, chunks) =
            (if op.causal { ", causal" } else { "" }, if op.chunked { " in chunks" } else { "" });
        let window = op.window.map_or(String::new(), |size| format!(", window={size}{chunks}"));
        cases.push(Case::new(format!("CACHE_MASK({name}kv={kv}, tokens={n}{causal}{window})"), |g, c| {
            let [cells, tokens] = fills;
            let Fill::Values(values) = &cells else { return Err(Error::argument("cells", "no values", "")) };
            let fields = values.len() / kv;
            let cells = c.leaf(g, "cells", DType::I32, [kv, fields, 1, 1], cells)?;
            let tokens = c.leaf(g, "tokens", DType::I32, [n, 2, 1, 1], tokens)?;
            g.cache_mask(op, cells, tokens)
        }));
    };
    for (kv, n, sequences) in [
        (1, 1, 1),
        (8, 3, 1),
        (37, 5, 2),
        (256, 33, 3),
        (1032, 9, 1),
        (2050, 4, 4),
        (200, 70, 33),
        (203, 9, 65),
    ] {
        for causal in [true, false] {
            for (window, chunked) in [(None, false), (Some(7), false), (Some(16), true)] {
                let op = CacheMask { causal, window, chunked };
                add(String::new(), op, [kv, n], [cells(kv, sequences), tokens(n, sequences, kv / sequences)]);
            }
        }
    }
    // The positions nearest to the largest I32 that F32 can represent, and a token that sees nothing.
    let largest = 2_147_483_520.0;
    let places = vec![
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
        -1.0,
        -3.0,
        3.0,
        largest,
        largest - 128.0,
        0.0,
        1.0,
        -1.0,
        -1.0,
        -3.0,
        1.0,
    ];
    for causal in [true, false] {
        let windows = [None, Some(1), Some(129), Some(1 << 31), Some(usize::MAX)];
        let windows = windows.into_iter().map(|window| (window, false));
        let chunks = [1, 128, 3_000_000_000].map(|size| (Some(size), true));
        for (window, chunked) in windows.chain(chunks) {
            // As tokens: sequences, then positions. As cells: positions, then the sequences as bits.
            let (sequences, positions) = places.split_at(8);
            let holders = sequences.iter().map(|&x| if x < 0.0 { 0.0 } else { 1.0 });
            let held = positions.iter().copied().chain(holders).collect();
            let fills = [Fill::Values(held), Fill::Values(places.clone())];
            add("largest positions, ".into(), CacheMask { causal, window, chunked }, [8, 8], fills);
        }
    }
    let op = CacheMask { causal: true, window: None, chunked: false };
    cases.push(Case::new("CACHE_MASK(window)", |g, c| {
        let all = c.leaf(g, "cells", DType::I32, [100, 1, 1, 1], cells(50, 2))?;
        let cells = g.view(all, [48, 2, 1, 1], [4, 192, 384, 384], 12)?;
        let all = c.leaf(g, "tokens", DType::I32, [40, 1, 1, 1], tokens(20, 2, 30))?;
        let tokens = g.view(all, [19, 2, 1, 1], [4, 76, 152, 152], 4)?;
        g.cache_mask(op, cells, tokens)
    }));
    cases
}
