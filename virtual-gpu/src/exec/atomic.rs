//! Results of atomic operations.

use crate::isa::op::memory::Atomic;

macro_rules! apply {
    ($(#[$doc:meta])* $name:ident, $unsigned:ty, $signed:ty, $float:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(op: Atomic, old: $unsigned, a: $unsigned, b: $unsigned) -> $unsigned {
            let f = <$float>::from_bits;
            let swap = |condition: bool| if condition { a } else { old };
            match op {
                Atomic::FloatAdd => (f(old) + f(a)).to_bits(),
                Atomic::FloatMin => swap(f(a) < f(old)),
                Atomic::FloatMax => swap(f(a) > f(old)),
                Atomic::FloatCompareSwap | Atomic::FloatCompareStore => swap(f(old) == f(b)),
                Atomic::SignedMin => (old as $signed).min(a as $signed) as $unsigned,
                Atomic::SignedMax => (old as $signed).max(a as $signed) as $unsigned,
                Atomic::Inc if old >= a => 0,
                Atomic::Inc => old + 1,
                Atomic::Dec if old == 0 || old > a => a,
                Atomic::Dec => old - 1,
                Atomic::Wrap if old >= a => old - a,
                Atomic::Wrap => old.wrapping_add(b),
                _ => integer(op, old as u64, a as u64, b as u64) as $unsigned,
            }
        }
    };
}

apply!(
    /// Returns the new 32-bit value: `old` is in memory, `a` the operand, `b` the second operand of
    /// operations with two. For a compare-and-swap, `a` is the new value and `b` the expected one (as FLAT
    /// instructions order them).
    apply32, u32, i32, f32
);
apply!(
    /// Returns the new 64-bit value, as [`apply32`].
    apply64, u64, i64, f64
);

/// Computes operations whose low bits do not depend on the width.
fn integer(op: Atomic, old: u64, a: u64, b: u64) -> u64 {
    match op {
        Atomic::CompareSwap | Atomic::CompareStore => {
            if old == b {
                a
            } else {
                old
            }
        }
        Atomic::Add => old.wrapping_add(a),
        Atomic::Sub => old.wrapping_sub(a),
        Atomic::SubClamp => old.saturating_sub(a),
        Atomic::ReverseSub => a.wrapping_sub(old),
        Atomic::UnsignedMin => old.min(a),
        Atomic::UnsignedMax => old.max(a),
        Atomic::And => old & a,
        Atomic::Or => old | a,
        Atomic::Xor => old ^ a,
        Atomic::MaskedOr => old & !a | b,
        _ => a,
    }
}
