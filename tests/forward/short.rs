//! Layers with a short convolution between two gates.

use super::{Layer, add};

impl Layer<'_> {
    pub(super) fn short_convolution(&self, stream: &mut [Vec<f64>]) {
        let get = |part: &str| self.get(&format!("shortconv.{part}.weight"));
        let (all, taps, output) = (get("in_proj"), get("conv"), get("out_proj"));
        let parts: Vec<Vec<f64>> = self.inputs(stream).iter().map(|x| all.times(x)).collect();
        for (t, x) in stream.iter_mut().enumerate() {
            let (n, last) = (x.len(), taps.columns - 1);
            let convolve = |c: usize| -> f64 {
                let gated = |s: usize| parts[s][c] * parts[s][2 * n + c];
                (0..=last.min(t)).map(|back| taps.row(c)[last - back] * gated(t - back)).sum()
            };
            let inner: Vec<f64> = (0..n).map(|c| parts[t][n + c] * convolve(c)).collect();
            add(x, &output.times(&inner), 1.0);
        }
    }
}
