//! The HIP kernels of Diptych.
//!
//! One source file for each family of operations (`norm.hip`; products have one for each kind of weights, and products
//! of bytes their own, `mul_mat_int8_32.hip`), over one thin header of our own (`device.h`) that needs no SDK. The build
//! script compiles each of them for each target with whatever clang it finds and embeds the code objects, compressed; the
//! sources are embedded too, for compilation at run time. Without a compiler nothing is embedded but the sources, and the
//! crate builds all the same. Code objects are compiled once for all profiles and feature sets of a target directory,
//! which keeps them in its folder `hip-objects`.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `DIPTYCH_HIP_TARGETS` | targets, separated by commas (`gfx906,gfx1100`); `all` (the default); `local`: this machine's cards and the emulated ones; `none` |
//! | `DIPTYCH_HIP_CLANG` | the compiler; otherwise `clang-19` .. `clang-22`, `clang` from 19 on, or that of ROCm |
//! | `ROCM_PATH` | where ROCm is installed; otherwise `/opt/rocm` |
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

/// A target for which the build script was asked and could not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The target.
    pub target: &'static str,
    /// The beginning of what the compiler said.
    pub reason: &'static str,
}

mod embedded {
    use super::Refused;
    use super::image::Image;
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Compiler options that results depend on, for compilation at run time: fusion of a product and a sum within one
/// expression only.
pub const OPTIONS: &[&str] = &["-O3", "-std=c++17", "-ffp-contract=on"];

/// Targets with embedded code objects ("gfx906", "sm_70").
pub fn targets() -> &'static [&'static str] {
    embedded::TARGETS
}

/// Families with kernels: the stems of the source files ("norm").
pub fn stems() -> &'static [&'static str] {
    embedded::STEMS
}

/// The code object of a family for a target: a bare ELF for AMD's processors, PTX for NVIDIA's. The first call for a
/// target unpacks its code objects, which stay in memory.
pub fn code_object(target: &str, stem: &str) -> Option<&'static [u8]> {
    let target = targets().iter().position(|&t| t == target)?;
    let stem = stems().iter().position(|&s| s == stem)?;
    embedded::IMAGES.get(target)?.object(stem)
}

/// Source files and headers: name and text. The first call unpacks them; they stay in memory. None if there is not
/// enough of it.
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

/// The source text of a family.
pub fn source(stem: &str) -> Option<&'static str> {
    let named = |name: &str| name.strip_suffix(".hip") == Some(stem);
    sources().iter().find(|(name, _)| named(name)).map(|&(_, text)| text)
}

/// What the compiler of the embedded code objects calls itself; `None` if there was none.
pub fn compiler() -> Option<&'static str> {
    embedded::COMPILER
}

/// Default targets that the compiler does not know or could not compile for.
pub fn refused() -> &'static [Refused] {
    embedded::REFUSED
}
