//! The frequency table of ROPE, shared by the CPU backend and the GPU kernels.
//!
//! An angle is `position * frequency`. In F32 that product loses the fraction of a turn at far positions, and the
//! sine of a large argument is poor on GPUs. So the table holds turns per position (`frequency / 2 pi`, computed in
//! f64) as an unevaluated sum of two F32 numbers, and a kernel gets the fraction of a turn nearly exactly:
//!
//! ```text
//! high = position * t.hi                      (rounded)
//! low  = fma(position, t.hi, -high) + position * t.lo
//! turn = (high - round(high)) + low           in [-0.5, 0.5] plus a little
//! ```
//!
//! With a per-frequency factor `f` the pair is divided first: `q = t.hi / f`, remainder `fma(-q, f, t.hi) + t.lo`
//! divided by `f`.

use crate::op::Rope;

/// For each pair `i`: `[2 i]` the high part and `[2 i + 1]` the low part of its turns per position.
pub fn frequency_table(op: &Rope) -> Vec<f32> {
    (0..op.n_dims / 2)
        .flat_map(|i| {
            let turns = op.frequency(i) / (2.0 * std::f64::consts::PI);
            let high = turns as f32;
            [high, (turns - f64::from(high)) as f32]
        })
        .collect()
}

/// Factor of sine and cosine.
pub fn magnitude(op: &Rope) -> f32 {
    op.magnitude() as f32
}
