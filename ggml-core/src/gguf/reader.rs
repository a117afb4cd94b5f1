//! Header, metadata and tensor list of one file.
//!
//! The file is untrusted: counts are checked against the bytes left before anything is allocated, and offsets
//! against the file size before they are stored.

use super::cursor::{Cursor, within};
use super::metadata::Metadata;
use super::tensor::{Extents, MAX_DIMS, MAX_NAME, TensorInfo};
use super::value;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::mapped::MappedBytes;
use std::path::{Path, PathBuf};

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
/// Longest key in bytes, by the specification.
pub(super) const MAX_KEY: usize = 65_535;
/// Limits above the counts of any real model; they bound the memory that a malicious file can make the reader
/// allocate.
const MAX_PAIRS: usize = 1 << 16;
const MAX_TENSORS: usize = 1 << 20;

/// One file of a model, which may be split into several.
#[derive(Clone, Debug)]
pub struct SplitFile {
    pub(super) path: Option<PathBuf>,
    pub(super) bytes: MappedBytes,
    pub(super) version: u32,
    pub(super) alignment: usize,
    pub(super) data_start: usize,
}

impl SplitFile {
    /// Returns the file; `None` for a model in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the whole file as a handle; cloning it copies nothing.
    pub fn bytes(&self) -> &MappedBytes {
        &self.bytes
    }

    /// Returns the version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the alignment of tensor data in bytes, a power of two and at least 8.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Returns the offset of the tensor data in bytes from the start of the file. It is beyond the end of a
    /// file that has no tensors and no padding.
    pub fn data_start(&self) -> usize {
        self.data_start
    }
}

/// Contents of one file.
pub(super) struct Contents {
    pub(super) part: SplitFile,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Tensor entry before the start of the data is known.
struct Entry {
    name: String,
    dtype: DType,
    extents: Extents,
    offset: u64,
}

/// Reads and checks one file; `part` is its index in the model. Errors name the file.
pub(super) fn read(bytes: MappedBytes, path: Option<&Path>, part: usize) -> Result<Contents> {
    parse(bytes, path, part).map_err(|e| match path {
        Some(path) => e.with_path(path),
        None => e,
    })
}

fn parse(bytes: MappedBytes, path: Option<&Path>, part: usize) -> Result<Contents> {
    let mut cursor = Cursor::new(&bytes);
    let version = version(&mut cursor)?;
    // A tensor entry has at least an empty name, one extent, type and offset; a pair at least an empty key,
    // kind and a byte.
    let n_tensors = limited(cursor.count(32, "tensor count")?, MAX_TENSORS, "tensor count")?;
    let n_pairs = limited(cursor.count(13, "metadata count")?, MAX_PAIRS, "metadata count")?;
    let mut metadata = Metadata::new();
    if let Some(path) = path {
        metadata.set_path(path);
    }
    for i in 0..n_pairs {
        pair(&mut cursor, &mut metadata).map_err(|e| within(e, || format!("metadata pair {i}")))?;
    }
    let alignment = alignment(&metadata)?;
    let mut entries = Vec::new();
    for i in 0..n_tensors {
        entries.push(entry(&mut cursor).map_err(|e| within(e, || format!("tensor {i}")))?);
    }
    let data_start = cursor.position().checked_next_multiple_of(alignment);
    let no_room = || cursor.error("tensor data", "", format!("an address that is a multiple of {alignment}"));
    let data_start = data_start.ok_or_else(no_room)?;
    let part_info =
        SplitFile { path: path.map(Into::into), bytes: bytes.clone(), version, alignment, data_start };
    let tensors = entries.into_iter().map(|e| locate(e, &part_info, part)).collect::<Result<Vec<_>>>()?;
    no_overlap(&tensors)?;
    Ok(Contents { part: part_info, metadata, tensors })
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let magic: [u8; 4] = cursor.fixed("magic")?;
    if magic != MAGIC {
        let found = format!("\"{}\"", magic.escape_ascii());
        return Err(Error::model("first bytes", found, "\"GGUF\", as in every GGUF file"));
    }
    let wrong = |found: String, expected: &str| Err(Error::model("GGUF version", found, expected));
    match cursor.u32("version")? {
        version @ 2..=3 => Ok(version),
        1 => wrong("1".into(), "2 or 3: convert the model again"),
        version if version > 0xffff && version.swap_bytes() <= 0xffff => {
            wrong(format!("{}, big-endian", version.swap_bytes()), "2 or 3, little-endian")
        }
        version => wrong(version.to_string(), "2 or 3"),
    }
}

fn limited(count: usize, most: usize, what: &str) -> Result<usize> {
    if count > most {
        return Err(Error::model(what, count, format!("at most {most}")));
    }
    Ok(count)
}

fn pair(cursor: &mut Cursor<'_>, metadata: &mut Metadata) -> Result<()> {
    let key = cursor.text("key")?;
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(cursor.error("key", format!("{} bytes", key.len()), format!("1 to {MAX_KEY} bytes")));
    }
    let key = std::str::from_utf8(key).map_err(|e| cursor.error("key", e, "UTF-8"))?;
    let kind = cursor.kind("kind").map_err(|e| within(e, || format!("key {key:?}")))?;
    let value = value::read(cursor, kind).map_err(|e| within(e, || format!("key {key:?}")))?;
    match metadata.insert(key, value) {
        None => Ok(()),
        Some(_) => Err(cursor.error(&format!("key {key:?}"), "there twice", "")),
    }
}

/// Returns `general.alignment`, or the default if the key is missing.
pub(super) fn alignment(metadata: &Metadata) -> Result<usize> {
    let given = metadata.opt_u32(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    let alignment = usize::try_from(given).ok().filter(|a| a.is_power_of_two() && *a >= 8);
    let what = || format!("metadata key {ALIGNMENT_KEY:?}");
    alignment.ok_or_else(|| Error::model(what(), given, "a power of two that is at least 8"))
}

fn entry(cursor: &mut Cursor<'_>) -> Result<Entry> {
    let name = cursor.text("name")?;
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(cursor.error("name", format!("{} bytes", name.len()), format!("1 to {MAX_NAME} bytes")));
    }
    let name = std::str::from_utf8(name).map_err(|e| cursor.error("name", e, "UTF-8"))?;
    shape_and_offset(cursor, name).map_err(|e| within(e, || format!("{name:?}")))
}

fn shape_and_offset(cursor: &mut Cursor<'_>, name: &str) -> Result<Entry> {
    let n_dims = cursor.u32("number of dimensions")?;
    let mut shape = [0u64; MAX_DIMS];
    let shape = usize::try_from(n_dims).ok().and_then(|n| shape.get_mut(..n));
    let Some(shape) = shape else {
        return Err(cursor.error("number of dimensions", n_dims, format!("1 to {MAX_DIMS}")));
    };
    for extent in shape.iter_mut() {
        *extent = cursor.u64("extent")?;
    }
    let number = cursor.u32("type")?;
    let dtype =
        DType::from_gguf(number).ok_or_else(|| cursor.error("type", number, "a type of GGUF files"))?;
    let wrong = |(found, expected): (String, String)| cursor.error("shape", found, expected);
    let extents = Extents::check(dtype, shape).map_err(wrong)?;
    Ok(Entry { name: name.into(), dtype, extents, offset: cursor.u64("offset")? })
}

/// Computes and checks the range of a tensor's data in the file.
fn locate(entry: Entry, part: &SplitFile, number: usize) -> Result<TensorInfo> {
    let Entry { name, dtype, extents, offset } = entry;
    let Extents { ne, n_dims, bytes } = extents;
    let file = part.bytes.len();
    let start = usize::try_from(offset).ok().and_then(|o| o.checked_add(part.data_start));
    let start = start.filter(|s| s.checked_add(bytes).is_some_and(|end| end <= file));
    let what = || format!("tensor {name:?}");
    let Some(start) = start else {
        let found =
            format!("{bytes} bytes at offset {offset} of the data, which starts at byte {}", part.data_start);
        return Err(Error::model(what(), found, format!("a place within the {file} bytes of the file")));
    };
    if !start.is_multiple_of(part.alignment) {
        let expected = format!("a multiple of the alignment {}", part.alignment);
        return Err(Error::model(what(), format!("offset {offset}"), expected));
    }
    Ok(TensorInfo { name, dtype, ne, n_dims, part: number, offset: start, bytes })
}

fn no_overlap(tensors: &[TensorInfo]) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for (a, b) in order.iter().zip(order.iter().skip(1)) {
        if b.offset - a.offset < a.bytes {
            let found = format!("{} bytes at {} overlap those at {}", a.bytes, a.offset, b.offset);
            return Err(Error::model(format!("tensors {:?} and {:?}", a.name, b.name), found, ""));
        }
    }
    Ok(())
}
