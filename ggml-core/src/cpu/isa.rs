//! Instruction sets, and the proof that one is supported by this machine.

use crate::error::{Error, Missing, Phase, Result};

/// Instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code for the compiler's default target features.
    Scalar,
    /// Arm Advanced SIMD (aarch64).
    Neon,
    /// Neon with SDOT (Cortex-A76, Neoverse N1, Apple M1 and later).
    NeonDot,
    /// [`Isa::NeonDot`] with SMMLA (FEAT_I8MM: Neoverse V1, Cortex-X2, Apple M2 and later).
    NeonMatrix,
    /// x86-64 with AVX2, FMA and F16C (Haswell 2013, Zen and later).
    Avx2,
    /// [`Isa::Avx2`] with AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4 and later).
    Avx512,
    /// [`Isa::Avx512`] with AMX tiles of 8-bit integers and BF16, under Linux (Sapphire Rapids and later).
    Amx,
}

impl Isa {
    /// All instruction sets, from the least to the most capable.
    pub const ALL: [Isa; 7] =
        [Isa::Scalar, Isa::Neon, Isa::NeonDot, Isa::NeonMatrix, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// Returns the name as in reports ("avx2").
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Neon => "neon",
            Isa::NeonDot => "neon-dot",
            Isa::NeonMatrix => "neon-i8mm",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    /// Returns the instruction set with a name.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|i| i.name() == name)
    }

    /// True if this machine supports it.
    pub fn available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Isa::Amx => avx512() && amx::permitted(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => Isa::Neon.available() && std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonMatrix => Isa::NeonDot.available() && std::arch::is_aarch64_feature_detected!("i8mm"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// Returns the most capable instruction set that this machine supports.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|i| i.available()).unwrap_or(Isa::Scalar)
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    avx2()
        && has!("avx512f")
        && has!("avx512bw")
        && has!("avx512dq")
        && has!("avx512vl")
        && has!("avx512vnni")
}

/// AMX: what the processor has, what the kernel saves, and the permission to use it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use std::sync::LazyLock;

    /// Number of the processor's state of tile registers, in XCR0 and for the kernel.
    const TILE_DATA: u32 = 18;

    /// Code of `arch_prctl` that asks for the permission to use a state.
    const REQUEST_PERMISSION: libc::c_int = 0x1023;

    /// True if the processor has tiles and the kernel lets this process use them. The kernel is asked once; its
    /// permission is for all threads. It refuses if a signal stack is too small for the registers.
    pub(super) fn permitted() -> bool {
        static PERMITTED: LazyLock<bool> = LazyLock::new(|| supported() && request());
        *PERMITTED
    }

    /// True if the processor has tiles of 8-bit integers and BF16, and the kernel has enabled their state.
    fn supported() -> bool {
        // Leaf 7: amx-bf16, amx-tile, amx-int8.
        const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        // Leaf 1: the kernel has enabled XGETBV.
        const OSXSAVE: u32 = 1 << 27;
        // Configuration and data of tiles.
        const STATES: u64 = 1 << 17 | 1 << TILE_DATA;
        #[allow(unused_unsafe, reason = "unsafe before Rust 1.92")]
        // SAFETY: every x86-64 processor has the instruction.
        let [leaves, seven, one] = unsafe { [__cpuid(0).eax, __cpuid_count(7, 0).edx, __cpuid(1).ecx] };
        if leaves < 7 || seven & FEATURES != FEATURES || one & OSXSAVE == 0 {
            return false;
        }
        // SAFETY: the flag that was just checked says that the instruction exists.
        unsafe { enabled_states() & STATES == STATES }
    }

    #[target_feature(enable = "xsave")]
    fn enabled_states() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }

    /// Asks the kernel for the permission.
    fn request() -> bool {
        // SAFETY: this code of the call takes a number and writes no memory. Kernels that do not know it return an
        // error.
        unsafe {
            libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, libc::c_ulong::from(TILE_DATA)) == 0
        }
    }
}

/// An instruction set that this machine supports. Values are made by [`Detected::new`] only, so a value is
/// proof of support, which makes it safe to select kernels by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detected(Isa);

impl Detected {
    /// Checks the wanted instruction set, or selects the best one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this machine does not support the wanted one.
    pub(super) fn new(wanted: Option<Isa>) -> Result<Detected> {
        let isa = wanted.unwrap_or_else(Isa::best);
        if isa.available() {
            return Ok(Detected(isa));
        }
        Err(Error::Unavailable {
            backend: super::NAME.into(),
            phase: Phase::OpenDevice,
            missing: Missing::Feature,
            reason: format!(
                "this machine cannot execute {}; the best that it can is {}",
                isa.name(),
                Isa::best().name()
            ),
        })
    }

    /// Returns the instruction set.
    pub(super) fn isa(self) -> Isa {
        self.0
    }
}
