//! The scalar registers of a wavefront, and scalar instructions whose operands are known to be there.

use crate::isa::Kind;
use crate::isa::operand::{EXEC, NULL, VGPR, ZERO, constant};

/// Scalar registers and SCC.
pub(crate) struct ScalarFile {
    /// Indexed by operand number: registers, VCC, M0, EXEC.
    pub(crate) registers: [u32; 128],
    pub(crate) scc: bool,
}

impl ScalarFile {
    /// Returns a register and the next one.
    #[inline(always)]
    pub(crate) fn pair(&self, n: usize) -> u64 {
        u64::from(self.registers[n & 127]) | u64::from(self.registers[(n + 1) & 127]) << 32
    }
}

/// State that formulas may use in addition to their sources.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) scc: bool,
    pub(crate) exec: u64,
    /// Old value of the destination.
    pub(crate) old: u64,
    /// The MODE register.
    pub(crate) mode: u32,
    /// The instruction's literal.
    pub(crate) literal: u32,
}

/// A result, and SCC if it changes.
pub(crate) type Outcome = (u64, Option<bool>);

pub(crate) trait Scalar: Copy {
    const KIND: Kind;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! scalar {
    ($($t:ty, $kind:ident, $via:ty;)*) => {$(
        impl Scalar for $t {
            const KIND: Kind = Kind::$kind;
            fn of(bits: u64) -> $t {
                bits as $t
            }
            fn bits(self) -> u64 {
                self as $via as u64
            }
        }
    )*};
}

scalar! {
    u32, U32, u32;
    i32, I32, u32;
    u64, U64, u64;
    i64, I64, u64;
}

impl Scalar for () {
    const KIND: Kind = Kind::None;
    fn of(_: u64) {}
    fn bits(self) -> u64 {
        0
    }
}

/// A scalar source: one or two registers, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    register: u8,
    /// All ones for registers.
    mask: u32,
    /// The constant: low and high word.
    constant: [u32; 2],
}

impl Bits {
    pub(crate) const CLEAR: Bits = Bits { register: 0, mask: 0, constant: [0; 2] };

    pub(crate) fn constant(bits: u64) -> Bits {
        Bits { constant: [bits as u32, (bits >> 32) as u32], ..Bits::CLEAR }
    }

    /// Returns an operand; `None` for one that only the wavefront knows.
    pub(crate) fn of(operand: u16, kind: Kind, literal: u32) -> Option<Bits> {
        match operand {
            NULL => Some(Bits::CLEAR),
            register if register < ZERO => {
                Some(Bits { register: register as u8, mask: u32::MAX, ..Bits::CLEAR })
            }
            operand if operand < VGPR => constant(operand, kind, literal).map(Bits::constant),
            _ => None,
        }
    }

    /// Returns the bits of a source of some type. Word by word: a host waits for a store of a word before it loads two.
    #[inline(always)]
    pub(super) fn read<T: Scalar>(self, file: &ScalarFile) -> T {
        let n = usize::from(self.register & 127);
        let low = file.registers[n] & self.mask | self.constant[0];
        if !T::KIND.is_wide() {
            return T::of(low.into());
        }
        let high = file.registers[(n + 1) & 127] & self.mask | self.constant[1];
        T::of(u64::from(low) | u64::from(high) << 32)
    }
}

/// Operands of a scalar instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) sources: [Bits; 2],
    pub(crate) dst: u8,
}

impl Step {
    /// Returns what a formula with a result of type `R` may use beside its sources. Floats, which depend on MODE and have
    /// literals, are no steps.
    #[inline(always)]
    pub(super) fn state<R: Scalar>(&self, file: &ScalarFile) -> State {
        let n = usize::from(self.dst & 127);
        let old = if R::KIND.is_wide() { file.pair(n) } else { file.registers[n].into() };
        State { scc: file.scc, exec: file.pair(EXEC.into()), old, mode: 0, literal: 0 }
    }

    /// Writes a result of type `R` to EXEC, and to the destination the result, or what EXEC was.
    #[inline(always)]
    pub(super) fn finish_exec<R: Scalar>(
        &self,
        file: &mut ScalarFile,
        (bits, scc): Outcome,
        before: Option<u64>,
    ) {
        self.finish::<R>(file, (before.unwrap_or(bits), scc));
        Step { dst: EXEC as u8, ..*self }.finish::<R>(file, (bits, None));
    }

    /// Writes a result of type `R`.
    #[inline(always)]
    pub(super) fn finish<R: Scalar>(&self, file: &mut ScalarFile, (bits, scc): Outcome) {
        file.scc = scc.unwrap_or(file.scc);
        let n = usize::from(self.dst & 127);
        if R::KIND != Kind::None {
            file.registers[n] = bits as u32;
        }
        if R::KIND.is_wide() {
            file.registers[(n + 1) & 127] = (bits >> 32) as u32;
        }
    }
}
