//! Selection of experts fused with the product that gives the scores, for few tokens.

use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Gate;
use ggml_core::kernel::GateParams;

/// Maximum number of tokens: the rows of all experts are read for each of them.
const MOST_TOKENS: u32 = 4;
/// Invocations of a work-group.
const WORKGROUP: u32 = 128;
/// Maximum quads of each row that an invocation has in flight.
const MOST_QUADS: u32 = 4;
/// Maximum work-groups of a token; with more experts each work-group computes several.
const MOST_GROUPS: u32 = 512;
/// Maximum scores per invocation in the selection.
const MOST_HELD: u32 = 8;

/// Returns the pipeline. `general`: experts are not chosen by their scores only.
fn spec(profile: &Profile, k: u32, experts: u32, general: bool) -> PipelineSpec {
    let workgroup = profile.workgroup(WORKGROUP);
    let quads = k.div_ceil(4 * workgroup).clamp(1, MOST_QUADS).next_power_of_two();
    let held = experts.div_ceil(workgroup).next_power_of_two();
    pipeline("gate", profile.reduction(), &[workgroup, quads, held, general.into()])
}

/// Returns the dispatch of a group.
pub(super) fn plan(c: &Context<'_>, gate: &Gate) -> Result<Vec<Dispatch>, Refusal> {
    let p = GateParams::new(c.graph, gate, &|id| c.windows.remainder(c.graph, id))?;
    let spec = spec(c.profile, p.k, p.experts, !p.is_plain());
    let &[workgroup, _, held, _] = spec.specialization.as_slice() else {
        return Err(Refusal("a gate whose pipeline has no specialisation constants".into()));
    };
    if p.tokens > MOST_TOKENS || held > MOST_HELD || p.used.max(p.groups) > workgroup {
        return Err(Refusal(format!(
            "choosing {} of {} experts for {} tokens is not fused",
            p.used, p.experts, p.tokens
        )));
    }
    let operands = GateParams::operands(gate);
    let mut dispatch = dispatch(spec, operands, &p, [p.experts.min(MOST_GROUPS), p.tokens, 1]);
    let (tokens, scores) = (p.tokens as usize, p.tokens as usize * p.experts as usize);
    dispatch.operands.extend([Operand::Scratch(4 * scores), Operand::Counters(4 * tokens)]);
    Ok(vec![Dispatch { written: 5, ..dispatch }])
}

/// Returns the pipelines of this family, for usual sizes only.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let usual = [(2048, 128, false), (512, 32, false), (4096, 512, false), (7168, 256, true)];
    usual.map(|(k, experts, general)| spec(profile, k, experts, general)).to_vec()
}
