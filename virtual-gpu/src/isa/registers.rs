//! A set of registers.

use super::operand::{NULL, VGPR, ZERO};

/// A set of registers as bit masks: 256 vector, 256 accumulation and 128 scalar ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    vector: [u64; 8],
    scalar: u128,
}

/// Registers in a row, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    first: u16,
    vectors: u8,
    scalars: u8,
}

impl Fill {
    pub(super) fn vectors(first: u16, count: usize) -> Fill {
        Fill { first, vectors: count as u8, scalars: 0 }
    }

    pub(super) fn scalars(first: u16, count: usize) -> Fill {
        Fill { first, vectors: 0, scalars: count as u8 }
    }

    /// Returns true if there are none.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.vectors | self.scalars == 0
    }

    /// Returns them as a set.
    pub(crate) fn registers(self) -> Registers {
        let mut set = Registers::default();
        set.add_fill(self);
        set
    }
}

impl Registers {
    #[inline(always)]
    pub(crate) fn add_fill(&mut self, fill: Fill) {
        self.add_vectors(fill.first, fill.vectors.into());
        if fill.scalars > 0 {
            self.add_scalars(fill.first, fill.scalars.into());
        }
    }

    /// Adds less than 64 registers in a row.
    #[inline(always)]
    pub(super) fn add_vectors(&mut self, first: u16, count: usize) {
        let (word, bit) = (usize::from(first) / 64 % 8, first % 64);
        let both = u128::from((1u64 << (count % 64)) - 1) << bit;
        self.vector[word] |= both as u64;
        self.vector[(word + 1) % 8] |= (both >> 64) as u64;
    }

    pub(super) fn add_scalars(&mut self, first: u16, count: usize) {
        if first == NULL {
            return;
        }
        for n in 0..count {
            self.scalar |= 1 << ((usize::from(first) + n) & 127);
        }
    }

    /// Adds the registers of a source operand of some words.
    pub(super) fn add_operand(&mut self, operand: u16, count: usize) {
        if operand >= VGPR {
            self.add_vectors(operand - VGPR, count);
        } else if operand < ZERO {
            self.add_scalars(operand, count);
        }
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, other: Registers) {
        self.scalar |= other.scalar;
        self.vector.iter_mut().zip(other.vector).for_each(|(a, b)| *a |= b);
    }

    /// Returns true if the sets intersect.
    #[inline(always)]
    pub(crate) fn meets(&self, other: &Registers) -> bool {
        let vector = self.vector.iter().zip(other.vector).fold(0, |all, (a, b)| all | a & b);
        vector != 0 || self.scalar & other.scalar != 0
    }

    /// Returns the name of a scalar register in both sets.
    pub(crate) fn common_scalar(&self, other: &Registers) -> Option<String> {
        let scalar = self.scalar & other.scalar;
        (scalar != 0).then(|| format!("s{}", scalar.trailing_zeros()))
    }

    /// Returns the name of a register in both sets.
    pub(crate) fn common(&self, other: &Registers) -> Option<String> {
        if let Some(scalar) = self.common_scalar(other) {
            return Some(scalar);
        }
        let word = (0..8).find(|&i| self.vector[i] & other.vector[i] != 0)?;
        let n = 64 * word + (self.vector[word] & other.vector[word]).trailing_zeros() as usize;
        Some(if n < 256 { format!("v{n}") } else { format!("a{}", n - 256) })
    }
}
