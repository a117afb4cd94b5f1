//! Functions of libc that list folders: those of the virtual machine have its names.

use crate::files::next;
use crate::machine;
use crate::tree::{self, Name, files};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use virtual_kfd::topology::Entry;

/// Entries of a folder, and which is read next.
struct Listing {
    /// `.`, `..` and the names; never changed, so that a reader's pointer stays valid until the folder is closed.
    entries: Vec<libc::dirent64>,
    next: usize,
}

/// Open folders of the virtual machine, by the address of libc's structure.
static OPEN: LazyLock<Mutex<HashMap<usize, Listing>>> = LazyLock::new(Mutex::default);
/// Number of them: with none, nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn open_folders() -> MutexGuard<'static, HashMap<usize, Listing>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with an open folder of the virtual machine; `None` for any other.
fn with<T>(folder: *mut libc::DIR, then: impl FnOnce(&mut Listing) -> T) -> Option<T> {
    if COUNT.load(SeqCst) == 0 {
        return None;
    }
    open_folders().get_mut(&(folder as usize)).map(then)
}

impl Listing {
    fn of(index: usize) -> Listing {
        let mut entries = vec![entry(".", index, libc::DT_DIR), entry("..", index, libc::DT_DIR)];
        if let Some(files) = files() {
            for (name, index) in files.names(index) {
                let is_node = |path: &str| path.starts_with("/dev/dri/renderD");
                let kind = match files.at(index) {
                    Ok((path, Entry::File(_))) if is_node(&path) => libc::DT_CHR,
                    Ok((_, Entry::File(_))) => libc::DT_REG,
                    Ok((_, Entry::Link(_))) => libc::DT_LNK,
                    _ => libc::DT_DIR,
                };
                entries.push(entry(name, index, kind));
            }
        }
        Listing { entries, next: 0 }
    }

    /// Returns the next entry, or null at the end.
    fn read(&mut self) -> *mut libc::dirent64 {
        let found = self.entries.get_mut(self.next);
        self.next += usize::from(found.is_some());
        found.map_or(std::ptr::null_mut(), |entry| entry)
    }
}

fn entry(name: &str, index: usize, kind: u8) -> libc::dirent64 {
    // SAFETY: a structure of numbers.
    let mut entry: libc::dirent64 = unsafe { std::mem::zeroed() };
    (entry.d_ino, entry.d_off, entry.d_type) = (index as u64 + 1, index as i64 + 1, kind);
    entry.d_reclen = size_of::<libc::dirent64>() as u16;
    let most = entry.d_name.len() - 1;
    for (to, byte) in entry.d_name[..most].iter_mut().zip(name.bytes()) {
        *to = byte as c_char;
    }
    entry
}

/// Opens a folder of the virtual machine.
///
/// # Safety `opens` is libc's `fdopendir`.
unsafe fn open_listing(
    index: usize,
    fd: c_int,
    opens: unsafe extern "C" fn(c_int) -> *mut libc::DIR,
) -> *mut libc::DIR {
    // SAFETY: the caller's promise.
    let folder = unsafe { opens(fd) };
    if !folder.is_null() {
        open_folders().insert(folder as usize, Listing::of(index));
        COUNT.fetch_add(1, SeqCst);
    }
    folder
}

type Opens = unsafe extern "C" fn(c_int) -> *mut libc::DIR;
type Reads = unsafe extern "C" fn(*mut libc::DIR) -> *mut libc::dirent64;
type ReadsTo = unsafe extern "C" fn(*mut libc::DIR, *mut libc::dirent64, *mut *mut libc::dirent64) -> c_int;

/// Calls libc's function of a name.
macro_rules! libcs {
    ($name:literal as $kind:ty, $otherwise:expr, ($($argument:expr),*)) => {{
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let function = next(&NEXT, $name);
        if function.is_null() {
            machine::failed(libc::ENOSYS);
            $otherwise
        } else {
            // SAFETY: libc's function of this name has this type; the caller's promise is that of libc's function.
            unsafe { std::mem::transmute::<*mut c_void, $kind>(function)($($argument),*) }
        }
    }};
}

/// Opens a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    type Function = unsafe extern "C" fn(*const c_char) -> *mut libc::DIR;
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { Name::of(libc::AT_FDCWD, path) }) else {
        return libcs!(c"opendir" as Function, std::ptr::null_mut(), (path));
    };
    let fd = tree::open(&name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: a descriptor of this call.
    unsafe {
        let folder = fdopendir(fd);
        if folder.is_null() {
            libc::close(fd);
        }
        folder
    }
}

/// Opens the folder of a descriptor.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut libc::DIR {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = next(&NEXT, c"fdopendir");
    if function.is_null() {
        machine::failed(libc::ENOSYS);
        return std::ptr::null_mut();
    }
    // SAFETY: libc's function of this name has this type; the caller's promise.
    unsafe {
        let opens = std::mem::transmute::<*mut c_void, Opens>(function);
        match tree::folder_of(fd) {
            Some(index) => open_listing(index, fd, opens),
            None => opens(fd),
        }
    }
}

/// Returns the next entry of a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir(folder: *mut libc::DIR) -> *mut libc::dirent64 {
    with(folder, Listing::read).unwrap_or_else(|| libcs!(c"readdir" as Reads, std::ptr::null_mut(), (folder)))
}

/// Returns the next entry of a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(folder: *mut libc::DIR) -> *mut libc::dirent64 {
    with(folder, Listing::read)
        .unwrap_or_else(|| libcs!(c"readdir64" as Reads, std::ptr::null_mut(), (folder)))
}

/// Copies the next entry of a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir_r(
    folder: *mut libc::DIR,
    to: *mut libc::dirent64,
    result: *mut *mut libc::dirent64,
) -> c_int {
    let Some(found) = with(folder, Listing::read) else {
        return libcs!(c"readdir_r" as ReadsTo, libc::ENOSYS, (folder, to, result));
    };
    // SAFETY: the caller's promise; an entry that was found stays as long as the folder is open.
    unsafe {
        if !found.is_null() {
            to.write(*found);
        }
        result.write(if found.is_null() { found } else { to });
    }
    0
}

/// Copies the next entry of a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64_r(
    folder: *mut libc::DIR,
    to: *mut libc::dirent64,
    result: *mut *mut libc::dirent64,
) -> c_int {
    // SAFETY: the caller's promise. Both structures are the same on all processors that ROCm supports.
    unsafe { readdir_r(folder, to, result) }
}

/// Begins a folder anew.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(folder: *mut libc::DIR) {
    type Function = unsafe extern "C" fn(*mut libc::DIR);
    if with(folder, |listing| listing.next = 0).is_none() {
        libcs!(c"rewinddir" as Function, (), (folder));
    }
}

/// Returns the place in a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(folder: *mut libc::DIR) -> c_long {
    type Function = unsafe extern "C" fn(*mut libc::DIR) -> c_long;
    with(folder, |listing| listing.next as c_long)
        .unwrap_or_else(|| libcs!(c"telldir" as Function, -1, (folder)))
}

/// Goes to a place in a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(folder: *mut libc::DIR, place: c_long) {
    type Function = unsafe extern "C" fn(*mut libc::DIR, c_long);
    if with(folder, |listing| listing.next = usize::try_from(place).unwrap_or(0)).is_none() {
        libcs!(c"seekdir" as Function, (), (folder, place));
    }
}

/// Closes a folder.
///
/// # Safety As libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut libc::DIR) -> c_int {
    type Function = unsafe extern "C" fn(*mut libc::DIR) -> c_int;
    if COUNT.load(SeqCst) > 0 && open_folders().remove(&(folder as usize)).is_some() {
        COUNT.fetch_sub(1, SeqCst);
    }
    libcs!(c"closedir" as Function, -1, (folder))
}
