//! Importance matrices: the importance of the columns of weights, as the mean squares of the activations that
//! a model multiplied them by.
//!
//! Two forms are read: GGUF files whose `general.type` is `imatrix`, with tensors `NAME.in_sum2` (sums of
//! squares, one row for each matrix of a stack) and `NAME.counts`, and the older binary form (`.dat`), which
//! has one count for all matrices.

use ggml_core::gguf::{GgufFile, TensorInfo};
use ggml_core::mapped::MappedBytes;
use ggml_core::{DType, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Suffixes of the names of sums and counts.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Maximum length of a text in the older form, in bytes.
const LONGEST: usize = 4096;

/// Importance of the columns of weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    path: PathBuf,
    entries: BTreeMap<String, Vec<f32>>,
    datasets: Vec<String>,
    chunks: u32,
}

impl Importance {
    /// Reads a file of either form.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read; [`Error::InvalidModel`] if it is no importance matrix, if lengths
    /// do not match, or if a sum of squares, a count or their quotient is negative or not finite.
    pub fn open(path: impl AsRef<Path>) -> Result<Importance> {
        let path = path.as_ref();
        let read = Importance::from_bytes(MappedBytes::map(path)?).map_err(|e| e.with_path(path))?;
        Ok(Importance { path: path.to_path_buf(), ..read })
    }

    /// Reads a file of either form from memory; its path is empty.
    ///
    /// # Errors
    /// Errors of [`Importance::open`] except [`Error::Io`].
    pub fn from_bytes(bytes: impl Into<MappedBytes>) -> Result<Importance> {
        let bytes = bytes.into();
        let mut read =
            Importance { path: PathBuf::new(), entries: BTreeMap::new(), datasets: Vec::new(), chunks: 0 };
        match bytes.starts_with(b"GGUF") {
            true => read.gguf(&GgufFile::from_bytes(bytes)?)?,
            false => read.older(&bytes)?,
        }
        Ok(read)
    }

    /// Returns the importance of the columns of a tensor, for each matrix of a stack.
    pub fn of(&self, tensor: &str) -> Option<&[f32]> {
        self.entries.get(tensor).map(Vec::as_slice)
    }

    /// Returns the names of the tensors that it has.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the texts that it was made with, as far as the file records them.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// Returns the number of chunks of text that it was made with.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    fn gguf(&mut self, file: &GgufFile) -> Result<()> {
        let m = file.metadata();
        let kind = m.opt_str("general.type")?.unwrap_or("a model");
        if kind != "imatrix" {
            return Err(Error::model("importance matrix", kind, "a file whose general.type is imatrix"));
        }
        let datasets = m.opt_array_str("imatrix.datasets")?.unwrap_or_default();
        self.datasets = datasets.into_iter().map(str::to_string).collect();
        self.chunks = m.opt_u32("imatrix.chunk_count")?.unwrap_or(0);
        for sums in file.tensors() {
            let Some(name) = sums.name.strip_suffix(SUMS) else { continue };
            let counts = file.require(&format!("{name}{COUNTS}"))?;
            let (rows, columns) = (counts.elements(), sums.ne[0]);
            if sums.elements() != columns * rows {
                let found = format!("{} sums, {rows} counts", sums.elements());
                return Err(Error::model(name, found, "a count for each row of sums"));
            }
            let (counts, mut values) = (floats(file, counts)?, floats(file, sums)?);
            for (row, count) in values.chunks_exact_mut(columns).zip(counts) {
                mean(name, row, count)?;
                if count == 0.0 {
                    row.fill(1.0);
                }
            }
            self.entries.insert(name.to_string(), values);
        }
        self.check_not_empty()
    }

    /// Reads the older form, little-endian: a count of entries; for each entry its name, the number of calls,
    /// the number of values and the values; then optionally the number of chunks and the name of the text. A
    /// text is its length and its bytes.
    fn older(&mut self, bytes: &[u8]) -> Result<()> {
        let mut bytes = Bytes(bytes);
        let foreign =
            || Error::model("importance matrix", "neither GGUF nor .dat", "a file of llama-imatrix");
        for _ in 0..bytes.count(usize::MAX).ok_or_else(foreign)? {
            let name = bytes.text().ok_or_else(foreign)?;
            let (calls, count) = (bytes.number(), bytes.count(usize::MAX));
            let values = count.and_then(|count| bytes.take(count.checked_mul(4)?));
            let (Some(calls), Some(values)) = (calls, values) else {
                return Err(Error::model(name, "the file ends within this entry", ""));
            };
            let mut values: Vec<f32> = values.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            mean(&name, &mut values, calls.max(0) as f32)?;
            self.entries.insert(name, values);
        }
        self.chunks = bytes.number().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        self.datasets = bytes.text().into_iter().collect();
        self.check_not_empty()
    }

    /// Returns an error if no entry was found.
    fn check_not_empty(&self) -> Result<()> {
        match self.entries.is_empty() {
            true => Err(Error::model("importance matrix", "no entries", "")),
            false => Ok(()),
        }
    }
}

/// Divides sums by their count; sums stay unchanged if the count is 0.
fn mean(name: &str, sums: &mut [f32], count: f32) -> Result<()> {
    let wrong = |found: f32, expected: &str| Err(Error::model(name, found, expected));
    let is_legal = |v: &f32| *v >= 0.0 && v.is_finite();
    if !is_legal(&count) {
        return wrong(count, "a count that is finite and not negative");
    }
    for sum in sums {
        if !is_legal(sum) {
            return wrong(*sum, "sums of squares that are finite and not negative");
        }
        if count > 0.0 {
            let mean = *sum / count;
            // The count may be so small that the division overflows.
            if !is_legal(&mean) {
                let found = format!("a mean of {sum:e} / {count:e}");
                return Err(Error::model(name, found, "means that are finite"));
            }
            *sum = mean;
        }
    }
    Ok(())
}

fn floats(file: &GgufFile, t: &TensorInfo) -> Result<Vec<f32>> {
    if t.dtype != DType::F32 {
        return Err(Error::model(format!("tensor {:?}", t.name), t.dtype, "F32"));
    }
    Ok(file.data(t)?.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// Unread rest of the older form.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Reads an integer from 1 to `most`.
    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|n| (1..=most).contains(n))
    }

    fn text(&mut self) -> Option<String> {
        let count = self.count(LONGEST)?;
        String::from_utf8(self.take(count)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::gguf::{Array, GgufWriter, TensorData};

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// Reads a file with the given tensors.
    fn gguf(kind: Option<&str>, parts: &[(&str, &[usize], &[f32])]) -> Result<Importance> {
        let mut writer = GgufWriter::new();
        if let Some(kind) = kind {
            writer.set("general.type", kind).unwrap();
        }
        writer.set("imatrix.chunk_count", 7u32).unwrap();
        writer.set("imatrix.datasets", Array::texts(["some.txt"])).unwrap();
        for (name, shape, values) in parts {
            let data = TensorData::Bytes(f32s(values).into());
            writer.tensor(*name, DType::F32, shape, data).unwrap();
        }
        read(&writer.to_bytes().unwrap())
    }

    /// Reads a file, and checks that reading it from memory gives the same except for the path.
    fn read(bytes: &[u8]) -> Result<Importance> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("imatrix");
        std::fs::write(&path, bytes).unwrap();
        let (read, from_memory) = (Importance::open(&path), Importance::from_bytes(bytes.to_vec()));
        assert_eq!(read.is_ok(), from_memory.is_ok());
        if let (Ok(read), Ok(from_memory)) = (&read, from_memory) {
            assert_eq!((read.path(), from_memory.path()), (&*path, Path::new("")));
            assert_eq!(*read, Importance { path: path.clone(), ..from_memory });
        }
        read
    }

    #[test]
    fn means_of_both_forms() {
        let sums: (&str, &[usize], &[f32]) = ("a.weight.in_sum2", &[3, 2], &[2.0, 4.0, 0.0, 9.0, 9.0, 9.0]);
        // The second matrix had no activations.
        let read_gguf = gguf(Some("imatrix"), &[sums, ("a.weight.counts", &[1, 2], &[4.0, 0.0])]).unwrap();
        assert_eq!(read_gguf.of("a.weight"), Some(&[0.5, 1.0, 0.0, 1.0, 1.0, 1.0][..]));
        assert_eq!(read_gguf.of("b.weight"), None);
        assert_eq!((read_gguf.chunks(), read_gguf.datasets()), (7, &["some.txt".to_string()][..]));

        let text = |text: &str| [(text.len() as i32).to_le_bytes().as_slice(), text.as_bytes()].concat();
        let numbers = |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let first = [text("a.weight"), numbers(&[4, 3]), f32s(&[2.0, 4.0, 0.0])].concat();
        let second = [text("b.weight"), numbers(&[0, 1]), f32s(&[3.0])].concat();
        let end = [numbers(&[7]), text("some.txt")].concat();
        let older = [numbers(&[2]), first, second].concat();
        for (bytes, chunks) in [(older.clone(), 0), ([older.clone(), end].concat(), 7)] {
            let older = read(&bytes).unwrap();
            assert_eq!(older.of("a.weight"), Some(&[0.5, 1.0, 0.0][..]));
            assert_eq!(older.of("b.weight"), Some(&[3.0][..]));
            assert_eq!((older.chunks(), older.datasets().len()), (chunks, usize::from(chunks > 0)));
            assert_eq!(older.tensors().collect::<Vec<_>>(), ["a.weight", "b.weight"]);
        }
        for length in 0..older.len() {
            assert!(matches!(read(&older[..length]), Err(Error::InvalidModel { .. })), "{length}");
        }
    }

    #[test]
    fn broken_files_are_refused_with_the_reason() {
        let sums: (&str, &[usize], &[f32]) = ("a.weight.in_sum2", &[2, 1], &[2.0, 4.0]);
        let one: (&str, &[usize], &[f32]) = ("a.weight.counts", &[1, 1], &[1.0]);
        assert!(gguf(Some("imatrix"), &[sums, one]).is_ok());
        let wrong = |kind: Option<&str>, parts: &[(&str, &[usize], &[f32])], says: &str| {
            let error = gguf(kind, parts).unwrap_err();
            assert!(matches!(error, Error::InvalidModel { path: Some(_), .. }), "{error:?}");
            assert!(error.to_string().contains(says), "{error}");
        };
        wrong(None, &[sums, one], "general.type is imatrix");
        wrong(Some("model"), &[sums, one], "importance matrix: model");
        wrong(Some("imatrix"), &[one], "no entries");
        wrong(Some("imatrix"), &[sums], "\"a.weight.counts\": missing");
        let two: (&str, &[usize], &[f32]) = ("a.weight.counts", &[1, 2], &[1.0, 1.0]);
        wrong(Some("imatrix"), &[sums, two], "a.weight: 2 sums, 2 counts");
        for bad in [-1.0, f32::NAN, f32::INFINITY] {
            wrong(Some("imatrix"), &[("a.weight.in_sum2", &[2, 1], &[2.0, bad]), one], "a.weight: ");
            wrong(Some("imatrix"), &[sums, ("a.weight.counts", &[1, 1], &[bad])], "a count that is finite");
        }
        let tiny = |sums: [f32; 2]| {
            let sums: (&str, &[usize], &[f32]) = ("a.weight.in_sum2", &[2, 1], &sums);
            gguf(Some("imatrix"), &[sums, ("a.weight.counts", &[1, 1], &[1e-40])])
        };
        let error = tiny([0.0, 2.0]).unwrap_err();
        assert!(matches!(error, Error::InvalidModel { path: Some(_), .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("a.weight: a mean of 2e0 / 1e-40") && text.contains("means that are finite"),
            "{text}"
        );
        let means = tiny([0.0, 1e-40]).unwrap();
        assert_eq!(means.of("a.weight"), Some(&[0.0, 1.0][..]), "a small count is no error by itself");
        let foreign = read(b"no matrix at all").unwrap_err().to_string();
        assert!(foreign.contains("neither GGUF nor .dat"), "{foreign}");
        let absent = Importance::open("/none/imatrix.gguf").unwrap_err();
        assert_eq!(absent.io_kind(), Some(std::io::ErrorKind::NotFound));
    }
}
