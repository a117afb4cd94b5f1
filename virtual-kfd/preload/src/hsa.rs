//! The functions of the HSA runtime by which HIP allocates memory: they tell how many bytes a program asked for, of which
//! the kernel driver sees whole pages.
//!
//! Source: `hsa_ext_amd.h` of ROCR-Runtime.

use crate::files;
use crate::machine;
use std::ffi::{CStr, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `HSA_STATUS_ERROR`.
const ERROR: c_uint = 0x1000;

/// Before the program begins: the runtime is told not to put several allocations into one of the driver's.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: C strings. Nobody else changes or reads the environment before the program begins.
    unsafe {
        let value = libc::getenv(c"VIRTUAL_KFD_OVERRUNS".as_ptr());
        if !value.is_null() && CStr::from_ptr(value) == c"1" {
            libc::setenv(c"HSA_DISABLE_FRAGMENT_ALLOCATOR".as_ptr(), c"1".as_ptr(), 1);
        }
    }
}

/// Returns the runtime's function of a name. The runtime may be known only to the library that loaded it.
fn runtimes(of: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let function = files::next(of, name);
    if !function.is_null() {
        return function;
    }
    // SAFETY: C strings; a handle of a library that is loaded, which stays so.
    let function = unsafe {
        let library = libc::dlopen(c"libhsa-runtime64.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    };
    of.store(function, Relaxed);
    function
}

/// Allocates memory of a pool.
///
/// # Safety As the runtime's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_amd_memory_pool_allocate(
    pool: u64,
    bytes: usize,
    flags: u32,
    to: *mut *mut c_void,
) -> c_uint {
    type Function = unsafe extern "C" fn(u64, usize, u32, *mut *mut c_void) -> c_uint;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = runtimes(&NEXT, c"hsa_amd_memory_pool_allocate");
    if function.is_null() {
        return ERROR;
    }
    // SAFETY: the runtime's function of this name has this type; the caller's promise.
    unsafe {
        let status = std::mem::transmute::<*mut c_void, Function>(function)(pool, bytes, flags, to);
        if status == 0 && machine::options().is_some_and(|options| options.overruns) {
            machine::driver().inspect(|driver| driver.asked_for(*to as u64, bytes as u64));
        }
        status
    }
}

/// Frees memory of a pool.
///
/// # Safety As the runtime's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hsa_amd_memory_pool_free(at: *mut c_void) -> c_uint {
    type Function = unsafe extern "C" fn(*mut c_void) -> c_uint;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = runtimes(&NEXT, c"hsa_amd_memory_pool_free");
    if function.is_null() {
        return ERROR;
    }
    if machine::options().is_some_and(|options| options.overruns) {
        machine::driver().inspect(|driver| driver.gives_back(at as u64));
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, Function>(function)(at) }
}
