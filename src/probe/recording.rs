//! Records a system: writes the files that a probe reads to a folder, which is then the root of another probe.

use super::report::Report;
use super::{Inspection, ProbeOptions, probe};
use ggml_core::environment::{HIP, OWN, VULKAN, is_recorded};
use ggml_core::files::{Root, create_folders, traced, write_atomically};
use ggml_core::{Error, Result};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The longest file that is written whole; of longer ones, the marks that a probe searches for.
const WHOLE: u64 = 64 << 10;

/// The most files that are written.
const FILES: usize = 4000;

/// Bytes at the beginning and at the end of a library that are searched for marks.
const SEARCHED: u64 = 48 << 20;

/// Bytes at the end of a library that are searched for its compiler.
const TAIL: u64 = 8 << 20;

/// Variables besides those of the drivers by which Vulkan's loader finds its drivers.
const FOLDERS: [&str; 5] = ["HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME"];

/// Folders that contain a folder for each user.
const HOMES: [&str; 2] = ["/home/", "/var/home/"];

/// Probes this machine, or a recorded one, and writes the files that were read to a folder: `probe --root FOLDER` reads
/// them. Users' names become "user", serial numbers 0, and of libraries only the versions are written. Owners and modes
/// of device nodes are not recorded, so a node that may not be opened here can be opened there.
///
/// # Errors
/// As [`probe`], and errors of writing. The folder has to be new or empty.
pub fn record(options: &ProbeOptions, folder: &Path) -> Result<Report> {
    let wrong = |error| Error::io(folder, error);
    create_folders(folder).map_err(wrong)?;
    if std::fs::read_dir(folder).map_err(wrong)?.next().is_some() {
        return Err(Error::argument("folder of a recording", folder.display(), "a new or an empty one"));
    }
    let (report, paths) = traced(|| probe(options));
    let report = report?;
    let variables = Inspection::new(options)?.variables;
    let mut recorder =
        Recorder { from: Root::new(&options.root), to: Root::new(folder), done: BTreeSet::new() };
    recorder.write("/proc/self/environ".as_ref(), environment(&variables).as_bytes())?;
    for path in &paths {
        recorder.place(path)?;
    }
    Ok(report)
}

/// Formats the variables that a probe may read.
fn environment(variables: &[(String, String)]) -> String {
    let is_wanted = |name: &str| FOLDERS.contains(&name) || is_recorded(name, &[OWN, VULKAN, HIP]);
    let wanted = variables.iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, value)| format!("{name}={}\0", without_users(value))).collect()
}

/// Replaces the names of users in paths.
fn without_users(text: &str) -> String {
    let mut text = text.to_string();
    for home in HOMES {
        let mut from = 0;
        while let Some(at) = text[from..].find(home).map(|at| from + at + home.len()) {
            let rest = &text[at..];
            let end = rest.find(|c: char| c.is_whitespace() || "/:;,\"'\0".contains(c)).unwrap_or(rest.len());
            text.replace_range(at..at + end, if end == 0 { "" } else { "user" });
            from = at;
        }
    }
    text
}

fn path_without_users(path: &Path) -> PathBuf {
    PathBuf::from(without_users(&path.to_string_lossy()))
}

struct Recorder {
    from: Root,
    to: Root,
    /// Paths that were placed.
    done: BTreeSet<PathBuf>,
}

impl Recorder {
    /// Places a path: the links that lead to it, and what it is.
    fn place(&mut self, path: &Path) -> Result<()> {
        if self.done.len() >= FILES || !self.done.insert(path.into()) {
            return Ok(());
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return self.from.resolve(path).map_or(Ok(()), |resolved| self.place(&resolved));
        }
        let mut here = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            here.push(name);
            let Ok(target) = std::fs::read_link(self.from.below(&here)) else { continue };
            self.link(&here, &target)?;
            let Some(resolved) = self.from.resolve(&here) else { return Ok(()) };
            here = resolved;
        }
        if here != path {
            return self.place(&here);
        }
        match std::fs::metadata(self.from.below(&here)) {
            Ok(about) if about.is_dir() => self.folder(&here, 2),
            Ok(about) => self.file(&here, &about),
            Err(_) => Ok(()),
        }
    }

    #[cfg(unix)]
    fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        let place = self.to.below(path_without_users(path));
        if place.symlink_metadata().is_ok() {
            return Ok(());
        }
        let made = place.parent().map_or(Ok(()), create_folders);
        made.and_then(|()| std::os::unix::fs::symlink(path_without_users(target), &place))
            .map_err(|e| Error::io(&place, e))
    }

    #[cfg(not(unix))]
    fn link(&mut self, _path: &Path, _target: &Path) -> Result<()> {
        Ok(())
    }

    /// Places a folder of the kernel, and the files in it that a probe reads by name; `depth` levels.
    fn folder(&mut self, path: &Path, depth: usize) -> Result<()> {
        let is_kernels = ["/sys", "/proc", "/dev"].iter().any(|root| path.starts_with(root));
        if is_kernels {
            let place = self.to.below(path_without_users(path));
            create_folders(&place).map_err(|e| Error::io(&place, e))?;
        }
        let entries = std::fs::read_dir(self.from.below(path)).into_iter().flatten().flatten();
        for entry in entries {
            let (name, child) =
                (entry.file_name().to_string_lossy().into_owned(), path.join(entry.file_name()));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && is_kernels && depth > 1 && !kind.is_symlink() {
                self.named_files(&child, depth - 1)?;
            } else if is_read(&name) {
                self.place(&child)?;
            }
        }
        Ok(())
    }

    /// Places a folder of the kernel if it contains files that a probe reads by name.
    fn named_files(&mut self, path: &Path, depth: usize) -> Result<()> {
        let names = self.from.names(path);
        if names.iter().any(|name| is_read(name)) { self.folder(path, depth) } else { Ok(()) }
    }

    fn file(&mut self, path: &Path, about: &Metadata) -> Result<()> {
        // Device nodes, pipes and the like are never opened.
        let bytes =
            if about.is_file() { contents(&self.from.below(path), path, about.len()) } else { Vec::new() };
        self.write(path, &bytes)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let place = self.to.below(path_without_users(path));
        match place.symlink_metadata() {
            Ok(_) => Ok(()),
            Err(_) => write_atomically(&place, bytes).map_err(|e| Error::io(&place, e)),
        }
    }
}

/// True for files that are read by name in a folder that was asked for.
fn is_read(name: &str) -> bool {
    ["uevent", "vendor", "device", "properties", "name"].contains(&name)
        || ["_fw_version"].iter().any(|end| name.ends_with(end))
        || ["libamdhip64.so", "libhiprtc.so.", "mem_info_"].iter().any(|begin| name.starts_with(begin))
}

/// Returns what is written of a file; nothing if it cannot be read.
fn contents(file: &Path, path: &Path, length: u64) -> Vec<u8> {
    let Ok(mut open) = File::open(file) else { return Vec::new() };
    if length > WHOLE {
        return marks(&mut open, length);
    }
    let mut bytes = Vec::new();
    // The rest of a file that cannot be read on is missing.
    let _ = open.take(WHOLE).read_to_end(&mut bytes);
    let name = path.file_name().unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if name == "passwd" || name == "group" => system_accounts(&text).into_bytes(),
        Ok(text) => without_serials(&without_users(&text)).into_bytes(),
        Err(e) => e.into_bytes(),
    }
}

/// Keeps the accounts of the system, which name owners of device nodes.
fn system_accounts(text: &str) -> String {
    let is_of_system = |line: &&str| {
        line.split(':').nth(2).and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| id < 1000)
    };
    // Without the members of a group and the home of a user.
    let short = |line: &str| format!("{}:\n", line.split(':').take(3).collect::<Vec<_>>().join(":"));
    text.lines().filter(is_of_system).map(short).collect()
}

/// Replaces the serial number of a card.
fn without_serials(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("unique_id ") {
        Some(rest) if rest.trim_end().bytes().all(|b| b.is_ascii_digit()) => {
            format!("unique_id 0{}", if line.ends_with('\n') { "\n" } else { "" })
        }
        _ => line.to_string(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// Returns the marks of a library by which its version is known: its name and Mesa's release from the beginning, its
/// compiler from the end.
fn marks(file: &mut File, length: u64) -> Vec<u8> {
    let mut read = |begin: u64, most: u64| {
        let mut bytes = Vec::new();
        let sought = file.seek(SeekFrom::Start(begin));
        // What cannot be read has no marks.
        let _ = sought.and_then(|_| file.take(most).read_to_end(&mut bytes));
        bytes
    };
    let mut found = vec![0];
    let begin = read(0, SEARCHED);
    let name = &begin[..begin.len().min(TAIL as usize)];
    add_marks(name, b"\0libamdhip64.so.", &mut found);
    add_marks(&begin, b"Mesa ", &mut found);
    add_marks(&read(length.saturating_sub(TAIL), TAIL), b"roc-", &mut found);
    found
}

/// The most marks of a kind, and the bytes that are kept of each.
const MARKS: usize = 64;
const MARK_LENGTH: usize = 32;

fn add_marks(bytes: &[u8], mark: &[u8], found: &mut Vec<u8>) {
    let places = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    for (at, _) in places.take(MARKS) {
        let text = &bytes[at..bytes.len().min(at + MARK_LENGTH)];
        // The mark itself may begin with a zero.
        let end = text.iter().skip(1).position(|&b| b == 0).map_or(text.len(), |n| n + 1);
        found.extend(&text[..end]);
        found.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_serials_are_replaced() {
        let text = "/home/anna/lib:/opt/x:/home/bob and /home/";
        assert_eq!(without_users(text), "/home/user/lib:/opt/x:/home/user and /home/");
        assert_eq!(without_users(&without_users(text)), without_users(text));
        let properties = "simd_count 240\nunique_id 15183212345678901234\ndomain 0\n";
        assert_eq!(without_serials(properties), "simd_count 240\nunique_id 0\ndomain 0\n");
        let group = "render:x:105:anna,bob\nanna:x:1000:\nnonsense\n";
        assert_eq!(system_accounts(group), "render:x:105:\n");
        let secret = [("AMD_API_KEY", "s"), ("HOME", "/home/anna"), ("HSA_XNACK", "1"), ("PATH", "/x")];
        let secret = secret.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(environment(&secret), "HOME=/home/user\0HSA_XNACK=1\0");
    }

    #[test]
    fn a_library_is_reduced_to_its_marks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        let mut bytes = vec![b'x'; 3 << 20];
        bytes
            .extend(b"\0libamdhip64.so.7\0Mesa 25.0.7-2\0roc-7.2.0 25103 and a secret that is long enough\0");
        bytes.extend(vec![b'y'; 1000]);
        std::fs::write(&path, &bytes).unwrap();
        let kept = contents(&path, &path, bytes.len() as u64);
        let text = String::from_utf8(kept).unwrap();
        assert_eq!(text, "\0\0libamdhip64.so.7\0Mesa 25.0.7-2\0roc-7.2.0 25103 and a secret tha\0");
    }
}
