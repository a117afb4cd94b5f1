//! The floats of 8 bits of gfx942: FP8 (4 bits of exponent, bias 8) and BF8 (5 bits, bias 16). Neither has infinities or
//! a negative zero; the byte 0x80 is the only NaN.
//!
//! Source: P. Micikevicius and others, "8-bit Numerical Formats for Deep Neural Networks" (Graphcore, AMD, Qualcomm, 2022),
//! the formats called FNUZ elsewhere.

/// The bits of a format's mantissa, and the bias of its exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    mantissa: i32,
    bias: i32,
}

pub(crate) const FP8: Format = Format { mantissa: 3, bias: 8 };
pub(crate) const BF8: Format = Format { mantissa: 2, bias: 16 };

const NAN: u8 = 0x80;

/// Returns 2 to a power from -126 to 127.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Returns the value of a byte.
pub(crate) fn to_f32(bits: u8, format: Format) -> f32 {
    if bits == NAN {
        return f32::NAN;
    }
    let Format { mantissa, bias } = format;
    let (exponent, fraction) = (i32::from(bits & 0x7f) >> mantissa, i32::from(bits) & ((1 << mantissa) - 1));
    let magnitude = match exponent {
        0 => fraction as f32 * power(1 - bias - mantissa),
        _ => (fraction | 1 << mantissa) as f32 * power(exponent - bias - mantissa),
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Rounds a value that was multiplied by a power of two, so that the format's last bit is 1.
type Round<'a> = &'a dyn Fn(f64) -> f64;

fn from_f32(x: f32, format: Format, round: Round<'_>, saturate: bool) -> u8 {
    if x.is_nan() {
        return NAN;
    }
    let Format { mantissa, bias } = format;
    let largest = to_f32(0x7f, format);
    let exponent = (((x.to_bits() >> 23 & 255) as i32) - 127).max(1 - bias);
    let unit = f64::from(power(exponent - mantissa));
    let rounded = round(f64::from(x.abs()) / unit) * unit;
    if rounded > f64::from(largest) {
        // Infinities too.
        return if saturate { 0x7f | sign(x) } else { NAN };
    }
    let bits = (0..=0x7fu8).rev().find(|&bits| f64::from(to_f32(bits, format)) <= rounded).unwrap_or(0);
    if bits == 0 { 0 } else { bits | sign(x) }
}

fn sign(x: f32) -> u8 {
    if x.is_sign_negative() { 0x80 } else { 0 }
}

/// Rounds to the nearest value, ties to even. A value beyond the largest becomes NaN, or the largest if `saturate`.
pub(crate) fn nearest(x: f32, format: Format, saturate: bool) -> u8 {
    from_f32(x, format, &f64::round_ties_even, saturate)
}

/// Rounds up if the part below the format's last bit and the upper bits of a random word carry, as
/// `v_cvt_sr_fp8_f32` does: the word's top bits are added below the last bit of the result.
pub(crate) fn stochastic(x: f32, random: u32, format: Format, saturate: bool) -> u8 {
    // An F32 has 23 bits of mantissa; those that the format lacks meet as many bits of the word.
    let lacks = 23 - format.mantissa;
    let fraction = f64::from(random >> (32 - lacks)) / f64::from(1u32 << lacks);
    from_f32(x, format, &|scaled: f64| (scaled + fraction).floor(), saturate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_definition() {
        for (format, exponent_bits) in [(FP8, 4), (BF8, 5)] {
            for bits in 0..=255u8 {
                let value = to_f32(bits, format);
                if bits == 0x80 {
                    assert!(value.is_nan());
                    continue;
                }
                let m = 7 - exponent_bits;
                let (e, f) =
                    (i32::from(bits >> m & ((1 << exponent_bits) - 1)), f64::from(bits & ((1 << m) - 1)));
                let bias = 1 << (exponent_bits - 1);
                let part = f / f64::from(1 << m);
                let want =
                    if e == 0 { part * 2f64.powi(1 - bias) } else { (1.0 + part) * 2f64.powi(e - bias) };
                let want = if bits >= 0x80 { -want } else { want };
                assert_eq!(f64::from(value), want, "{bits:#x}");
                assert_eq!(nearest(value, format, false), bits, "{bits:#x}");
                assert_eq!(stochastic(value, u32::MAX, format, false), bits, "exact values stay: {bits:#x}");
            }
        }
        assert_eq!((to_f32(0x7f, FP8), to_f32(0x7f, BF8)), (240.0, 57344.0));
    }

    #[test]
    fn values_between_two() {
        for format in [FP8, BF8] {
            for bits in 0..0x7fu8 {
                let (low, high) = (to_f32(bits, format), to_f32(bits + 1, format));
                let middle = (low + high) / 2.0;
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                assert_eq!(nearest(middle, format, false), even, "{bits:#x}");
                assert_eq!(nearest(middle.next_down(), format, false), bits);
                assert_eq!(nearest(-middle.next_up(), format, false), (bits + 1) | 0x80);
                // Half of the random words round the middle up.
                assert_eq!(stochastic(middle, 0x7fff_ffff, format, false), bits);
                assert_eq!(stochastic(middle, 0x8000_0000, format, false), bits + 1);
            }
            let beyond = to_f32(0x7f, format) * 1.25;
            assert_eq!((nearest(beyond, format, false), nearest(-beyond, format, true)), (NAN, 0xff));
            assert_eq!((nearest(f32::INFINITY, format, true), nearest(f32::NAN, format, true)), (0x7f, NAN));
            assert_eq!(nearest(-0.0, format, false), 0, "there is no negative zero");
        }
    }
}
