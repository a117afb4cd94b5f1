//! MUL_MAT_ID.
//!
//! The pairs of token and index are sorted by the matrix that they choose, so that every matrix is read once, and
//! multiplied with all of its columns as MUL_MAT does.

use super::mul_mat::{MulMatKernel, Routes};
use super::{Args, Kernel};
use crate::cpu::isa::Detected;
use crate::cpu::run::{Line, Run};
use crate::cpu::window::Input;
use crate::plan::Precision;
use crate::tensor::Tensor;

/// Product with chosen matrices.
#[derive(Debug)]
pub(super) struct MulMatIdKernel {
    product: MulMatKernel,
    matrices: usize,
    /// Pairs of a token and one of its indices.
    pairs: usize,
}

impl MulMatIdKernel {
    /// For operands `a`, `b` and `ids`.
    pub(super) fn new(
        src: &[&Tensor],
        precision: Precision,
        detected: Detected,
    ) -> Result<MulMatIdKernel, String> {
        let product = MulMatKernel::routed(src, precision, detected)?;
        let pairs = src[2].ne[0] * src[2].ne[1];
        if u32::try_from(pairs).is_err() {
            return Err(format!("{pairs} products with chosen matrices are too many"));
        }
        Ok(MulMatIdKernel { product, matrices: src[0].ne[2], pairs })
    }

    /// Lines of the sorted pairs: the ends of all matrices' pairs, then the pairs.
    fn lines(&self) -> usize {
        (4 * (self.matrices + 1 + self.pairs)).div_ceil(size_of::<Line>())
    }

    /// Sorts the pairs by counting; those with an index outside come last.
    fn sort<'a>(&self, ids: &Input<'_>, lines: &'a mut [Line]) -> Routes<'a> {
        let (ends, pairs) = bytemuck::cast_slice_mut::<Line, u32>(lines).split_at_mut(self.matrices + 1);
        let pairs = &mut pairs[..self.pairs];
        let used = ids.ne()[0];
        let chosen = |pair: usize| {
            let id: i32 = ids.at([pair % used, pair / used, 0, 0]);
            usize::try_from(id).map_or(self.matrices, |id| id.min(self.matrices))
        };
        ends.fill(0);
        (0..self.pairs).for_each(|pair| ends[chosen(pair)] += 1);
        let mut before = 0;
        for end in ends.iter_mut() {
            (*end, before) = (before, before + *end);
        }
        // Until here the beginnings; each moves to its end.
        for pair in 0..self.pairs {
            let end = &mut ends[chosen(pair)];
            pairs[*end as usize] = pair as u32;
            *end += 1;
        }
        Routes { pairs, ends: &ends[..self.matrices], used }
    }
}

impl Kernel for MulMatIdKernel {
    fn shared_bytes(&self) -> usize {
        self.product.shared_bytes() + self.lines() * size_of::<Line>()
    }

    fn local_bytes(&self) -> usize {
        self.product.local_bytes()
    }

    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [Some(a), Some(b), Some(ids), ..], out, shared } = args else { return };
        let (routes, shared) = shared.split_at_mut(self.lines());
        let routes = self.sort(&ids, routes);
        self.product.multiply(run, [a, b], out, shared, Some(routes));
    }
}
