//! Error measures between a result and a reference.

use crate::precision::Precision;
use serde::{Deserialize, Serialize};

/// Error of a result against a reference of the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// Normalised mean squared error: `sum((x - r)^2) / sum(r^2)`; for an all-zero reference the plain sum of
    /// squares.
    pub nmse: f64,
    /// Largest mean squared error of a row or column, relative to the larger of two mean squares of the
    /// reference: of that row or column, and of the whole tensor. It exposes one wrong row among thousands,
    /// which hardly changes the error of the tensor.
    #[serde(default)]
    pub row: f64,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// Largest difference in units in the last place of binary32 (saturating).
    pub ulp: u64,
    /// Number of elements at which the result or the reference is NaN or infinite and the two differ.
    pub non_finite: usize,
    /// Index of the first non-finite mismatch; if there is none, of the largest absolute difference.
    pub worst: usize,
}

/// Maps a float to an integer so that neighbouring floats differ by one.
fn ordinal(x: f32) -> i64 {
    let bits = i64::from(x.to_bits() as i32);
    if bits < 0 { i64::from(i32::MIN) - bits } else { bits }
}

/// Returns the distance of `x` from `reference`, both treated as one row.
pub fn distance(x: &[f32], reference: &[f32]) -> Distance {
    distance_in_rows(x, reference, x.len())
}

/// Returns the distance of `x` from `reference`, both with rows of `n` elements. Equal infinities count as
/// equal, and so do two NaNs. A length mismatch or any other non-finite element gives infinite errors.
pub fn distance_in_rows(x: &[f32], reference: &[f32], n: usize) -> Distance {
    let mut d = Distance::default();
    if x.len() != reference.len() {
        (d.nmse, d.row) = (f64::INFINITY, f64::INFINITY);
        return d;
    }
    let n = n.clamp(1, x.len().max(1));
    let mut columns = vec![Squares::default(); n];
    let mut rows = Vec::with_capacity(x.len().div_ceil(n));
    for (got, want) in x.chunks(n).zip(reference.chunks(n)) {
        let mut squares = Squares::default();
        for (column, (&a, &r)) in columns.iter_mut().zip(got.iter().zip(want)) {
            let at = rows.len() * n + squares.count;
            let diff = difference(&mut d, at, a, r);
            let norm = if r.is_finite() { f64::from(r) * f64::from(r) } else { 0.0 };
            for of in [&mut squares, column] {
                of.add(diff * diff, norm);
            }
        }
        rows.push(squares);
    }
    let mut all = Squares::default();
    for row in &rows {
        all =
            Squares { error: all.error + row.error, norm: all.norm + row.norm, count: all.count + row.count };
    }
    let scale = if all.norm > 0.0 { all.norm / all.count as f64 } else { 1.0 };
    let of_scale = |s: &Squares| s.error / s.count.max(1) as f64 / scale.max(s.norm / s.count.max(1) as f64);
    let row = rows.iter().chain(&columns).map(of_scale).fold(0.0, f64::max);
    let nmse = if all.norm > 0.0 { all.error / all.norm } else { all.error };
    (d.nmse, d.row) = if d.non_finite > 0 { (f64::INFINITY, f64::INFINITY) } else { (nmse, row) };
    d
}

/// Returns the largest squared error of an element, relative to the mean square of its row of the reference or to
/// the element's own square, whichever is larger; with `by_element` false, the largest of a row's mean squares. It
/// exposes an error in a row of small values beside one of large values, which [`Distance::row`] does not show.
/// Both have rows of `n` elements; NaN and infinities that are not the reference's make it infinite.
pub fn own_row_error(x: &[f32], reference: &[f32], n: usize, by_element: bool) -> f64 {
    let n = n.clamp(1, x.len().max(1));
    let square = |r: f32| if r.is_finite() { f64::from(r) * f64::from(r) } else { 0.0 };
    let relative = |error: f64, norm: f64| if error == 0.0 { 0.0 } else { error / norm };
    let of_row = |(got, want): (&[f32], &[f32])| {
        let norm = want.iter().map(|&r| square(r)).sum::<f64>() / want.len() as f64;
        let errors = got.iter().zip(want).map(|(&a, &r)| {
            let equal = a == r || a.is_nan() && r.is_nan();
            let difference = f64::from(a) - f64::from(r);
            let error = if difference.is_finite() { difference * difference } else { f64::INFINITY };
            (if equal { 0.0 } else { error }, square(r))
        });
        match by_element {
            true => errors.map(|(error, own)| relative(error, own.max(norm))).fold(0.0, f64::max),
            false => relative(errors.map(|(error, _)| error).sum::<f64>() / want.len() as f64, norm),
        }
    };
    if x.len() != reference.len() {
        return f64::INFINITY;
    }
    x.chunks(n).zip(reference.chunks(n)).map(of_row).fold(0.0, f64::max)
}

/// Sums over a row, a column or the tensor: squared errors, squared reference values, elements.
#[derive(Clone, Copy, Default)]
struct Squares {
    error: f64,
    norm: f64,
    count: usize,
}

impl Squares {
    fn add(&mut self, error: f64, norm: f64) {
        (self.error, self.norm, self.count) = (self.error + error, self.norm + norm, self.count + 1);
    }
}

/// Returns the difference of two elements and updates the maxima in `d`.
fn difference(d: &mut Distance, at: usize, a: f32, r: f32) -> f64 {
    if a.is_nan() && r.is_nan() || a == r {
        return 0.0;
    }
    if !a.is_finite() || !r.is_finite() {
        if d.non_finite == 0 {
            d.worst = at;
        }
        d.non_finite += 1;
        d.ulp = u64::MAX;
        return 0.0;
    }
    let diff = f64::from(a) - f64::from(r);
    if diff.abs() > d.max_abs {
        d.max_abs = diff.abs();
        if d.non_finite == 0 {
            d.worst = at;
        }
    }
    d.ulp = d.ulp.max(ordinal(a).abs_diff(ordinal(r)));
    diff
}

/// Returns the index of the largest element (the first of equal ones); `None` for an empty row or one of NaNs
/// only.
pub fn argmax(row: &[f32]) -> Option<usize> {
    // Two passes over chunks that fill vector registers: find the maximum, then its index. NaN never compares
    // larger or equal.
    let (pieces, rest) = row.as_chunks::<32>();
    let larger = |most: f32, x: f32| if x > most { x } else { most };
    let mut most = [f32::NEG_INFINITY; 32];
    for piece in pieces {
        most.iter_mut().zip(piece).for_each(|(most, &x)| *most = larger(*most, x));
    }
    let most = most.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &x| larger(most, x));
    let has = |piece: &[f32; 32]| piece.iter().fold(false, |has, &x| has | (x == most));
    let begin = 32 * pieces.iter().position(has).unwrap_or(pieces.len());
    row[begin..].iter().position(|&x| x == most).map(|i| begin + i)
}

/// Returns the fraction of rows of `n` elements whose largest elements have the same index.
pub fn top1_agreement(x: &[f32], reference: &[f32], n: usize) -> f64 {
    let rows = reference.len() / n.max(1);
    if rows == 0 || x.len() != reference.len() {
        return 0.0;
    }
    let same =
        x.chunks_exact(n).zip(reference.chunks_exact(n)).filter(|(a, r)| argmax(a) == argmax(r)).count();
    same as f64 / rows as f64
}

/// Returns the logarithm of the sum of a row's exponentials. A logit minus this is the logarithm of its
/// probability. It is NaN for a row that is no distribution: with NaN or plus infinity, or only minus infinity.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

/// Returns the mean over rows of KL(p || q) in nats, with p the softmax of the reference row and q that of
/// the result row.
pub fn kl_divergence(x: &[f32], reference: &[f32], n: usize) -> f64 {
    let rows = kl_divergences(x, reference, n);
    if rows.is_empty() { f64::INFINITY } else { rows.iter().sum::<f64>() / rows.len() as f64 }
}

/// Returns KL(p || q) in nats of each row, see [`kl_divergence`]. It is infinite if one of the two is no
/// distribution or has no such row.
pub fn kl_divergences(x: &[f32], reference: &[f32], n: usize) -> Vec<f64> {
    let rows = reference.len() / n.max(1);
    if rows == 0 || x.len() != reference.len() {
        return vec![f64::INFINITY; rows];
    }
    let divergence = |(got, want): (&[f32], &[f32])| {
        let (of_got, of_want) = (log_sum_exp(got), log_sum_exp(want));
        let terms = got.iter().zip(want).map(|(&got, &want)| {
            let (p, q) = (f64::from(want) - of_want, f64::from(got) - of_got);
            // Divided by a sum that is NaN, minus infinity is NaN too.
            if p == f64::NEG_INFINITY && !q.is_nan() { 0.0 } else { p.exp() * (p - q) }
        });
        let sum: f64 = terms.sum();
        // Rounding may make a sum slightly negative.
        if sum.is_nan() { f64::INFINITY } else { sum.max(0.0) }
    };
    x.chunks_exact(n).zip(reference.chunks_exact(n)).map(divergence).collect()
}

/// Largest errors that count as agreement ([`crate::metrics`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Bound of [`Distance::nmse`].
    pub nmse: f64,
    /// Bound of [`Distance::row`].
    pub row: f64,
}

impl Bound {
    /// The same bits, or the same numbers: for copies.
    pub const EQUAL: Bound = Bound { nmse: 0.0, row: 0.0 };

    /// F32 rounding in any order of summation, and of transcendental functions: the largest error of a case of the
    /// catalogue is 2e-11. Operands that are rounded to F16 have an error of 2e-8.
    pub const F32: Bound = Bound { nmse: 2e-10, row: 2e-10 };

    /// F32 rounding where the precision also allows other roundings: an error of a thousandth of the scale in a
    /// single element, 1e-6, exceeds even the sum of the bounds of several nodes.
    pub const FAST: Bound = Bound { nmse: 1e-7, row: 1e-7 };

    /// Returns the bound of an operation that rounds nothing in a precision.
    pub fn plain(precision: Precision) -> Bound {
        match precision {
            Precision::Exact => Bound::F32,
            Precision::Fast => Bound::FAST,
        }
    }

    /// True if a result is within the bound; a NaN is not.
    pub fn holds(&self, d: &Distance) -> bool {
        d.nmse <= self.nmse && d.row <= self.row
    }

    /// Describes the error of a result that exceeds the bound: its NMSE, or if that is within the bound its worst
    /// row.
    pub fn excess(&self, d: &Distance) -> String {
        match d.nmse <= self.nmse {
            false => format!("NMSE {:.1e}, the bound {:.0e}", d.nmse, self.nmse),
            true => format!("an error of {:.1e} in its worst row, the bound {:.0e}", d.row, self.row),
        }
    }
}

/// Adds up the bounds of nodes that are computed together.
impl std::iter::Sum for Bound {
    fn sum<I: Iterator<Item = Bound>>(bounds: I) -> Bound {
        bounds.fold(Bound::default(), |a, b| Bound { nmse: a.nmse + b.nmse, row: a.row + b.row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_the_first_of_equals() {
        use crate::rng::Rng;
        let mut rng = Rng::new(3);
        let odd = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0];
        for n in (0..200).chain([1000, 4097]) {
            // Few distinct values, so that many elements are equal.
            let plain: Vec<f32> = (0..n).map(|_| rng.below(9) as f32 - 4.0).collect();
            let mixed = plain.iter().map(|&x| if x == 2.0 { odd[rng.below(5)] } else { x }).collect();
            let low = plain.iter().map(|&x| if x > 0.0 { f32::NAN } else { f32::NEG_INFINITY }).collect();
            for row in [plain.clone(), mixed, low, vec![f32::NAN; n]] {
                let mut wanted: Option<usize> = None;
                for (i, x) in row.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                    if wanted.is_none_or(|w| *x > row[w]) {
                        wanted = Some(i);
                    }
                }
                assert_eq!(argmax(&row), wanted, "{row:?}");
            }
        }
    }

    /// One wrong row or column among many gives the same `row` error as on its own; NMSE hardly changes.
    #[test]
    fn a_wrong_row_stands_out() {
        let (rows, n) = (2050, 8);
        let right = vec![2.0f32; rows * n];
        let wrong = |of: &dyn Fn(usize) -> bool| -> Vec<f32> {
            right.iter().enumerate().map(|(i, &x)| if of(i) { x * 1.001 } else { x }).collect()
        };
        for d in [
            distance_in_rows(&wrong(&|i| i / n == 1234), &right, n),
            distance_in_rows(&wrong(&|i| i % rows == 1234), &right, rows),
            distance(&wrong(&|i| i == 1234), &right),
        ] {
            assert!((d.row - 1e-6).abs() < 1e-9 && d.nmse < 1e-9, "{d:?}");
        }
        // A row that is a hundred times as large has rounding errors a hundred times as large.
        let large = |x: f32, i: usize| if i / n == 77 { 100.0 * x } else { x };
        let want: Vec<f32> = right.iter().enumerate().map(|(i, &x)| large(x, i)).collect();
        let got: Vec<f32> =
            want.iter().enumerate().map(|(i, &x)| if i / n == 77 { x * 1.001 } else { x }).collect();
        assert!((distance_in_rows(&got, &want, n).row - 1e-6).abs() < 1e-9);
        let all = distance_in_rows(&wrong(&|_| true), &right, n);
        assert!((all.row - all.nmse).abs() < 1e-12);
        assert!(distance(&[f32::NAN, 1.0], &[1.0, 1.0]).row.is_infinite());
        assert_eq!(distance(&[0.0, 0.5], &[0.0, 0.0]).row, 0.25, "no scale: the plain square");
    }

    /// A small row beside a large one: its error shows against its own scale only.
    #[test]
    fn small_rows_have_their_own_scale() {
        let want = [1000.0, -1000.0, 1.0, -1.0, 0.0, 0.0];
        let got = [1000.0, -1000.0, 1.0, -0.5, 0.0, 0.0];
        assert!(distance_in_rows(&got, &want, 2).row < 1e-6);
        assert_eq!(own_row_error(&got, &want, 2, true), 0.25);
        assert_eq!(own_row_error(&got, &want, 2, false), 0.125);
        assert_eq!(own_row_error(&want, &want, 2, true), 0.0);
        let nothing = [1000.0, -1000.0, 1.0, -1.0, 0.0, 1e-30];
        assert!(own_row_error(&nothing, &want, 2, true).is_infinite());
        assert!(own_row_error(&[f32::NAN], &[1.0], 1, true).is_infinite());
        assert!(own_row_error(&[1.0], &[], 1, true).is_infinite());
    }

    #[test]
    fn known_values() {
        let d = distance(&[1.0, 2.0, 3.5], &[1.0, 2.0, 3.0]);
        assert!((d.nmse - 0.25 / 14.0).abs() < 1e-15 && d.max_abs == 0.5 && d.worst == 2);
        assert_eq!(distance(&[1.0], &[1.0f32.next_up()]).ulp, 1);
        assert_eq!(distance(&[-0.0f32.next_up()], &[0.0f32.next_up()]).ulp, 2);
        assert_eq!(distance(&[f32::NAN], &[1.0]).non_finite, 1);
        assert!(distance(&[f32::NAN], &[1.0]).nmse.is_infinite());
        assert_eq!(distance(&[f32::NEG_INFINITY], &[f32::NEG_INFINITY]).nmse, 0.0);
        // The first non-finite mismatch is the worst element, whatever comes after it.
        let d = distance(&[0.5, f32::NAN, 9.0, f32::INFINITY], &[0.0; 4]);
        assert_eq!((d.worst, d.non_finite, d.max_abs), (1, 2, 9.0));
        assert!(distance(&[1.0], &[]).nmse.is_infinite() && distance(&[], &[]).nmse == 0.0);
        // Two-point distributions: KL(p || q) = p ln(p/q) + (1-p) ln((1-p)/(1-q)).
        let (p, q) = (0.8f64, 0.6f64);
        let want = p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
        let got = kl_divergence(
            &[q.ln() as f32, (1.0 - q).ln() as f32],
            &[p.ln() as f32, (1.0 - p).ln() as f32],
            2,
        );
        assert!((want - got).abs() < 1e-6);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for x in [[nan, 1.0], [inf, 1.0], [-inf, -inf]] {
            assert_eq!(kl_divergence(&x, &[1.0, 2.0], 2), f64::INFINITY, "{x:?}");
            assert_eq!(kl_divergence(&[1.0, 2.0], &x, 2), f64::INFINITY, "{x:?}");
        }
        assert_eq!(kl_divergence(&[1.0, -inf], &[1.0, -inf], 2), 0.0);
        let rows = kl_divergences(&[0.0, 0.0, 0.0, nan], &[0.0, 0.0, 0.0, 0.0], 2);
        assert_eq!(rows, [0.0, f64::INFINITY]);
        assert_eq!(kl_divergences(&[0.0], &[0.0; 4], 2), [f64::INFINITY; 2]);
        assert!((log_sum_exp(&[1000.0, 1000.0, -inf]) - (1000.0 + 2f64.ln())).abs() < 1e-12);
        assert!([[nan, 1.0], [inf, 1.0], [-inf, -inf]].iter().all(|row| log_sum_exp(row).is_nan()));
        assert_eq!(top1_agreement(&[1.0, 2.0, 2.0, 1.0], &[0.0, 9.0, 0.0, 9.0], 2), 0.5);
    }

    #[test]
    fn both_parts_hold_or_the_bound_does_not() {
        let d = |nmse, row| Distance { nmse, row, ..Distance::default() };
        assert!(Bound::F32.holds(&d(1e-11, 5e-11)) && Bound::FAST.holds(&d(1e-8, 5e-8)));
        for (nmse, row) in [(1e-6, 0.0), (0.0, 1e-6), (f64::NAN, 0.0), (0.0, f64::NAN), (f64::INFINITY, 0.0)]
        {
            assert!(!Bound::F32.holds(&d(nmse, row)), "{nmse} {row}");
        }
    }
}
