//! Rounding from definitions: a number to the nearest value of a smaller format.

/// A binary format: bits of the significand with its leading one, and smallest exponent of a normal number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    precision: i32,
    least: i32,
    /// Bits of the exponent field.
    exponent: u32,
}

pub(super) const HALF: Format = Format { precision: 11, least: -14, exponent: 5 };
pub(super) const BFLOAT: Format = Format { precision: 8, least: -126, exponent: 8 };

impl Format {
    /// Returns the bits of the nearest number, ties to even. NaNs stay NaNs.
    pub(super) fn nearest(self, x: f64) -> u16 {
        self.round(x, f64::round_ties_even)
    }

    /// Returns the bits of the nearest number toward zero.
    pub(super) fn toward_zero(self, x: f64) -> u16 {
        let infinity = ((1 << self.exponent) - 1) << (self.precision - 1);
        let bits = self.round(x, f64::trunc);
        // A finite number stays finite.
        if x.is_finite() && bits & 0x7fff == infinity { bits - 1 } else { bits }
    }

    fn round(self, x: f64, whole: impl Fn(f64) -> f64) -> u16 {
        let fraction_bits = self.precision - 1;
        let infinity = ((1u64 << self.exponent) - 1) << fraction_bits;
        let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
        let magnitude = x.abs();
        if magnitude.is_nan() {
            return sign | (infinity | 1 << (fraction_bits - 1)) as u16;
        }
        // Beyond every format, and beyond the scales below.
        if magnitude > 1e300 {
            return sign | infinity as u16;
        }
        // Doubles below its normal numbers are denormals here or zero.
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(self.least);
        let unit = |e: i32| f64::from_bits(((1023 + e) as u64) << 52);
        // In units of the last place. Two steps, so that the scale is a normal double.
        let scaled = magnitude * unit(-exponent) * unit(fraction_bits);
        let steps = whole(scaled) as u64;
        // Steps from the first normal number of this exponent; a carry moves on to the next exponent by itself.
        let biased = (exponent - self.least) as u64;
        sign | ((biased << fraction_bits) + steps).min(infinity) as u16
    }

    /// Returns the value of some bits.
    pub(super) fn value(self, bits: u16) -> f64 {
        let fraction_bits = self.precision - 1;
        let (exponent, fraction) = (
            i32::from(bits >> fraction_bits & ((1 << self.exponent) - 1)),
            bits & ((1 << fraction_bits) - 1),
        );
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let scale = |e: i32| f64::from_bits(((1023 + e) as u64) << 52);
        let fraction = f64::from(fraction) * scale(-fraction_bits);
        sign * match exponent {
            0 => fraction * scale(self.least),
            e if e == (1 << self.exponent) - 1 && fraction == 0.0 => f64::INFINITY,
            e if e == (1 << self.exponent) - 1 => f64::NAN,
            e => (1.0 + fraction) * scale(self.least + e - 1),
        }
    }

    /// Returns true if the bits are of no number.
    pub(super) fn is_nan(self, bits: u16) -> bool {
        self.value(bits).is_nan()
    }
}

#[test]
fn rounding_agrees_with_itself() {
    for format in [HALF, BFLOAT] {
        for bits in 0..=u16::MAX {
            let value = format.value(bits);
            let back = format.nearest(value);
            assert!(
                back == bits || value.is_nan() && format.is_nan(back),
                "{format:?} {bits:#06x}: {back:#06x}"
            );
            let next = format.value((bits & 0x7fff) + 1);
            if bits < 0x7fff && value.is_finite() && next.is_finite() {
                let even = bits + (bits & 1);
                assert_eq!(format.nearest((value + next) / 2.0), even, "{format:?} {bits:#06x}: tie");
                assert_eq!(format.toward_zero(value + (next - value) * 0.75), bits, "{format:?} {bits:#06x}");
            }
        }
    }
    assert_eq!([65519.0, 65520.0].map(|x| HALF.nearest(x)), [0x7bff, 0x7c00]);
    assert_eq!(HALF.toward_zero(-1e10), 0xfbff);
}
