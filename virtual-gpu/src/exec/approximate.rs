//! Approximating instructions: their results are off by up to one unit in the last place, as AMD documents.

use crate::isa::op::lanes::LANES;
use crate::isa::{Kind, Row};
use crate::random::mix;

/// Returns true if an instruction approximates its result.
fn approximates(name: &str) -> bool {
    let Some((stem, "f32" | "f16")) = name.rsplit_once('_') else { return false };
    ["v_rcp", "v_rcp_iflag", "v_rsq", "v_sqrt", "v_exp", "v_log", "v_sin", "v_cos"].contains(&stem)
}

/// Changes results of an approximating instruction: each by -1, 0 or 1 units in the last place, which depends on the seed,
/// the instruction and its operand alone. Zeros, powers of two, infinities and NaN stay.
#[inline(never)]
pub(super) fn perturb(seed: u64, row: &Row, operands: &[u32; LANES], results: &mut [u32; LANES]) {
    if !approximates(row.name) {
        return;
    }
    let name = row.name.bytes().fold(seed, |name, byte| mix(name, byte.into()));
    let (fraction, exponent) = match row.dst {
        Kind::F32 => (0x007f_ffff, 0x7f80_0000),
        Kind::F16 => (0x03ff, 0x7c00),
        _ => return,
    };
    for (result, &operand) in results.iter_mut().zip(operands) {
        let step = mix(name, operand.into()) % 3;
        // A step from an inner value stays in its binade.
        let inner = *result & fraction != 0 && *result & exponent != exponent;
        if inner && *result & exponent != 0 {
            *result = (*result).wrapping_add(step as u32).wrapping_sub(1);
        }
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
            assert!(approximates(name), "{name}");
        }
        for name in ["v_rcp_f64", "v_mul_f32", "v_exp", "v_mul_lo_u32", "v_rndne_f32", "v_log_clamp_f32"] {
            assert!(!approximates(name), "{name}");
        }
    }
}
