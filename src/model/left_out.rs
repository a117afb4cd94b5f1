//! Parts of a model file that text does not need: encoders of images and sound, layers that predict further
//! tokens, output layers that classify, rows and tokens beyond the vocabulary. They are left out.

use super::hparams::Hparams;
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use std::collections::HashSet;

const IMAGES: &str = "an encoder of images";
const SOUND: &str = "an encoder of sound";
const PROJECTOR: &str = "a projector of images or sound";
const FURTHER: &str = "layers that predict further tokens";
const CLASSES: &str = "an output layer that classifies texts";

/// First components of tensor names, and the part that such tensors belong to. Converters for files in one
/// piece write the short names; the long ones are those of the original models.
const COMPONENTS: &[(&str, &str)] = &[
    ("v", IMAGES),
    ("s", IMAGES),
    ("vpm", IMAGES),
    ("a", SOUND),
    ("apm", SOUND),
    ("talker", SOUND),
    ("code2wav", SOUND),
    ("token2wav", SOUND),
    ("mm", PROJECTOR),
    ("resampler", PROJECTOR),
    ("mtp", FURTHER),
    ("nextn", FURTHER),
    ("cls", CLASSES),
];

/// Beginnings of the first component, likewise.
const BEGINNINGS: &[(&str, &str)] = &[
    ("vision_", IMAGES),
    ("visual", IMAGES),
    ("image_", IMAGES),
    ("audio_", SOUND),
    ("sound_", SOUND),
    ("speech_", SOUND),
    ("multi_modal_", PROJECTOR),
    ("multimodal_", PROJECTOR),
    ("embed_vision", PROJECTOR),
    ("embed_audio", PROJECTOR),
];

/// Returns the part that a tensor belongs to, if text does not need it.
pub(super) fn part_of(hparams: &Hparams, tensor: &str) -> Option<&'static str> {
    if hparams.is_of_further_layer(tensor) {
        return Some(FURTHER);
    }
    part_by_name(tensor)
}

/// Returns the part that a tensor belongs to by its name alone, if text does not need it.
pub(crate) fn part_by_name(tensor: &str) -> Option<&'static str> {
    let first = tensor.strip_prefix("model.").unwrap_or(tensor).split('.').next()?;
    let known = COMPONENTS.iter().find(|(name, _)| *name == first);
    let known = known.or_else(|| BEGINNINGS.iter().find(|(name, _)| first.starts_with(name)));
    known.map(|(_, part)| *part)
}

/// Describes the parts of a file that are left out. `known`: the tensors that the architecture uses.
///
/// # Errors
/// [`Error::InvalidModel`] for a tensor that is neither used nor part of anything that text does not need.
pub(super) fn describe(gguf: &GgufFile, hparams: &Hparams, known: &HashSet<String>) -> Result<Vec<String>> {
    let mut parts: Vec<(&str, usize, &str)> = Vec::new();
    for tensor in gguf.tensors().iter().filter(|t| !known.contains(&t.name)) {
        if Hparams::is_rounding_scale(&tensor.name) {
            continue;
        }
        let Some(part) = part_of(hparams, &tensor.name) else {
            let found = format!("not known to architecture '{}'", hparams.architecture);
            return Err(Error::model(format!("tensor '{}'", tensor.name), found, ""));
        };
        match parts.iter_mut().find(|(name, ..)| *name == part) {
            Some((_, count, _)) => *count += 1,
            None => parts.push((part, 1, &tensor.name)),
        }
    }
    let mut all: Vec<String> = parts
        .into_iter()
        .map(|(part, count, first)| format!("{part}: {}, first '{first}'", counted(count, "tensor")))
        .collect();
    all.extend(beyond_vocabulary(gguf, hparams));
    Ok(all)
}

/// Describes rows without a token, and tokens without a row.
fn beyond_vocabulary(gguf: &GgufFile, hparams: &Hparams) -> Option<String> {
    let rows = ["token_embd.weight", "per_layer_token_embd.weight", "output.weight"]
        .into_iter()
        .filter_map(|name| Some((name, gguf.tensor(name)?.ne[1].checked_sub(hparams.vocabulary)?)))
        .find(|(_, more)| *more > 0);
    if let Some((name, more)) = rows {
        let vocabulary = hparams.vocabulary;
        return Some(format!(
            "{} of '{name}' after the {vocabulary} of the vocabulary",
            counted(more, "row")
        ));
    }
    let tokens = Hparams::tokens(gguf).ok()??;
    let more = tokens.checked_sub(hparams.vocabulary).filter(|more| *more > 0)?;
    Some(format!("{} without a row of 'token_embd.weight'", counted(more, "token")))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::super::file::ModelFile;
    use super::*;
    use crate::synthesize::{self, Shape};

    #[test]
    fn names_of_towers_are_not_names_of_text() {
        let shape = Shape { layers: 1, vocabulary: 64, ..Shape::small("qwen3") };
        let bytes = synthesize::bytes(&shape, 1).unwrap();
        let file = ModelFile::from_gguf(GgufFile::from_bytes(bytes).unwrap()).unwrap();
        let part = |name| part_of(file.hparams(), name);
        for (name, of) in [
            ("v.blk.0.attn_q.weight", IMAGES),
            ("a.conv1d.0.weight", SOUND),
            ("mm.a.fc.weight", PROJECTOR),
            ("model.vision_tower.patch.weight", IMAGES),
            ("multi_modal_projector.linear_1.bias", PROJECTOR),
            ("mtp.layers.0.input_layernorm.weight", FURTHER),
            ("cls.output.weight", CLASSES),
        ] {
            assert_eq!(part(name), Some(of), "{name}");
        }
        for name in ["blk.0.v.weight", "output.bias", "attn.v.weight", "value.weight", "model.norm.weight"] {
            assert_eq!(part(name), None, "{name}");
        }
    }
}
