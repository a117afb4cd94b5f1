//! Operations between the projections and attention: a wavefront for each head of a token.

use super::grid::{ROW_THREADS, launch, rows_of, tensors};
use super::{Context, Launch, Operand, Refusal};
use ggml_core::fuse::Heads;
use ggml_core::kernel::HeadsParams;

/// Plans the launches of a group. The table of frequencies serves as a placeholder for missing factors.
pub(super) fn plan(c: &Context<'_>, heads: &Heads) -> Result<Vec<Launch>, Refusal> {
    let (p, o) = HeadsParams::new(c.graph, heads, &|_| 0)?;
    let mut operands = tensors(&[&o.x[..], &o.w, &[o.positions, o.cells]].concat());
    let table = Operand::Constant(o.table);
    operands.extend([table, o.factors.map_or(table, Operand::Tensor)]);
    operands.extend(o.d.map(Operand::Tensor));
    let rows = rows_of([p.d, p.heads.iter().sum(), p.tokens, 1])?;
    let groups = rows.div_ceil(u64::from(ROW_THREADS / c.profile.wave));
    let launch = launch(c, ("heads", "heads"), operands, &p, [groups, 1, 1], ROW_THREADS)?;
    Ok(vec![Launch { written: o.d.len(), ..launch }])
}
