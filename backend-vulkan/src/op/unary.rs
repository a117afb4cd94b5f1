//! Activations and SCALE, by themselves, and chains of element-wise functions.

use super::grid::{Strided, merge, rows};
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Chain;
use ggml_core::kernel::UnaryParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("unary", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of an activation or SCALE node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    plan_chain(c, &Chain::of_one(c.graph, c.node))
}

/// Returns the dispatch of several functions, one after the other. The first operand is bound in place of
/// missing ones.
pub(super) fn plan_chain(c: &Context<'_>, chain: &Chain) -> Result<Vec<Dispatch>, Refusal> {
    let mut operands = [chain.x; 2 + Chain::OTHERS];
    operands[1..].iter_mut().zip(&chain.others).for_each(|(operand, &other)| *operand = other);
    operands[1 + Chain::OTHERS] = chain.result();
    let mut p = UnaryParams::new(c.graph, chain, operands.map(|id| c.windows.remainder(c.graph, id)))?;
    let whole = Strided { ne: p.ne, nb: contiguous(p.ne) };
    let other = |i: usize| match chain.others.get(i) {
        // Extent 1 where the operand is repeated.
        Some(_) => {
            Strided { ne: std::array::from_fn(|d| if p.nb[i][d] == 0 { 1 } else { p.ne[d] }), nb: p.nb[i] }
        }
        None => whole,
    };
    let mut shapes = [whole, Strided { ne: p.ne, nb: p.nb0 }, other(0), other(1), other(2)];
    merge(&mut shapes);
    let [d, a, others @ ..] = shapes;
    (p.ne, p.nb0) = (d.ne, a.nb);
    p.nb.iter_mut().zip(others).take(chain.others.len()).for_each(|(nb, other)| *nb = other.nb);
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), p.ne);
    Ok(vec![dispatch(spec(c.profile, grid.once), operands, &p, grid.groups)])
}

/// Returns the strides of a tensor without gaps. Strides beyond 32 bits saturate; no tensor has them, so
/// dimensions are not merged across them.
fn contiguous(ne: [u32; 4]) -> [u32; 4] {
    let [n0, n1, n2, _] = ne;
    [1, n0, n0.saturating_mul(n1), n0.saturating_mul(n1).saturating_mul(n2)]
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
