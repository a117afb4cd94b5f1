//! GGUF files that are valid, broken, hostile, split and written by the library itself.

use ggml_core::dtype::DType;
use ggml_core::error::{Error, Result};
use ggml_core::gguf::{Array, GgufFile, GgufWriter, Kind, Metadata, TensorData, Value};
use ggml_core::mapped::MappedBytes;
use proptest::prelude::*;
use std::path::Path;

/// A file made field by field, so that every field can be wrong.
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
    /// Padding to 32 and so many bytes of data.
    fn data(mut self, bytes: usize) -> Raw {
        let end = self.0.len().next_multiple_of(32) + bytes;
        self.0.resize(end, 0);
        self
    }
    fn open(self) -> Result<GgufFile> {
        GgufFile::from_bytes(self.0)
    }
    /// What the reader says against it.
    fn complaint(self) -> String {
        complaint(self.open())
    }
}

#[track_caller]
fn complaint(result: Result<GgufFile>) -> String {
    match result {
        Err(Error::InvalidModel { what, .. }) => what,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// Uses everything that an opened file offers.
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

/// A small file with every kind of value and several types of tensors.
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
fn magic_and_version_are_checked() {
    assert!(Raw(b"GGML\x03\0\0\0".to_vec()).complaint().contains("not a GGUF file"));
    assert!(Raw(b"\x1b]0;\x03\0\0\0".to_vec()).complaint().contains(r#""\x1b]0;""#));
    assert!(Raw::header(1, 0, 0).complaint().contains("version 1"));
    assert!(Raw::header(3u32.swap_bytes(), 0, 0).complaint().contains("big-endian"));
    for version in [0, 4, u32::MAX] {
        assert!(Raw::header(version, 0, 0).complaint().contains("version"));
    }
    for version in [2, 3] {
        let file = Raw::header(version, 0, 0).open().unwrap();
        assert_eq!((file.parts()[0].version(), file.tensors().len()), (version, 0));
    }
}

#[test]
fn counts_and_lengths_are_compared_with_the_file() {
    assert!(Raw::header(3, 1, 0).complaint().contains("tensor count is 1"));
    assert!(Raw::header(3, 0, 1).complaint().contains("metadata count is 1"));
    for n in [1 << 20, 1 << 32, 1 << 60, 1 << 63, u64::MAX] {
        assert!(Raw::header(3, n, 0).complaint().contains("tensor count"), "{n}");
        assert!(Raw::header(3, 0, n).complaint().contains("metadata count"), "{n}");
        assert!(Raw::header(3, 0, 1).u64(n).data(9).complaint().contains("key takes"), "{n}");
        let text = Raw::header(3, 0, 1).pair("k", Kind::Str).u64(n).bytes(b"x");
        assert!(text.complaint().contains("str takes"), "{n}");
        for kind in Kind::ALL {
            let array = Raw::header(3, 0, 1).pair("k", Kind::Array).u32(kind as u32).u64(n);
            assert!(array.complaint().contains("array length"), "{n} {kind}");
        }
        // A count that the bytes could hold, of texts of which one runs past the end.
        let texts =
            Raw::header(3, 0, 1).pair("k", Kind::Array).u32(Kind::Str as u32).u64(1).u64(n).bytes(b"x");
        assert!(texts.complaint().contains("text in array takes"), "{n}");
        let name = Raw::header(3, 1, 0).u64(n).bytes(&[0; 24]);
        assert!(name.complaint().starts_with("tensor 0"), "{n}");
    }
}

#[test]
fn metadata_rules_are_kept() {
    let value = |kind: u32| Raw::header(3, 0, 1).text("k").u32(kind).u64(0).u64(0);
    for kind in [13, 99, u32::MAX] {
        assert!(value(kind).complaint().contains(&format!("kind {kind} is unknown")));
    }
    let twice = Raw::header(3, 0, 2).pair("k", Kind::U32).u32(1).pair("k", Kind::U32).u32(1);
    assert!(twice.complaint().contains(r#""k" is there twice"#));
    assert!(Raw::header(3, 0, 1).pair("k", Kind::Bool).bytes(&[2]).complaint().contains("bool is 2"));
    let bools = Raw::header(3, 0, 1).pair("k", Kind::Array).u32(Kind::Bool as u32).u64(2).bytes(&[1, 3]);
    assert!(bools.complaint().contains("bool in array is 3"));
    assert!(Raw::header(3, 0, 1).pair("", Kind::U32).u32(1).complaint().contains("key of 0 bytes"));
    let long = "k".repeat(65_536);
    assert!(Raw::header(3, 0, 1).pair(&long, Kind::U32).u32(1).complaint().contains("key of 65536 bytes"));
    let no_utf8 = Raw::header(3, 0, 1).u64(1).bytes(&[0xff]).u32(4).u32(1);
    assert!(no_utf8.complaint().contains("not UTF-8"));
    let mut deep = Raw::header(3, 0, 1).pair("k", Kind::Array);
    for _ in 0..10_000 {
        deep = deep.u32(Kind::Array as u32).u64(1);
    }
    assert!(deep.u32(0).u64(0).complaint().contains("nested deeper"));
    // Texts that are not UTF-8 are no error of the file.
    let text = Raw::header(3, 0, 1).pair("k", Kind::Str).u64(1).bytes(&[0xff]).open().unwrap();
    assert_eq!(text.metadata().bytes("k").unwrap(), [0xff]);
    assert!(text.metadata().str("k").is_err());
}

#[test]
fn alignment_is_a_power_of_two_from_8() {
    let with =
        |a: u32| Raw::header(3, 1, 1).pair("general.alignment", Kind::U32).u32(a).tensor("w", &[4], 0, 0);
    for a in [0, 1, 3, 4, 24, u32::MAX] {
        assert!(with(a).data(64).complaint().contains("not a power of two"), "{a}");
    }
    assert!(with(1 << 31).data(64).complaint().contains("not within"));
    for a in [8, 16, 32, 64] {
        exercise(&with(a).data(64).open().unwrap());
    }
    let none = Raw::header(3, 0, 1).pair("general.alignment", Kind::U32).u32(1 << 31).open().unwrap();
    assert_eq!((none.parts()[0].alignment(), none.parts()[0].data_start()), (1 << 31, 1 << 31));
    let float = Raw::header(3, 0, 1).pair("general.alignment", Kind::F32).bytes(&32f32.to_le_bytes());
    assert!(float.complaint().contains("expected u32, found f32"));
}

#[test]
fn tensor_rules_are_kept() {
    let one = |shape: &[u64], dtype: u32, offset: u64| {
        Raw::header(3, 1, 0).tensor("blk.0.w", shape, dtype, offset).data(64).complaint()
    };
    for number in [4, 5, 31, 36, 41, 1 << 31, u32::MAX] {
        let what = one(&[32], number, 0);
        assert!(what.contains(&format!("unknown type {number}")) && what.contains("blk.0.w"), "{what}");
    }
    assert!(one(&[], 0, 0).contains("0 dimensions"));
    assert!(one(&[1, 1, 1, 1, 1], 0, 0).contains("5 dimensions"));
    assert!(one(&[1, 0], 0, 0).contains("extent of 0"));
    assert!(one(&[33], DType::Q8_0 as u32, 0).contains("block of 32"));
    assert!(one(&[u64::MAX], 0, 0).contains("too large"));
    assert!(one(&[1 << 32, 1 << 32], 0, 0).contains("too large"));
    assert!(one(&[1 << 20, 1 << 20, 1 << 20, 1 << 4], 24, 0).contains("too large"));
    assert!(one(&[1 << 40], 0, 0).contains("not within"));
    assert!(one(&[17], 0, 0).contains("not within"));
    assert!(one(&[1], 0, 64).contains("not within"));
    assert!(one(&[1], 0, u64::MAX).contains("not within"));
    assert!(one(&[1], 0, u64::MAX - 63).contains("not within"));
    assert!(one(&[1], 0, 8).contains("no multiple of the alignment"));
    let dims = Raw::header(3, 1, 0).text("w").u32(u32::MAX).u64(1).u32(0).u64(0).data(64);
    assert!(dims.complaint().contains("4294967295 dimensions"));
    let names = |name: &str| Raw::header(3, 1, 0).tensor(name, &[1], 0, 0).data(64);
    assert!(names("").complaint().contains("name of 0 bytes"));
    assert!(names(&"n".repeat(1025)).complaint().contains("name of 1025 bytes"));
    exercise(&names(&"n".repeat(1024)).open().unwrap());
}

#[test]
fn tensors_keep_apart() {
    let two = |a: &str, ao, b: &str, bo| {
        Raw::header(3, 2, 0).tensor(a, &[16], 0, ao).tensor(b, &[9], 0, bo).data(256)
    };
    assert!(two("a", 0, "a", 64).complaint().contains(r#""a" is there twice"#));
    for (a, b) in [(0, 0), (0, 32), (32, 0), (64, 32)] {
        assert!(two("a", a, "b", b).complaint().contains("overlap"), "{a} {b}");
    }
    // Any order and gaps are fine.
    for (a, b) in [(0, 64), (64, 0), (0, 192), (128, 0)] {
        exercise(&two("a", a, "b", b).open().unwrap());
    }
}

/// Writes part `number` (from 0) of `count` with one tensor.
fn write_part(folder: &Path, number: u16, count: u16, tensors: i32) -> std::path::PathBuf {
    let path = folder.join(format!("m-{:05}-of-{count:05}.gguf", number + 1));
    let mut w = GgufWriter::new();
    w.set("split.no", number).unwrap().set("split.count", count).unwrap();
    w.set("split.tensors.count", tensors).unwrap();
    if number == 0 {
        w.set("general.name", "in parts").unwrap();
    }
    w.tensor(format!("w{number}"), DType::F32, &[2], vec![number as u8; 8]).unwrap();
    w.write_to(&path).unwrap();
    path
}

#[test]
fn split_models_open_from_any_part() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|n| write_part(dir.path(), n, 3, 3)).collect();
    for path in &paths {
        let file = GgufFile::open(path).unwrap();
        exercise(&file);
        assert_eq!(file.metadata().str("general.name").unwrap(), "in parts");
        let names: Vec<_> = file.tensors().iter().map(|t| (t.name.as_str(), t.part)).collect();
        assert_eq!(names, [("w0", 0), ("w1", 1), ("w2", 2)]);
        assert_eq!(file.data(file.require("w2").unwrap()).unwrap(), [2; 8]);
        assert_eq!(file.parts().iter().map(|p| p.path().unwrap()).collect::<Vec<_>>(), paths);
        assert!(file.part_bytes(2).unwrap().is_mapped());
    }
    assert!(complaint(GgufFile::from_bytes(std::fs::read(&paths[0]).unwrap())).contains("one part of 3"));
    let mut copy = GgufWriter::new();
    copy.set_all(GgufFile::open(&paths[0]).unwrap().metadata()).unwrap();
    assert_eq!(GgufFile::from_bytes(copy.to_bytes().unwrap()).unwrap().metadata().len(), 1);
}

#[test]
fn split_models_with_wrong_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|n| write_part(dir.path(), n, 3, 3)).collect();
    let refused = |says: &str, names: &Path| match GgufFile::open(&paths[0]) {
        Err(Error::InvalidModel { path: Some(path), what, .. }) => {
            assert!(what.contains(says), "{what}");
            assert_eq!(path, names);
        }
        other => panic!("{other:?}"),
    };
    std::fs::remove_file(&paths[1]).unwrap();
    refused("part 2 of 3 of the model is missing", &paths[1]);
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    refused("expected part 2 of 3, the file says that it is part 3 of 3", &paths[1]);
    write_part(dir.path(), 1, 3, 3);
    std::fs::write(&paths[2], sample()).unwrap();
    refused("\"split.no\": missing", &paths[2]);
    write_part(dir.path(), 2, 3, 3);
    write_part(dir.path(), 0, 3, 4);
    refused("split.tensors.count is 4", &paths[0]);
    let renamed = dir.path().join("other.gguf");
    std::fs::copy(&paths[0], &renamed).unwrap();
    assert!(complaint(GgufFile::open(&renamed)).contains("one part of 3"));
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

#[test]
fn writer_refuses_what_the_reader_would_refuse() {
    let mut w = GgufWriter::new();
    let refused = |r: Result<&mut GgufWriter<'_>>| matches!(r, Err(Error::InvalidArgument { .. }));
    assert!(refused(w.set("", 1u8)) && refused(w.set("k".repeat(65_536), 1u8)));
    assert!(refused(w.alignment(24)) && refused(w.set("general.alignment", "32")));
    assert!(refused(w.tensor("", DType::F32, &[1], vec![0; 4])));
    assert!(refused(w.tensor("n".repeat(1025), DType::F32, &[1], vec![0; 4])));
    assert!(refused(w.tensor("w", DType::F32, &[1], vec![0; 5])));
    assert!(refused(w.tensor("w", DType::F32, &[], vec![0; 4])));
    assert!(refused(w.tensor("w", DType::Q4_K, &[128], vec![0; 72])));
    assert!(refused(w.tensor("w", DType::F32, &[usize::MAX, 2], vec![0; 4])));
    w.tensor("w", DType::F32, &[1], vec![0; 4]).unwrap();
    assert!(refused(w.tensor("w", DType::F32, &[1], vec![0; 4])));
    assert_eq!(GgufFile::from_bytes(w.to_bytes().unwrap()).unwrap().tensors().len(), 1);
}

#[test]
fn a_failed_write_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, sample()).unwrap();
    let before = GgufFile::open(&path).unwrap();
    let write = |pieces: usize| {
        let mut w = GgufWriter::new();
        let data = TensorData::stream(move |sink| (0..pieces).try_for_each(|_| sink.put(&[9; 8])));
        w.tensor("w", DType::F32, &[4], data).unwrap();
        w.write_to(&path)
    };
    for pieces in [0, 1, 3] {
        assert!(matches!(write(pieces), Err(Error::InvalidArgument { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), sample());
    }
    write(2).unwrap();
    assert_eq!(GgufFile::open(&path).unwrap().tensors().len(), 1);
    // The old file is still mapped, and nothing else is left in the folder.
    exercise(&before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(matches!(GgufWriter::new().write_to(dir.path()), Err(Error::Io { .. })));
    assert!(matches!(GgufWriter::new().write_to(dir.path().join("no/m.gguf")), Err(Error::Io { .. })));
    assert!(GgufWriter::new().write_to("/").is_err());
}

fn values() -> impl Strategy<Value = Value> {
    let text = || proptest::collection::vec(any::<u8>(), 0..12);
    let arrays = prop_oneof![
        proptest::collection::vec(any::<i32>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<u64>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<f32>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(any::<bool>(), 0..9).prop_map(|v| Array::from(v.as_slice())),
        proptest::collection::vec(text(), 0..9).prop_map(Array::texts),
    ];
    let nested = proptest::collection::vec(arrays.boxed(), 0..4).prop_map(|v| Array::nested(&v).unwrap());
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        text().prop_map(|t| Value::from(t.as_slice())),
        nested.prop_map(Value::from),
    ]
}

/// Type, extents (`ne[0]` in blocks) and how the data are given.
fn tensors() -> impl Strategy<Value = Vec<(DType, Vec<usize>, u8)>> {
    let all: Vec<DType> = ggml_core::dtype::DTYPES.iter().map(|i| i.dtype).collect();
    let one = (proptest::sample::select(all), proptest::collection::vec(1..4usize, 1..5), 0..3u8);
    proptest::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(
        pairs in proptest::collection::btree_map("[a-z._é]{1,12}", values(), 0..8),
        tensors in tensors(),
        alignment in proptest::sample::select(vec![None, Some(8u32), Some(64), Some(8192)]),
    ) {
        let mut metadata = Metadata::new();
        pairs.into_iter().for_each(|(key, value)| { metadata.insert(key, value); });
        alignment.map(|a| metadata.insert("general.alignment", a));
        let mut w = GgufWriter::new();
        w.set_all(&metadata).unwrap();
        let mut expected = Vec::new();
        for (i, (dtype, mut ne, how)) in tensors.into_iter().enumerate() {
            ne[0] *= dtype.block();
            let bytes = dtype.row_bytes(ne.iter().product()).unwrap();
            let data: Vec<u8> = (0..bytes).map(|b| (b * 31 + i) as u8).collect();
            let copy = data.clone();
            let given: TensorData<'_> = match how {
                0 => data.clone().into(),
                1 => MappedBytes::from(data.clone()).into(),
                _ => TensorData::stream(move |sink| copy.chunks(7).try_for_each(|piece| sink.put(piece))),
            };
            w.tensor(format!("t{i}"), dtype, &ne, given).unwrap();
            expected.push((dtype, ne, data));
        }
        let file = GgufFile::from_bytes(w.to_bytes().unwrap()).unwrap();
        exercise(&file);
        prop_assert_eq!(file.metadata(), &metadata);
        let read: Vec<_> = file
            .tensors()
            .iter()
            .map(|t| (t.dtype, t.shape().to_vec(), file.data(t).unwrap().to_vec()))
            .collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn random_bytes_are_harmless(tail in proptest::collection::vec(any::<u8>(), 0..512), n in 0..4u64, m in 0..4u64) {
        let _ = GgufFile::from_bytes(tail.as_slice()).map(|f| exercise(&f));
        let _ = Raw::header(3, n, m).bytes(&tail).open().map(|f| exercise(&f));
    }

    #[test]
    fn random_changes_are_harmless(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
        truncate in proptest::bool::weighted(0.2),
    ) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = GgufFile::from_bytes(bytes).map(|f| exercise(&f));
    }
}
