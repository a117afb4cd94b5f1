//! Chunked form of recurrences with a state. For prompts it takes part of the arithmetic out of the
//! sequential order of tokens.
//!
//! Sources: Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (2024),
//! section 3.3; Dao and Gu, "Transformers are SSMs" (2024), section 6. The interactions of tokens within a
//! chunk do not depend on the state. A first kernel computes them for all chunks in parallel. A second kernel
//! then processes the chunks of a sequence one after the other, instead of its tokens.

use super::{DeltaNetParams, SsmScanParams};
use crate::op::ssm_conv::Tokens;

/// Tokens in a chunk, a constant of the kernels.
pub const TOKENS: u32 = 32;

/// Average number of tokens per slot from which chunks are used. The cost of a chunk does not depend on how
/// many of its tokens are used: it equals about this many tokens one after the other.
const LEAST: u32 = 16;

/// Longest column of a state that these kernels support; workgroup-shared memory limits it.
pub const MAX_COLUMN: u32 = 128;

/// Chunks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Maximum number of chunks of a batch, over all slots.
    pub count: u32,
    /// Bytes of the buffer between the two kernels.
    pub bytes: u64,
}

impl Chunks {
    /// Returns the chunks of a delta net; `None` if it is not computed in chunks.
    pub fn of_delta_net(p: &DeltaNetParams) -> Option<Chunks> {
        Chunks::of(p.d[0], p.heads[1], p.tokens, p.slots).filter(|_| !has_drafts(p.run_fields))
    }

    /// Returns the chunks of a state space scan; `None` if it is not computed in chunks.
    pub fn of_scan(p: &SsmScanParams) -> Option<Chunks> {
        Chunks::of(p.d[0], p.heads[1], p.tokens, p.slots).filter(|_| !has_drafts(p.run_fields))
    }

    /// Returns the chunks for states with columns of `length` elements.
    fn of(length: u32, heads: u32, tokens: u32, slots: u32) -> Option<Chunks> {
        let suits = length <= MAX_COLUMN && u64::from(tokens) >= u64::from(LEAST) * u64::from(slots);
        // The last chunk of each slot may have only one token.
        let padded = u64::from(tokens) + u64::from(slots) * u64::from(TOKENS - 1);
        let count = u32::try_from(padded / u64::from(TOKENS)).ok().filter(|_| suits)?;
        // For each head two square matrices, the factors of the writes and of the results, and two decays for
        // each of their rows.
        let floats = u64::from(2 * TOKENS * TOKENS + 2 * TOKENS);
        Some(Chunks { count, bytes: u64::from(count) * u64::from(heads) * floats * 4 })
    }
}

/// True if runs with this number of rows may have drafts, before which the state is stored: within a chunk it is not
/// known.
fn has_drafts(run_fields: u32) -> bool {
    run_fields as usize == Tokens::WITH_KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_have_chunks() {
        let of = |tokens, slots, d_k| {
            let p = DeltaNetParams { d: [d_k, 64], heads: [2, 4], tokens, slots, ..Default::default() };
            Chunks::of_delta_net(&p)
        };
        let chunks = |count: u32| Some(Chunks { count, bytes: u64::from(count) * 4 * 2112 * 4 });
        assert_eq!((of(1, 1, 64), of(15, 1, 64), of(16, 1, 64)), (None, None, chunks(1)));
        assert_eq!((of(32, 1, 64), of(33, 1, 128), of(33, 1, 129)), (chunks(1), chunks(2), None));
        assert_eq!((of(64, 64, 64), of(63, 4, 64)), (None, None), "a few tokens of each of many sequences");
        // Runs of 62, 1 and 1.
        assert_eq!(of(64, 3, 64), chunks(4));
        assert_eq!(of(u32::MAX, 1, 64), chunks(1 << 27));
    }

    /// The count is the maximum over all distributions of tokens to sequences.
    #[test]
    fn no_runs_have_more_chunks() {
        for tokens in 48..200 {
            let p = DeltaNetParams { d: [64, 64], heads: [1, 1], tokens, slots: 3, ..Default::default() };
            let most = Chunks::of_delta_net(&p).expect("chunks").count;
            let of = |a: u32, b: u32| [a, b, tokens - a - b].iter().map(|n| n.div_ceil(TOKENS)).sum::<u32>();
            let all = (0..=tokens).flat_map(|a| (0..=tokens - a).map(move |b| (a, b)));
            assert_eq!(all.map(|(a, b)| of(a, b)).max(), Some(most), "{tokens}");
        }
    }
}
