//! Writes the seeds that the library can make itself: small models and graphs. The others are written by hand.

use diptych::synthesize::{self, Shape};
use ggml_core::catalogue;
use ggml_core::graph::file::GraphFile;
use std::error::Error;
use std::path::Path;

fn models(folder: &Path) -> Result<(), Box<dyn Error>> {
    for architecture in ["llama", "qwen35", "gpt-oss", "gemma3"] {
        let shape = Shape {
            layers: 1,
            embedding: 32,
            feed_forward: 32,
            heads: 2,
            heads_kv: 1,
            head: 16,
            vocabulary: 260,
            context: 64,
            ..Shape::small(architecture)
        };
        synthesize::write(&shape, 1, &folder.join(format!("{architecture}.gguf")))?;
    }
    Ok(())
}

/// The first case of each operation, as fuzzing wants it: structure, a zero byte, contents.
fn graphs(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut known = std::collections::HashSet::new();
    let file = std::env::temp_dir().join(format!("diptych-seed-{}.json", std::process::id()));
    for case in catalogue::cases() {
        let Ok(graph) = case.graph else { continue };
        let op = graph.tensor(case.node).op().map_or("LEAF", |op| op.name());
        if known.insert(op) {
            GraphFile { graph, ..GraphFile::default() }.save(&file)?;
            let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
            std::fs::write(folder.join(op.to_lowercase()), serde_json::to_string(&value)? + "\0")?;
        }
    }
    std::fs::remove_file(file.with_extension("bin"))?;
    Ok(std::fs::remove_file(file)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    models(&seeds.join("gguf"))?;
    graphs(&seeds.join("graph"))
}
