//! Results of atomic operations.

use crate::isa::op::half;
use crate::isa::op::memory::Atomic;

macro_rules! apply {
    ($(#[$doc:meta])* $name:ident, $unsigned:ty, $signed:ty, $float:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(op: Atomic, old: $unsigned, a: $unsigned, b: $unsigned) -> $unsigned {
            let f = <$float>::from_bits;
            let swap = |condition: bool| if condition { a } else { old };
            match op {
                Atomic::FloatAdd => (f(old) + f(a)).to_bits(),
                Atomic::PackedAddF16 => packed_sum(old as u32, a as u32, add_f16) as $unsigned,
                Atomic::PackedAddBf16 => packed_sum(old as u32, a as u32, add_bf16) as $unsigned,
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

/// Applies an operation to both halves.
fn packed_sum(old: u32, a: u32, add: impl Fn(u16, u16) -> u16) -> u32 {
    let half = |shift: u32| u32::from(add((old >> shift) as u16, (a >> shift) as u16)) << shift;
    half(0) | half(16)
}

fn add_f16(x: u16, y: u16) -> u16 {
    half::from_f32(half::to_f32(x) + half::to_f32(y))
}

fn add_bf16(x: u16, y: u16) -> u16 {
    let value = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    // The sum of two BF16 is exact as F64, unless one is too small to matter but for rounding: F64 has room for it.
    round_bf16(f64::from(value(x)) + f64::from(value(y)))
}

/// Rounds to the nearest BF16, ties to even.
fn round_bf16(x: f64) -> u16 {
    let single = x as f32;
    if single.is_nan() {
        return (single.to_bits() >> 16) as u16 | 0x40;
    }
    // A tie of the first rounding must not become one of the second: the part that was rounded away decides it.
    let rest = x - f64::from(single);
    let mut bits = single.to_bits();
    if bits & 0xffff == 0x8000 && rest != 0.0 {
        bits = if (rest > 0.0) == (x > 0.0) { bits + 1 } else { bits - 1 };
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}
