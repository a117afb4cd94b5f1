//! Writes the seeds that the library can generate: small models, graphs and importance matrices. The others
//! are written by hand.

use diptych::synthesize::{self, Shape};
use ggml_core::gguf::{GgufWriter, TensorData};
use ggml_core::graph::file::GraphFile;
use ggml_core::{DType, catalogue};
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

/// Writes the first case of each operation in the fuzz target's format: structure, a zero byte, contents.
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

/// Writes an importance matrix of two stacks in both formats.
fn importance(folder: &Path) -> Result<(), Box<dyn Error>> {
    let floats = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let sums: Vec<f32> = (0..16).map(|i| (i * i) as f32 / 4.0).collect();
    let mut writer = GgufWriter::new();
    writer.set("general.type", "imatrix")?.set("imatrix.chunk_count", 3u32)?;
    for (name, matrices) in [("blk.0.ffn_up.weight", 1), ("blk.0.ffn_up_exps.weight", 2)] {
        let shape = [16 / matrices, matrices];
        writer.tensor(format!("{name}.in_sum2"), DType::F32, &shape, TensorData::from(floats(&sums)))?;
        let counts = TensorData::from(floats(&[64.0, 0.0][..matrices]));
        writer.tensor(format!("{name}.counts"), DType::F32, &[1, matrices], counts)?;
    }
    std::fs::write(folder.join("new.gguf"), writer.to_bytes()?)?;
    let number = |n: usize| (n as i32).to_le_bytes().to_vec();
    let text = |text: &str| [number(text.len()), text.as_bytes().to_vec()].concat();
    let entry = |name: &str, calls| [text(name), number(calls), number(sums.len()), floats(&sums)].concat();
    let entries = [number(2), entry("blk.0.attn_q.weight", 64), entry("output.weight", 0)].concat();
    let older = [entries, number(3), text("some.txt")].concat();
    Ok(std::fs::write(folder.join("older.dat"), older)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    models(&seeds.join("gguf"))?;
    importance(&seeds.join("imatrix"))?;
    graphs(&seeds.join("graph"))
}
