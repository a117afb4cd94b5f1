//! GATED_DELTA_NET: work-groups of columns of the state for each head and slot, and one slot more for the tokens of none.
//! Prompts by chunks of tokens, in two launches.

use super::grid::{launch, scratch, tensors};
use super::{Context, Launch, Operand, Refusal};
use ggml_core::kernel::DeltaNetParams;
use ggml_core::kernel::chunks::{Chunks, MAX_KEY};

/// Threads of all kernels of the family. Eight elements of a key are a thread's.
const THREADS: u32 = 128;

/// Kernels for keys of a length, and the one for all lengths up to the last.
const KERNELS: [(u32, &str); 3] = [(64, "delta_net_64"), (128, "delta_net_128"), (256, "delta_net_256")];
const ANY: (u32, &str) = (256, "delta_net_any");

/// Threads of the kernels for chunks, and columns of the state of a work-group of the second one.
const CHUNK_THREADS: u32 = 256;
const CHUNK_COLUMNS: u32 = 16;

/// The kernels for chunks, by the lengths of keys, which are loaded 16 bytes at a time; and those for all others.
const CHUNK_KERNELS: [(u32, [&str; 2]); 2] =
    [(64, ["delta_chunk_64", "delta_walk_64"]), (128, ["delta_chunk_128", "delta_walk_128"])];
const ANY_CHUNK: (u32, [&str; 2]) = (MAX_KEY, ["delta_chunk_any", "delta_walk_any"]);

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = DeltaNetParams::new(c.graph, c.node, &[])?;
    let [d_k, d_v] = p.d;
    if let Some(chunks) = Chunks::of_delta_net(&p) {
        return by_chunks(c, &p, chunks);
    }
    let (length, kernel) = KERNELS.into_iter().find(|&(length, _)| d_k == length).unwrap_or(ANY);
    if d_k > length {
        return Err(Refusal(format!(
            "GATED_DELTA_NET of keys of {d_k}: the HIP kernels take up to {length}"
        )));
    }
    let columns = 8 * THREADS / length;
    let groups = [d_v.div_ceil(columns), p.heads[1], p.slots + 1].map(u64::from);
    let operands = tensors(&[c.graph.tensor(c.node).src(), &[c.node]].concat());
    Ok(vec![launch(c, ("delta_net", kernel), operands, &p, groups, THREADS)?])
}

/// What the tokens of each chunk do to each other, then the state from chunk to chunk.
fn by_chunks(c: &Context<'_>, p: &DeltaNetParams, chunks: Chunks) -> Result<Vec<Launch>, Refusal> {
    let aligned = [0, 1].map(|i| c.graph.tensor(c.graph.tensor(c.node).src()[i]).offset.is_multiple_of(16));
    let aligned = aligned == [true; 2] && [p.nbq, p.nbk].as_flattened().iter().all(|nb| nb.is_multiple_of(4));
    let of_length = |&(length, _): &(u32, [&str; 2])| aligned && p.d[0] == length;
    let (_, [chunk, walk]) = CHUNK_KERNELS.into_iter().find(of_length).unwrap_or(ANY_CHUNK);
    let [q, k, v, g, beta, state, runs] =
        [0, 1, 2, 3, 4, 5, 6].map(|i| Operand::Tensor(c.graph.tensor(c.node).src()[i]));
    let [between] = scratch(c, [(chunks.bytes, 1)])?;
    let first = vec![q, k, g, beta, runs, between];
    let second = vec![q, k, v, state, runs, between, Operand::Tensor(c.node)];
    let (chunk, walk) = (("delta_net", chunk), ("delta_net", walk));
    let groups = [p.d[1].div_ceil(CHUNK_COLUMNS), p.heads[1], p.slots + 1].map(u64::from);
    Ok(vec![
        launch(c, chunk, first, p, [chunks.count, p.heads[1], 1].map(u64::from), CHUNK_THREADS)?,
        launch(c, walk, second, p, groups, CHUNK_THREADS)?,
    ])
}
