//! Scale searches, for files that are written once and read often. They follow ggml: errors are weighted by
//! the value's magnitude, and by the importance of its column where known. The best of several scales near
//! the one given by the range is used.

use super::{extreme, inverse};

/// Parameters of a search for a scale and a minimum.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    /// Added to the largest code for the first scale.
    pub(super) first: f32,
    /// Added for each further scale.
    pub(super) step: f32,
    /// Number of scales to try after the first.
    pub(super) tries: usize,
    /// True if errors count by magnitude, not by square.
    pub(super) magnitudes: bool,
    /// True if codes are relative to the best minimum so far, not to the lowest value.
    pub(super) follow: bool,
}

/// Search with the importance of columns (ggml's `make_qkx3_quants`).
pub(super) const WEIGHTED: Affine =
    Affine { first: -0.9, step: 0.05, tries: 36, magnitudes: false, follow: true };

/// Returns the scale and minimum (subtracted, not negative) of values for codes `0..=top`. `weights` are
/// those of the values' errors.
pub(super) fn affine(x: &[f32], weights: &[f32], top: f32, search: Affine) -> [f32; 2] {
    let low = x.iter().copied().fold(0.0, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = high - low;
    if !(range > 0.0 && range.is_finite()) {
        return [0.0, -low];
    }
    let number = |v: f32, inverse: f32, from: f32| (inverse * (v - from)).round().clamp(0.0, top);
    let lost = |inverse: f32, from: f32, [scale, minimum]: [f32; 2]| -> f32 {
        let of = |(&v, weight): (&f32, &f32)| {
            let error = scale * number(v, inverse, from) - minimum - v;
            weight * if search.magnitudes { error.abs() } else { error * error }
        };
        x.iter().zip(weights).map(of).sum()
    };
    let first = [range / top, -low];
    let mut best = (lost(top / range, low, first), first);
    for step in 0..=search.tries {
        let inverse = (search.first + search.step * step as f32 + top) / range;
        let from = if search.follow { -best.1[1] } else { low };
        let fitted = fit_affine(x, weights, |v| number(v, inverse, from));
        if let Some(fitted) = fitted {
            let lost = lost(inverse, from, fitted);
            if lost < best.0 {
                best = (lost, fitted);
            }
        }
    }
    best.1
}

/// Returns the weighted least-squares fit of `scale * q - minimum` with a non-negative minimum; `None` if all
/// codes are equal.
fn fit_affine(x: &[f32], weights: &[f32], number: impl Fn(f32) -> f32) -> Option<[f32; 2]> {
    let [mut w1, mut q1, mut q2, mut x1, mut qx] = [0.0f32; 5];
    for (&v, &weight) in x.iter().zip(weights) {
        let q = number(v);
        w1 += weight;
        q1 += weight * q;
        q2 += weight * q * q;
        x1 += weight * v;
        qx += weight * q * v;
    }
    let determinant = w1 * q2 - q1 * q1;
    if determinant.is_nan() || determinant <= 0.0 {
        return None;
    }
    match (q1 * qx - q2 * x1) / determinant {
        minimum if minimum < 0.0 => Some([qx / q2, 0.0]),
        minimum => Some([(w1 * qx - q1 * x1) / determinant, minimum]),
    }
}

/// Tries scales, given by their reciprocals, and returns the fitted scale with the least weighted error.
pub(super) fn centred(
    x: &[f32],
    weights: &[f32],
    inverses: impl Iterator<Item = f32>,
    number: impl Fn(f32) -> f32,
) -> f32 {
    let mut best = (0.0, 0.0);
    for inverse in inverses {
        let numbers = x.iter().zip(weights).map(|(&v, &weight)| (v, weight, number(v * inverse)));
        let (q2, qx) =
            numbers.fold((0.0, 0.0), |(q2, qx), (v, weight, q)| (q2 + weight * q * q, qx + weight * q * v));
        // Reduction of the weighted sum of squares by the fit.
        if q2 > 0.0 && qx * qx > best.0 * q2 {
            best = (qx * qx / q2, qx / q2);
        }
    }
    best.1
}

/// Returns the scale for codes `-zero .. zero`. It maps the value of largest magnitude to about `-zero`.
pub(super) fn signed(x: &[f32], weights: &[f32], zero: f32) -> f32 {
    let most = inverse(extreme(x));
    let inverses = (-9..=9).map(|step| -(zero + 0.1 * step as f32) * most);
    centred(x, weights, inverses, |x| x.round().clamp(-zero, zero - 1.0))
}

/// Returns a scale and codes `0..=top` of non-negative values. It uses the best of the scales near that of
/// the largest value, then improves each code by itself as long as the fit gets better (as ggml's
/// `make_qp_quants`).
pub(super) fn positive<const N: usize>(x: &[f32; N], weights: &[f32; N], top: u8) -> (f32, [u8; N]) {
    let most = inverse(extreme(x));
    let number = |v: f32| (v.round() as u8).min(top);
    let inverses = (-4..=4).map(|step| (f32::from(top) + 0.1 * step as f32) * most);
    let unit = centred(x, weights, inverses, |v| f32::from(number(v)));
    let mut q = x.map(|v| number(v * inverse(unit)));
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
            let new = number(x[i] * other2 / otherx);
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
