//! SSM_SCAN: see `recurrent.rs`.

use super::recurrent::{self, States};
use super::{Context, Dispatch, Refusal};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::SsmScanParams;
use ggml_core::op::ssm_scan::MAX_STATE;

/// The dispatch of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SsmScanParams::new(c.graph, c.node, &c.offsets())?;
    let states = States { length: p.d[0], columns: p.d[1], heads: p.heads[1], slots: p.slots };
    recurrent::plan(c, "ssm_scan", &p, &states)
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    recurrent::pipelines(profile, "ssm_scan", MAX_STATE)
}
