//! GFX11: gfx1100 (RDNA 3) and gfx1151 (RDNA 3.5, with scalar floats).
//!
//! Sources: AMD, ""RDNA3" Instruction Set Architecture" (2023) and ""RDNA3.5" Instruction Set Architecture" (2024);
//! LLVM, "Syntax of GFX11 instructions".

mod decode;
mod memory;
mod scalar;
pub(super) mod text;
mod vector;
mod wmma;

pub(super) use decode::decode;

use super::tables::Tables;
use super::{ScalarRow, Target};

/// Tables of the scalar formats.
struct Scalar {
    sop1: Tables<ScalarRow>,
    sop2: Tables<ScalarRow>,
    sopc: Tables<ScalarRow>,
    sopp: Tables<ScalarRow>,
}

/// Returns a processor's tables of the scalar formats.
fn scalar(target: Target) -> &'static Scalar {
    const GFX1100: Scalar =
        Scalar { sop1: &[scalar::SOP1], sop2: &[scalar::SOP2], sopc: &[scalar::SOPC], sopp: &[scalar::SOPP] };
    const GFX1151: Scalar = Scalar {
        sop1: &[scalar::SOP1, scalar::SOP1_FLOAT],
        sop2: &[scalar::SOP2, scalar::SOP2_FLOAT],
        sopc: &[scalar::SOPC, scalar::SOPC_FLOAT],
        sopp: &[scalar::SOPP, scalar::SOPP_1151],
    };
    if target == Target::Gfx1151 { &GFX1151 } else { &GFX1100 }
}
