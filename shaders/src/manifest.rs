//! What the committed SPIR-V was made from: `spirv/manifest.json`.

use std::collections::BTreeMap;

use hmac_sha256::Hash;
use serde::{Deserialize, Serialize};

/// The manifest. All hashes are SHA-256 in hexadecimal; all paths are relative to the crate and use `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The compiler, its version and its options: [`crate::source::COMPILER`].
    pub compiler: String,
    /// The hash over all containers: names the whole set in reports.
    pub set: String,
    /// One record for each entry of the table; the key is `family/stem`.
    pub shaders: BTreeMap<String, Shader>,
}

/// The record of one shader source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shader {
    /// The hash of each file that takes part: the source and everything it includes, directly or not.
    pub files: BTreeMap<String, String>,
    /// The hash of the container.
    pub container: String,
    /// The variants by name.
    pub variants: BTreeMap<String, Compiled>,
}

/// The record of one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiled {
    /// The preprocessor definitions.
    pub defines: BTreeMap<String, String>,
    /// The environment: [`crate::Target::name`].
    pub target: String,
    /// The treatment by the optimiser: [`crate::Optimize::name`].
    pub optimize: String,
    /// The hash over everything the module depends on: [`crate::source::Inputs::digest`].
    pub inputs: String,
    /// The hash of the module.
    pub module: String,
    /// The length of the module in 32-bit words.
    pub words: usize,
}

impl Manifest {
    /// Reads a manifest.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The text of the file.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The hash that belongs into [`Manifest::set`].
    pub fn set_digest(&self) -> String {
        let mut hash = Hash::new();
        for (key, shader) in &self.shaders {
            hash.update(format!("{key} {}\n", shader.container));
        }
        hex(&hash.finalize())
    }
}

/// The hash of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Hash::hash(bytes))
}

/// The hash of a module, taken over its little-endian words.
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
