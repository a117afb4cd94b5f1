//! Branch-free conversions of halves, so that loops over lanes are vectorised.

use super::pick::pick;

/// Returns the value of a half.
#[inline(always)]
pub(crate) fn to_f32(bits: u16) -> f32 {
    // Exponent and mantissa are moved in place; the exponent is 112 too small. The product corrects that for
    // normal values and denormals.
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let special = pick(magnitude >= 0x0f80_0000, magnitude | 0x7f80_0000, scaled.to_bits());
    // Make signalling NaNs quiet.
    let quiet = pick(magnitude > 0x0f80_0000, special | 0x0040_0000, special);
    f32::from_bits(quiet | u32::from(bits & 0x8000) << 16)
}

/// Rounds to the nearest half, ties to even.
#[inline(always)]
pub(crate) fn from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    // Normal: subtracts 112 from the exponent and rounds away 13 bits; a carry may reach the exponent, up to
    // infinity.
    let normal =
        magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff).wrapping_add(magnitude >> 13 & 1) >> 13;
    // Below 2^-14: adding 0.5 rounds to a multiple of 2^-24.
    let denormal = (f32::from_bits(magnitude.min(0x3880_0000)) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = pick(magnitude < 0x3880_0000, denormal, normal);
    let limited = pick(magnitude >= 0x4780_0000, 0x7c00, finite);
    let nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    let result = pick(magnitude > 0x7f80_0000, nan, limited);
    sign | result as u16
}

/// Rounds a double to the nearest half, ties to even, in one rounding: the intermediate F32 is rounded to
/// odd, which preserves the information that the second rounding needs.
#[inline(always)]
pub(crate) fn from_f64(x: f64) -> u16 {
    let nearest = x as f32;
    let error = x - f64::from(nearest);
    let bits = nearest.to_bits();
    // Inexact and even: one step toward the exact value makes it odd.
    let toward_zero = (error < 0.0) == (x > 0.0);
    let step = pick(toward_zero, bits.wrapping_sub(1), bits.wrapping_add(1));
    let inexact = (error != 0.0) & (bits & 1 == 0) & nearest.is_finite();
    from_f32(f32::from_bits(pick(inexact, step, bits)))
}

/// Rounds toward zero (`v_cvt_pkrtz_f16_f32`): returns the largest half that is not larger in magnitude.
#[inline(always)]
pub(crate) fn from_f32_toward_zero(x: f32) -> u16 {
    let nearest = from_f32(x);
    let too_large = to_f32(nearest).abs() > x.abs();
    pick(too_large, nearest.wrapping_sub(1), nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value by definition, from sign, exponent and mantissa.
    fn defined(bits: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            e => (1.0 + mantissa / 1024.0) * 2f64.powi(e - 15),
        };
        if bits & 0x8000 != 0 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_half_is_what_it_is_defined_to_be() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f64::from(to_f32(bits)), defined(bits));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}");
            if !want.is_nan() {
                assert_eq!(from_f32(to_f32(bits)), bits);
                assert_eq!(from_f64(want), bits);
            }
        }
    }

    #[test]
    fn values_between_two_halves_go_to_the_nearer() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (defined(bits), defined(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            assert_eq!(from_f32(middle as f32), even, "{bits:#x}");
            let (below, above) = ((middle as f32).next_down(), (middle as f32).next_up());
            assert_eq!((from_f32(below), from_f32(above)), (bits, bits + 1), "{bits:#x}");
            assert_eq!((from_f64(middle.next_down()), from_f64(middle.next_up())), (bits, bits + 1));
            assert_eq!((from_f32_toward_zero(above), from_f32_toward_zero(-above)), (bits, bits | 0x8000));
        }
        assert_eq!((from_f32(65519.996), from_f32(65520.0), from_f32(1e9)), (0x7bff, 0x7c00, 0x7c00));
        assert_eq!((from_f32_toward_zero(1e9), from_f32_toward_zero(f32::INFINITY)), (0x7bff, 0x7c00));
        assert!(to_f32(from_f32(f32::NAN)).is_nan());
    }
}
