//! The library to preload that lets AMD's own runtime run on an emulated card (crate `virtual-kfd-preload`).

#[cfg(feature = "compare")]
use crate::backend_name::VirtualTarget;
use std::path::{Path, PathBuf};

/// Name of the library.
const LIBRARY: &str = "libvirtual_kfd_preload.so";
/// Variable that names another copy of it.
const VARIABLE: &str = "DIPTYCH_VIRTUAL_KFD";

/// Returns the library: the one that the variable names, or one in the program's folder or the one above it.
pub(crate) fn library() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let program = std::env::current_exe().ok()?;
    // A program that was started through a loader has the loader's path.
    let named = std::env::args_os().next().map(PathBuf::from);
    let next_to = |program: &Path| {
        let folders: Vec<&Path> = program.ancestors().skip(1).take(2).collect();
        folders.into_iter().map(|folder| folder.join(LIBRARY)).find(|path| path.is_file())
    };
    let found = next_to(&program).or_else(|| next_to(&named?))?;
    // A preloaded library's name with a slash is a path; the child may have another folder.
    std::path::absolute(found).ok()
}

/// Returns the variables of a process that has the emulated card, in addition to this one's; none if there is no
/// library.
#[cfg(feature = "compare")]
pub(crate) fn environment(target: VirtualTarget) -> Vec<(String, String)> {
    let Some(library) = library() else { return Vec::new() };
    let mut preload = library.to_string_lossy().into_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(':');
        preload.push_str(&others.to_string_lossy());
    }
    let card = match target {
        VirtualTarget::Gfx900 => "vega56",
        VirtualTarget::Gfx906 => "mi50",
        VirtualTarget::Gfx90a => "mi210",
        VirtualTarget::Gfx942 => "mi300x",
        VirtualTarget::Gfx1100 => "rx7900xtx",
        VirtualTarget::Gfx1151 => "strix-halo",
    };
    vec![("LD_PRELOAD".into(), preload), ("VIRTUAL_KFD_CARDS".into(), card.into())]
}

/// Returns true if this process has the library.
#[cfg(any(feature = "virtual", feature = "compare"))]
pub(crate) fn is_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(LIBRARY))
}

/// Returns why a process without the library has no emulated card under AMD's runtime, and what to do.
#[cfg(feature = "virtual")]
pub(crate) fn missing() -> String {
    match library() {
        Some(library) => format!(
            "this process was not started with LD_PRELOAD={}; compare starts one that is",
            library.display()
        ),
        None => format!(
            "{LIBRARY} is not next to this program: cargo build --release -p virtual-kfd-preload builds it, \
             {VARIABLE}=PATH names it"
        ),
    }
}

/// Returns true if the default backends of a comparison include AMD's runtime on the emulated card: the library and a
/// libamdhip64 are there.
pub fn is_usable() -> bool {
    #[cfg(feature = "hip")]
    let runtime = backend_hip::HipOptions::from_env()
        .is_ok_and(|options| !backend_hip::installed::installed(&options).copies.is_empty());
    #[cfg(not(feature = "hip"))]
    let runtime = false;
    runtime && library().is_some()
}
