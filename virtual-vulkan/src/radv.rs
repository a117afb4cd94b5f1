//! RADV's library: where it is, and its functions.

use crate::Unavailable;
use ash::vk;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders in which drivers say where they are.
const MANIFESTS: [&str; 3] =
    ["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];

/// What to install.
const ADVICE: &str = "install Mesa's Vulkan drivers (Debian: mesa-vulkan-drivers of bookworm-backports)";

/// The library. It stays loaded as long as this lives.
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
    /// Loads RADV: the named file, or the one that a manifest names.
    pub(crate) fn load(named: Option<&Path>) -> Result<Arc<Library>, Unavailable> {
        let path = match named {
            Some(path) => path.to_path_buf(),
            None => find().ok_or_else(|| {
                Unavailable::Library(format!("no manifest of RADV in {}; {ADVICE}", MANIFESTS.join(", ")))
            })?,
        };
        let failed =
            |e: libloading::Error| Unavailable::Library(format!("{}: {e}; {ADVICE}", path.display()));
        // SAFETY: the library is the system's RADV or the one that the caller names as such; its initialisers are
        // those of any Vulkan driver.
        let library = unsafe { libloading::Library::new(&path) }.map_err(failed)?;
        // SAFETY: every driver exports this function with this type (the loader's interface to drivers).
        let get = unsafe { library.get::<vk::PFN_vkGetInstanceProcAddr>(b"vk_icdGetInstanceProcAddr\0") };
        let get_instance_proc_addr = *get.map_err(failed)?;
        let functions = ash::StaticFn { get_instance_proc_addr };
        Ok(Arc::new(Library { path, functions, _library: library }))
    }

    /// The functions that need no instance.
    pub(crate) fn functions(&self) -> ash::StaticFn {
        self.functions.clone()
    }

    /// A function by its name.
    pub(crate) fn function(&self, instance: vk::Instance, name: &CStr) -> vk::PFN_vkVoidFunction {
        // SAFETY: the library is loaded; the instance is null or RADV's.
        unsafe { (self.functions.get_instance_proc_addr)(instance, name.as_ptr()) }
    }
}

/// The library that the first readable manifest of RADV names.
fn find() -> Option<PathBuf> {
    let named = |name: &str| name.starts_with("radeon_icd") && name.ends_with(".json");
    let mut manifests: Vec<PathBuf> = MANIFESTS
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .filter(|entry| entry.file_name().to_str().is_some_and(named))
        .map(|entry| entry.path())
        .collect();
    // The manifest of this processor before those of others, which a system may have as well.
    manifests.sort_by_key(|path| !path.to_string_lossy().contains(std::env::consts::ARCH));
    manifests.iter().find_map(|path| library_of(path))
}

/// The library that a manifest names: a path, absolute or from the manifest, or a name for the system to look up.
fn library_of(manifest: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    let library = PathBuf::from(value["ICD"]["library_path"].as_str()?);
    match library.is_relative() && library.components().count() > 1 {
        true => Some(manifest.parent()?.join(library)),
        false => Some(library),
    }
}
