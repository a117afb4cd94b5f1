//! Modifiers of vector instructions: of sources (parts, absolute value, sign) and of results (scale, limits, parts).

use crate::isa::inst::{Form, Inst, Sdwa};
use crate::isa::op::file::Words;
use crate::isa::op::lanes::{LANES, Mode, rounds};
use crate::isa::operand::{VGPR, ZERO};
use crate::isa::{Generation, Kind, Row, flag, op::half};

/// Changes each word.
#[inline(always)]
fn each(words: &mut Words, of: impl Fn(u32) -> u32) {
    for x in &mut words[..rounds(LANES)] {
        *x = of(*x);
    }
}

/// Changes each word, given another.
#[inline(always)]
fn each_with(words: &mut Words, others: &Words, of: impl Fn(u32, u32) -> u32) {
    let count = rounds(LANES);
    for (x, &other) in words[..count].iter_mut().zip(&others[..count]) {
        *x = of(*x, other);
    }
}

/// Copies a source of one word as its modifiers say, if they are of the frequent ones: a sign, a part. Otherwise returns
/// false.
#[inline(always)]
pub(super) fn copy_modified(inst: &Inst, i: usize, kind: Kind, from: &Words, to: &mut Words) -> bool {
    let set = |mask: u8| mask >> i & 1 != 0;
    match (kind, inst.form) {
        (Kind::F32 | Kind::F16 | Kind::U32 | Kind::I32 | Kind::U16 | Kind::I16, Form::Sdwa(sdwa))
            if i < 2 && !set(inst.neg | inst.abs | inst.op_sel) =>
        {
            selected(from, to, sdwa.src[i], sdwa.extend[i]);
        }
        (_, Form::Sdwa(_)) => return false,
        (Kind::F32, _) => signed(inst, i, from, to),
        (Kind::Mix, _) if set(inst.op_sel_hi) && !set(inst.neg | inst.abs) => {
            let shift = if set(inst.op_sel) { 16 } else { 0 };
            each_with(to, from, |_, x| half::to_f32((x >> shift) as u16).to_bits());
        }
        (Kind::Mix, _) if !set(inst.op_sel_hi) => signed(inst, i, from, to),
        _ => return false,
    }
    true
}

/// Copies the words of an F32 source with absolute value and sign.
#[inline(always)]
fn signed(inst: &Inst, i: usize, from: &Words, to: &mut Words) {
    let set = |mask: u8| mask >> i & 1 != 0;
    let (keep, flip) = (if set(inst.abs) { !(1 << 31) } else { u32::MAX }, u32::from(set(inst.neg)) << 31);
    each_with(to, from, |_, x| x & keep ^ flip);
}

/// Applies source modifiers: selection of parts, absolute value, sign.
#[inline(always)]
pub(super) fn modify(inst: &Inst, i: usize, kind: Kind, lo: &mut Words, hi: &mut Words) {
    let set = |mask: u8| mask >> i & 1 != 0;
    match inst.form {
        Form::Sdwa(sdwa) if i < 2 => select(lo, sdwa.src[i], sdwa.extend[i]),
        _ => {}
    }
    match kind {
        Kind::Pk16 | Kind::PkF16 => {
            let constant = (ZERO..VGPR).contains(&inst.src[i]);
            let gfx9 = inst.isa.target.generation() == Generation::Gfx9;
            let (low, high) = (set(inst.op_sel), set(inst.op_sel_hi));
            if constant && gfx9 {
                // It is the low half; the high half is zero and selectable too.
                each(lo, |x| x & 0xffff);
            }
            if low || !high {
                each(lo, |x| part(x, low) | part(x, high) << 16);
            }
            if kind == Kind::PkF16 {
                let signs = u32::from(set(inst.neg)) << 15 | u32::from(set(inst.abs)) << 31;
                if signs != 0 {
                    each(lo, |x| x ^ signs);
                }
            }
        }
        Kind::Mix => {
            let (is_half, upper) = (set(inst.op_sel_hi), set(inst.op_sel));
            if is_half {
                each(lo, |x| half::to_f32(part(x, upper) as u16).to_bits());
            }
            signs(lo, 31, set(inst.abs), set(inst.neg));
        }
        Kind::U16 | Kind::I16 | Kind::F16 => {
            if set(inst.op_sel) {
                each(lo, |x| x >> 16);
            }
            if kind == Kind::F16 || inst.name == "v_cndmask_b16" {
                signs(lo, 15, set(inst.abs), set(inst.neg));
            }
        }
        Kind::Pk32 | Kind::PkF32 => {
            let before = (*lo, *hi);
            if set(inst.op_sel) {
                *lo = before.1;
            }
            if !set(inst.op_sel_hi) {
                *hi = before.0;
            }
            if kind == Kind::PkF32 {
                signs(lo, 31, false, set(inst.neg));
                signs(hi, 31, false, set(inst.abs));
            }
        }
        Kind::F32 => signs(lo, 31, set(inst.abs), set(inst.neg)),
        Kind::F64 => signs(hi, 31, set(inst.abs), set(inst.neg)),
        // v_cndmask supports these modifiers although its operands are untyped.
        Kind::U32 if inst.name == "v_cndmask_b32" => signs(lo, 31, set(inst.abs), set(inst.neg)),
        _ => {}
    }
}

/// Completes results that fill only a part of the register with its old value.
#[inline(always)]
pub(super) fn merge(old: &Words, inst: &Inst, row: &Row, new: &mut Words) {
    if let Form::Sdwa(sdwa) = inst.form {
        insert(new, old, sdwa);
    } else if row.is(flag::KEEP_LOW) || inst.op_sel & 8 != 0 {
        each_with(new, old, |n, o| n << 16 | o & 0xffff);
    } else {
        each_with(new, old, |n, o| n & 0xffff | o & 0xffff_0000);
    }
}

#[inline(always)]
fn part(x: u32, upper: bool) -> u32 {
    if upper { x >> 16 } else { x & 0xffff }
}

/// Applies absolute value, then negation, to floats with the sign at `bit` of a word.
#[inline(always)]
fn signs(words: &mut Words, bit: u32, absolute: bool, negative: bool) {
    if !absolute && !negative {
        return;
    }
    let (keep, flip) = (if absolute { !(1u32 << bit) } else { u32::MAX }, u32::from(negative) << bit);
    each(words, |x| x & keep ^ flip);
}

/// Applies SDWA's source selection: 0 to 3 a byte, 4 and 5 a half, 6 the whole word.
#[inline(always)]
fn select(words: &mut Words, which: u8, extend: bool) {
    let (left, right) = shifts(which);
    if extend {
        each(words, |x| ((x << left) as i32 >> right) as u32);
    } else {
        each(words, |x| x << left >> right);
    }
}

/// Copies the selected parts.
#[inline(always)]
fn selected(from: &Words, to: &mut Words, which: u8, extend: bool) {
    let (left, right) = shifts(which);
    if extend {
        each_with(to, from, |_, x| ((x << left) as i32 >> right) as u32);
    } else {
        each_with(to, from, |_, x| x << left >> right);
    }
}

/// Returns by how much a part moves to the top, then to the bottom.
#[inline(always)]
fn shifts(which: u8) -> (u32, u32) {
    let which = u32::from(which);
    match which {
        0..=3 => (24 - 8 * which, 24),
        4 | 5 => (16 * (5 - which), 16),
        _ => (0, 0),
    }
}

/// Applies SDWA's destination selection.
#[inline(always)]
fn insert(new: &mut Words, old: &Words, sdwa: Sdwa) {
    let (shift, mask): (u32, u32) = match sdwa.dst {
        0..=3 => (8 * u32::from(sdwa.dst), 0xff),
        4 | 5 => (16 * u32::from(sdwa.dst - 4), 0xffff),
        _ => return,
    };
    let others = !(mask << shift);
    // Other bits are zeros, those above copies of the sign, or as they were.
    let (kept, above) = match sdwa.unused {
        0 => (0, 0),
        1 => (0, others & u32::MAX << shift),
        _ => (others, 0),
    };
    each_with(new, old, |n, o| {
        let value = n & mask;
        o & kept | value << shift | if value > mask / 2 { above } else { 0 }
    });
}

/// Multiplies by 2, 4 or 0.5, then clamps to 0 .. 1; a NaN becomes 0 if DX10_CLAMP is set.
#[inline(never)]
pub(super) fn scale_and_clamp(kind: Kind, inst: &Inst, mode: u32, lo: &mut Words, hi: &mut Words) {
    let (clamp, mode) = (inst.clamp, Mode { bits: mode, clamp: inst.clamp, negated: 0 });
    let factor = [1.0, 2.0, 4.0, 0.5][usize::from(inst.omod & 3)];
    let limited = |x: f64| match x {
        _ if !clamp => x,
        _ if x.is_nan() && mode.dx10_clamp() => 0.0,
        _ if x.is_nan() => x,
        _ => x.clamp(0.0, 1.0) + 0.0,
    };
    let value = |x: f64| limited(x * factor);
    let single = |bits: u32| (value(f32::from_bits(bits).into()) as f32).to_bits();
    let of_half = |bits: u32| u32::from(half::from_f64(value(half::to_f32(bits as u16).into())));
    match kind {
        Kind::F32 => each(lo, single),
        Kind::PkF32 => {
            each(lo, single);
            each(hi, single);
        }
        Kind::F16 => each(lo, of_half),
        Kind::PkF16 => each(lo, |bits| of_half(bits) | of_half(bits >> 16) << 16),
        _ => {
            for (lo, hi) in lo.iter_mut().zip(hi) {
                let bits = value(f64::from_bits(u64::from(*lo) | u64::from(*hi) << 32)).to_bits();
                (*lo, *hi) = (bits as u32, (bits >> 32) as u32);
            }
        }
    }
}
