//! Frequency table of ROPE, shared by the CPU backend and the GPU kernels.
//!
//! An angle is `position * frequency`. In F32 this product loses the fraction of a revolution at large
//! positions, and the sine of a large argument is inaccurate on GPUs. The table therefore holds revolutions
//! per position (`frequency / 2 pi`, computed in f64) as an unevaluated sum of two F32 values, so that a
//! kernel gets the fraction of a revolution almost exactly:
//!
//! ```text
//! high = position * t.hi                      (rounded)
//! low  = fma(position, t.hi, -high) + position * t.lo
//! turn = (high - round(high)) + low           in [-0.5, 0.5] plus a little
//! ```
//!
//! With a per-frequency factor `f`, the pair is divided first: `q = t.hi / f`, remainder `fma(-q, f, t.hi) +
//! t.lo` divided by `f`.

use crate::op::Rope;
use std::f64::consts::PI;

/// Returns for each pair `i` its revolutions per position: the high part at `[2 i]`, the low part at `[2 i +
/// 1]`.
pub fn frequency_table(op: &Rope) -> Vec<f32> {
    (0..op.n_dims / 2)
        .flat_map(|i| {
            let turns = frequency(op, i) / (2.0 * PI);
            let high = turns as f32;
            [high, (turns - f64::from(high)) as f32]
        })
        .collect()
}

/// Returns the factor of sine and cosine.
pub fn magnitude(op: &Rope) -> f32 {
    let m = f64::from(op.attn_factor);
    let m = if op.ext_factor == 0.0 { m } else { m * (1.0 + 0.1 * (1.0 / f64::from(op.freq_scale)).ln()) };
    m as f32
}

/// Returns the bounds of YaRN's ramp, in pairs.
fn correction_range(op: &Rope) -> (f64, f64) {
    let pair = |rotations: f32| {
        let ratio = op.n_ctx_orig as f64 / (f64::from(rotations) * 2.0 * PI);
        op.n_dims as f64 * ratio.ln() / (2.0 * f64::from(op.freq_base).ln())
    };
    let (low, high) = (pair(op.beta_fast), pair(op.beta_slow));
    let (low, high) = if op.truncate { (low.floor(), high.ceil()) } else { (low, high) };
    (low.max(0.0), high.min(op.n_dims as f64 - 1.0))
}

/// Returns the angle per position of pair `i`, before the per-frequency factor.
fn frequency(op: &Rope, i: usize) -> f64 {
    let f = f64::from(op.freq_base).powf(-2.0 * i as f64 / op.n_dims as f64);
    let scale = f64::from(op.freq_scale);
    if op.ext_factor == 0.0 {
        return f * scale;
    }
    let (low, high) = correction_range(op);
    let y = (i as f64 - low) / (high - low).max(0.001);
    let ramp = (1.0 - y.clamp(0.0, 1.0)) * f64::from(op.ext_factor);
    f * scale * (1.0 - ramp) + f * ramp
}
