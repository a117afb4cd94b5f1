//! Vector functions, accurate to a few units in the last place of F32.

use super::Simd;
use crate::op::Activation;

/// Returns `e^x`; 0 below the subnormal range, infinity above the largest float, NaN for NaN.
///
/// `x = n ln 2 + r` with an integer `n`, where `ln 2` is split into two parts (Cody and Waite 1980); `e^r` by
/// the polynomial of Cephes (Moshier, `expf`). `2^n` is applied in two steps, so that results underflow and
/// overflow correctly.
#[inline(always)]
pub(super) fn exp_lanes<S: Simd>(s: S, x: S::F) -> S::F {
    // This order of operands propagates NaN.
    let x = s.min(s.splat(100.0), s.max(s.splat(-110.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let terms = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 5e-1];
    let p = polynomial(s, &terms, r);
    let p = s.add(s.fma(s.mul(p, r), r, r), s.splat(1.0));
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(p, s.exp2i(half)), s.exp2i(s.sub(n, half)))
}

/// Returns `e^x` as [`exp_lanes`] does.
#[inline(always)]
pub(in crate::cpu) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    s.exp(x)
}

/// Evaluates a polynomial, highest power first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, terms: &[f32; N], x: S::F) -> S::F {
    let mut p = s.splat(terms[0]);
    for &term in &terms[1..] {
        p = s.fma(p, x, s.splat(term));
    }
    p
}

/// Returns the hyperbolic tangent: a polynomial near 0 (Moshier, Cephes `tanhf`), else from `e^2x`.
#[inline(always)]
pub(in crate::cpu) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    let one = s.splat(1.0);
    let far = s.sub(one, s.div(s.splat(2.0), s.add(exp(s, s.add(a, a)), one)));
    let z = s.mul(x, x);
    let terms = [-5.704_988_7e-3, 2.063_908_8e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1];
    let near = s.fma(s.mul(polynomial(s, &terms, z), z), x, x);
    s.select_lt(a, s.splat(0.625), near, s.flip(far, x))
}

/// Returns `1 - erf(x)` for `x >= 0`: `e^(-x^2)` times a polynomial in `1 / (1 + x / 2)`. The polynomial was
/// fitted for this library to a relative error of 5e-8 on [0, 10]; beyond, the result is 0 in F32.
#[inline(always)]
fn erfc<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.div(s.splat(1.0), s.fma(x, s.splat(0.5), s.splat(1.0)));
    let terms = [
        -0.059_068_967,
        0.284_575,
        -0.487_199_96,
        0.278_067_2,
        -0.026_625_697,
        0.202_686_88,
        0.243_103_76,
        0.282_375_3,
        0.282_086_43,
    ];
    let gauss = exp(s, s.flip(s.mul(x, x), s.splat(-1.0)));
    s.mul(s.mul(polynomial(s, &terms, t), t), gauss)
}

/// Returns `ln(1 + x)` for `x` in 0 ..= 1: twice the series of the inverse hyperbolic tangent of
/// `x / (2 + x)`. The argument is at most 1/3, so the truncation error is below 2e-10 of the sum (Abramowitz
/// and Stegun 4.1.29 and 4.6.22).
#[inline(always)]
fn ln_1p<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.div(x, s.add(x, s.splat(2.0)));
    let terms =
        [2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0];
    s.mul(polynomial(s, &terms, s.mul(t, t)), t)
}

/// Returns `x / (1 + e^-u)`.
#[inline(always)]
pub(in crate::cpu) fn gated<S: Simd>(s: S, x: S::F, u: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.flip(u, s.splat(-1.0)))))
}

/// Applies an activation function as [`activate_lanes`] does.
#[inline(always)]
pub(in crate::cpu) fn activate<S: Simd>(s: S, activation: Activation, x: S::F) -> S::F {
    s.activate(activation, x)
}

/// Applies an activation function.
#[inline(always)]
pub(super) fn activate_lanes<S: Simd>(s: S, activation: Activation, x: S::F) -> S::F {
    match activation {
        Activation::Silu => gated(s, x, x),
        // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), which avoids cancellation where tanh is near -1.
        Activation::Gelu => {
            let cubic = s.fma(s.mul(s.mul(x, x), s.splat(0.044_715)), x, x);
            gated(s, x, s.mul(cubic, s.splat(1.595_769_2)))
        }
        Activation::GeluErf => {
            // x Phi(x), where Phi is erfc / 2 below 0 and one minus that above.
            let half =
                s.mul(s.splat(0.5), erfc(s, s.mul(s.abs(x), s.splat(std::f32::consts::FRAC_1_SQRT_2))));
            s.mul(x, s.select_lt(x, s.splat(0.0), half, s.sub(s.splat(1.0), half)))
        }
        Activation::GeluQuick => gated(s, x, s.mul(x, s.splat(1.702))),
        Activation::Relu => s.max(x, s.splat(0.0)),
        Activation::Sigmoid => gated(s, s.splat(1.0), x),
        // Avoids overflow for large x; this order of operands propagates NaN.
        Activation::Softplus => {
            let small = exp(s, s.flip(s.abs(x), s.splat(-1.0)));
            s.add(s.max(s.splat(0.0), x), ln_1p(s, small))
        }
        Activation::Tanh => tanh(s, x),
    }
}

/// Returns sine and cosine of an angle in revolutions, in -0.5 ..= 0.5.
///
/// Both are computed as the sine of at most a quarter revolution: `sin x = sin(pi - x)`,
/// `cos x = sin(pi / 2 - |x|)`. The polynomial is a minimax fit made for this library (error 2e-11 before
/// rounding).
#[inline(always)]
pub(in crate::cpu) fn sin_cos_revolutions<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let quarter = s.splat(0.25);
    let a = s.abs(x);
    let folded = s.sub(quarter, s.abs(s.sub(a, quarter)));
    (s.flip(sin_quarter(s, folded), x), sin_quarter(s, s.sub(quarter, a)))
}

/// Returns the sine of at most a quarter revolution.
#[inline(always)]
fn sin_quarter<S: Simd>(s: S, x: S::F) -> S::F {
    let terms = [-14.337_026, 41.999_99, -76.703_67, 81.605_21, -41.341_7, std::f32::consts::TAU];
    s.mul(polynomial(s, &terms, s.mul(x, x)), x)
}

#[cfg(test)]
mod tests {
    use super::super::{Job, dispatch};
    use super::*;
    use crate::cpu::isa::{Detected, Isa};

    /// One of the functions, applied to sixteen floats.
    #[derive(Clone, Copy)]
    struct Apply(fn(usize) -> f32, usize, usize);

    impl Job for Apply {
        type Out = Vec<(f32, f32)>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Out {
            let x: Vec<f32> = (0..self.2).map(self.0).collect();
            let mut out = Vec::new();
            for x in x.chunks(S::LANES) {
                let v = s.load_partial(x);
                let y = match self.1 {
                    0 => exp(s, v),
                    1 => tanh(s, v),
                    2 => erfc(s, v),
                    3 => sin_cos_revolutions(s, v).0,
                    4 => sin_cos_revolutions(s, v).1,
                    _ => ln_1p(s, v),
                };
                let mut got = vec![0.0; x.len()];
                s.store_partial(&mut got, y);
                out.extend(x.iter().copied().zip(got));
            }
            out
        }
    }

    fn check(
        points: fn(usize) -> f32,
        function: usize,
        count: usize,
        want: fn(f64) -> f64,
        relative: f64,
        absolute: f64,
    ) {
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            for (x, got) in dispatch(Detected::new(Some(isa)).unwrap(), Apply(points, function, count)) {
                let want = want(f64::from(x));
                let error = (f64::from(got) - want).abs();
                assert!(
                    error <= relative * want.abs() + absolute || f64::from(got) == want,
                    "{isa:?} function {function}: f({x}) = {got}, not {want}"
                );
            }
        }
    }

    #[test]
    fn functions_are_accurate() {
        check(|i| i as f32 * 0.0013 - 104.0, 0, 148_000, f64::exp, 3e-7, 1.5e-45);
        check(|i| i as f32 * 0.0013 - 12.0, 1, 20_000, f64::tanh, 3e-7, 0.0);
        // e^(-x^2) of a rounded square has 2 x^2 times its rounding error.
        check(|i| i as f32 * 0.0013, 2, 3_000, erfc_f64, 2e-6, 0.0);
        check(|i| i as f32 * 0.0013, 2, 800, erfc_f64, 4e-7, 0.0);
        check(|i| (i as f32 * 0.0013 - 26.0).exp2(), 5, 20_000, f64::ln_1p, 3e-7, 0.0);
        check(|i| i as f32 * 1e-4 - 0.5, 3, 10_001, |x| (x * std::f64::consts::TAU).sin(), 0.0, 2e-7);
        check(|i| i as f32 * 1e-4 - 0.5, 4, 10_001, |x| (x * std::f64::consts::TAU).cos(), 0.0, 2e-7);
    }

    /// Returns erfc by the series of erf where that has no cancellation (Abramowitz and Stegun 7.1.5), else
    /// by the continued fraction of erfc (7.1.14).
    fn erfc_f64(x: f64) -> f64 {
        let root = std::f64::consts::PI.sqrt();
        if x < 1.5 {
            let (mut term, mut sum) = (x, x);
            for n in 1..60 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return 1.0 - 2.0 / root * sum;
        }
        let fraction = (1..200).rev().fold(x, |f, n| x + f64::from(n) / 2.0 / f);
        (-x * x).exp() / (fraction * root)
    }

    #[test]
    fn exp_at_the_borders() {
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            let points = |i: usize| [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e30, 1e30, 0.0][i];
            let out = dispatch(Detected::new(Some(isa)).unwrap(), Apply(points, 0, 6));
            let got: Vec<f32> = out.into_iter().map(|(_, y)| y).collect();
            assert!(got[2].is_nan());
            assert_eq!(
                (got[0], got[1], got[3], got[4], got[5]),
                (0.0, f32::INFINITY, 0.0, f32::INFINITY, 1.0)
            );
        }
    }
}
