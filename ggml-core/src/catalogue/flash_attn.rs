//! Test cases of FLASH_ATTN_EXT.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::FlashAttnExt;

/// Extents of a case.
struct Extents {
    d: usize,
    dv: usize,
    tokens: usize,
    kv: usize,
    heads: usize,
    heads_kv: usize,
    batch: usize,
}

fn case(s: Extents, kv_type: DType, mask: Option<DType>, max_bias: f32, logit_softcap: f32) -> Case {
    let Extents { d, dv, tokens, kv, heads, heads_kv, batch } = s;
    let name = format!(
        "FLASH_ATTN_EXT(d={d}, dv={dv}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, batch={batch}, kv={kv_type}, \
         mask={}, max_bias={max_bias}, softcap={logit_softcap})",
        mask.map_or("none", |m| m.name())
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, batch], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, batch], Fill::Uniform(-1.0, 1.0))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [dv, heads_kv, kv, batch], Fill::Uniform(-1.0, 1.0))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let mask = match mask {
            Some(dtype) => Some(c.leaf(g, "mask", dtype, [kv, tokens, 1, 1], Fill::Causal)?),
            None => None,
        };
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias, logit_softcap };
        g.flash_attn_ext(op, q, k, v, mask)
    })
}

/// Creates a case with sinks: among the scores, far below them, and above them.
fn case_with_sinks(s: Extents, kv_type: DType) -> Case {
    let Extents { d, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(sinks: d={d}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, kv={kv_type})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [d, heads_kv, kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let mask = c.leaf(g, "mask", DType::F32, [kv, tokens, 1, 1], Fill::Causal)?;
        let sinks = Fill::Values(vec![0.5, -40.0, 30.0, f32::NEG_INFINITY]);
        let sinks = c.leaf(g, "sinks", DType::F32, [heads, 1, 1, 1], sinks)?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// Creates a case with hidden cells: some that no token sees, and some that one token sees, like those of
/// other sequences. Their keys and values are infinities and NaNs. Token 3 sees nothing.
fn case_with_hidden_cells(s: Extents, kv_type: DType, sinks: bool) -> Case {
    let Extents { d, dv, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(hidden cells, sinks={sinks}: d={d}, dv={dv}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, \
         kv={kv_type})"
    );
    // A cell, the contents of its key and its value (0: nothing special), and the token that sees it.
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cells = [
        (3, inf, nan, None),
        (7, 0.0, nan, Some(1)),
        (11, nan, 0.0, Some(2)),
        (kv - 2, nan, -inf, None),
        (kv - 1, -inf, inf, None),
    ];
    let contents = |row: usize, value: fn(f32, f32) -> f32| {
        let special = cells.into_iter().map(move |(cell, k, v, _)| {
            let first = cell * row * heads_kv;
            (first..first + row * heads_kv, value(k, v))
        });
        Fill::Uniform(-1.0, 1.0).but(special.filter(|(_, value)| *value != 0.0))
    };
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, 1], contents(d, |k, _| k))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [dv, heads_kv, kv, 1], contents(dv, |_, v| v))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let of_token = |t: usize| {
            cells.into_iter().map(move |(cell, _, _, seen_by)| {
                let value = if seen_by == Some(t) { 0.0 } else { f32::NEG_INFINITY };
                (t * kv + cell..t * kv + cell + 1, value)
            })
        };
        let blind = (tokens > 3).then_some((3 * kv..4 * kv, f32::NEG_INFINITY));
        let mask = Fill::Causal.but((0..tokens).flat_map(of_token).chain(blind));
        let mask = c.leaf(g, "mask", DType::F16, [kv, tokens, 1, 1], mask)?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        if !sinks {
            return g.flash_attn_ext(op, q, k, v, Some(mask));
        }
        let sinks = c.leaf(g, "sinks", DType::F32, [heads, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// Creates a case of latent attention: one head of keys, whose first 512 elements are the values, for 16
/// heads of queries. Sinks need a mask.
fn case_latent([tokens, kv]: [usize; 2], kv_type: DType, mask: bool, sinks: bool) -> Case {
    let name = format!(
        "FLASH_ATTN_EXT(latent: d=576, dv=512, tokens={tokens}, kv={kv}, heads=16/1, kv={kv_type}, mask={mask}, \
         sinks={sinks})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [576, 16, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [576, kv, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let v = g.view(k, [512, kv, 1, 1], g.tensor(k).nb, 0)?;
        let op = FlashAttnExt { scale: 1.0 / 192f32.sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        if !mask {
            return g.flash_attn_ext(op, q, k, v, None);
        }
        let mask = c.leaf(g, "mask", DType::F16, [kv, tokens, 1, 1], Fill::Causal)?;
        if !sinks {
            return g.flash_attn_ext(op, q, k, v, Some(mask));
        }
        let sinks = c.leaf(g, "sinks", DType::F32, [16, 1, 1, 1], Fill::Uniform(-1.0, 3.0))?;
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// Creates a case with a NaN in the query of head 1, in a key of head 2 and in an element of a value of head
/// 3. With more than five tokens, also in the mask, and as the only position that a token sees. Head 0 of the
/// other tokens is clean.
fn case_with_nan(tokens: usize, kv: usize, kv_type: DType) -> Case {
    let name = format!("FLASH_ATTN_EXT(NaN: d=64, tokens={tokens}, kv={kv}, heads=4/4, kv={kv_type})");
    let last = tokens - 1;
    let one = |[i, h, row]: [usize; 3]| {
        let at = i + 64 * (h + 4 * row);
        Fill::Uniform(-1.0, 1.0).but([(at..at + 1, f32::NAN)])
    };
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [64, 4, tokens, 1], one([40, 1, last]))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [64, 4, kv, 1], one([63, 2, kv - 3]))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [64, 4, kv, 1], one([9, 3, 20]))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let in_mask = [
            (2 * kv + 4..2 * kv + 5, f32::NAN),
            (5 * kv..5 * kv + 30, f32::NEG_INFINITY),
            (5 * kv + 30..5 * kv + 31, f32::NAN),
            (5 * kv + 31..6 * kv, f32::NEG_INFINITY),
        ];
        let mask = Fill::Causal.but(in_mask.into_iter().filter(|_| tokens > 5));
        let mask = c.leaf(g, "mask", DType::F32, [kv, tokens, 1, 1], mask)?;
        let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_ext(op, q, k, v, Some(mask))
    })
}

/// Creates a case with tokens at the end of the cache, each seeing `window` positions up to its own.
fn case_with_window(s: Extents, kv_type: DType, mask_type: DType, window: usize) -> Case {
    let Extents { d, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(window={window}: d={d}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, kv={kv_type}, \
         mask={mask_type})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, tokens, heads, 1], Fill::Uniform(-1.0, 1.0))?;
        // Cells that no token sees are NaN.
        let first = kv - tokens + 1 - window;
        let cells = Fill::Uniform(-1.0, 1.0).but([(0..first * d, f32::NAN)]);
        let k = c.leaf(g, "k", kv_type, [d, kv, heads_kv, 1], cells.clone())?;
        let v = c.leaf(g, "v", kv_type, [d, kv, heads_kv, 1], cells)?;
        let hidden = (0..tokens).flat_map(|t| {
            let (row, own) = (t * kv, kv - tokens + t);
            [(row..row + own + 1 - window, f32::NEG_INFINITY), (row + own + 1..row + kv, f32::NEG_INFINITY)]
        });
        let mask = c.leaf(
            g,
            "mask",
            mask_type,
            [kv, tokens, 1, 1],
            Fill::Values(vec![0.0; kv * tokens]).but(hidden),
        )?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_ext(op, q, k, v, Some(mask))
    })
}

/// Creates a case whose scores rise by 90 from the first position to the last, so that each running maximum is exceeded
/// again and again.
fn case_with_rising_scores(s: Extents, kv_type: DType) -> Case {
    let Extents { d, dv, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(rising scores: d={d}, dv={dv}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, kv={kv_type})"
    );
    Case::new(name, |g, c| {
        let any = || Fill::Uniform(-1.0, 1.0);
        let q = c.leaf(g, "q", DType::F32, [d, tokens, heads, 1], any())?;
        let k = c.leaf(g, "k", kv_type, [d, kv, heads_kv, 1], any())?;
        let v = c.leaf(g, "v", kv_type, [dv, kv, heads_kv, 1], any())?;
        let rising = (0..tokens * kv).map(|i| (i % kv) as f32 * 90.0 / kv as f32 - 90.0).collect();
        let mask = c.leaf(g, "mask", DType::F32, [kv, tokens, 1, 1], Fill::Values(rising))?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_ext(op, q, k, v, Some(mask))
    })
}

/// Test cases: prefill and decode shapes, grouped heads, odd extents, both cache types, masks, ALiBi,
/// soft-caps, sinks, NaN, rising scores, and any contents of cells that the mask hides.
pub(super) fn cases() -> Vec<Case> {
    let extents =
        |d, dv, tokens, kv, heads, heads_kv, batch| Extents { d, dv, tokens, kv, heads, heads_kv, batch };
    let (f32, f16) = (DType::F32, DType::F16);
    vec![
        case(extents(64, 64, 1, 1, 1, 1, 1), f32, None, 0.0, 0.0),
        case(extents(64, 64, 1, 256, 4, 2, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 1, 300, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 17, 17, 4, 4, 1), f32, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 35, 96, 6, 2, 2), f16, Some(f32), 0.0, 0.0),
        case(extents(128, 128, 5, 70, 4, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(128, 128, 1, 33, 2, 2, 2), f32, None, 0.0, 0.0),
        case(extents(32, 32, 9, 40, 4, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(80, 80, 3, 31, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(96, 64, 2, 50, 2, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(256, 256, 2, 20, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 4, 64, 6, 6, 1), f32, Some(f32), 8.0, 0.0),
        case(extents(64, 64, 4, 64, 2, 2, 1), f32, Some(f32), 0.0, 5.0),
        case(extents(40, 24, 3, 7, 1, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 1, 300, 4, 2, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 19, 45, 4, 1, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(128, 128, 1, 40, 2, 1, 1), DType::Q4_0, Some(f32), 0.0, 0.0),
        case(extents(96, 96, 5, 70, 2, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 1, 1100, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(128, 64, 3, 600, 6, 2, 2), f16, Some(f32), 8.0, 5.0),
        case(extents(64, 64, 2, 700, 3, 1, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        // Latent attention: one head of keys for all, with longer rows.
        case(extents(576, 512, 1, 300, 4, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(576, 512, 3, 40, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case_with_sinks(extents(64, 64, 2, 1030, 4, 1, 1), DType::Q8_0),
        case_with_sinks(extents(64, 64, 1, 300, 4, 1, 1), f32),
        case_with_sinks(extents(64, 64, 21, 64, 8, 2, 1), f16),
        case_with_sinks(extents(40, 40, 3, 33, 4, 4, 1), f32),
        case_with_sinks(extents(64, 64, 3, 70, 4, 2, 1), DType::Q8_0),
        case_with_hidden_cells(extents(64, 64, 1, 300, 8, 2, 1), f16, true),
        case_with_hidden_cells(extents(64, 64, 1, 300, 4, 2, 1), f32, false),
        case_with_hidden_cells(extents(64, 64, 3, 70, 4, 2, 1), DType::Q8_0, false),
        case_with_hidden_cells(extents(20, 12, 3, 33, 2, 1, 1), f16, false),
        case_with_hidden_cells(extents(64, 64, 19, 96, 4, 2, 1), f16, false),
        case_with_hidden_cells(extents(64, 64, 19, 45, 4, 1, 1), f32, true),
        // Positions in splits, whose rows are computed again one by one where scores stay in registers; blocks.
        case_with_hidden_cells(extents(64, 64, 21, 1100, 4, 2, 1), f16, true),
        case_with_hidden_cells(extents(128, 96, 19, 80, 2, 1, 1), DType::Q8_0, true),
        case_with_nan(1, 300, f16),
        case_with_nan(19, 96, f32),
        // Long rows.
        case_latent([1, 1], f16, false, false),
        case_latent([1, 9], f16, true, false),
        case_latent([1, 257], f16, false, false),
        case_latent([1, 1000], f16, true, true),
        case_latent([3, 9], f32, true, true),
        case_latent([3, 257], f16, true, false),
        case_latent([3, 1000], f16, false, false),
        case_latent([1, 257], DType::Q8_0, true, false),
        case_latent([1, 70], DType::Q4_0, true, false),
        case_latent([3, 300], DType::Q4_0, true, true),
        // Latent attention of many tokens, which may use matrix units: rows of several work-groups, positions
        // in several chunks.
        case_latent([21, 90], f16, true, true),
        case_latent([9, 1100], f16, false, false),
        case(extents(576, 512, 7, 1090, 5, 1, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(552, 504, 43, 61, 6, 2, 2), f16, None, 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 35, 75, 4, 1, 1), f16, false),
        case_with_window(extents(512, 512, 33, 300, 4, 1, 1), f16, f32, 70),
        case(extents(512, 512, 1, 257, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(512, 512, 3, 1000, 4, 2, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(552, 504, 5, 40, 3, 1, 2), f32, None, 0.0, 0.0),
        case(extents(328, 72, 2, 300, 6, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 320, 19, 45, 2, 1, 1), f32, Some(f16), 0.0, 0.0),
        case(extents(584, 512, 1, 257, 16, 1, 1), f16, Some(f16), 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 5, 300, 3, 1, 1), f16, true),
        case_with_hidden_cells(extents(512, 512, 5, 40, 4, 2, 1), f32, false),
        // The same with a cache of blocks.
        case(extents(512, 512, 1, 257, 8, 2, 1), DType::Q8_0, Some(f16), 0.0, 0.0),
        case(extents(512, 512, 3, 300, 4, 2, 1), DType::Q4_0, Some(f32), 8.0, 5.0),
        case(extents(544, 480, 5, 40, 3, 1, 2), DType::Q8_0, None, 0.0, 0.0),
        case(extents(352, 96, 2, 300, 6, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 5, 300, 3, 1, 1), DType::Q8_0, true),
        case_with_hidden_cells(extents(512, 512, 5, 40, 4, 2, 1), DType::Q4_0, false),
        // Many tokens and keys in F16, which may use matrix units: rows of all lengths, summands of the
        // scores, no mask.
        case(extents(128, 128, 70, 200, 4, 2, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(96, 64, 40, 130, 2, 1, 2), f16, None, 0.0, 0.0),
        case(extents(40, 24, 9, 44, 2, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 20, 61, 2, 2, 1), f16, Some(f32), 0.0, 0.0),
        case(extents(256, 200, 21, 70, 4, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(192, 128, 70, 90, 4, 2, 1), f16, Some(f16), 0.0, 5.0),
        case(extents(256, 256, 37, 70, 4, 2, 1), DType::Q8_0, Some(f16), 0.0, 0.0),
        case(extents(128, 96, 40, 70, 2, 1, 1), DType::Q4_0, None, 0.0, 0.0),
        case_latent([21, 90], DType::Q8_0, true, false),
        case_latent([40, 61], DType::Q4_0, false, false),
        case_with_hidden_cells(extents(128, 128, 35, 75, 4, 1, 1), f16, false),
        case_with_hidden_cells(extents(256, 256, 35, 75, 4, 1, 1), DType::Q8_0, false),
        case_with_nan(19, 96, f16),
        case_with_window(extents(64, 64, 70, 700, 4, 1, 1), f16, f32, 150),
        // Rows of the mask at multiples of 16 bytes: steps with nothing hidden, everything hidden, some
        // positions hidden, and one position hidden from one token.
        case_with_window(extents(128, 128, 70, 704, 8, 2, 1), f16, f16, 449),
        case_with_window(extents(64, 64, 70, 704, 4, 1, 1), f16, f16, 149),
        case_with_hidden_cells(extents(128, 128, 35, 136, 8, 2, 1), f16, true),
        // Positions divided between work-groups, some of which see nothing.
        case_with_window(extents(64, 40, 21, 1500, 2, 1, 1), f16, f32, 150),
        case_with_window(extents(160, 160, 21, 1500, 2, 1, 1), DType::Q8_0, f32, 400),
        case_with_sinks(extents(64, 64, 21, 1100, 2, 1, 1), f16),
        // The same with a cache of blocks: rows that begin with odd blocks and even ones.
        case(extents(128, 128, 70, 200, 4, 2, 1), DType::Q8_0, Some(f32), 8.0, 5.0),
        case(extents(32, 96, 33, 133, 6, 3, 1), DType::Q8_0, None, 0.0, 0.0),
        case(extents(96, 64, 40, 130, 2, 1, 2), DType::Q4_0, None, 0.0, 0.0),
        case(extents(32, 32, 20, 84, 3, 3, 1), DType::Q4_0, Some(f16), 8.0, 0.0),
        case(extents(64, 64, 21, 64, 8, 2, 1), DType::Q4_0, Some(f16), 0.0, 5.0),
        case_with_sinks(extents(64, 64, 21, 64, 8, 2, 1), DType::Q8_0),
        case_with_hidden_cells(extents(64, 64, 19, 96, 4, 2, 1), DType::Q8_0, false),
        case_with_hidden_cells(extents(32, 64, 19, 96, 2, 1, 1), DType::Q4_0, true),
        case_with_nan(19, 96, DType::Q8_0),
        case_with_nan(19, 96, DType::Q4_0),
        case(extents(32, 32, 20, 61, 2, 2, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(256, 192, 21, 70, 4, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case(extents(160, 256, 40, 61, 2, 1, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case_with_sinks(extents(128, 128, 21, 64, 8, 2, 1), DType::Q4_0),
        case_with_hidden_cells(extents(128, 128, 19, 45, 4, 1, 1), DType::Q4_0, false),
        case_with_window(extents(64, 64, 70, 700, 4, 1, 1), DType::Q4_0, f32, 150),
        // Few tokens of many heads, which may share work-groups, and rows of all lengths: positions in several
        // splits of several chunks, the last of them incomplete.
        case(extents(128, 128, 1, 1030, 32, 8, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 2, 700, 24, 8, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(256, 256, 1, 530, 32, 16, 1), f16, None, 0.0, 0.0),
        case(extents(128, 128, 1, 300, 3, 3, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(256, 256, 2, 300, 2, 1, 2), f16, Some(f16), 0.0, 0.0),
        case_with_hidden_cells(extents(128, 128, 1, 300, 64, 16, 1), f16, true),
        case_with_hidden_cells(extents(256, 256, 1, 300, 2, 2, 1), f16, false),
        // Query rows of several tokens that read keys and values together: cells that some of them see, splits that
        // none of them sees.
        case_with_hidden_cells(extents(128, 128, 4, 530, 12, 4, 1), f16, true),
        case_with_hidden_cells(extents(64, 64, 4, 610, 8, 2, 1), f16, false),
        case_with_hidden_cells(extents(256, 256, 4, 300, 4, 2, 1), f16, false),
        case_with_window(extents(128, 128, 2, 1500, 8, 2, 1), f16, f16, 200),
        // Rows that one or two lanes hold.
        case(extents(8, 8, 3, 70, 4, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(16, 16, 1, 300, 4, 1, 1), f32, Some(f32), 0.0, 0.0),
        case_with_rising_scores(extents(128, 128, 1, 700, 8, 2, 1), f16),
        case_with_rising_scores(extents(64, 32, 3, 300, 2, 2, 1), DType::Q8_0),
        case_with_rising_scores(extents(64, 64, 21, 700, 4, 2, 1), f16),
        Case::new("FLASH_ATTN_EXT(a cache that is mostly empty)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 1, 4, 1], Fill::Uniform(-1.0, 1.0))?;
            let cells = Fill::Uniform(-1.0, 1.0).but([(64 * 70..64 * 900, f32::NAN)]);
            let k = c.leaf(g, "k", f16, [64, 900, 1, 1], cells.clone())?;
            let v = c.leaf(g, "v", f16, [64, 900, 1, 1], cells)?;
            let mask = Fill::Uniform(-1.0, 0.0).but([(70..900, f32::NEG_INFINITY)]);
            let mask = c.leaf(g, "mask", f16, [900, 1, 1, 1], mask)?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
        Case::new("FLASH_ATTN_EXT(heads with masks of their own)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 1, 4, 1], Fill::Uniform(-1.0, 1.0))?;
            let k = c.leaf(g, "k", DType::F32, [64, 40, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            // Cell 5 contains NaN; only head 2 sees it.
            let v = Fill::Uniform(-1.0, 1.0).but([(5 * 64..6 * 64, f32::NAN)]);
            let v = c.leaf(g, "v", DType::F32, [64, 40, 1, 1], v)?;
            let hidden = [0..6, 45..60, 81..85, 120..140].map(|cells| (cells, f32::NEG_INFINITY));
            let mask = Fill::Uniform(-1.0, 0.0).but(hidden);
            let mask = c.leaf(g, "mask", DType::F32, [40, 1, 4, 1], mask)?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
        Case::new("FLASH_ATTN_EXT(a row with everything masked)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 2, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let k = c.leaf(g, "k", DType::F32, [64, 8, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let v = c.leaf(g, "v", DType::F32, [64, 8, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let mut rows = vec![f32::NEG_INFINITY; 16];
            rows[8..12].fill(0.0);
            let mask = c.leaf(g, "mask", DType::F32, [8, 2, 1, 1], Fill::Values(rows))?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{self, Outcome};
    use crate::precision::Precision;

    /// A token that sees a NaN is all NaN, a token that sees nothing is all zeros, and all others are finite.
    #[test]
    fn hidden_cells_are_not_looked_at() {
        let reference = crate::reference::ReferenceBackend::default();
        let cases = [
            (case_with_hidden_cells(EXTENTS, DType::F16, true), 4, vec![1, 2]),
            (case_with_hidden_cells(EXTENTS, DType::F32, false), 4, vec![1, 2]),
            (case_with_nan(6, 40, DType::F16), 1, vec![2, 5]),
        ];
        for (case, clean_heads, nan) in cases {
            let Ok(Outcome::Values(got)) = catalogue::run(&case, &reference, Precision::Exact) else {
                panic!("{}", case.name)
            };
            for (t, token) in got.chunks_exact(64 * 4).enumerate() {
                let clean = &token[..64 * clean_heads];
                let right = match t {
                    _ if nan.contains(&t) => clean.iter().all(|x| x.is_nan()),
                    3 if clean_heads == 4 => clean.iter().all(|x| *x == 0.0),
                    _ => clean.iter().all(|x| x.is_finite() && *x != 0.0),
                };
                assert!(right, "{}, token {t}: {clean:?}", case.name);
            }
        }
    }

    const EXTENTS: Extents = Extents { d: 64, dv: 64, tokens: 5, kv: 40, heads: 4, heads_kv: 2, batch: 1 };
}
