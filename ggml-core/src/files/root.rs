//! The root of system paths: "/", or the folder of a recorded system.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links that a path may lead through, as on Linux.
const MAX_LINKS: usize = 40;

thread_local! {
    /// System paths that this thread asked for, while it is traced.
    static ASKED: RefCell<Option<BTreeSet<PathBuf>>> = const { RefCell::new(None) };
}

/// Runs some work and returns the system paths that it asked a [`Root`] for on this thread, to record a system.
pub fn traced<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<PathBuf>) {
    ASKED.with(|asked| *asked.borrow_mut() = Some(BTreeSet::new()));
    let done = work();
    (done, ASKED.with(|asked| asked.borrow_mut().take()).unwrap_or_default())
}

fn note_asked(path: &Path) {
    ASKED.with(|asked| {
        if let Some(paths) = asked.borrow_mut().as_mut() {
            paths.insert(path.into());
        }
    });
}

/// Root of system paths. In a recorded system, links lead to files of that system, never to those of this
/// machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// Creates a root from a folder; "/" is this machine.
    pub fn new(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// True if system paths are those of this machine.
    pub fn is_here(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns where a system path lies, with all links resolved below the root. On this machine it is the
    /// path itself. A path whose links form a circle becomes one that does not exist.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        note_asked(path.as_ref());
        if self.is_here() {
            return self.below(path);
        }
        let resolved = self.resolve(path);
        self.below(resolved.unwrap_or_else(|| PathBuf::from("links that form a circle")))
    }

    /// Returns a system path below the root, without resolving links.
    pub fn below(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Resolves all links of a system path; the result is a system path too. `None` if links form a circle.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        note_asked(path.as_ref());
        let mut rest: Vec<PathBuf> = vec![path.as_ref().into()];
        let mut done = PathBuf::from("/");
        let mut links = 0;
        while let Some(next) = rest.pop() {
            for (i, part) in next.components().enumerate() {
                match part {
                    Component::RootDir | Component::Prefix(_) => done = PathBuf::from("/"),
                    Component::CurDir => {}
                    Component::ParentDir => {
                        done.pop();
                    }
                    Component::Normal(name) => {
                        let here = done.join(name);
                        let Ok(target) = std::fs::read_link(self.below(&here)) else {
                            done = here;
                            continue;
                        };
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        rest.push(next.components().skip(i + 1).collect());
                        rest.push(target);
                        break;
                    }
                }
            }
        }
        Some(done)
    }

    /// Returns the first line of a small file.
    pub fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.at(path)).ok()?;
        text.lines().next().map(|line| line.trim().to_string())
    }

    /// Lists the names in a directory, sorted.
    pub fn names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Absolute links, links through folders and "..", and circles.
    #[test]
    fn links_stay_below_the_root() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::new(folder.path());
        let outer = outside.path().join("file");
        std::fs::write(&outer, "outside").unwrap();
        std::fs::create_dir_all(root.below("/usr/lib/real")).unwrap();
        std::fs::write(root.below("/usr/lib/real/file"), " inside \nmore").unwrap();
        symlink("/usr/lib/real", root.below("/usr/lib/link")).unwrap();
        symlink("../../../../usr/lib/link/file", root.below("/usr/name")).unwrap();
        symlink(&outer, root.below("/usr/outer")).unwrap();
        symlink("circle", root.below("/usr/circle")).unwrap();
        assert_eq!(root.line("/usr/name").as_deref(), Some("inside"));
        assert_eq!(root.resolve("/usr/name"), Some("/usr/lib/real/file".into()));
        assert_eq!(root.names("/usr/lib/link"), ["file"]);
        let (line, asked) = traced(|| root.line("/usr/name"));
        assert_eq!((line.as_deref(), asked), (Some("inside"), BTreeSet::from(["/usr/name".into()])));
        assert!(root.line("/usr/outer").is_none() && !root.at("/usr/outer").exists());
        assert!(root.resolve("/usr/circle").is_none() && !root.at("/usr/circle").exists());
        let here = Root::default();
        assert!(here.is_here() && !root.is_here());
        assert_eq!(here.at("/usr/lib"), Path::new("/usr/lib"));
    }
}
