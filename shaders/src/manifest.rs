//! Record of the inputs of the committed SPIR-V: `spirv/manifest.json`.

use std::collections::BTreeMap;

use hmac_sha256::Hash;
use serde::{Deserialize, Serialize};

/// The manifest. All hashes are SHA-256 in hexadecimal; all paths are relative to the crate and use `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The compiler, its version and its options: [`crate::source::COMPILER`].
    pub compiler: String,
    /// Hash over all containers, which identifies the whole set in reports.
    pub set: String,
    /// One record for each entry of the table; the key is `family/stem`.
    pub shaders: BTreeMap<String, Shader>,
}

/// The record of one shader source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shader {
    /// Hash of each input file: the source and its includes, direct or indirect.
    pub files: BTreeMap<String, String>,
    /// Hash of the container.
    pub container: String,
    /// Variants by name.
    pub variants: BTreeMap<String, Compiled>,
}

/// The record of one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiled {
    /// Preprocessor definitions.
    pub defines: BTreeMap<String, String>,
    /// Environment: [`crate::Target::name`].
    pub target: String,
    /// Optimiser setting: [`crate::Optimize::name`].
    pub optimize: String,
    /// Hash of everything the module depends on: [`crate::source::Inputs::digest`].
    pub inputs: String,
    /// Hash of the module.
    pub module: String,
    /// Length of the module in 32-bit words.
    pub words: usize,
}

impl Manifest {
    /// Parses a manifest.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Returns the text of the file.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the value for [`Manifest::set`].
    pub fn set_digest(&self) -> String {
        let mut hash = Hash::new();
        for (key, shader) in &self.shaders {
            hash.update(format!("{key} {}\n", shader.container));
        }
        hex(&hash.finalize())
    }
}

/// Returns the hash of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Hash::hash(bytes))
}

/// Returns the hash of a module, computed over its little-endian words.
pub fn module_digest(words: &[u32]) -> String {
    let mut hash = Hash::new();
    for word in words {
        hash.update(word.to_le_bytes());
    }
    hex(&hash.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
