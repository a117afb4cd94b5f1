//! The instruction set: formats, operands, tables of opcodes.
//!
//! An opcode has one row in one table: its number, name, operand types and formula. Decoder, printer and
//! execution use the same row. Vector instructions are in [`vop1`], [`vop2`], [`vop3`], [`vop3p`] and
//! [`vopc`], scalar ones in [`sop`], memory ones in [`memory`].
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture" (2020) and ""Vega" 7nm Instruction Set Architecture"
//! (2020); LLVM, "User Guide for AMDGPU Backend" and "Syntax of gfx900/gfx906 instructions".

pub(crate) mod decode;
pub(crate) mod half;
pub(crate) mod inst;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod memory;
pub(crate) mod operand;
pub(crate) mod plan;
pub(crate) mod registers;
mod resolve;
pub(crate) mod sop;
pub(crate) mod text;
mod uses;
pub(crate) mod vop1;
pub(crate) mod vop2;
pub(crate) mod vop3;
pub(crate) mod vop3p;
pub(crate) mod vopc;

/// An emulated processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Vega 10: Radeon RX Vega 56 and 64.
    Gfx900,
    /// Vega 20: Radeon Instinct MI50 and MI60, Radeon VII.
    Gfx906,
}

impl Target {
    /// All supported processors.
    pub const ALL: [Target; 2] = [Target::Gfx900, Target::Gfx906];

    /// Returns the name of the processor.
    pub fn name(self) -> &'static str {
        match self {
            Target::Gfx900 => "gfx900",
            Target::Gfx906 => "gfx906",
        }
    }

    /// Returns the processor with a name.
    pub fn parse(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Returns its number in the flags of an ELF header (`EF_AMDGPU_MACH`).
    pub(crate) fn machine(self) -> u32 {
        match self {
            Target::Gfx900 => 0x2c,
            Target::Gfx906 => 0x2f,
        }
    }
}

/// Type of an operand: the number of its registers, the meaning of constants and the effect of modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    /// 16 bits, unsigned or signed, or a half, in the low half of a register.
    U16,
    I16,
    F16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    /// Two values of 16 bits.
    Pk16,
    PkF16,
    U128,
    /// F32, or one half of a register, depending on the modifiers (mixed-precision instructions).
    Mix,
    /// One bit per lane.
    Mask,
    /// VCC as an implicit operand.
    Vcc,
}

impl Kind {
    /// Returns the number of 32-bit registers.
    pub(crate) fn registers(self) -> usize {
        match self {
            Kind::None | Kind::Vcc => 0,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Mask => 2,
            Kind::U128 => 4,
            _ => 1,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Kind::F16 | Kind::F32 | Kind::F64 | Kind::PkF16 | Kind::Mix)
    }
}

/// Flags of an opcode that do not follow from its operands.
pub(crate) mod flag {
    /// The destination is also the last source.
    pub(crate) const ACC: u16 = 1;
    /// Supported on gfx906 only.
    pub(crate) const GFX906: u16 = 2;
    /// The second source is a literal (`v_madmk`).
    pub(crate) const LITERAL1: u16 = 4;
    /// The third source is a literal (`v_madak`).
    pub(crate) const LITERAL2: u16 = 8;
    /// The result is also written to EXEC (`v_cmpx`).
    pub(crate) const EXEC: u16 = 16;
    /// Executed separately, without its formula: it writes a scalar register (`v_readlane`), a single lane or
    /// several registers.
    pub(crate) const SPECIAL: u16 = 32;
    /// F32 denormals are flushed in every mode (`v_mad_f32`, `v_mac_f32`).
    pub(crate) const FLUSH: u16 = 128;
    /// The upper half of the destination is preserved (`v_fma_mixlo_f16`), or the lower (`v_fma_mixhi_f16`).
    pub(crate) const KEEP_HIGH: u16 = 256;
    pub(crate) const KEEP_LOW: u16 = 512;
    /// The clamp bit saturates the integer result.
    pub(crate) const SATURATES: u16 = 1024;
}

/// A vector instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) dst: Kind,
    /// True if it also writes a mask (carry-out).
    pub(crate) carry_out: bool,
    pub(crate) src: [Kind; 4],
    pub(crate) flags: u16,
}

/// Issue rate of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    Full,
    /// A quarter of the full rate.
    Quarter,
    /// A dot product: several products per lane.
    Dot,
}

/// Name prefixes of instructions at a quarter of the full rate.
const QUARTER: [&str; 15] = [
    "v_rcp_",
    "v_rsq_",
    "v_sqrt_",
    "v_exp_",
    "v_log_",
    "v_sin_",
    "v_cos_",
    "v_mul_lo_u32",
    "v_mul_hi_u32",
    "v_mul_hi_i32",
    "v_mad_u64_u32",
    "v_mad_i64_i32",
    "v_cvt_f64_",
    "v_cvt_f32_f64",
    "v_cvt_i32_f64",
];

/// Name prefixes of floating-point instructions whose result does not depend on the rounding mode: it is
/// exact, has its own rounding, or is an approximation with an error larger than the rounding error.
const EXACT: [&str; 24] = [
    "v_rcp_",
    "v_rsq_",
    "v_sqrt_",
    "v_exp_",
    "v_log_",
    "v_sin_",
    "v_cos_",
    "v_rndne_",
    "v_trunc_",
    "v_ceil_",
    "v_floor_",
    "v_fract_",
    "v_frexp_",
    "v_min",
    "v_max",
    "v_med3_",
    "v_pk_min_",
    "v_pk_max_",
    "v_cvt_pkrtz_",
    "v_cvt_f64_",
    "v_cvt_f32_f16",
    "v_cvt_f32_ubyte",
    "v_cvt_off_",
    "v_cube",
];

impl Row {
    /// Returns true if the result depends on the rounding mode.
    pub(crate) fn rounds(&self) -> bool {
        self.dst.is_float() && !EXACT.iter().any(|begin| self.name.starts_with(begin))
    }

    pub(crate) fn rate(&self) -> Rate {
        if self.name.starts_with("v_dot") {
            Rate::Dot
        } else if QUARTER.iter().any(|begin| self.name.starts_with(begin)) {
            Rate::Quarter
        } else {
            Rate::Full
        }
    }

    pub(crate) fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Bit set in the numbers of rows for opcodes that have a different meaning on gfx900.
pub(crate) const ON_GFX900: u16 = 0x8000;

/// Returns the row of an opcode in a table sorted by number.
pub(crate) fn find(rows: &'static [Row], code: u16, target: Target) -> Option<&'static Row> {
    let row = |code: u16| rows.binary_search_by_key(&code, |row| row.code).ok().map(|i| &rows[i]);
    if target == Target::Gfx900 {
        return row(code | ON_GFX900).or_else(|| row(code).filter(|row| !row.is(flag::GFX906)));
    }
    row(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        for table in [vop1::ROWS, vop2::ROWS, vop3::ROWS, vop3p::ROWS, vopc::ROWS] {
            assert!(table.windows(2).all(|w| w[0].code < w[1].code), "{}", table[0].name);
        }
    }
}
