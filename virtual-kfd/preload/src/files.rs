//! Functions of libc that take names of files, and `ioctl`.
//!
//! Each answers for names of the virtual machine and passes all others to the kernel or, where libc does more than that,
//! to libc's function. A variadic function's arguments lie where those of a plain function lie, on all processors
//! that ROCm supports.

use crate::machine::{self, Node};
use crate::tree::{self, Name};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Returns the virtual device at a path.
///
/// # Safety `path` is null or a C string.
unsafe fn device(path: *const c_char) -> Option<Node> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Node::at(unsafe { CStr::from_ptr(path) })
}

/// Returns the address of libc's function of a name.
pub(crate) fn next(of: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut function = of.load(Relaxed);
    if function.is_null() {
        // SAFETY: a C string.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        of.store(function, Relaxed);
    }
    function
}

macro_rules! next {
    ($name:literal as $kind:ty) => {{
        static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let function = next(&FUNCTION, $name);
        // Libc's function of this name has this type, or there is none.
        (!function.is_null()).then(|| std::mem::transmute::<*mut c_void, $kind>(function))
    }};
}

/// Opens a file.
///
/// # Safety As `openat`.
unsafe fn open_file(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(node) = device(path) {
            return node.open();
        }
        if let Some(name) = Name::of(folder, path) {
            return tree::open(&name, flags);
        }
        libc::syscall(libc::SYS_openat, folder, path, flags, mode) as c_int
    }
}

/// Describes a file.
///
/// # Safety As `fstatat`.
unsafe fn status(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // A character device that everybody may read and write.
        let path = if device(path).is_some() { c"/dev/null".as_ptr() } else { path };
        if let Some(name) = Name::of(folder, path) {
            return tree::status(&name, to, flags);
        }
        libc::syscall(libc::SYS_newfstatat, folder, path, to, flags) as c_int
    }
}

macro_rules! interposed {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block)*) => {$(
        /// Stands before libc's function of this name.
        ///
        /// # Safety As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller's promise, which is that of libc's function.
            unsafe { $body }
        }
    )*};
}

interposed! {
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_file(libc::AT_FDCWD, path, flags, mode)
    }
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_file(libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode)
    }
    __open_2(path: *const c_char, flags: c_int) -> c_int { open_file(libc::AT_FDCWD, path, flags, 0) }
    __open64_2(path: *const c_char, flags: c_int) -> c_int { open_file(libc::AT_FDCWD, path, flags, 0) }
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_file(folder, path, flags, mode)
    }
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_file(folder, path, flags | libc::O_LARGEFILE, mode)
    }
    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        open_stream(path, mode)
    }
    fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        open_stream(path, mode)
    }
    access(path: *const c_char, mode: c_int) -> c_int { may_access(libc::AT_FDCWD, path, mode) }
    faccessat(folder: c_int, path: *const c_char, mode: c_int, _flags: c_int) -> c_int {
        may_access(folder, path, mode)
    }
    stat(path: *const c_char, to: *mut libc::stat) -> c_int { status(libc::AT_FDCWD, path, to, 0) }
    stat64(path: *const c_char, to: *mut libc::stat) -> c_int { status(libc::AT_FDCWD, path, to, 0) }
    lstat(path: *const c_char, to: *mut libc::stat) -> c_int {
        status(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW)
    }
    lstat64(path: *const c_char, to: *mut libc::stat) -> c_int {
        status(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW)
    }
    fstatat(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        status(folder, path, to, flags)
    }
    fstatat64(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        status(folder, path, to, flags)
    }
    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int {
        let path = if device(path).is_some() { c"/dev/null".as_ptr() } else { path };
        if let Some(name) = Name::of(folder, path) {
            return tree::status_x(&name, to, flags);
        }
        libc::syscall(libc::SYS_statx, folder, path, flags, mask, to) as c_int
    }
    readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize {
        read_link(libc::AT_FDCWD, path, to, size)
    }
    readlinkat(folder: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize {
        read_link(folder, path, to, size)
    }
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
        real_path(path, to)
    }
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        match (request >> 8 & 0xff) as u8 {
            b'K' if machine::is_ours(fd) => machine::ioctl(request as u32, argument),
            // As the kernel answers a process that has not opened the device itself.
            b'K' | b'd' if machine::is_parents(fd) => machine::failed(libc::EBADF),
            // A render node without libdrm: no ioctl of graphics is known.
            b'd' if machine::is_ours(fd) => machine::failed(libc::EINVAL),
            _ => libc::syscall(libc::SYS_ioctl, fd as c_long, request, argument) as c_int,
        }
    }
}

/// Opens a stream.
///
/// # Safety As `fopen`.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(name) = Name::of(libc::AT_FDCWD, path) {
            return open_text(&name, mode);
        }
        let Some(next) = next!(c"fopen64" as Function) else {
            machine::failed(libc::ENOSYS);
            return std::ptr::null_mut();
        };
        next(path, mode)
    }
}

/// Opens a stream of a file of the virtual machine.
///
/// # Safety `mode` is a C string.
unsafe fn open_text(name: &Name, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller's promise; a descriptor of this call.
    unsafe {
        let bytes = CStr::from_ptr(mode).to_bytes();
        let reads = bytes.starts_with(b"r") && !bytes.contains(&b'+');
        let on_exec = if bytes.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
        let fd = tree::open(name, if reads { libc::O_RDONLY } else { libc::O_RDWR } | on_exec);
        if fd < 0 { std::ptr::null_mut() } else { libc::fdopen(fd, mode) }
    }
}

/// Tells whether a file may be accessed.
///
/// # Safety As `faccessat`.
unsafe fn may_access(folder: c_int, path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if device(path).is_some() {
            return 0;
        }
        if let Some(name) = Name::of(folder, path) {
            return tree::access(&name, mode);
        }
        libc::syscall(libc::SYS_faccessat, folder, path, mode) as c_int
    }
}

/// Reads a link.
///
/// # Safety As `readlinkat`.
unsafe fn read_link(folder: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(name) = Name::of(folder, path) {
            return tree::read_link(&name, to, size);
        }
        libc::syscall(libc::SYS_readlinkat, folder, path, to, size) as isize
    }
}

/// Resolves all links of a path.
///
/// # Safety As `realpath`.
unsafe fn real_path(path: *const c_char, to: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    // SAFETY: the caller's promise: no place, or one for the longest path.
    unsafe {
        let Some(name) = Name::of(libc::AT_FDCWD, path) else {
            let Some(next) = next!(c"realpath" as Function) else {
                machine::failed(libc::ENOSYS);
                return std::ptr::null_mut();
            };
            return next(path, to);
        };
        match tree::real_path(&name) {
            Ok(found) if to.is_null() => libc::strdup(found.as_ptr()),
            Ok(found) => {
                let bytes = found.as_bytes_with_nul();
                std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
                to
            }
            Err(errno) => {
                machine::failed(errno);
                std::ptr::null_mut()
            }
        }
    }
}
