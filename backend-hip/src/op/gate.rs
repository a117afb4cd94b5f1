//! Choice of experts fused with the product that computes their scores, for few tokens.

use super::grid::{launch, scratch, tensors};
use super::{Context, Launch, Operand, Refusal};
use ggml_core::fuse::Gate;
use ggml_core::kernel::GateParams;

/// Maximum number of tokens; each token reads the rows of all experts.
const MOST_TOKENS: u32 = 4;
/// Threads of a work-group.
const THREADS: u32 = 128;
/// Maximum work-groups per token; with more experts each work-group computes several.
const MOST_GROUPS: u32 = 512;
/// Maximum number of experts if they are not chosen directly by their scores, as in `choice.h`.
const MOST_CANDIDATES: u32 = 1024;

/// Plans the launch of a group: each lane of a wavefront holds one of the weights.
pub(super) fn plan(c: &Context<'_>, gate: &Gate) -> Result<Vec<Launch>, Refusal> {
    let p = GateParams::new(c.graph, gate, &|_| 0)?;
    let many = !p.is_plain() && p.experts > MOST_CANDIDATES || p.groups > THREADS;
    if p.tokens > MOST_TOKENS || p.used > c.profile.wave || many {
        return Err(Refusal(format!(
            "choosing {} of {} experts for {} tokens is not fused",
            p.used, p.experts, p.tokens
        )));
    }
    let mut operands = tensors(&GateParams::operands(gate));
    let [scores] = scratch(c, [(u64::from(p.tokens), 4 * u64::from(p.experts))])?;
    operands.splice(5..5, [scores, Operand::Counters(p.tokens)]);
    let groups = [p.experts.min(MOST_GROUPS).into(), p.tokens.into(), 1];
    let launch = launch(c, ("gate", "gate"), operands, &p, groups, THREADS)?;
    Ok(vec![Launch { written: 5, ..launch }])
}
