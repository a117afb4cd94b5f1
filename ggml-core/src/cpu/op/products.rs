//! Kernel of products with one input and of the operations around them.

use super::kernel::{Args, Kernel, Operands, Planned};
use super::mul_mat::{Bias, Matrix, MulMatKernel, Recipe, Source};
use crate::cpu::execution::Execution;
use crate::cpu::isa::Detected;
use crate::fuse::Products;
use crate::op::Glu;
use crate::precision::Precision;

/// Group of products.
///
/// Operands: the input, or the operand of its norm; the weight of the norm; three matrices; their biases; the
/// tensor that is added to a single product.
#[derive(Debug)]
pub(super) struct ProductsKernel {
    product: MulMatKernel,
    eps: f32,
    glu: Option<Glu>,
}

/// Maximum number of matrices in a group.
const MOST: usize = 3;

impl ProductsKernel {
    /// Plans a group.
    pub(super) fn group(
        group: &Products,
        operands: Operands<'_>,
        precision: Precision,
        detected: Detected,
    ) -> Result<Planned, String> {
        let graph = operands.0;
        let first = group.products.first().ok_or("no product")?;
        if group.products.len() > MOST {
            return Err(format!("more than {MOST} products"));
        }
        let mut product = MulMatKernel::new(&graph.operands(first.node), precision, detected)?;
        let mut src = vec![None; 3 + 2 * MOST];
        src[0] = operands.row(group.norm.map_or(group.input, |norm| norm.x))?;
        if let Some(norm) = &group.norm {
            src[1] = operands.row(norm.weight)?;
            product = product.with_norm();
        }
        for (i, part) in group.products.iter().enumerate() {
            src[2 + i] = Some(part.weight);
            if let Some(bias) = part.bias {
                src[2 + MOST + i] = operands.row(bias)?;
            }
        }
        if let Some(added) = group.added() {
            src[2 + 2 * MOST] = operands.row(added)?;
        }
        let glu = group.glu.map(|glu| glu.op);
        if glu.is_some() || group.added().is_some() {
            product = product.with_scratch_products(1)?;
        }
        let kernel = ProductsKernel { product, eps: group.norm.map_or(0.0, |norm| norm.eps), glu };
        let joint = group.glu.map(|glu| glu.node).or(group.residual.map(|sum| sum.node));
        let out = match joint {
            Some(node) => vec![node],
            None => group.products.iter().map(|product| product.result).collect(),
        };
        Ok(Planned { kernel: Box::new(kernel), src, out })
    }
}

impl Kernel for ProductsKernel {
    fn shared_bytes(&self) -> usize {
        self.product.shared_bytes()
    }

    fn local_bytes(&self) -> usize {
        self.product.local_bytes()
    }

    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src, out, more, shared } = args;
        let (Some(x), norm, added) = (src[0], src[1], src[2 + 2 * MOST]) else { return };
        let matrix = |i: usize| {
            let bias = src[2 + MOST + i].map(Bias::Row);
            src[2 + i].map(|weight| Matrix { weight, bias })
        };
        let recipe = |i: usize| {
            let first = matrix(i)?;
            let Some(op) = self.glu else {
                return Some(Recipe { matrix: first, gated: None, weights: None, added });
            };
            // The halves of a single matrix are gate and up, or up and gate.
            let [gate, up] = match (matrix(1), first.halves()) {
                (Some(up), _) => [first, up],
                (None, [up, gate]) if op.swapped => [gate, up],
                (None, halves) => halves,
            };
            Some(Recipe { matrix: gate, gated: Some((op, up)), weights: None, added: None })
        };
        let [second, third] = more;
        let outs = [Some(out), second, third];
        let recipes = [recipe(0), outs[1].as_ref().and(recipe(1)), outs[2].as_ref().and(recipe(2))];
        let b = Source { x, norm: norm.map(|weight| (weight, self.eps)) };
        self.product.multiply(run, b, &recipes, outs, shared, None);
    }
}
