//! Finds the copies of AMD's runtime on a system by reading files. No library is loaded, so one that would
//! end the process does no harm here.
//!
//! A system often has several copies: its own, those that applications ship, and those behind redirected
//! links. The release of a copy is recorded in the file `.info/version` of its installation, in its file
//! name, in its SONAME, and in the compiler's mark inside the file.

use crate::options::HipOptions;
use crate::provider::amd::loader::{NAMES, rocm_directories};
use crate::system::{entries, read_line};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Major, minor and patch version of a ROCm release; unknown parts are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// Major version, which is also the major version of the library's interface.
    pub major: u32,
    /// Minor version.
    pub minor: Option<u32>,
    /// Patch version.
    pub patch: Option<u32>,
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.major)?;
        self.minor.map_or(Ok(()), |n| write!(f, ".{n}"))?;
        self.patch.map_or(Ok(()), |n| write!(f, ".{n}"))
    }
}

impl Release {
    /// Parses a version like "7.2.0-43" or "6.3".
    pub fn parse(text: &str) -> Option<Release> {
        let digits = text.trim().split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = digits.split('.').map_while(|n| n.parse().ok());
        Some(Release { major: numbers.next()?, minor: numbers.next(), patch: numbers.next() })
    }

    /// Returns the version that HIP reports in this release; its patch version distinguishes releases. `None`
    /// if the minor version is unknown.
    pub fn hip(self) -> Option<crate::advice::Version> {
        const PATCHES: &[(u32, u32, u32, u32)] = &[
            (6, 2, 1, 41134),
            (6, 3, 2, 42134),
            (6, 4, 2, 43484),
            (7, 0, 0, 51831),
            (7, 1, 1, 52802),
            (7, 2, 1, 53211),
            (7, 14, 0, 60850),
        ];
        let (minor, patch) = (self.minor?, self.patch.unwrap_or(0));
        let known = PATCHES
            .iter()
            .rfind(|&&(major, of, from, _)| (major, of) == (self.major, minor) && from <= patch);
        Some((self.major, minor, known.map_or(0, |row| row.3)))
    }
}

/// Copy of libamdhip64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryFile {
    /// Path of the file on the system, with links resolved.
    pub path: PathBuf,
    /// Paths under which the file was found.
    pub names: Vec<PathBuf>,
    /// Release of the copy, and the evidence for it.
    pub release: Option<(Release, &'static str)>,
    /// Contradicting evidence, if any, and the release that it indicates.
    pub contradicts: Option<(&'static str, Release)>,
}

impl LibraryFile {
    /// Returns a name that promises another interface version than the file has: a redirected link.
    pub fn redirected_name(&self) -> Option<&Path> {
        let own = self.release?.0.major;
        let promised = |name: &&PathBuf| in_name(name).is_some_and(|release| release.major != own);
        self.names.iter().find(promised).map(PathBuf::as_path)
    }

    /// Returns "6.3.0 at /usr/lib/..." for messages.
    pub fn describe(&self) -> String {
        let release = self.release.map_or("of an unknown release".into(), |(release, _)| release.to_string());
        format!("{} is {release}", self.path.display())
    }
}

/// Copies of the runtime on a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// All copies that were found.
    pub copies: Vec<LibraryFile>,
    /// Index of the copy that [`HipBackend::open`](crate::HipBackend::open) would load, and the name it would
    /// be loaded by.
    pub chosen: Option<(usize, PathBuf)>,
    /// Library that the options name but that does not exist.
    pub absent: Option<PathBuf>,
}

/// Maximum number of directories to visit.
const DIRECTORIES: usize = 4000;

/// Directories that contain libraries, and how many levels below them to search.
const ROOTS: &[(&str, usize)] =
    &[("/opt", 3), ("/usr/lib", 2), ("/usr/lib64", 1), ("/usr/local/lib", 2), ("/usr/local/lib64", 1)];

/// Searches for copies of libamdhip64 in the usual directories, in those that the environment names, and
/// where applications ship theirs.
pub fn installed(options: &HipOptions) -> Installation {
    let unrooted = |path: PathBuf| match path.strip_prefix(&options.system_root) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => path,
    };
    let mut first: Vec<PathBuf> = rocm_directories(options).into_iter().map(|(d, _)| unrooted(d)).collect();
    let paths = options.environment.get("LD_LIBRARY_PATH").unwrap_or_default();
    first.extend(paths.split(':').filter(|p| p.starts_with('/')).map(PathBuf::from));
    let mut room = DIRECTORIES;
    let mut directories: Vec<PathBuf> = first.clone();
    ROOTS.iter().for_each(|(root, depth)| {
        collect_directories(options, Path::new(root), *depth, &mut room, &mut directories)
    });
    let mut names: Vec<PathBuf> = Vec::new();
    if let Some(library) = &options.library {
        names.push(library.clone());
    }
    for directory in directories {
        let of_hip = |name: &String| name.starts_with("libamdhip64.so") || is_dll(name);
        let mut here: Vec<String> = entries(&options.rooted(&directory)).into_iter().filter(of_hip).collect();
        here.sort();
        names.extend(here.iter().map(|name| directory.join(name)));
    }
    let (mut seen, root) = (BTreeSet::new(), options.root());
    names.retain(|name| seen.insert(name.clone()));
    let mut found = Installation::default();
    for name in names {
        let Some(path) = root.resolve(&name).filter(|path| root.below(path).is_file()) else {
            continue;
        };
        match found.copies.iter_mut().find(|copy| copy.path == path) {
            Some(copy) => copy.names.push(name),
            None => found.copies.push(read(options, path, name)),
        }
    }
    found.choose(options, &first);
    found
}

fn is_dll(name: &str) -> bool {
    name.starts_with("amdhip64") && name.ends_with(".dll")
}

impl Installation {
    /// Determines which copy the loader would load, in the order of [`rocm_directories`], then of the search
    /// path.
    fn choose(&mut self, options: &HipOptions, first: &[PathBuf]) {
        let at = |name: &Path| self.copies.iter().position(|copy| copy.names.iter().any(|n| n == name));
        if let Some(library) = &options.library {
            self.chosen = at(library).map(|index| (index, library.clone()));
            self.absent = self.chosen.is_none().then(|| library.clone());
            return;
        }
        let system = [
            "/usr/local/lib",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
        ];
        let order = first.iter().cloned().chain(system.map(PathBuf::from));
        let named = order.flat_map(|directory| NAMES.iter().map(move |name| directory.join(name)));
        self.chosen = named.into_iter().find_map(|name| Some((at(&name)?, name)));
    }

    /// Returns the copy that would be loaded.
    pub fn chosen(&self) -> Option<&LibraryFile> {
        self.chosen.as_ref().map(|(index, _)| &self.copies[*index])
    }

    /// Returns the distinct releases, if there are several.
    pub fn mixed(&self) -> Option<Vec<Release>> {
        let releases: BTreeSet<Release> =
            self.copies.iter().filter_map(|copy| Some(copy.release?.0)).collect();
        (releases.len() > 1).then(|| releases.into_iter().collect())
    }
}

/// Collects a directory and its subdirectories without following links.
fn collect_directories(
    options: &HipOptions,
    directory: &Path,
    depth: usize,
    room: &mut usize,
    out: &mut Vec<PathBuf>,
) {
    if *room == 0 {
        return;
    }
    *room -= 1;
    out.push(directory.into());
    if depth == 0 {
        return;
    }
    let mut below = entries(&options.rooted(directory));
    below.sort();
    for name in below {
        let path = directory.join(name);
        if options.root().below(&path).symlink_metadata().is_ok_and(|m| m.is_dir()) {
            collect_directories(options, &path, depth - 1, room, out);
        }
    }
}

/// Returns the version that a copy of the runtime reports, from its evidence; `None` if it has none.
pub(crate) fn version_of(options: &HipOptions, library: &Path) -> Option<crate::advice::Version> {
    read(options, library.into(), library.into()).release?.0.hip()
}

/// Reads the evidence of a copy's release.
fn read(options: &HipOptions, path: PathBuf, name: PathBuf) -> LibraryFile {
    let info = path.parent().and_then(Path::parent).and_then(|home| {
        let file = home.join(".info/version");
        Release::parse(&read_line(options, &file.to_string_lossy())?)
    });
    let compiler = compiler(&options.rooted(&path));
    let evidence = [
        (in_name(&path).filter(|release| release.minor.is_some()), "its file name"),
        (info, ".info/version next to it"),
        (compiler, "its compiler's mark"),
        (in_name(&path), "its file name"),
        (soname(&options.rooted(&path)), "its SONAME"),
        (in_name(&name), "the name that leads to it"),
    ];
    let mut known = evidence.into_iter().filter_map(|(release, what)| Some((release?, what)));
    let release = known.next();
    let contradicts = release.and_then(|(own, _)| {
        let other = |(of, _): &(Release, &str)| {
            of.major != own.major || own.minor.zip(of.minor).is_some_and(|(a, b)| a != b)
        };
        let also = [(info, ".info/version next to it"), (compiler, "its compiler's mark")];
        also.into_iter().filter_map(|(of, what)| Some((of?, what))).find(other).map(|(of, what)| (what, of))
    });
    LibraryFile { path, names: vec![name], release, contradicts }
}

/// Parses `libamdhip64.so.7.2.70200`: the last part encodes the release's patch version, except in Debian's
/// own numbering.
fn in_name(path: &Path) -> Option<Release> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let mut release = Release::parse(name.strip_prefix("libamdhip64.so.")?)?;
    release.patch = release.patch.filter(|n| n / 10_000 == release.major).map(|n| n % 100);
    Some(release)
}

/// Number of bytes at the end of a library that are searched for the compiler's name.
const TAIL: u64 = 8 << 20;

/// Finds "roc-7.2.0" in the section `.comment`, which AMD's clang writes into everything it compiles.
fn compiler(path: &Path) -> Option<Release> {
    const MARK: &[u8] = b"roc-";
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let after = |at: usize| bytes.get(at + MARK.len()..(at + MARK.len() + 12).min(bytes.len()));
    let mut found = memchr::memmem::find_iter(&bytes, MARK);
    found.find_map(|at| Release::parse(std::str::from_utf8(ascii(after(at)?)).ok()?))
}

fn ascii(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| !b.is_ascii()).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Reads the SONAME of a shared library: the text "libamdhip64.so.N" among its dynamic strings.
fn soname(path: &Path) -> Option<Release> {
    const MARK: &[u8] = b"\0libamdhip64.so.";
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(TAIL).read_to_end(&mut bytes).ok()?;
    let at = memchr::memmem::find(&bytes, MARK)? + MARK.len();
    let end = bytes[at..].iter().position(|&b| b == 0).map_or(bytes.len(), |n| at + n);
    Release::parse(std::str::from_utf8(&bytes[at..end]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Environment;

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, HipOptions) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let options = HipOptions { system_root: root.path().into(), ..HipOptions::default() };
        (root, options)
    }

    #[test]
    fn releases() {
        let text = |text: &str| Release::parse(text).map(|r| r.to_string());
        assert_eq!(text("7.2.0-43\n").as_deref(), Some("7.2.0"));
        assert_eq!(text("6").as_deref(), Some("6"));
        assert_eq!(text("rocm"), None);
        let hip = |text: &str| Release::parse(text).and_then(Release::hip);
        assert_eq!(hip("7.2.0"), Some((7, 2, 0)));
        assert_eq!(hip("7.2.1"), Some((7, 2, 53211)));
        assert_eq!(hip("6.2.4"), Some((6, 2, 41134)));
        assert_eq!(hip("6"), None);
        let name = |text: &str| in_name(Path::new(text)).map(|r| r.to_string());
        assert_eq!(name("/x/libamdhip64.so.6.3.60304").as_deref(), Some("6.3.4"));
        assert_eq!(name("/x/libamdhip64.so.5.2.21153").as_deref(), Some("5.2"));
        assert_eq!(name("/x/libamdhip64.so"), None);
    }

    #[test]
    fn nothing_is_installed() {
        let (_root, mut options) = root(&[]);
        assert_eq!(installed(&options), Installation::default());
        options.library = Some("/nowhere/libamdhip64.so".into());
        assert_eq!(installed(&options).absent.as_deref(), Some(Path::new("/nowhere/libamdhip64.so")));
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_below_the_root() {
        use std::os::unix::fs::symlink;
        let (root, options) = root(&[
            ("opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200", ""),
            ("opt/rocm-7.2.0/.info/version", "7.2.0-43"),
            ("usr/lib/app/rocm/libamdhip64.so.6.3.60300", "x roc-6.3.0 24455 y"),
        ]);
        symlink("/opt/rocm-7.2.0", root.path().join("opt/rocm")).unwrap();
        let lib = root.path().join("opt/rocm-7.2.0/lib");
        symlink("libamdhip64.so.7.2.70200", lib.join("libamdhip64.so.7")).unwrap();
        let found = installed(&options);
        let described: Vec<String> = found.copies.iter().map(LibraryFile::describe).collect();
        let expected = [
            "/opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200 is 7.2.0",
            "/usr/lib/app/rocm/libamdhip64.so.6.3.60300 is 6.3.0",
        ];
        assert_eq!(described, expected);
        assert_eq!(found.chosen, Some((0, "/opt/rocm/lib/libamdhip64.so.7".into())));
        assert_eq!(found.mixed().unwrap().len(), 2);
        assert!(
            found.copies.iter().all(|copy| copy.redirected_name().is_none() && copy.contradicts.is_none())
        );
        // A common workaround: the application's name links to the system's library.
        let app = root.path().join("usr/lib/app/rocm");
        symlink("/opt/rocm/lib/libamdhip64.so.7", app.join("libamdhip64.so.6")).unwrap();
        let found = installed(&options);
        assert_eq!(found.copies[0].redirected_name(), Some(Path::new("/usr/lib/app/rocm/libamdhip64.so.6")));
        // A dangling link, and a link to itself.
        symlink("/gone", app.join("libamdhip64.so.5")).unwrap();
        symlink("libamdhip64.so.8", app.join("libamdhip64.so.8")).unwrap();
        assert_eq!(installed(&options).copies.len(), 2);
        let named = HipOptions {
            environment: Environment::new([("LD_LIBRARY_PATH".into(), "/usr/lib/app/rocm".into())]),
            library: Some("/usr/lib/app/rocm/libamdhip64.so.6.3.60300".into()),
            ..options
        };
        assert_eq!(installed(&named).chosen().unwrap().release.unwrap().0.to_string(), "6.3.0");
    }
}
