//! Models in several files.

use super::{exercise, refused, sample};
use ggml_core::gguf::{GgufFile, GgufWriter};
use ggml_core::{DType, Error};
use std::path::{Path, PathBuf};

/// Writes part `number` (from 0) of `count` with one tensor.
fn write_part(folder: &Path, number: u16, count: u16, tensors: i32) -> PathBuf {
    let path = folder.join(format!("m-{:05}-of-{count:05}.gguf", number + 1));
    write_part_to(path, number, count, tensors)
}

fn write_part_to(path: PathBuf, number: u16, count: u16, tensors: i32) -> PathBuf {
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
    let alone = GgufFile::from_bytes(std::fs::read(&paths[0]).unwrap());
    refused(alone, "split model", "one part of 3", "all parts");
    let mut copy = GgufWriter::new();
    copy.set_all(GgufFile::open(&paths[0]).unwrap().metadata()).unwrap();
    assert_eq!(GgufFile::from_bytes(copy.to_bytes().unwrap()).unwrap().metadata().len(), 1);
}

#[test]
fn split_models_with_wrong_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|n| write_part(dir.path(), n, 3, 3)).collect();
    let refused = |names: &Path, fields: [&str; 3]| match GgufFile::open(&paths[0]) {
        Err(Error::InvalidModel { path: Some(path), what, found, expected }) => {
            assert_eq!([what, found, expected], fields);
            assert_eq!(path, names);
        }
        other => panic!("{other:?}"),
    };
    std::fs::remove_file(&paths[1]).unwrap();
    refused(&paths[1], ["part 2 of 3 of the model", "missing", ""]);
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    refused(&paths[1], ["part of the model", "part 3 of 3", "part 2 of 3"]);
    write_part(dir.path(), 1, 3, 3);
    std::fs::write(&paths[2], sample()).unwrap();
    refused(&paths[2], [r#"metadata key "split.no""#, "missing", "u16"]);
    write_part(dir.path(), 2, 3, 3);
    write_part(dir.path(), 0, 3, 4);
    refused(&paths[0], ["tensors of all parts", "3", "4, as split.tensors.count says"]);
    let renamed = dir.path().join("other.gguf");
    std::fs::copy(&paths[0], &renamed).unwrap();
    match GgufFile::open(&renamed) {
        Err(Error::InvalidModel { what, found, expected, .. }) => {
            assert_eq!([what.as_str(), &found], ["name of one part of 3", "other.gguf"]);
            assert!(expected.starts_with(r#""-00001-of-00003.gguf""#), "{expected}");
        }
        other => panic!("{other:?}"),
    }
}

/// The name of a split model is bytes, not text.
#[cfg(target_os = "linux")]
#[test]
fn split_models_may_have_names_that_are_not_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let path = |number: u16| {
        let name = [b"n\xff\xc3", format!("-{:05}-of-00002.gguf", number + 1).as_bytes()].concat();
        dir.path().join(OsStr::from_bytes(&name))
    };
    let paths = [0, 1].map(|number| write_part_to(path(number), number, 2, 2));
    for path in &paths {
        let file = GgufFile::open(path).unwrap();
        assert_eq!(file.parts().iter().map(|part| part.path().unwrap()).collect::<Vec<_>>(), paths);
    }
}
