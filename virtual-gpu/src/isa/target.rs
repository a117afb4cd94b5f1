//! Processors, their generations and the sizes of their wavefronts.

/// An emulated processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Vega 10: Radeon RX Vega 56 and 64.
    Gfx900,
    /// Vega 20: Radeon Instinct MI50 and MI60, Radeon VII.
    Gfx906,
    /// Aldebaran: Instinct MI210, MI250, MI250X.
    Gfx90a,
    /// Aqua Vanjaram: Instinct MI300A, MI300X, MI325X.
    Gfx942,
    /// Navi 31: Radeon RX 7900.
    Gfx1100,
    /// Strix Halo: Ryzen AI Max.
    Gfx1151,
}

/// Processors that encode their instructions in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// GCN 5: Vega, and CDNA, which extends it.
    Gfx9,
    /// RDNA 3 and 3.5.
    Gfx11,
}

impl Target {
    /// All supported processors.
    pub const ALL: [Target; 6] =
        [Target::Gfx900, Target::Gfx906, Target::Gfx90a, Target::Gfx942, Target::Gfx1100, Target::Gfx1151];

    /// Returns the name of the processor.
    pub fn name(self) -> &'static str {
        match self {
            Target::Gfx900 => "gfx900",
            Target::Gfx906 => "gfx906",
            Target::Gfx1100 => "gfx1100",
            Target::Gfx1151 => "gfx1151",
            Target::Gfx90a => "gfx90a",
            Target::Gfx942 => "gfx942",
        }
    }

    /// Returns the processor with a name.
    pub fn parse(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Returns its number in the flags of an ELF header (`EF_AMDGPU_MACH`).
    pub(crate) fn machine(self) -> u32 {
        match self {
            Target::Gfx900 => 0x2c,
            Target::Gfx906 => 0x2f,
            Target::Gfx1100 => 0x41,
            Target::Gfx1151 => 0x4a,
            Target::Gfx90a => 0x3f,
            Target::Gfx942 => 0x4c,
        }
    }

    pub(crate) fn generation(self) -> Generation {
        match self {
            Target::Gfx900 | Target::Gfx906 | Target::Gfx90a | Target::Gfx942 => Generation::Gfx9,
            Target::Gfx1100 | Target::Gfx1151 => Generation::Gfx11,
        }
    }

    /// Returns its properties.
    pub(crate) fn traits(self) -> Traits {
        const GFX9: Traits = Traits {
            wave32: false,
            packed_ids: false,
            simd_registers: 256,
            register_granule: 4,
            accumulators: false,
            architected_scratch: false,
            counts_stores: false,
            ordered_flat: false,
            most_lgkm: 15,
        };
        const CDNA: Traits =
            Traits { packed_ids: true, simd_registers: 512, register_granule: 8, accumulators: true, ..GFX9 };
        const GFX11: Traits = Traits {
            wave32: true,
            packed_ids: true,
            simd_registers: 768,
            architected_scratch: true,
            counts_stores: true,
            ordered_flat: true,
            most_lgkm: 63,
            ..GFX9
        };
        match self {
            Target::Gfx900 | Target::Gfx906 => GFX9,
            Target::Gfx90a => CDNA,
            Target::Gfx942 => Traits { architected_scratch: true, ..CDNA },
            Target::Gfx1100 | Target::Gfx1151 => GFX11,
        }
    }
}

/// Properties of a processor that do not depend on its instructions' encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// True if kernels may have wavefronts of 32 lanes.
    pub(crate) wave32: bool,
    /// True if a kernel begins with the three ids of a work-item in one register, 10 bits each.
    pub(crate) packed_ids: bool,
    /// Vector registers of a SIMD, and the number in which they are given out, for wavefronts of 64 lanes. Those of 32
    /// lanes have twice as many.
    pub(crate) simd_registers: usize,
    pub(crate) register_granule: usize,
    /// True if the vector registers of a wavefront are 256 ordinary ones and 256 accumulation registers.
    pub(crate) accumulators: bool,
    /// True if hardware knows the scratch of a wavefront: no scalar registers are initialised for it.
    pub(crate) architected_scratch: bool,
    /// True if stores have a counter of their own (`vscnt`).
    pub(crate) counts_stores: bool,
    /// True if FLAT instructions are complete in order, in both counters.
    pub(crate) ordered_flat: bool,
    /// Largest count of LDS and scalar memory operations in flight.
    pub(crate) most_lgkm: usize,
}

/// The instructions of a program: a processor's, for wavefronts of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Isa {
    pub(crate) target: Target,
    /// Lanes of a wavefront: 32 or 64.
    pub(crate) lanes: u8,
}

impl Isa {
    /// Returns the instructions of a processor for wavefronts of 64 lanes.
    pub(crate) fn wave64(target: Target) -> Isa {
        Isa { target, lanes: 64 }
    }

    /// Returns the instructions of a processor for wavefronts of 32 lanes.
    pub(crate) fn wave32(target: Target) -> Isa {
        Isa { target, lanes: 32 }
    }

    /// Returns the scalar registers of one bit per lane.
    pub(crate) fn mask_registers(self) -> usize {
        usize::from(self.lanes) / 32
    }

    /// Returns the vector registers of a SIMD, and the number in which they are given out.
    pub(crate) fn simd_registers(self) -> (usize, usize) {
        let (traits, factor) = (self.target.traits(), 64 / usize::from(self.lanes));
        (traits.simd_registers * factor, traits.register_granule * factor)
    }

    /// Returns a mask of all lanes.
    pub(crate) fn all_lanes(self) -> u64 {
        u64::MAX >> (64 - u32::from(self.lanes))
    }
}
