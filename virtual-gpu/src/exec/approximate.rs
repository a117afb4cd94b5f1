//! Approximating instructions: their results are off by less than one unit in the last place, as AMD documents. So a result
//! is one of the two values around the exact one.

use crate::isa::op::half;
use crate::isa::op::lanes::LANES;
use crate::isa::op::math::{cos_turns, flush, sin_turns};
use crate::isa::{Kind, Row};
use crate::random::mix;

/// Returns the exact function of an approximating instruction.
fn exact(name: &str) -> Option<fn(f64) -> f64> {
    let (stem, "f32" | "f16") = name.rsplit_once('_')? else { return None };
    Some(match stem {
        "v_rcp" | "v_rcp_iflag" => |x| 1.0 / x,
        "v_rsq" => |x| 1.0 / x.sqrt(),
        "v_sqrt" => f64::sqrt,
        "v_exp" => f64::exp2,
        "v_log" => f64::log2,
        "v_sin" => sin_turns,
        "v_cos" => cos_turns,
        _ => return None,
    })
}

/// Changes results of an approximating instruction: some are the value on the other side of the exact one, which depends on
/// the seed, the instruction and its operand alone. Zeros, powers of two, infinities and NaN stay.
#[inline(never)]
pub(super) fn perturb(seed: u64, row: &Row, operands: &[u32; LANES], results: &mut [u32; LANES]) {
    let Some(exact) = exact(row.name) else { return };
    let name = row.name.bytes().fold(seed, |name, byte| mix(name, byte.into()));
    let is_half = row.dst == Kind::F16;
    let (fraction, exponent) = if is_half { (0x03ff, 0x7c00) } else { (0x007f_ffff, 0x7f80_0000) };
    let value = |bits: u32| f64::from(if is_half { half::to_f32(bits as u16) } else { f32::from_bits(bits) });
    for (result, &operand) in results.iter_mut().zip(operands) {
        // A step from an inner value stays in its binade.
        let inner = *result & fraction != 0 && *result & exponent != exponent && *result & exponent != 0;
        if !inner || mix(name, operand.into()) % 2 == 0 {
            continue;
        }
        let x = if is_half { value(operand) } else { f64::from(flush(f32::from_bits(operand))) };
        // Bits of floats of one sign are ordered by magnitude.
        let (exact, rounded) = (exact(x).abs(), value(*result).abs());
        *result = match exact.partial_cmp(&rounded) {
            Some(std::cmp::Ordering::Greater) => *result + 1,
            Some(std::cmp::Ordering::Less) => *result - 1,
            _ => *result,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_approximate() {
        for name in
            ["v_rcp_f32", "v_rcp_iflag_f32", "v_rsq_f16", "v_exp_f32", "v_log_f16", "v_sqrt_f32", "v_sin_f32"]
        {
            assert!(exact(name).is_some(), "{name}");
        }
        for name in ["v_rcp_f64", "v_mul_f32", "v_exp", "v_mul_lo_u32", "v_rndne_f32", "v_log_clamp_f32"] {
            assert!(exact(name).is_none(), "{name}");
        }
    }
}
