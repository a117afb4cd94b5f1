//! Files that only their owner may read, written without following links that somebody else left.
//!
//! Every file in a run's folder, a cache or a state folder is written here. A file is made under a random
//! name that did not exist, and renamed; a link in its place is replaced, and what the link names stays as it
//! is. New files can be read by their owner only (0600), new folders entered by their owner only (0700); files
//! and folders that exist keep their permissions.

mod root;

pub use root::{Root, traced};

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Attempts to find a name that does not exist.
const ATTEMPTS: usize = 100;

/// Writes a file atomically and creates its folder if needed: a reader sees the old content or all of the new
/// one. Several threads and processes may write the same file; the last one that finishes wins.
///
/// # Errors
/// Errors of the file system; then the file is unchanged and no temporary file is left.
pub fn write_atomically(path: &Path, data: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(data))
}

/// Writes a file atomically as [`write_atomically`] does, with its contents from a function.
///
/// # Errors
/// Errors of the file system and of the function; then the file is unchanged and no temporary file is left.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_folders(folder)?;
    }
    // A rename would put the file in the place of a device.
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file() && !there.is_symlink()) {
        return Err(refused(path, "is there and no file"));
    }
    let (temporary, mut file) = create_random(path)?;
    let written = write(&mut file).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        // A partial file is useless, and its error is returned already.
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

/// Writes a file of a cache: its folder must belong to the user, because everybody who may write there could
/// replace the file.
///
/// # Errors
/// As [`write_atomically`]; [`ErrorKind::PermissionDenied`] if the folder belongs to somebody else, or
/// everybody may write to it.
pub fn write_cached(path: &Path, data: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_folders(folder)?;
    let about = std::fs::metadata(folder)?;
    if !is_own(&about) || is_public(&about) {
        return Err(refused(folder, "belongs to another user, or everybody may write to it"));
    }
    write_atomically(path, data)
}

/// Reads a file of a cache; it must be a regular file of the user or of the system's administrator, of at most
/// `limit` bytes.
///
/// # Errors
/// Errors of the file system; [`ErrorKind::PermissionDenied`] for the file of another user or a link.
pub fn read_cached(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_existing(path, OpenOptions::new().read(true))?;
    let about = file.metadata()?;
    if !is_own(&about) && !is_administrators(&about) {
        return Err(refused(path, "belongs to another user"));
    }
    if about.len() > limit {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a file that its writer fills while others read it, such as a log. A file or link of that name is
/// removed first, so no handle that was open before sees the new contents.
///
/// # Errors
/// Errors of the file system.
pub fn create(path: &Path) -> io::Result<File> {
    remove(path)?;
    create_new(path)
}

/// Creates a file that does not exist yet.
///
/// # Errors
/// Errors of the file system; [`ErrorKind::AlreadyExists`] if there is a file or a link of that name.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens an existing file to write to it. The file must be regular and have no other name: its contents would
/// change under that name too.
///
/// # Errors
/// Errors of the file system; [`ErrorKind::PermissionDenied`] for a link or a file with several names.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    let file = open_existing(path, OpenOptions::new().write(true))?;
    only_name(path, file)
}

/// Opens a file to append to it, and creates it if it is missing.
///
/// # Errors
/// As [`open_to_write`].
pub fn open_to_append(path: &Path) -> io::Result<File> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => create_new(path),
        _ => only_name(path, open_existing(path, OpenOptions::new().append(true))?),
    }
}

/// Removes a file or a link, if it exists.
///
/// # Errors
/// Errors of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Creates a folder and the folders above it, as far as they do not exist.
///
/// # Errors
/// Errors of the file system.
pub fn create_folders(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    folder_builder().recursive(true).create(path)
}

/// Checks that a folder contains no link and nothing but files and folders, in the folders within it too, and
/// returns the first entry that is something else. A folder of somebody else could make a program read or write
/// any file of the user by such an entry.
///
/// # Errors
/// Errors of the file system; [`ErrorKind::PermissionDenied`] with the entry.
pub fn check_no_links(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            check_no_links(&entry.path())?;
        } else if !kind.is_file() {
            return Err(refused(&entry.path(), "is a link, or no file"));
        }
    }
    Ok(())
}

/// Checks what [`check_no_links`] does, and that the folder and everything in it belongs to the user and has no
/// name elsewhere.
///
/// # Errors
/// As [`check_no_links`].
pub fn check_own(folder: &Path) -> io::Result<()> {
    check_no_links(folder)?;
    if !is_own(&std::fs::metadata(folder)?) {
        return Err(refused(folder, "belongs to another user"));
    }
    for entry in std::fs::read_dir(folder)? {
        let (path, about) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        if about.is_dir() {
            check_own(&path)?;
        } else if !is_own(&about) || names(&about) > 1 {
            return Err(refused(&path, "belongs to another user, or has a second name elsewhere"));
        }
    }
    Ok(())
}

/// A folder for a moment, that nobody else can enter; removed with its contents on drop.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder with a random name in the system's folder of temporary files.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn new() -> io::Result<TemporaryFolder> {
        TemporaryFolder::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> io::Result<TemporaryFolder> {
        let make = || {
            let path = parent.join(format!("diptych-{:016x}", random()));
            folder_builder().create(&path).map(|()| TemporaryFolder(path))
        };
        attempt(make)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a number that other users of the machine cannot guess, for names.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Creates a file with a random name next to `path`.
fn create_random(path: &Path) -> io::Result<(PathBuf, File)> {
    let Some(name) = path.file_name() else {
        return Err(Error::new(ErrorKind::InvalidInput, "not the name of a file"));
    };
    attempt(|| {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:016x}.tmp", random()));
        let temporary = path.with_file_name(hidden);
        create_new(&temporary).map(|file| (temporary, file))
    })
}

/// Repeats an action as long as its random name exists already.
fn attempt<T>(mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match action() {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
    action()
}

fn folder_builder() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "the permissions are Unix's"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Opens a regular file that exists and is no link.
fn open_existing(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Checked before opening, because opening a pipe would block until it has another end.
    let link = || refused(path, "is a link, or no file");
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(link());
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(link()) }
}

fn only_name(path: &Path, file: File) -> io::Result<File> {
    match names(&file.metadata()?) {
        0 | 1 => Ok(file),
        _ => Err(refused(path, "has a second name elsewhere")),
    }
}

fn refused(path: &Path, why: &str) -> Error {
    let name = path.display();
    Error::new(ErrorKind::PermissionDenied, format!("'{name}' {why}"))
}

#[cfg(unix)]
mod system {
    use std::fs::Metadata;
    use std::os::unix::fs::MetadataExt;
    use std::sync::OnceLock;

    /// Returns the number of names of a file.
    pub(super) fn names(about: &Metadata) -> u64 {
        about.nlink()
    }

    /// True if the file belongs to the user of this process. If the user cannot be found out it is true: the
    /// system then refuses what the user may not do.
    pub(super) fn is_own(about: &Metadata) -> bool {
        user().is_none_or(|user| about.uid() == user)
    }

    /// True if the file belongs to the administrator, who can change every file anyway.
    pub(super) fn is_administrators(about: &Metadata) -> bool {
        about.uid() == 0
    }

    /// True if everybody may write to a folder, and replace files of others in it.
    pub(super) fn is_public(about: &Metadata) -> bool {
        const EVERYBODY_WRITES: u32 = 0o002;
        const STICKY: u32 = 0o1000;
        about.mode() & (EVERYBODY_WRITES | STICKY) == EVERYBODY_WRITES
    }

    /// Returns the user of this process: the owner of what it creates.
    fn user() -> Option<u32> {
        static USER: OnceLock<Option<u32>> = OnceLock::new();
        *USER.get_or_init(|| {
            let own = super::TemporaryFolder::new().ok()?;
            Some(std::fs::metadata(own.path()).ok()?.uid())
        })
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::Metadata;

    pub(super) fn names(_: &Metadata) -> u64 {
        1
    }

    pub(super) fn is_own(_: &Metadata) -> bool {
        true
    }

    pub(super) fn is_administrators(_: &Metadata) -> bool {
        false
    }

    pub(super) fn is_public(_: &Metadata) -> bool {
        false
    }
}

use system::{is_administrators, is_own, is_public, names};

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that threads which write the same file at the same time do not share a temporary file: each
    /// write succeeds, and the file always has the content of one of them.
    #[test]
    fn concurrent_writes_of_one_file_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file.bin");
        let content = |i: u8| vec![i; 1000 + usize::from(i)];
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..10 {
                        write_atomically(path, &content(i)).unwrap();
                        let read = std::fs::read(path).unwrap();
                        assert_eq!(read, content(read[0]));
                    }
                });
            }
        });
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
        assert!(write_atomically(path.parent().unwrap(), b"").is_err(), "a folder is not replaced");
        let blocked = path.join("c");
        assert!(write_atomically(&blocked, b"").is_err(), "the folder is a file");
        let failed = replace(&path, |_| Err(ErrorKind::StorageFull.into()));
        assert!(failed.is_err() && std::fs::read_dir(path.parent().unwrap()).unwrap().count() == 1);
    }

    /// No function writes to what a link names, and new files and folders are the user's alone.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let link = folder.path().join("folder/link");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_folders(link.parent().unwrap()).unwrap();
        assert_eq!(mode(link.parent().unwrap()), 0o700);
        let planted = || {
            std::fs::write(&target, b"precious").unwrap();
            remove(&link).unwrap();
            symlink(&target, &link).unwrap();
        };
        let writes: [fn(&Path) -> io::Result<()>; 4] = [
            |path| write_atomically(path, b"new"),
            |path| write_cached(path, b"new"),
            |path| create(path)?.write_all(b"new"),
            |path| replace(path, |file| file.write_all(b"new")),
        ];
        for write in writes {
            planted();
            write(&link).unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"precious");
            assert_eq!(std::fs::read(&link).unwrap(), b"new");
            assert_eq!(mode(&link), 0o600);
        }
        planted();
        for refused in [open_to_write(&link), open_to_append(&link)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        assert!(read_cached(&link, 100).is_err());
        let text = check_no_links(folder.path()).unwrap_err().to_string();
        assert!(text.contains("folder/link' is a link"), "{text}");
        // A second name is as bad as a link for what is written in place.
        remove(&link).unwrap();
        check_own(folder.path()).unwrap();
        std::fs::hard_link(&target, &link).unwrap();
        assert!(check_no_links(folder.path()).is_ok() && check_own(folder.path()).is_err());
        assert!(open_to_write(&link).is_err() && open_to_append(&link).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        remove(&link).unwrap();
        open_to_append(&link).unwrap().write_all(b"a").unwrap();
        open_to_append(&link).unwrap().write_all(b"b").unwrap();
        assert_eq!(read_cached(&link, 2).unwrap(), b"ab");
        assert!(read_cached(&link, 1).is_err());
        // Everybody could replace a file in such a folder.
        std::fs::set_permissions(link.parent().unwrap(), PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(write_cached(&link, b"").unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_temporary_folder_is_new_and_goes_away() {
        let (a, b) = (TemporaryFolder::new().unwrap(), TemporaryFolder::new().unwrap());
        assert_ne!(a.path(), b.path());
        let path = a.path().to_path_buf();
        std::fs::write(path.join("file"), b"").unwrap();
        drop(a);
        assert!(!path.exists() && b.path().exists());
    }
}
