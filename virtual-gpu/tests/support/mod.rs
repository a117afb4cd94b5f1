//! Shared helpers of the virtual GPU's tests: the compiler, device memory, launches, random bits.
//!
//! Expected values never come from the emulator: they are closed forms or formulas from the instruction set
//! documents.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of this")]

pub(crate) mod asm;
pub(crate) mod compile;
pub(crate) mod device;
pub(crate) mod kept;
pub(crate) mod objdump;

pub(crate) use asm::AsmKernel;
pub(crate) use device::{Arguments, Session};

use virtual_gpu::Target;

/// Targets of GFX9.
pub(crate) const TARGETS: [Target; 2] = [Target::Gfx900, Target::Gfx906];
/// Targets of GFX11.
pub(crate) const GFX11: [Target; 2] = [Target::Gfx1100, Target::Gfx1151];

/// Returns the lanes of a wavefront of the tests' kernels.
pub(crate) fn lanes(target: Target) -> usize {
    if GFX11.contains(&target) { 32 } else { 64 }
}

/// Targets of CDNA: GFX9 with matrix instructions and accumulation registers.
pub(crate) const CDNA: [Target; 2] = [Target::Gfx90a, Target::Gfx942];

/// A reproducible stream of bits (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// Returns an integer below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.u32() % bound
    }

    /// Returns a float in -1 ..= 1.
    pub(crate) fn unit(&mut self) -> f32 {
        self.below(2_000_001) as f32 / 1_000_000.0 - 1.0
    }
}
