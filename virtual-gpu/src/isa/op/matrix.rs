//! Matrix instructions of CDNA (MFMA, SMFMAC): D = A B + C, over all lanes of a wavefront, whatever EXEC is.
//!
//! An instruction multiplies one or several blocks of matrices. A has `size` rows and `depth` columns, B `depth` rows and
//! `size` columns, C and D `size` rows and columns. [`Shape::of_lane`] and [`Shape::result`] are the layouts: which
//! elements a lane holds.
//!
//! AMD does not document the order of the sums, nor the width of their intermediate results. Here products and sums of
//! floats are F64, C first, then by rising k, and rounded once, to the nearest; F64 matrices are sums of fused products in
//! that order. Integers wrap. The MODE register has no effect.
//!
//! On gfx90a, denormals of F16 and BF16 matrices and of their results are zeros (PyTorch, "Numerical accuracy": "Reduced
//! Precision FP16 and BF16 GEMMs and Convolutions on AMD Instinct MI200 devices"). XF32 rounds F32 to 10 bits of mantissa,
//! to the nearest, ties to even (rocBLAS, `rocblas_xfloat32`).
//!
//! Source of the layouts: AMD, "AMD Matrix Instruction Calculator"; of the modifiers: AMD, ""AMD Instinct MI200"
//! Instruction Set Architecture" (2022) and ""AMD Instinct MI300" Instruction Set Architecture" (2023), "Matrix
//! Arithmetic".

use super::fp8::{self, BF8, FP8};
use super::half;
use super::lanes::{LANES, all_lanes};

/// The words of a register.
pub(crate) type Lanes = [u32; LANES];

/// Type of the elements of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    F32,
    Xf32,
    F64,
    I8,
    Fp8,
    Bf8,
}

/// Sizes of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Rows of A, C and D, columns of B, C and D: 4, 16 or 32.
    pub(crate) size: usize,
    /// Columns of A and rows of B.
    pub(crate) depth: usize,
    pub(crate) blocks: usize,
}

/// A matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) a: Element,
    pub(crate) b: Element,
    /// Of four consecutive elements of A's rows two are stored, at the places that an index names; C is D.
    pub(crate) sparse: bool,
    /// Denormals of operands and results are zeros.
    pub(crate) flushes: bool,
    /// F64: `blgp` negates matrices.
    pub(crate) negates: bool,
}

/// Modifiers of a matrix instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    /// Dense: 2^cbsz blocks share the block `abid` of A among them. Sparse: the index's bits are the first ones, unless
    /// `cbsz` is 0; then `abid` chooses them.
    pub(crate) cbsz: u8,
    pub(crate) abid: u8,
    /// Which lanes hold B; for F64 on gfx942 a bit for each of A, B and C: it is negated.
    pub(crate) blgp: u8,
    pub(crate) negates: bool,
}

/// Most elements of A or B: 16 in each lane.
const MOST: usize = 16 * LANES;
/// Most rows of all blocks of B.
const ROWS: usize = 64;
/// Most registers of C and D.
pub(crate) const MOST_RESULTS: usize = 32;

impl Element {
    /// Returns its bits in a register.
    pub(crate) fn bits(self) -> usize {
        match self {
            Element::I8 | Element::Fp8 | Element::Bf8 => 8,
            Element::F16 | Element::Bf16 => 16,
            Element::F32 | Element::Xf32 => 32,
            Element::F64 => 64,
        }
    }
}

impl Shape {
    /// Returns the number of elements of A or B in a lane.
    fn of_each_lane(self) -> usize {
        self.size * self.depth * self.blocks / LANES
    }

    /// Returns the place of an element of a lane, of A or B: block, row of A or column of B, and k.
    fn of_lane(self, lane: usize, element: usize) -> (usize, usize, usize) {
        let group = lane / self.size;
        let k = group / self.blocks * self.of_each_lane() + element;
        (group % self.blocks, lane % self.size, k)
    }

    /// Returns where an element of C and D is: its number among the lane's elements, and the lane.
    fn result(self, block: usize, row: usize, column: usize, wide: bool) -> (usize, usize) {
        match self.size {
            _ if wide && self.size == 4 => (0, 16 * row + 4 * block + column),
            _ if wide => (row / 4, 16 * (row % 4) + column),
            4 => (row, 4 * block + column),
            16 => (4 * block + row % 4, 16 * (row / 4) + column),
            _ => (16 * block + 4 * (row / 8) + row % 4, 32 * (row / 4 % 2) + column),
        }
    }
}

impl MatrixRow {
    /// Returns the number of registers of A.
    pub(crate) fn a_registers(&self) -> usize {
        let stored = if self.sparse { 2 } else { 1 };
        self.shape.of_each_lane() / stored * self.a.bits() / 32
    }

    /// Returns the number of registers of B.
    pub(crate) fn b_registers(&self) -> usize {
        self.shape.of_each_lane() * self.b.bits() / 32
    }

    /// Returns the number of registers of D, and of C if it is no constant.
    pub(crate) fn registers(&self) -> usize {
        let words = if self.is_wide() { 2 } else { 1 };
        self.shape.size * self.shape.size * self.shape.blocks * words / LANES
    }

    /// Returns true for matrices of F64.
    pub(crate) fn is_wide(&self) -> bool {
        self.a == Element::F64
    }

    /// Returns true if C and D are integers.
    pub(crate) fn is_integer(&self) -> bool {
        self.a == Element::I8
    }

    /// Multiplies. `c` is C, and D afterwards; `index` places the elements of a sparse A.
    #[inline(always)]
    pub(crate) fn multiply(
        &self,
        modifiers: Modifiers,
        [a, b]: [&[Lanes]; 2],
        index: &Lanes,
        c: &mut [Lanes],
    ) {
        match self.shape.size {
            4 => self.blocks::<4>(modifiers, [a, b], index, c),
            16 => self.blocks::<16>(modifiers, [a, b], index, c),
            _ => self.blocks::<32>(modifiers, [a, b], index, c),
        }
    }

    #[inline(always)]
    fn blocks<const SIZE: usize>(
        &self,
        modifiers: Modifiers,
        [a, b]: [&[Lanes]; 2],
        index: &Lanes,
        c: &mut [Lanes],
    ) {
        let Shape { depth, blocks, .. } = self.shape;
        let mut left = [0f64; MOST];
        let mut right = [[0f64; SIZE]; ROWS];
        self.gather_a(modifiers, a, index, &mut left);
        for lane in all_lanes() {
            let from = if self.is_wide() { lane } else { pattern(modifiers.blgp, lane) };
            for element in 0..self.shape.of_each_lane() {
                let (block, column, k) = self.shape.of_lane(lane, element);
                right[(block * depth + k) % ROWS][column % SIZE] = self.element(self.b, b, from, element);
            }
        }
        let negated = |bit: u8| modifiers.negates && modifiers.blgp >> bit & 1 != 0;
        let sign = if negated(0) != negated(1) { -1.0 } else { 1.0 };
        for block in 0..blocks {
            for row in 0..SIZE {
                let mut sums = [0f64; SIZE];
                for (column, sum) in sums.iter_mut().enumerate() {
                    let at = self.shape.result(block, row, column, self.is_wide());
                    let old = self.old(c, at);
                    *sum = if negated(2) { -old } else { old };
                }
                let source = if self.sparse { block } else { shared(modifiers, block) };
                for k in 0..depth {
                    let x = sign * left[((source * SIZE + row) * depth + k) % MOST];
                    let terms = &right[(block * depth + k) % ROWS];
                    for (sum, &term) in sums.iter_mut().zip(terms) {
                        *sum = x.mul_add(term, *sum);
                    }
                }
                for (column, &sum) in sums.iter().enumerate() {
                    let at = self.shape.result(block, row, column, self.is_wide());
                    self.set(c, at, sum);
                }
            }
        }
    }

    /// Fills the rows of A: block by block, row by row.
    #[inline(always)]
    fn gather_a(&self, modifiers: Modifiers, a: &[Lanes], index: &Lanes, left: &mut [f64; MOST]) {
        let Shape { size, depth, .. } = self.shape;
        let each = self.shape.of_each_lane();
        let at = |block: usize, row: usize, k: usize| ((block * size + row) * depth + k) % MOST;
        for lane in all_lanes() {
            if !self.sparse {
                for element in 0..each {
                    let (block, row, k) = self.shape.of_lane(lane, element);
                    left[at(block, row, k)] = self.element(self.a, a, lane, element);
                }
                continue;
            }
            // Two bits of the index for each stored element, `each` bits in all.
            let set = if modifiers.cbsz == 0 { usize::from(modifiers.abid) * each % 32 } else { 0 };
            for stored in 0..each / 2 {
                let place = index[lane] >> ((set + 2 * stored) % 32) & 3;
                let (block, row, k) = self.shape.of_lane(lane, stored / 2 * 4 + place as usize);
                left[at(block, row, k)] += self.element(self.a, a, lane, stored);
            }
        }
    }

    /// Returns an element of A or B.
    #[inline(always)]
    fn element(&self, kind: Element, registers: &[Lanes], lane: usize, element: usize) -> f64 {
        let word = |n: usize| registers.get(n).map_or(0, |register| register[lane % LANES]);
        let part = |bits: usize| {
            let each = 32 / bits;
            word(element / each) >> (bits * (element % each))
        };
        match kind {
            Element::I8 => f64::from(part(8) as i8),
            Element::Fp8 => f64::from(fp8::to_f32(part(8) as u8, FP8)),
            Element::Bf8 => f64::from(fp8::to_f32(part(8) as u8, BF8)),
            Element::F16 => {
                let bits = part(16) as u16;
                f64::from(half::to_f32(if self.flushes && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }))
            }
            Element::Bf16 => self.f32(part(16) << 16),
            Element::F32 => self.f32(word(element)),
            Element::Xf32 => f64::from(f32::from_bits(xf32(word(element)))),
            Element::F64 => {
                f64::from_bits(u64::from(word(2 * element)) | u64::from(word(2 * element + 1)) << 32)
            }
        }
    }

    #[inline(always)]
    fn f32(&self, bits: u32) -> f64 {
        let flushed = self.flushes && bits & 0x7f80_0000 == 0;
        f64::from(f32::from_bits(if flushed { bits & 0x8000_0000 } else { bits }))
    }

    /// Returns an element of C. Integers of 32 bits and their sums are exact as F64.
    #[inline(always)]
    fn old(&self, c: &[Lanes], (n, lane): (usize, usize)) -> f64 {
        let word = |n: usize| c.get(n).map_or(0, |register| register[lane % LANES]);
        match () {
            () if self.is_integer() => f64::from(word(n) as i32),
            () if self.is_wide() => f64::from_bits(u64::from(word(2 * n)) | u64::from(word(2 * n + 1)) << 32),
            () => self.f32(word(n)),
        }
    }

    /// Sets an element of D.
    #[inline(always)]
    fn set(&self, d: &mut [Lanes], (n, lane): (usize, usize), sum: f64) {
        let mut set = |n: usize, word: u32| {
            if let Some(register) = d.get_mut(n) {
                register[lane % LANES] = word;
            }
        };
        if self.is_integer() {
            set(n, sum as i64 as u32);
        } else if self.is_wide() {
            let bits = sum.to_bits();
            set(2 * n, bits as u32);
            set(2 * n + 1, (bits >> 32) as u32);
        } else {
            let bits = (sum as f32).to_bits();
            let flushed = self.flushes && bits & 0x7f80_0000 == 0;
            set(n, if flushed { bits & 0x8000_0000 } else { bits });
        }
    }
}

/// Returns the block of A that a block uses.
fn shared(modifiers: Modifiers, block: usize) -> usize {
    let group = 1 << (modifiers.cbsz & 7);
    block / group * group + usize::from(modifiers.abid) % group
}

/// Returns the lane that holds a lane's elements of B.
fn pattern(blgp: u8, lane: usize) -> usize {
    match blgp & 7 {
        0 => lane,
        1 => lane % 32,
        2 => 32 + lane % 32,
        3 => (lane + 16) % LANES,
        n => usize::from(n - 4) * 16 + lane % 16,
    }
}

/// Rounds the bits of an F32 to 10 bits of mantissa. NaNs and infinities stay.
fn xf32(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0x7f80_0000 {
        return bits;
    }
    (bits + 0xfff + (bits >> 13 & 1)) & !0x1fff
}
