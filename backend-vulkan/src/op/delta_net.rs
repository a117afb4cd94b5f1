//! GATED_DELTA_NET: of few tokens one after the other (`recurrent.rs`), of prompts by chunks, in two dispatches.

use super::recurrent::{self, States};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::DeltaNetParams;
use ggml_core::kernel::chunks::{self, Chunks};
use ggml_core::op::delta_net::MAX_KEY;

/// Invocations of a work-group for chunks, and columns of the state of one of the second dispatch.
const CHUNK_WORKGROUP: u32 = 256;
const CHUNK_COLUMNS: u32 = 16;
/// The most shared memory of the two.
const CHUNK_SHARED_BYTES: u32 = 32 << 10;
/// Elements of a key that they have room for.
const CHUNK_KEYS: [u32; 2] = [64, chunks::MAX_KEY];

/// The dispatches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = DeltaNetParams::new(c.graph, c.node, &c.offsets())?;
    let chunks = Chunks::of_delta_net(&p).filter(|_| has_chunks(c.profile));
    if let Some(dispatches) = chunks.and_then(|chunks| by_chunks(c, &p, chunks)) {
        return Ok(dispatches);
    }
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    recurrent::plan(c, "delta_net", &p, &states)
}

/// Whether the device can execute the kernels for chunks.
fn has_chunks(profile: &Profile) -> bool {
    profile.workgroup(CHUNK_WORKGROUP) == CHUNK_WORKGROUP && profile.caps.shared_bytes >= CHUNK_SHARED_BYTES
}

/// What the tokens of each chunk do to each other, then the state from chunk to chunk. `None` where the device has too small
/// grids or windows.
fn by_chunks(c: &Context<'_>, p: &DeltaNetParams, chunks: Chunks) -> Option<Vec<Dispatch>> {
    let room = *CHUNK_KEYS.iter().find(|&&room| p.d[0] <= room)?;
    let places = [&p.nbq[..], &p.nbk, &p.off[..2], &p.d[..1]];
    let aligned = places.iter().all(|values| values.iter().all(|n| n.is_multiple_of(4)));
    let bytes = usize::try_from(chunks.bytes).ok().filter(|&bytes| bytes <= c.window_limit())?;
    let of = |stem, read: &[usize], written: Operand, grid: [u32; 3]| {
        let mut dispatch = dispatch(spec(stem, room, aligned), read.iter().map(|&i| c.src(i)), p, grid);
        dispatch.operands.push(written);
        dispatch
    };
    let first = of("delta_chunk", &[0, 1, 3, 4, 6], Operand::Scratch(bytes), [chunks.count, p.heads[1], 1]);
    let columns = p.d[1].div_ceil(CHUNK_COLUMNS);
    let mut second =
        of("delta_walk", &[0, 1, 2, 5, 6], Operand::Tensor(c.node), [columns, p.heads[1], p.slots]);
    second.operands.insert(5, Operand::Scratch(bytes));
    let limits = c.profile.caps.max_workgroups;
    let fits = [&first, &second].iter().all(|dispatch| (0..3).all(|i| dispatch.grid[i] <= limits[i]));
    fits.then(|| vec![first, second])
}

fn spec(stem: &'static str, room: u32, aligned: bool) -> PipelineSpec {
    pipeline(stem, "default", &[CHUNK_WORKGROUP, room, aligned.into()])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = recurrent::pipelines(profile, "delta_net", MAX_KEY);
    if has_chunks(profile) {
        for stem in ["delta_chunk", "delta_walk"] {
            let specs = CHUNK_KEYS.iter().flat_map(|&room| [false, true].map(|aligned| spec(stem, room, aligned)));
            all.extend(specs);
        }
    }
    all
}
