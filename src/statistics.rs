//! Statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// Summary of several measurements of one quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Mean of the samples.
    pub mean: f64,
    /// Standard deviation of the samples (n - 1 in the denominator); 0 for one sample.
    pub sd: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// Summarises samples; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let n = samples.len();
        let mean = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        let sd = if n > 1 { (squares / (n as f64 - 1.0)).sqrt() } else { 0.0 };
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (n > 0).then_some(Summary { n, mean, sd, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[2.0]), Some(Summary { n: 1, mean: 2.0, sd: 0.0, min: 2.0, max: 2.0 }));
        let s = Summary::of(&[2.0, 8.0, 4.0]).unwrap();
        assert!((s.mean - 14.0 / 3.0).abs() < 1e-12 && (s.sd - (168.0f64 / 9.0 / 2.0).sqrt()).abs() < 1e-12);
        assert_eq!((s.n, s.min, s.max), (3, 2.0, 8.0));
    }
}
