//! Model files: a GGUF file whose architecture is known, with its hyperparameters and graphs.

use super::architecture::Architecture;
use super::batch::{BatchGraph, BatchShape, Predictor, Want};
use super::builder::Builder;
use super::hparams::Hparams;
use super::{
    bert, deepseek2, gemma2, gemma3, gemma4, glm4moe, gpt_oss, granite, lfm2, llama, llama4, mistral3,
    nemotron, olmo2, phi3, qwen2, qwen3, qwen3moe, qwen35,
};
use super::{left_out, nearest};
use ggml_core::Result;
use ggml_core::gguf::GgufFile;
use std::collections::HashSet;
use std::path::Path;
use std::sync::OnceLock;

/// All architectures.
pub(super) static ARCHITECTURES: &[&dyn Architecture] = &[
    &llama::Llama,
    &qwen2::Qwen2,
    &qwen3::Qwen3,
    &qwen3moe::Qwen3Moe,
    &qwen35::QWEN35,
    &qwen35::QWEN35MOE,
    &qwen35::QWEN3NEXT,
    &phi3::Phi3,
    &granite::GRANITE,
    &granite::GRANITEHYBRID,
    &gemma2::Gemma2,
    &gemma3::Gemma3,
    &gemma4::Gemma4,
    &gpt_oss::GptOss,
    &glm4moe::Glm4Moe,
    &olmo2::Olmo2,
    &mistral3::Mistral3,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &llama4::Llama4,
    &deepseek2::Deepseek2,
    &nemotron::NEMOTRON_H,
    &nemotron::NEMOTRON_H_MOE,
    &bert::Bert,
];

/// Model file that has been read and checked, not yet on a device.
pub struct ModelFile {
    pub(super) gguf: GgufFile,
    pub(super) hparams: Hparams,
    architecture: &'static dyn Architecture,
    left_out: Vec<String>,
    predicts: bool,
    /// Cached result of [`ModelFile::identity`], computed on first use.
    pub(super) identity: OnceLock<u64>,
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFile").field("hparams", &self.hparams).finish_non_exhaustive()
    }
}

impl ModelFile {
    /// Opens a file and checks its format, architecture and hyperparameters, and the presence, shape and type
    /// of every tensor that the architecture needs. Parts that text does not need are left out and listed by
    /// [`ModelFile::left_out`], and logged as warnings; any other unknown tensor is an error.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        ModelFile::from_gguf(GgufFile::open(path)?).map_err(|e| e.with_path(path))
    }

    /// Reads a file into memory and checks it, as [`ModelFile::open`] does. It takes as much memory as the file
    /// is long; use it for a file that others may change, see [`Model::load`](super::Model::load).
    pub fn read(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        ModelFile::from_gguf(GgufFile::read(path)?).map_err(|e| e.with_path(path))
    }

    /// Checks a GGUF file that is already open, as [`ModelFile::open`] does.
    pub fn from_gguf(gguf: GgufFile) -> Result<ModelFile> {
        let name = gguf.metadata().str("general.architecture")?;
        let Some(architecture) =
            ARCHITECTURES.iter().copied().find(|a| a.name() == name || a.other_names().contains(&name))
        else {
            return Err(nearest::unknown(&gguf, name, ARCHITECTURES));
        };
        let mut hparams = Hparams::read(&gguf, architecture.rope_mode())?;
        architecture.read(&gguf, &mut hparams)?;
        if let Some(experts) = hparams.experts {
            experts.check_groups(&hparams)?;
        }
        let left_out = Vec::new();
        let (predicts, identity) = (false, OnceLock::new());
        let mut file = ModelFile { gguf, hparams, architecture, left_out, predicts, identity };
        // Even the smallest graph uses every tensor.
        let cache = ggml_core::DType::F32;
        let want = Want::Logits;
        let predictor = Predictor::Unused;
        let smallest = BatchShape {
            tokens: 1,
            kv: 1,
            context: 1,
            sequences: 1,
            outputs: 1,
            cache,
            want,
            drafts: false,
            predictor,
        };
        let mut known = file.built(&smallest, false)?.known().clone();
        if architecture.predicts() && file.hparams.further_layers > 0 {
            match file.of_predictor(&smallest) {
                Ok(more) => {
                    known.extend(more);
                    file.predicts = true;
                }
                Err(error) => tracing::warn!(target: "diptych::model", "no predictor: {error}"),
            }
        }
        file.left_out = left_out::describe(&file.gguf, &file.hparams, &known)?;
        file.left_out.iter().for_each(|part| tracing::warn!(target: "diptych::model", "left out: {part}"));
        Ok(file)
    }

    /// Returns the hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// Returns the GGUF file.
    pub fn gguf(&self) -> &GgufFile {
        &self.gguf
    }

    /// Returns true if the file has a layer that predicts further tokens (multi-token prediction, `nextn`), with which a
    /// session can draft, see [`SessionOptions::predictor`](super::SessionOptions::predictor).
    pub fn has_predictor(&self) -> bool {
        self.predicts
    }

    /// Returns descriptions of the parts of the file that text does not need and that are left out: encoders
    /// of images and sound, layers that predict further tokens, output layers that classify, rows and tokens
    /// beyond the vocabulary.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Builds the graph of a batch.
    pub fn graph(&self, shape: &BatchShape) -> Result<BatchGraph> {
        self.built(shape, false)?.finish()
    }

    /// Builds the graph of a decode step whose token is state: the previous step stores its best token there,
    /// as this step does for the next.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the shape has one token and wants only the best logit.
    ///
    /// [`Error::InvalidArgument`]: ggml_core::Error::InvalidArgument
    pub(crate) fn chained_graph(&self, shape: &BatchShape) -> Result<BatchGraph> {
        self.built(shape, true)?.finish()
    }

    /// Returns the names of the tensors that the predictor uses.
    fn of_predictor(&self, shape: &BatchShape) -> Result<HashSet<String>> {
        let mut known = HashSet::new();
        let drafts = Predictor::Drafts { count: 1, among: self.hparams.vocabulary };
        for (predictor, want) in [(Predictor::Follows, Want::Logits), (drafts, Want::Best(1))] {
            let graph = self.built(&BatchShape { predictor, want, ..*shape }, false)?;
            known.extend(graph.known().iter().cloned());
        }
        Ok(known)
    }

    fn built(&self, shape: &BatchShape, chained: bool) -> Result<Builder<'_>> {
        let mut builder = Builder::new(&self.gguf, &self.hparams, *shape, chained)?;
        self.architecture.build(&mut builder)?;
        Ok(builder)
    }
}
