//! Errors of the writer, and the files that remain after a failure.

use super::{exercise, sample};
use ggml_core::gguf::{GgufFile, GgufWriter, TensorData};
use ggml_core::{DType, Error, Result};

#[test]
fn writer_refuses_what_the_reader_would_refuse() {
    #[track_caller]
    fn refused<T>(result: Result<T>, fields: [&str; 3]) {
        match result {
            Err(Error::InvalidArgument { what, found, expected }) => {
                assert_eq!([what, found, expected], fields);
            }
            Err(other) => panic!("another error: {other:?}"),
            Ok(_) => panic!("no error"),
        }
    }
    let mut w = GgufWriter::new();
    refused(w.set("", 1u8), ["metadata key", "0 bytes", "1 to 65535 bytes"]);
    refused(w.set("k".repeat(65_536), 1u8), ["metadata key", "65536 bytes", "1 to 65535 bytes"]);
    let key = r#"metadata key "general.alignment""#;
    refused(w.alignment(24), [key, "24", "a power of two that is at least 8"]);
    refused(w.set("general.alignment", "32"), [key, r#"str "32""#, "u32"]);
    let (f32, name, one) = (DType::F32, "name of a tensor", r#"tensor "w""#);
    refused(w.tensor("", f32, &[1], vec![0; 4]), [name, "0 bytes", "1 to 1024 bytes"]);
    refused(w.tensor("n".repeat(1025), f32, &[1], vec![0; 4]), [name, "1025 bytes", "1 to 1024 bytes"]);
    refused(w.tensor("w", f32, &[1], vec![0; 5]), [one, "5 bytes of data", "4 for F32 [1]"]);
    refused(w.tensor("w", f32, &[], vec![0; 4]), [one, "F32 []", "1 to 4 dimensions"]);
    let blocks = [one, "Q4_K [128]", "rows of whole blocks of 256"];
    refused(w.tensor("w", DType::Q4_K, &[128], vec![0; 72]), blocks);
    assert!(w.tensor("w", f32, &[usize::MAX, 2], vec![0; 4]).is_err());
    w.tensor("w", f32, &[1], vec![0; 4]).unwrap();
    refused(w.tensor("w", f32, &[1], vec![0; 4]), [one, "there already", ""]);
    let more = TensorData::stream(|sink| sink.put(&[0; 5]));
    let mut streamed = GgufWriter::new();
    streamed.tensor("s", f32, &[1], more).unwrap();
    refused(streamed.to_bytes(), [r#"data of tensor "s""#, "5 bytes", "at most 4 more"]);
    let mut streamed = GgufWriter::new();
    streamed.tensor("s", f32, &[1], TensorData::stream(|sink| sink.put(&[0; 3]))).unwrap();
    refused(streamed.to_bytes(), [r#"data of tensor "s""#, "3 bytes", "4 bytes"]);
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
    // The old file is still mapped, and no other file remains in the folder.
    exercise(&before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(matches!(GgufWriter::new().write_to(dir.path()), Err(Error::Io { .. })));
    assert!(matches!(GgufWriter::new().write_to(dir.path().join("no/m.gguf")), Err(Error::Io { .. })));
    assert!(GgufWriter::new().write_to("/").is_err());
}
