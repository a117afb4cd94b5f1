//! Operand numbers, and the bits of constants.

use super::Kind;

pub(crate) const VCC: u16 = 106;
pub(crate) const M0: u16 = 124;
/// Reads as 0, writes have no effect. Processors have it under different numbers or not at all.
pub(crate) const NULL: u16 = 125;
pub(crate) const EXEC: u16 = 126;
/// 0, then 1 to 64, then -1 to -16.
pub(crate) const ZERO: u16 = 128;
pub(crate) const SDWA: u16 = 249;
pub(crate) const DPP: u16 = 250;
pub(crate) const LITERAL: u16 = 255;
/// The first vector register.
pub(crate) const VGPR: u16 = 256;
/// The first accumulation register of gfx90a and gfx942. Wavefronts hold them behind the 256 vector registers.
pub(crate) const ACCUMULATORS: u16 = VGPR + 256;
/// "off": no scalar base.
pub(crate) const OFF: u16 = 127;

/// High words of the addresses through which FLAT instructions access LDS and scratch.
pub(crate) const SHARED_APERTURE: u32 = 0x1000_0000;
pub(crate) const PRIVATE_APERTURE: u32 = 0x2000_0000;

/// Returns the bits of an operand that is a constant or a literal. `None` for registers, and for VCCZ, EXECZ and SCC,
/// which only the wavefront knows.
pub(crate) fn constant(operand: u16, kind: Kind, literal: u32) -> Option<u64> {
    if matches!(kind, Kind::Pk32 | Kind::PkF32) {
        // A constant is both halves.
        let low = constant(operand, Kind::F32, literal)?;
        return Some(low | low << 32);
    }
    let wide = kind.is_wide() || kind == Kind::Mask;
    let integer = |x: i64| if wide { x as u64 } else { u64::from(x as u32) };
    Some(match operand {
        0..ZERO | 251..=253 => return None,
        128..=192 => integer(i64::from(operand) - 128),
        193..=208 => integer(192 - i64::from(operand)),
        235 if wide => u64::from(SHARED_APERTURE) << 32,
        235 => u64::from(SHARED_APERTURE),
        237 if wide => u64::from(PRIVATE_APERTURE) << 32,
        237 => u64::from(PRIVATE_APERTURE),
        236 | 238 => u64::from(u32::MAX),
        240..=248 => float(operand, kind),
        LITERAL => match kind {
            Kind::F64 => u64::from(literal) << 32,
            Kind::I64 => literal as i32 as i64 as u64,
            _ => u64::from(literal),
        },
        VGPR.. => return None,
        _ => 0,
    })
}

/// Returns 0.5, -0.5, 1, -1, 2, -2, 4, -4 or 1 / (2 pi) in the operand's own format.
fn float(operand: u16, kind: Kind) -> u64 {
    let i = usize::from(operand - 240);
    const VALUES: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    match kind {
        Kind::F16 | Kind::PkF16 | Kind::Pk16 | Kind::U16 | Kind::I16 => {
            const HALVES: [u64; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
            HALVES[i]
        }
        Kind::F64 | Kind::U64 | Kind::I64 => VALUES.get(i).map_or(0x3fc4_5f30_6dc9_c882, |x| x.to_bits()),
        _ => VALUES.get(i).map_or(0x3e22_f983, |&x| u64::from((x as f32).to_bits())),
    }
}
