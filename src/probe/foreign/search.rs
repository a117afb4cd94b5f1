//! The search of the dynamic loader for the libraries that another needs, in the order of glibc: `DT_RPATH` of it and
//! of those that loaded it, `LD_LIBRARY_PATH`, `DT_RUNPATH`, the system's directories.

use super::binary::{self, Binary};
use ggml_core::files::Root;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A library that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    /// Its name.
    pub(super) name: String,
    /// Path of the library that needs it.
    pub(super) by: PathBuf,
    /// Path of the file, with links resolved; `None` if it was not found.
    pub(super) path: Option<PathBuf>,
    /// Path by which it was found.
    pub(super) found: Option<PathBuf>,
    /// The rule by which it was found.
    pub(super) how: String,
}

/// The most libraries that are followed.
const LIBRARIES: usize = 128;
/// The most lines of a file of directories.
const LINES: usize = 256;

/// Directories that the loader searches after its configured ones.
const DEFAULTS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// The loader's search on a system.
pub(super) struct Search<'a> {
    root: &'a Root,
    /// Directories of `LD_LIBRARY_PATH`.
    path: Vec<PathBuf>,
    /// Directories of /etc/ld.so.conf.
    configured: Vec<PathBuf>,
    /// The program's own directories, which it may put into `LD_LIBRARY_PATH` itself.
    own: Vec<PathBuf>,
}

impl<'a> Search<'a> {
    pub(super) fn new(root: &'a Root, library_path: &str, own: Vec<PathBuf>) -> Search<'a> {
        let path = library_path.split(':').filter(|p| p.starts_with('/')).map(PathBuf::from).collect();
        Search { root, path, configured: configured(root), own }
    }

    /// Describes the directories that are searched for a library, in order.
    pub(super) fn order(&self, library: &Path, of: &Binary) -> Vec<String> {
        let mut order = Vec::new();
        let list =
            |dirs: &[PathBuf]| dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ");
        if of.runpath.is_empty() && !of.rpath.is_empty() {
            order.push(format!("rpath {}", list(&expand(&of.rpath, library))));
        }
        if !self.path.is_empty() {
            order.push(format!("LD_LIBRARY_PATH {}", list(&self.path)));
        }
        if !of.runpath.is_empty() {
            order.push(format!("runpath {}", list(&expand(&of.runpath, library))));
        }
        order.push("the system's directories".into());
        order
    }

    /// Returns the libraries that a file needs, and those that AMD's libraries among them need.
    pub(super) fn needed(&self, library: &Path, of: &Binary) -> Vec<Needed> {
        let mut found: Vec<Needed> = Vec::new();
        let mut queue = VecDeque::from([(library.to_path_buf(), of.clone(), Vec::<PathBuf>::new())]);
        while let Some((by, of, inherited)) = queue.pop_front() {
            let own = if of.runpath.is_empty() { expand(&of.rpath, &by) } else { Vec::new() };
            let inherited = [own, inherited].concat();
            for name in &of.needed {
                if found.len() == LIBRARIES || found.iter().any(|known| known.name == *name) {
                    continue;
                }
                let place = self.find(name, &by, &of, &inherited);
                let how = place.as_ref().map_or("not found", |(_, _, how)| how).to_string();
                let (as_found, path) = place.map(|(found, path, _)| (found, path)).unzip();
                let further = path.clone().filter(|_| is_amd(name));
                found.push(Needed { name: name.clone(), by: by.clone(), path, found: as_found, how });
                let read = further
                    .and_then(|path| Some((path.clone(), binary::read(&self.root.below(&path)).ok()??)));
                queue.extend(read.map(|(path, read)| (path, read, inherited.clone())));
            }
        }
        found
    }

    /// Returns the path by which a library is found, the file, and the rule.
    fn find(
        &self,
        name: &str,
        by: &Path,
        of: &Binary,
        rpath: &[PathBuf],
    ) -> Option<(PathBuf, PathBuf, &'static str)> {
        if name.contains('/') {
            return Some((name.into(), self.file(Path::new(name))?, "by its path"));
        }
        let runpath = expand(&of.runpath, by);
        let defaults: Vec<PathBuf> = DEFAULTS.iter().map(PathBuf::from).collect();
        let places = [
            (if of.runpath.is_empty() { rpath } else { &[] }, "rpath"),
            (&self.path[..], "LD_LIBRARY_PATH"),
            (&runpath[..], "runpath"),
            (&self.configured[..], "/etc/ld.so.conf"),
            (&defaults[..], "the system's directories"),
            (&self.own[..], "the program's own folder, found only if it sets LD_LIBRARY_PATH"),
        ];
        places.into_iter().find_map(|(directories, how)| {
            directories.iter().map(|directory| directory.join(name)).find_map(|found| {
                let file = self.file(&found)?;
                Some((found, file, how))
            })
        })
    }

    fn file(&self, path: &Path) -> Option<PathBuf> {
        self.root.resolve(path).filter(|path| self.root.below(path).is_file())
    }
}

/// True for a library of ROCm, whose own needs matter.
pub(super) fn is_amd(name: &str) -> bool {
    ["libamd", "libhip", "libroc", "libhsa", "libMIOpen", "librccl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Replaces `$ORIGIN` by the folder of the library.
fn expand(directories: &[String], library: &Path) -> Vec<PathBuf> {
    let origin = library.parent().unwrap_or(Path::new("/")).display().to_string();
    let full = |text: &String| PathBuf::from(text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    directories.iter().map(full).collect()
}

/// Returns the directories of /etc/ld.so.conf and the files that it includes.
fn configured(root: &Root) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut files = VecDeque::from([PathBuf::from("/etc/ld.so.conf")]);
    let mut lines = 0;
    while let Some(file) = files.pop_front() {
        let text = std::fs::read_to_string(root.at(&file)).unwrap_or_default();
        for line in text.lines().map(str::trim) {
            lines += 1;
            if lines > LINES {
                return directories;
            }
            match line.strip_prefix("include ").map(|pattern| Path::new(pattern.trim())) {
                Some(pattern) => {
                    let folder = Path::new("/etc").join(pattern.parent().unwrap_or(Path::new("")));
                    let names = root.names(&folder).into_iter().filter(|name| name.ends_with(".conf"));
                    files.extend(names.map(|name| folder.join(name)));
                }
                None if line.starts_with('/') => directories.push(PathBuf::from(line)),
                None => {}
            }
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::super::binary::tests::library;
    use super::*;
    use std::fs;

    fn write(root: &Path, path: &str, contents: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    #[test]
    fn the_loaders_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let file = |path: &str, contents: &[u8]| write(folder.path(), path, contents);
        let hip = library(&["libhsa-runtime64.so.1"], "", "", b"");
        file("opt/rocm/lib/libamdhip64.so.6", &hip);
        file("opt/rocm/lib/libhsa-runtime64.so.1", &library(&["libnowhere.so"], "", "", b""));
        file("app/rocm/libamdhip64.so.6", &hip);
        file("app/extra/libextra.so", b"");
        file("usr/lib/libc.so.6", b"");
        file("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n# comment\n");
        file("etc/ld.so.conf.d/rocm.conf", b"/opt/rocm/lib\n");
        let names = ["libamdhip64.so.6", "libextra.so", "libc.so.6"];
        let of = |runpath: &str, rpath: &str, path: &str| {
            let bytes = library(&names, runpath, rpath, b"");
            file("app/libggml-hip.so", &bytes);
            let read = binary::read(&folder.path().join("app/libggml-hip.so")).unwrap().unwrap();
            let search = Search::new(&root, path, vec!["/app/extra".into()]);
            let needed = search.needed(Path::new("/app/libggml-hip.so"), &read);
            let line = |n: &Needed| {
                format!(
                    "{} {} {}",
                    n.name,
                    n.path.as_ref().map_or("-".into(), |p| p.display().to_string()),
                    n.how
                )
            };
            (
                needed.iter().map(line).collect::<Vec<_>>(),
                search.order(Path::new("/app/libggml-hip.so"), &read),
            )
        };
        let (plain, order) = of("", "", "");
        assert_eq!(
            plain,
            [
                "libamdhip64.so.6 /opt/rocm/lib/libamdhip64.so.6 /etc/ld.so.conf",
                "libextra.so /app/extra/libextra.so the program's own folder, found only if it sets LD_LIBRARY_PATH",
                "libc.so.6 /usr/lib/libc.so.6 the system's directories",
                "libhsa-runtime64.so.1 /opt/rocm/lib/libhsa-runtime64.so.1 /etc/ld.so.conf",
                "libnowhere.so - not found",
            ]
        );
        assert_eq!(order, ["the system's directories"]);
        let own = "libamdhip64.so.6 /app/rocm/libamdhip64.so.6";
        let (runpath, order) = of("$ORIGIN/rocm", "", "");
        assert_eq!(runpath[0], format!("{own} runpath"));
        assert_eq!(order, ["runpath /app/rocm", "the system's directories"]);
        let (rpath, _) = of("", "${ORIGIN}/rocm", "/opt/rocm/lib");
        assert_eq!(rpath[0], format!("{own} rpath"), "before LD_LIBRARY_PATH");
        // libhsa is found by the rpath of the file that loads libamdhip64 only if it lies there.
        assert!(rpath[3].ends_with("LD_LIBRARY_PATH"), "{rpath:?}");
        // What loads a library hands its rpath on to it, unless it has a runpath.
        file("app/rocm/libhsa-runtime64.so.1", &library(&[], "", "", b""));
        let (rpath, _) = of("", "${ORIGIN}/rocm", "/opt/rocm/lib");
        assert_eq!(rpath[3], "libhsa-runtime64.so.1 /app/rocm/libhsa-runtime64.so.1 rpath");
        let (runpath, _) = of("$ORIGIN/rocm", "${ORIGIN}/rocm", "");
        assert_eq!(runpath[0], format!("{own} runpath"), "a runpath replaces the rpath");
        assert_eq!(runpath[3], "libhsa-runtime64.so.1 /opt/rocm/lib/libhsa-runtime64.so.1 /etc/ld.so.conf");
        let (variable, order) = of("$ORIGIN/rocm", "/x", "/opt/rocm/lib:relative");
        assert_eq!(variable[0], "libamdhip64.so.6 /opt/rocm/lib/libamdhip64.so.6 LD_LIBRARY_PATH");
        assert_eq!(order[0], "LD_LIBRARY_PATH /opt/rocm/lib");
    }
}
