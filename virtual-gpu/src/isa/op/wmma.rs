//! Matrix instructions of GFX11 (WMMA): D = A B + C, where each matrix has 16 rows and 16 columns.
//!
//! A lane holds a row of A, a column of B, and a column's elements of C and D: lane l row (column) l mod 16. Each group of
//! 16 lanes holds its own copy of A and B. Register r of group g holds row `groups r + g` of C and D, where a wavefront
//! has 2 or 4 groups. Elements of A and B of rising k fill their registers from the lowest bit on. A 16-bit C or D is in
//! one half of each register, and the other half is unchanged.
//!
//! AMD does not document the order of the sums, nor the width of their intermediate results. Here products and sums of
//! floats are F64, by rising k, C last, and rounded once, to the nearest. The MODE register has no effect.
//!
//! Sources: AMD, ""RDNA3.5" Instruction Set Architecture" (2024), "Wave Matrix Multiply Accumulate"; of C's and D's layout:
//! AMD, "Matrix Instruction Calculator".

use super::half;
use super::lanes::LANES;
use super::rdna::to_bf16;
use crate::isa::Kind;

/// The words of a register.
pub(crate) type Lanes = [u32; LANES];

/// Rows and columns of a matrix, and lanes of a group.
const SIZE: usize = 16;

/// Type of the elements of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    F16,
    Bf16,
    I8,
    I4,
}

/// Type of the elements of C and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    F32,
    F16,
    Bf16,
    I32,
}

/// A matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WmmaRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) factor: Factor,
    pub(crate) sum: Sum,
}

/// Modifiers of a matrix instruction, a bit for each of A, B and C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    /// Floats: the lower halves of A and B, and C, are negated. Integers: A and B are signed.
    pub(crate) low: u8,
    /// Floats: the upper halves of A and B are negated, and C's sign is dropped.
    pub(crate) high: u8,
    /// C and D are in the upper half of their registers.
    pub(crate) upper: bool,
    /// Integers saturate.
    pub(crate) clamp: bool,
}

/// The source C.
pub(crate) enum Addend<'a> {
    Registers(&'a [Lanes]),
    /// The same element everywhere.
    Constant(u32),
}

impl WmmaRow {
    /// Returns the number of registers of A and of B.
    pub(crate) fn factor_registers(&self) -> usize {
        match self.factor {
            Factor::F16 | Factor::Bf16 => 8,
            Factor::I8 => 4,
            Factor::I4 => 2,
        }
    }

    /// Returns true if elements of C and D fill half of a register.
    pub(crate) fn is_half(&self) -> bool {
        matches!(self.sum, Sum::F16 | Sum::Bf16)
    }

    /// Returns the type of C as a constant.
    pub(crate) fn sum_kind(&self) -> Kind {
        match self.sum {
            Sum::F32 => Kind::F32,
            Sum::F16 => Kind::F16,
            Sum::Bf16 | Sum::I32 => Kind::U32,
        }
    }

    /// Computes `d`, which has one register for each row of a group of lanes, and initially the old values.
    pub(crate) fn multiply(
        &self,
        lanes: usize,
        [a, b]: [&[Lanes]; 2],
        c: &Addend<'_>,
        d: &mut [Lanes],
        by: Modifiers,
    ) {
        let addend = |r: usize, lane: usize| match c {
            Addend::Registers(c) => c.get(r).map_or(0, |words| words[lane]) >> (16 * u32::from(by.upper)),
            Addend::Constant(bits) => *bits,
        };
        if self.sum == Sum::I32 {
            let bits = if self.factor == Factor::I8 { 8 } else { 4 };
            let [a, b] = [(a, 1), (b, 2)].map(|(from, sign)| {
                elements(lanes, |lane, k| integer(from, lane, k, bits, by.low & sign != 0))
            });
            each(lanes, d, |r, lane, row, column| {
                let sum = dot(&a[row], &b[column]) + i64::from(addend(r, lane) as i32);
                if by.clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { sum as u32 }
            });
            return;
        }
        let [a, b] =
            [(a, 0), (b, 1)].map(|(from, n)| elements(lanes, |lane, k| self.float(from, lane, k, by, n)));
        let half = self.is_half();
        let old: Vec<Lanes> = if half { d.to_vec() } else { Vec::new() };
        each(lanes, d, |r, lane, row, column| {
            let value = self.sum_of(dot(&a[row], &b[column]), addend(r, lane), by);
            let kept = old.get(r).map_or(0, |words| words[lane]);
            match (half, by.upper) {
                (false, _) => value,
                (true, false) => kept & 0xffff_0000 | value & 0xffff,
                (true, true) => kept & 0xffff | value << 16,
            }
        });
    }

    /// Returns element `k` of the floats that a lane holds, of A (0) or B (1).
    fn float(&self, from: &[Lanes], lane: usize, k: usize, by: Modifiers, n: u8) -> f64 {
        let word = from.get(k / 2).map_or(0, |words| words[lane % LANES]);
        let negated = if k % 2 == 0 { by.low } else { by.high } >> n & 1 != 0;
        let bits = (word >> (16 * (k % 2)) & 0xffff) ^ u32::from(negated) << 15;
        match self.factor {
            Factor::Bf16 => f64::from(f32::from_bits(bits << 16)),
            _ => f64::from(half::to_f32(bits as u16)),
        }
    }

    /// Adds an element of C and rounds.
    fn sum_of(&self, products: f64, addend: u32, by: Modifiers) -> u32 {
        let c = match self.sum {
            Sum::F32 => f64::from(f32::from_bits(addend)),
            Sum::Bf16 => f64::from(f32::from_bits(addend << 16)),
            _ => f64::from(half::to_f32(addend as u16)),
        };
        let c = if by.high & 4 != 0 { c.abs() } else { c };
        let sum = products + if by.low & 4 != 0 { -c } else { c };
        match self.sum {
            Sum::F32 => (sum as f32).to_bits(),
            Sum::Bf16 => to_bf16(sum).into(),
            _ => half::from_f64(sum).into(),
        }
    }
}

/// Sets each element of D: those that `value` returns for its register, its lane, and the lanes that hold its row of A and
/// its column of B. Each group of lanes multiplies its own copies.
fn each(lanes: usize, d: &mut [Lanes], value: impl Fn(usize, usize, usize, usize) -> u32) {
    let groups = lanes / SIZE;
    for (r, register) in d.iter_mut().enumerate() {
        for (lane, to) in register.iter_mut().enumerate().take(lanes) {
            let group = lane / SIZE;
            *to = value(r, lane, (groups * r + group) % SIZE + SIZE * group, lane);
        }
    }
}

/// Returns the elements that each lane holds.
fn elements<T: Copy + Default>(lanes: usize, element: impl Fn(usize, usize) -> T) -> Vec<[T; SIZE]> {
    (0..lanes).map(|lane| std::array::from_fn(|k| element(lane, k))).collect()
}

fn dot<T: Copy + std::ops::Mul<Output = T> + std::iter::Sum>(a: &[T; SIZE], b: &[T; SIZE]) -> T {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// Returns element `k` of the integers that a lane holds.
fn integer(from: &[Lanes], lane: usize, k: usize, bits: usize, signed: bool) -> i64 {
    let word = from.get(k * bits / 32).map_or(0, |words| words[lane % LANES]);
    let top = word >> (k * bits % 32) << (32 - bits);
    if signed { i64::from(top as i32 >> (32 - bits)) } else { i64::from(top >> (32 - bits)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: WmmaRow =
        WmmaRow { code: 0x40, name: "v_wmma_f32_16x16x16_f16", factor: Factor::F16, sum: Sum::F32 };
    const I32: WmmaRow =
        WmmaRow { code: 0x44, name: "v_wmma_i32_16x16x16_iu8", factor: Factor::I8, sum: Sum::I32 };

    /// A row of A and a column of B for each lane: elements are small integers, so that sums are exact.
    fn element(row: usize, k: usize) -> i32 {
        (7 * row + 3 * k) as i32 % 11 - 5
    }

    #[test]
    fn lanes_hold_rows_and_columns() {
        for lanes in [32, 64] {
            let groups = lanes / 16;
            let half = |x: i32| u32::from(half::from_f32(x as f32));
            let matrix = |shift: usize| -> Vec<Lanes> {
                let word = |r: usize, lane: usize| {
                    half(element(lane % 16 + shift, 2 * r))
                        | half(element(lane % 16 + shift, 2 * r + 1)) << 16
                };
                (0..8).map(|r| std::array::from_fn(|lane| word(r, lane))).collect()
            };
            let (a, b) = (matrix(0), matrix(5));
            let c: Vec<Lanes> = (0..16 / groups)
                .map(|r| std::array::from_fn(|lane| ((r * 100 + lane) as f32).to_bits()))
                .collect();
            let mut d = vec![[0; LANES]; 16 / groups];
            F32.multiply(lanes, [&a, &b], &Addend::Registers(&c), &mut d, Modifiers::default());
            for (r, register) in d.iter().enumerate() {
                for (lane, &got) in register.iter().enumerate().take(lanes) {
                    let (row, column) = (groups * r + lane / 16, lane % 16);
                    let dot: i32 = (0..16).map(|k| element(row, k) * element(column + 5, k)).sum();
                    assert_eq!(
                        f32::from_bits(got),
                        (dot + (r * 100 + lane) as i32) as f32,
                        "{lanes} {r} {lane}"
                    );
                }
            }
        }
    }

    #[test]
    fn signs_of_integers() {
        let (a, b) = (vec![[0xffff_ffff; LANES]; 4], vec![[0x0202_0202; LANES]; 4]);
        let mut d = vec![[0; LANES]; 8];
        let sum = |low: u8, clamp: bool, c: u32, d: &mut [Lanes]| {
            I32.multiply(
                32,
                [&a, &b],
                &Addend::Constant(c),
                d,
                Modifiers { low, clamp, ..Modifiers::default() },
            );
            d[3][17] as i32
        };
        assert_eq!(sum(0, false, 0, &mut d), 16 * 2 * 255);
        assert_eq!(sum(1, false, 5, &mut d), 5 - 32);
        assert_eq!(sum(0, true, i32::MAX as u32, &mut d), i32::MAX);
        assert_eq!(sum(0, false, i32::MAX as u32, &mut d), i32::MAX.wrapping_add(16 * 2 * 255));
    }

    #[test]
    fn halves_keep_their_neighbours() {
        let row = WmmaRow { sum: Sum::F16, ..F32 };
        let (a, b) = (vec![[0x3c00_3c00; LANES]; 8], vec![[0x3c00_3c00; LANES]; 8]);
        for upper in [false, true] {
            let mut d = vec![[0x1234_5678; LANES]; 8];
            let modifiers = Modifiers { upper, low: 4, ..Modifiers::default() };
            row.multiply(32, [&a, &b], &Addend::Constant(0x3c00), &mut d, modifiers);
            // 16 - 1 = 15 = 0x4b80.
            assert!(
                d.iter().all(|r| r[..32].iter().all(|&x| x == if upper { 0x4b80_5678 } else { 0x1234_4b80 }))
            );
            assert!(
                d.iter().all(|r| r[32..].iter().all(|&x| x == 0x1234_5678)),
                "lanes beyond the wavefront"
            );
        }
    }
}
