//! GGUF files: reading without a copy, splitting, writing.
//!
//! [`GgufFile::open`] maps a model of one or several files and checks all of it: magic, version (2 and 3,
//! little-endian), every length, count, kind and type. It also checks that each tensor's data is aligned,
//! within its file and does not overlap another tensor. A file that breaks a rule gives
//! [`Error::InvalidModel`] with the file, the location and the values. For any input bytes, reading does not
//! panic, read out of bounds, or allocate more than a small multiple of the file's size. Strings and arrays
//! stay in the map and are decoded on access.
//!
//! [`GgufWriter`] writes version 3; reading its output gives back equal metadata and tensors.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. This reader is stricter than others
//! in some points: an extent of 0, a tensor of 0 dimensions, an alignment below 8 and overlapping tensors are
//! errors. It is more permissive in others: there may be gaps between tensors, nested arrays are read (8
//! levels deep), and tensor names may have up to 1024 bytes.
//!
//! ```
//! use ggml_core::dtype::DType;
//! use ggml_core::gguf::{GgufFile, GgufWriter};
//!
//! let mut writer = GgufWriter::new();
//! writer.set("general.architecture", "llama")?.set("llama.block_count", 2u32)?;
//! writer.tensor("output_norm.weight", DType::F32, &[4], [0u8; 16].as_slice())?;
//! let file = GgufFile::from_bytes(writer.to_bytes()?)?;
//! assert_eq!(file.metadata().u32("llama.block_count")?, 2);
//! let tensor = file.require("output_norm.weight")?;
//! assert_eq!((tensor.ne, file.data(tensor)?.len()), ([4, 1, 1, 1], 16));
//! # Ok::<(), ggml_core::error::Error>(())
//! ```

mod array;
mod cursor;
mod kind;
mod metadata;
mod reader;
mod split;
mod tensor;
mod value;
mod writer;

pub use array::Array;
pub use kind::Kind;
pub use metadata::Metadata;
pub use reader::SplitFile;
pub use tensor::{MAX_DIMS, MAX_NAME, TensorInfo};
pub use value::Value;
pub use writer::{GgufWriter, TensorData, TensorSink};

use crate::error::{Error, Result};
use crate::mapped::MappedBytes;
use reader::Contents;
use split::SplitName;
use std::collections::HashMap;
use std::path::Path;

/// An open model: one file, or all files of a split one.
#[derive(Clone, Debug)]
pub struct GgufFile {
    parts: Vec<SplitFile>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    positions: HashMap<String, usize>,
}

impl GgufFile {
    /// Maps a model and checks it. `path` may be any part of a split model; all parts are opened.
    ///
    /// The files must not be truncated or written in place during the lifetime of the model or of a handle on
    /// its bytes (see [`MappedBytes::map`]).
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be opened or mapped; [`Error::InvalidModel`] if a file breaks the
    /// format or a part of a split model is missing or does not belong to it. Both name the file.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile> {
        GgufFile::open_by(path.as_ref(), MappedBytes::map)
    }

    /// Reads a model into memory and checks it, as [`GgufFile::open`] does. Later changes of the files do not
    /// matter.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn read(path: impl AsRef<Path>) -> Result<GgufFile> {
        GgufFile::open_by(path.as_ref(), MappedBytes::read)
    }

    fn open_by(path: &Path, bytes: fn(&Path) -> Result<MappedBytes>) -> Result<GgufFile> {
        let contents = reader::read(bytes(path)?, Some(path), 0)?;
        let count = split::count(&contents.metadata)?;
        let contents = if count > 1 { open_parts(path, contents, count, bytes)? } else { vec![contents] };
        GgufFile::assemble(contents).map_err(|e| e.with_path(path))
    }

    /// Checks that all mapped files are as long as they were, see [`MappedBytes::check_length`].
    ///
    /// # Errors
    /// [`Error::Io`] with the file that became shorter.
    pub fn check_length(&self) -> Result<()> {
        let path = |part: &SplitFile| part.path().unwrap_or(Path::new("model")).to_path_buf();
        self.parts.iter().try_for_each(|p| p.bytes().check_length().map_err(|e| Error::io(path(p), e)))
    }

    /// Reads a model of one file from memory. A `Vec` is copied once (to an aligned address); an `Arc<[u8]>`
    /// and [`MappedBytes`] are shared.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the bytes break the format or are one part of a split model.
    pub fn from_bytes(bytes: impl Into<MappedBytes>) -> Result<GgufFile> {
        let contents = reader::read(bytes.into(), None, 0)?;
        match split::count(&contents.metadata)? {
            1 => GgufFile::assemble(vec![contents]),
            count => Err(Error::model("split model", format!("one part of {count}"), "all parts")),
        }
    }

    /// Returns the metadata; for a split model, that of its first part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns all tensors, part by part in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Returns the tensor with a name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.positions.get(name).and_then(|p| self.tensors.get(*p))
    }

    /// Returns a tensor that the model must have.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the tensor is missing.
    pub fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| {
            let error = Error::model(format!("tensor {name:?}"), "missing", "");
            match self.parts.first().and_then(SplitFile::path) {
                Some(path) => error.with_path(path),
                None => error,
            }
        })
    }

    /// Returns the data of a tensor, in the type's block layout.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor does not belong to this model.
    pub fn data(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        let part = self.parts.get(tensor.part).map(SplitFile::bytes);
        let range = tensor.offset..tensor.offset.saturating_add(tensor.bytes);
        part.and_then(|p| p.get(range)).ok_or_else(|| foreign(tensor))
    }

    /// Returns a handle on the data of a tensor. It shares the map, without a copy, and keeps it alive.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor does not belong to this model.
    pub fn share(&self, tensor: &TensorInfo) -> Result<MappedBytes> {
        let range = tensor.offset..tensor.offset.saturating_add(tensor.bytes);
        self.part_bytes(tensor.part)?.slice(range).map_err(|_| foreign(tensor))
    }

    /// Returns the files of the model, at least one.
    pub fn parts(&self) -> &[SplitFile] {
        &self.parts
    }

    /// Returns a handle on all bytes of a part, counted from 0. [`TensorInfo::offset`] is relative to its
    /// start.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such part.
    pub fn part_bytes(&self, part: usize) -> Result<MappedBytes> {
        let missing = || Error::argument("part", part, format!("below {}", self.parts.len()));
        self.parts.get(part).map(|p| p.bytes().clone()).ok_or_else(missing)
    }

    /// Combines the parts; the first one's metadata is the model's.
    fn assemble(contents: Vec<Contents>) -> Result<GgufFile> {
        let mut file = GgufFile {
            parts: Vec::new(),
            metadata: Metadata::new(),
            tensors: Vec::new(),
            positions: HashMap::new(),
        };
        for (number, Contents { part, metadata, tensors }) in contents.into_iter().enumerate() {
            if number == 0 {
                file.metadata = metadata;
            }
            file.parts.push(part);
            for mut tensor in tensors {
                tensor.part = number;
                if file.positions.insert(tensor.name.clone(), file.tensors.len()).is_some() {
                    return Err(Error::model(format!("tensor {:?}", tensor.name), "there twice", ""));
                }
                file.tensors.push(tensor);
            }
        }
        if file.parts.len() > 1 {
            split::check_tensors(&file.metadata, file.tensors.len())?;
        }
        Ok(file)
    }
}

fn foreign(tensor: &TensorInfo) -> Error {
    Error::argument("tensor", format!("{:?}", tensor.name), "one of this model")
}

/// Opens the remaining parts of a split model of which one part is open.
fn open_parts(
    path: &Path,
    opened: Contents,
    count: usize,
    bytes: fn(&Path) -> Result<MappedBytes>,
) -> Result<Vec<Contents>> {
    let Some(name) = SplitName::parse(path).filter(|n| n.count == count) else {
        let expected = format!("\"-00001-of-{count:05}.gguf\", or another part's number, at its end");
        let found = path.file_name().unwrap_or_default().display();
        return Err(Error::model(format!("name of one part of {count}"), found, expected).with_path(path));
    };
    let mut opened = Some(opened);
    let mut parts = Vec::new();
    for number in 0..count {
        let file = name.path(number);
        let contents = match opened.take_if(|_| number == name.number) {
            Some(contents) => contents,
            None if matches!(file.try_exists(), Ok(false)) => {
                let what = format!("part {} of {count} of the model", number + 1);
                return Err(Error::model(what, "missing", "").with_path(file));
            }
            None => reader::read(bytes(&file)?, Some(&file), number)?,
        };
        split::check_part(&contents.metadata, number, count).map_err(|e| e.with_path(&file))?;
        parts.push(contents);
    }
    Ok(parts)
}
