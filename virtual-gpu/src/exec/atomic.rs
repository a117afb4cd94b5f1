//! What atomic operations compute.

use crate::isa::memory::Atomic;

/// The new value of 32 bits: `old` in memory, the operand, and the second one of those that have two. A comparing swap
/// has the new value first and the expected one second (as FLAT instructions order them).
pub(crate) fn apply32(op: Atomic, old: u32, a: u32, b: u32) -> u32 {
    let f = f32::from_bits;
    match op {
        Atomic::FloatAdd => (f(old) + f(a)).to_bits(),
        Atomic::FloatMin => {
            if f(a) < f(old) {
                a
            } else {
                old
            }
        }
        Atomic::FloatMax => {
            if f(a) > f(old) {
                a
            } else {
                old
            }
        }
        Atomic::FloatCompareSwap => {
            if f(old) == f(b) {
                a
            } else {
                old
            }
        }
        Atomic::SignedMin => (old as i32).min(a as i32) as u32,
        Atomic::SignedMax => (old as i32).max(a as i32) as u32,
        Atomic::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Atomic::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        Atomic::Wrap => {
            if old >= a {
                old - a
            } else {
                old.wrapping_add(b)
            }
        }
        _ => integer(op, old.into(), a.into(), b.into()) as u32,
    }
}

/// The same for 64 bits.
pub(crate) fn apply64(op: Atomic, old: u64, a: u64, b: u64) -> u64 {
    let f = f64::from_bits;
    match op {
        Atomic::FloatAdd => (f(old) + f(a)).to_bits(),
        Atomic::FloatMin => {
            if f(a) < f(old) {
                a
            } else {
                old
            }
        }
        Atomic::FloatMax => {
            if f(a) > f(old) {
                a
            } else {
                old
            }
        }
        Atomic::FloatCompareSwap => {
            if f(old) == f(b) {
                a
            } else {
                old
            }
        }
        Atomic::SignedMin => (old as i64).min(a as i64) as u64,
        Atomic::SignedMax => (old as i64).max(a as i64) as u64,
        Atomic::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Atomic::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        _ => integer(op, old, a, b),
    }
}

/// Operations whose low bits do not depend on the width.
fn integer(op: Atomic, old: u64, a: u64, b: u64) -> u64 {
    match op {
        Atomic::CompareSwap => {
            if old == b {
                a
            } else {
                old
            }
        }
        Atomic::Add => old.wrapping_add(a),
        Atomic::Sub => old.wrapping_sub(a),
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
