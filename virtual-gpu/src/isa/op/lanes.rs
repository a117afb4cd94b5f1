//! Values of all lanes and the types used in the formulas of operations.
//!
//! A formula is computed for a chunk of eight lanes after the other, of 32 or 64. Sources and results are arrays, so that
//! the host's compiler makes a vector of each chunk. Inactive lanes are computed too; their results are dropped when the
//! destination is written.

use super::half;
use crate::isa::Kind;
use std::mem::MaybeUninit;

/// Number of lanes of the largest wavefront.
pub(crate) const LANES: usize = 64;
/// Lanes that a formula is computed for at once: a vector of the host, or two. The host's compiler makes vectors of them
/// without a loop, and results need no memory before they are written.
pub(crate) const CHUNK: usize = 8;
/// Chunks of the largest wavefront.
pub(crate) const CHUNKS: usize = LANES / CHUNK;

/// Does something for each lane of a mask. A macro, because a closure that is called in two loops is not inline: then
/// neither loop is vectorised.
macro_rules! each_lane {
    ($mask:expr, |$lane:ident| $body:block) => {
        match $crate::isa::op::lanes::whole($mask) {
            0 => for $lane in $crate::isa::op::lanes::lanes($mask) $body,
            count => for $lane in 0..$crate::isa::op::lanes::rounds(count) $body,
        }
    };
}
pub(crate) use each_lane;

/// Returns the number of lanes if the mask has all of a wavefront, otherwise 0.
#[inline(always)]
pub(crate) fn whole(mask: u64) -> usize {
    match mask {
        u64::MAX => LANES,
        0xffff_ffff => LANES / 2,
        _ => 0,
    }
}

/// Returns a number of rounds, at most [`LANES`], that the host's compiler does not know. It unrolls loops of a few known
/// rounds before it looks for vectors, and then finds none.
#[inline(always)]
pub(crate) fn rounds(count: usize) -> usize {
    std::hint::black_box(count).min(LANES)
}

/// Bits of half a mask. Loops over lanes that use them are vectorised; loops that shift by the lane index are
/// not.
pub(crate) const BITS: [u32; 32] = {
    let mut bits = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// Iterates over the lanes of a mask.
#[inline(always)]
pub(crate) fn lanes(mask: u64) -> Lanes {
    Lanes(mask)
}

/// Lanes that are left.
#[derive(Clone)]
pub(crate) struct Lanes(u64);

impl Iterator for Lanes {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        // Less than 64, which the remainder tells to the compiler.
        let lane = self.0.trailing_zeros() as usize % LANES;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

/// Modes that affect results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The MODE register of the wavefront.
    pub(crate) bits: u32,
    /// True if the instruction's clamp bit is set.
    pub(crate) clamp: bool,
    /// The instruction's negation bits, which some integer operations have for signs.
    pub(crate) negated: u8,
}

impl Mode {
    /// Returns true if signalling NaNs are made quiet.
    #[inline(always)]
    pub(crate) fn ieee(self) -> bool {
        self.bits >> 9 & 1 != 0
    }

    /// Returns true if a clamped NaN becomes 0.
    pub(crate) fn dx10_clamp(self) -> bool {
        self.bits >> 8 & 1 != 0
    }
}

/// Sources of a chunk of lanes: the low and high words of up to three operands, and one bit per lane.
pub(crate) struct SourcePart<'a> {
    pub(super) lo: [&'a [u32; CHUNK]; 3],
    pub(super) hi: [&'a [u32; CHUNK]; 3],
    pub(super) carry: u32,
}

/// Results of a chunk of lanes: a formula writes all that its type has. In `carry` a lane's bit
/// is its whole word: all ones or 0.
pub(crate) struct ResultPart<'a> {
    pub(crate) lo: &'a mut [MaybeUninit<u32>; CHUNK],
    pub(crate) hi: &'a mut [MaybeUninit<u32>; CHUNK],
    pub(crate) carry: &'a mut [MaybeUninit<u32>; CHUNK],
}

/// Type of a source.
pub(crate) trait Source: Copy {
    const KIND: Kind;
    /// Returns that of a lane of the chunk.
    fn get(from: &SourcePart<'_>, n: usize, lane: usize) -> Self;
}

/// Type of a result.
pub(crate) trait Output: Copy {
    const KIND: Kind;
    const CARRY: bool = false;
    /// True if it has a low word, a high word, one bit per lane.
    const LO: bool = false;
    const HI: bool = false;
    const BITS: bool = false;
    fn set(self, to: &mut ResultPart<'_>, lane: usize);
}

/// A half, as bits. Arithmetic uses F32 or F64 and rounds once; comparisons compare the values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct F16(pub(crate) u16);

/// Two halves or two 16-bit values: low, high.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pk(pub(crate) u16, pub(crate) u16);

/// Two halves that support sign modifiers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PkF(pub(crate) F16, pub(crate) F16);

/// Two values of 32 bits: low, high.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pk32(pub(crate) u32, pub(crate) u32);

/// Two F32 that support sign modifiers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PkF32(pub(crate) f32, pub(crate) f32);

/// Operand of a mixed-precision instruction, converted to F32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix(pub(crate) f32);

/// The lane's bit of a mask operand (carry-in, condition).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bit(pub(crate) bool);

/// The lane's bit of VCC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vcc(pub(crate) bool);

impl PartialEq for F16 {
    #[inline(always)]
    fn eq(&self, other: &F16) -> bool {
        self.f32() == other.f32()
    }
}

impl PartialOrd for F16 {
    #[inline(always)]
    fn partial_cmp(&self, other: &F16) -> Option<std::cmp::Ordering> {
        self.f32().partial_cmp(&other.f32())
    }

    #[inline(always)]
    fn lt(&self, other: &F16) -> bool {
        self.f32() < other.f32()
    }

    #[inline(always)]
    fn gt(&self, other: &F16) -> bool {
        self.f32() > other.f32()
    }
}

impl F16 {
    #[inline(always)]
    pub(crate) fn f32(self) -> f32 {
        half::to_f32(self.0)
    }

    /// Rounds to the nearest, ties to even.
    #[inline(always)]
    pub(crate) fn of(x: f32) -> F16 {
        F16(half::from_f32(x))
    }

    /// Rounds a double to the nearest, ties to even, in one rounding.
    #[inline(always)]
    pub(crate) fn of64(x: f64) -> F16 {
        F16(half::from_f64(x))
    }
}

macro_rules! word {
    ($($t:ty, $kind:ident, |$x:ident| $from:expr, |$y:ident| $into:expr;)*) => {$(
        impl Source for $t {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn get(from: &SourcePart<'_>, n: usize, lane: usize) -> $t {
                let $x = from.lo[n][lane];
                $from
            }
        }
        impl Output for $t {
            const KIND: Kind = Kind::$kind;
            const LO: bool = true;
            #[inline(always)]
            fn set(self, to: &mut ResultPart<'_>, lane: usize) {
                let $y = self;
                to.lo[lane].write($into);
            }
        }
    )*};
}

word! {
    u32, U32, |x| x, |y| y;
    i32, I32, |x| x as i32, |y| y as u32;
    f32, F32, |x| f32::from_bits(x), |y| y.to_bits();
    u16, U16, |x| x as u16, |y| u32::from(y);
    i16, I16, |x| x as i16, |y| u32::from(y as u16);
    F16, F16, |x| F16(x as u16), |y| u32::from(y.0);
    Pk, Pk16, |x| Pk(x as u16, (x >> 16) as u16), |y| u32::from(y.0) | u32::from(y.1) << 16;
    PkF, PkF16, |x| PkF(F16(x as u16), F16((x >> 16) as u16)), |y| u32::from(y.0.0) | u32::from(y.1.0) << 16;
    Mix, Mix, |x| Mix(f32::from_bits(x)), |y| y.0.to_bits();
}

macro_rules! double_word {
    ($($t:ty, $kind:ident, |$x:ident| $from:expr, |$y:ident| $into:expr;)*) => {$(
        impl Source for $t {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn get(from: &SourcePart<'_>, n: usize, lane: usize) -> $t {
                let $x = u64::from(from.lo[n][lane]) | u64::from(from.hi[n][lane]) << 32;
                $from
            }
        }
        impl Output for $t {
            const KIND: Kind = Kind::$kind;
            const LO: bool = true;
            const HI: bool = true;
            #[inline(always)]
            fn set(self, to: &mut ResultPart<'_>, lane: usize) {
                let $y = self;
                let bits: u64 = $into;
                to.lo[lane].write(bits as u32);
                to.hi[lane].write((bits >> 32) as u32);
            }
        }
    )*};
}

double_word! {
    u64, U64, |x| x, |y| y;
    i64, I64, |x| x as i64, |y| y as u64;
    f64, F64, |x| f64::from_bits(x), |y| y.to_bits();
    Pk32, Pk32, |x| Pk32(x as u32, (x >> 32) as u32), |y| u64::from(y.0) | u64::from(y.1) << 32;
    PkF32, PkF32, |x| PkF32(f32::from_bits(x as u32), f32::from_bits((x >> 32) as u32)),
        |y| u64::from(y.0.to_bits()) | u64::from(y.1.to_bits()) << 32;
}

impl Source for Bit {
    const KIND: Kind = Kind::Mask;
    #[inline(always)]
    fn get(from: &SourcePart<'_>, _n: usize, lane: usize) -> Bit {
        Bit(from.carry & BITS[lane] != 0)
    }
}

impl Source for Vcc {
    const KIND: Kind = Kind::Vcc;
    #[inline(always)]
    fn get(from: &SourcePart<'_>, _n: usize, lane: usize) -> Vcc {
        Vcc(from.carry & BITS[lane] != 0)
    }
}

/// Result of a comparison.
impl Output for bool {
    const KIND: Kind = Kind::Mask;
    const BITS: bool = true;
    #[inline(always)]
    fn set(self, to: &mut ResultPart<'_>, lane: usize) {
        to.carry[lane].write(u32::from(self).wrapping_neg());
    }
}

/// Four words, for instructions executed separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quad;

impl Source for Quad {
    const KIND: Kind = Kind::U128;
    #[inline(always)]
    fn get(_from: &SourcePart<'_>, _n: usize, _lane: usize) -> Quad {
        Quad
    }
}

impl Output for Quad {
    const KIND: Kind = Kind::U128;
    #[inline(always)]
    fn set(self, _to: &mut ResultPart<'_>, _lane: usize) {}
}

/// No result.
impl Output for () {
    const KIND: Kind = Kind::None;
    #[inline(always)]
    fn set(self, _to: &mut ResultPart<'_>, _lane: usize) {}
}

/// A result and one bit per lane.
impl<T: Output> Output for (T, bool) {
    const KIND: Kind = T::KIND;
    const CARRY: bool = true;
    const LO: bool = T::LO;
    const HI: bool = T::HI;
    const BITS: bool = true;
    #[inline(always)]
    fn set(self, to: &mut ResultPart<'_>, lane: usize) {
        self.0.set(to, lane);
        to.carry[lane].write(u32::from(self.1).wrapping_neg());
    }
}

/// Returns up to four kinds, padded with `None`.
pub(crate) const fn kinds(some: &[Kind]) -> [Kind; 4] {
    let mut all = [Kind::None; 4];
    let mut i = 0;
    while i < some.len() {
        all[i] = some[i];
        i += 1;
    }
    all
}
