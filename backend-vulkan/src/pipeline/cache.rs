//! The driver's compiled pipelines on disk.
//!
//! There is one file for each device, driver and set of shaders. Its header identifies all three and has a
//! checksum, because drivers differ in how they handle damaged data: a file that does not match is not passed
//! to the driver. Every failure is a warning; without a cache everything is compiled. Each new driver and each new
//! set of shaders leaves a file behind, so whoever writes a file removes those of its device that are old.

use crate::raw::physical::Facts;
use ggml_core::files::{read_cached, remove, write_cached};
use ggml_core::hash::Fnv1a;
use std::fs::{DirEntry, File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"DIPTVKC1";

/// Bytes of this file's header: magic, key, checksum and length of the data.
const HEADER: usize = 8 + 8 + 8 + 8;

/// Bytes of the header that Vulkan puts before the data: length, version 1, vendor, device, UUID.
const DRIVER_HEADER: usize = 32;

/// Time after which the file of another driver or of other shaders is removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Maximum bytes of a file that is read.
const LARGEST: u64 = 1 << 30;

/// The cache file of one device.
#[derive(Clone, Debug)]
pub(crate) struct DiskCache {
    path: PathBuf,
    key: u64,
    ids: (u32, u32),
    uuid: [u8; 16],
}

/// Returns the FNV-1a hash of the parts. It detects damage and does not protect against tampering (the
/// directory belongs to the user).
fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = Fnv1a::default();
    parts.iter().for_each(|part| hash.update(part));
    hash.finish()
}

/// Returns the name of the file with a key.
fn file_name(key: u64) -> String {
    format!("pipelines-{key:016x}.bin")
}

impl DiskCache {
    /// Creates the cache of a device in a directory.
    pub(crate) fn new(dir: &Path, facts: &Facts) -> DiskCache {
        let key = hash(&[
            &facts.uuid,
            &facts.cache_uuid,
            &facts.driver_version.to_le_bytes(),
            facts.driver_info.as_bytes(),
            shaders::digest().as_bytes(),
        ]);
        DiskCache { path: dir.join(file_name(key)), key, ids: facts.ids, uuid: facts.cache_uuid }
    }

    /// Returns the data, if the file exists and was written for this device, driver and set of shaders.
    pub(crate) fn load(&self) -> Option<Vec<u8>> {
        let bytes = read_cached(&self.path, LARGEST).ok()?;
        let data = self.decode(&bytes);
        if data.is_none() {
            tracing::warn!(path = %self.path.display(), "the pipeline cache is damaged or was written for another device; it is ignored");
        }
        data.map(<[u8]>::to_vec)
    }

    /// Writes the data atomically, and removes old files of this device. Several backends of this process may store
    /// at the same time.
    pub(crate) fn store(&self, data: &[u8]) {
        if !self.is_for_device(data) {
            return;
        }
        if let Err(error) = write_cached(&self.path, &self.encode(data)) {
            tracing::warn!(path = %self.path.display(), %error, "the pipeline cache was not written");
            return;
        }
        let files = self.path.parent().and_then(|folder| std::fs::read_dir(folder).ok());
        for entry in files.into_iter().flatten().flatten().filter(|entry| self.replaces(entry)) {
            if let Err(error) = remove(&entry.path()) {
                tracing::warn!(path = %entry.path().display(), %error, "an old pipeline cache was not removed");
            }
        }
    }

    /// Returns true for the old file of the same device, with another driver or other shaders.
    fn replaces(&self, entry: &DirEntry) -> bool {
        let name = entry.file_name();
        let key = name.to_str().and_then(|n| n.strip_prefix("pipelines-")?.strip_suffix(".bin"));
        let key = key.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        // The metadata of a link is its own.
        let old = |about: Metadata| {
            about.is_file() && about.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > KEPT))
        };
        key.is_some_and(|key| key != self.key && name.to_str() == Some(&file_name(key)))
            && entry.metadata().is_ok_and(old)
            && self.is_of_device(&entry.path())
    }

    /// Returns true if a file begins as this device's files do.
    fn is_of_device(&self, path: &Path) -> bool {
        let mut start = [0; HEADER + 16];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        let word = |i: usize| u32::from_le_bytes([start[i], start[i + 1], start[i + 2], start[i + 3]]);
        read.is_ok() && start.starts_with(MAGIC) && (word(HEADER + 8), word(HEADER + 12)) == self.ids
    }

    fn encode(&self, data: &[u8]) -> Vec<u8> {
        let numbers = [self.key, hash(&[data]), data.len() as u64];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend_from_slice(data);
        bytes
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let number = |i: usize| Some(u64::from_le_bytes(header.get(i..i + 8)?.try_into().ok()?));
        let ours = header.starts_with(MAGIC) && number(8)? == self.key && number(24)? == data.len() as u64;
        (ours && number(16)? == hash(&[data]) && self.is_for_device(data)).then_some(data)
    }

    /// Returns true if the driver's own header matches this device.
    fn is_for_device(&self, data: &[u8]) -> bool {
        let word =
            |i: usize| data.get(4 * i..4 * i + 4).and_then(|w| w.try_into().ok()).map(u32::from_le_bytes);
        word(0).is_some_and(|length| length as usize >= DRIVER_HEADER && length as usize <= data.len())
            && word(1) == Some(1)
            && word(2) == Some(self.ids.0)
            && word(3) == Some(self.ids.1)
            && data.get(16..32) == Some(&self.uuid[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(dir: &Path, key: u64) -> DiskCache {
        DiskCache { path: dir.join("cache.bin"), key, ids: (0x1002, 0x687f), uuid: [7; 16] }
    }

    fn data() -> Vec<u8> {
        let mut data: Vec<u8> = [32u32, 1, 0x1002, 0x687f].iter().flat_map(|w| w.to_le_bytes()).collect();
        data.extend([7; 16]);
        data.extend((0..100).map(|i| i as u8));
        data
    }

    #[test]
    fn data_comes_back_and_anything_else_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let deeper = dir.path().join("a").join("b");
        let cache = cache(&deeper, 1);
        assert_eq!(cache.load(), None);
        cache.store(&data());
        assert_eq!(cache.load(), Some(data()));
        assert_eq!(std::fs::read_dir(&deeper).unwrap().count(), 1, "no temporary file is left");
        assert_eq!(DiskCache { key: 2, ..cache.clone() }.load(), None);
        assert_eq!(DiskCache { uuid: [8; 16], ..cache.clone() }.load(), None);
        let whole = std::fs::read(&cache.path).unwrap();
        for length in [0, 1, HEADER, HEADER + 31, whole.len() - 1] {
            std::fs::write(&cache.path, &whole[..length]).unwrap();
            assert_eq!(cache.load(), None, "cut at {length}");
        }
        for at in [0, 9, 17, 25, HEADER, HEADER + 20, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&cache.path, &bytes).unwrap();
            assert_eq!(cache.load(), None, "changed at {at}");
        }
    }

    /// Each driver and each set of shaders has a file of its own: those that nobody renewed for long are removed.
    #[test]
    fn old_files_of_the_device_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let of = |key| DiskCache { path: dir.path().join(file_name(key)), ..cache(dir.path(), key) };
        let write = |name: &str, contents: &[u8], days: u64| {
            let path = dir.path().join(name);
            std::fs::write(&path, contents).unwrap();
            let age = Duration::from_secs(days * 24 * 3600);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        };
        let mine = of(2).encode(&data());
        let mut other = mine.clone();
        other[HEADER + 8] ^= 1;
        write(&file_name(2), &mine, 40);
        write(&file_name(3), &mine, 20);
        write(&file_name(4), &other, 40);
        write("pipelines-5.bin", &mine, 40);
        write(&file_name(6), b"short", 40);
        of(1).store(&data());
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut wanted = [1, 3, 4, 6].map(file_name).to_vec();
        wanted.push("pipelines-5.bin".into());
        assert_eq!(left, wanted);
    }

    /// A link in the folder is replaced; the file that it names stays as it is, and is not read either.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path(), 1);
        let target = dir.path().join("precious");
        std::fs::write(&target, cache.encode(&data())).unwrap();
        let before = std::fs::read(&target).unwrap();
        std::os::unix::fs::symlink(&target, &cache.path).unwrap();
        assert_eq!(cache.load(), None);
        let mut other = data();
        other.push(1);
        cache.store(&other);
        assert_eq!(std::fs::read(&target).unwrap(), before);
        assert_eq!(cache.load(), Some(other));
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        cache(&file, 1).store(&data());
    }
}
