//! GATED_DELTA_NET: work-groups of state columns for each head and slot, plus one slot for tokens without a
//! slot. Prompts are computed by chunks of tokens, in two launches.

use super::chunks::{self, Family};
use super::grid::{launch, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::TensorId;
use ggml_core::fuse::Delta;
use ggml_core::kernel::DeltaNetParams;
use ggml_core::kernel::chunks::Chunks;

/// Threads of a work-group of all kernels of the family. Each thread has eight elements of a key.
const THREADS: u32 = 128;

/// Kernels for specific key lengths, and the one for all lengths up to the last.
const KERNELS: [(u32, &str); 3] = [(64, "delta_net_64"), (128, "delta_net_128"), (256, "delta_net_256")];
const ANY: (u32, &str) = (256, "delta_net_any");

/// Kernels for chunks.
const CHUNKS: Family = Family {
    module: "delta_net",
    of_length: &[(64, ["delta_chunk_64", "delta_walk_64"]), (128, ["delta_chunk_128", "delta_walk_128"])],
    any: ["delta_chunk_any", "delta_walk_any"],
    rows: [0, 1],
    first: &[0, 1, 3, 4, 6],
    second: [0, 1, 2, 5, 6],
};

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = DeltaNetParams::new(c.graph, c.node, &[])?;
    if let Some(chunks) = Chunks::of_delta_net(&p) {
        return chunks::plan(c, &CHUNKS, &p, chunks, [p.d, [p.heads[1], p.slots]], [p.nbq, p.nbk]);
    }
    one_by_one(c, &p, DeltaNetParams::of_node(c.graph, c.node))
}

/// Plans the launches of a group: tokens one after the other, with queries and keys before their norm.
pub(super) fn plan_group(c: &Context<'_>, delta: &Delta) -> Result<Vec<Launch>, Refusal> {
    let p = DeltaNetParams::of_group(c.graph, delta, &|_| 0)?;
    if Chunks::of_delta_net(&p).is_some() {
        return Err(Refusal("computing by chunks of tokens needs normalised queries and keys".into()));
    }
    if KERNELS.iter().all(|&(length, _)| length != p.d[0]) && (p.gates, p.keeps) != (0, 0) {
        let lengths = KERNELS.map(|(length, _)| length.to_string()).join(", ");
        return Err(Refusal(format!("decays, betas and the new state are fused for keys of {lengths} only")));
    }
    one_by_one(c, &p, DeltaNetParams::operands(c.graph, delta))
}

fn one_by_one(c: &Context<'_>, p: &DeltaNetParams, operands: [TensorId; 10]) -> Result<Vec<Launch>, Refusal> {
    let [d_k, d_v] = p.d;
    let (length, kernel) = KERNELS.into_iter().find(|&(length, _)| d_k == length).unwrap_or(ANY);
    if d_k > length {
        return Err(Refusal(format!(
            "GATED_DELTA_NET of keys of {d_k}: the HIP kernels support up to {length}"
        )));
    }
    let columns = 8 * THREADS / length;
    let groups = [d_v.div_ceil(columns), p.heads[1], p.slots + 1].map(u64::from);
    let launch = launch(c, ("delta_net", kernel), tensors(&operands), p, groups, THREADS)?;
    Ok(vec![Launch { written: 2, ..launch }])
}
