//! The kernel sources and headers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files by name.
pub(crate) struct Sources {
    folder: PathBuf,
    files: BTreeMap<String, String>,
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
        Sources { folder: folder.into(), files }
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

    /// Returns a source and all headers that it includes, directly or indirectly: names and texts.
    pub(crate) fn needed_by(&self, stem: &str) -> BTreeMap<&str, &str> {
        let mut needed = BTreeMap::new();
        let mut open = vec![format!("{stem}.hip")];
        while let Some(name) = open.pop() {
            let Some((name, text)) = self.files.get_key_value(&name) else { continue };
            if needed.insert(name.as_str(), text.as_str()).is_none() {
                let included =
                    text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
                open.extend(included.map(String::from));
            }
        }
        needed
    }
}
