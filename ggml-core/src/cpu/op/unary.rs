//! Activations and SCALE, and chains of them.

use super::binary::apply;
use super::{Args, Kernel, Operands, Planned, row_tiles};
use crate::cpu::run::Run;
use crate::cpu::simd::map::map;
use crate::cpu::simd::math::activate;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::fuse::Chain;
use crate::op::{Activation, Binary, Op, Scale};
use crate::tensor::TensorId;

/// Functions of every element, one after the other.
///
/// Operands: `x`, and of a chain with a sum or a product the row for it.
#[derive(Debug)]
pub(super) struct UnaryKernel(Vec<Function>);

#[derive(Clone, Copy, Debug)]
enum Function {
    Activation(Activation),
    Scale(Scale),
    /// With the row.
    Row(Binary),
}

impl UnaryKernel {
    /// An activation.
    pub(super) fn activation(activation: Activation) -> UnaryKernel {
        UnaryKernel(vec![Function::Activation(activation)])
    }

    /// SCALE.
    pub(super) fn scale(scale: Scale) -> UnaryKernel {
        UnaryKernel(vec![Function::Scale(scale)])
    }

    /// A chain.
    pub(super) fn group(group: &Chain, operands: Operands<'_>) -> Result<Planned, String> {
        let function = |&node: &TensorId| match operands.0.tensor(node).op() {
            Some(Op::Unary(op)) => Ok(Function::Activation(op.activation)),
            Some(Op::Scale(op)) => Ok(Function::Scale(*op)),
            Some(Op::Binary(op)) => Ok(Function::Row(*op)),
            op => Err(format!("a chain of {}", op.map_or("nothing", Op::name))),
        };
        let functions = group.nodes.iter().map(function).collect::<Result<_, _>>()?;
        let row = group.row.map_or(Ok(None), |row| operands.row(row))?;
        let kernel = Box::new(UnaryKernel(functions));
        Ok(Planned { kernel, src: vec![Some(group.x), row], out: vec![group.result()] })
    }
}

impl Kernel for UnaryKernel {
    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [x, of, ..], mut out, .. } = args;
        let ne = out.ne();
        let quarters = self.0.iter().map(|f| if matches!(f, Function::Activation(_)) { 8 } else { 1 });
        let ns = ne.iter().product::<usize>() * quarters.sum::<usize>() / 4;
        let of = of.as_ref().map(|of| of.row([0; 3]));
        out.for_each_tile(run, row_tiles(ne), ns, |tile| {
            let range = tile.range(0);
            for i in tile.rows() {
                let row = tile.row(i);
                if let Some(x) = &x {
                    x.gather(i, range.start, row);
                }
                for &function in &self.0 {
                    let of = of.map_or(&[][..], |of| &of[range.clone()]);
                    dispatch(run.detected(), Apply { function, row, of });
                }
            }
        });
    }
}

/// The function applied to a row in place.
struct Apply<'a> {
    function: Function,
    row: &'a mut [f32],
    /// For [`Function::Row`].
    of: &'a [f32],
}

impl Job for Apply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.function {
            Function::Scale(Scale { scale, bias }) => {
                let (scale, bias) = (s.splat(scale), s.splat(bias));
                map!(s, self.row, |x| s.fma(x, scale, bias));
            }
            Function::Row(op) => apply(s, op, self.row, self.of),
            // One loop for each function: the choice is made outside of it.
            Function::Activation(Activation::Silu) => map!(s, self.row, |x| activate(s, Activation::Silu, x)),
            Function::Activation(Activation::Gelu) => map!(s, self.row, |x| activate(s, Activation::Gelu, x)),
            Function::Activation(Activation::GeluErf) => {
                map!(s, self.row, |x| activate(s, Activation::GeluErf, x))
            }
            Function::Activation(Activation::GeluQuick) => {
                map!(s, self.row, |x| activate(s, Activation::GeluQuick, x))
            }
            Function::Activation(Activation::Relu) => map!(s, self.row, |x| activate(s, Activation::Relu, x)),
            Function::Activation(Activation::Sigmoid) => {
                map!(s, self.row, |x| activate(s, Activation::Sigmoid, x))
            }
            Function::Activation(Activation::Softplus) => {
                map!(s, self.row, |x| activate(s, Activation::Softplus, x))
            }
            Function::Activation(Activation::Tanh) => map!(s, self.row, |x| activate(s, Activation::Tanh, x)),
        }
    }
}
