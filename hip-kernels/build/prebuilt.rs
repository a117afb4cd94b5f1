//! Code objects in the repository, so that the owners of these cards need no compiler, and the first build no minutes.
//!
//! `objects/manifest.txt` names the compiler and, for each code object, its inputs and its contents by hash. A code object
//! whose source, headers or options changed since is not used. `make kernels` writes both files again, and a test fails
//! until it does.

use super::archive;
use super::compiler::options;
use super::page::whole_pages;
use super::sources::Sources;
use hmac_sha256::Hash;
use lzma_rust2::LzmaReader;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Targets of the code objects in the repository: the emulated processors, so the tests need them on every machine.
#[allow(dead_code, reason = "used by the program that writes, and by tests")]
pub(crate) const TARGETS: [&str; 2] = ["gfx900", "gfx906"];

/// File with the code objects, one after the other, each at the start of a page; compressed.
pub(crate) const ARCHIVE: &str = "gfx9.lzma";

/// File that says what is in the archive.
pub(crate) const MANIFEST: &str = "manifest.txt";

#[allow(dead_code, reason = "used by the program that writes, and by tests")]
const HEAD: &str = "# Written by `make kernels`: the compiler, then target, source, hash of the inputs, bytes and hash of \
                    each code object.\n";

/// Code objects that fit the sources.
#[derive(Default)]
pub(crate) struct Prebuilt {
    /// Version of the compiler that made them.
    pub(crate) version: String,
    /// Contents and inputs by target and stem.
    objects: BTreeMap<(String, String), (String, Vec<u8>)>,
    /// The archive, unpacked and packed.
    unpacked: Vec<u8>,
    packed: Vec<u8>,
}

impl Prebuilt {
    /// Reads a folder. Without it, and where it is damaged, there are no code objects: the compiler makes them.
    pub(crate) fn read(folder: &Path, sources: &Sources) -> Prebuilt {
        Prebuilt::read_all(folder, sources).unwrap_or_default()
    }

    fn read_all(folder: &Path, sources: &Sources) -> Option<Prebuilt> {
        let manifest = fs::read_to_string(folder.join(MANIFEST)).ok()?;
        let packed = fs::read(folder.join(ARCHIVE)).ok()?;
        let mut unpacked = Vec::new();
        LzmaReader::new_mem_limit(&packed[..], u32::MAX, None).ok()?.read_to_end(&mut unpacked).ok()?;
        let mut lines = manifest.lines().filter(|line| !line.starts_with('#'));
        let version = lines.next()?.strip_prefix("compiler ")?.to_string();
        let (mut objects, mut at) = (BTreeMap::new(), 0usize);
        for line in lines {
            let [target, stem, made_from, len, contents] = line.split(' ').collect::<Vec<_>>()[..] else {
                return None;
            };
            let end = at.checked_add(len.parse().ok()?)?;
            let image = unpacked.get(at..end)?;
            if hex(&[image]) != contents {
                return None;
            }
            if sources.stems().any(|known| known == stem) && inputs(target, stem, sources) == made_from {
                objects.insert((target.into(), stem.into()), (made_from.into(), image.to_vec()));
            }
            at = whole_pages(end);
        }
        Some(Prebuilt { version, objects, unpacked, packed })
    }

    /// Returns a code object and the hash of its inputs.
    pub(crate) fn get(&self, target: &str, stem: &str) -> Option<&(String, Vec<u8>)> {
        self.objects.get(&(target.to_string(), stem.to_string()))
    }

    /// Returns true if all code objects of a target are there.
    pub(crate) fn is_complete(&self, target: &str, sources: &Sources) -> bool {
        sources.stems().all(|stem| self.get(target, stem).is_some())
    }

    /// Returns the compressed form of `archive` if it holds just these code objects: compressing takes seconds.
    pub(crate) fn compressed(&self, archive: &[u8]) -> Option<Vec<u8>> {
        (!archive.is_empty() && archive == self.unpacked).then(|| self.packed.clone())
    }
}

/// Writes the files of a folder from the code objects of [`TARGETS`], by target and stem.
///
/// # Errors
/// A file that cannot be written, or a code object that is missing.
#[allow(dead_code, reason = "used by the program that writes, and by tests")]
pub(crate) fn write(
    folder: &Path,
    version: &str,
    sources: &Sources,
    object: impl Fn(&str, &str) -> Result<Vec<u8>, String>,
) -> Result<(), String> {
    let mut manifest = format!("{HEAD}compiler {version}\n");
    let mut unpacked = Vec::new();
    for target in TARGETS {
        for stem in sources.stems() {
            let image = object(target, stem)?;
            let (made_from, contents) = (inputs(target, stem, sources), hex(&[&image]));
            let _ = writeln!(manifest, "{target} {stem} {made_from} {} {contents}", image.len());
            archive::append(&mut unpacked, &[&image]);
        }
    }
    let packed = archive::code(&unpacked).map_err(|e| e.to_string())?;
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    put(ARCHIVE, &packed)?;
    put(MANIFEST, manifest.as_bytes())
}

/// Returns a digest of the sources of all families, the options and the compilers.
pub(crate) fn digest(stems: &[&str], compilers: &[&str], sources: &Sources) -> String {
    let of_stem =
        |stem: &&str| ["gfx906", "gfx1100", "sm_80"].map(|target| inputs(target, stem, sources)).concat();
    let mut hash = Hash::new();
    hash.update(stems.iter().map(of_stem).collect::<String>());
    hash.update(compilers.concat());
    hash.finalize()[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the hash of all inputs of a compilation but the compiler.
pub(crate) fn inputs(target: &str, stem: &str, sources: &Sources) -> String {
    let options = options(target);
    let needed = sources.needed_by(stem);
    let options = options.iter().map(String::as_bytes);
    let parts: Vec<&[u8]> =
        options.chain(needed.iter().flat_map(|(name, code)| [name.as_bytes(), code.as_bytes()])).collect();
    hex(&parts)
}

/// Returns the first half of the SHA-256 of texts in order, and of their lengths.
fn hex(parts: &[&[u8]]) -> String {
    let mut hash = Hash::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..16].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
