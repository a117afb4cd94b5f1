//! Search and loading of libamdhip64.
//!
//! Order: a library that this process has already loaded, since two HIP runtimes in one process collide; if
//! the user names a library, only that one; else each release's name in `$ROCM_PATH/lib`, `$HIP_PATH/lib`,
//! `/opt/rocm/lib`, `/opt/rocm/core/lib`; then the names through the loader's own search path. The first
//! library that opens is used: if it is no HIP runtime of a known kind, no other is tried.

use super::symbols::Symbols;
use crate::advice;
use crate::options::HipOptions;
use crate::sys::library::{Found, Library, Wanted, search};
use ggml_core::phase;
use std::fs;
use std::path::{Path, PathBuf};

/// Names to try in a directory, newest release first; .10, .9 and .8 are names that later releases may have.
#[cfg(not(windows))]
pub(crate) const NAMES: &[&str] = &[
    "libamdhip64.so.10",
    "libamdhip64.so.9",
    "libamdhip64.so.8",
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
];
/// Names on Windows; the last is that of releases before 6.
#[cfg(windows)]
pub(crate) const NAMES: &[&str] = &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"];

/// Subdirectory of a release that contains its libraries.
const LIBRARIES: &str = if cfg!(windows) { "bin" } else { "lib" };

/// Loaded library.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The functions.
    pub(crate) symbols: Symbols,
    /// Path of the file, with links resolved.
    pub(crate) path: PathBuf,
    /// Description of how it was found.
    pub(crate) found: String,
}

/// Returns the directories that may contain ROCm's libraries, each with its source.
pub(crate) fn rocm_directories(options: &HipOptions) -> Vec<(PathBuf, &'static str)> {
    let named = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(|variable| {
        let path = options.environment.get(variable)?;
        Some((options.root().below(path).join(LIBRARIES), variable))
    });
    let usual =
        ["/opt/rocm/lib", "/opt/rocm/core/lib"].map(|d| (options.root().below(d), "default directory"));
    named.chain(usual).collect()
}

fn wanted(options: &HipOptions) -> Wanted {
    Wanted {
        what: "libamdhip64",
        names: NAMES,
        named: options.library.clone(),
        directories: rocm_directories(options),
    }
}

/// Loads the first existing library. The error lists each path that was tried, with the result.
pub(crate) fn load(options: &HipOptions) -> Result<Loaded, String> {
    if let Some(path) = &options.library {
        refuse_second_runtime(path)?;
    }
    search(options, &wanted(options), |found| Ok(finish(found))).map_err(with_advice)?
}

/// Adds what is known of the loader's messages.
fn with_advice(tried: String) -> String {
    match advice::of_loader(&tried) {
        Some(advice) => format!("{advice}; {tried}"),
        None => tried,
    }
}

/// Returns a message if a library's file name has another major version than the library reports: files of
/// two releases are mixed.
pub(super) fn mismatch(path: &Path, major: u32) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let promised: u32 = name.strip_prefix("libamdhip64.so.")?.split('.').next()?.parse().ok()?;
    (promised != major).then(|| {
        format!(
            "its file name is that of HIP {promised}, but it reports HIP {major}: files of two releases of ROCm are mixed; \
             select the right one with DIPTYCH_HIP_LIBRARY"
        )
    })
}

/// Returns an error if this process has loaded another libamdhip64 than the requested one.
fn refuse_second_runtime(asked: &Path) -> Result<(), String> {
    let Some(library) = NAMES.iter().find_map(|name| Library::loaded(Path::new(name))) else {
        return Ok(());
    };
    let Some(present) = library.file(c"hipInit") else { return Ok(()) };
    if fs::canonicalize(asked).is_ok_and(|path| path == present) {
        return Ok(());
    }
    Err(format!(
        "{} was requested, but this process has already loaded {}: two HIP runtimes in one process conflict",
        asked.display(),
        present.display()
    ))
}

fn finish(found: Found) -> Result<Loaded, String> {
    let Found { library, name, how } = found;
    // SAFETY: `symbol` returns null or an address in the library, which is never unloaded. A library with
    // this name exports HIP's functions under HIP's names.
    let symbols = unsafe { Symbols::find(|name| library.symbol(name).unwrap_or(std::ptr::null_mut())) };
    let path = library.file(c"hipInit").unwrap_or(name);
    phase::learnt("library", &path.to_string_lossy());
    match symbols {
        Ok(symbols) => Ok(Loaded { symbols, path, found: how }),
        Err(missing) => Err(format!(
            "{} ({how}) was loaded but lacks {}: HIP 5.0 or later is required",
            path.display(),
            missing.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Environment;
    use crate::sys::library::{self, Candidate};

    fn candidates(options: &HipOptions) -> Vec<Candidate> {
        library::candidates(options, &wanted(options))
    }

    #[test]
    fn a_file_name_of_another_version() {
        let of = |name: &str, major| mismatch(Path::new(name), major);
        let text = of("/opt/rocm/lib/libamdhip64.so.7.2.70200", 6).unwrap();
        assert!(text.starts_with("its file name is that of HIP 7, but it reports HIP 6"), "{text}");
        for fine in ["/x/libamdhip64.so.6", "/x/libamdhip64.so", "/x/mine.so", "/x/libamdhip64.so.6.3.60300"]
        {
            assert_eq!(of(fine, 6), None, "{fine}");
        }
    }

    #[test]
    fn candidates_are_in_order() {
        let mut options = HipOptions::default();
        let count = NAMES.len();
        let all = candidates(&options);
        assert_eq!(all[0], Candidate::InProcess("libamdhip64.so.10"));
        assert_eq!(all[count], Candidate::Directory("/opt/rocm/lib".into(), "default directory"));
        let search: Vec<Candidate> = NAMES.iter().map(|name| Candidate::Search(name)).collect();
        assert_eq!(all[count + 2..], search);
        options.environment = Environment::new(
            [("ROCM_PATH", "/opt/rocm-6.3"), ("HIP_PATH", "/h")].map(|(n, v)| (n.into(), v.into())),
        );
        assert_eq!(
            candidates(&options)[count],
            Candidate::Directory("/opt/rocm-6.3/lib".into(), "ROCM_PATH")
        );
        assert_eq!(candidates(&options)[count + 1], Candidate::Directory("/h/lib".into(), "HIP_PATH"));
        options.system_root = "/replaced".into();
        assert_eq!(
            candidates(&options)[0],
            Candidate::Directory("/replaced/opt/rocm-6.3/lib".into(), "ROCM_PATH")
        );
        assert_eq!(candidates(&options).len(), 4);
        options.library = Some("/x.so".into());
        assert_eq!(candidates(&options), [Candidate::Named("/x.so".into())]);
    }

    /// The newer one of two releases in a directory is loaded.
    #[test]
    fn the_newest_release_comes_first() {
        let major =
            |name: &&str| name.strip_prefix("libamdhip64.so.").map(|major| major.parse::<u32>().unwrap());
        let majors: Vec<u32> = NAMES.iter().filter_map(major).collect();
        assert!(majors.is_sorted_by(|a, b| a > b) && majors.contains(&10), "{majors:?}");
        assert_eq!(NAMES.last(), Some(&"libamdhip64.so"), "a link whose release is not known");
    }

    /// The message of glibc 2.41 and later about libamdhip64 of ROCm 5.2 has advice, that about other libraries none.
    #[test]
    fn a_library_with_an_executable_stack() {
        let said = "/x/libamdhip64.so.5 (named by the user): /x/libamdhip64.so.5: cannot enable executable stack as shared \
                    object requires: Invalid argument";
        let text = with_advice(said.into());
        assert!(text.contains("GLIBC_TUNABLES=glibc.rtld.execstack=2") && text.ends_with(said), "{text}");
        let other = "/x/libamdhip64.so.5: cannot open shared object file: No such file or directory";
        assert_eq!(with_advice(other.into()), other);
    }

    #[test]
    fn every_searched_path_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("opt/rocm/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libamdhip64.so.6"), b"no ELF").unwrap();
        let options = HipOptions { system_root: root.path().into(), ..HipOptions::default() };
        let text = load(&options).unwrap_err();
        for part in [
            "libamdhip64.so.6 (default directory): ",
            "opt/rocm/core/lib (default directory): no such directory",
        ] {
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

    /// A library that is not HIP is distinguished from a missing one.
    #[test]
    fn a_library_without_the_functions() {
        let options = HipOptions { library: Some("libc.so.6".into()), ..HipOptions::default() };
        let text = load(&options).unwrap_err();
        assert!(text.contains("lacks hipInit, ") && text.contains("hipModuleLaunchKernel"), "{text}");
    }
}
