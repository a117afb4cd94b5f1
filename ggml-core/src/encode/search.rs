//! Scale searches, for files that are written once and read often. The best of several scales near the one
//! given by the range is used and then refined: codes and fit are found again from each other.
//!
//! Errors are squared. Where the importance of columns is known, they are weighted by it and, as in ggml, by
//! the value's magnitude. Otherwise all errors count the same: weights by magnitude increase the sum of
//! squared errors, and also the sum that is weighted by the importance of real activations.

use super::{extreme, inverse};

/// Rounds to the nearest integer, halves to even, if the magnitude is at most 2^22. The sum has no bits below
/// one. Unlike [`f32::round`] this is no function call on processors without an instruction for it.
pub(super) fn nearest(x: f32) -> f32 {
    const UNIT_STEPS: f32 = 12_582_912.0;
    (x + UNIT_STEPS) - UNIT_STEPS
}

/// Largest number of refinements of a fit. Most fits stop changing after two.
const REFINEMENTS: usize = 4;

/// Number of scales that an [`Affine`] search tries: the range becomes `top - 1` codes, and a tenth more each
/// time. The first finds values on a grid of every second code.
const TRIES: usize = 20;

/// Parameters of a search for a scale and a minimum.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    /// Largest code; the smallest one is 0.
    pub(super) top: f32,
    /// True if the minimum may be above zero; types with integer scales cannot store it.
    pub(super) above_zero: bool,
}

/// Scale and minimum (subtracted) with the reduction of the weighted sum of squares by them.
#[derive(Clone, Copy)]
struct AffineFit {
    scale: f32,
    minimum: f32,
    gain: f32,
}

impl Affine {
    /// Returns the scale and minimum (subtracted) of values. `weights` are those of the values' errors.
    pub(super) fn best(&self, x: &[f32], weights: &[f32]) -> [f32; 2] {
        let start = if self.above_zero { f32::INFINITY } else { 0.0 };
        let low = x.iter().copied().fold(start, f32::min);
        let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let range = high - low;
        if !(range > 0.0 && range.is_finite()) {
            return [0.0, -low];
        }
        let mut best = AffineFit { scale: range / self.top, minimum: -low, gain: f32::NEG_INFINITY };
        for step in 0..TRIES {
            let inverse = (self.top - 1.0 + 0.1 * step as f32) / range;
            // Codes are relative to the lowest value, and to the best minimum so far.
            for minimum in [-low, best.minimum] {
                self.improve(&mut best, x, weights, inverse, minimum);
            }
        }
        for _ in 0..REFINEMENTS {
            let AffineFit { scale, minimum, .. } = best;
            if !self.improve(&mut best, x, weights, inverse(scale), minimum) {
                break;
            }
        }
        [best.scale, best.minimum]
    }

    /// Replaces a fit by that of the codes of a scale, given by its reciprocal, and a minimum. Returns false
    /// if it is no better.
    fn improve(&self, best: &mut AffineFit, x: &[f32], weights: &[f32], inverse: f32, minimum: f32) -> bool {
        let fit = self.fit(x, weights, inverse, minimum).filter(|fit| fit.gain > best.gain);
        fit.map(|fit| *best = fit).is_some()
    }

    /// Returns the weighted least-squares fit of `scale * q - minimum` to the values; `None` if all codes are
    /// equal.
    fn fit(&self, x: &[f32], weights: &[f32], inverse: f32, minimum: f32) -> Option<AffineFit> {
        let [mut w1, mut q1, mut q2, mut x1, mut qx] = [0.0f32; 5];
        for (&v, &weight) in x.iter().zip(weights) {
            let q = nearest(((v + minimum) * inverse).max(0.0).min(self.top));
            let (wq, wx) = (weight * q, weight * v);
            w1 += weight;
            q1 += wq;
            q2 += wq * q;
            x1 += wx;
            qx += wq * v;
        }
        let determinant = w1 * q2 - q1 * q1;
        if determinant.is_nan() || determinant <= 0.0 {
            return None;
        }
        let minimum = (q1 * qx - q2 * x1) / determinant;
        if minimum < 0.0 && !self.above_zero {
            return Some(AffineFit { scale: qx / q2, minimum: 0.0, gain: qx * qx / q2 });
        }
        let scale = (w1 * qx - q1 * x1) / determinant;
        Some(AffineFit { scale, minimum, gain: scale * qx - minimum * x1 })
    }
}

/// Returns the weighted least-squares fit of a scale to the codes of another one, given by its reciprocal,
/// and the reduction of the weighted sum of squares by it.
pub(super) fn fit(x: &[f32], weights: &[f32], inverse: f32, code: impl Fn(f32) -> f32) -> (f32, f32) {
    let (mut q2, mut qx) = (0.0f32, 0.0f32);
    for (&v, &weight) in x.iter().zip(weights) {
        let q = code(v * inverse);
        q2 += weight * q * q;
        qx += weight * q * v;
    }
    if q2 > 0.0 { (qx / q2, qx * qx / q2) } else { (0.0, 0.0) }
}

/// Tries scales, given by their reciprocals, and returns the fitted scale with the least weighted error.
pub(super) fn centred(
    x: &[f32],
    weights: &[f32],
    inverses: impl Iterator<Item = f32>,
    code: impl Fn(f32) -> f32,
) -> f32 {
    let mut best = (0.0, 0.0);
    for inverse in inverses {
        let fitted = fit(x, weights, inverse, &code);
        if fitted.1 > best.1 {
            best = fitted;
        }
    }
    for _ in 0..REFINEMENTS {
        let fitted = fit(x, weights, inverse(best.0), &code);
        let better = fitted.1 > best.1;
        if !better {
            break;
        }
        best = fitted;
    }
    best.0
}

/// Returns the scale for codes `-zero .. zero`. It maps the value of largest magnitude to about `-zero`, or
/// to about `zero - 1`.
pub(super) fn signed(x: &[f32], weights: &[f32], zero: f32) -> f32 {
    let most = inverse(extreme(x));
    let below = (-9..=9).map(|step| -(zero + 0.1 * step as f32) * most);
    let above = (-5..=5).map(|step| (zero - 1.0 + 0.1 * step as f32) * most);
    centred(x, weights, below.chain(above), |x| nearest(x.max(-zero).min(zero - 1.0)))
}

/// Returns a scale and codes `0..=top` of non-negative values. It uses the best of the scales near that of
/// the largest value, then improves each code by itself as long as the fit gets better (as ggml's
/// `make_qp_quants`).
pub(super) fn positive<const N: usize>(x: &[f32; N], weights: &[f32; N], top: u8) -> (f32, [u8; N]) {
    let most = inverse(extreme(x));
    let code = |v: f32| (v.round() as u8).min(top);
    let inverses = (-4..=4).map(|step| (f32::from(top) + 0.1 * step as f32) * most);
    let unit = centred(x, weights, inverses, |v| f32::from(code(v)));
    let mut q = x.map(|v| code(v * inverse(unit)));
    let sums = |q: &[u8; N]| {
        let terms = q.iter().zip(x).zip(weights).map(|((q, v), weight)| (f32::from(*q), *v, *weight));
        terms.fold((0.0f32, 0.0f32), |(q2, qx), (q, v, weight)| (q2 + weight * q * q, qx + weight * q * v))
    };
    let (mut q2, mut qx) = sums(&q);
    for _ in 0..5 {
        let before = q;
        for i in 0..N {
            let (weight, old) = (weights[i], f32::from(q[i]));
            let (other2, otherx) = (q2 - weight * old * old, qx - weight * old * x[i]);
            if !(other2 > 0.0 && otherx > 0.0) {
                continue;
            }
            // The scale fitted to the other codes only.
            let new = code(x[i] * other2 / otherx);
            let with = f32::from(new);
            let (new2, newx) = (other2 + weight * with * with, otherx + weight * with * x[i]);
            if new != q[i] && newx * newx * q2 > qx * qx * new2 {
                (q[i], q2, qx) = (new, new2, newx);
            }
        }
        if q == before {
            break;
        }
    }
    let (q2, qx) = sums(&q);
    (if q2 > 0.0 { qx / q2 } else { 0.0 }, q)
}
