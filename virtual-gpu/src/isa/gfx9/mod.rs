//! GFX9: gfx900 and gfx906 ("Vega").
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture" (2020) and ""Vega" 7nm Instruction Set Architecture" (2020).

mod decode;
mod memory;
mod scalar;
mod vector;

pub(super) use decode::decode;

use super::Row;
use super::Target;
use super::tables::Tables;

/// Tables of the vector formats.
struct Vector {
    vop1: Tables<Row>,
    vop2: Tables<Row>,
    vopc: Tables<Row>,
    vop3: Tables<Row>,
    vop3p: Tables<Row>,
}

/// Returns a processor's tables of the vector formats.
fn vector(target: Target) -> &'static Vector {
    const GFX900: Vector = Vector {
        vop1: &[vector::VOP1],
        vop2: &[vector::VOP2],
        vopc: &[vector::VOPC],
        vop3: &[vector::VOP3],
        vop3p: &[vector::VOP3P_900, vector::VOP3P],
    };
    const GFX906: Vector = Vector {
        vop2: &[vector::VOP2_906, vector::VOP2],
        vop3p: &[vector::VOP3P_906, vector::VOP3P],
        ..GFX900
    };
    match target {
        Target::Gfx900 => &GFX900,
        _ => &GFX906,
    }
}
