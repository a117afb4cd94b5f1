//! The Vulkan compute shaders of Diptych: GLSL sources, the table of their variants, and the committed
//! SPIR-V.
//!
//! A shader is identified by its stem and the name of a variant. [`ShaderId`] is a pair of both that is known
//! to be in the table; [`ShaderId::words`] is its SPIR-V:
//!
//! ```
//! use shaders::ShaderId;
//!
//! let id = ShaderId::find("lane_probe", "full").expect("in the table");
//! let words = id.words().expect("committed");
//! assert_eq!(words[0], shaders::SPIRV_MAGIC);
//!
//! let interface = shaders::reflect::reflect(words).expect("valid");
//! assert_eq!(interface.buffers.len(), 1);
//! assert_eq!(interface.push_constants.unwrap().size, 4);
//! ```
//!
//! # Interface of every shader
//!
//! - Descriptor set 0; bindings 0 .. n-1 are storage buffers in operand order: src0, src1, ..., dst last. An
//!   array of buffers is one binding with an operand for each element.
//! - Push constants hold the operation's parameter struct: only 4-byte fields (`uint`, `int`, `float`),
//!   packed.
//! - Specialisation constant 0 is `local_size_x`; a shader's own are 1 and up.
//! - The entry point is `main`.
//!
//! [`reflect::check_conventions`] tests these rules; the tests of this crate apply it to every module.
//!
//! # Adding a shader
//!
//! 1. Write `src/<family>/<stem>.comp`. It may `#include` files next to it and files of `src/include`.
//! 2. Add one [`Source`] to [`variants::SOURCES`].
//! 3. Run `make shaders`, and commit the changes below `spirv/`.
//!
//! The tests fail when a source and its SPIR-V do not match; they need no compiler. Only the `shaders`
//! program (feature `compile`) needs one.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

use lzma_rust2::LzmaReader;
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::sync::LazyLock;

pub mod container;
mod entries;
pub mod manifest;
mod pack;
pub mod reflect;
pub mod source;
pub mod table;
pub mod variants;

pub use entries::{Entry, entries, entry};
pub use manifest::Manifest;
pub use table::{Axis, Choice, Define, Optimize, Source, Target, Variant, variant_name};

use container::Container;
use pack::{Damaged, Summary, unpack};

/// First word of every SPIR-V module.
pub const SPIRV_MAGIC: u32 = pack::MAGIC;

/// A shader in the table: a stem and one of its variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShaderId {
    stem: &'static str,
    variant: &'static str,
}

impl ShaderId {
    /// Returns the shader with this stem and variant, if the table has it.
    pub fn find(stem: &str, variant: &str) -> Option<Self> {
        let entry = entry(stem)?;
        let variant = entry.variants.iter().find(|v| v.name == variant)?;
        Some(Self { stem: entry.source.stem(), variant: &variant.name })
    }

    /// Returns the shader with this stem and one choice from each axis, in the order of the axes; an empty
    /// string means [`Choice::NONE`].
    pub fn select(stem: &str, choices: &[&str]) -> Option<Self> {
        Self::find(stem, &variant_name(choices.iter().copied()))
    }

    /// Returns every shader of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        entries().iter().flat_map(|entry| {
            entry.variants.iter().map(|v| Self { stem: entry.source.stem(), variant: &v.name })
        })
    }

    /// Returns the name of the source.
    pub fn stem(self) -> &'static str {
        self.stem
    }

    /// Returns the name of the variant.
    pub fn variant(self) -> &'static str {
        self.variant
    }

    /// Returns the SPIR-V. `None` only if the source was added to the table and `make shaders` has not run
    /// since.
    pub fn words(self) -> Option<&'static [u32]> {
        module(self.stem, self.variant)
    }
}

impl fmt::Display for ShaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stem, self.variant)
    }
}

/// Returns the SPIR-V of a variant; `None` if the committed set does not contain it.
pub fn module(stem: &str, variant: &str) -> Option<&'static [u32]> {
    static PARSED: LazyLock<HashMap<&'static str, Container<'static>>> = LazyLock::new(|| {
        let words = WORDS.iter().flatten();
        let named = CONTAINERS.iter().zip(words);
        named.filter_map(|(summary, words)| Some((summary.stem, Container::parse(words).ok()?))).collect()
    });
    PARSED.get(stem)?.module(variant)
}

/// Returns the manifest of the embedded SPIR-V: the inputs it was compiled from. Empty if the embedded text
/// is damaged, which the tests exclude.
pub fn manifest() -> &'static Manifest {
    static MANIFEST: LazyLock<Manifest> = LazyLock::new(|| {
        let (packed, mut text) = (include_bytes!(concat!(env!("OUT_DIR"), "/manifest.lzma")), String::new());
        let reader = LzmaReader::new_mem_limit(packed.as_slice(), u32::MAX, None);
        let read = reader.and_then(|mut reader| reader.read_to_string(&mut text));
        read.ok().and_then(|_| Manifest::parse(&text).ok()).unwrap_or_default()
    });
    &MANIFEST
}

/// Returns the hash of the whole set of modules, for reports: two builds with the same value run the same
/// SPIR-V.
pub fn digest() -> &'static str {
    &manifest().set
}

/// The committed containers, in the order in which they are packed.
const CONTAINERS: &[Summary] = include!(concat!(env!("OUT_DIR"), "/containers.rs"));

/// Bytes that [`PACKED`] decompresses to.
const STREAMS: usize = include!(concat!(env!("OUT_DIR"), "/streams.rs"));

/// The packed containers, an LZMA file.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/containers.lzma"));

/// The words of [`CONTAINERS`], unpacked on first use.
static WORDS: LazyLock<Result<Vec<Vec<u32>>, Damaged>> = LazyLock::new(|| unpacked(PACKED));

fn unpacked(file: &[u8]) -> Result<Vec<Vec<u32>>, Damaged> {
    let mut streams = vec![0; STREAMS];
    let mut reader = LzmaReader::new_mem_limit(file, u32::MAX, None).map_err(|_| Damaged::LZMA)?;
    reader.read_exact(&mut streams).map_err(|_| Damaged::LZMA)?;
    unpack(&streams, CONTAINERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_unique_and_every_variant_is_found() {
        let mut stems: Vec<&str> = entries().iter().map(|entry| entry.source.stem()).collect();
        stems.sort_unstable();
        stems.dedup();
        assert_eq!(stems.len(), entries().len(), "a stem appears twice in the table");
        for id in ShaderId::all() {
            assert_eq!(ShaderId::find(id.stem(), id.variant()), Some(id));
        }
        for entry in entries() {
            let mut names: Vec<&str> = entry.variants.iter().map(|v| v.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(
                names.len(),
                entry.variants.len(),
                "{}: two variants share a name",
                entry.source.key()
            );
            assert!(!names.is_empty(), "{} has no variant", entry.source.key());
        }
    }

    #[test]
    fn unknown_shaders_are_none() {
        assert_eq!(ShaderId::find("lane_probe", "no"), None);
        assert_eq!(ShaderId::find("no", "default"), None);
        assert_eq!(module("no", "default"), None);
        assert_eq!(ShaderId::select("lane_probe", &["full"]).unwrap().to_string(), "lane_probe/full");
    }

    /// Checks that the unpacked words equal the committed files.
    #[test]
    fn embedded_words_are_those_of_the_files() {
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/spirv");
        let all = WORDS.as_ref().unwrap();
        for (Summary { stem, .. }, words) in CONTAINERS.iter().zip(all) {
            let entry = entry(stem).unwrap();
            let path = format!("{files}/{}/{stem}.spv.bin", entry.source.family());
            assert!(container::words(&std::fs::read(path).unwrap()).as_ref() == Some(words), "{stem}");
        }
        assert_eq!(all.len(), entries().len());
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        for part in 0..16 {
            let mut file = PACKED.to_vec();
            // After the header, in which another dictionary size may be valid.
            let offset = part * file.len() / 16 + 13;
            file[offset] ^= 0x40;
            assert!(unpacked(&file).is_err(), "byte {offset}");
            assert!(unpacked(&PACKED[..offset]).is_err(), "cut to {offset} bytes");
        }
    }

    /// Checks the compression ratio: every program contains the embedded bytes.
    #[test]
    fn the_packed_containers_are_small() {
        let raw: usize = CONTAINERS.iter().map(|container| 4 * container.words).sum();
        assert!(PACKED.len() < raw / 24, "{} of {raw} bytes", PACKED.len());
    }
}
