//! Cards, as data.

use virtual_gpu::Target;

/// A virtual card: what its drivers report about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name in options, such as `mi50`.
    pub name: &'static str,
    /// Name that libdrm reports.
    pub marketing: &'static str,
    /// Processor that runs the kernels.
    pub target: Target,
    /// Name of the chip in the kernel's topology.
    pub chip: &'static str,
    /// PCI device.
    pub device: u32,
    /// PCI revision.
    pub revision: u32,
    /// Compute units.
    pub compute_units: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Copy engines.
    pub copy_engines: u32,
    /// Largest clock in MHz.
    pub clock: u32,
    /// Memory clock in MHz.
    pub memory_clock: u32,
    /// Width of the memory bus in bits.
    pub memory_width: u32,
    /// True if the processor reaches all of the card's memory (a large BAR).
    pub large_bar: bool,
    /// True if the chip's own memories have error correction, which code objects are compiled for.
    pub sram_ecc: bool,
}

const GIB: u64 = 1 << 30;

/// A card whose copies take part in no wider pattern: the fields that most cards share.
const VEGA: Card = Card {
    name: "",
    marketing: "",
    target: Target::Gfx900,
    chip: "vega10",
    device: 0,
    revision: 0,
    compute_units: 64,
    memory: 8 * GIB,
    copy_engines: 2,
    clock: 1630,
    memory_clock: 945,
    memory_width: 2048,
    large_bar: false,
    sram_ecc: false,
};

/// All cards. Devices, units and clocks are those of AMD's data sheets and of the PCI database.
pub const CARDS: [Card; 5] = [
    Card {
        name: "mi50",
        marketing: "AMD Instinct MI50 (virtual)",
        target: Target::Gfx906,
        chip: "vega20",
        device: 0x66a1,
        compute_units: 60,
        memory: 16 * GIB,
        clock: 1725,
        memory_clock: 1000,
        memory_width: 4096,
        ..VEGA
    },
    Card {
        name: "radeon-vii",
        marketing: "AMD Radeon VII (virtual)",
        target: Target::Gfx906,
        chip: "vega20",
        device: 0x66af,
        revision: 0xc1,
        compute_units: 60,
        memory: 16 * GIB,
        clock: 1801,
        memory_clock: 1000,
        memory_width: 4096,
        ..VEGA
    },
    Card {
        name: "vega56",
        marketing: "Radeon RX Vega 56 (virtual)",
        device: 0x687f,
        revision: 0xc3,
        compute_units: 56,
        clock: 1590,
        memory_clock: 800,
        ..VEGA
    },
    Card { name: "vega64", marketing: "Radeon RX Vega 64 (virtual)", device: 0x687f, revision: 0xc1, ..VEGA },
    Card {
        name: "mi25",
        marketing: "Radeon Instinct MI25 (virtual)",
        device: 0x6860,
        memory: 16 * GIB,
        clock: 1500,
        memory_clock: 945,
        ..VEGA
    },
];

impl Card {
    /// Returns the card of a name.
    pub fn find(name: &str) -> Option<Card> {
        CARDS.iter().find(|c| c.name == name).cloned()
    }

    /// Returns the processor's number in the kernel's topology: major × 10000 + minor × 100 + stepping.
    pub fn target_version(&self) -> u32 {
        match self.target {
            Target::Gfx906 => 90006,
            _ => 90000,
        }
    }
}

impl Default for Card {
    /// An MI50.
    fn default() -> Card {
        CARDS[0].clone()
    }
}
