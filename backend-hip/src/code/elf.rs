//! Contents of a code object: its target and, for each kernel, arguments, LDS and registers.
//!
//! There are two reasons to read a code object before the runtime does. `hipModuleLoadData` is not given the
//! length of an image, so the headers must not point outside it. A launch is not given the length of its
//! arguments, so they must match those that the kernel declares. [`virtual_gpu::metadata`] reads the file
//! format.

use crate::arch::{Profile, Target};
use virtual_gpu::metadata;
pub use virtual_gpu::metadata::{KernelInfo, is_elf};

/// Code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// Target it was compiled for.
    pub target: Option<Target>,
    /// ABI version byte of the file: 2 for code object version 4, 3 for 5, 4 for 6.
    pub abi_version: u8,
    /// Kernels it contains.
    pub kernels: Vec<KernelInfo>,
}

impl CodeObject {
    /// Returns an error unless the code matches what the host assumes about a target: the same processor, and
    /// the wavefront size by which work-groups are counted. A compiler option may change that size
    /// (`-mwavefrontsize64`), in this crate's build or in `HIPRTC_COMPILE_OPTIONS_APPEND`.
    pub fn suits(&self, target: &Target) -> Result<(), String> {
        if let Some(of) = self.target.as_ref().filter(|of| of.processor != target.processor) {
            return Err(format!("is for {of}"));
        }
        let Some(profile) = Profile::of(target) else { return Ok(()) };
        match self.kernels.iter().find(|kernel| kernel.wave != profile.wave) {
            None => Ok(()),
            Some(kernel) => Err(format!(
                "has kernel {} for wavefronts of {} threads; {target} is assumed to have wavefronts of {}",
                kernel.name, kernel.wave, profile.wave
            )),
        }
    }
}

/// Reads a code object. The error describes the defect of the file.
pub fn read(image: &[u8]) -> Result<CodeObject, String> {
    let read = metadata::read(image)?;
    let target = read.target.as_deref().and_then(Target::parse);
    Ok(CodeObject { target, abi_version: read.abi_version, kernels: read.kernels })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a code object with one kernel by hand.
    pub(crate) fn sample(kernel: &str, arguments: &[(u8, u8)]) -> Vec<u8> {
        sample_with_wave(kernel, arguments, 64)
    }

    /// Builds the code object of [`sample`] with another wavefront size.
    pub(crate) fn sample_with_wave(kernel: &str, arguments: &[(u8, u8)], wave: u8) -> Vec<u8> {
        let text = |s: &str| [&[0xa0 + s.len() as u8][..], s.as_bytes()].concat();
        let long = |s: &str| [&[0xd9, s.len() as u8][..], s.as_bytes()].concat();
        let mut note = vec![0x82];
        note.extend(text("amdhsa.target"));
        note.extend(long("amdgcn-amd-amdhsa--gfx906:xnack-"));
        note.extend(text("amdhsa.kernels"));
        note.extend([0x91, 0x85]);
        note.extend(text(".name"));
        note.extend(text(kernel));
        note.extend(long(".max_flat_workgroup_size"));
        note.extend([0xcd, 1, 0]);
        note.extend(text(".wavefront_size"));
        note.push(wave);
        note.extend(text(".vgpr_count"));
        note.push(24);
        note.extend(text(".args"));
        note.extend([0xdc, 0, arguments.len() as u8 + 1]);
        for (offset, size) in arguments.iter().copied().chain([(0, 4)]).rev() {
            let hidden = size == 4 && offset == 0;
            note.push(0x83);
            note.extend(text(".offset"));
            note.push(offset);
            note.extend(text(".size"));
            note.push(size);
            note.extend(text(".value_kind"));
            note.extend(text(if hidden { "hidden_block_count_x" } else { "by_value" }));
        }
        // Compilers write the arguments in order, the hidden one last; the order here differs on purpose.
        let mut file = vec![0u8; 64];
        file[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x40\x03");
        file[18] = 224;
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        let mut header = [0u8; 56];
        header[0] = 4;
        header[8] = 120;
        let mut notes = vec![7, 0, 0, 0];
        notes.extend((note.len() as u32).to_le_bytes());
        notes.extend(32u32.to_le_bytes());
        notes.extend(b"AMDGPU\0\0");
        notes.extend(&note);
        header[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        file.extend(header);
        file.extend(notes);
        file
    }

    #[test]
    fn metadata_is_read() {
        let object = read(&sample("norm", &[(16, 52), (8, 8), (0, 8)])).unwrap();
        assert_eq!((object.target.unwrap().to_string(), object.abi_version), ("gfx906:xnack-".into(), 3));
        let kernel = &object.kernels[0];
        assert_eq!((kernel.name.as_str(), kernel.max_threads, kernel.vgprs), ("norm", 256, 24));
        assert_eq!(kernel.arguments, [(0, 8), (8, 8), (16, 52)]);
    }

    #[test]
    fn wavefronts_have_the_size_that_the_host_counts_with() {
        let target = Target::parse("gfx906:sramecc+:xnack-").unwrap();
        let of = |wave| read(&sample_with_wave("norm", &[(0, 8)], wave)).unwrap();
        assert_eq!(of(64).suits(&target), Ok(()));
        let why = of(32).suits(&target).unwrap_err();
        assert!(
            why.contains("kernel norm for wavefronts of 32 threads") && why.ends_with("wavefronts of 64"),
            "{why}"
        );
        assert_eq!(of(64).suits(&Target::parse("gfx900").unwrap()).unwrap_err(), "is for gfx906:xnack-");
    }

    /// Every truncation and every changed byte gives an error or another result, never a panic.
    #[test]
    fn broken_files_are_errors() {
        let good = sample("norm", &[(0, 8)]);
        for end in 0..good.len() {
            assert!(read(&good[..end]).is_err(), "{end}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = read(&bad);
            }
        }
        assert!(read(b"\x7fELF").is_err() && read(b"").is_err());
    }
}
