//! Writer of GGUF files, version 3, little-endian.

use super::array::encode_text;
use super::cursor::as_argument;
use super::metadata::Metadata;
use super::reader::{ALIGNMENT_KEY, MAGIC, MAX_KEY, alignment};
use super::tensor::{Extents, MAX_NAME};
use super::value::Value;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::mapped::MappedBytes;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Block of zeros for the padding between tensors.
const PAD: [u8; 4096] = [0; 4096];

/// Builder of a GGUF file. Metadata and tensors are added first; the bytes of streamed tensors are produced
/// while the file is written.
///
/// Tensor data are written in the order in which tensors were added, each at the next multiple of
/// `general.alignment` (32 unless set). Every GGUF program that supports the types and the name lengths
/// (llama.cpp: 63 bytes) can read the file.
#[derive(Default)]
pub struct GgufWriter<'a> {
    metadata: Metadata,
    tensors: Vec<Tensor<'a>>,
    names: HashSet<String>,
}

struct Tensor<'a> {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
    data: TensorData<'a>,
}

/// Function that produces the data of a tensor in chunks.
type Source<'a> = Box<dyn FnOnce(&mut TensorSink<'_>) -> Result<()> + 'a>;

/// Source of a tensor's bytes.
#[non_exhaustive]
pub enum TensorData<'a> {
    /// All bytes, borrowed or owned.
    Bytes(Cow<'a, [u8]>),
    /// A window on a mapped file or on shared memory.
    Shared(MappedBytes),
    /// Function that is called when the tensor is written. It must put exactly the tensor's bytes into the
    /// sink.
    Stream(Source<'a>),
}

impl<'a> TensorData<'a> {
    /// Wraps a function that produces the data in chunks while the file is written.
    pub fn stream(source: impl FnOnce(&mut TensorSink<'_>) -> Result<()> + 'a) -> TensorData<'a> {
        TensorData::Stream(Box::new(source))
    }

    /// Returns the number of bytes, if known before writing.
    fn len(&self) -> Option<usize> {
        match self {
            TensorData::Bytes(bytes) => Some(bytes.len()),
            TensorData::Shared(bytes) => Some(bytes.len()),
            TensorData::Stream(_) => None,
        }
    }
}

impl<'a> From<&'a [u8]> for TensorData<'a> {
    fn from(bytes: &'a [u8]) -> TensorData<'a> {
        TensorData::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for TensorData<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        TensorData::Bytes(Cow::Owned(bytes))
    }
}

impl From<MappedBytes> for TensorData<'_> {
    fn from(bytes: MappedBytes) -> Self {
        TensorData::Shared(bytes)
    }
}

/// Receiver of the bytes of one streamed tensor.
pub struct TensorSink<'w> {
    out: &'w mut dyn FnMut(&[u8]) -> Result<()>,
    name: &'w str,
    left: usize,
}

impl TensorSink<'_> {
    /// Returns the number of bytes still missing.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are more than the tensor needs; [`Error::Io`] if they cannot be
    /// written.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let more = || {
            let what = format!("data of tensor {:?}", self.name);
            Error::argument(what, format!("{} bytes", bytes.len()), format!("at most {} more", self.left))
        };
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(more)?;
        (self.out)(bytes)
    }
}

impl<'a> GgufWriter<'a> {
    /// Creates a file without metadata and tensors.
    pub fn new() -> GgufWriter<'a> {
        GgufWriter::default()
    }

    /// Sets a metadata value; an existing value of the key is replaced.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the key is empty or longer than 65,535 bytes, or `general.alignment` is
    /// not a power of two of at least 8.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Result<&mut Self> {
        let (key, value) = (key.into(), value.into());
        if key.is_empty() || key.len() > MAX_KEY {
            let found = format!("{} bytes", key.len());
            return Err(Error::argument("metadata key", found, format!("1 to {MAX_KEY} bytes")));
        }
        if key == ALIGNMENT_KEY {
            let mut one = Metadata::new();
            one.insert(ALIGNMENT_KEY, value.clone());
            alignment(&one).map_err(as_argument)?;
        }
        self.metadata.insert(key, value);
        Ok(self)
    }

    /// Copies all values of another file's metadata except the keys of a split model (`split.*`).
    ///
    /// # Errors
    /// As [`GgufWriter::set`].
    pub fn set_all(&mut self, metadata: &Metadata) -> Result<&mut Self> {
        for (key, value) in metadata.iter().filter(|(key, _)| !key.starts_with("split.")) {
            self.set(key, value.clone())?;
        }
        Ok(self)
    }

    /// Sets `general.alignment` in bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is not a power of two of at least 8.
    pub fn alignment(&mut self, bytes: u32) -> Result<&mut Self> {
        self.set(ALIGNMENT_KEY, bytes)
    }

    /// Adds a tensor with 1 to 4 extents `ne` (`ne[0]` contiguous) and data in the block layout of its type.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the name is empty, too long or already used, the shape breaks a rule of
    /// its type, or the size of the data does not match the shape.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        ne: &[usize],
        data: impl Into<TensorData<'a>>,
    ) -> Result<&mut Self> {
        let (name, data) = (name.into(), data.into());
        if name.is_empty() || name.len() > MAX_NAME {
            let found = format!("{} bytes", name.len());
            return Err(Error::argument("name of a tensor", found, format!("1 to {MAX_NAME} bytes")));
        }
        let wrong =
            |(found, expected)| Error::InvalidArgument { what: format!("tensor {name:?}"), found, expected };
        let shape: Vec<u64> = ne.iter().map(|e| *e as u64).collect();
        let bytes = Extents::check(dtype, &shape).map_err(wrong)?.bytes;
        if let Some(len) = data.len().filter(|len| *len != bytes) {
            return Err(wrong((format!("{len} bytes of data"), format!("{bytes} for {dtype} {ne:?}"))));
        }
        if !self.names.insert(name.clone()) {
            return Err(wrong(("there already".into(), String::new())));
        }
        self.tensors.push(Tensor { name, dtype, shape: ne.into(), bytes, data });
        Ok(self)
    }

    /// Writes the file.
    ///
    /// The contents go to a new file in the same folder, which is renamed to `path` at the end. If anything
    /// fails, an existing file stays unchanged. A file that is mapped may be replaced.
    ///
    /// # Errors
    /// [`Error::Io`] with the file; [`Error::InvalidArgument`] if a streamed tensor gets too many or too few
    /// bytes; errors of the source of a streamed tensor.
    pub fn write_to(self, path: impl AsRef<Path>) -> Result<()> {
        let path = target(path.as_ref())?;
        let (temporary, file) = Temporary::create(&path)?;
        let io = |e: std::io::Error| Error::io(&temporary.path, e);
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        self.write(&mut Output { out: &mut buffered, path: &temporary.path, position: 0 })?;
        buffered.into_inner().map_err(|e| io(e.into_error()))?.sync_all().map_err(io)?;
        std::fs::rename(&temporary.path, &path).map_err(|e| Error::io(&path, e))
    }

    /// Returns the file as bytes, for models in memory.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a streamed tensor gets too many or too few bytes; errors of its source.
    pub fn to_bytes(self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(&mut Output { out: &mut bytes, path: Path::new("memory"), position: 0 })?;
        Ok(bytes)
    }

    fn write(self, out: &mut Output<'_>) -> Result<()> {
        let alignment = alignment(&self.metadata)? as u64;
        out.put(&self.header(alignment)?)?;
        out.pad(alignment)?;
        for Tensor { name, bytes, data, .. } in self.tensors {
            match data {
                TensorData::Bytes(bytes) => out.put(&bytes)?,
                TensorData::Shared(bytes) => out.put(&bytes)?,
                TensorData::Stream(source) => out.stream(&name, bytes, source)?,
            }
            // Also after the last tensor: some readers expect the padded size of each.
            out.pad(alignment)?;
        }
        Ok(())
    }

    /// Returns all bytes before the data.
    fn header(&self, alignment: u64) -> Result<Vec<u8>> {
        let mut out = Vec::from(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            encode_text(key.as_bytes(), &mut out);
            out.extend((value.kind() as u32).to_le_bytes());
            value.encode(&mut out);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            encode_text(tensor.name.as_bytes(), &mut out);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            out.extend(tensor.shape.iter().flat_map(|e| (*e as u64).to_le_bytes()));
            out.extend((tensor.dtype as u32).to_le_bytes());
            out.extend(offset.to_le_bytes());
            let end = offset.checked_add(tensor.bytes as u64);
            let next = end.and_then(|end| end.checked_next_multiple_of(alignment));
            offset =
                next.ok_or_else(|| Error::argument("tensors", "too large together", "at most 2^64 bytes"))?;
        }
        Ok(out)
    }
}

/// Output stream with the number of bytes written so far.
struct Output<'w> {
    out: &'w mut dyn Write,
    path: &'w Path,
    position: u64,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| Error::io(self.path, e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self, alignment: u64) -> Result<()> {
        let mut left = self.position.next_multiple_of(alignment) - self.position;
        while left > 0 {
            let piece = PAD.get(..left as usize).unwrap_or(&PAD);
            self.put(piece)?;
            left -= piece.len() as u64;
        }
        Ok(())
    }

    fn stream(&mut self, name: &str, bytes: usize, source: Source<'_>) -> Result<()> {
        let mut sink = TensorSink { out: &mut |piece| self.put(piece), name, left: bytes };
        source(&mut sink)?;
        match sink.left {
            0 => Ok(()),
            left => {
                let what = format!("data of tensor {name:?}");
                Err(Error::argument(what, format!("{} bytes", bytes - left), format!("{bytes} bytes")))
            }
        }
    }
}

/// Resolves links in a path. An existing non-regular file is an error and is not replaced.
fn target(path: &Path) -> Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(there) if there.is_file() => Ok(there),
        Ok(_) => Err(Error::io(path, std::io::Error::other("not a regular file"))),
        Err(_) => Ok(path.into()),
    }
}

/// File that is removed on drop, unless it was renamed.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Creates a new file in the folder of `target`.
    fn create(target: &Path) -> Result<(Temporary, File)> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        if target.file_name().is_none() {
            return Err(Error::argument("path", target.display(), "the name of a file"));
        }
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = target.with_file_name(format!(".{}-{number}.gguf.tmp", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok((Temporary { path }, file)),
                // Left behind by a killed process with the same process ID.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io(target, e)),
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing to remove; a failure to remove cannot be reported from here.
        let _ = std::fs::remove_file(&self.path);
    }
}
