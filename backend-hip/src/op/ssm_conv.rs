//! SSM_CONV: work-groups of channels for each row of the result; a group computes several tokens per
//! work-group.

use super::grid::{ROW_THREADS, launch, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::fuse::Conv;
use ggml_core::kernel::{ConvParams, SsmConvParams};

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = SsmConvParams::new(c.graph, c.node, &[])?;
    let node = c.graph.tensor(c.node);
    let [x, w, state, runs] = [0, 1, 2, 3].map(|i| node.src()[i]);
    let groups = [u64::from(p.channels.div_ceil(ROW_THREADS)), node.ne[1] as u64, 1];
    let operands = tensors(&[x, w, state, runs, c.node]);
    Ok(vec![launch(c, ("ssm_conv", "ssm_conv"), operands, &p, groups, ROW_THREADS)?])
}

/// Plans the launches of a group.
pub(super) fn plan_group(c: &Context<'_>, conv: &Conv) -> Result<Vec<Launch>, Refusal> {
    let p = ConvParams::new(c.graph, conv, &|_| 0)?;
    let groups = [u64::from(p.channels.div_ceil(ROW_THREADS)), p.tiles().into(), 1];
    let operands = tensors(&ConvParams::operands(c.graph, conv));
    let launch = launch(c, ("ssm_conv", "conv"), operands, &p, groups, ROW_THREADS)?;
    Ok(vec![Launch { written: 2, ..launch }])
}
