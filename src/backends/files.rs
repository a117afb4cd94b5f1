//! The drivers installed on a system, found by reading files: nothing is loaded.

use crate::json;
use ggml_core::files::Root;
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

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

/// Environment variables by name.
pub(crate) type Variables = [(String, String)];

/// Returns the environment variables of this process.
pub(crate) fn variables() -> Vec<(String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

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

/// Returns the folders and manifests in which Vulkan's loader searches for drivers, in its order: those of
/// VK_DRIVER_FILES only, or of its older name, if it is set; otherwise those of VK_ADD_DRIVER_FILES and the
/// folders of configuration and data of the user and of the system.
pub(crate) fn vulkan_places(variables: &Variables) -> Vec<PathBuf> {
    let get = |name: &str| {
        variables.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
    };
    let list = |paths: &str| -> Vec<PathBuf> {
        paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
    };
    if let Some(only) = get("VK_DRIVER_FILES").or_else(|| get("VK_ICD_FILENAMES")) {
        return list(only);
    }
    let of_user = |name: &str, folder: &str| match (get(name), get("HOME")) {
        (Some(path), _) => vec![PathBuf::from(path)],
        (None, Some(home)) => vec![Path::new(home).join(folder)],
        (None, None) => Vec::new(),
    };
    let folders = [
        of_user("XDG_CONFIG_HOME", ".config"),
        list(get("XDG_CONFIG_DIRS").unwrap_or("/etc/xdg")),
        list("/etc"),
        of_user("XDG_DATA_HOME", ".local/share"),
        list(get("XDG_DATA_DIRS").unwrap_or("/usr/local/share:/usr/share")),
    ];
    let folders = folders.into_iter().flatten().map(|folder| folder.join("vulkan/icd.d"));
    let mut places: Vec<PathBuf> = list(get("VK_ADD_DRIVER_FILES").unwrap_or_default());
    places.extend(folders);
    let mut known = HashSet::new();
    places.retain(|place| known.insert(place.clone()));
    places
}

/// Lists the drivers whose manifests the loader would find.
pub(crate) fn vulkan_drivers(root: &Root, variables: &Variables) -> Vec<VulkanDriver> {
    let manifests = vulkan_places(variables).into_iter().flat_map(|place| {
        if root.at(&place).is_file() {
            return vec![place];
        }
        let names = root.names(&place).into_iter().filter(|name| name.ends_with(".json"));
        names.map(|name| place.join(name)).collect()
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
    let named = json::read::<Manifest>(&text).ok().map(|m| PathBuf::from(m.icd.library_path));
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
    memchr::memmem::find_iter(&bytes, MARK).find_map(at)
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

    fn root() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        (dir, root)
    }

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.below(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    const RADEON: &str = r#"{"ICD": {"library_path": "libvulkan_radeon.so"}}"#;

    #[test]
    fn manifests_and_their_libraries() {
        let (_dir, root) = root();
        write(&root, "/usr/share/vulkan/icd.d/radeon.json", RADEON);
        write(&root, "/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so", "x\0Mesa GLX\0Mesa 25.0.7-2\0y");
        write(&root, "/etc/vulkan/icd.d/gone.json", r#"{"ICD": {"library_path": "/opt/gone.so"}}"#);
        write(&root, "/etc/vulkan/icd.d/broken.json", "{");
        let drivers = vulkan_drivers(&root, &[]);
        let found: Vec<_> = drivers
            .iter()
            .map(|d| (d.library.as_deref().and_then(Path::to_str), d.mesa.as_deref()))
            .collect();
        let radeon = Some("/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so");
        assert_eq!(found, [(None, None), (None, None), (radeon, Some("25.0.7"))]);
        assert_eq!(vulkan_loader(&root), None);
    }

    /// Links of a recorded system lead to its own files: to a library that is there, and to none although
    /// this machine has the file.
    #[cfg(unix)]
    #[test]
    fn links_of_a_recorded_system_stay_in_it() {
        use std::os::unix::fs::symlink;
        let ((_dir, root), (outside, _)) = (root(), root());
        let outer = outside.path().join("libvulkan.so.1");
        std::fs::write(&outer, "").unwrap();
        write(&root, "/usr/share/vulkan/icd.d/radeon.json", RADEON);
        write(&root, "/opt/mesa/libvulkan_radeon.so", "Mesa 25.0.7");
        std::fs::create_dir_all(root.below("/usr/lib")).unwrap();
        symlink("/opt/mesa/libvulkan_radeon.so", root.below("/usr/lib/libvulkan_radeon.so")).unwrap();
        symlink(&outer, root.below("/usr/lib/libvulkan.so.1")).unwrap();
        assert_eq!(vulkan_drivers(&root, &[])[0].mesa.as_deref(), Some("25.0.7"));
        assert_eq!(vulkan_loader(&root), None);
    }

    /// The variables of the loader name manifests, their folders, or folders of the user and the system.
    #[test]
    fn the_loaders_variables_count() {
        let (_dir, root) = root();
        let places = [
            "/etc/vulkan/icd.d/system.json",
            "/home/me/.local/share/vulkan/icd.d/user.json",
            "/opt/config/vulkan/icd.d/config.json",
            "/opt/drivers/one.json",
            "/opt/drivers/other.json",
        ];
        places.iter().for_each(|place| write(&root, place, RADEON));
        let found = |variables: &[(&str, &str)]| {
            let text = |&(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            let drivers = vulkan_drivers(&root, &variables.iter().map(text).collect::<Vec<_>>());
            let name = |d: VulkanDriver| d.manifest.file_stem().unwrap().to_string_lossy().into_owned();
            drivers.into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), ["system"]);
        assert_eq!(
            found(&[("HOME", "/home/me"), ("XDG_CONFIG_DIRS", "/gone:/opt/config")]),
            ["config", "system", "user"]
        );
        assert_eq!(found(&[("XDG_DATA_HOME", "/home/me/.local/share")]), ["system", "user"]);
        assert_eq!(found(&[("VK_ADD_DRIVER_FILES", "/opt/drivers/other.json")]), ["other", "system"]);
        let old = ("VK_ICD_FILENAMES", "/opt/drivers/one.json:/gone.json");
        assert_eq!(found(&[old]), ["one"]);
        assert_eq!(found(&[old, ("VK_DRIVER_FILES", "/opt/drivers")]), ["one", "other"]);
    }
}
