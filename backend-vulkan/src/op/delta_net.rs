//! GATED_DELTA_NET: few tokens one after the other (`recurrent.rs`), prompts by chunks (`chunks.rs`).

use super::chunks::{self, Family};
use super::recurrent::{self, Shader, States};
use super::{Context, Dispatch, Refusal};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Delta;
use ggml_core::kernel::DeltaNetParams;
use ggml_core::kernel::chunks::Chunks;
use ggml_core::op::delta_net::MAX_KEY;

const NODE: Shader = ("delta_net", "node");
const GROUP: Shader = ("delta_net", "group");

const CHUNKS: Family =
    Family { shaders: ["delta_chunk", "delta_walk"], first: [0, 1, 3, 4, 6], second: [0, 1, 2, 5, 6] };

/// Returns the dispatches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = DeltaNetParams::new(c.graph, c.node, &c.offsets())?;
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    let offsets_and_strides = [[p.off[0], p.nbq[0], p.nbq[1]], [p.off[1], p.nbk[0], p.nbk[1]]];
    let by_chunks = |chunks| chunks::plan(c, &CHUNKS, &p, chunks, &states, offsets_and_strides);
    match Chunks::of_delta_net(&p).and_then(by_chunks) {
        Some(dispatches) => Ok(dispatches),
        None => {
            let operands = std::array::from_fn::<_, 8, _>(|i| if i < 7 { c.src(i) } else { c.node });
            recurrent::plan(c, NODE, &operands, &p, &states)
        }
    }
}

/// Returns the dispatch of a group: tokens one after the other, with queries and keys before their norm.
pub(super) fn plan_group(c: &Context<'_>, delta: &Delta) -> Result<Vec<Dispatch>, Refusal> {
    let p = DeltaNetParams::of_group(c.graph, delta, &|id| c.windows.remainder(c.graph, id))?;
    if Chunks::of_delta_net(&p).is_some() {
        return Err(Refusal("computing by chunks of tokens needs normalised queries and keys".into()));
    }
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    let dispatches = recurrent::plan(c, GROUP, &DeltaNetParams::operands(c.graph, delta), &p, &states)?;
    // The result, and the state.
    Ok(dispatches.into_iter().map(|dispatch| Dispatch { written: 2, ..dispatch }).collect())
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let of = |shader| recurrent::pipelines(profile, shader, MAX_KEY);
    [of(NODE), of(GROUP), chunks::pipelines(profile, &CHUNKS)].concat()
}
