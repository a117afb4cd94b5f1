//! GGUF files with their weights in other types.
//!
//! Weights are read where they lie, decoded and encoded some rows at a time on all cores, and written at once, so that memory
//! holds a few megabytes of them whatever their size. The file has its name at the end only: where anything fails or the
//! work is cancelled, what was there stays as it was.

mod mix;

pub use mix::Mix;

use crate::generate::Cancel;
use ggml_core::decode::decode;
use ggml_core::encode::{Effort, encode_with};
use ggml_core::gguf::{GgufFile, GgufWriter, Metadata, TensorData, TensorInfo, TensorSink};
use ggml_core::{DType, Error, Result};
use mix::Model;
use rayon::prelude::*;
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;

/// Values that a thread has at a time.
const CHUNK: usize = 1 << 16;

/// Chunks that are made in parallel before they are written.
const GROUP: usize = 64;

/// Bytes of a tensor that stays as it is, written at a time.
const PIECE: usize = 16 << 20;

/// The version of the block layouts, which all files say.
const LAYOUTS: u32 = 2;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all tensors before.
    pub before: u64,
    /// Bytes of all tensors now.
    pub after: u64,
    /// Types in the order of their numbers, each with its tensors.
    pub types: Vec<(DType, usize)>,
}

/// How far the work is, and whether it goes on.
struct Watch<'a> {
    path: &'a Path,
    cancel: &'a Cancel,
    progress: &'a dyn Fn(u64, u64),
    done: Cell<u64>,
    total: u64,
}

impl Watch<'_> {
    /// Some more bytes of the weights were read.
    ///
    /// # Errors
    /// [`Error::Io`] of the kind [`ErrorKind::Interrupted`] where the work is cancelled.
    fn advance(&self, bytes: usize) -> Result<()> {
        if self.cancel.is_set() {
            return Err(Error::io(self.path, ErrorKind::Interrupted));
        }
        self.done.set(self.done.get() + bytes as u64);
        (self.progress)(self.done.get(), self.total);
        Ok(())
    }
}

/// Writes a file with the weights of another in the types of a mix, or where `pure` is said all matrices in its main type.
/// `progress` is told bytes of the weights that are done, and bytes in all.
///
/// # Errors
/// [`Error::InvalidModel`] for weights of a type without a decoder; [`Error::Io`], of the kind [`ErrorKind::Interrupted`]
/// where `cancel` says so.
pub fn quantize(
    input: &GgufFile,
    out: &Path,
    mix: &Mix,
    pure: bool,
    cancel: &Cancel,
    progress: &dyn Fn(u64, u64),
) -> Result<Summary> {
    let total = input.tensors().iter().map(|t| t.bytes as u64).sum();
    let watch = Watch { path: out, cancel, progress, done: Cell::new(0), total };
    let model = Model::new(input);
    let mut writer = GgufWriter::new();
    writer.set_all(&metadata(input, mix))?;
    let mut summary = Summary { before: total, after: 0, types: Vec::new() };
    for t in input.tensors() {
        let dtype = if pure { mix.pure(t) } else { mix.of(t, &model) };
        let rows = t.elements() / t.ne[0];
        summary.after += (dtype.row_bytes(t.ne[0]).unwrap_or(0) * rows) as u64;
        match summary.types.iter_mut().find(|(of, _)| *of == dtype) {
            Some((_, count)) => *count += 1,
            None => summary.types.push((dtype, 1)),
        }
        let watch = &watch;
        let data = TensorData::stream(move |sink| contents(input, t, dtype, watch, sink));
        writer.tensor(t.name.clone(), dtype, t.shape(), data)?;
    }
    summary.types.sort();
    writer.write_to(out)?;
    Ok(summary)
}

/// What a file says of itself, with the name of the mix; without one where the mix has no number.
fn metadata(input: &GgufFile, mix: &Mix) -> Metadata {
    let mut all = Metadata::new();
    for (key, value) in input.metadata().iter().filter(|(key, _)| *key != "general.file_type") {
        all.insert(key, value.clone());
    }
    all.insert("general.quantization_version", LAYOUTS);
    if let Some(number) = mix.file_type() {
        all.insert("general.file_type", number);
    }
    all
}

/// Puts the contents of a tensor in another type.
fn contents(
    input: &GgufFile,
    t: &TensorInfo,
    dtype: DType,
    watch: &Watch<'_>,
    sink: &mut TensorSink<'_>,
) -> Result<()> {
    let data = input.data(t)?;
    if dtype == t.dtype {
        return data.chunks(PIECE).try_for_each(|piece| {
            watch.advance(piece.len())?;
            sink.put(piece)
        });
    }
    let (columns, row_bytes) = (t.ne[0], data.len() / (t.elements() / t.ne[0]).max(1));
    let chunk = (CHUNK / columns).max(1) * row_bytes;
    for group in data.chunks(chunk * GROUP) {
        watch.advance(group.len())?;
        let make = |rows: &[u8]| encode_with(dtype, columns, &decode(t.dtype, rows)?, Effort::Search);
        let encoded = group.par_chunks(chunk).map(make).collect::<Result<Vec<_>>>()?;
        encoded.iter().try_for_each(|bytes| sink.put(bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthesize::{self, Shape};

    fn file(shape: &Shape) -> GgufFile {
        GgufFile::from_bytes(synthesize::bytes(shape, 5).unwrap()).unwrap()
    }

    fn shape() -> Shape {
        // Rows of 256 for K-quants, and of 64, which they do not fit.
        let small = Shape { layers: 2, vocabulary: 300, embedding: 256, ..Shape::small("llama") };
        Shape { feed_forward: 320, ..small.with_type(DType::F16) }
    }

    fn quantized(input: &GgufFile, name: &str, pure: bool) -> GgufFile {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gguf");
        let last = Cell::new((0, 0));
        let mix = Mix::named(name).unwrap();
        let summary =
            quantize(input, &path, &mix, pure, &Cancel::default(), &|done, total| last.set((done, total)))
                .unwrap();
        assert_eq!(last.get(), (summary.before, summary.before), "{name}");
        let out = GgufFile::open(&path).unwrap();
        assert_eq!(out.tensors().iter().map(|t| t.bytes as u64).sum::<u64>(), summary.after, "{name}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{name}");
        out
    }

    /// Each tensor has the bytes that the encoder makes of its values; a second time nothing changes.
    #[test]
    fn tensors_are_what_their_encoders_make_of_them() {
        let input = file(&shape());
        for name in Mix::names() {
            let out = quantized(&input, name, false);
            for (a, b) in input.tensors().iter().zip(out.tensors()) {
                assert_eq!((&a.name, a.ne), (&b.name, b.ne), "{name}");
                let values = decode(a.dtype, input.data(a).unwrap()).unwrap();
                let want = match a.dtype == b.dtype {
                    true => input.data(a).unwrap().to_vec(),
                    false => encode_with(b.dtype, a.ne[0], &values, Effort::Search).unwrap(),
                };
                assert_eq!(out.data(b).unwrap(), want, "{name} {}", a.name);
            }
        }
        let once = quantized(&input, "Q4_K_M", false);
        let twice = quantized(&once, "Q4_K_M", false);
        assert!(
            once.tensors()
                .iter()
                .zip(twice.tensors())
                .all(|(a, b)| once.data(a).unwrap() == twice.data(b).unwrap())
        );
    }

    /// Wherever it is cancelled, and whatever was there before.
    #[test]
    fn what_is_cancelled_leaves_nothing() {
        let input = file(&shape());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gguf");
        let mix = Mix::named("Q4_K_M").unwrap();
        let count = Cell::new(0);
        let all = Cancel::default();
        quantize(&input, &path, &mix, false, &all, &|_, _| count.set(count.get() + 1)).unwrap();
        let before = std::fs::read(&path).unwrap();
        for there in [true, false] {
            if !there {
                std::fs::remove_file(&path).unwrap();
            }
            for stop in [0, 1, count.get() / 2, count.get() - 1] {
                let (cancel, calls) = (Cancel::default(), Cell::new(0));
                let progress = |_, _| {
                    calls.set(calls.get() + 1);
                    if calls.get() >= stop {
                        cancel.cancel();
                    }
                };
                if stop == 0 {
                    cancel.cancel();
                }
                let error = quantize(&input, &path, &mix, false, &cancel, &progress).unwrap_err();
                assert_eq!(error.io_kind(), Some(ErrorKind::Interrupted), "{error}");
                let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
                assert_eq!(files.len(), usize::from(there), "{files:?}");
                assert!(!there || std::fs::read(&path).unwrap() == before);
            }
        }
    }

    #[test]
    fn what_needs_a_matrix_of_importance_is_refused() {
        for name in ["IQ1_S", "IQ2_XXS", "IQ3_S"] {
            let error = Mix::named(name).unwrap_err().to_string();
            assert!(error.contains("importance matrix"), "{error}");
        }
        let error = Mix::named("Q9").unwrap_err().to_string();
        assert!(error.contains("Q4_K_M") && !error.contains("importance"), "{error}");
    }
}
