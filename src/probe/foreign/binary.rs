//! A library of another program: the libraries that it needs, and the targets of the code objects inside it.
//!
//! Code objects lie in the section `.hip_fatbin`, in bundles of clang's offload bundler. Sources: the ELF
//! specification, and clang's documents "Clang Offload Bundler" and "HIP Support". Lengths are compared with limits
//! before anything is read, because the file may be broken or made to deceive.

use ggml_core::{Error, Result};
use object::LittleEndian;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64, SHT_DYNAMIC, SectionHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Contents of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Binary {
    /// Length of the file in bytes.
    pub(super) bytes: u64,
    /// Names of the libraries that it needs.
    pub(super) needed: Vec<String>,
    /// `DT_RPATH`, which is searched first and is inherited.
    pub(super) rpath: Vec<String>,
    /// `DT_RUNPATH`, which is searched after `LD_LIBRARY_PATH`.
    pub(super) runpath: Vec<String>,
    /// True if it has a section for code objects.
    pub(super) has_code: bool,
    /// Number of bundles of code objects.
    pub(super) bundles: usize,
    /// Number of bundles that are compressed, whose targets cannot be read.
    pub(super) compressed: usize,
    /// Targets of the code objects ("gfx906", "gfx90a:xnack-").
    pub(super) targets: BTreeSet<String>,
    /// The reason why not all code objects were read.
    pub(super) unread: Option<String>,
}

/// The most bytes of a dynamic section.
const DYNAMIC: u64 = 1 << 20;
/// The most libraries or directories of one kind.
const ENTRIES: usize = 256;
/// The most bundles.
const BUNDLES: usize = 100_000;
/// The most code objects of a bundle, and bytes of a name.
const OBJECTS: u64 = 4096;
/// The most zeros between two bundles.
const PADDING: u64 = 1 << 20;

type Header = FileHeader64<LittleEndian>;

/// Reads a library; `None` if the file is no 64-bit little-endian ELF file.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, [`Error::InvalidArgument`] if its headers are broken.
pub(super) fn read(path: &Path) -> Result<Option<Binary>> {
    let io = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let mut magic = [0; 6];
    if bytes < 64 || file.read_exact(&mut magic).is_err() || magic != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    let mut binary = Binary { bytes, ..Binary::default() };
    let code = headers(&mut binary, &ReadCache::new(&file))
        .map_err(|why| Error::argument("library", path.display(), why.to_string()))?;
    if let Some((begin, length)) = code {
        binary.has_code = true;
        binary.unread = bundles(&mut binary, &file, begin, length).err();
    }
    Ok(Some(binary))
}

/// Reads the dynamic section, and returns where code objects lie.
fn headers(binary: &mut Binary, data: &ReadCache<&File>) -> object::Result<Option<(u64, u64)>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    // A count of 0 means that a section has the count, which a library of fewer than 65,280 sections does not need.
    if header.e_shnum(endian) == 0 {
        return Ok(None);
    }
    let sections = header.sections(endian, data)?;
    // A library has one; more would be read and kept.
    let list = sections.iter().find(|section| section.sh_type(endian) == SHT_DYNAMIC);
    if let Some(section) = list.filter(|section| section.sh_size(endian) <= DYNAMIC) {
        dynamic(binary, &sections, section, data)?;
    }
    let mut code = None;
    for section in sections.iter() {
        if sections.section_name(endian, section).is_ok_and(|name| name == b".hip_fatbin") {
            code = section.file_range(endian);
        }
    }
    Ok(code)
}

fn dynamic<'data, 'file>(
    binary: &mut Binary,
    sections: &SectionTable<'data, Header, &'data ReadCache<&'file File>>,
    section: &'data SectionHeader64<LittleEndian>,
    data: &'data ReadCache<&'file File>,
) -> object::Result<()> {
    let endian = LittleEndian;
    let Some((entries, link)) = section.dynamic(endian, data)? else { return Ok(()) };
    let strings = sections.strings(endian, data, link)?;
    // The loader stops at the first entry without a tag.
    for entry in entries.iter().take_while(|entry| entry.d_tag.get(endian) != 0) {
        let list = match u32::try_from(entry.d_tag.get(endian)) {
            Ok(DT_NEEDED) => &mut binary.needed,
            Ok(DT_RPATH) => &mut binary.rpath,
            Ok(DT_RUNPATH) => &mut binary.runpath,
            _ => continue,
        };
        if list.len() >= ENTRIES {
            continue;
        }
        let text = {
            let at = u32::try_from(entry.d_val.get(endian)).unwrap_or(u32::MAX);
            let Ok(bytes) = strings.get(at) else { continue };
            String::from_utf8_lossy(bytes).into_owned()
        };
        let is_path = entry.d_tag.get(endian) != u64::from(DT_NEEDED);
        let parts = text.split(if is_path { ':' } else { '\0' }).filter(|part| !part.is_empty());
        list.extend(parts.map(String::from));
        list.truncate(ENTRIES);
    }
    Ok(())
}

/// The section of a library with its code objects, read in pieces.
struct FatBinary<'a> {
    file: &'a File,
    begin: u64,
    length: u64,
}

impl FatBinary<'_> {
    fn read<const N: usize>(&self, at: u64) -> std::result::Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.fill(at, &mut bytes)?;
        Ok(bytes)
    }

    fn fill(&self, at: u64, bytes: &mut [u8]) -> std::result::Result<(), String> {
        let end = at.checked_add(bytes.len() as u64).filter(|&end| end <= self.length);
        let begin = end.and_then(|_| self.begin.checked_add(at)).ok_or("a bundle ends beyond its section")?;
        let mut file = self.file;
        file.seek(SeekFrom::Start(begin)).map_err(|e| e.to_string())?;
        file.read_exact(bytes).map_err(|e| e.to_string())
    }

    fn number(&self, at: u64) -> std::result::Result<u64, String> {
        Ok(u64::from_le_bytes(self.read(at)?))
    }
}

const PLAIN: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8; 4] = b"CCOB";

/// Reads the bundles of a section. The error says why the rest was not read.
fn bundles(binary: &mut Binary, file: &File, begin: u64, length: u64) -> std::result::Result<(), String> {
    let fat = FatBinary { file, begin, length };
    let mut at = 0;
    while let Some(next) = next_bundle(&fat, at)? {
        if binary.bundles == BUNDLES {
            return Err(format!("only the first {BUNDLES} bundles were read"));
        }
        let head: [u8; 24] = fat.read(next)?;
        at = match &head {
            PLAIN => plain(binary, &fat, next)?,
            head if head.starts_with(COMPRESSED) => {
                binary.compressed += 1;
                binary.bundles += 1;
                let end = next.checked_add(compressed_length(head)?).filter(|&end| end <= fat.length);
                end.ok_or("a compressed bundle ends beyond its section")?
            }
            _ => return Err(format!("the bytes at {:#x} are no bundle of a known kind", begin + next)),
        };
    }
    Ok(())
}

/// Returns where the next bundle begins: after zeros, since bundles are aligned.
fn next_bundle(fat: &FatBinary<'_>, from: u64) -> std::result::Result<Option<u64>, String> {
    const STEP: usize = 4096;
    let mut at = from;
    while at < fat.length && at - from <= PADDING {
        let mut piece = [0; STEP];
        let room = (fat.length - at).min(STEP as u64) as usize;
        fat.fill(at, &mut piece[..room])?;
        if let Some(first) = piece[..room].iter().position(|&byte| byte != 0) {
            let begin = at + first as u64;
            return if fat.length - begin < 24 { Err("a bundle is cut off".into()) } else { Ok(Some(begin)) };
        }
        at += room as u64;
    }
    if at < fat.length { Err("the rest of the section is empty".into()) } else { Ok(None) }
}

/// Reads the targets of a bundle, and returns where it ends.
fn plain(binary: &mut Binary, fat: &FatBinary<'_>, at: u64) -> std::result::Result<u64, String> {
    let count = fat.number(at + 24)?;
    if count > OBJECTS {
        return Err(format!("a bundle of {count} code objects"));
    }
    let mut entry = at + 32;
    let mut end = entry;
    for _ in 0..count {
        let (offset, size, length) = (fat.number(entry)?, fat.number(entry + 8)?, fat.number(entry + 16)?);
        if length > OBJECTS {
            return Err(format!("a target's name of {length} bytes"));
        }
        let mut name = vec![0; length as usize];
        fat.fill(entry + 24, &mut name)?;
        entry += 24 + length;
        let own_end = at.checked_add(offset).and_then(|begin| begin.checked_add(size));
        let own_end = own_end.filter(|&own_end| own_end <= fat.length);
        end = end.max(entry).max(own_end.ok_or("a code object ends beyond its section")?);
        binary.targets.extend(target(&String::from_utf8_lossy(&name)));
    }
    binary.bundles += 1;
    Ok(end)
}

/// Returns the length of a compressed bundle. Version 1 does not have it.
fn compressed_length(head: &[u8; 24]) -> std::result::Result<u64, String> {
    let version = u16::from_le_bytes([head[4], head[5]]);
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = match version {
        2 => u64::from(word(8)),
        3 => u64::from(word(8)) | u64::from(word(12)) << 32,
        _ => return Err(format!("a compressed bundle of version {version}, whose length is not known")),
    };
    if length < 24 { Err(format!("a compressed bundle of {length} bytes")) } else { Ok(length) }
}

/// Returns the target of an entry ("hipv4-amdgcn-amd-amdhsa--gfx906:xnack-"); `None` for the host's.
fn target(name: &str) -> Option<String> {
    if name.contains("spirv") {
        return Some("amdgcnspirv".into());
    }
    let at = name.find("gfx")?;
    let clean = |c: char| c.is_ascii_alphanumeric() || ":+-".contains(c);
    Some(name[at..].chars().take_while(|&c| clean(c)).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a bundle with empty code objects for targets.
    fn bundle(targets: &[&str]) -> Vec<u8> {
        let names: Vec<String> = ["host-x86_64-unknown-linux--".to_string()]
            .into_iter()
            .chain(targets.iter().map(|target| format!("hipv4-amdgcn-amd-amdhsa--{target}")))
            .collect();
        let mut out = PLAIN.to_vec();
        out.extend((names.len() as u64).to_le_bytes());
        let head = 32 + names.iter().map(|name| 24 + name.len()).sum::<usize>();
        for (i, name) in names.iter().enumerate() {
            let size = if i == 0 { 0 } else { 8u64 };
            for number in [(head + 8 * i.saturating_sub(1)) as u64, size, name.len() as u64] {
                out.extend(number.to_le_bytes());
            }
            out.extend(name.bytes());
        }
        out.extend(vec![0x7f; 8 * targets.len()]);
        out.resize(out.len().next_multiple_of(4096), 0);
        out
    }

    /// Returns a shared library that needs libraries and contains these sections of code objects.
    pub(in crate::probe) fn library(needed: &[&str], runpath: &str, rpath: &str, code: &[u8]) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut entries: Vec<(u64, u64)> = Vec::new();
        let named = needed.iter().map(|name| (DT_NEEDED, *name));
        for (tag, text) in named.chain([(DT_RUNPATH, runpath), (DT_RPATH, rpath)]) {
            if !text.is_empty() {
                entries.push((u64::from(tag), strings.len() as u64));
                strings.extend(text.bytes().chain([0]));
            }
        }
        entries.push((0, 0));
        let dynamic: Vec<u8> = entries
            .iter()
            .flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()])
            .flatten()
            .collect();
        let names = b"\0.dynstr\0.dynamic\0.hip_fatbin\0.shstrtab\0";
        // Name, type, contents, link.
        let mut sections: Vec<(u32, u32, &[u8], u32)> =
            vec![(1, 3, &strings, 0), (9, 6, &dynamic, 1), (30, 3, names, 0)];
        if !code.is_empty() {
            sections.push((18, 1, code, 0));
        }
        let mut body = Vec::new();
        let mut table = vec![0u8; 64];
        for (name, kind, contents, link) in &sections {
            table.extend(name.to_le_bytes());
            table.extend(kind.to_le_bytes());
            table.extend([0; 16]);
            table.extend((64 + body.len() as u64).to_le_bytes());
            table.extend((contents.len() as u64).to_le_bytes());
            table.extend(link.to_le_bytes());
            table.extend([0; 20]);
            body.extend(*contents);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        file.extend([0; 16]);
        file.extend((64 + body.len() as u64).to_le_bytes());
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0]);
        file.extend((sections.len() as u16 + 1).to_le_bytes());
        file.extend(3u16.to_le_bytes());
        file.extend(body);
        file.extend(table);
        file
    }

    /// Returns the code objects of a library: two bundles for targets, the second of them with the last target only.
    pub(in crate::probe) fn code(targets: &[&str]) -> Vec<u8> {
        [bundle(targets), bundle(&targets[targets.len() - 1..])].concat()
    }

    fn parse(bytes: &[u8]) -> Result<Option<Binary>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn libraries_and_targets() {
        let file = library(
            &["libamdhip64.so.6", "libc.so.6"],
            "$ORIGIN:/opt/x",
            "",
            &code(&["gfx906:xnack-", "gfx1100"]),
        );
        let read = parse(&file).unwrap().unwrap();
        assert_eq!(read.needed, ["libamdhip64.so.6", "libc.so.6"]);
        assert_eq!((read.runpath, read.rpath), (vec!["$ORIGIN".to_string(), "/opt/x".into()], vec![]));
        assert_eq!((read.bundles, read.compressed, read.unread), (2, 0, None));
        assert_eq!(read.targets.into_iter().collect::<Vec<_>>(), ["gfx1100", "gfx906:xnack-"]);
        let plain = parse(&library(&[], "", "/lib/a", b"")).unwrap().unwrap();
        assert!(!plain.has_code && plain.rpath == ["/lib/a"]);
        assert_eq!(parse(b"#!/bin/sh\n").unwrap(), None);
        let old = [
            "hip-amdgcn-amd-amdhsa-gfx803",
            "host-x86_64-unknown-linux",
            "hipv4-spirv64-amd-amdhsa--amdgcnspirv",
        ];
        assert_eq!(old.map(target), [Some("gfx803".into()), None, Some("amdgcnspirv".into())]);
    }

    /// Compressed bundles are named as such, and passed over.
    #[test]
    fn compressed_bundles() {
        let mut bytes = b"CCOB\x02\0\x01\0".to_vec();
        bytes.extend(4096u32.to_le_bytes());
        bytes.resize(4096, 0xaa);
        let code = [bytes.clone(), code(&["gfx900"])].concat();
        let read = parse(&library(&[], "", "", &code)).unwrap().unwrap();
        assert_eq!((read.bundles, read.compressed, read.unread), (3, 1, None));
        assert!(read.targets.contains("gfx900"));
        bytes[4] = 1;
        let read = parse(&library(&[], "", "", &bytes)).unwrap().unwrap();
        assert!(read.compressed == 1 && read.unread.unwrap().contains("version 1"));
    }

    /// Every truncation and every changed byte gives an error or another result, never a panic or an endless loop.
    #[test]
    fn broken_files() {
        let good = library(&["libamdhip64.so.6"], "$ORIGIN", "", &code(&["gfx900"])[..8192]);
        for end in (0..good.len()).step_by(97) {
            let _ = parse(&good[..end]);
        }
        let interesting = (0..300).chain(good.len() - 400..good.len());
        for at in interesting {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = parse(&bad);
            }
        }
        let huge = [PLAIN.as_slice(), &u64::MAX.to_le_bytes(), &[1; 64]].concat();
        let read = parse(&library(&[], "", "", &huge)).unwrap().unwrap();
        assert!(read.unread.unwrap().contains("code objects"));
        // One code object, whose offset and size lead beyond the section.
        let entry: [u64; 4] = [1, 56, 1 << 40, 0];
        let far = [PLAIN.as_slice(), &entry.map(u64::to_le_bytes).concat(), &[1; 64]].concat();
        let read = parse(&library(&[], "", "", &far)).unwrap().unwrap();
        assert_eq!(read.unread.as_deref(), Some("a code object ends beyond its section"));
        for length in [u64::MAX, 100] {
            let compressed = [b"CCOB\x03\0\x01\0".as_slice(), &length.to_le_bytes(), &[1; 48]].concat();
            let read = parse(&library(&[], "", "", &compressed)).unwrap().unwrap();
            assert_eq!(read.unread.as_deref(), Some("a compressed bundle ends beyond its section"));
        }
        let read = parse(&library(&[], "", "", &[7; 64])).unwrap().unwrap();
        assert!(read.unread.unwrap().contains("no bundle of a known kind"));
    }
}
