//! Searches for the scales of K-quants and IQ4, for files that are written once and read often. They are ggml's: errors count
//! by weights that grow with a value's size, and of some scales near to the one of the range the best is kept.

/// Where a search for a scale and a minimum begins, by how many tenths of a step it goes, and what it weighs.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    /// Added to the largest number for the first scale.
    pub(super) first: f32,
    /// Scales that are tried.
    pub(super) tries: usize,
    /// Whether magnitudes of errors count, weighed by the values', and not squares, weighed by these and their mean.
    pub(super) magnitudes: bool,
}

/// Scale and minimum (subtracted, not negative) of some values for numbers `0..=top`.
pub(super) fn affine(x: &[f32], top: f32, search: Affine) -> [f32; 2] {
    let low = x.iter().copied().fold(0.0, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = high - low;
    if !(range > 0.0 && range.is_finite()) {
        return [0.0, -low];
    }
    let mean = (x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32).sqrt();
    let weight = |v: f32| if search.magnitudes { v.abs() } else { mean + v.abs() };
    let number = |v: f32, inverse: f32| (inverse * (v - low)).round().clamp(0.0, top);
    let lost = |inverse: f32, [scale, minimum]: [f32; 2]| -> f32 {
        let of = |&v: &f32| {
            let error = scale * number(v, inverse) - minimum - v;
            weight(v) * if search.magnitudes { error.abs() } else { error * error }
        };
        x.iter().map(of).sum()
    };
    let first = [range / top, -low];
    let mut best = (lost(top / range, first), first);
    for step in 0..=search.tries {
        let inverse = (search.first + 0.1 * step as f32 + top) / range;
        let fitted = fit_affine(x, |v| (weight(v), number(v, inverse)));
        if let Some(fitted) = fitted {
            let lost = lost(inverse, fitted);
            if lost < best.0 {
                best = (lost, fitted);
            }
        }
    }
    best.1
}

/// The weighted least-squares fit of `scale * q - minimum`, the minimum not negative; `None` if all numbers are equal.
fn fit_affine(x: &[f32], of: impl Fn(f32) -> (f32, f32)) -> Option<[f32; 2]> {
    let [mut w1, mut q1, mut q2, mut x1, mut qx] = [0.0f32; 5];
    for &v in x {
        let (weight, q) = of(v);
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

/// Of some scales, given by their inverses, the one with the best fit to the numbers that it gives; errors weigh as the
/// squares of the values.
pub(super) fn centred(x: &[f32], inverses: impl Iterator<Item = f32>, number: impl Fn(f32) -> f32) -> f32 {
    let mut best = (0.0, 0.0);
    for inverse in inverses {
        let (q2, qx) = x.iter().fold((0.0, 0.0), |(q2, qx), &v| {
            let q = number(v * inverse);
            (q2 + v * v * q * q, qx + v * v * q * v)
        });
        // What the fit takes off the weighted sum of squares.
        if q2 > 0.0 && qx * qx > best.0 * q2 {
            best = (qx * qx / q2, qx / q2);
        }
    }
    best.1
}
