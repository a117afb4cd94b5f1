//! Activations and SCALE.

use super::{Args, Kernel, row_tiles};
use crate::cpu::run::Run;
use crate::cpu::simd::map::map;
use crate::cpu::simd::math::activate;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::op::{Activation, Scale};

/// A function of every element.
#[derive(Debug)]
pub(super) struct UnaryKernel(Function);

#[derive(Clone, Copy, Debug)]
enum Function {
    Activation(Activation),
    Scale(Scale),
}

impl UnaryKernel {
    /// An activation.
    pub(super) fn activation(activation: Activation) -> UnaryKernel {
        UnaryKernel(Function::Activation(activation))
    }

    /// SCALE.
    pub(super) fn scale(scale: Scale) -> UnaryKernel {
        UnaryKernel(Function::Scale(scale))
    }
}

impl Kernel for UnaryKernel {
    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [x, ..], mut out, .. } = args;
        let ne = out.ne();
        let count = ne.iter().product::<usize>();
        let ns = if matches!(self.0, Function::Scale(_)) { count / 4 } else { 2 * count };
        out.for_each_tile(run, row_tiles(ne), ns, |tile| {
            let first = tile.range(0).start;
            for i in tile.rows() {
                let row = tile.row(i);
                if let Some(x) = &x {
                    x.gather(i, first, row);
                }
                dispatch(run.detected(), Apply(self.0, row));
            }
        });
    }
}

/// The function applied to a row in place.
struct Apply<'a>(Function, &'a mut [f32]);

impl Job for Apply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.0 {
            Function::Scale(Scale { scale, bias }) => {
                let (scale, bias) = (s.splat(scale), s.splat(bias));
                map!(s, self.1, |x| s.fma(x, scale, bias));
            }
            // One loop for each function: the choice is made outside of it.
            Function::Activation(Activation::Silu) => map!(s, self.1, |x| activate(s, Activation::Silu, x)),
            Function::Activation(Activation::Gelu) => map!(s, self.1, |x| activate(s, Activation::Gelu, x)),
            Function::Activation(Activation::GeluErf) => {
                map!(s, self.1, |x| activate(s, Activation::GeluErf, x))
            }
            Function::Activation(Activation::GeluQuick) => {
                map!(s, self.1, |x| activate(s, Activation::GeluQuick, x))
            }
            Function::Activation(Activation::Relu) => map!(s, self.1, |x| activate(s, Activation::Relu, x)),
            Function::Activation(Activation::Sigmoid) => {
                map!(s, self.1, |x| activate(s, Activation::Sigmoid, x))
            }
            Function::Activation(Activation::Softplus) => {
                map!(s, self.1, |x| activate(s, Activation::Softplus, x))
            }
            Function::Activation(Activation::Tanh) => map!(s, self.1, |x| activate(s, Activation::Tanh, x)),
        }
    }
}
