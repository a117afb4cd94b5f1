//! GGUF files: valid, broken, malicious, split, and written by the library itself.

use ggml_core::dtype::DType;
use ggml_core::error::{Error, Result};
use ggml_core::gguf::{Array, GgufFile, GgufWriter, Kind};

mod properties;
mod rules;
mod split;
mod writer;

/// A file built field by field, so that every field can be wrong.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn header(version: u32, tensors: u64, pairs: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(pairs)
    }
    fn u32(mut self, v: u32) -> Raw {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Raw {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn bytes(mut self, v: &[u8]) -> Raw {
        self.0.extend(v);
        self
    }
    fn text(self, v: &str) -> Raw {
        self.u64(v.len() as u64).bytes(v.as_bytes())
    }
    fn pair(self, key: &str, kind: Kind) -> Raw {
        self.text(key).u32(kind as u32)
    }
    fn tensor(mut self, name: &str, shape: &[u64], dtype: u32, offset: u64) -> Raw {
        self = self.text(name).u32(shape.len() as u32);
        for extent in shape {
            self = self.u64(*extent);
        }
        self.u32(dtype).u64(offset)
    }
    /// Adds padding to 32 and `bytes` bytes of data.
    fn data(mut self, bytes: usize) -> Raw {
        let end = self.0.len().next_multiple_of(32) + bytes;
        self.0.resize(end, 0);
        self
    }
    fn open(self) -> Result<GgufFile> {
        GgufFile::from_bytes(self.0)
    }
    /// Checks that the file is rejected with these error fields.
    #[track_caller]
    fn refused(self, what: &str, found: &str, expected: &str) {
        refused(self.open(), what, found, expected);
    }
}

/// Checks the fields of the error; `what` may be followed by the offset.
#[track_caller]
fn refused(result: Result<GgufFile>, what: &str, found: &str, expected: &str) {
    match result {
        Err(Error::InvalidModel { what: w, found: f, expected: e, .. }) => {
            assert!(w == what || w.starts_with(&format!("{what} at byte ")), "{w}");
            assert_eq!([f.as_str(), e.as_str()], [found, expected], "{w}");
        }
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// Calls all accessors of an opened file.
fn exercise(file: &GgufFile) {
    for (key, value) in file.metadata().iter() {
        let _ = (value.to_string(), value.as_integer(), value.as_float(), value.as_str(), value.as_bytes());
        let _ = (file.metadata().u32(key), file.metadata().array_i32(key), file.metadata().array_str(key));
        if let Some(array) = value.as_array() {
            assert_eq!(array.values().count(), array.len());
        }
    }
    for tensor in file.tensors() {
        assert_eq!(file.tensor(&tensor.name), Some(tensor));
        assert_eq!(file.data(tensor).unwrap().len(), tensor.bytes);
        assert_eq!(*file.share(tensor).unwrap(), *file.data(tensor).unwrap());
        assert_eq!(tensor.shape().iter().product::<usize>(), tensor.elements());
    }
}

/// Builds a small file with every kind of value and several types of tensors.
fn sample() -> Vec<u8> {
    let mut w = GgufWriter::new();
    w.set("general.architecture", "llama").unwrap().alignment(16).unwrap();
    w.set("a.u8", 1u8).unwrap().set("a.i8", -1i8).unwrap().set("a.u16", 2u16).unwrap();
    w.set("a.i16", -2i16).unwrap().set("a.u32", 3u32).unwrap().set("a.i32", -3i32).unwrap();
    w.set("a.u64", 4u64).unwrap().set("a.i64", -4i64).unwrap().set("a.f32", 0.5f32).unwrap();
    w.set("a.f64", 0.25f64).unwrap().set("a.bool", true).unwrap();
    w.set("v.words", Array::texts(["a", "bc", ""])).unwrap();
    w.set("v.scores", Array::from(&[1f32, 2.0][..])).unwrap();
    w.set("v.flags", Array::from(&[true, false][..])).unwrap();
    let inner = [Array::from(&[1u8, 2][..]), Array::texts(["x"])];
    w.set("v.nested", Array::nested(&inner).unwrap()).unwrap();
    w.tensor("w", DType::Q8_0, &[32, 2], vec![7; 68]).unwrap();
    w.tensor("n", DType::F32, &[3], vec![1; 12]).unwrap();
    w.tensor("t", DType::F16, &[2, 1, 2, 1], vec![2; 8]).unwrap();
    w.to_bytes().unwrap()
}

#[test]
fn sample_reads_back() {
    let file = GgufFile::from_bytes(sample()).unwrap();
    exercise(&file);
    let m = file.metadata();
    assert_eq!((m.len(), m.str("general.architecture").unwrap(), m.u8("a.u64").unwrap()), (17, "llama", 4));
    assert_eq!((m.i64("a.i8").unwrap(), m.f64("a.f32").unwrap(), m.bool("a.bool").unwrap()), (-1, 0.5, true));
    assert_eq!(m.array_str("v.words").unwrap(), ["a", "bc", ""]);
    assert_eq!(m.array_bool("v.flags").unwrap(), [true, false]);
    assert_eq!((file.parts()[0].version(), file.parts()[0].alignment()), (3, 16));
    let t = file.require("t").unwrap();
    assert_eq!((t.dtype, t.ne, t.n_dims, t.bytes, t.offset % 16), (DType::F16, [2, 1, 2, 1], 4, 8, 0));
    assert!(matches!(file.require("none"), Err(Error::InvalidModel { .. })));
    let mut foreign = t.clone();
    foreign.offset = usize::MAX;
    assert!(matches!(file.data(&foreign), Err(Error::InvalidArgument { .. })));
    assert!(matches!(file.share(&foreign), Err(Error::InvalidArgument { .. })));
    foreign.part = 1;
    assert!(file.data(&foreign).is_err() && file.part_bytes(1).is_err());
}

#[test]
fn every_prefix_is_refused() {
    let bytes = sample();
    let last = GgufFile::from_bytes(bytes.clone()).unwrap().tensors()[2].clone();
    for n in 0..bytes.len() {
        match GgufFile::from_bytes(&bytes[..n]) {
            Ok(file) => {
                assert!(n >= last.offset + last.bytes, "{n} bytes are enough");
                exercise(&file);
            }
            Err(e) => {
                assert!(n < last.offset + last.bytes, "{n}: {e}");
                assert!(matches!(e, Error::InvalidModel { .. }), "{n}: {e:?}");
            }
        }
    }
}

#[test]
fn no_wrong_byte_and_no_wrong_number_gets_through_unchecked() {
    let bytes = sample();
    let open = |changed: &[u8]| {
        let _ = GgufFile::from_bytes(changed).map(|file| exercise(&file));
    };
    for at in 0..bytes.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1), bytes[at] ^ 0x80] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            open(&changed);
        }
        for number in [1 << 63, u64::MAX, u64::MAX - 7, 1 << 61, 1 << 40, 1 << 32, bytes.len() as u64] {
            let mut changed = bytes.clone();
            let end = (at + 8).min(bytes.len());
            changed[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            open(&changed);
        }
    }
}

#[test]
fn errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    assert!(matches!(GgufFile::open(&path), Err(Error::Io { .. })));
    for bytes in [&b""[..], b"GGUF", &sample()[..100]] {
        std::fs::write(&path, bytes).unwrap();
        let error = GgufFile::open(&path).unwrap_err();
        assert!(matches!(&error, Error::InvalidModel { path: Some(p), .. } if *p == path), "{error:?}");
    }
    std::fs::write(&path, sample()).unwrap();
    let file = GgufFile::open(&path).unwrap();
    exercise(&file);
    assert!(file.metadata().u32("none").unwrap_err().to_string().contains("m.gguf"));
    // A handle outlives the model.
    let weights = file.share(file.require("w").unwrap()).unwrap();
    drop(file);
    assert_eq!(*weights, [7; 68]);
}
