//! Expert selection kernel.

use super::kernel::{Args, Kernel, Operands, Planned};
use super::soft_max::SoftMaxRow;
use super::top_k::top;
use crate::cpu::execution::Execution;
use crate::cpu::simd::dispatch;
use crate::cpu::window::for_each_pair;
use crate::fuse::Router;

/// TOP_K of the scores, and SOFT_MAX of the selected scores.
///
/// Operand: the scores. Results: indices, weights.
#[derive(Debug)]
pub(super) struct RouterKernel {
    scale: f32,
}

impl RouterKernel {
    /// Plans a group.
    pub(super) fn group(group: &Router, operands: Operands<'_>) -> Result<Planned, String> {
        let src = vec![operands.row(group.scores)?];
        let kernel = Box::new(RouterKernel { scale: group.soft_max.scale });
        Ok(Planned { kernel, src, out: vec![group.ids, group.weights] })
    }
}

impl Kernel for RouterKernel {
    /// Each thread processes some tokens.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(scores), ..], out: mut ids, more: [Some(mut weights), _], .. } = args else {
            return;
        };
        let ([used, tokens, ..], experts) = (ids.ne(), scores.ne()[0]);
        let ns = tokens * (experts + 20 * used);
        let tile = [used, (4096 / experts).max(1), 1, 1];
        for_each_pair([&mut ids, &mut weights], run, [tile; 2], ns, |ids, weights| {
            for i in ids.rows() {
                let (scores, best, row) = (scores.row(i), ids.row(i), weights.row(i));
                top(scores, best);
                row.iter_mut().zip(best).for_each(|(weight, best)| *weight = scores[*best as usize]);
                dispatch(run.detected(), SoftMaxRow { row, mask: None, scale: self.scale, slope: 0.0 });
            }
        });
    }
}
