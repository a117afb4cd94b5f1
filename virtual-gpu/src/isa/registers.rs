//! A set of registers.

use super::operand::{NULL, VGPR, ZERO};

/// A set of registers as bit masks: 256 vector, 256 accumulation and 128 scalar ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    vector: [u64; 8],
    scalar: u128,
}

impl Registers {
    pub(super) fn vectors(first: u16, count: usize) -> Registers {
        let mut set = Registers::default();
        set.add_vectors(first, count);
        set
    }

    pub(super) fn add_vectors(&mut self, first: u16, count: usize) {
        for n in 0..count {
            let register = (usize::from(first) + n) & 511;
            self.vector[register / 64] |= 1 << (register % 64);
        }
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

    /// Returns true if there are none. A comparison with the empty set is a call of `memcmp`.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.vector.iter().fold(0, |all, word| all | word) == 0 && self.scalar == 0
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
