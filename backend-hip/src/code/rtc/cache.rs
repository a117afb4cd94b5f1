//! Code objects on disk: one file each, named by the hash of all inputs of the compilation.
//!
//! A file consists of a magic line, the lengths of key and code object, the code object's hash, the key, and
//! the code object. It is used only if its key equals the requested one byte for byte and the file is
//! complete and intact. Files are written under a temporary name and renamed, so a partial file is never
//! visible. A disk that cannot be read or written costs time only.

use ggml_core::files::{read_cached, write_cached};
use std::path::PathBuf;

/// First line of a file; its number changes with the layout.
const MAGIC: &[u8] = b"diptych hip code object 1\n";

/// Maximum size of a valid file in bytes.
const MOST: u64 = 256 << 20;

/// All inputs of a compilation.
pub(crate) struct Key {
    text: String,
}

impl Key {
    /// Creates the key from a family's source with all headers, the options (including the target) and the
    /// compiler's version.
    pub(crate) fn new(stem: &str, options: &[String], compiler: &str) -> Key {
        let mut text = format!("{stem}\n{compiler}\n{}\n", options.join("\n"));
        for (name, body) in hip_kernels::sources() {
            if name.ends_with(".h") || name.strip_suffix(".hip") == Some(stem) {
                text += &format!("{name} {:032x}\n", hash(body.as_bytes()));
            }
        }
        Key { text }
    }

    /// Returns the text of the key.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Computes the 128-bit FNV-1a hash.
fn hash(bytes: &[u8]) -> u128 {
    let step =
        |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
}

/// Directory of code objects, or none.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// Creates a cache in a directory, which is created on the first write.
    pub(crate) fn new(directory: Option<PathBuf>) -> Cache {
        Cache { directory }
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{:032x}.co", hash(key.text.as_bytes()))))
    }

    /// Returns the code object of a key.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let image = decode(&read_cached(&path, MOST).ok()?, key).map(<[u8]>::to_vec);
        if image.is_none() {
            tracing::warn!(target: "diptych::hip", "{}: damaged or for other inputs; the kernels are compiled again", path.display());
        }
        image
    }

    /// Stores the code object of a key.
    pub(crate) fn put(&self, key: &Key, image: &[u8]) {
        let Some(path) = self.path(key) else { return };
        if let Err(error) = write_cached(&path, &encode(key, image)) {
            tracing::warn!(target: "diptych::hip", "{}: {error}; the code object was not stored", path.display());
        }
    }
}

fn encode(key: &Key, image: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend((key.text.len() as u64).to_le_bytes());
    file.extend((image.len() as u64).to_le_bytes());
    file.extend(hash(image).to_le_bytes());
    file.extend(key.text.as_bytes());
    file.extend(image);
    file
}

/// Returns the code object in a file, if the file is intact and has this key.
fn decode<'a>(file: &'a [u8], key: &Key) -> Option<&'a [u8]> {
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut take = |bytes: usize| {
        let (part, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some(part)
    };
    let key_bytes = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let image_bytes = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let image_hash = u128::from_le_bytes(take(16)?.try_into().ok()?);
    let stored = take(usize::try_from(key_bytes).ok()?)?;
    let image = take(usize::try_from(image_bytes).ok()?)?;
    let whole = rest.is_empty() && hash(image) == image_hash;
    (whole && stored == key.text.as_bytes()).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(directory.path().join("a/b")));
        let key = |stem: &str, option: &str| Key::new(stem, &[option.into()], "9.0");
        let norm = key("norm", "--offload-arch=gfx906");
        assert_eq!(cache.get(&norm), None);
        cache.put(&norm, b"code");
        cache.put(&norm, b"code object");
        assert_eq!(cache.get(&norm).as_deref(), Some(&b"code object"[..]));
        for other in [key("rope", "--offload-arch=gfx906"), key("norm", "--offload-arch=gfx900")] {
            assert_eq!(cache.get(&other), None);
        }
        let path = cache.path(&norm).unwrap();
        let good = fs::read(&path).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no drafts are left");
        for end in 0..good.len() {
            assert_eq!(decode(&good[..end], &norm), None, "{end}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad, &norm), None, "{at}");
        }
        // A file with the right name and another key.
        fs::write(&path, encode(&key("rope", ""), b"code object")).unwrap();
        assert_eq!(cache.get(&norm), None);
        let nowhere = Cache::new(None);
        nowhere.put(&norm, b"code");
        assert_eq!(nowhere.get(&norm), None);
        // A directory that cannot be created.
        let blocked = Cache::new(Some(path.join("c")));
        blocked.put(&norm, b"code");
        assert_eq!(blocked.get(&norm), None);
    }
}
