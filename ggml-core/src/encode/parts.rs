//! Integer scales of the parts of a block: multiples of one F16, their unit. Parts are first searched by
//! themselves and their scales rounded to the unit. Then each scale moves to a neighbour if that reduces the
//! weighted error, and the unit is fitted to the codes, as long as the error gets less.

use super::{inverse, search, signed_multiples};
use half::f16;

/// Largest number of units that are tried for a block.
const UNITS: usize = 3;

/// Values of a block and the weights of their errors, in equal parts.
pub(super) struct Parts<'a> {
    block: &'a [f32; 256],
    weights: &'a [f32; 256],
    /// Number of values of a part.
    size: usize,
}

/// Values of a part and the weights of their errors.
#[derive(Clone, Copy)]
struct OnePart<'a> {
    x: &'a [f32],
    weights: &'a [f32],
}

impl<'a> Parts<'a> {
    pub(super) fn new(block: &'a [f32; 256], weights: &'a [f32; 256], parts: usize) -> Parts<'a> {
        Parts { block, weights, size: 256 / parts }
    }

    fn iter(&self) -> impl Iterator<Item = OnePart<'a>> + use<'a> {
        let parts = self.block.chunks_exact(self.size).zip(self.weights.chunks_exact(self.size));
        parts.map(|(x, weights)| OnePart { x, weights })
    }

    /// Returns the result of a search in each part, from its values and weights.
    pub(super) fn map<T: Copy + Default, const N: usize>(
        &self,
        search: impl Fn(&[f32], &[f32]) -> T,
    ) -> [T; N] {
        let mut all = [T::default(); N];
        all.iter_mut().zip(self.iter()).for_each(|(one, part)| *one = search(part.x, part.weights));
        all
    }

    /// Rounds the scales of parts to multiples `-steps .. steps`. `code` rounds a value to the nearest code.
    pub(super) fn multiples<const N: usize>(
        &self,
        scales: &[f32; N],
        steps: f32,
        code: impl Fn(f32) -> f32,
    ) -> (f16, [i8; N]) {
        let sums: [f32; N] = self.map(|_, weights| weights.iter().sum());
        let (mut unit, mut multiples) =
            signed_multiples(f16::from_f32(search::signed(scales, &sums, steps)), scales, steps);
        let mut best = (f32::INFINITY, unit, multiples);
        for _ in 0..UNITS {
            let (mut error, mut sums) = (0.0, [0.0; 2]);
            for (multiple, part) in multiples.iter_mut().zip(self.iter()) {
                let lost = |s: i8| (part.lost(unit.to_f32() * f32::from(s), &code), s);
                let legal = |s: &i8| (-steps..steps).contains(&f32::from(*s));
                let near = [-1, 1].into_iter().filter_map(|d| multiple.checked_add(d)).filter(legal);
                let least = near.map(lost).fold(lost(*multiple), less);
                (error, *multiple) = (error + least.0, least.1);
                part.add_to(&mut sums, unit.to_f32(), f32::from(*multiple), &code);
            }
            if error.is_nan() || error >= best.0 {
                break;
            }
            best = (error, unit, multiples);
            unit = f16::from_f32(if sums[0] > 0.0 { sums[1] / sums[0] } else { 0.0 });
        }
        (best.1, best.2)
    }

    /// Rounds scales and minima (subtracted) of parts to multiples `0..=steps` of their units. Codes are
    /// `0..=top`.
    pub(super) fn affine_multiples<const N: usize>(
        &self,
        fits: &[[f32; 2]; N],
        [top, steps]: [u8; 2],
    ) -> ([f16; 2], [[u8; N]; 2]) {
        let sums: [f32; N] = self.map(|_, weights| weights.iter().sum());
        let found = [0, 1].map(|i| search::positive(&fits.map(|f| f[i]), &sums, steps));
        let mut units = found.map(|(unit, _)| f16::from_f32(unit));
        let mut multiples = found.map(|(_, multiples)| multiples);
        let mut best = (f32::INFINITY, units, multiples);
        for _ in 0..UNITS {
            let (mut error, mut sums) = (0.0, UnitSums::default());
            for (i, part) in self.iter().enumerate() {
                let (lost, [scale, minimum]) =
                    part.moved(units, [multiples[0][i], multiples[1][i]], [top, steps]);
                error += lost;
                (multiples[0][i], multiples[1][i]) = (scale, minimum);
                part.add_affine_to(&mut sums, units, [scale, minimum], f32::from(top));
            }
            if error.is_nan() || error >= best.0 {
                break;
            }
            best = (error, units, multiples);
            units = sums.units().unwrap_or(units);
        }
        (best.1, best.2)
    }
}

/// Returns the one of two with less error, the first if they are equal.
fn less<T>(a: (f32, T), b: (f32, T)) -> (f32, T) {
    if b.0 < a.0 { b } else { a }
}

impl OnePart<'_> {
    /// Returns the weighted squared error with a scale.
    fn lost(&self, scale: f32, code: impl Fn(f32) -> f32) -> f32 {
        let inverse = inverse(scale);
        let error = |v: f32| scale * code(v * inverse) - v;
        self.x.iter().zip(self.weights).map(|(&v, weight)| weight * error(v) * error(v)).sum()
    }

    /// Adds the weighted sums of squares of the values in units, and of their products with the values.
    fn add_to(&self, sums: &mut [f32; 2], unit: f32, multiple: f32, code: impl Fn(f32) -> f32) {
        let inverse = inverse(unit * multiple);
        for (&v, &weight) in self.x.iter().zip(self.weights) {
            let q = multiple * code(v * inverse);
            sums[0] += weight * q * q;
            sums[1] += weight * q * v;
        }
    }

    /// Returns the weighted squared error with a scale and a minimum.
    fn affine_lost(&self, scale: f32, minimum: f32, top: f32) -> f32 {
        let inverse = inverse(scale);
        let error =
            |v: f32| scale * search::nearest(((v + minimum) * inverse).max(0.0).min(top)) - minimum - v;
        self.x.iter().zip(self.weights).map(|(&v, weight)| weight * error(v) * error(v)).sum()
    }

    /// Returns the neighbour of a scale and a minimum with the least error, or themselves, and the error.
    fn moved(&self, units: [f16; 2], from: [u8; 2], [top, steps]: [u8; 2]) -> (f32, [u8; 2]) {
        let units = units.map(f16::to_f32);
        let lost = |[s, m]: [u8; 2]| {
            let error = self.affine_lost(units[0] * f32::from(s), units[1] * f32::from(m), f32::from(top));
            (error, [s, m])
        };
        let near = |multiple: u8| multiple.saturating_sub(1)..=multiple.saturating_add(1).min(steps);
        let pairs = near(from[0]).flat_map(|s| near(from[1]).map(move |m| [s, m]));
        pairs.filter(|pair| *pair != from).map(lost).fold(lost(from), less)
    }

    fn add_affine_to(&self, sums: &mut UnitSums, units: [f16; 2], [s, m]: [u8; 2], top: f32) {
        let [scale, minimum] = [f32::from(s), f32::from(m)];
        let (inverse, offset) = (inverse(units[0].to_f32() * scale), units[1].to_f32() * minimum);
        for (&v, &weight) in self.x.iter().zip(self.weights) {
            let q = scale * search::nearest(((v + offset) * inverse).max(0.0).min(top));
            sums.qq += weight * q * q;
            sums.qm += weight * q * minimum;
            sums.mm += weight * minimum * minimum;
            sums.qx += weight * q * v;
            sums.mx += weight * minimum * v;
        }
    }
}

/// Weighted sums for the fit of two units: products of `q` (scale times code), `m` (minimum) and `x` (value),
/// where the value is to be `units[0] * q - units[1] * m`.
#[derive(Default)]
struct UnitSums {
    qq: f32,
    qm: f32,
    mm: f32,
    qx: f32,
    mx: f32,
}

impl UnitSums {
    /// Returns the fitted units; `None` if the sums do not determine them or one would be negative.
    fn units(&self) -> Option<[f16; 2]> {
        let determinant = self.qq * self.mm - self.qm * self.qm;
        let fitted = [
            (self.qx * self.mm - self.qm * self.mx) / determinant,
            (self.qx * self.qm - self.qq * self.mx) / determinant,
        ];
        if self.mm == 0.0 && self.qq > 0.0 {
            return Some([f16::from_f32(self.qx / self.qq), f16::ZERO]);
        }
        let legal = determinant > 0.0 && fitted.iter().all(|unit| *unit >= 0.0 && unit.is_finite());
        legal.then(|| fitted.map(f16::from_f32))
    }
}
