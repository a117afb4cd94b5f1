//! Classes of instructions, and the cycles for which each occupies the vector issue of a SIMD.
//!
//! - GCN and CDNA: a SIMD has 16 lanes and wavefronts of 64, so 4 cycles.
//! - RDNA: 32 lanes, so 1 cycle for a wavefront of 32, 2 for one of 64. From RDNA3 on two instructions that
//!   the compiler pairs take the time of one, and in wavefronts of 64 pairable instructions take 1.
//! - Products of 32-bit integers take four times as long, 64-bit floats 16 times. Roots and other
//!   transcendental functions take four times as long on GCN, while RDNA continues issuing.
//! - Conversions except those of bytes take four times as long on GCN according to the tables of Mesa and
//!   LLVM, but not according to the manuals. Both counts are reported.
//! - Matrix units: 16 x 16 x 16 by a wavefront of 32 takes 32 cycles on RDNA3, which matches the 512
//!   floating-point operations per compute unit and cycle in its data sheets, and half as long on RDNA4.
//!
//! Memory, shared memory and scalar instructions are issued in parallel with other wavefronts' vector
//! arithmetic: they are counted, but with zero cycles.

use super::listing::Instruction;
use crate::arch::ArchClass;

/// Class of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Multiply-add of 32-bit values, or of pairs of 16-bit values.
    Fma,
    /// Multiply-add of groups of two or four values.
    Dot,
    /// Multiplication of matrices.
    Matrix,
    /// Conversion between numeric types.
    Conversion,
    /// Other vector arithmetic.
    Vector,
    /// Access to workgroup-shared memory (LDS).
    Lds,
    /// Access to memory.
    Memory,
    /// Waits.
    Wait,
    /// All others: scalar.
    Scalar,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Class; 9] = [
        Class::Fma,
        Class::Dot,
        Class::Matrix,
        Class::Conversion,
        Class::Vector,
        Class::Lds,
        Class::Memory,
        Class::Wait,
        Class::Scalar,
    ];

    /// Returns true for classes of vector arithmetic.
    pub fn is_vector(self) -> bool {
        matches!(self, Class::Fma | Class::Dot | Class::Matrix | Class::Conversion | Class::Vector)
    }
}

/// Cost of one instruction, and its work for a wavefront.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) class: Class,
    pub(super) cycles: u32,
    /// Additional cycles if conversions take four times as long.
    pub(super) slow: u32,
    /// Products of two values.
    pub(super) products: u32,
}

/// Instructions that RDNA3 can issue in pairs, without prefix and suffix.
const PAIRED: [&str; 14] = [
    "fma_f32",
    "fmac_f32",
    "fmaak_f32",
    "fmamk_f32",
    "mul_f32",
    "add_f32",
    "sub_f32",
    "subrev_f32",
    "max_f32",
    "min_f32",
    "mov_b32",
    "cndmask_b32",
    "dot2_f32_f16",
    "dot2_f32_bf16",
];

/// Returns the cost of an instruction in a wavefront of `lanes` lanes.
pub(super) fn cost(arch: ArchClass, lanes: u32, instruction: Instruction<'_>) -> Cost {
    let name = instruction.name;
    let Some(vector) = name.strip_prefix("v_") else {
        return Cost { class: other(name), cycles: 0, slow: 0, products: 0 };
    };
    let plain = vector.strip_prefix("dual_").unwrap_or(vector);
    let plain =
        ["_e32", "_e64", "_sdwa", "_dpp"].iter().find_map(|end| plain.strip_suffix(end)).unwrap_or(plain);
    let (class, each) = arithmetic(plain, instruction.operands);

    let (rdna3, rdna4) = (arch == ArchClass::AmdRdna3, arch == ArchClass::AmdRdna4);
    let gcn = matches!(arch, ArchClass::AmdGcn | ArchClass::AmdCdna);
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| plain.starts_with(prefix));
    let once = match () {
        _ if gcn => lanes / 16,
        _ if (rdna3 || rdna4) && PAIRED.contains(&plain) => 1,
        _ => lanes.div_ceil(32),
    };
    let cycles = match class {
        _ if instruction.joined => 0,
        Class::Matrix => lanes.div_ceil(32) * if rdna4 { 16 } else { 32 },
        _ if begins(&["mul_lo_u32", "mul_lo_i32", "mul_hi_u32", "mul_hi_i32", "mad_u64", "mad_i64"]) => {
            4 * once
        }
        _ if gcn && begins(&["rcp_", "rsq_", "sqrt_", "exp_", "log_", "sin_", "cos_"]) => 4 * once,
        _ if plain.contains("_f64") => 16 * once,
        _ => once,
    };
    let slow = if gcn && plain.starts_with("cvt_") && !plain.contains("ubyte") { 3 * cycles } else { 0 };
    Cost { class, cycles, slow, products: each * if class == Class::Matrix { 1 } else { lanes } }
}

/// Returns the class of a vector instruction and its products: per lane, or in total for a matrix.
fn arithmetic(plain: &str, operands: &str) -> (Class, u32) {
    let begins = |prefix| plain.starts_with(prefix);
    match plain {
        _ if begins("wmma_") || begins("mfma_") => {
            let shape = plain.split('_').find(|part| part.contains('x')).unwrap_or_default();
            (Class::Matrix, shape.split('x').filter_map(|n| n.parse::<u32>().ok()).product())
        }
        _ if begins("dot4") => (Class::Dot, 4),
        _ if begins("dot2") => (Class::Dot, 2),
        _ if begins("pk_fma_f16") || begins("pk_mul_f16") => (Class::Fma, 2),
        "fma_f32" | "fmac_f32" | "fmaak_f32" | "fmamk_f32" | "mac_f32" | "mad_f32" | "madak_f32"
        | "madmk_f32" => (Class::Fma, 1),
        // A multiplication by 1 is a conversion.
        _ if begins("fma_mix") || begins("mad_mix") => {
            if operands.contains(" 1.0,") {
                (Class::Conversion, 0)
            } else {
                (Class::Fma, 1)
            }
        }
        _ if begins("cvt_") => (Class::Conversion, 0),
        // The first product of a sum.
        "mul_f32" => (Class::Vector, 1),
        _ => (Class::Vector, 0),
    }
}

/// Returns the class of an instruction that is no vector arithmetic.
fn other(name: &str) -> Class {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match () {
        _ if begins(&["ds_"]) => Class::Lds,
        _ if begins(&["buffer_", "global_", "flat_", "scratch_"]) => Class::Memory,
        _ if begins(&["s_wait"]) => Class::Wait,
        _ => Class::Scalar,
    }
}
