//! Arithmetic in the rounding modes up, down and toward zero.
//!
//! The nearest value is computed first, then compared with the exact value, held as two doubles. If the exact
//! value is on the wrong side of the nearest one, the neighbouring value is the result. (T. J. Dekker, "A
//! floating-point technique for extending the available precision", 1971; D. E. Knuth, "The Art of Computer
//! Programming", volume 2, 4.2.2.)

use crate::isa::op::file::RegisterFile;
use crate::isa::op::lanes::LANES;
use crate::isa::op::run::Operands;
use crate::isa::{Kind, Row, op::half};

/// A rounding mode: a non-zero two-bit field of MODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    Zero,
}

/// An exact value: the sum of two doubles, the second far smaller than the first. A sum of opposite values is
/// a zero whose sign depends on the rounding mode.
#[derive(Clone, Copy)]
struct Exact {
    high: f64,
    low: f64,
    cancelled: bool,
}

impl Exact {
    fn sum(a: f64, b: f64) -> Exact {
        let sum = a + b;
        let part = sum - a;
        let rest = (a - (sum - part)) + (b - part);
        let low = if rest.is_finite() { rest } else { 0.0 };
        Exact { high: sum, low, cancelled: sum == 0.0 && a.is_sign_positive() != b.is_sign_positive() }
    }

    fn new(value: f64) -> Exact {
        Exact { high: value, low: 0.0, cancelled: false }
    }

    fn product(a: f64, b: f64) -> Exact {
        let product = a * b;
        let rest = a.mul_add(b, -product);
        Exact { low: if rest.is_finite() { rest } else { 0.0 }, ..Exact::new(product) }
    }

    /// Returns 1 if it is above `value`, -1 if below, 0 if equal.
    fn side(self, value: f64) -> i32 {
        let distance = if self.high == value { self.low } else { self.high - value };
        i32::from(distance > 0.0) - i32::from(distance < 0.0)
    }
}

impl Direction {
    fn of(bits: u32) -> Option<Direction> {
        [None, Some(Direction::Up), Some(Direction::Down), Some(Direction::Zero)][bits as usize & 3]
    }

    /// Returns the correction of the nearest value in units of one floating-point step: -1, 0 or 1.
    fn step(self, side: i32, negative: bool) -> i32 {
        match self {
            Direction::Up => side.max(0),
            Direction::Down => side.min(0),
            Direction::Zero if negative => side.max(0),
            Direction::Zero => side.min(0),
        }
    }

    fn f32(self, exact: Exact) -> f32 {
        if exact.high.is_nan() {
            return f32::NAN;
        }
        // May be either neighbour of the exact value; `side` corrects it in both cases.
        let nearest = exact.high as f32;
        match self.step(exact.side(nearest.into()), exact.high < 0.0) {
            1 => nearest.next_up(),
            -1 => nearest.next_down(),
            _ => self.zero(exact, nearest.into()) as f32,
        }
    }

    fn f16(self, exact: Exact) -> u16 {
        if exact.high.is_nan() {
            return 0x7e00;
        }
        let nearest = half::from_f64(exact.high);
        let value = f64::from(half::to_f32(nearest));
        let step = self.step(exact.side(value), exact.high < 0.0);
        // The bits of halves of one sign are ordered by magnitude.
        match (step, nearest & 0x8000 != 0) {
            (0, _) => half::from_f64(self.zero(exact, value)),
            (1, true) if nearest == 0x8000 => 1,
            (-1, false) if nearest == 0 => 0x8001,
            (1, false) | (-1, true) => nearest + 1,
            _ => nearest - 1,
        }
    }

    fn f64(self, exact: Exact) -> f64 {
        match self.step(exact.side(exact.high), exact.high < 0.0) {
            1 => exact.high.next_up(),
            -1 => exact.high.next_down(),
            _ => self.zero(exact, exact.high),
        }
    }

    fn zero(self, exact: Exact, nearest: f64) -> f64 {
        if exact.cancelled && self == Direction::Down { -0.0 } else { nearest }
    }
}

/// Executes a row for all lanes in the rounding modes of `mode` (bits 0 and 1 for F32, 2 and 3 for F16 and F64): the results
/// are in the buffers. Returns the bits of the lanes, of which these operations have none; `None` if the row is not
/// supported here or the mode is to nearest.
pub(super) fn execute(row: &Row, mode: u32, operands: &Operands, file: &mut RegisterFile) -> Option<u64> {
    let direction = Direction::of(if row.dst == Kind::F32 { mode } else { mode >> 2 })?;
    let formula = formula(row.name)?;
    for lane in 0..LANES {
        let value = |n: usize| source(row.src[n], operands, file, n, lane);
        let exact = formula([value(0), value(1), value(2)]);
        let (_, [lo, hi]) = file.with_results();
        match row.dst {
            Kind::F32 => lo[lane] = direction.f32(exact).to_bits(),
            Kind::F16 => lo[lane] = direction.f16(exact).into(),
            _ => {
                let bits = direction.f64(exact).to_bits();
                (lo[lane], hi[lane]) = (bits as u32, (bits >> 32) as u32);
            }
        }
    }
    Some(0)
}

/// Returns the exact value that an instruction rounds.
fn formula(name: &str) -> Option<fn([f64; 3]) -> Exact> {
    Some(match name {
        "v_add_f32" | "v_add_f16" | "v_add_f64" => |[a, b, _]| Exact::sum(a, b),
        "v_sub_f32" | "v_sub_f16" => |[a, b, _]| Exact::sum(a, -b),
        "v_subrev_f32" | "v_subrev_f16" => |[a, b, _]| Exact::sum(b, -a),
        "v_mul_f32" | "v_mul_f16" | "v_mul_f64" => |[a, b, _]| Exact::product(a, b),
        // Products of two F32 or F16 values are exact in a double.
        "v_fma_f32" | "v_fmac_f32" | "v_fma_f16" => |[a, b, c]| Exact::sum(a * b, c),
        "v_cvt_f32_i32" | "v_cvt_f32_u32" | "v_cvt_f32_f64" | "v_cvt_f16_f32" | "v_cvt_f16_u16"
        | "v_cvt_f16_i16" => |[a, _, _]| Exact::new(a),
        _ => return None,
    })
}

fn source(kind: Kind, operands: &Operands, file: &RegisterFile, n: usize, lane: usize) -> f64 {
    // Rows supported here have at most three sources.
    let n = n.min(2);
    let lo = file.row(operands.lo[n])[lane];
    match kind {
        Kind::F32 => f32::from_bits(lo).into(),
        Kind::F16 => half::to_f32(lo as u16).into(),
        Kind::F64 => f64::from_bits(u64::from(lo) | u64::from(file.row(operands.hi[n])[lane]) << 32),
        Kind::I32 => f64::from(lo as i32),
        Kind::I16 => f64::from(lo as i16),
        Kind::U16 => f64::from(lo as u16),
        _ => f64::from(lo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions() {
        let third = Exact { low: 1e-20, ..Exact::new(1.0 / 3.0) };
        let (down, up) = (Direction::Down.f32(third), Direction::Up.f32(third));
        assert!(f64::from(down) < 1.0 / 3.0 && f64::from(up) > 1.0 / 3.0 && down.next_up() == up);
        assert_eq!(Direction::Zero.f32(third), down);
        assert_eq!(Direction::Zero.f32(Exact::new(-1.0 / 3.0)), -down);
        // Exact values are unchanged; overflow stops at the largest value unless rounded away from zero.
        assert_eq!(Direction::Up.f32(Exact::new(0.5)), 0.5);
        assert_eq!(Direction::Zero.f32(Exact::new(1e300)), f32::MAX);
        assert_eq!(Direction::Up.f32(Exact::new(1e300)), f32::INFINITY);
        assert_eq!(Direction::Up.f32(Exact::new(1e-300)), f32::from_bits(1));
        assert_eq!((Direction::Up.f16(Exact::new(1e-300)), Direction::Down.f16(Exact::new(1e-300))), (1, 0));
        assert_eq!(
            (Direction::Down.f16(Exact::new(-1e-300)), Direction::Zero.f16(Exact::new(1e9))),
            (0x8001, 0x7bff)
        );
        // The first double is already the nearest value: the second decides.
        let sum = Exact::sum(1.0, 1e-30);
        assert_eq!((Direction::Up.f64(sum), Direction::Down.f64(sum)), (1f64.next_up(), 1.0));
        assert_eq!(Direction::Up.f32(sum), 1f32.next_up());
        assert!(Direction::Down.f32(Exact::sum(1.0, -1.0)).is_sign_negative());
        assert!(Direction::Up.f32(Exact::sum(1.0, -1.0)).is_sign_positive());
        assert!(Direction::Down.f32(Exact::sum(0.0, 0.0)).is_sign_positive());
        assert!(Direction::Down.f64(Exact::product(0.0, 5.0)).is_sign_positive());
    }
}
