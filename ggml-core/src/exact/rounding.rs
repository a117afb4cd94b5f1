//! Samples of the rounding that a precision allows.
//!
//! A definition that is computed from rounded operands shows the errors that correct backends make with the same
//! operands: large ones if an activation is far larger than its neighbours, small ones if not. Each sample draws
//! other errors. Several together estimate the error of every element of a result, through all that follows from
//! it in a group.

use super::{NoMemory, Operand, OperandMut};
use crate::dtype::DType;
use crate::precision::Precision;
use crate::rng::Rng;
use crate::shape::Shape;

/// Rounding of an operand before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Up to 32 units in the last place of F32: what a sum of thousands of products in any order, or a
    /// transcendental function, makes of operands that are exact.
    F32,
    /// To F16.
    F16,
    /// To BF16.
    BF16,
    /// To integers of 8 bits with a scale in F16 for each 32 elements, the largest of which is 127.
    Blocks8,
}

/// One sample of the rounding in a precision. Equal seeds make equal errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Precision, which decides how products round their activations.
    pub precision: Precision,
    /// Number of the sample.
    pub seed: u64,
}

/// An operand with memory of its own.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Type, extents and strides.
    pub shape: Shape,
    /// Offset of the first element in the bytes.
    pub offset: usize,
    /// Storage.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// Returns the operand of a definition.
    pub fn operand(&self) -> Operand<'_> {
        Operand::new(&self.shape, self.offset, &self.bytes)
    }

    /// Converts the elements to F32, without gaps.
    fn widen(&mut self) -> Result<(), NoMemory> {
        let [n, n1, n2, n3] = self.shape.ne;
        let rows = (0..n1 * n2 * n3).map(|i| [i % n1, i / n1 % n2, i / (n1 * n2)]);
        let mut bytes = Vec::new();
        let asked = 4 * n * n1 * n2 * n3;
        bytes.try_reserve_exact(asked).map_err(|_| NoMemory { asked })?;
        for index in rows {
            bytes.extend(self.operand().row(index)?.iter().flat_map(|&x| (x as f32).to_le_bytes()));
        }
        let nb = [4, 4 * n, 4 * n * n1, 4 * n * n1 * n2];
        (self.shape.dtype, self.shape.nb, self.offset, self.bytes) = (DType::F32, nb, 0, bytes);
        Ok(())
    }
}

/// Elements of a block of 8-bit integers.
const BLOCK: usize = 32;

/// Largest integer of such a block.
const LARGEST: f64 = 127.0;

/// Half a unit in the last place of a number in [1, 2), for F16 and BF16.
const HALF_UNIT_F16: f64 = 1.0 / 2048.0;
const HALF_UNIT_BF16: f64 = 1.0 / 256.0;

/// 32 units in the last place of F32.
const UNITS_F32: f64 = 32.0 / 8_388_608.0;

/// Smallest normal number of F16; below it the error is that of this number.
const NORMAL_F16: f64 = 1.0 / 16384.0;

impl Rounding {
    /// Adds errors of the size of this rounding to an operand. Zeros stay zeros. An operand of another type than
    /// F32 becomes F32, unless its elements are used as they are ([`Rounding::F32`]).
    ///
    /// # Errors
    /// [`NoMemory`] if an allocation fails.
    pub fn apply(self, operand: &mut Stored, rng: &mut Rng) -> Result<(), NoMemory> {
        if operand.shape.dtype != DType::F32 {
            if self == Rounding::F32 {
                return Ok(());
            }
            operand.widen()?;
        }
        let [_, n1, n2, n3] = operand.shape.ne;
        for index in (0..n1 * n2 * n3).map(|i| [i % n1, i / n1 % n2, i / (n1 * n2)]) {
            let mut row = operand.operand().row(index)?;
            for block in row.chunks_mut(BLOCK) {
                self.round(block, rng);
            }
            OperandMut::new(&operand.shape, operand.offset, &mut operand.bytes).set_row(index, &row);
        }
        Ok(())
    }

    fn round(self, block: &mut [f64], rng: &mut Rng) {
        let mut error = |size: f64| size * (2.0 * rng.unit() - 1.0);
        let finite = block.iter_mut().filter(|x| x.is_finite() && **x != 0.0);
        match self {
            Rounding::F32 => finite.for_each(|x| *x += error(UNITS_F32 * x.abs())),
            Rounding::F16 => finite.for_each(|x| *x += error(HALF_UNIT_F16 * x.abs().max(NORMAL_F16))),
            Rounding::BF16 => finite.for_each(|x| *x += error(HALF_UNIT_BF16 * x.abs())),
            Rounding::Blocks8 => {
                let finite: Vec<&mut f64> = finite.collect();
                let unit = finite.iter().fold(0.0, |most: f64, x| most.max(x.abs())) / LARGEST;
                let scale = 1.0 + error(HALF_UNIT_F16);
                finite.into_iter().for_each(|x| *x = (*x + error(0.5 * unit)) * scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of a row, as root mean square of many samples, against those of rounding to nearest.
    #[test]
    fn errors_have_the_size_of_rounding() {
        let shape =
            Shape { name: String::new(), dtype: DType::F32, ne: [96, 1, 1, 1], nb: [4, 384, 384, 384] };
        let mut rng = Rng::new(1);
        let values: Vec<f32> = (0..96).map(|i| if i == 40 { 300.0 } else { 0.1 * rng.normal() }).collect();
        let rms = |rounding: Rounding, range: std::ops::Range<usize>| {
            let (mut sum, count) = (0.0, 200 * range.len());
            for seed in 0..200 {
                let bytes = bytemuck::cast_slice(&values).to_vec();
                let mut stored = Stored { shape: shape.clone(), offset: 0, bytes };
                rounding.apply(&mut stored, &mut Rng::new(seed)).unwrap();
                let got: &[f32] = bytemuck::cast_slice(&stored.bytes);
                sum += range.clone().map(|i| f64::from(got[i] - values[i]).powi(2)).sum::<f64>();
            }
            (sum / count as f64).sqrt()
        };
        // The block with the outlier has errors of its unit, 300 / 127; the others do not.
        let wide = rms(Rounding::Blocks8, 32..40);
        assert!((wide / (300.0 / 127.0 / 12f64.sqrt()) - 1.0).abs() < 0.05, "{wide}");
        assert!(rms(Rounding::Blocks8, 64..96) < 2e-3);
        for (rounding, relative) in
            [(Rounding::F32, UNITS_F32), (Rounding::F16, HALF_UNIT_F16), (Rounding::BF16, HALF_UNIT_BF16)]
        {
            let error = rms(rounding, 40..41);
            assert!((error / (300.0 * relative / 3f64.sqrt()) - 1.0).abs() < 0.15, "{rounding:?} {error}");
        }
    }
    /// Elements of F16 get errors that F16 has no room for; where they are used as they are, nothing changes.
    #[test]
    fn operands_of_other_types_become_f32() {
        let mut bytes = vec![7; 2];
        [1.0f32, -2.0, 0.0, 3.0].iter().for_each(|&x| bytes.extend(half::f16::from_f32(x).to_le_bytes()));
        let shape = Shape { name: String::new(), dtype: DType::F16, ne: [2, 2, 1, 1], nb: [2, 4, 8, 8] };
        let stored = Stored { shape, offset: 2, bytes };
        let (mut exact, mut rounded) = (stored.clone(), stored);
        Rounding::F32.apply(&mut exact, &mut Rng::new(1)).unwrap();
        Rounding::F16.apply(&mut rounded, &mut Rng::new(1)).unwrap();
        assert_eq!((exact.shape.dtype, rounded.shape.dtype), (DType::F16, DType::F32));
        let values =
            |s: &Stored| [s.operand().row([0, 0, 0]).unwrap(), s.operand().row([1, 0, 0]).unwrap()].concat();
        assert_eq!(values(&exact), [1.0, -2.0, 0.0, 3.0]);
        let errors: Vec<f64> =
            values(&rounded).iter().zip(values(&exact)).map(|(x, r)| (x - r).abs()).collect();
        assert!(
            errors[2] == 0.0 && [0, 1, 3].iter().all(|&i| errors[i] > 0.0 && errors[i] < 2e-3),
            "{errors:?}"
        );
    }
}
