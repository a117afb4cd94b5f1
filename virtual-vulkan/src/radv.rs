//! RADV's library: its path and its functions.

use crate::Unavailable;
use ash::vk;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders with the manifests of drivers.
const MANIFESTS: [&str; 3] =
    ["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];

/// Advice on the package to install.
const ADVICE: &str = "install Mesa's Vulkan drivers (Debian: mesa-vulkan-drivers of bookworm-backports)";

/// RADV's library, loaded as long as this value lives.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    functions: ash::StaticFn,
    _library: libloading::Library,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Library {
    /// Loads RADV: the given file, or the one named in a manifest.
    pub(crate) fn load(named: Option<&Path>) -> Result<Arc<Library>, Unavailable> {
        let path = match named {
            Some(path) => path.to_path_buf(),
            None => find().ok_or_else(|| {
                Unavailable::Library(format!("no manifest of RADV in {}; {ADVICE}", MANIFESTS.join(", ")))
            })?,
        };
        let failed =
            |e: libloading::Error| Unavailable::Library(format!("{}: {e}; {ADVICE}", path.display()));
        // SAFETY: the library is the system's RADV or one that the caller declares to be it; its initialisers
        // are those of any Vulkan driver.
        let library = unsafe { libloading::Library::new(&path) }.map_err(failed)?;
        // SAFETY: every driver exports this function with this type (the loader's interface to drivers).
        let get = unsafe { library.get::<vk::PFN_vkGetInstanceProcAddr>(b"vk_icdGetInstanceProcAddr\0") };
        let get_instance_proc_addr = *get.map_err(failed)?;
        let functions = ash::StaticFn { get_instance_proc_addr };
        Ok(Arc::new(Library { path, functions, _library: library }))
    }

    /// Returns the functions that need no instance.
    pub(crate) fn functions(&self) -> ash::StaticFn {
        self.functions.clone()
    }

    /// Returns a function by its name.
    pub(crate) fn function(&self, instance: vk::Instance, name: &CStr) -> vk::PFN_vkVoidFunction {
        // SAFETY: the library is loaded; the instance is null or RADV's.
        unsafe { (self.functions.get_instance_proc_addr)(instance, name.as_ptr()) }
    }
}

/// Returns the library named in the first readable manifest of RADV.
fn find() -> Option<PathBuf> {
    let named = |name: &str| name.starts_with("radeon_icd") && name.ends_with(".json");
    let mut manifests: Vec<PathBuf> = MANIFESTS
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .filter(|entry| entry.file_name().to_str().is_some_and(named))
        .map(|entry| entry.path())
        .collect();
    // Manifests for this processor first; a system may also have those of other processors.
    manifests.sort_by_key(|path| !path.to_string_lossy().contains(std::env::consts::ARCH));
    manifests.iter().find_map(|path| library_of(path))
}

/// Returns the library of a manifest: an absolute path, a path relative to the manifest, or a name for the
/// system's library search.
fn library_of(manifest: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    let library = PathBuf::from(value["ICD"]["library_path"].as_str()?);
    match library.is_relative() && library.components().count() > 1 {
        true => Some(manifest.parent()?.join(library)),
        false => Some(library),
    }
}
