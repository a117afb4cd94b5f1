//! Capabilities of a target: from a processor's name to wavefront size, dot products, matrix units and LDS.
//!
//! A *target* is a processor and its modes, as the runtime reports it in `gcnArchName`: for example
//! `gfx906:sramecc+:xnack-`. Sources of the table: the instructions that LLVM's AMDGPU back end accepts for
//! each processor, and AMD's GPU specifications.

use ggml_core::routes::Chosen;
use std::fmt;

/// Processor and its modes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Processor ("gfx906", "sm_90").
    pub processor: String,
    /// True if memory errors are corrected; `None` if the processor has no such mode or the mode does not
    /// matter.
    pub sramecc: Option<bool>,
    /// True if page faults are retried; `None` as for `sramecc`.
    pub xnack: Option<bool>,
}

/// Family of processors that use the same kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// gfx803, and gfx900 to gfx90c without matrix units.
    Gcn,
    /// gfx908, gfx90a, gfx94x, gfx950.
    Cdna,
    /// gfx101x.
    Rdna1,
    /// gfx103x.
    Rdna2,
    /// gfx110x, gfx115x.
    Rdna3,
    /// gfx120x.
    Rdna4,
    /// NVIDIA processors, reached through CUDA's driver.
    Nvidia,
}

impl Family {
    /// Returns the name in reports ("AMD_GCN").
    pub fn name(self) -> &'static str {
        match self {
            Family::Gcn => "AMD_GCN",
            Family::Cdna => "AMD_CDNA",
            Family::Rdna1 => "AMD_RDNA1",
            Family::Rdna2 => "AMD_RDNA2",
            Family::Rdna3 => "AMD_RDNA3",
            Family::Rdna4 => "AMD_RDNA4",
            Family::Nvidia => "NVIDIA",
        }
    }
}

/// Method of computing a dot product of four pairs of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dot4 {
    /// No instruction: bytes are extracted, multiplied in 24 bits and added.
    Software,
    /// `v_dot4_i32_i8`: both operands signed.
    Sdot4,
    /// `v_dot4_i32_iu8`: the signedness of each operand is selectable.
    Sudot4,
    /// NVIDIA's `dp4a`.
    Dp4a,
}

/// Kind of matrix unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// None.
    None,
    /// CDNA's MFMA.
    Mfma,
    /// RDNA3's WMMA, with the halves of the operands duplicated.
    Wmma,
    /// RDNA4's WMMA.
    WmmaGfx12,
    /// NVIDIA's tensor cores, using `mma` of 16 x 8 x 16.
    Tensor,
}

/// Device properties that kernels rely on.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Target whose code runs.
    pub target: Target,
    /// Family of the target.
    pub family: Family,
    /// Threads of a wavefront in code compiled for this target.
    pub wave: u32,
    /// Dot product of bytes.
    pub dot4: Dot4,
    /// Matrix unit for products.
    pub matrix: Matrix,
    /// Matrix unit for attention: the same, if both use it.
    pub attention_matrix: Matrix,
    /// True if the code copies from memory to LDS without registers (NVIDIA's `cp.async`), into LDS sized by
    /// the launch.
    pub copies: bool,
    /// True if one instruction computes two F16 values (`v_pk_fma_f16`).
    pub packed_half: bool,
    /// LDS of one work-group in bytes.
    pub lds_bytes: u32,
    /// LDS in bytes that a launch may give a work-group.
    pub given_lds: u32,
    /// Maximum number of threads of a work-group.
    pub max_threads: u32,
    /// Number of compute units (work-group processors on RDNA).
    pub compute_units: u32,
    /// Values in the tuning that are not those of the family.
    pub candidates: Chosen,
}

impl Target {
    /// Parses `processor[:feature+|:feature-]...`. Returns `None` if the text is no target name.
    pub fn parse(text: &str) -> Option<Target> {
        let mut parts = text.split(':');
        let processor = parts.next().filter(|p| p.starts_with("gfx") || p.starts_with("sm_"))?;
        if !processor.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return None;
        }
        let mut target = Target { processor: processor.into(), sramecc: None, xnack: None };
        for part in parts {
            let on = match part.as_bytes().last() {
                Some(b'+') => true,
                Some(b'-') => false,
                _ => return None,
            };
            match &part[..part.len() - 1] {
                "sramecc" => target.sramecc = Some(on),
                "xnack" => target.xnack = Some(on),
                _ => return None,
            }
        }
        Some(target)
    }

    /// Returns the processor that the kernel driver's `gfx_target_version` denotes.
    pub fn from_kfd(version: u32) -> Target {
        Target { processor: hip_kernels::processor_of_kfd(version), sramecc: None, xnack: None }
    }

    /// Returns true if code compiled for this target runs on a device that reports `device`. The processors
    /// must be equal, and the device must be in every mode that the code specifies. Code that leaves a mode
    /// open runs in both. PTX also runs on NVIDIA's later processors, unless its target has a suffix
    /// (`sm_90a` runs on `sm_90` only).
    pub fn runs_on(&self, device: &Target) -> bool {
        if let (Some((code, alone)), Some((device, _))) = (self.nvidia(), device.nvidia()) {
            return if alone { code == device } else { code <= device };
        }
        let fits = |code: Option<bool>, device: Option<bool>| code.is_none() || code == device;
        self.processor == device.processor
            && fits(self.sramecc, device.sramecc)
            && fits(self.xnack, device.xnack)
    }

    /// Returns the best of the available targets: one whose code runs on this device and specifies the most
    /// modes; on NVIDIA the latest.
    pub fn choose<'a>(&self, available: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let modes = |t: &Target| t.sramecc.is_some() as u8 + t.xnack.is_some() as u8;
        available
            .into_iter()
            .filter_map(|name| Some((name, Target::parse(name).filter(|t| t.runs_on(self))?)))
            .max_by_key(|(_, t)| (modes(t), t.nvidia()))
            .map(|(name, _)| name)
    }

    /// Returns the number of an NVIDIA processor (`sm_90`: 90), and true if a suffix restricts the code to
    /// that processor.
    fn nvidia(&self) -> Option<(u32, bool)> {
        let text = self.processor.strip_prefix("sm_")?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        Some((digits.parse().ok()?, digits.len() < text.len()))
    }

    /// Returns major version, minor version and stepping of an AMD processor ("gfx90a": 9, 0, 10).
    fn version(&self) -> Option<(u32, u32, u32)> {
        let digits = self.processor.strip_prefix("gfx")?;
        let split = digits.len().checked_sub(2).filter(|&n| n > 0 && digits.is_ascii())?;
        let (major, rest) = digits.split_at(split);
        Some((
            major.parse().ok()?,
            u32::from_str_radix(&rest[..1], 16).ok()?,
            u32::from_str_radix(&rest[1..], 16).ok()?,
        ))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.processor)?;
        for (name, mode) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            if let Some(on) = mode {
                write!(f, ":{name}{}", if on { '+' } else { '-' })?;
            }
        }
        Ok(())
    }
}

impl Profile {
    /// Returns true if one instruction adds the products of two pairs of F16 (`v_dot2_f32_f16`): AMD's
    /// processors that have dot products of bytes.
    pub fn has_pairs(&self) -> bool {
        matches!(self.dot4, Dot4::Sdot4 | Dot4::Sudot4)
    }

    /// Derives the profile from a target's name. Returns `None` for a processor of an unknown family.
    pub fn of(target: &Target) -> Option<Profile> {
        if target.processor.starts_with("sm_") {
            let (number, _) = target.nvidia()?;
            return Some(Profile {
                target: target.clone(),
                family: Family::Nvidia,
                wave: 32,
                dot4: if number >= 61 { Dot4::Dp4a } else { Dot4::Software },
                matrix: if number >= 80 { Matrix::Tensor } else { Matrix::None },
                attention_matrix: if number >= 80 { Matrix::Tensor } else { Matrix::None },
                copies: number >= 80,
                packed_half: number >= 60,
                lds_bytes: 48 << 10,
                given_lds: given_lds(number),
                max_threads: 1024,
                compute_units: 1,
                candidates: Chosen::default(),
            });
        }
        let version = target.version()?;
        let family = match version {
            (8, ..) => Family::Gcn,
            (9, 0, 8 | 10) | (9, 4 | 5, _) => Family::Cdna,
            (9, 0, _) => Family::Gcn,
            (10, 1, _) => Family::Rdna1,
            (10, 3, _) => Family::Rdna2,
            (11, ..) => Family::Rdna3,
            (12, 0, _) => Family::Rdna4,
            _ => return None,
        };
        let dot4 = match (family, version) {
            (Family::Cdna | Family::Rdna2, _) | (_, (9, 0, 6) | (10, 1, 1 | 2)) => Dot4::Sdot4,
            (Family::Rdna3 | Family::Rdna4, _) => Dot4::Sudot4,
            _ => Dot4::Software,
        };
        let matrix = match family {
            Family::Cdna => Matrix::Mfma,
            Family::Rdna3 => Matrix::Wmma,
            Family::Rdna4 => Matrix::WmmaGfx12,
            _ => Matrix::None,
        };
        Some(Profile {
            target: target.clone(),
            family,
            wave: if version.0 < 10 { 64 } else { 32 },
            dot4,
            matrix,
            attention_matrix: matrix,
            copies: false,
            packed_half: version.0 >= 9,
            lds_bytes: if version == (9, 5, 0) { 160 << 10 } else { 64 << 10 },
            given_lds: 0,
            max_threads: 1024,
            compute_units: 1,
            candidates: Chosen::default(),
        })
    }
}

/// Returns the LDS in bytes that a launch may give a work-group of an NVIDIA processor (CUDA C++ Programming Guide,
/// technical specifications: 227 KiB on 9.0 and 10.x, 99 on 8.6, 8.9 and 12.0, of which the system uses 1).
fn given_lds(number: u32) -> u32 {
    match number {
        ..80 => 0,
        90 | 100..=109 => 226 << 10,
        _ => 98 << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text).unwrap()
    }

    #[test]
    fn targets_are_read_and_printed() {
        let t = target("gfx906:sramecc+:xnack-");
        assert_eq!((t.processor.as_str(), t.sramecc, t.xnack), ("gfx906", Some(true), Some(false)));
        assert_eq!(t.to_string(), "gfx906:sramecc+:xnack-");
        assert_eq!(target("gfx1100").to_string(), "gfx1100");
        for wrong in ["", "vega", "gfx906:xnack", "gfx906:turbo+", "gfx906:", "gfx 906", "gfx\u{e9}"] {
            assert_eq!(Target::parse(wrong), None, "{wrong}");
        }
        let kfd =
            [(80003, "gfx803"), (90010, "gfx90a"), (90012, "gfx90c"), (90402, "gfx942"), (110501, "gfx1151")];
        for (version, name) in kfd {
            assert_eq!(Target::from_kfd(version).processor, name);
        }
    }

    #[test]
    fn code_runs_where_its_modes_are() {
        let device = target("gfx90a:sramecc+:xnack-");
        for (code, runs) in [
            ("gfx90a", true),
            ("gfx90a:xnack-", true),
            ("gfx90a:sramecc+:xnack-", true),
            ("gfx90a:xnack+", false),
            ("gfx90a:sramecc-", false),
            ("gfx908", false),
        ] {
            assert_eq!(target(code).runs_on(&device), runs, "{code}");
        }
        assert_eq!(
            device.choose(["gfx908", "gfx90a", "gfx90a:xnack+", "gfx90a:xnack-"]),
            Some("gfx90a:xnack-")
        );
        assert_eq!(device.choose(["gfx90a:xnack+", "gfx90a"]), Some("gfx90a"));
        assert_eq!(device.choose(["gfx906", "nonsense"]), None);
        let hopper = target("sm_90");
        assert_eq!(hopper.choose(["sm_70", "gfx906", "sm_80", "sm_100", "sm_100a"]), Some("sm_80"));
        assert_eq!(hopper.choose(["sm_90a", "sm_90"]), Some("sm_90a"));
        assert_eq!(target("sm_61").choose(["sm_70"]), None);
        assert_eq!(target("sm_100").choose(["sm_90a"]), None);
        // A device that does not report a mode runs only code that leaves the mode open.
        assert_eq!(target("gfx90a").choose(["gfx90a:xnack-", "gfx90a"]), Some("gfx90a"));
    }

    #[test]
    fn profiles() {
        use Dot4::*;
        let rows = [
            ("gfx803", Family::Gcn, 64, Software, Matrix::None, false),
            ("gfx900", Family::Gcn, 64, Software, Matrix::None, true),
            ("gfx902", Family::Gcn, 64, Software, Matrix::None, true),
            ("gfx90c", Family::Gcn, 64, Software, Matrix::None, true),
            ("gfx906", Family::Gcn, 64, Sdot4, Matrix::None, true),
            ("gfx908", Family::Cdna, 64, Sdot4, Matrix::Mfma, true),
            ("gfx90a", Family::Cdna, 64, Sdot4, Matrix::Mfma, true),
            ("gfx942", Family::Cdna, 64, Sdot4, Matrix::Mfma, true),
            ("gfx1010", Family::Rdna1, 32, Software, Matrix::None, true),
            ("gfx1012", Family::Rdna1, 32, Sdot4, Matrix::None, true),
            ("gfx1013", Family::Rdna1, 32, Software, Matrix::None, true),
            ("gfx1030", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1031", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1032", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1033", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1034", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1035", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1036", Family::Rdna2, 32, Sdot4, Matrix::None, true),
            ("gfx1100", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1101", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1102", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1103", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1150", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1151", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1152", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1153", Family::Rdna3, 32, Sudot4, Matrix::Wmma, true),
            ("gfx1200", Family::Rdna4, 32, Sudot4, Matrix::WmmaGfx12, true),
            ("gfx1201", Family::Rdna4, 32, Sudot4, Matrix::WmmaGfx12, true),
        ];
        for (name, family, wave, dot4, matrix, packed) in rows {
            let p = Profile::of(&target(name)).unwrap();
            let got = (p.family, p.wave, p.dot4, p.matrix, p.packed_half);
            assert_eq!(got, (family, wave, dot4, matrix, packed), "{name}");
            assert_eq!(p.lds_bytes, 65536);
        }
        assert_eq!(Profile::of(&target("gfx950")).unwrap().lds_bytes, 163_840);
        let nvidia = |name| {
            let p = Profile::of(&target(name)).unwrap();
            (p.family, p.wave, p.dot4, p.matrix)
        };
        assert_eq!(nvidia("sm_60"), (Family::Nvidia, 32, Software, Matrix::None));
        assert_eq!(nvidia("sm_90a"), (Family::Nvidia, 32, Dp4a, Matrix::Tensor));
        let given = ["sm_70", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx906"];
        let given = given.map(|name| Profile::of(&target(name)).unwrap().given_lds >> 10);
        assert_eq!(given, [0, 98, 98, 226, 226, 98, 0]);
        assert!(Profile::of(&target("sm_")).is_none());
        assert!(Profile::of(&target("gfx1300")).is_none() && Profile::of(&target("gfx9")).is_none());
        assert!(Profile::of(&target("gfx9-generic")).is_none());
    }
}
