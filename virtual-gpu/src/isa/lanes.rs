//! Values of 64 lanes and the types that opcodes are written in.
//!
//! The rows of a table are turned by [`valu!`] into a table of [`Row`](super::Row)s and a function that executes an
//! opcode for all 64 lanes: sources and results are arrays, so that the host compiler makes vector code of a row. Lanes
//! that EXEC leaves out are computed, too; their results are dropped when the destination is written.

use super::Kind;
use super::half;

/// Lanes of a wavefront.
pub(crate) const LANES: usize = 64;

/// The lanes of a mask.
pub(crate) fn lanes(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// Modes of a wavefront that results depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Signalling NaNs are made quiet.
    pub(crate) ieee: bool,
    /// A clamped NaN is 0.
    pub(crate) dx10_clamp: bool,
    /// The clamp bit is set.
    pub(crate) clamp: bool,
    /// F32 denormals are kept: as sources, as results.
    pub(crate) denormal32: (bool, bool),
    /// F16 and F64 denormals are kept: as sources, as results.
    pub(crate) denormal16_64: (bool, bool),
}

/// Sources of an instruction: the low and high words of up to three operands, and a bit for each lane.
pub(crate) struct Sources {
    pub(crate) lo: [[u32; LANES]; 3],
    pub(crate) hi: [[u32; LANES]; 3],
    pub(crate) carry: [u32; LANES],
    pub(crate) mode: Mode,
}

/// Results: the words of the destination, and a bit for each lane.
pub(crate) struct Results {
    pub(crate) lo: [u32; LANES],
    pub(crate) hi: [u32; LANES],
    pub(crate) carry: [u32; LANES],
}

impl Sources {
    pub(crate) fn new() -> Sources {
        Sources { lo: [[0; LANES]; 3], hi: [[0; LANES]; 3], carry: [0; LANES], mode: Mode::default() }
    }
}

impl Results {
    pub(crate) fn new() -> Results {
        Results { lo: [0; LANES], hi: [0; LANES], carry: [0; LANES] }
    }
}

/// A type of a source.
pub(crate) trait Source: Copy {
    const KIND: Kind;
    fn get(from: &Sources, n: usize, lane: usize) -> Self;
}

/// A type of a result.
pub(crate) trait Output: Copy {
    const KIND: Kind;
    const CARRY: bool = false;
    fn put(self, to: &mut Results, lane: usize);
}

/// A half: its bits. Arithmetic is done in F32 or F64 and rounded once; comparisons are those of the values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct F16(pub(crate) u16);

/// Two halves, or two values of 16 bits: low, high.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pk(pub(crate) u16, pub(crate) u16);

/// Two halves whose signs modifiers change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PkF(pub(crate) F16, pub(crate) F16);

/// An operand of a mixed-precision instruction, converted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix(pub(crate) f32);

/// A bit that an operand names (carry-in, condition).
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

    /// Rounded to the nearest, ties to even.
    #[inline(always)]
    pub(crate) fn of(x: f32) -> F16 {
        F16(half::from_f32(x))
    }

    /// The same from a double, in one rounding.
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
            fn get(from: &Sources, n: usize, lane: usize) -> $t {
                let $x = from.lo[n][lane];
                $from
            }
        }
        impl Output for $t {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn put(self, to: &mut Results, lane: usize) {
                let $y = self;
                to.lo[lane] = $into;
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
            fn get(from: &Sources, n: usize, lane: usize) -> $t {
                let $x = u64::from(from.lo[n][lane]) | u64::from(from.hi[n][lane]) << 32;
                $from
            }
        }
        impl Output for $t {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn put(self, to: &mut Results, lane: usize) {
                let $y = self;
                let bits: u64 = $into;
                to.lo[lane] = bits as u32;
                to.hi[lane] = (bits >> 32) as u32;
            }
        }
    )*};
}

double_word! {
    u64, U64, |x| x, |y| y;
    i64, I64, |x| x as i64, |y| y as u64;
    f64, F64, |x| f64::from_bits(x), |y| y.to_bits();
}

impl Source for Bit {
    const KIND: Kind = Kind::Mask;
    #[inline(always)]
    fn get(from: &Sources, _n: usize, lane: usize) -> Bit {
        Bit(from.carry[lane] != 0)
    }
}

impl Source for Vcc {
    const KIND: Kind = Kind::Vcc;
    #[inline(always)]
    fn get(from: &Sources, _n: usize, lane: usize) -> Vcc {
        Vcc(from.carry[lane] != 0)
    }
}

/// A comparison's result.
impl Output for bool {
    const KIND: Kind = Kind::Mask;
    #[inline(always)]
    fn put(self, to: &mut Results, lane: usize) {
        to.carry[lane] = u32::from(self);
    }
}

/// Four words, for instructions that are executed apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quad;

impl Source for Quad {
    const KIND: Kind = Kind::U128;
    #[inline(always)]
    fn get(_from: &Sources, _n: usize, _lane: usize) -> Quad {
        Quad
    }
}

impl Output for Quad {
    const KIND: Kind = Kind::U128;
    #[inline(always)]
    fn put(self, _to: &mut Results, _lane: usize) {}
}

/// No result.
impl Output for () {
    const KIND: Kind = Kind::None;
    #[inline(always)]
    fn put(self, _to: &mut Results, _lane: usize) {}
}

/// A result and a bit for each lane.
impl<T: Output> Output for (T, bool) {
    const KIND: Kind = T::KIND;
    const CARRY: bool = true;
    #[inline(always)]
    fn put(self, to: &mut Results, lane: usize) {
        self.0.put(to, lane);
        to.carry[lane] = u32::from(self.1);
    }
}

/// Up to four kinds, filled up with `None`.
pub(crate) const fn kinds(some: &[Kind]) -> [Kind; 4] {
    let mut all = [Kind::None; 4];
    let mut i = 0;
    while i < some.len() {
        all[i] = some[i];
        i += 1;
    }
    all
}

/// A table of vector instructions and the function that executes them.
///
/// A row is `number name (sources) -> result { formula }`, optionally followed by flags in brackets. `mode` and `lane`
/// can be used in formulas.
macro_rules! valu {
    (
        $mode:ident, $lane:ident;
        $( $code:literal $name:ident ($($a:ident : $t:ty),*) -> $r:ty $body:block $([$($flag:ident)*])? )*
    ) => {
        /// Numbers, names and operands.
        pub(crate) const ROWS: &[$crate::isa::Row] = &[$(
            $crate::isa::Row {
                code: $code,
                name: stringify!($name),
                dst: <$r as $crate::isa::lanes::Output>::KIND,
                carry_out: <$r as $crate::isa::lanes::Output>::CARRY,
                src: $crate::isa::lanes::kinds(&[$(<$t as $crate::isa::lanes::Source>::KIND),*]),
                flags: 0 $($(| $crate::isa::flag::$flag)*)?,
            }
        ),*];

        /// Computes an opcode for all lanes. A number without a row leaves the results as they are.
        #[inline(always)]
        #[allow(unused_variables, unused_assignments, unreachable_patterns, unused_mut)]
        pub(crate) fn execute(
            code: u16,
            sources: &$crate::isa::lanes::Sources,
            results: &mut $crate::isa::lanes::Results,
        ) {
            let $mode = sources.mode;
            match code {
                $($code => for $lane in 0..$crate::isa::lanes::LANES {
                    let mut n = 0;
                    $(
                        let $a = <$t as $crate::isa::lanes::Source>::get(sources, n, $lane);
                        n += 1;
                    )*
                    let result: $r = $body;
                    $crate::isa::lanes::Output::put(result, results, $lane);
                })*
                _ => {}
            }
        }
    };
}
pub(crate) use valu;
