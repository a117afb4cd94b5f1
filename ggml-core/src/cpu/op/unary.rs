//! Kernels of activations, SCALE, and chains of element-wise functions.

use super::binary::Combine;
use super::glu;
use super::kernel::{Args, Kernel, Operands, Planned, row_tiles};
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::map;
use crate::cpu::simd::math::activate;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::fuse::Chain;
use crate::op::{Activation, Binary, Glu, Op, Scale};
use crate::tensor::TensorId;

/// Functions applied to every element, one after the other.
///
/// Operands: `x`, and for a chain the other operands of its sums, products and gated units, in order.
#[derive(Debug)]
pub(super) struct UnaryKernel(Vec<Function>);

#[derive(Clone, Copy, Debug)]
enum Function {
    Activation(Activation),
    Scale(Scale),
    /// ADD or MUL with the next other operand.
    With(Binary),
    /// Gated unit with the next other operand; the flag is true if the chain's value is the gate.
    Gated(Glu, bool),
}

impl UnaryKernel {
    /// Creates the kernel of an activation.
    pub(super) fn activation(activation: Activation) -> UnaryKernel {
        UnaryKernel(vec![Function::Activation(activation)])
    }

    /// Creates the kernel of SCALE.
    pub(super) fn scale(scale: Scale) -> UnaryKernel {
        UnaryKernel(vec![Function::Scale(scale)])
    }

    /// Plans a chain.
    pub(super) fn group(group: &Chain, operands: Operands<'_>) -> Result<Planned, String> {
        let graph = operands.0;
        let function = |(&node, of): (&TensorId, TensorId)| match graph.tensor(node).op() {
            Some(Op::Unary(op)) => Ok(Function::Activation(op.activation)),
            Some(Op::Scale(op)) => Ok(Function::Scale(*op)),
            Some(Op::Binary(op)) => Ok(Function::With(*op)),
            Some(Op::Glu(op)) if op.clamped.is_none() => {
                Ok(Function::Gated(*op, Chain::is_gate(graph, node, of)))
            }
            op => Err(format!("a chain of {}", op.map_or("nothing", Op::name))),
        };
        let functions = group.nodes.iter().zip(group.inputs()).map(function).collect::<Result<_, _>>()?;
        let mut src = vec![Some(group.x)];
        for &other in &group.others {
            src.push(operands.row(other)?);
        }
        Ok(Planned { kernel: Box::new(UnaryKernel(functions)), src, out: vec![group.result()] })
    }

    /// Returns the approximate time for one element in quarter nanoseconds.
    fn quarters(&self) -> usize {
        let of =
            |f: &Function| if matches!(f, Function::Activation(_) | Function::Gated(..)) { 8 } else { 1 };
        self.0.iter().map(of).sum()
    }
}

impl Kernel for UnaryKernel {
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [x, others @ ..], mut out, .. } = args;
        let ne = out.ne();
        let ns = ne.iter().product::<usize>() * self.quarters() / 4;
        out.for_each_tile(run, row_tiles(ne), ns, |tile| {
            let range = tile.range(0);
            if let Some(x) = &x {
                tile.rows().for_each(|i| x.gather(i, range.start, tile.row::<f32>(i)));
            }
            let mut others = others.iter().flatten();
            for &function in &self.0 {
                match function {
                    Function::With(op) => {
                        let Some(b) = others.next() else { continue };
                        dispatch(run.detected(), Combine { op, a: None, b, tile });
                    }
                    Function::Gated(op, gate_in_row) => {
                        let Some(other) = others.next() else { continue };
                        tile.rows().for_each(|i| {
                            let (row, other) = (tile.row(i), &other.row(i)[range.clone()]);
                            dispatch(run.detected(), glu::Apply { op, row, other, gate_in_row });
                        });
                    }
                    _ => tile.rows().for_each(|i| {
                        dispatch(run.detected(), Apply { function, row: tile.row(i) });
                    }),
                }
            }
        });
    }
}

/// Job that applies a function to a row in place.
struct Apply<'a> {
    function: Function,
    row: &'a mut [f32],
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
            // Handled by other jobs.
            Function::With(_) | Function::Gated(..) => {}
            // One loop for each function, so that the function is selected outside the loop.
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
