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
    /// Arrangement of the compute units.
    pub layout: Layout,
    /// Copy engines to other cards over their own links (xGMI), in addition to `copy_engines`.
    pub link_engines: u32,
    /// Family in libdrm's `amdgpu_drm.h`, such as `AMDGPU_FAMILY_AI`.
    pub family: u32,
    /// True if it is a part of the processor, whose memory it shares.
    pub integrated: bool,
}

/// Arrangement of a card's compute units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Dies that compute (XCC); engines are counted over all of them.
    pub dies: u32,
    /// Shader engines.
    pub engines: u32,
    /// Arrays of an engine.
    pub arrays: u32,
    /// Most compute units of an array.
    pub units: u32,
    /// Vector units (SIMD) of a compute unit.
    pub simds: u32,
    /// Most wavefronts of a vector unit.
    pub waves: u32,
    /// Work-items of the wavefronts that the chip is made for.
    pub lanes: u32,
    /// Queues of a copy engine.
    pub copy_queues: u32,
}

const GIB: u64 = 1 << 30;

const VEGA_LAYOUT: Layout =
    Layout { dies: 1, engines: 4, arrays: 1, units: 16, simds: 4, waves: 10, lanes: 64, copy_queues: 2 };
const NAVI_LAYOUT: Layout =
    Layout { dies: 1, engines: 6, arrays: 2, units: 8, simds: 2, waves: 16, lanes: 32, copy_queues: 6 };

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
    layout: VEGA_LAYOUT,
    link_engines: 0,
    family: 141,
    integrated: false,
};

/// The kernel's name of chips that describe themselves by tables ("IP discovery").
const DISCOVERED: &str = "ip discovery";

/// All cards. Devices, units and clocks are those of AMD's data sheets and of the PCI database.
pub const CARDS: [Card; 10] = [
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
    Card {
        name: "mi210",
        marketing: "AMD Instinct MI210 (virtual)",
        device: 0x740f,
        revision: 2,
        ..ALDEBARAN
    },
    Card {
        name: "mi250",
        marketing: "AMD Instinct MI250 (virtual)",
        device: 0x740c,
        revision: 1,
        ..ALDEBARAN
    },
    Card {
        name: "mi300x",
        marketing: "AMD Instinct MI300X (virtual)",
        target: Target::Gfx942,
        chip: DISCOVERED,
        device: 0x74a1,
        compute_units: 304,
        memory: 192 * GIB,
        clock: 2100,
        memory_clock: 1300,
        memory_width: 8192,
        layout: Layout { dies: 8, engines: 32, units: 10, waves: 8, copy_queues: 8, ..VEGA_LAYOUT },
        link_engines: 14,
        ..ALDEBARAN
    },
    Card {
        name: "rx7900xtx",
        marketing: "Radeon RX 7900 XTX (virtual)",
        target: Target::Gfx1100,
        chip: DISCOVERED,
        device: 0x744c,
        revision: 0xc8,
        compute_units: 96,
        memory: 24 * GIB,
        clock: 2526,
        memory_clock: 1249,
        memory_width: 384,
        layout: NAVI_LAYOUT,
        family: 145,
        ..VEGA
    },
    Card {
        name: "strix-halo",
        marketing: "Radeon 8060S Graphics (virtual)",
        target: Target::Gfx1151,
        chip: DISCOVERED,
        device: 0x1586,
        revision: 0xc1,
        compute_units: 40,
        memory: 64 * GIB,
        copy_engines: 1,
        clock: 2900,
        memory_clock: 1000,
        memory_width: 256,
        large_bar: true,
        layout: Layout { engines: 2, units: 10, ..NAVI_LAYOUT },
        family: 150,
        integrated: true,
        ..VEGA
    },
];

/// Facts that a MI210 and a half of a MI250, which is a card of its own for programs, share.
const ALDEBARAN: Card = Card {
    target: Target::Gfx90a,
    chip: "aldebaran",
    compute_units: 104,
    memory: 64 * GIB,
    clock: 1700,
    memory_clock: 1600,
    memory_width: 4096,
    sram_ecc: true,
    layout: Layout { engines: 8, units: 16, waves: 8, copy_queues: 8, ..VEGA_LAYOUT },
    link_engines: 3,
    ..VEGA
};

impl Card {
    /// Returns the card of a name.
    pub fn find(name: &str) -> Option<Card> {
        CARDS.iter().find(|c| c.name == name).cloned()
    }

    /// Returns the processor's number in the kernel's topology: major × 10000 + minor × 100 + stepping.
    pub fn target_version(&self) -> u32 {
        match self.target {
            Target::Gfx900 => 90000,
            Target::Gfx906 => 90006,
            Target::Gfx90a => 90010,
            Target::Gfx942 => 90402,
            Target::Gfx1100 => 110000,
            Target::Gfx1151 => 110501,
        }
    }
}

impl Default for Card {
    /// An MI50.
    fn default() -> Card {
        CARDS[0].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runtimes compute how many compute units an engine has, how much scratch all wavefronts need, and whom they
    /// compile for.
    #[test]
    fn cards_are_consistent() {
        for card in CARDS {
            let of = &card.layout;
            assert!(card.compute_units <= of.engines * of.arrays * of.units, "{}", card.name);
            assert_eq!((of.engines % of.dies, card.compute_units % of.dies), (0, 0), "{}", card.name);
            let is_navi = card.target_version() >= 110_000;
            let (lanes, most) = if is_navi { (32, 32) } else { (64, 40) };
            assert!(of.lanes == lanes && of.simds * of.waves <= most, "{}", card.name);
            // The number is decimal, the last two digits of the name hexadecimal.
            let version = card.target_version();
            let name = format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100);
            assert_eq!(name, card.target.name(), "{}", card.name);
            assert_eq!(Card::find(card.name), Some(card.clone()));
        }
    }
}
