//! Architecture classes, and what kernels may know of a device.
//!
//! A class stands for devices that want the same kernels: the same wave size, the same dot products, the same tiles.
//! It follows from properties that the driver reports ([`classify`]) and can be forced, so that the kernels of one
//! class can be executed on any device that is able to.

use std::fmt;
use std::str::FromStr;

/// A class of devices that share tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArchClass {
    /// AMD, waves of 64 only: gfx6 to gfx9 (Polaris, Vega, MI50).
    AmdGcn,
    /// AMD gfx10.1.
    AmdRdna1,
    /// AMD gfx10.3.
    AmdRdna2,
    /// AMD gfx11.
    AmdRdna3,
    /// AMD gfx12.
    AmdRdna4,
    /// AMD compute accelerators with matrix units and waves of 64 (MI100 and later).
    AmdCdna,
    /// NVIDIA.
    Nvidia,
    /// Intel.
    Intel,
    /// A processor that runs shaders (lavapipe).
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

    /// Name as in reports and options ("AMD_GCN").
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

    /// All names, for messages.
    pub fn names() -> String {
        ArchClass::ALL.map(ArchClass::name).join(", ")
    }
}

impl fmt::Display for ArchClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no architecture class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClass(pub String);

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no architecture class; they are {}", self.0, ArchClass::names())
    }
}

impl std::error::Error for UnknownClass {}

impl FromStr for ArchClass {
    type Err = UnknownClass;

    /// The class of a name, in any case.
    fn from_str(name: &str) -> Result<ArchClass, UnknownClass> {
        let found = ArchClass::ALL.into_iter().find(|c| c.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownClass(name.to_string()))
    }
}

/// Which subgroup operations kernels may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubgroupOps {
    /// Reductions and scans.
    pub arithmetic: bool,
    /// Shuffles by lane and by xor.
    pub shuffle: bool,
    /// Ballots and their bit counts.
    pub ballot: bool,
}

/// Element types of a cooperative-matrix multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixTypes {
    /// F16 operands, F32 accumulator and result.
    F16F32,
    /// F16 throughout.
    F16F16,
    /// Signed bytes, I32 accumulator and result.
    I8I32,
}

/// A cooperative-matrix multiplication of subgroup scope: `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// Length of the products.
    pub k: u32,
    /// Element types.
    pub types: MatrixTypes,
}

/// Everything about a device that kernels and their tuning may depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The architecture class; a forced one if one was forced.
    pub arch: ArchClass,
    /// Smallest subgroup.
    pub subgroup_min: u32,
    /// Largest subgroup.
    pub subgroup_max: u32,
    /// The subgroup size that a pipeline gets which requires none. 64 on AMD although smaller ones may exist.
    pub subgroup_default: u32,
    /// Whether a compute pipeline can require a subgroup size, as those of the lane probe do.
    pub subgroup_control: bool,
    /// Subgroup operations that are reported *and* computed rightly by the lane probe.
    pub subgroup: SubgroupOps,
    /// Shared memory of a work-group in bytes.
    pub shared_bytes: u32,
    /// Invocations of a work-group.
    pub max_invocations: u32,
    /// Extents of a work-group.
    pub max_workgroup_size: [u32; 3],
    /// Work-groups of a dispatch.
    pub max_workgroups: [u32; 3],
    /// Half-precision arithmetic in shaders.
    pub fp16: bool,
    /// Byte arithmetic in shaders.
    pub int8: bool,
    /// 16-bit integer arithmetic in shaders.
    pub int16: bool,
    /// 16-bit types in storage buffers.
    pub storage16: bool,
    /// 8-bit types in storage buffers.
    pub storage8: bool,
    /// The integer dot product instructions exist (perhaps emulated).
    pub int_dot: bool,
    /// The dot product of four packed signed bytes with saturating accumulation is hardware.
    pub int_dot_signed: bool,
    /// The same with one signed and one unsigned operand.
    pub int_dot_mixed: bool,
    /// Cooperative matrices of subgroup scope; empty where there are none.
    pub matrices: Vec<MatrixShape>,
    /// Largest window of an operand in bytes (`maxStorageBufferRange`, or the lower limit that was asked for).
    pub max_binding: u64,
    /// Alignment of the beginning of a window in bytes.
    pub binding_alignment: u64,
    /// Storage buffers that a shader can bind.
    pub max_storage_buffers: u32,
    /// Push constants in bytes.
    pub push_constant_bytes: u32,
    /// Waves that one SIMD holds, where the driver says.
    pub waves_per_simd: Option<u32>,
    /// Compute units, where the driver says.
    pub compute_units: Option<u32>,
}

/// What [`classify`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Traits<'a> {
    /// PCI vendor.
    pub vendor: u32,
    /// Whether the device is a processor.
    pub cpu: bool,
    /// Device name.
    pub name: &'a str,
    /// Smallest subgroup.
    pub subgroup_min: u32,
    /// Largest subgroup.
    pub subgroup_max: u32,
    /// Waves that one SIMD holds.
    pub waves_per_simd: Option<u32>,
    /// Cooperative matrices exist.
    pub matrices: bool,
}

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;

/// The class of a device.
///
/// On AMD the wave size separates GCN and CDNA (64 only) from RDNA (32 and 64); waves per SIMD separate RDNA1 (20) from
/// its successors (16), matrix units RDNA3. Two cases need the device's name, because the drivers report nothing else
/// that tells them apart: accelerators of the MI series, and gfx12 on a driver without cooperative matrices.
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
    let name = device.name.to_ascii_uppercase();
    let named = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if device.subgroup_min == 64 && device.subgroup_max == 64 {
        let accelerator =
            named(&["MI100", "MI2", "MI3", "GFX940", "GFX942", "GFX950", "ARCTURUS", "ALDEBARAN"]);
        return if accelerator { ArchClass::AmdCdna } else { ArchClass::AmdGcn };
    }
    if named(&["GFX12", "NAVI4"]) {
        ArchClass::AmdRdna4
    } else if device.matrices {
        ArchClass::AmdRdna3
    } else if device.waves_per_simd == Some(20) {
        ArchClass::AmdRdna1
    } else {
        ArchClass::AmdRdna2
    }
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

    #[test]
    fn devices_get_their_class() {
        let amd = |name, subgroup_min, waves, matrices| {
            classify(Traits {
                vendor: AMD,
                cpu: false,
                name,
                subgroup_min,
                subgroup_max: 64,
                waves_per_simd: Some(waves),
                matrices,
            })
        };
        assert_eq!(amd("AMD Radeon RX Vega (RADV VEGA10)", 64, 10, false), ArchClass::AmdGcn);
        assert_eq!(amd("AMD Instinct MI100 (RADV MI100)", 64, 10, false), ArchClass::AmdCdna);
        assert_eq!(amd("AMD Radeon RX 5700 XT (RADV NAVI10)", 32, 20, false), ArchClass::AmdRdna1);
        assert_eq!(amd("AMD Radeon RX 6800 XT (RADV NAVI21)", 32, 16, false), ArchClass::AmdRdna2);
        assert_eq!(amd("AMD Radeon RX 7900 XT (RADV NAVI31)", 32, 16, true), ArchClass::AmdRdna3);
        assert_eq!(amd("AMD Radeon Graphics (RADV GFX1201)", 32, 16, false), ArchClass::AmdRdna4);
        let llvm = Traits {
            vendor: 0x10005,
            cpu: true,
            name: "llvmpipe",
            subgroup_min: 8,
            subgroup_max: 8,
            waves_per_simd: None,
            matrices: false,
        };
        assert_eq!(classify(llvm), ArchClass::Cpu);
    }
}
