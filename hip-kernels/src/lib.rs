//! The HIP kernels of Diptych.
//!
//! There is one source file for each family of operations (`norm.hip`; products have one for each kind of
//! weights, and products of bytes their own, `mul_mat_int8_32.hip`), over one thin header of our own
//! (`device.h`) that needs no SDK. The build script compiles each source for each target with the first
//! suitable clang it finds, and embeds the code objects, compressed. Those of gfx900 and gfx906 are in the
//! repository and need no compiler. The sources are embedded too, for compilation at run time. Without a
//! compiler the other targets are left out, and the crate still builds.
//! Code objects are compiled once for all profiles and feature sets of a user, in the user's cache, or in the
//! folder `hip-objects` of the target directory.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `DIPTYCH_HIP_TARGETS` | targets, separated by commas (`gfx906,gfx1100`); `all` (the default); `local`: this machine's cards and the emulated ones; `none` |
//! | `DIPTYCH_HIP_CLANG` | compiler of all targets; by default `clang-19` .. `clang-22`, `clang` from 19 on, or ROCm's |
//! | `ROCM_PATH` | directory of ROCm; by default `/opt/rocm` |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(test)]
#[allow(dead_code)]
#[path = "../build/archive.rs"]
mod archive;
mod image;
mod page;
mod processor;
mod registers;

use lzma_rust2::LzmaReader;
pub use processor::processor_of_kfd;
use std::io::Read;
use std::sync::OnceLock;

/// Target that was requested from the build script and has no code objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The target.
    pub target: &'static str,
    /// Why: the compiler's first messages, or that there was no compiler.
    pub reason: &'static str,
}

mod embedded {
    use super::Refused;
    use super::image::Image;
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Compiler options that results depend on, for compilation at run time: a product and a sum are fused only
/// within one expression.
pub const OPTIONS: &[&str] = &["-O3", "-std=c++17", "-ffp-contract=on"];

/// Returns the targets with embedded code objects ("gfx906", "sm_70").
pub fn targets() -> &'static [&'static str] {
    embedded::TARGETS
}

/// Returns a digest of the kernels: of their sources, the compilers' options and the compilers.
pub fn digest() -> &'static str {
    embedded::DIGEST
}

/// Returns the families with kernels: the stems of the source files ("norm").
pub fn stems() -> &'static [&'static str] {
    embedded::STEMS
}

/// Returns the code object of a family for a target: a bare ELF for AMD's processors, PTX for NVIDIA's;
/// `None` if it is not embedded. The first call for a target unpacks its code objects, which stay in memory.
pub fn code_object(target: &str, stem: &str) -> Option<&'static [u8]> {
    let target = targets().iter().position(|&t| t == target)?;
    let stem = stems().iter().position(|&s| s == stem)?;
    embedded::IMAGES.get(target)?.object(stem)
}

/// Returns source files and headers: name and text. The first call unpacks them; they stay in memory. Empty
/// if memory is insufficient.
pub fn sources() -> &'static [(&'static str, &'static str)] {
    static UNPACKED: OnceLock<Vec<(&str, &str)>> = OnceLock::new();
    UNPACKED.get_or_init(|| unpacked_sources().unwrap_or_default())
}

fn unpacked_sources() -> Option<Vec<(&'static str, &'static str)>> {
    let mut all = String::new();
    let mut reader = LzmaReader::new_mem_limit(embedded::TEXTS, u32::MAX, None).ok()?;
    reader.read_to_string(&mut all).ok()?;
    let mut rest: &'static str = all.leak();
    let mut next = |len| {
        let (text, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(text)
    };
    embedded::SOURCES.iter().map(|&(name, len)| Some((name, next(len)?))).collect()
}

/// Returns the source text of a family.
pub fn source(stem: &str) -> Option<&'static str> {
    let named = |name: &str| name.strip_suffix(".hip") == Some(stem);
    sources().iter().find(|(name, _)| named(name)).map(|&(_, text)| text)
}

/// Returns the version text of the compiler of a target's code objects; `None` if they are not embedded. Versions
/// of several compilers are separated by " and ".
pub fn compiler(target: &str) -> Option<&'static str> {
    let at = targets().iter().position(|&known| known == target)?;
    embedded::COMPILERS.get(at).copied()
}

/// Returns the requested targets without code objects: no compiler was found for them, or it rejected them.
pub fn refused() -> &'static [Refused] {
    embedded::REFUSED
}
