//! Architecture classes, and the device properties that kernels may depend on.
//!
//! A class groups devices that use the same kernels: the same subgroup size, the same dot products, the same
//! tiles. It is derived from properties that the driver reports ([`classify`]). A class can be forced, so
//! that its kernels can be executed on any capable device.

mod class;

pub use class::{ArchClass, Traits, UnknownClass, classify};

use std::str::FromStr;

/// Subgroup operations that kernels may use.
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
    /// Inner dimension: length of the dot products.
    pub k: u32,
    /// Element types.
    pub types: MatrixTypes,
}

/// Products on matrix units that use tiles shared between work-groups (`stream.glsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedTiles {
    /// No products.
    Off,
    /// Large products, where the tuning of the device's class has a tile for sharing. With emulated units:
    /// the products of [`Small`](Self::Small).
    Large,
    /// All products whose tiles can be shared by five work-groups: slow, for tests.
    Small,
}

impl SharedTiles {
    /// Accepted words, for messages.
    pub(crate) const FORMS: &str = "off, on or small";
}

impl FromStr for SharedTiles {
    type Err = String;

    /// Parses `off`, `on` ([`Large`](SharedTiles::Large)) or `small`.
    fn from_str(word: &str) -> Result<SharedTiles, String> {
        match word {
            "off" => Ok(SharedTiles::Off),
            "on" => Ok(SharedTiles::Large),
            "small" => Ok(SharedTiles::Small),
            _ => Err(format!("'{word}' is not one of {}", SharedTiles::FORMS)),
        }
    }
}

/// Use of matrix units by products of many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrices {
    /// Matrix units are not used.
    Off,
    /// Cooperative matrices, where the device has them and the tuning of its class has tiles for them.
    Units,
    /// The kernels for matrix units with ordinary instructions instead: slow, for tests on devices without
    /// matrix units.
    Emulated,
}

impl Matrices {
    /// Accepted words, for messages.
    pub(crate) const FORMS: &str = "off, on or emulated";

    /// Returns the word that the parser accepts.
    pub fn name(self) -> &'static str {
        match self {
            Matrices::Off => "off",
            Matrices::Units => "on",
            Matrices::Emulated => "emulated",
        }
    }
}

impl FromStr for Matrices {
    type Err = String;

    fn from_str(text: &str) -> Result<Matrices, String> {
        let all = [Matrices::Off, Matrices::Units, Matrices::Emulated];
        let found = all.into_iter().find(|matrices| matrices.name() == text);
        found.ok_or_else(|| format!("'{text}' is not one of {}", Matrices::FORMS))
    }
}

/// All device properties that kernels and their tuning may depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Architecture class: the device's own, or a forced one.
    pub arch: ArchClass,
    /// Minimum subgroup size.
    pub subgroup_min: u32,
    /// Maximum subgroup size.
    pub subgroup_max: u32,
    /// Subgroup size of a pipeline that requires none. 64 on AMD although smaller ones may exist.
    pub subgroup_default: u32,
    /// True if a compute pipeline can require a subgroup size, as the pipelines of the lane probe do.
    pub subgroup_control: bool,
    /// Subgroup operations that the driver reports *and* the lane probe found to be correct.
    pub subgroup: SubgroupOps,
    /// Workgroup-shared memory in bytes.
    pub shared_bytes: u32,
    /// Maximum invocations of a work-group.
    pub max_invocations: u32,
    /// Maximum work-group size in each dimension.
    pub max_workgroup_size: [u32; 3],
    /// Maximum work-groups of a dispatch in each dimension.
    pub max_workgroups: [u32; 3],
    /// True if shaders can use half-precision arithmetic.
    pub fp16: bool,
    /// True if shaders can use byte arithmetic.
    pub int8: bool,
    /// True if shaders can use 16-bit integer arithmetic.
    pub int16: bool,
    /// True if storage buffers can hold 16-bit types.
    pub storage16: bool,
    /// True if storage buffers can hold 8-bit types.
    pub storage8: bool,
    /// True if workgroup-shared memory can have several views, including views of 16-bit types.
    pub shared_views: bool,
    /// True if small products on matrix units share tiles between work-groups as large ones do: slow, for tests.
    pub small_shared_tiles: bool,
    /// True if the integer dot product instructions exist (perhaps emulated).
    pub int_dot: bool,
    /// True if the dot product of four packed signed bytes with saturating accumulation is implemented in
    /// hardware.
    pub int_dot_signed: bool,
    /// True if the same dot product with one signed and one unsigned operand is implemented in hardware.
    pub int_dot_mixed: bool,
    /// Cooperative matrices of subgroup scope; empty if unsupported.
    pub matrices: Vec<MatrixShape>,
    /// True if sums of cooperative matrices can become operands, and be read row by row.
    pub matrix_rows: bool,
    /// True if ordinary instructions take the place of the matrix units: slow, for tests.
    pub emulated_matrices: bool,
    /// Maximum window of an operand in bytes (`maxStorageBufferRange`, or a lower limit from the options).
    pub max_binding: u64,
    /// Alignment of a window's offset in bytes.
    pub binding_alignment: u64,
    /// Maximum storage buffers that a shader can bind.
    pub max_storage_buffers: u32,
    /// Maximum push constants in bytes.
    pub push_constant_bytes: u32,
    /// Maximum subgroups per SIMD, if the driver reports it.
    pub waves_per_simd: Option<u32>,
    /// Number of compute units, if the driver reports it.
    pub compute_units: Option<u32>,
    /// True if the driver computes on the processor, whatever the class.
    pub software: bool,
}

#[cfg(test)]
impl Caps {
    /// Returns the properties of an imaginary, small device of the class, with the fewest features.
    pub(crate) fn imagined(arch: ArchClass, binding_alignment: u64) -> Caps {
        Caps {
            arch,
            subgroup_min: 64,
            subgroup_max: 64,
            subgroup_default: 64,
            subgroup_control: false,
            subgroup: SubgroupOps::default(),
            shared_bytes: 32 << 10,
            max_invocations: 1024,
            max_workgroup_size: [1024; 3],
            max_workgroups: [65535; 3],
            fp16: false,
            int8: false,
            int16: false,
            storage16: true,
            storage8: true,
            shared_views: false,
            small_shared_tiles: false,
            int_dot: false,
            int_dot_signed: false,
            int_dot_mixed: false,
            matrices: Vec::new(),
            matrix_rows: false,
            emulated_matrices: false,
            max_binding: 1 << 27,
            binding_alignment,
            max_storage_buffers: 16,
            push_constant_bytes: 256,
            waves_per_simd: None,
            compute_units: None,
            software: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_matrices_are_read_back() {
        for matrices in [Matrices::Off, Matrices::Units, Matrices::Emulated] {
            assert_eq!(matrices.name().parse(), Ok(matrices));
        }
        assert!("yes".parse::<Matrices>().unwrap_err().contains(Matrices::FORMS));
    }
}
