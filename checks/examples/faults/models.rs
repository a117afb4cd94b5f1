//! Models with planted faults: small ones with random weights.

use diptych::DType;
use diptych::ggml::gguf::GgufFile;
use diptych::synthesize::{self, Shape};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Factor of the large activations.
const OUTLIER: f32 = 2000.0;

/// Writes the models, or two of them that show all faults.
pub(crate) fn write(folder: &Path, quick: bool) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let model = |architecture: &str, dtype: DType, outliers: bool| -> Result<PathBuf, Box<dyn Error>> {
        let kind = if outliers { "outliers-" } else { "" };
        let path = folder.join(format!("{architecture}-{kind}{dtype}.gguf"));
        synthesize::write(&Shape::small(architecture).with_type(dtype), 1, &path)?;
        if outliers {
            enlarge(&path)?;
        }
        Ok(path)
    };
    if quick {
        return Ok(vec![model("qwen3", DType::Q4_K, true)?, model("qwen3moe", DType::Q8_0, false)?]);
    }
    Ok(vec![
        model("qwen3", DType::Q4_K, false)?,
        model("qwen3", DType::Q4_K, true)?,
        model("llama", DType::F16, true)?,
        model("qwen3moe", DType::Q8_0, false)?,
        model("gpt-oss", DType::MXFP4, false)?,
        model("qwen35", DType::Q6_K, true)?,
    ])
}

/// Enlarges two elements of each norm before a feed-forward network.
fn enlarge(path: &Path) -> Result<(), Box<dyn Error>> {
    let gguf = GgufFile::open(path)?;
    let file = gguf.part_bytes(0)?.as_ptr() as usize;
    let names = ["ffn_norm.weight", "post_attention_norm.weight"];
    let norms =
        gguf.tensors().iter().filter(|t| t.dtype == DType::F32 && names.iter().any(|n| t.name.ends_with(n)));
    let places = norms
        .map(|t| Ok(gguf.data(t)?.as_ptr() as usize - file))
        .collect::<Result<Vec<_>, diptych::Error>>()?;
    drop(gguf);
    let mut bytes = std::fs::read(path)?;
    for at in places {
        for element in [5, 70] {
            let value = &mut bytes[at + 4 * element..][..4];
            value.copy_from_slice(&OUTLIER.to_le_bytes());
        }
    }
    Ok(std::fs::write(path, bytes)?)
}
