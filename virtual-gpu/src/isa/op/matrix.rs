//! Matrix instructions of CDNA (MFMA, SMFMAC): D = A B + C, over all lanes of a wavefront, whatever EXEC is.
//!
//! An instruction multiplies one or several blocks of matrices. A has `size` rows and `depth` columns, B `depth` rows and
//! `size` columns, C and D `size` rows and columns. [`Shape::of_group`] and [`Shape::result`] are the layouts: which
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
use super::lanes::{LANES, rounds};

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
    /// Two of four consecutive elements of A's rows are stored, at the places that an index names; C is D.
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
    /// Selector of the lanes that hold B; for F64 on gfx942 a bit for each of A, B and C: it is negated.
    pub(crate) blgp: u8,
    pub(crate) negates: bool,
}

/// Most rows of all blocks of B, and columns of A.
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

    /// Returns the place of an element of a group of lanes, of A or B: block and k. There is a group of `size` lanes for
    /// each block and some k; its lanes hold the rows of A or the columns of B.
    fn of_group(self, group: usize, element: usize) -> (usize, usize) {
        (group % self.blocks, group / self.blocks * self.of_each_lane() + element)
    }

    /// Returns where a row of C and D is: its number among the lanes' elements, and the first lane. Lanes hold its columns
    /// one after the other.
    fn result(self, block: usize, row: usize, wide: bool) -> (usize, usize) {
        match self.size {
            _ if wide && self.size == 4 => (0, 16 * row + 4 * block),
            _ if wide => (row / 4, 16 * (row % 4)),
            4 => (row, 4 * block),
            16 => (4 * block + row % 4, 16 * (row / 4)),
            _ => (16 * block + 4 * (row / 8) + row % 4, 32 * (row / 4 % 2)),
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
        // Columns of A and rows of B, block by block.
        let (mut left, mut right) = ([[0f64; SIZE]; ROWS], [[0f64; SIZE]; ROWS]);
        if self.sparse {
            self.expand(modifiers, a, index, &mut left);
        } else {
            self.gather(self.a, a, 0, &mut left);
        }
        self.gather(self.b, b, if self.is_wide() { 0 } else { modifiers.blgp }, &mut right);
        let negated = |bit: u8| modifiers.negates && modifiers.blgp >> bit & 1 != 0;
        let sign = if negated(0) != negated(1) { -1.0 } else { 1.0 };
        for block in 0..blocks {
            let source = if self.sparse { block } else { shared(modifiers, block) };
            // By number: it is a column of the left matrix, too.
            #[allow(clippy::needless_range_loop)]
            for row in 0..SIZE {
                let at = self.shape.result(block, row, self.is_wide());
                let mut sums = [0f64; SIZE];
                self.old(c, at, &mut sums);
                if negated(2) {
                    sums.iter_mut().for_each(|sum| *sum = -*sum);
                }
                for k in 0..depth {
                    let x = sign * left[(source * depth + k) % ROWS][row];
                    let terms = &right[(block * depth + k) % ROWS];
                    for (sum, term) in sums.iter_mut().zip(terms) {
                        *sum = x.mul_add(*term, *sum);
                    }
                }
                self.set(c, at, &sums);
            }
        }
    }

    /// Fills the columns of A or the rows of B. `blgp` chooses the lanes.
    #[inline(always)]
    fn gather<const SIZE: usize>(
        &self,
        kind: Element,
        registers: &[Lanes],
        blgp: u8,
        to: &mut [[f64; SIZE]; ROWS],
    ) {
        for element in 0..self.shape.of_each_lane() {
            let mut values = self.elements(kind, registers, element);
            if blgp != 0 {
                let before = values;
                values = std::array::from_fn(|lane| before[pattern(blgp, lane) % LANES]);
            }
            for (group, lanes) in values.as_chunks::<SIZE>().0.iter().enumerate() {
                let (block, k) = self.shape.of_group(group, element);
                to[(block * self.shape.depth + k) % ROWS] = *lanes;
            }
        }
    }

    /// Fills the columns of a sparse A: two bits of the index for each stored element are its place among four.
    #[inline(always)]
    fn expand<const SIZE: usize>(
        &self,
        modifiers: Modifiers,
        a: &[Lanes],
        index: &Lanes,
        to: &mut [[f64; SIZE]; ROWS],
    ) {
        let each = self.shape.of_each_lane();
        let set = if modifiers.cbsz == 0 { usize::from(modifiers.abid) * each % 32 } else { 0 };
        for stored in 0..each / 2 {
            let values = self.elements(self.a, a, stored);
            for (lane, value) in values.into_iter().enumerate() {
                let place = index[lane] >> ((set + 2 * stored) % 32) & 3;
                let (block, k) = self.shape.of_group(lane / SIZE, stored / 2 * 4 + place as usize);
                to[(block * self.shape.depth + k) % ROWS][lane % SIZE] += value;
            }
        }
    }

    /// Returns an element of A or B of each lane.
    #[inline(always)]
    fn elements(&self, kind: Element, registers: &[Lanes], element: usize) -> [f64; LANES] {
        const NOTHING: Lanes = [0; LANES];
        let word = |n: usize| registers.get(n).unwrap_or(&NOTHING);
        let each = 32 / kind.bits().min(32);
        let (words, shift) = (word(element / each), kind.bits() * (element % each));
        let mut values = [0f64; LANES];
        // A loop for each type, all of it inline: so they are vectors on the host.
        macro_rules! each {
            (|$lane:ident| $value:expr) => {
                for $lane in 0..rounds(LANES) {
                    values[$lane] = $value;
                }
            };
        }
        match kind {
            Element::I8 => each!(|lane| f64::from((words[lane] >> shift) as i8)),
            Element::Fp8 => each!(|lane| f64::from(fp8::to_f32((words[lane] >> shift) as u8, FP8))),
            Element::Bf8 => each!(|lane| f64::from(fp8::to_f32((words[lane] >> shift) as u8, BF8))),
            Element::F16 if self.flushes => each!(|lane| {
                let bits = (words[lane] >> shift) as u16;
                f64::from(half::to_f32(if bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }))
            }),
            Element::F16 => each!(|lane| f64::from(half::to_f32((words[lane] >> shift) as u16))),
            Element::Bf16 => each!(|lane| self.f32(words[lane] >> shift << 16)),
            Element::F32 => each!(|lane| self.f32(words[lane])),
            Element::Xf32 => each!(|lane| f64::from(f32::from_bits(xf32(words[lane])))),
            Element::F64 => {
                let (low, high) = (word(2 * element), word(2 * element + 1));
                each!(|lane| f64::from_bits(u64::from(low[lane]) | u64::from(high[lane]) << 32));
            }
        }
        values
    }

    #[inline(always)]
    fn f32(&self, bits: u32) -> f64 {
        f64::from(f32::from_bits(self.flushed(bits)))
    }

    /// Replaces denormals, if the instruction does.
    #[inline(always)]
    fn flushed(&self, bits: u32) -> u32 {
        if self.flushes && bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
    }

    /// Reads a row of C. Integers of 32 bits and their sums are exact as F64.
    #[inline(always)]
    fn old<const SIZE: usize>(&self, c: &[Lanes], (n, lane): (usize, usize), to: &mut [f64; SIZE]) {
        let low = part::<SIZE>(c, if self.is_wide() { 2 * n } else { n }, lane);
        if self.is_integer() {
            for column in 0..SIZE {
                to[column] = f64::from(low[column] as i32);
            }
        } else if self.is_wide() {
            let high = part::<SIZE>(c, 2 * n + 1, lane);
            for column in 0..SIZE {
                to[column] = f64::from_bits(u64::from(low[column]) | u64::from(high[column]) << 32);
            }
        } else {
            for column in 0..SIZE {
                to[column] = self.f32(low[column]);
            }
        }
    }

    /// Writes a row of D.
    #[inline(always)]
    fn set<const SIZE: usize>(&self, d: &mut [Lanes], (n, lane): (usize, usize), sums: &[f64; SIZE]) {
        let mut words = [[0; SIZE]; 2];
        for column in 0..SIZE {
            let sum = sums[column];
            if self.is_integer() {
                words[0][column] = sum as i64 as u32;
            } else if self.is_wide() {
                words[0][column] = sum.to_bits() as u32;
                words[1][column] = (sum.to_bits() >> 32) as u32;
            } else {
                words[0][column] = self.flushed((sum as f32).to_bits());
            }
        }
        let registers = if self.is_wide() { [Some(2 * n), Some(2 * n + 1)] } else { [Some(n), None] };
        for (register, words) in registers.into_iter().zip(&words) {
            if let Some(to) = register.and_then(|n| d.get_mut(n)?.get_mut(lane..lane + SIZE)) {
                to.copy_from_slice(words);
            }
        }
    }
}

/// Returns some lanes of a register.
#[inline(always)]
fn part<const SIZE: usize>(registers: &[Lanes], n: usize, lane: usize) -> [u32; SIZE] {
    let part = registers.get(n).and_then(|register| register.get(lane..)?.first_chunk::<SIZE>());
    part.copied().unwrap_or([0; SIZE])
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
