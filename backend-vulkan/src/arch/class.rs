//! Architecture classes, and the classification of devices.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A class of devices that share tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArchClass {
    /// AMD, subgroups of 64 only: gfx6 to gfx9 (Polaris, Vega, MI50).
    AmdGcn,
    /// AMD gfx10.1.
    AmdRdna1,
    /// AMD gfx10.3.
    AmdRdna2,
    /// AMD gfx11.
    AmdRdna3,
    /// AMD gfx12.
    AmdRdna4,
    /// AMD compute accelerators with matrix units and subgroups of 64 (MI100 and later).
    AmdCdna,
    /// NVIDIA.
    Nvidia,
    /// Intel.
    Intel,
    /// A CPU that runs shaders (lavapipe).
    Cpu,
    /// Anything else.
    Other,
}

impl ArchClass {
    /// All classes.
    pub const ALL: [ArchClass; 10] = [
        ArchClass::AmdGcn,
        ArchClass::AmdRdna1,
        ArchClass::AmdRdna2,
        ArchClass::AmdRdna3,
        ArchClass::AmdRdna4,
        ArchClass::AmdCdna,
        ArchClass::Nvidia,
        ArchClass::Intel,
        ArchClass::Cpu,
        ArchClass::Other,
    ];

    /// Returns the name used in reports and options ("AMD_GCN").
    pub const fn name(self) -> &'static str {
        match self {
            ArchClass::AmdGcn => "AMD_GCN",
            ArchClass::AmdRdna1 => "AMD_RDNA1",
            ArchClass::AmdRdna2 => "AMD_RDNA2",
            ArchClass::AmdRdna3 => "AMD_RDNA3",
            ArchClass::AmdRdna4 => "AMD_RDNA4",
            ArchClass::AmdCdna => "AMD_CDNA",
            ArchClass::Nvidia => "NVIDIA",
            ArchClass::Intel => "INTEL",
            ArchClass::Cpu => "CPU",
            ArchClass::Other => "OTHER",
        }
    }

    /// Returns all names, for messages.
    pub fn names() -> String {
        ArchClass::ALL.map(ArchClass::name).join(", ")
    }
}

impl fmt::Display for ArchClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is no architecture class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClass(pub String);

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown architecture class '{}'; known classes: {}", self.0, ArchClass::names())
    }
}

impl std::error::Error for UnknownClass {}

impl FromStr for ArchClass {
    type Err = UnknownClass;

    /// Returns the class of a name, ignoring case.
    fn from_str(name: &str) -> Result<ArchClass, UnknownClass> {
        let found = ArchClass::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownClass(name.to_string()))
    }
}

/// The device properties that [`classify`] uses.
#[derive(Clone, Copy, Debug)]
pub struct Traits<'a> {
    /// PCI vendor ID.
    pub vendor: u32,
    /// PCI device ID.
    pub device: u32,
    /// True if the device is a CPU.
    pub cpu: bool,
    /// Device name.
    pub name: &'a str,
    /// Minimum subgroup size.
    pub subgroup_min: u32,
    /// Maximum subgroup size.
    pub subgroup_max: u32,
    /// Maximum subgroups per SIMD.
    pub waves_per_simd: Option<u32>,
    /// True if the dot product of packed bytes of mixed signs is implemented in hardware.
    pub int_dot_mixed: bool,
    /// True if the driver lists cooperative matrices. AMD's drivers other than Mesa's list them for chips without matrix units,
    /// too (llama.cpp 11074).
    pub matrices: bool,
    /// True if the driver is Mesa's for AMD.
    pub is_radv: bool,
}

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;

/// PCI device IDs of AMD's accelerators: MI100, MI200, MI300, MI350. Source: libdrm, data/amdgpu.ids.
const ACCELERATORS: [RangeInclusive<u32>; 4] =
    [0x7380..=0x739f, 0x7400..=0x741f, 0x74a0..=0x74bf, 0x75a0..=0x75bf];

/// PCI device IDs of gfx12 (the RX 9000 series). Source: libdrm, data/amdgpu.ids.
const GFX12: [RangeInclusive<u32>; 2] = [0x7550..=0x755f, 0x7590..=0x759f];

/// Returns the class of a device.
///
/// On AMD the subgroup size separates GCN and CDNA (64 only) from RDNA (32 and 64). The number of subgroups
/// per SIMD separates RDNA1 (20) from its successors (16). Matrix units, and on older drivers dot products of
/// mixed signs, separate RDNA3 from RDNA2. No property that drivers report separates accelerators from GCN,
/// or gfx12 from gfx11: there a device is an accelerator or gfx12 if its PCI device ID is listed or the code
/// name that Mesa appends to the marketing name matches, which covers IDs missing from the lists.
pub fn classify(device: Traits<'_>) -> ArchClass {
    if device.cpu {
        return ArchClass::Cpu;
    }
    match device.vendor {
        AMD => classify_amd(device),
        NVIDIA => ArchClass::Nvidia,
        INTEL => ArchClass::Intel,
        _ => ArchClass::Other,
    }
}

fn classify_amd(device: Traits<'_>) -> ArchClass {
    let numbered = |ranges: &[RangeInclusive<u32>]| ranges.iter().any(|range| range.contains(&device.device));
    let code_name = code_name(device.name);
    let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| code_name.starts_with(prefix));
    if device.subgroup_min == 64 && device.subgroup_max == 64 {
        let accelerator = numbered(&ACCELERATORS) || named(&["MI", "GFX90A", "GFX94", "GFX95"]);
        return if accelerator { ArchClass::AmdCdna } else { ArchClass::AmdGcn };
    }
    if numbered(&GFX12) || named(&["GFX12", "NAVI4"]) {
        ArchClass::AmdRdna4
    } else if device.is_radv && device.matrices || device.int_dot_mixed {
        ArchClass::AmdRdna3
    } else if device.waves_per_simd == Some(20) {
        ArchClass::AmdRdna1
    } else {
        ArchClass::AmdRdna2
    }
}

/// Returns the chip's code name in a device name from Mesa: "VEGA10" in "AMD Radeon Instinct MI25 (RADV
/// VEGA10)".
fn code_name(name: &str) -> &str {
    let behind = name.rsplit_once("(RADV ").map_or("", |(_, behind)| behind);
    behind.split([' ', ')']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for class in ArchClass::ALL {
            assert_eq!(class.name().to_lowercase().parse(), Ok(class));
        }
        assert!("AMD".parse::<ArchClass>().unwrap_err().to_string().contains("AMD_GCN"));
    }

    /// Properties that a chip reports besides name and device ID.
    #[derive(Clone, Copy)]
    struct Chip {
        vendor: u32,
        subgroup: (u32, u32),
        waves: Option<u32>,
        int_dot_mixed: bool,
        matrices: bool,
    }

    const fn amd(subgroup_min: u32, waves: u32, int_dot_mixed: bool, matrices: bool) -> Chip {
        Chip { vendor: AMD, subgroup: (subgroup_min, 64), waves: Some(waves), int_dot_mixed, matrices }
    }

    const fn other(vendor: u32, subgroup_min: u32, subgroup_max: u32, matrices: bool) -> Chip {
        let subgroup = (subgroup_min, subgroup_max);
        Chip { vendor, subgroup, waves: None, int_dot_mixed: false, matrices }
    }

    const POLARIS: Chip = amd(64, 8, false, false);
    const GFX9: Chip = amd(64, 10, false, false);
    const GFX90A: Chip = amd(64, 8, false, false);
    const GFX101: Chip = amd(32, 20, false, false);
    const GFX103: Chip = amd(32, 16, false, false);
    const GFX11: Chip = amd(32, 16, true, true);
    /// gfx11 and gfx12 on a Mesa without cooperative matrices for them.
    const WITHOUT_MATRICES: Chip = amd(32, 16, true, false);

    /// gfx103 under AMD's other drivers, which list matrices that no unit computes.
    const EMULATED_MATRICES: Chip = amd(32, 16, false, true);

    /// Names, device IDs and properties as RADV (with "(RADV ...)"), AMDVLK and the other drivers report
    /// them.
    const CARDS: &[(&str, u32, Chip, ArchClass)] = &[
        ("AMD Radeon R9 Fury Series (RADV FIJI)", 0x7300, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon RX 580 Series (RADV POLARIS10)", 0x67df, POLARIS, ArchClass::AmdGcn),
        ("AMD Radeon RX 460 Graphics (RADV POLARIS11)", 0x67ef, POLARIS, ArchClass::AmdGcn),
        ("AMD Radeon RX 550 / 550 Series (RADV POLARIS12)", 0x699f, POLARIS, ArchClass::AmdGcn),
        ("AMD Radeon RX Vega (RADV VEGA10)", 0x687f, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Vega Frontier Edition (RADV VEGA10)", 0x6863, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Instinct MI25 (RADV VEGA10)", 0x6860, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Instinct MI25 MxGPU (RADV VEGA10)", 0x686c, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Instinct MI25", 0x6860, GFX9, ArchClass::AmdGcn),
        ("AMD Instinct MI60 / MI50 (RADV VEGA20)", 0x66a1, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon VII (RADV VEGA20)", 0x66af, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Vega 11 Graphics (RADV RAVEN)", 0x15dd, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Vega 3 Graphics (RADV RAVEN2)", 0x15d8, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Graphics (RADV RENOIR)", 0x1636, GFX9, ArchClass::AmdGcn),
        ("AMD Radeon Graphics (RADV RENOIR)", 0x1638, GFX9, ArchClass::AmdGcn),
        ("AMD Instinct MI100 (RADV MI100)", 0x738c, GFX9, ArchClass::AmdCdna),
        ("AMD Instinct MI210 (RADV MI200)", 0x740f, GFX90A, ArchClass::AmdCdna),
        ("AMD Instinct MI250X / MI250 (RADV MI200)", 0x740c, GFX90A, ArchClass::AmdCdna),
        ("AMD Instinct MI300X (RADV GFX940)", 0x74a1, GFX90A, ArchClass::AmdCdna),
        ("AMD Instinct MI300A", 0x74a0, GFX90A, ArchClass::AmdCdna),
        ("AMD Unknown (RADV MI200)", 0, GFX90A, ArchClass::AmdCdna),
        ("AMD Radeon RX 5700 XT (RADV NAVI10)", 0x731f, GFX101, ArchClass::AmdRdna1),
        ("AMD Radeon RX 5500 XT (RADV NAVI14)", 0x7340, GFX101, ArchClass::AmdRdna1),
        ("AMD Radeon RX 5700 XT", 0x731f, GFX101, ArchClass::AmdRdna1),
        ("AMD BC-250 (RADV GFX1013)", 0x13fe, GFX101, ArchClass::AmdRdna1),
        ("AMD Radeon RX 6900 XT", 0x73bf, EMULATED_MATRICES, ArchClass::AmdRdna2),
        ("AMD Radeon RX 6900 XT (RADV NAVI21)", 0x73bf, GFX103, ArchClass::AmdRdna2),
        ("AMD Radeon RX 6600 XT (RADV NAVI23)", 0x73ff, GFX103, ArchClass::AmdRdna2),
        ("AMD Radeon RX 6400 (RADV NAVI24)", 0x743f, GFX103, ArchClass::AmdRdna2),
        ("AMD Custom GPU 0405 (RADV VANGOGH)", 0x163f, GFX103, ArchClass::AmdRdna2),
        ("AMD Radeon 680M (RADV REMBRANDT)", 0x1681, GFX103, ArchClass::AmdRdna2),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 0x744c, GFX11, ArchClass::AmdRdna3),
        ("AMD Radeon RX 7900 XTX", 0x744c, GFX11, ArchClass::AmdRdna3),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 0x744c, WITHOUT_MATRICES, ArchClass::AmdRdna3),
        ("AMD Radeon RX 7600 (RADV NAVI33)", 0x7480, GFX11, ArchClass::AmdRdna3),
        ("AMD Radeon 780M Graphics (RADV PHOENIX)", 0x15bf, GFX11, ArchClass::AmdRdna3),
        ("AMD Radeon 8060S Graphics (RADV GFX1151)", 0x1586, GFX11, ArchClass::AmdRdna3),
        ("AMD Radeon RX 9070 XT (RADV GFX1201)", 0x7550, GFX11, ArchClass::AmdRdna4),
        ("AMD Radeon RX 9070 XT", 0x7550, WITHOUT_MATRICES, ArchClass::AmdRdna4),
        ("AMD Radeon AI PRO R9700 (RADV GFX1201)", 0x7551, GFX11, ArchClass::AmdRdna4),
        ("AMD Radeon RX 9060 XT (RADV GFX1200)", 0x7590, GFX11, ArchClass::AmdRdna4),
        ("AMD Unknown (RADV GFX1200)", 0, WITHOUT_MATRICES, ArchClass::AmdRdna4),
        ("NVIDIA GeForce RTX 4090", 0x2684, other(NVIDIA, 32, 32, true), ArchClass::Nvidia),
        ("NVIDIA H200", 0x2335, other(NVIDIA, 32, 32, true), ArchClass::Nvidia),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", 0x56a0, other(INTEL, 8, 32, true), ArchClass::Intel),
        ("Intel(R) UHD Graphics 770 (ADL-S GT1)", 0x4680, other(INTEL, 8, 32, false), ArchClass::Intel),
        ("Turnip Adreno (TM) 740", 0x4305_0a01, other(0x5143, 64, 128, false), ArchClass::Other),
    ];

    #[test]
    fn cards_get_their_class() {
        for &(name, device, chip, class) in CARDS {
            let traits = Traits {
                vendor: chip.vendor,
                device,
                cpu: false,
                name,
                subgroup_min: chip.subgroup.0,
                subgroup_max: chip.subgroup.1,
                waves_per_simd: chip.waves,
                int_dot_mixed: chip.int_dot_mixed,
                matrices: chip.matrices,
                is_radv: name.contains("(RADV "),
            };
            assert_eq!(classify(traits), class, "{name}, {device:#x}");
        }
    }

    #[test]
    fn software_is_a_processor() {
        let llvmpipe = Traits {
            vendor: 0x10005,
            device: 0,
            cpu: true,
            name: "llvmpipe (LLVM 15.0.6, 256 bits)",
            subgroup_min: 8,
            subgroup_max: 8,
            waves_per_simd: None,
            int_dot_mixed: false,
            matrices: false,
            is_radv: false,
        };
        assert_eq!(classify(llvmpipe), ArchClass::Cpu);
    }
}
