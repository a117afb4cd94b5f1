//! SSM_SCAN: work-groups of channels for each head and slot, plus one slot for tokens without a slot. Prompts
//! are computed by chunks of tokens, in two launches.

use super::chunks::{self, Family};
use super::grid::{launch, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::SsmScanParams;
use ggml_core::kernel::chunks::Chunks;

/// Threads of a work-group of both kernels. Each thread has eight elements of a channel's state.
const THREADS: u32 = 128;

/// State length with a kernel of its own, and the maximum length of the general kernel.
const USUAL: u32 = 128;
const LONGEST: u32 = 256;

/// Kernels for chunks. The keys are b, the queries c.
const CHUNKS: Family = Family {
    module: "ssm_scan",
    of_length: &[(USUAL, ["scan_chunk_128", "scan_walk_128"])],
    any: ["scan_chunk_any", "scan_walk_any"],
    rows: [3, 4],
    first: &[1, 2, 3, 4, 6],
    second: [0, 3, 4, 5, 6],
};

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = SsmScanParams::new(c.graph, c.node, &[])?;
    let [length, channels] = p.d;
    if let Some(chunks) = Chunks::of_scan(&p) {
        return chunks::plan(c, &CHUNKS, &p, chunks, [p.d, [p.heads[1], p.slots]], [p.nbb, p.nbc]);
    }
    if length > LONGEST {
        return Err(Refusal(format!(
            "SSM_SCAN with states of {length}: the HIP kernels support up to {LONGEST}"
        )));
    }
    let (kernel, lanes) =
        if length == USUAL { ("ssm_scan_128", USUAL / 8) } else { ("ssm_scan_any", LONGEST / 8) };
    let groups = [channels.div_ceil(THREADS / lanes), p.heads[1], p.slots + 1].map(u64::from);
    let operands = tensors(&[c.graph.tensor(c.node).src(), &[c.node]].concat());
    Ok(vec![launch(c, ("ssm_scan", kernel), operands, &p, groups, THREADS)?])
}
