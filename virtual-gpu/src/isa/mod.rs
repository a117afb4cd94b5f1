//! The instruction set: operations, and how each generation of processors encodes them.
//!
//! Each operation stands once, under its name, in [`op`]: its operand types and its formula. Each generation has a folder
//! with its numbers and names of these operations and its decoder: [`gfx9`] with [`cdna`], [`gfx11`]. Execution knows
//! operations only.
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture" (2020) and ""Vega" 7nm Instruction Set Architecture"
//! (2020), ""RDNA3" Instruction Set Architecture" (2023) and ""RDNA3.5" Instruction Set Architecture" (2024); LLVM, "User
//! Guide for AMDGPU Backend", "Syntax of gfx900/gfx906 instructions" and "Syntax of GFX11 instructions".

mod cdna;
pub(crate) mod flight;
mod gfx11;
mod gfx9;
pub(crate) mod inst;
pub(crate) mod moves;
mod names;
pub(crate) mod op;
pub(crate) mod operand;
pub(crate) mod plan;
pub(crate) mod registers;
mod resolve;
pub(crate) mod short;
mod tables;
pub(crate) mod target;
pub(crate) mod text;
mod uses;

pub(crate) use op::scalar::ScalarRow;
pub(crate) use resolve::MODE_INDEX;
pub use target::Target;
pub(crate) use target::{Generation, Isa};

use flight::Begins;
use inst::Inst;
use op::run::Run;
use registers::Registers;
use std::sync::Arc;

/// Decodes the instruction at the start of `words`. Returns `None` if the processor has no such instruction.
pub(crate) fn decode(words: &[u32], isa: Isa) -> Option<Inst> {
    let mut inst = match isa.target.generation() {
        Generation::Gfx9 => gfx9::decode(words, isa)?,
        Generation::Gfx11 => gfx11::decode(words, isa)?,
    };
    inst.plan = resolve::plan(&inst);
    inst.moves = resolve::moves(&inst).map(Arc::new);
    Some(inst)
}

/// Registers of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effects {
    /// Registers that it reads or writes immediately.
    pub(crate) used: Registers,
    /// Memory operations that it begins.
    pub(crate) begins: Begins,
}

/// Returns the registers of an instruction.
pub(crate) fn effects(inst: &Inst) -> Effects {
    Effects { used: uses::used(inst), begins: Begins::of(inst, uses::filled(inst)) }
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
    /// Two values of 32 bits, in two registers.
    Pk32,
    PkF32,
    U128,
    /// F32, or one half of a register, depending on the modifiers (mixed-precision instructions).
    Mix,
    /// One bit per lane.
    Mask,
    /// VCC as an implicit operand.
    Vcc,
}

impl Kind {
    /// Returns the number of 32-bit registers. A mask has one or two, by the size of a wavefront.
    pub(crate) fn registers(self, isa: Isa) -> usize {
        match self {
            Kind::None | Kind::Vcc => 0,
            Kind::Mask => isa.mask_registers(),
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Pk32 | Kind::PkF32 => 2,
            Kind::U128 => 4,
            _ => 1,
        }
    }

    /// Returns true if it has 64 bits, as a scalar operand too.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Kind::U64 | Kind::I64 | Kind::F64 | Kind::Pk32 | Kind::PkF32)
    }

    /// Returns true for two values, of which modifiers choose one for each half of the result.
    pub(crate) fn is_packed(self) -> bool {
        matches!(self, Kind::Pk16 | Kind::PkF16 | Kind::Pk32 | Kind::PkF32)
    }

    /// Returns true if it consists of F32, whose denormals MODE treats apart.
    pub(crate) fn is_f32(self) -> bool {
        matches!(self, Kind::F32 | Kind::PkF32)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Kind::F16 | Kind::F32 | Kind::F64 | Kind::PkF16 | Kind::PkF32 | Kind::Mix)
    }
}

/// Flags of an opcode that do not follow from its operands.
pub(crate) mod flag {
    /// The destination is also the last source.
    pub(crate) const ACC: u16 = 1;
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

/// An operation of the vector unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) dst: Kind,
    /// True if it also writes a mask (carry-out).
    pub(crate) carry_out: bool,
    pub(crate) src: [Kind; 4],
    pub(crate) flags: u16,
    pub(crate) run: Run,
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
const EXACT: [&str; 27] = [
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
    "v_cvt_f32_fp8",
    "v_cvt_f32_bf8",
    "v_cvt_pk_f32_",
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
