//! The error that a result must be expected to have, from samples of its rounding.
//!
//! A bound that is derived from types alone is wrong in both directions: an activation of a thousand times the
//! others makes the rounding of its block a thousand times as large, and hides a wrong result elsewhere. Samples
//! ([`Sample`](crate::exact::Sample)) of the same operands have the errors of these operands, element by element.

/// Mean squared errors of a result's elements, estimated from samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    squares: Vec<f64>,
    samples: usize,
}

/// Errors are wrong if their mean square over many elements is larger than this multiple of the expected one.
const MANY: f64 = 10.0;

/// Rounding of the result, relative to an element: 32 units in the last place of F32, as of its operands.
const UNITS: f64 = 32.0 / 8_388_608.0;

/// The same for one element. Its estimate has the scatter of a few samples, and one of a million is looked at.
const ONE: f64 = 100.0;

impl Expected {
    /// Number of samples that give a useful estimate. The square of a correct element's error over the mean of n
    /// samples' has the distribution F(1, n) if errors are normal: it exceeds 100 once in 100,000 elements with 8
    /// samples, and once in 2,000,000,000 with 24. A prompt of a small model has ten million elements in doubt.
    pub const SAMPLES: usize = 24;

    /// Creates the estimate of a result of `elements` without samples.
    pub fn new(elements: usize) -> Expected {
        Expected { squares: vec![0.0; elements], samples: 0 }
    }

    /// Creates an estimate from the mean squares of [`Expected::SAMPLES`] samples.
    pub fn from_mean_squares(squares: &[f32]) -> Expected {
        let samples = Expected::SAMPLES;
        Expected { squares: squares.iter().map(|&s| f64::from(s) * samples as f64).collect(), samples }
    }

    /// Adds a sample of a result whose exact value is given. Both have the length of the estimate; other
    /// elements are ignored.
    pub fn add(&mut self, sample: &[f32], exact: &[f32]) {
        self.samples += 1;
        for (square, (&x, &r)) in self.squares.iter_mut().zip(sample.iter().zip(exact)) {
            *square += difference(x, r).powi(2);
        }
    }

    /// Returns the mean squared error of each element.
    pub fn mean_squares(&self) -> Vec<f32> {
        self.squares.iter().map(|square| (square / self.samples.max(1) as f64) as f32).collect()
    }

    /// Returns the largest error of a result as a multiple of the largest that rounding may make: a correct
    /// result has at most 1. The result itself may be rounded to F32 in any case. Elements, rows of `n` elements, columns and the whole are each compared with their own
    /// expected errors. It is infinite if a length differs or a NaN or an infinity is not the reference's, and
    /// where no sample has an error but the result has.
    pub fn excess(&self, got: &[f32], want: &[f32], n: usize) -> f64 {
        if got.len() != want.len() || got.len() != self.squares.len() {
            return f64::INFINITY;
        }
        let n = n.clamp(1, got.len().max(1));
        let (mut columns, mut all, mut most) = (vec![Mean::default(); n], Mean::default(), 0.0f64);
        for (i, (got, want)) in got.chunks(n).zip(want.chunks(n)).enumerate() {
            let expected: Vec<f64> =
                self.squares[i * n..].iter().zip(want).map(|(s, &r)| self.expected(*s, r)).collect();
            let of_row = expected.iter().sum::<f64>() / expected.len() as f64;
            let mut row = Mean::default();
            for (column, ((&x, &r), own)) in columns.iter_mut().zip(got.iter().zip(want).zip(expected)) {
                let square = difference(x, r).powi(2);
                let ratio = if square == 0.0 { 0.0 } else { square / own.max(of_row) };
                most = most.max(ratio / ONE);
                [&mut row, column, &mut all].into_iter().for_each(|mean| mean.add(ratio));
            }
            most = most.max(row.excess());
        }
        columns.iter().chain([&all]).fold(most, |most, mean| most.max(mean.excess()))
    }

    /// Returns the mean squared error of an element from the sum of its samples and its exact value.
    fn expected(&self, squares: f64, exact: f32) -> f64 {
        let rounded = if exact.is_finite() { (UNITS * f64::from(exact)).powi(2) / 3.0 } else { 0.0 };
        squares / self.samples.max(1) as f64 + rounded
    }
}

/// Returns the difference of two elements; infinite unless both are finite or they are equal.
fn difference(x: f32, r: f32) -> f64 {
    if x == r || x.is_nan() && r.is_nan() {
        return 0.0;
    }
    let difference = f64::from(x) - f64::from(r);
    if difference.is_nan() { f64::INFINITY } else { difference.abs() }
}

/// Mean of the ratios of squared errors to expected ones.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, ratio: f64) {
        (self.sum, self.count) = (self.sum + ratio, self.count + 1);
    }

    /// Returns the mean as a multiple of the largest that counts as rounding.
    fn excess(&self) -> f64 {
        let count = self.count.max(1) as f64;
        self.sum / count / (MANY + (ONE - MANY) / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const N: usize = 64;

    /// Samples of 16 rows, the first of which has a thousand times the values and errors of the others.
    fn estimate() -> (Expected, Vec<f32>, Vec<f32>) {
        let mut rng = Rng::new(7);
        let exact: Vec<f32> = (0..16 * N).map(|i| rng.normal() * if i < N { 1000.0 } else { 1.0 }).collect();
        let mut sample = || -> Vec<f32> {
            let error = |i: usize| if i < N { 10.0 } else { 0.01 };
            exact.iter().enumerate().map(|(i, x)| x + error(i) * rng.normal()).collect()
        };
        let mut expected = Expected::new(exact.len());
        (0..Expected::SAMPLES).for_each(|_| expected.add(&sample(), &exact));
        let other = sample();
        (expected, exact, other)
    }

    #[test]
    fn another_sample_is_rounding() {
        let (expected, exact, other) = estimate();
        assert!(expected.excess(&other, &exact, N) < 0.5);
        assert_eq!(expected.excess(&exact, &exact, N), 0.0);
        let stored = Expected::from_mean_squares(&expected.mean_squares());
        assert!((stored.excess(&other, &exact, N) / expected.excess(&other, &exact, N) - 1.0).abs() < 1e-4);
    }

    /// Faults in a row of small values, beside one of a thousand times the size, are as large as elsewhere.
    #[test]
    fn faults_are_no_rounding() {
        let (expected, exact, other) = estimate();
        let excess = |change: &dyn Fn(usize, f32) -> f32| {
            let wrong: Vec<f32> = other.iter().enumerate().map(|(i, &x)| change(i, x)).collect();
            expected.excess(&wrong, &exact, N)
        };
        assert!(excess(&|i, x| if i / N == 5 { 0.0 } else { x }) > 10.0, "a row of zeros");
        assert!(excess(&|i, x| if i == 700 { x + 0.3 } else { x }) > 1.0, "an element");
        assert!(excess(&|i, x| if i % N == 9 { 1.1 * x } else { x }) > 1.0, "a column");
        assert!(excess(&|_, x| 1.05 * x) > 1.0, "a scale");
        assert!(excess(&|i, x| if i == 700 { f32::NAN } else { x }).is_infinite());
        assert!(expected.excess(&other[1..], &exact[1..], N).is_infinite());
        // Where the rounding of operands changes nothing, only that of the result may differ.
        let want = [1.0, f32::NEG_INFINITY];
        let mut still = Expected::new(2);
        still.add(&want, &want);
        assert_eq!(still.excess(&want, &want, 2), 0.0);
        assert!(still.excess(&[1.0f32.next_up(), f32::NEG_INFINITY], &want, 2) < 1.0);
        assert!(still.excess(&[1.001, f32::NEG_INFINITY], &want, 2) > 1.0);
        assert!(still.excess(&[1.0, 0.0], &want, 2).is_infinite());
    }
}
