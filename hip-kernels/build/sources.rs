//! The kernel sources and headers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files by name.
pub(crate) struct Sources {
    folder: PathBuf,
    files: BTreeMap<String, String>,
    /// Their texts without comments and blank lines.
    code: BTreeMap<String, String>,
}

impl Sources {
    pub(crate) fn read(folder: &Path) -> Sources {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).expect("the sources are there").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".hip") || name.ends_with(".h") {
                files.insert(name, fs::read_to_string(entry.path()).expect("sources are readable"));
            }
        }
        let code = files.iter().map(|(name, text)| (name.clone(), code(text))).collect();
        Sources { folder: folder.into(), files, code }
    }

    /// Returns names and lengths of the texts.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (&str, usize)> {
        self.files.iter().map(|(name, text)| (name.as_str(), text.len()))
    }

    /// Returns all texts, concatenated.
    pub(crate) fn texts(&self) -> String {
        self.files.values().map(String::as_str).collect()
    }

    pub(crate) fn stems(&self) -> impl Iterator<Item = &str> {
        self.files.keys().filter_map(|name| name.strip_suffix(".hip"))
    }

    pub(crate) fn path(&self, stem: &str) -> PathBuf {
        self.folder.join(format!("{stem}.hip"))
    }

    /// Returns the code of a source and of all headers that it includes, directly or indirectly, by name.
    ///
    /// These are the inputs of its compilation: comments and blank lines are left out.
    pub(crate) fn needed_by(&self, stem: &str) -> BTreeMap<&str, &str> {
        let mut needed = BTreeMap::new();
        let mut open = vec![format!("{stem}.hip")];
        while let Some(name) = open.pop() {
            let Some((name, code)) = self.code.get_key_value(&name) else { continue };
            if needed.insert(name.as_str(), code.as_str()).is_none() {
                let included =
                    code.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
                open.extend(included.map(String::from));
            }
        }
        needed
    }
}

/// Returns a text of C++ without its comments and blank lines.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, found) = rest.split_at(at);
        code.push_str(before);
        let kept = if found.starts_with("//") {
            rest = &found[found.find('\n').unwrap_or(found.len())..];
            continue;
        } else if let Some(comment) = found.strip_prefix("/*") {
            code.push(' ');
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
            continue;
        } else if found.starts_with('/') {
            1
        } else {
            quoted(found)
        };
        code.push_str(&found[..kept]);
        rest = &found[kept..];
    }
    code.push_str(rest);
    let lines = code.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the length of the literal that a text begins with.
fn quoted(text: &str) -> usize {
    let (quote, mut escaped) = (text.as_bytes()[0], true);
    for (at, &byte) in text.as_bytes().iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
