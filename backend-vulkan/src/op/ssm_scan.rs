//! SSM_SCAN: few tokens one after the other (`recurrent.rs`), prompts by chunks (`chunks.rs`).

use super::chunks::{self, Family};
use super::recurrent::{self, Shader, States};
use super::{Context, Dispatch, Refusal};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::SsmScanParams;
use ggml_core::kernel::chunks::Chunks;
use ggml_core::op::ssm_scan::MAX_STATE;

const SHADER: Shader = ("ssm_scan", "default");

/// The keys are b, the queries c.
const CHUNKS: Family =
    Family { shaders: ["scan_chunk", "scan_walk"], first: [1, 2, 3, 4, 6], second: [0, 3, 4, 5, 6] };

/// Returns the dispatches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SsmScanParams::new(c.graph, c.node, &c.offsets())?;
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    let offsets_and_strides = [[p.off[3], p.nbb[0], p.nbb[1]], [p.off[4], p.nbc[0], p.nbc[1]]];
    let by_chunks = |chunks| chunks::plan(c, &CHUNKS, &p, chunks, &states, offsets_and_strides);
    match Chunks::of_scan(&p).and_then(by_chunks) {
        Some(dispatches) => Ok(dispatches),
        None => {
            let operands = std::array::from_fn::<_, 8, _>(|i| if i < 7 { c.src(i) } else { c.node });
            recurrent::plan(c, SHADER, &operands, &p, &states)
        }
    }
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    [recurrent::pipelines(profile, SHADER, MAX_STATE), chunks::pipelines(profile, &CHUNKS)].concat()
}
