//! MUL_MAT_ID kernel, with the operations of a mixture of experts.
//!
//! The pairs of token and index are sorted by the matrix that they select, so that every matrix is read once
//! and multiplied with all of its columns as in MUL_MAT.

use super::kernel::{Args, Kernel, Operands, Planned};
use super::mul_mat::{Bias, Matrix, MulMatKernel, Recipe, Routes, Source};
use crate::cpu::execution::{Execution, Line};
use crate::cpu::isa::Detected;
use crate::cpu::window::Input;
use crate::fuse::{ExpertProduct, Experts};
use crate::op::Glu;
use crate::precision::Precision;
use crate::tensor::Tensor;

/// Product with selected matrices. For a group also with biases, and with a second matrix and a GLU, or with
/// weights and a sum.
///
/// Operands: the matrices, the columns, the indices; for a group the second matrices, the biases of both, the
/// weights, the tensor that is added to the sum.
#[derive(Debug)]
pub(super) struct MulMatIdKernel {
    product: MulMatKernel,
    glu: Option<Glu>,
    matrices: usize,
    /// Number of pairs of a token and one of its indices.
    pairs: usize,
}

impl MulMatIdKernel {
    /// Creates the kernel for operands `a`, `b` and `ids`.
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
        Ok(MulMatIdKernel { product, glu: None, matrices: src[0].ne[2], pairs })
    }

    /// Plans a group.
    pub(super) fn group(
        group: &Experts,
        operands: Operands<'_>,
        precision: Precision,
        detected: Detected,
    ) -> Result<Planned, String> {
        let graph = operands.0;
        let first = group.products.first().ok_or("no product")?;
        let second = group.products.get(1);
        if group.products.len() > 2 || second.is_some() != group.glu.is_some() {
            return Err("several results".into());
        }
        let sum = group.weighted.as_ref().and_then(|weighted| weighted.nodes.last().copied());
        let mut kernel = MulMatIdKernel::new(&graph.operands(first.node), precision, detected)?;
        kernel.glu = group.glu.map(|glu| glu.op);
        if group.glu.is_some() || sum.is_some() {
            kernel.product = kernel.product.with_scratch_products(kernel.pairs)?;
        }
        let bias = |of: Option<&ExpertProduct>| of.and_then(|of| of.bias).map(|(rows, _)| rows);
        let mut src =
            vec![Some(first.weight), Some(group.input), Some(group.ids), second.map(|up| up.weight)];
        let weights = group.weighted.as_ref().map(|weighted| weighted.weights);
        for id in [bias(Some(first)), bias(second), weights, group.added()] {
            src.push(id.map_or(Ok(None), |id| operands.row(id))?);
        }
        let last = group.residual.map(|sum| sum.node).or(group.glu.map(|glu| glu.node)).or(sum);
        Ok(Planned { kernel: Box::new(kernel), src, out: vec![last.unwrap_or(first.result)] })
    }

    /// Returns the lines of the sorted pairs: the ends of all matrices' pairs, then the pairs.
    fn lines(&self) -> usize {
        (4 * (self.matrices + 1 + self.pairs)).div_ceil(size_of::<Line>())
    }

    /// Sorts the pairs by counting; pairs with an index out of range come last.
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
        // So far the beginnings; each now advances to its end.
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

    fn run<'a>(&self, run: &Execution<'_>, args: Args<'a>) {
        let Args {
            src: [Some(a), Some(x), Some(ids), other, bias, other_bias, weights, added, ..],
            out,
            shared,
            ..
        } = args
        else {
            return;
        };
        let (routes, shared) = shared.split_at_mut(self.lines());
        let routes = self.sort(&ids, routes);
        let matrix = |weight, bias: Option<Input<'a>>| Matrix {
            weight,
            bias: bias.map(|rows| Bias::Chosen(rows, ids)),
        };
        let gated = self.glu.and_then(|op| Some((op, matrix(other?, other_bias))));
        let recipe = Recipe { matrix: matrix(a, bias), gated, weights, added };
        let source = Source { x, norm: None };
        self.product.multiply(
            run,
            source,
            &[Some(recipe), None, None],
            [Some(out), None, None],
            shared,
            Some(routes),
        );
    }
}
