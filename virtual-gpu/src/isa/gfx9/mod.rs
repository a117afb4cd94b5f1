//! GFX9: gfx900 and gfx906 ("Vega"), and gfx90a and gfx942 with what [`cdna`] adds.
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture" (2020) and ""Vega" 7nm Instruction Set Architecture" (2020).

mod decode;
mod memory;
mod scalar;
mod vector;

pub(super) use decode::decode;

use super::Row;
use super::Target;
use super::cdna;
use super::op::memory::MemoryRow;
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
    const GFX90A: Vector = Vector {
        vop1: &[cdna::vector::VOP1, vector::VOP1],
        vop2: &[cdna::vector::VOP2_90A, cdna::vector::VOP2, vector::VOP2_906, vector::VOP2],
        vop3: &[cdna::vector::VOP3, vector::VOP3],
        vop3p: &[cdna::vector::VOP3P_90A, cdna::vector::VOP3P, vector::VOP3P_906, vector::VOP3P],
        ..GFX906
    };
    const GFX942: Vector = Vector {
        vop1: &[cdna::vector::VOP1_942, cdna::vector::VOP1, vector::VOP1],
        vop2: &[cdna::vector::VOP2_942, cdna::vector::VOP2, vector::VOP2_906, vector::VOP2],
        vop3: &[cdna::vector::VOP3_942, cdna::vector::VOP3, vector::VOP3],
        vop3p: &[cdna::vector::VOP3P, vector::VOP3P_906, vector::VOP3P],
        ..GFX906
    };
    match target {
        Target::Gfx900 => &GFX900,
        Target::Gfx90a => &GFX90A,
        Target::Gfx942 => &GFX942,
        // The only other one whose instructions these are.
        _ => &GFX906,
    }
}

/// Tables of the memory formats.
struct Memory {
    /// FLAT, GLOBAL and SCRATCH.
    flat: &'static [&'static [MemoryRow]],
    /// MUBUF.
    buffer: &'static [&'static [MemoryRow]],
    lds: &'static [&'static [MemoryRow]],
}

/// Returns a processor's tables of the memory formats.
fn memory_tables(target: Target) -> Memory {
    match target {
        Target::Gfx90a => Memory {
            flat: &[cdna::memory::VECTOR, memory::VECTOR],
            buffer: &[cdna::memory::VECTOR, memory::VECTOR],
            lds: &[cdna::memory::DS, memory::DS],
        },
        Target::Gfx942 => Memory {
            flat: &[cdna::memory::FLAT_942, cdna::memory::VECTOR, memory::VECTOR],
            buffer: &[cdna::memory::BUFFER_942, cdna::memory::VECTOR, memory::VECTOR],
            lds: &[cdna::memory::DS_942, cdna::memory::DS, memory::DS],
        },
        _ => Memory { flat: &[memory::VECTOR], buffer: &[memory::VECTOR], lds: &[memory::DS] },
    }
}
