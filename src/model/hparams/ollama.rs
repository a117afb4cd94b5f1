//! Names and defaults of files that Ollama's converters wrote. Sources: github.com/ollama/ollama, `convert/*.go` (the
//! keys that are written), `model/models/*` (the defaults of what is not) and `llama/compat/llama-ollama-compat.cpp` (what
//! published files contain).

/// Name of DeepSeek 2 in files of GLM-4.7-Flash (`convert_glm4moelite.go`).
pub(in crate::model) const GLM4MOELITE: &str = "glm4moelite";

/// Name of gpt-oss (`convert_gptoss.go`).
pub(in crate::model) const GPTOSS: &str = "gptoss";

/// Name of OLMo 3, which is an olmo2 with windows (`convert_olmo.go`).
pub(in crate::model) const OLMO3: &str = "olmo3";

/// Returns the epsilon of norms of files without the key: those of gemma3 with an encoder of images
/// (`convert_gemma3.go`, `gemma3/model_text.go`).
pub(super) fn eps(architecture: &str) -> Option<f32> {
    (architecture == "gemma3").then_some(1e-6)
}

/// Returns the length of a head of files without the key (`gemma3/model_text.go`).
pub(super) fn key_length(architecture: &str) -> Option<usize> {
    (architecture == "gemma3").then_some(256)
}

/// Returns the kind of scaling of files with a factor and without a type (`gptoss/model.go`).
pub(super) fn scaling(architecture: &str) -> Option<&'static str> {
    (architecture == GPTOSS).then_some("yarn")
}
