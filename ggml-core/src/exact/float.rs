//! Small floating-point formats of the reference, decoded from their fields.

/// Returns 2 to the power of an exponent of a normal f64.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

/// Decodes an IEEE binary16 (little-endian).
pub(super) fn half_float(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * power_of_two(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * power_of_two(exponent - 15),
    }
}

/// Decodes an unsigned E4M3: four bits of exponent with bias 7, three of mantissa. The highest bit is ignored,
/// and the code of NaN is zero, as in ggml.
pub(super) fn ue4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 127) {
        (_, 127) => 0.0,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * power_of_two(exponent - 7),
    }
}

/// Decodes an E2M1 (OCP Microscaling Formats, 5.3.3): sign, two bits of exponent with bias 1, one of mantissa.
/// Both zeros are positive, as in ggml's table.
pub(super) fn e2m1(bits: u8) -> f64 {
    if bits & 7 == 0 {
        return 0.0;
    }
    let sign = if bits & 8 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 1 & 3), f64::from(bits & 1));
    sign * if exponent == 0 { mantissa / 2.0 } else { (1.0 + mantissa / 2.0) * power_of_two(exponent - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_half_float() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_float(&bits.to_le_bytes()), f16::from_bits(bits).to_f64());
            assert!(got == want || got.is_nan() && want.is_nan(), "{bits:#x}");
        }
    }
}
