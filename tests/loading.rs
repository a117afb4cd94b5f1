//! Memory while a model is loaded.

use crate::common;

use common::tiny;
use diptych::ggml::backend::Backend;
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::null::{NullBackend, NullOptions};
use diptych::model::ModelFile;
use diptych::synthesize::{self, Shape};
use diptych::{DType, Model};
use std::path::Path;
use std::sync::Arc;

/// On a device whose memory is the host's, a model does not lie in memory twice: the file's pages in memory are few at
/// any time, and none afterwards. On others they stay for the next start.
#[test]
fn pages_behind_uploads_are_given_back_to_unified_devices() {
    let shape =
        Shape { embedding: 1024, feed_forward: 2048, head: 64, heads: 16, ..tiny("llama", DType::F32) };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("model.gguf");
    synthesize::write(&shape, 1, &path).expect("a model");
    // Pages that are not on the disk yet cannot be given back.
    std::fs::File::open(&path).and_then(|file| file.sync_all()).expect("a file on the disk");
    let seen = |unified| loaded(&path, unified);
    let total = std::fs::metadata(&path).expect("a file").len();
    let Some(most) = seen(true) else {
        eprintln!("skipped: this system does not tell which pages are in memory");
        return;
    };
    assert!(total > 60 << 20 && most < total / 20, "{most} of {total} bytes");
    assert!(seen(false).is_some_and(|most| most > total / 2));
}

/// Loads a model; returns the largest number of the file's bytes in memory after an upload.
fn loaded(path: &Path, unified: bool) -> Option<u64> {
    let (pages, file) = (MappedBytes::map(path).expect("a map"), ModelFile::open(path).expect("a file"));
    // Without what was read to open it, and around that.
    pages.give_back();
    let backend = NullBackend::open(NullOptions::default().with_unified(unified)).expect("a backend");
    assert_eq!(backend.device().unified, unified);
    let mut most = pages.resident().map(|bytes| bytes as u64);
    let mut look = |_, _| {
        let now = pages.resident().map(|bytes| bytes as u64);
        most = most.max(now);
    };
    Model::from_file_with(file, Arc::new(backend), &mut look).expect("a model");
    most
}
