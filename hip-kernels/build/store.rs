//! Compiled kernels, stored in the user's cache for all clones, profiles and feature sets.
//!
//! An entry's name ends in the hash of all inputs of its contents, so an entry is never wrong, only missing.
//! It is created atomically, by a rename, and ends in a hash of its contents, which detects the damage of a
//! full disk or a power failure.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, io, process};

/// Size limit in bytes; code objects for all targets are 60 MB. Entries beyond it are removed, the longest
/// unused first.
pub(crate) const LIMIT: u64 = 512 << 20;

/// A folder of compiled files, which several builds may use at the same time.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the store of a user. If that cannot be written, opens the one of the target directory that
    /// contains the build script's folder `out`, or else one in `out`.
    pub(crate) fn open(user: Option<&Path>, out: &Path) -> Store {
        let shared = user.map(|cache| cache.join("diptych/hip-objects"));
        let target = target_directory(out).map(|folder| folder.join("hip-objects"));
        let opened = [shared, target].into_iter().flatten().find_map(|folder| Store::writable(folder).ok());
        opened.unwrap_or_else(|| {
            let folder = out.join("hip-objects");
            // If this fails nothing is stored, and everything still works.
            let _ = fs::create_dir_all(&folder);
            Store { folder }
        })
    }

    fn writable(folder: PathBuf) -> io::Result<Store> {
        fs::create_dir_all(&folder)?;
        let probe = folder.join(format!("writable.{}.lock", process::id()));
        File::create(&probe)?;
        // Another thread of this process may have removed it.
        let _ = fs::remove_file(probe);
        Ok(Store { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of an entry whose contents are determined by `all`.
    pub(crate) fn name(prefix: &str, all: &impl Hash) -> String {
        // The ':' of a target's modes is not allowed in file names on all systems.
        format!("{}-{:016x}", prefix.replace(':', "_"), hash(all))
    }

    /// Returns the contents of an entry. Reading it counts as use.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(name);
        let mut bytes = fs::read(&path).ok()?;
        let end = bytes.split_off(bytes.len().checked_sub(8)?);
        if end != hash(&bytes).to_le_bytes() {
            return None;
        }
        let _ = File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(bytes)
    }

    /// Returns an entry, made by `make` if it is missing. Of several builds that want the same entry one makes it and the
    /// others wait for it.
    ///
    /// # Errors
    /// The one of `make`; then there is no entry.
    pub(crate) fn get_or_make(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, String> {
        if let Some(bytes) = self.get(name) {
            return Ok(bytes);
        }
        let path = self.folder.join(format!("{name}.lock"));
        // Some file systems have no locks; then an entry may be made twice.
        let lock = File::create(&path).ok().filter(|file| file.lock().is_ok());
        let bytes = self.get(name).map(Ok).unwrap_or_else(|| {
            let bytes = make()?;
            self.put(name, &bytes);
            Ok(bytes)
        });
        // A build that waits for this file gets its lock all the same, and finds the entry.
        let _ = fs::remove_file(path);
        drop(lock);
        bytes
    }

    /// Keeps an entry. Where that fails it will be made again.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let unfinished = self.folder.join(format!("{name}.{}", process::id()));
        let checked = [bytes, &hash(&bytes).to_le_bytes()].concat();
        if fs::write(&unfinished, checked)
            .and_then(|()| fs::rename(&unfinished, self.folder.join(name)))
            .is_err()
        {
            let _ = fs::remove_file(unfinished);
        }
    }

    /// Removes the longest unused entries until at most `limit` bytes are left.
    pub(crate) fn trim(&self, limit: u64) {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let data = entry.metadata().ok()?;
                Some((data.modified().ok()?, data.len(), entry.path()))
            })
            .collect();
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, len, _)| len).sum();
        for (_, len, path) in entries {
            if bytes <= limit {
                break;
            }
            let _ = fs::remove_file(path);
            bytes -= len;
        }
    }
}

/// Returns the folder for caches of the building user, from the environment.
pub(crate) fn user_cache() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
    }
}

/// Returns the target directory above `out`. Cargo marks it with CACHEDIR.TAG only if cargo created the
/// folder; `.rustc_info.json` exists in any case.
fn target_directory(out: &Path) -> Option<&Path> {
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    out.ancestors().find(|folder| marks.iter().any(|mark| folder.join(mark).exists()))
}

/// Returns a hash. It is equal in all programs built with one release of Rust, which is enough: other
/// releases compile again.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
