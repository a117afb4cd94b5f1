//! Kernel of heads between the projections and attention: norm, rotation (ROPE) and storing in the cache.

use super::kernel::{Args, Kernel, MAX_OPERANDS, Operands, Planned};
use super::norm::Normalize;
use super::rope::RopeKernel;
use super::rows::{store, valid};
use crate::cpu::execution::Execution;
use crate::cpu::simd::dispatch;
use crate::cpu::window::{Input, MAX_RESULTS, Output, Tile};
use crate::dtype::DType;
use crate::fuse::{Head, Heads};
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Number of tokens from which heads are stored by several threads.
const MANY: usize = 64;

/// Kernel of q, k and v.
#[derive(Debug)]
pub(super) struct HeadsKernel(Vec<HeadKernel>);

/// Kernel of the heads of one result. Operands are given by index.
#[derive(Debug)]
struct HeadKernel {
    x: usize,
    /// Weight and epsilon.
    norm: Option<(usize, f32)>,
    /// ROPE kernel, positions and factors.
    rope: Option<(RopeKernel, usize, Option<usize>)>,
    /// Type of the cache, and the cells.
    stored: Option<(DType, usize)>,
    /// Bytes of the heads of one token.
    bytes: usize,
}

impl HeadsKernel {
    /// Plans a group.
    pub(super) fn group(group: &Heads, operands: Operands<'_>) -> Result<Planned, String> {
        let mut src: Vec<TensorId> = Vec::new();
        let parts = group.heads.iter().map(|head| HeadKernel::new(head, operands, &mut src));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let out: Vec<TensorId> = group.heads.iter().map(Head::result).collect();
        let root = |id: &TensorId| operands.0.tensor(*id).root;
        let twice = (1..out.len()).any(|i| out[..i].iter().any(|other| root(other) == root(&out[i])));
        if twice || out.len() > MAX_RESULTS || src.len() > MAX_OPERANDS {
            return Err("results in one tensor, or too many operands".into());
        }
        let src = src.into_iter().map(Some).collect();
        Ok(Planned { kernel: Box::new(HeadsKernel(parts)), src, out })
    }
}

impl HeadKernel {
    fn new(head: &Head, operands: Operands<'_>, src: &mut Vec<TensorId>) -> Result<HeadKernel, String> {
        let graph: &Graph = operands.0;
        let mut number = |id: TensorId| {
            let known = src.iter().position(|&other| other == id);
            known.unwrap_or_else(|| {
                src.push(id);
                src.len() - 1
            })
        };
        operands.row(head.x)?;
        let x = graph.tensor(head.x);
        let [d, heads, tokens, batches] = x.ne;
        let stored = match &head.stored {
            None => None,
            Some(stored) => {
                let (cache, cells) = (graph.tensor(stored.cache), graph.tensor(stored.cells));
                // Without ROPE the operand has whole rows.
                let [width, count] = if head.rope.is_some() { [d * heads, tokens] } else { [d, heads] };
                let fits = cache.ne[0] == width && cache.ne[2..] == [1, 1] && cells.ne == [count, 1, 1, 1];
                if !fits || !super::rows::stores(cache.dtype) {
                    return Err("a cache of several matrices, or of another type".into());
                }
                Some((cache.dtype, number(stored.cells)))
            }
        };
        if batches != 1 || head.rope.is_none() && (head.norm.is_some() || stored.is_none()) {
            return Err("heads without ROPE".into());
        }
        Ok(HeadKernel {
            x: number(head.x),
            norm: head.norm.map(|norm| (number(norm.weight), norm.eps)),
            rope: head.rope.map(|rope| {
                (RopeKernel::new(rope.op), number(rope.positions), rope.factors.map(&mut number))
            }),
            stored,
            bytes: 4 * d * heads,
        })
    }

    fn run(&self, run: &Execution<'_>, src: &[Option<Input<'_>>], mut out: Output<'_>) {
        let Some(x) = src[self.x] else { return };
        let (ne, elements) = (out.ne(), x.ne().iter().product::<usize>());
        let Some((dtype, cells)) = self.stored else {
            let tokens = (4096 / (ne[0] * ne[1])).max(1);
            return out.for_each_tile(run, [ne[0], ne[1], tokens, 1], 2 * elements, |tile| {
                self.norm_and_rotate(run, src, &x, tile);
            });
        };
        let Some(cells) = src[cells] else { return };
        let (d, tokens) = (x.ne()[0], cells.ne()[0]);
        // Each tile processes all tokens in order, because two of them may have the same cell.
        let by_head = self.rope.is_some() && d % dtype.block() == 0 && tokens >= MANY;
        let tile = [if by_head { d } else { ne[0] }, ne[1], 1, 1];
        out.for_each_tile(run, tile, 2 * elements, |tile| {
            for token in 0..tokens {
                let Some(cell) = valid(cells.at([token, 0, 0, 0]), ne[1]) else { continue };
                let (to, part) = ([cell, 0, 0], tile.range(0));
                if self.rope.is_none() {
                    store(run.detected(), dtype, &x.row([token, 0, 0])[part], tile, to);
                    continue;
                }
                run.local(|local| {
                    let values = &mut bytemuck::cast_slice_mut(local)[..part.len()];
                    let ranges = [0..d, part.start / d..part.end / d, token..token + 1, 0..1];
                    self.norm_and_rotate(run, src, &x, &mut Tile::in_scratch(values, ranges));
                    store(run.detected(), dtype, values, tile, to);
                });
            }
        });
    }

    /// Normalises and rotates the heads of a tile.
    fn norm_and_rotate(
        &self,
        run: &Execution<'_>,
        src: &[Option<Input<'_>>],
        x: &Input<'_>,
        tile: &mut Tile<'_>,
    ) {
        let norm = self.norm.and_then(|(weight, eps)| Some((src[weight].as_ref()?.row([0; 3]), eps)));
        for i in tile.rows() {
            let row = tile.row(i);
            row.copy_from_slice(x.row(i));
            if let Some((weight, eps)) = norm {
                dispatch(run.detected(), Normalize::weighted(row, eps, weight));
            }
        }
        if let Some((rope, positions, factors)) = &self.rope
            && let Some(positions) = &src[*positions]
        {
            let factors = factors.and_then(|factors| src[factors].as_ref());
            rope.rotate(run, positions, factors, tile);
        }
    }
}

impl Kernel for HeadsKernel {
    fn local_bytes(&self) -> usize {
        self.0.iter().map(|part| part.bytes).max().unwrap_or(0)
    }

    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src, out, more: [second, third], .. } = args;
        for (part, out) in self.0.iter().zip([Some(out), second, third]) {
            if let Some(out) = out {
                part.run(run, &src, out);
            }
        }
    }
}
