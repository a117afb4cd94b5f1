//! Reading of a GLSL source with all its includes, and hashing of the inputs of a module. Needs no compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hmac_sha256::Hash;

use crate::manifest::{digest, hex};
use crate::table::Variant;

/// The compiler and the settings common to all variants. A change makes every module stale, so increase the
/// trailing revision when the `shaders` program changes how it calls the compiler.
pub const COMPILER: &str = "shaderc 0.10.1 build-from-source, names kept, buffers aliased, revision 1";

/// Directory of files that any shader may include, relative to the crate.
pub const INCLUDE_DIR: &str = "src/include";

/// The error for a source that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file is missing or not UTF-8.
    #[error("{path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// An included file exists neither next to the including file nor in [`INCLUDE_DIR`].
    #[error("{path}:{line}: included file \"{name}\" is neither next to this file nor in {INCLUDE_DIR}")]
    NotFound {
        /// Path of the including file.
        path: String,
        /// Line of the directive.
        line: usize,
        /// Name in the directive.
        name: String,
    },
    /// An `#include` without a quoted name, whose target only a preprocessor could determine.
    #[error("{path}:{line}: #include needs a file name in quotes, not a macro")]
    Computed {
        /// Path of the including file.
        path: String,
        /// Line of the directive.
        line: usize,
    },
}

/// A source with all files that it includes, directly or indirectly.
///
/// Directives are followed regardless of the conditions around them, so the set is the same for all variants.
/// Line ends are normalised to `\n`, so that a checkout with other line ends has the same hashes.
#[derive(Clone, Debug)]
pub struct Inputs {
    source: String,
    files: BTreeMap<String, String>,
}

impl Inputs {
    /// Reads `source` and its includes. Paths are relative to `root`, the directory of the crate.
    pub fn read(root: &Path, source: &str) -> Result<Self, SourceError> {
        let mut files = BTreeMap::new();
        let mut open = vec![source.to_owned()];
        while let Some(path) = open.pop() {
            if files.contains_key(&path) {
                continue;
            }
            let absolute = root.join(&path);
            let text = std::fs::read_to_string(&absolute)
                .map_err(|error| SourceError::Read { path: absolute, error })?
                .replace("\r\n", "\n");
            for (index, line) in text.lines().enumerate() {
                let Some(argument) = include_argument(line) else { continue };
                let line = index + 1;
                let name =
                    quoted(argument).ok_or_else(|| SourceError::Computed { path: path.clone(), line })?;
                let included = resolve(root, &path, name).ok_or_else(|| SourceError::NotFound {
                    path: path.clone(),
                    line,
                    name: name.to_owned(),
                })?;
                open.push(included);
            }
            files.insert(path, text);
        }
        Ok(Self { source: source.to_owned(), files })
    }

    /// Returns the text of the source itself.
    pub fn text(&self) -> &str {
        &self.files[&self.source]
    }

    /// Returns the text of a file, given its path relative to the crate.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns the hash of each file.
    pub fn file_digests(&self) -> BTreeMap<String, String> {
        self.files.iter().map(|(path, text)| (path.clone(), digest(text.as_bytes()))).collect()
    }

    /// Returns the hash of everything that the module of a variant depends on: the text of all files,
    /// definitions, environment, optimiser, and [`COMPILER`].
    pub fn digest(&self, variant: &Variant) -> String {
        let mut defines = variant.defines.clone();
        defines.sort_unstable();
        let mut hash = Hash::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        field(COMPILER);
        field(variant.target.name());
        field(variant.optimize.name());
        for (name, value) in &defines {
            field(&format!("{name}={value}"));
        }
        for (path, text) in &self.files {
            field(path);
            field(text);
        }
        hex(&hash.finalize())
    }
}

/// Returns the path, relative to the crate, of the file `name` included by the file `including`: next to that
/// file if it exists there, or else in [`INCLUDE_DIR`].
pub fn resolve(root: &Path, including: &str, name: &str) -> Option<String> {
    let own = including.rsplit_once('/').map_or("", |(directory, _)| directory);
    [own, INCLUDE_DIR].iter().find_map(|directory| {
        let path = normalize(&format!("{directory}/{name}"))?;
        root.join(&path).is_file().then_some(path)
    })
}

/// Removes `.` and `..` from a path; `None` if it leaves the crate.
fn normalize(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the text after `#include` on a line, if the line is such a directive.
fn include_argument(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    (!rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then(|| rest.trim())
}

/// Returns the text between the quotes at the beginning of the argument.
fn quoted(argument: &str) -> Option<&str> {
    let (name, _) = argument.strip_prefix('"')?.split_once('"')?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Choice, Source};

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn includes_are_followed_beside_the_file_and_in_the_common_directory() {
        let root = tree(&[
            ("src/norm/a.comp", "#include \"b.glsl\"\n  # include \"common.glsl\" // why\n#includes x\n"),
            ("src/norm/b.glsl", "#ifdef X\n#include \"../rope/c.glsl\"\n#endif\n"),
            ("src/rope/c.glsl", "#include \"common.glsl\"\n"),
            ("src/include/common.glsl", "#include \"common.glsl\"\n"),
        ]);
        let inputs = Inputs::read(root.path(), "src/norm/a.comp").unwrap();
        let files: Vec<String> = inputs.file_digests().into_keys().collect();
        assert_eq!(
            files,
            ["src/include/common.glsl", "src/norm/a.comp", "src/norm/b.glsl", "src/rope/c.glsl"]
        );
    }

    #[test]
    fn bad_includes_name_their_line() {
        let root = tree(&[("src/a/a.comp", "\n#include \"no.glsl\"\n"), ("src/a/b.comp", "#include X\n")]);
        let error = |path| Inputs::read(root.path(), path).unwrap_err().to_string();
        assert!(error("src/a/a.comp").starts_with("src/a/a.comp:2: included file \"no.glsl\""));
        assert!(error("src/a/b.comp").starts_with("src/a/b.comp:1: #include needs"));
        assert!(error("src/a/c.comp").contains("c.comp"));
        assert_eq!(resolve(root.path(), "src/a/a.comp", "../../../b.comp"), None);
    }

    #[test]
    fn every_input_changes_the_digest_and_line_ends_do_not() {
        const A: &[&[Choice]] = &[&[Choice::new("a", &[("A", "1")])]];
        const B: &[&[Choice]] = &[&[Choice::new("a", &[("A", "2")])]];
        let digest = |text: &str, included: &str, source: Source| {
            let root = tree(&[("src/n/a.comp", text), ("src/n/b.glsl", included)]);
            Inputs::read(root.path(), "src/n/a.comp").unwrap().digest(&source.expand()[0])
        };
        let source = Source::new("n", "a");
        let text = "#include \"b.glsl\"\nvoid main() {}\n";
        let base = digest(text, "x\n", source.axes(A));
        assert_eq!(base, digest(&text.replace('\n', "\r\n"), "x\r\n", source.axes(A)));
        assert_ne!(base, digest(text, "y\n", source.axes(A)));
        assert_ne!(base, digest(&format!("{text}\n"), "x\n", source.axes(A)));
        assert_ne!(base, digest(text, "x\n", source.axes(B)));
        assert_ne!(base, digest(text, "x\n", source.axes(A).target(crate::Target::Vulkan13)));
        assert_ne!(base, digest(text, "x\n", source.axes(A).optimize(crate::Optimize::Off)));
    }
}
