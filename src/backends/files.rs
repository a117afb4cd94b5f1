//! The drivers installed on a system, found by reading files: nothing is loaded.

use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Root directory of system paths; tests replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    /// Returns a system path below the root.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// True if it is the root of this machine, "/".
    #[cfg(any(feature = "probe", test))]
    pub(crate) fn is_here(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the first line of a small file.
    pub(crate) fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.at(path)).ok()?;
        text.lines().next().map(|line| line.trim().to_string())
    }

    /// Lists the names in a directory, sorted.
    pub(crate) fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A driver that Vulkan's loader would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VulkanDriver {
    /// Path of the manifest, without the test root.
    pub(crate) manifest: PathBuf,
    /// The library that the manifest names, if the file exists.
    pub(crate) library: Option<PathBuf>,
    /// Mesa version ("25.0.7"), for Mesa's drivers.
    pub(crate) mesa: Option<String>,
}

/// Directories that the loader searches for manifests.
pub(crate) const MANIFESTS: &[&str] =
    &["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];

/// Directories that contain libraries.
const LIBRARIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/lib64",
    "/lib",
];

/// Finds Vulkan's loader.
pub(crate) fn vulkan_loader(root: &Root) -> Option<PathBuf> {
    find(root, "libvulkan.so.1")
}

/// Lists the drivers whose manifests are installed.
pub(crate) fn vulkan_drivers(root: &Root) -> Vec<VulkanDriver> {
    let folders = MANIFESTS.iter().map(Path::new);
    let manifests = folders.flat_map(|folder| {
        root.names(folder).into_iter().filter(|n| n.ends_with(".json")).map(move |n| folder.join(n))
    });
    manifests.map(|manifest| vulkan_driver(root, manifest)).collect()
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "ICD")]
    icd: Icd,
}

#[derive(Deserialize)]
struct Icd {
    library_path: String,
}

fn vulkan_driver(root: &Root, manifest: PathBuf) -> VulkanDriver {
    let text = std::fs::read_to_string(root.at(&manifest)).unwrap_or_default();
    let named = serde_json::from_str::<Manifest>(&text).ok().map(|m| PathBuf::from(m.icd.library_path));
    let library = named.and_then(|path| match path.components().count() {
        1 => find(root, path.to_str()?),
        _ if path.is_absolute() => root.at(&path).is_file().then_some(path),
        _ => manifest.parent().map(|folder| folder.join(path)).filter(|path| root.at(path).is_file()),
    });
    let mesa = library.as_ref().and_then(|path| mesa(&root.at(path)));
    VulkanDriver { manifest, library, mesa }
}

fn find(root: &Root, name: &str) -> Option<PathBuf> {
    LIBRARIES.iter().map(|folder| Path::new(folder).join(name)).find(|path| root.at(path).is_file())
}

/// Number of bytes read from the beginning of a library, the part with constant strings.
const TEXTS: u64 = 48 << 20;

/// Finds the version in "Mesa 25.0.7", the name that Mesa's drivers report.
fn mesa(path: &Path) -> Option<String> {
    const MARK: &[u8] = b"Mesa ";
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(TEXTS).read_to_end(&mut bytes).ok()?;
    let at = |at: usize| {
        let rest = &bytes[at + MARK.len()..];
        let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.').unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        (text.matches('.').count() == 2 && !text.starts_with('.')).then(|| text.to_string())
    };
    bytes.windows(MARK.len()).enumerate().filter(|(_, w)| *w == MARK).find_map(|(i, _)| at(i))
}

/// Returns a file's path, size and modification time as one line. It changes when the file is replaced.
pub(crate) fn mark(path: &Path) -> String {
    let metadata = std::fs::metadata(path);
    let time = metadata.as_ref().ok().and_then(|m| m.modified().ok());
    let time = time.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |d| d.as_secs());
    format!("{} {} {time}", path.display(), metadata.map_or(0, |m| m.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_and_their_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root(dir.path().into());
        let write = |path: &str, text: &str| {
            let path = root.at(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("/usr/share/vulkan/icd.d/radeon.json", r#"{"ICD": {"library_path": "libvulkan_radeon.so"}}"#);
        write("/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so", "x\0Mesa GLX\0Mesa 25.0.7-2\0y");
        write("/etc/vulkan/icd.d/gone.json", r#"{"ICD": {"library_path": "/opt/gone.so"}}"#);
        write("/etc/vulkan/icd.d/broken.json", "{");
        let drivers = vulkan_drivers(&root);
        let found: Vec<_> = drivers
            .iter()
            .map(|d| (d.library.as_deref().and_then(Path::to_str), d.mesa.as_deref()))
            .collect();
        let radeon = Some("/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so");
        assert_eq!(found, [(None, None), (None, None), (radeon, Some("25.0.7"))]);
        assert_eq!(vulkan_loader(&root), None);
        assert!(!root.is_here());
    }
}
