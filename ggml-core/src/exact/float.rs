//! Small floating-point formats of the reference, decoded from their fields.

/// Returns 2 to the power of an exponent of a normal f64.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

/// Smallest positive IEEE binary16, 2^-24.
const LEAST_HALF: f64 = 1.0 / 16_777_216.0;

/// Decodes an IEEE binary16 (little-endian).
pub(super) fn half_float(bytes: &[u8]) -> f64 {
    let bits = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let (exponent, mantissa) = (bits >> 10 & 31, bits & 1023);
    let magnitude = match (exponent, mantissa) {
        (0, _) => mantissa as f64 * LEAST_HALF,
        (31, 0) => f64::INFINITY,
        (31, _) => f64::NAN,
        // An f64 has these fields too, with a bias of 1023 instead of 15 and 52 bits instead of 10.
        _ => f64::from_bits((exponent + 1023 - 15) << 52 | mantissa << 42),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
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
