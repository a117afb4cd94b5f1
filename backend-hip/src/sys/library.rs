//! Shared libraries: search, loading, symbol lookup. They are never closed.
//!
//! A driver's threads and exit handlers do not survive the unloading of its library.

use crate::options::HipOptions;
use ggml_core::phase;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

/// Library to search, and its possible locations.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Name without a version ("libamdhip64").
    pub(crate) what: &'static str,
    /// File names, the preferred first.
    pub(crate) names: &'static [&'static str],
    /// File that the user names: if set, nothing else is tried.
    pub(crate) named: Option<PathBuf>,
    /// Directories to search before the loader's own search path, each with a reason ("ROCM_PATH").
    pub(crate) directories: Vec<(PathBuf, &'static str)>,
}

/// Opened library.
#[derive(Debug)]
pub(crate) struct Found {
    /// Handle of the library.
    pub(crate) library: Library,
    /// Name by which it was opened.
    pub(crate) name: PathBuf,
    /// Description of how it was found.
    pub(crate) how: String,
}

/// Possible location of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// Already loaded in this process, under this name.
    InProcess(&'static str),
    /// File that the user named.
    Named(PathBuf),
    /// Directory with one of the names, and the reason for searching it.
    Directory(PathBuf, &'static str),
    /// Name in the loader's search path.
    Search(&'static str),
}

/// Returns the candidates in order.
pub(crate) fn candidates(options: &HipOptions, wanted: &Wanted) -> Vec<Candidate> {
    if let Some(path) = &wanted.named {
        return vec![Candidate::Named(path.clone())];
    }
    let own = options.is_this_system();
    let in_process = wanted.names.iter().filter(|_| own).map(|name| Candidate::InProcess(name));
    let directories = wanted.directories.iter().map(|(path, why)| Candidate::Directory(path.clone(), why));
    let search = wanted.names.iter().filter(|_| own).map(|name| Candidate::Search(name));
    in_process.chain(directories).chain(search).collect()
}

/// Opens the existing libraries in order until one is accepted. The error lists each path that was tried,
/// with the result or the reason for the rejection.
pub(crate) fn search<T>(
    options: &HipOptions,
    wanted: &Wanted,
    mut accept: impl FnMut(Found) -> Result<T, String>,
) -> Result<T, String> {
    let mut tried = Vec::new();
    let mut attempt = |name: &Path, how: &str, label: String, tried: &mut Vec<String>| {
        // Loading a library runs its code, which may end the process.
        phase::call("dlopen", &name.to_string_lossy());
        let found = Library::open(name).map(|library| Found { library, name: name.into(), how: how.into() });
        found.and_then(&mut accept).map_err(|message| tried.push(format!("{label}{message}"))).ok()
    };
    for candidate in candidates(options, wanted) {
        let accepted = match candidate {
            Candidate::InProcess(name) if Library::loaded(Path::new(name)).is_none() => None,
            Candidate::InProcess(name) => {
                attempt(Path::new(name), "already in this process", format!("{name}: "), &mut tried)
            }
            Candidate::Named(path) => {
                let label = format!("{} (named by the user): ", path.display());
                attempt(&path, "named by the user", label, &mut tried)
            }
            Candidate::Directory(directory, reason) => {
                let files: Vec<PathBuf> =
                    wanted.names.iter().map(|n| directory.join(n)).filter(|f| f.exists()).collect();
                if files.is_empty() {
                    let what = if directory.is_dir() {
                        format!("contains none of {}", wanted.names.join(", "))
                    } else {
                        "no such directory".into()
                    };
                    tried.push(format!("{} ({reason}): {what}", directory.display()));
                }
                let one = |file: &PathBuf| {
                    attempt(file, reason, format!("{} ({reason}): ", file.display()), &mut tried)
                };
                files.iter().find_map(one)
            }
            Candidate::Search(name) => {
                attempt(Path::new(name), "loader's search path", "search path: ".into(), &mut tried)
            }
        };
        if let Some(accepted) = accepted {
            return Ok(accepted);
        }
    }
    if !options.is_this_system() {
        tried.push("the loader's search path was left out, because system paths are replaced".into());
    }
    Err(format!("{} was not loaded: {}", wanted.what, tried.join("; ")))
}

/// Handle of the loader, never closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(*mut c_void);

#[cfg(unix)]
impl Library {
    /// Opens a file, or a name in the loader's search path. The error is the loader's message.
    pub(crate) fn open(path: &Path) -> Result<Library, String> {
        Library::dlopen(path, 0)
    }

    /// Returns a library that this process has already loaded.
    pub(crate) fn loaded(path: &Path) -> Option<Library> {
        Library::dlopen(path, libc::RTLD_NOLOAD).ok()
    }

    fn dlopen(path: &Path, extra: std::ffi::c_int) -> Result<Library, String> {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "the path contains a zero byte".to_string())?;
        // SAFETY: `name` is a C string. Loading runs the library's initialisers, as in every program that
        // links it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | extra) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: no other call of the loader happens in between on this thread, for which the message is
        // stored; it is a C string or null and is copied immediately.
        let message = unsafe {
            let text = libc::dlerror();
            if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
        };
        Err(message.unwrap_or_else(|| "the loader reports no reason".into()))
    }

    /// Returns the address of a function.
    pub(crate) fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is one of `dlopen` and never closed; the name is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Returns the file that a function of the library was loaded from, with links resolved.
    pub(crate) fn file(self, function: &CStr) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let address = self.symbol(function)?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `dladdr` accepts any address and fills the structure if the address is in a loaded file;
        // zeroes are valid contents of the structure. Its name is a C string of the loader that lives as long
        // as the file is loaded.
        let name = unsafe {
            if libc::dladdr(address, info.as_mut_ptr()) == 0 {
                return None;
            }
            let name = info.assume_init().dli_fname;
            if name.is_null() {
                return None;
            }
            CStr::from_ptr(name).to_bytes().to_vec()
        };
        let path = PathBuf::from(std::ffi::OsString::from_vec(name));
        Some(std::fs::canonicalize(&path).unwrap_or(path))
    }
}

#[cfg(windows)]
impl Library {
    /// Opens a file, or a name in the system's folder or the program's own. The folder that the program is
    /// started in is not searched: anybody may have put a file there. The error is the loader's message.
    pub(crate) fn open(path: &Path) -> Result<Library, String> {
        use libloading::os::windows::{
            LOAD_LIBRARY_SEARCH_APPLICATION_DIR, LOAD_LIBRARY_SEARCH_SYSTEM32, LOAD_WITH_ALTERED_SEARCH_PATH,
        };
        let is_name = path.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        let flags = match is_name {
            true => LOAD_LIBRARY_SEARCH_APPLICATION_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32,
            false => LOAD_WITH_ALTERED_SEARCH_PATH,
        };
        // SAFETY: loading runs the library's initialisers, as in every program that links it.
        let library = unsafe { libloading::os::windows::Library::load_with_flags(path, flags) };
        library.map(|library| Library(library.into_raw() as *mut c_void)).map_err(|e| e.to_string())
    }

    /// Returns a library that this process has already loaded.
    pub(crate) fn loaded(path: &Path) -> Option<Library> {
        let library = libloading::os::windows::Library::open_already_loaded(path).ok()?;
        Some(Library(library.into_raw() as *mut c_void))
    }

    /// Returns the address of a function.
    pub(crate) fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is one of `into_raw`; it is not closed here either.
        let library = unsafe { libloading::os::windows::Library::from_raw(self.0 as _) };
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the type is that of an address; nothing is read through it.
        let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        Some(*symbol).filter(|address| !address.is_null())
    }

    /// Returns `None`: the path is not queried on Windows, so the library's name is used instead.
    pub(crate) fn file(self, _function: &CStr) -> Option<PathBuf> {
        None
    }
}
