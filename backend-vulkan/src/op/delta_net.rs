//! GATED_DELTA_NET: see `recurrent.rs`.

use super::recurrent::{self, States};
use super::{Context, Dispatch, Refusal};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::DeltaNetParams;
use ggml_core::op::delta_net::MAX_KEY;

/// The dispatch of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = DeltaNetParams::new(c.graph, c.node, &c.offsets())?;
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    recurrent::plan(c, "delta_net", &p, &states)
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    recurrent::pipelines(profile, "delta_net", MAX_KEY)
}
