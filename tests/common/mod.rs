//! What several tests need.
#![allow(dead_code, unreachable_pub)]

use diptych::ggml::backend::Backend;
use diptych::ggml::gguf::GgufFile;
use diptych::model::ModelFile;
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, OpenOptions, open};
use std::path::PathBuf;
use std::sync::Arc;

/// A tiny model: two layers, extents that are no multiples of tiles.
pub fn tiny(architecture: &str, dtype: DType) -> Shape {
    Shape {
        layers: 2,
        embedding: 96,
        feed_forward: 160,
        heads: 6,
        heads_kv: 2,
        head: 32,
        vocabulary: 203,
        context: 1024,
        tied: architecture != "llama",
        ..Shape::small(architecture).with_type(dtype)
    }
}

/// A synthetic model file in memory.
pub fn file(shape: &Shape) -> ModelFile {
    let bytes = synthesize::bytes(shape, 11).expect("a model");
    ModelFile::from_gguf(GgufFile::from_bytes(bytes).expect("a GGUF file")).expect("a known architecture")
}

/// A synthetic model on a backend.
pub fn model(shape: &Shape, backend: &Arc<dyn Backend>) -> Model {
    Model::from_file(file(shape), backend.clone()).expect("a model that loads")
}

/// A backend, or `None` with a message where this machine has none. Any other error fails the test.
pub fn backend(name: &str) -> Option<Arc<dyn Backend>> {
    match open(name, &OpenOptions::default()) {
        Ok(backend) => Some(backend),
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {name} is not available: {reason}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Backends that compute, as far as this machine has them.
pub fn backends() -> Vec<(&'static str, Arc<dyn Backend>)> {
    ["reference", "cpu", "vulkan", "hip-virtual:gfx906"]
        .into_iter()
        .filter_map(|name| Some((name, backend(name)?)))
        .collect()
}

/// An example program; `cargo test` builds all of them.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let path = test.parent().and_then(|p| p.parent()).expect("a target folder").join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --examples` or plain `cargo test`",
        path.display()
    );
    path
}
