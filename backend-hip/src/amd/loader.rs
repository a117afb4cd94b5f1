//! Finding and loading libamdhip64.
//!
//! Order: a library that this process already has, since two HIP runtimes in one process collide; the library that
//! the user names, alone; else each release's name in `$ROCM_PATH/lib`, `$HIP_PATH/lib`, `/opt/rocm/lib`,
//! `/opt/rocm/core/lib`; then the names through the loader's own search path. A library is never unloaded: its
//! threads and exit handlers do not bear it.

use super::symbols::Symbols;
use crate::options::HipOptions;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Names to try in a directory, newest supported release first; .10 and .8 are those that later releases may have.
pub(crate) const NAMES: [&str; 6] = [
    "libamdhip64.so.7",
    "libamdhip64.so.10",
    "libamdhip64.so.8",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
];

/// A loaded library.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The functions.
    pub(crate) symbols: Symbols,
    /// The file, links resolved.
    pub(crate) path: PathBuf,
    /// How it was found.
    pub(crate) found: String,
}

/// Where a library may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this process already, under this name.
    InProcess(&'static str),
    /// This file, which the user named.
    Named(PathBuf),
    /// One of [`NAMES`] in this directory, which is there for a reason ("ROCM_PATH").
    Directory(PathBuf, &'static str),
    /// Wherever the loader finds this name.
    Search(&'static str),
}

/// The places in order.
pub(crate) fn places(options: &HipOptions) -> Vec<Place> {
    if let Some(path) = &options.library {
        return vec![Place::Named(path.clone())];
    }
    let mut places = Vec::new();
    if options.is_this_system() {
        places.extend(NAMES.map(Place::InProcess));
    }
    for (variable, below) in [("ROCM_PATH", "lib"), ("HIP_PATH", "lib")] {
        if let Some(path) = options.environment.get(variable) {
            places.push(Place::Directory(options.rooted(path).join(below), variable));
        }
    }
    for directory in ["/opt/rocm/lib", "/opt/rocm/core/lib"] {
        places.push(Place::Directory(options.rooted(directory), "usual place"));
    }
    if options.is_this_system() {
        places.extend(NAMES.map(Place::Search));
    }
    places
}

/// Loads the first library that there is. The error says of each place what was found there.
pub(crate) fn load(options: &HipOptions) -> Result<Loaded, String> {
    let mut tried = Vec::new();
    if let Some(path) = &options.library {
        refuse_second_runtime(path)?;
    }
    for place in places(options) {
        match place {
            Place::InProcess(name) => {
                if let Ok(handle) = open(Path::new(name), libc::RTLD_NOLOAD) {
                    return finish(handle, Path::new(name), "already in this process".into());
                }
            }
            Place::Named(path) => match open(&path, 0) {
                Ok(handle) => return finish(handle, &path, "named by the user".into()),
                Err(message) => tried.push(format!("{} (named by the user): {message}", path.display())),
            },
            Place::Directory(directory, reason) => {
                let files: Vec<PathBuf> =
                    NAMES.map(|n| directory.join(n)).into_iter().filter(|f| f.exists()).collect();
                if files.is_empty() {
                    let what =
                        if directory.is_dir() { "holds no libamdhip64.so" } else { "no such directory" };
                    tried.push(format!("{} ({reason}): {what}", directory.display()));
                }
                for file in files {
                    match open(&file, 0) {
                        Ok(handle) => return finish(handle, &file, reason.into()),
                        Err(message) => tried.push(format!("{} ({reason}): {message}", file.display())),
                    }
                }
            }
            Place::Search(name) => match open(Path::new(name), 0) {
                Ok(handle) => return finish(handle, Path::new(name), "loader's search path".into()),
                Err(message) => tried.push(format!("search path: {message}")),
            },
        }
    }
    if !options.is_this_system() {
        tried.push("the loader's search path was left out, because system paths are replaced".into());
    }
    Err(format!("libamdhip64 was not loaded: {}", tried.join("; ")))
}

/// An error if this process has another libamdhip64 than the one that is asked for.
fn refuse_second_runtime(asked: &Path) -> Result<(), String> {
    let Some(handle) = NAMES.iter().find_map(|name| open(Path::new(name), libc::RTLD_NOLOAD).ok()) else {
        return Ok(());
    };
    let Some(present) = symbol(handle, c"hipInit").and_then(file_of) else { return Ok(()) };
    let same = fs::canonicalize(asked).is_ok_and(|path| path == present);
    if same {
        return Ok(());
    }
    Err(format!(
        "{} was asked for, but this process already has {}: two HIP runtimes in one process collide",
        asked.display(),
        present.display()
    ))
}

fn finish(handle: Library, name: &Path, found: String) -> Result<Loaded, String> {
    // SAFETY: `symbol` gives null or an address in the library, which is never unloaded. That a library of this name
    // has HIP's functions under HIP's names is what naming it means.
    let symbols = unsafe { Symbols::resolve(|name| symbol(handle, name).unwrap_or(std::ptr::null_mut())) };
    let path = symbol(handle, c"hipInit").and_then(file_of).unwrap_or_else(|| name.into());
    match symbols {
        Ok(symbols) => Ok(Loaded { symbols, path, found }),
        Err(missing) => Err(format!(
            "{} ({found}) was loaded and lacks {}: HIP 5.0 or later is needed",
            path.display(),
            missing.join(", ")
        )),
    }
}

/// A handle of `dlopen`, never closed.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

/// `dlopen`; the error is the loader's message.
fn open(path: &Path, extra: c_int) -> Result<Library, String> {
    let name =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| "the path holds a zero byte".to_string())?;
    // SAFETY: `name` is a C string. Loading runs the library's initialisers, as every program that links it does.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | extra) };
    if !handle.is_null() {
        return Ok(Library(handle));
    }
    // SAFETY: no other call of the loader lies between on this thread, for which the message is kept; it is a C string
    // or null and is copied at once.
    let message = unsafe {
        let text = libc::dlerror();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    };
    Err(message.unwrap_or_else(|| "the loader gives no reason".into()))
}

/// `dlsym`.
fn symbol(library: Library, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is one of `dlopen` and never closed; the name is a C string.
    let address = unsafe { libc::dlsym(library.0, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The file that an address was loaded from.
fn file_of(address: *mut c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address and fills the structure if it is in a loaded file; zeroes are valid contents
    // of it. The name is a C string that lives as long as the library, which is never unloaded.
    let name = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname).to_bytes().to_vec()
    };
    let path = PathBuf::from(std::ffi::OsString::from_vec(name));
    Some(fs::canonicalize(&path).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Environment;

    #[test]
    fn places_are_in_order() {
        let mut options = HipOptions::default();
        let count = NAMES.len();
        let all = places(&options);
        assert_eq!(all[0], Place::InProcess("libamdhip64.so.7"));
        assert_eq!(all[count], Place::Directory("/opt/rocm/lib".into(), "usual place"));
        assert_eq!(all[count + 2..], NAMES.map(Place::Search));
        options.environment = Environment::new(
            [("ROCM_PATH", "/opt/rocm-6.3"), ("HIP_PATH", "/h")].map(|(n, v)| (n.into(), v.into())),
        );
        assert_eq!(places(&options)[count], Place::Directory("/opt/rocm-6.3/lib".into(), "ROCM_PATH"));
        assert_eq!(places(&options)[count + 1], Place::Directory("/h/lib".into(), "HIP_PATH"));
        options.system_root = "/replaced".into();
        assert_eq!(places(&options)[0], Place::Directory("/replaced/opt/rocm-6.3/lib".into(), "ROCM_PATH"));
        assert_eq!(places(&options).len(), 4);
        options.library = Some("/x.so".into());
        assert_eq!(places(&options), [Place::Named("/x.so".into())]);
    }

    #[test]
    fn every_place_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("opt/rocm/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libamdhip64.so.6"), b"no ELF").unwrap();
        let options = HipOptions { system_root: root.path().into(), ..HipOptions::default() };
        let text = load(&options).unwrap_err();
        for part in ["libamdhip64.so.6 (usual place): ", "opt/rocm/core/lib (usual place): no such directory"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let options = HipOptions { library: Some("/nowhere/libamdhip64.so".into()), ..HipOptions::default() };
        let text = load(&options).unwrap_err();
        assert!(
            text.contains("/nowhere/libamdhip64.so (named by the user): ") && text.contains("cannot open"),
            "{text}"
        );
        let options = HipOptions { library: Some("/x\0y".into()), ..HipOptions::default() };
        assert!(load(&options).unwrap_err().contains("zero byte"));
    }

    /// A library that is not HIP is told apart from none.
    #[test]
    fn a_library_without_the_functions() {
        let options = HipOptions { library: Some("libc.so.6".into()), ..HipOptions::default() };
        let text = load(&options).unwrap_err();
        assert!(text.contains("lacks hipInit, ") && text.contains("hipModuleLaunchKernel"), "{text}");
    }
}
