//! Records a system: writes the files that a probe reads to a folder, which is then the root of another probe.

use super::report::Report;
use super::{Inspection, ProbeOptions, probe};
use crate::compare::redact::{HOMES, SHORTEST};
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

/// Probes this machine, or a recorded one, and writes the files that were read to a folder: `probe --root FOLDER` reads
/// them. Users' names in paths become "user", serial numbers 0, and of libraries only the versions are written. Owners and
/// modes of device nodes are not recorded, so a node that may not be opened here can be opened there.
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
    let users = Users::of(&variables);
    let variables = environment(&variables, &users);
    let mut recorder =
        Recorder { from: Root::new(&options.root), to: Root::new(folder), users, done: BTreeSet::new() };
    recorder.write("/proc/self/environ".as_ref(), variables.as_bytes())?;
    for path in &paths {
        recorder.place(path)?;
    }
    Ok(report)
}

/// Formats the variables that a probe may read.
fn environment(variables: &[(String, String)], users: &Users) -> String {
    let is_wanted = |name: &str| FOLDERS.contains(&name) || is_recorded(name, &[OWN, VULKAN, HIP]);
    let wanted = variables.iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, value)| format!("{name}={}\0", users.removed_from(value))).collect()
}

/// Names of users, which are left out of paths.
struct Users(Vec<String>);

impl Users {
    /// Collects the names of the user from the environment: a home may be anywhere.
    fn of(variables: &[(String, String)]) -> Users {
        let value =
            |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let home = value("HOME").and_then(|home| home.rsplit('/').find(|part| !part.is_empty()));
        let names = [value("USER"), value("LOGNAME"), home].into_iter().flatten();
        let is_name = |name: &&str| name.len() >= SHORTEST && *name != "root" && !name.contains('/');
        Users(names.filter(is_name).map(String::from).collect())
    }

    /// Replaces the names of users in the paths of a text: those of folders in a folder of homes, and those of the user.
    fn removed_from(&self, text: &str) -> String {
        let is_end = |c: char| c.is_whitespace() || "/:;,\"'\0".contains(c);
        let mut text = text.to_string();
        let mut replace = |before: &str, name: Option<&str>| {
            let mut from = 0;
            while let Some(at) = text[from..].find(before).map(|at| from + at + before.len()) {
                let rest = &text[at..];
                let end = rest.find(is_end).unwrap_or(rest.len());
                from = at;
                if end > 0 && name.is_none_or(|name| rest[..end] == *name) {
                    text.replace_range(at..at + end, "user");
                }
            }
        };
        HOMES.iter().for_each(|home| replace(home, None));
        self.0.iter().for_each(|name| replace("/", Some(name)));
        text
    }

    fn removed_from_path(&self, path: &Path) -> PathBuf {
        PathBuf::from(self.removed_from(&path.to_string_lossy()))
    }
}

struct Recorder {
    from: Root,
    to: Root,
    users: Users,
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
        let place = self.to.below(self.users.removed_from_path(path));
        if place.symlink_metadata().is_ok() {
            return Ok(());
        }
        let made = place.parent().map_or(Ok(()), create_folders);
        made.and_then(|()| std::os::unix::fs::symlink(self.users.removed_from_path(target), &place))
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
            let place = self.to.below(self.users.removed_from_path(path));
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
        let bytes = if about.is_file() {
            contents(&self.from.below(path), path, about.len(), &self.users)
        } else {
            Vec::new()
        };
        self.write(path, &bytes)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let path = self.users.removed_from_path(path);
        let place = self.to.below(&path);
        // Through a link that was placed, which may lead out of the recording, nothing is written.
        let mut above = path.ancestors().skip(1).filter(|folder| folder.parent().is_some());
        if above.any(|folder| self.to.below(folder).is_symlink()) {
            return Ok(());
        }
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
fn contents(file: &Path, path: &Path, length: u64, users: &Users) -> Vec<u8> {
    let Ok(mut open) = File::open(file) else { return Vec::new() };
    if length > WHOLE {
        return marks(&mut open, length);
    }
    let mut bytes = Vec::new();
    // The rest of a file that cannot be read on is missing.
    let _ = (&mut open).take(WHOLE).read_to_end(&mut bytes);
    let name = path.file_name().unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if name == "passwd" || name == "group" => system_accounts(&text).into_bytes(),
        Ok(text) => without_serials(&users.removed_from(&text)).into_bytes(),
        Err(_) => marks(&mut open, length),
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
    for at in memchr::memmem::find_iter(bytes, mark).take(MARKS) {
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
        let of = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            Users::of(&owned.collect::<Vec<_>>())
        };
        let nobody = of(&[]);
        assert_eq!(nobody.removed_from(text), "/home/user/lib:/opt/x:/home/user and /home/");
        assert_eq!(nobody.removed_from("/home/user/lib"), "/home/user/lib");
        // A home that is elsewhere.
        for variables in [[("HOME", "/data/anna/")], [("USER", "anna")], [("LOGNAME", "anna")]] {
            let anna = of(&variables);
            assert_eq!(
                anna.removed_from("/data/anna/x:/data/annabel:anna"),
                "/data/user/x:/data/annabel:anna"
            );
        }
        assert_eq!(of(&[("HOME", "/root")]).removed_from("/root/x"), "/root/x", "no person's name");
        let properties = "simd_count 240\nunique_id 15183212345678901234\ndomain 0\n";
        assert_eq!(without_serials(properties), "simd_count 240\nunique_id 0\ndomain 0\n");
        let group = "render:x:105:anna,bob\nanna:x:1000:\nnonsense\n";
        assert_eq!(system_accounts(group), "render:x:105:\n");
        let secret = [("AMD_API_KEY", "s"), ("HOME", "/home/anna"), ("HSA_XNACK", "1"), ("PATH", "/x")];
        let secret = secret.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(environment(&secret, &nobody), "HOME=/home/user\0HSA_XNACK=1\0");
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
        let kept = |length: usize| contents(&path, &path, length as u64, &Users(Vec::new()));
        let text = String::from_utf8(kept(bytes.len())).unwrap();
        assert_eq!(text, "\0\0libamdhip64.so.7\0Mesa 25.0.7-2\0roc-7.2.0 25103 and a secret tha\0");
        // A small one is no text either.
        let small = b"\x7fELF\xff\0libamdhip64.so.6\0/home/anna/secret\0";
        std::fs::write(&path, small).unwrap();
        assert_eq!(kept(small.len()), b"\0\0libamdhip64.so.6\0");
    }
}
