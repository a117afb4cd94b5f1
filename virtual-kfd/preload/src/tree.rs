//! The virtual machine's files, which no file system has: descriptors, statuses and links of them.
//!
//! A descriptor of a file is one of memory that nobody can write. A descriptor of a folder is one of `/proc`, at a position
//! that no program reads to and that says which folder it stands for: its duplicates have the same one.

use crate::machine;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::OnceLock;
use virtual_kfd::Files;
use virtual_kfd::topology::Entry;

/// Folders that the virtual machine has for itself.
const FOLDERS: [&str; 6] = [
    "/dev/dri",
    "/sys/bus/pci/drivers/amdgpu",
    "/sys/class/drm",
    "/sys/class/kfd",
    "/sys/devices/virtual/kfd",
    "/sys/module/amdgpu",
];
/// Position of a descriptor of the first folder; the next one's is one behind.
const FIRST_POSITION: libc::off_t = 0x7000_0000;
/// Device number of the files.
const DEVICE: u64 = 0x6b66;

/// Returns the files; `None` if the options are wrong.
pub(crate) fn files() -> Option<&'static Files> {
    static FILES: OnceLock<Option<Files>> = OnceLock::new();
    FILES.get_or_init(|| machine::options().map(Files::new)).as_ref()
}

/// A name of the virtual machine.
pub(crate) struct Name {
    /// Index of the folder from which the path leads.
    from: usize,
    path: String,
}

impl Name {
    /// Returns a name if it is one of the virtual machine: an absolute one, or one in its folder.
    ///
    /// # Safety `path` is null or a C string.
    pub(crate) unsafe fn of(folder: c_int, path: *const c_char) -> Option<Name> {
        if path.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
        let from = match path.as_bytes().first() {
            Some(b'/') => is_ours(path).then_some(0)?,
            // Without a path, it is about the descriptor itself.
            None => return None,
            Some(_) => folder_of(folder)?,
        };
        Some(Name { from, path: path.into() })
    }

    /// Returns the index of the file.
    pub(crate) fn find(&self, follow: bool) -> Result<usize, c_int> {
        files().ok_or(libc::ENOENT)?.find(self.from, &self.path, follow)
    }
}

/// Returns true for a path that the virtual machine has for itself.
fn is_ours(path: &str) -> bool {
    if !path.starts_with("/sys/") && !path.starts_with("/dev/dri") {
        return false;
    }
    let under =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_card = |index: usize| {
        let address = virtual_kfd::topology::address(index);
        ["/sys/devices/pci0000:00", "/sys/bus/pci/devices"]
            .iter()
            .any(|bus| under(&format!("{bus}/{address}")))
    };
    FOLDERS.iter().any(|folder| under(folder))
        || machine::options().is_some_and(|options| (0..options.cards.len()).any(is_card))
}

/// Returns the index of the folder that a descriptor stands for.
pub(crate) fn folder_of(fd: c_int) -> Option<usize> {
    if fd < 0 {
        return None;
    }
    // SAFETY: any number is allowed, and nothing changes.
    let position = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    let index = usize::try_from(position.checked_sub(FIRST_POSITION)?).ok()?;
    let is_of_proc = identity(fd).is_some_and(|of| Some(of) == of_proc());
    (is_of_proc && matches!(files()?.at(index), Ok((_, Entry::Folder)))).then_some(index)
}

/// Returns the numbers by which the system knows `/proc`.
fn of_proc() -> Option<(libc::dev_t, libc::ino_t)> {
    static PROC: OnceLock<Option<(libc::dev_t, libc::ino_t)>> = OnceLock::new();
    *PROC.get_or_init(|| {
        let name = c"/proc".as_ptr();
        // SAFETY: a C string; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name, libc::O_RDONLY) };
        let fd = c_int::try_from(fd).ok().filter(|&fd| fd >= 0)?;
        let found = identity(fd);
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
        found
    })
}

fn identity(fd: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: any number is allowed; the result says whether the structure was written.
    let found = unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0;
    // SAFETY: written if found.
    found.then(|| unsafe { status.assume_init() }).map(|s| (s.st_dev, s.st_ino))
}

/// Opens a file or a folder; -1 with errno if that fails.
pub(crate) fn open(name: &Name, flags: c_int) -> c_int {
    let opened = name.find(flags & libc::O_NOFOLLOW == 0).and_then(|index| {
        let (_, entry) = files().ok_or(libc::ENOENT)?.at(index)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match entry {
            _ if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => Err(libc::EEXIST),
            Entry::Folder if writes => Err(libc::EISDIR),
            Entry::Folder => open_folder(index, flags),
            Entry::Link(_) => Err(libc::ELOOP),
            Entry::File(_) if flags & libc::O_DIRECTORY == libc::O_DIRECTORY => Err(libc::ENOTDIR),
            Entry::File(_) if writes => Err(libc::EACCES),
            Entry::File(text) => open_text(text, flags),
        }
    });
    opened.unwrap_or_else(machine::failed)
}

/// Returns a descriptor of a folder.
pub(crate) fn open_folder(index: usize, flags: c_int) -> Result<c_int, c_int> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | flags & libc::O_CLOEXEC;
    // SAFETY: a C string; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc".as_ptr(), flags) } as c_int;
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: a valid descriptor; the result is checked.
    let at = unsafe { libc::lseek(fd, FIRST_POSITION + index as libc::off_t, libc::SEEK_SET) };
    if at < 0 { Err(close(fd)) } else { Ok(fd) }
}

/// Returns a descriptor from which a text is read.
fn open_text(text: &str, flags: c_int) -> Result<c_int, c_int> {
    let on_exec = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"virtual-kfd-file".as_ptr(), on_exec | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(last_error());
    }
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a valid descriptor, and a text of as many bytes. A write to memory is done as a whole.
    let done = unsafe {
        libc::write(fd, text.as_ptr().cast(), text.len()) == text.len() as isize
            && libc::lseek(fd, 0, libc::SEEK_SET) == 0
            && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    if done { Ok(fd) } else { Err(close(fd)) }
}

fn last_error() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Closes a descriptor of this module after an error, which it returns.
fn close(fd: c_int) -> c_int {
    let error = last_error();
    // SAFETY: opened by this module, and used no more.
    unsafe { libc::close(fd) };
    error
}

/// Mode, links, bytes and number of a file.
struct Status {
    mode: u32,
    links: u32,
    bytes: usize,
    number: u64,
}

impl Status {
    fn of(index: usize) -> Result<Status, c_int> {
        let (_, entry) = files().ok_or(libc::ENOENT)?.at(index)?;
        let (mode, links, bytes) = match entry {
            Entry::Folder => (libc::S_IFDIR | 0o555, 2, 0),
            Entry::File(text) => (libc::S_IFREG | 0o444, 1, text.len()),
            Entry::Link(to) => (libc::S_IFLNK | 0o777, 1, to.len()),
        };
        Ok(Status { mode, links, bytes, number: index as u64 + 1 })
    }
}

/// Writes the status of a file; -1 with errno if that fails.
///
/// # Safety `to` is the address of a structure.
pub(crate) unsafe fn status(name: &Name, to: *mut libc::stat, flags: c_int) -> c_int {
    match name.find(flags & libc::AT_SYMLINK_NOFOLLOW == 0).and_then(Status::of) {
        Err(errno) => machine::failed(errno),
        Ok(of) => {
            // SAFETY: a structure of numbers; the caller's promise.
            unsafe {
                let mut status: libc::stat = std::mem::zeroed();
                (status.st_dev, status.st_ino, status.st_blksize) = (DEVICE, of.number, 4096);
                (status.st_mode, status.st_nlink) = (of.mode, of.links as libc::nlink_t);
                status.st_size = of.bytes as libc::off_t;
                to.write(status);
            }
            0
        }
    }
}

/// Writes the status of a file in its newer form; -1 with errno if that fails.
///
/// # Safety As [`status`].
pub(crate) unsafe fn status_x(name: &Name, to: *mut libc::statx, flags: c_int) -> c_int {
    match name.find(flags & libc::AT_SYMLINK_NOFOLLOW == 0).and_then(Status::of) {
        Err(errno) => machine::failed(errno),
        Ok(of) => {
            // SAFETY: a structure of numbers; the caller's promise.
            unsafe {
                let mut status: libc::statx = std::mem::zeroed();
                (status.stx_mask, status.stx_blksize) = (libc::STATX_BASIC_STATS, 4096);
                (status.stx_dev_minor, status.stx_ino) = (DEVICE as u32, of.number);
                (status.stx_mode, status.stx_nlink) = (of.mode as u16, of.links);
                status.stx_size = of.bytes as u64;
                to.write(status);
            }
            0
        }
    }
}

/// Tells whether a file may be accessed; -1 with errno if not.
pub(crate) fn access(name: &Name, mode: c_int) -> c_int {
    let allowed = name.find(true).and_then(|index| {
        let of = Status::of(index)?;
        let wanted = mode as c_uint & 7;
        if of.mode >> 6 & wanted == wanted { Ok(0) } else { Err(libc::EACCES) }
    });
    allowed.unwrap_or_else(machine::failed)
}

/// Reads a link; -1 with errno if that fails.
///
/// # Safety `to` is the address of as many bytes.
pub(crate) unsafe fn read_link(name: &Name, to: *mut c_char, size: usize) -> isize {
    let target = name.find(false).and_then(|index| match files().ok_or(libc::ENOENT)?.at(index)?.1 {
        Entry::Link(target) => Ok(target),
        _ => Err(libc::EINVAL),
    });
    match target {
        Err(errno) => machine::failed(errno) as isize,
        Ok(target) => {
            let bytes = target.len().min(size);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), to.cast(), bytes) };
            bytes as isize
        }
    }
}

/// Returns the path of a file without links.
pub(crate) fn real_path(name: &Name) -> Result<CString, c_int> {
    let (path, _) = files().ok_or(libc::ENOENT)?.at(name.find(true)?)?;
    CString::new(path).map_err(|_| libc::ENOENT)
}
