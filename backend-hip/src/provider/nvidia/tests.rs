//! Tests of the provider over C functions defined here: the arguments of each call, and the handling of its
//! codes.

use super::symbols::{REQUIRED, Symbols, attribute};
use super::*;
use crate::driver::Event;
use crate::provider::ffi::Handle;
use std::ffi::{c_char, c_uint};
use std::sync::atomic::{AtomicI32, Ordering};

/// Held by a test that retains contexts.
static ALONE: Mutex<()> = Mutex::new(());

/// Number of retained contexts.
static CONTEXTS: AtomicI32 = AtomicI32::new(0);

extern "C" fn version(to: *mut c_int) -> c_int {
    // SAFETY: the provider passes the address of an integer.
    unsafe { *to = 12_080 };
    0
}

extern "C" fn device(to: *mut c_int, index: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *to = index + 40 };
    if index == 1 { 0 } else { 101 }
}

extern "C" fn attribute_of(to: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    assert_eq!(device, 41);
    let value = match attribute {
        attribute::WARP_SIZE => 32,
        attribute::MULTIPROCESSOR_COUNT => 132,
        attribute::MAX_SHARED_MEMORY_PER_BLOCK => 49152,
        attribute::MAX_THREADS_PER_BLOCK => 1024,
        attribute::COMPUTE_CAPABILITY_MAJOR => 9,
        attribute::COMPUTE_CAPABILITY_MINOR => 0,
        attribute::UNIFIED_ADDRESSING => 1,
        attribute::PCI_BUS_ID => 0x43,
        _ => return 1,
    };
    // SAFETY: as above.
    unsafe { *to = value };
    0
}

extern "C" fn name(to: *mut c_char, room: c_int, _device: c_int) -> c_int {
    assert!(room >= 5);
    // SAFETY: the provider passes a buffer of `room` bytes.
    unsafe { to.copy_from_nonoverlapping(c"H200".as_ptr(), 5) };
    0
}

extern "C" fn total(to: *mut usize, _device: c_int) -> c_int {
    // SAFETY: the provider passes the address of a size.
    unsafe { *to = 141 << 30 };
    0
}

extern "C" fn retain(to: *mut Handle, device: c_int) -> c_int {
    assert_eq!(device, 41);
    CONTEXTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the provider passes the address of a handle.
    unsafe { *to = 0xc as Handle };
    0
}

extern "C" fn release(device: c_int) -> c_int {
    assert_eq!(device, 41);
    CONTEXTS.fetch_sub(1, Ordering::Relaxed);
    0
}

extern "C" fn set_current(context: Handle) -> c_int {
    c_int::from(context as usize != 0xc)
}

extern "C" fn query(event: Handle) -> c_int {
    [0, 600, 700][event as usize]
}

extern "C" fn load(
    to: *mut Handle,
    image: *const c_void,
    count: c_uint,
    names: *mut c_int,
    values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the provider passes a C string, two options and two values: the first is a buffer, the second
    // its size in bytes.
    unsafe {
        let text = CStr::from_ptr(image.cast()).to_str().unwrap();
        assert_eq!((count, *names, *names.add(1)), (2, symbols::JIT_ERROR_LOG, symbols::JIT_ERROR_LOG_BYTES));
        assert_eq!(*values.add(1) as usize, LOG_BYTES);
        if text == "good" {
            *to = 0xb as Handle;
            return 0;
        }
        let said = c"ptxas application ptx input, line 1; fatal: Missing .version";
        (*values).cast::<c_char>().copy_from_nonoverlapping(said.as_ptr(), said.to_bytes_with_nul().len());
    }
    218
}

/// Number of loaded libraries.
static LIBRARIES: AtomicI32 = AtomicI32::new(0);

extern "C" fn load_library(
    to: *mut Handle,
    image: *const c_void,
    names: *mut c_int,
    _values: *mut *mut c_void,
    count: c_uint,
    _library_names: *mut c_int,
    _library_values: *mut *mut c_void,
    library_count: c_uint,
) -> c_int {
    assert!(names.is_null() && (count, library_count) == (0, 0));
    // SAFETY: the provider passes the address of a handle and a C string.
    unsafe {
        *to = match CStr::from_ptr(image.cast()).to_bytes() {
            b"good" => 0xd as Handle,
            b"no module" => 0xe as Handle,
            _ => return 218,
        }
    };
    LIBRARIES.fetch_add(1, Ordering::Relaxed);
    0
}

extern "C" fn module_of(to: *mut Handle, library: Handle) -> c_int {
    // SAFETY: the provider passes the address of a handle.
    unsafe { *to = 0xb as Handle };
    if library as usize == 0xd { 0 } else { 200 }
}

extern "C" fn unload_library(_library: Handle) -> c_int {
    LIBRARIES.fetch_sub(1, Ordering::Relaxed);
    0
}

extern "C" fn error_name(code: c_int, to: *mut *const c_char) -> c_int {
    let name = match code {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        218 => c"CUDA_ERROR_INVALID_PTX",
        _ => return 1,
    };
    // SAFETY: the provider passes the address of a pointer.
    unsafe { *to = name.as_ptr() };
    0
}

extern "C" fn unused() -> c_int {
    801
}

fn provider() -> Nvidia {
    let address = |name: &CStr| -> *mut c_void {
        match name.to_bytes() {
            b"cuDriverGetVersion" => version as *mut c_void,
            b"cuDeviceGet" => device as *mut c_void,
            b"cuDeviceGetAttribute" => attribute_of as *mut c_void,
            b"cuDeviceGetName" => self::name as *mut c_void,
            b"cuDeviceTotalMem_v2" => total as *mut c_void,
            b"cuDevicePrimaryCtxRetain" => retain as *mut c_void,
            b"cuDevicePrimaryCtxRelease_v2" => release as *mut c_void,
            b"cuCtxSetCurrent" => set_current as *mut c_void,
            b"cuEventQuery" => query as *mut c_void,
            b"cuModuleLoadDataEx" => load as *mut c_void,
            b"cuLibraryLoadData" => load_library as *mut c_void,
            b"cuLibraryGetModule" => module_of as *mut c_void,
            b"cuLibraryUnload" => unload_library as *mut c_void,
            b"cuGetErrorName" => error_name as *mut c_void,
            name if REQUIRED.iter().any(|r| r.as_bytes() == name) => unused as *mut c_void,
            _ => null_mut(),
        }
    };
    // SAFETY: the functions have the signatures of their names; `unused` ignores its arguments, which C's
    // calling conventions allow on the systems that libcuda is loaded on.
    let symbols = unsafe { Symbols::resolve(address) }.unwrap();
    Nvidia::new(symbols, "/x/libcuda.so.1".into(), "test".into())
}

#[test]
fn the_device_is_described() {
    let nvidia = provider();
    assert!(nvidia.versions().contains(&("cuda driver".into(), "12.8".into())));
    let p = nvidia.properties(1).unwrap();
    assert_eq!((p.name.as_str(), p.arch.as_str(), p.memory), ("H200", "sm_90", 141 << 30));
    assert_eq!((p.wave, p.compute_units, p.lds_bytes, p.pci), (32, 132, 49152, [0, 0x43, 0]));
    assert_eq!((p.uuid, p.clock_khz), (None, 0), "what is not known is left out");
    assert_eq!(nvidia.properties(0), Err(101));
}

#[test]
fn contexts_are_given_back() {
    let _alone = lock(&ALONE);
    let nvidia = provider();
    nvidia.attach(1).unwrap();
    nvidia.attach(1).unwrap();
    assert_eq!(CONTEXTS.load(Ordering::Relaxed), 1);
    drop(nvidia);
    assert_eq!(CONTEXTS.load(Ordering::Relaxed), 0);
}

/// Codes are CUDA's, with CUDA's names, and the compiler's log is part of the one error that it belongs to.
#[test]
fn codes_and_the_compilers_log() {
    let nvidia = provider();
    // SAFETY: handles of the functions above are small integers.
    let complete = |event| unsafe { nvidia.complete(Event(event)) };
    assert_eq!((complete(0), complete(1), complete(2)), (Ok(true), Ok(false), Err(700)));
    assert_eq!(nvidia.error_name(2).as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(nvidia.error_name(123_456), None);
    let describe = |code| crate::driver::codes::describe(&nvidia, code);
    assert_eq!(
        describe(700),
        "hipErrorIllegalAddress (700)",
        "a name of the same number where there is none"
    );
    // SAFETY: the function above reads the text only.
    let module = |text: &[u8]| unsafe { nvidia.load_module(text) };
    assert_eq!(module(b"good"), Ok(Module(0xb)));
    assert_eq!(module(b"bad"), Err(218));
    assert_eq!(describe(2), "CUDA_ERROR_OUT_OF_MEMORY (2)");
    let said = "CUDA_ERROR_INVALID_PTX: ptxas application ptx input, line 1; fatal: Missing .version (218)";
    assert_eq!(describe(218), said);
    assert_eq!(describe(218), "CUDA_ERROR_INVALID_PTX (218)", "said once");
    assert_eq!(module(b"go\0od"), Err(200), "text ends at a zero byte");
}

/// Any thread may load a library.
#[test]
fn libraries_are_loaded_on_any_thread() {
    let _alone = lock(&ALONE);
    let nvidia = provider();
    assert!(nvidia.has_libraries());
    assert_eq!(nvidia.load_library(b"good"), None, "no device is attached");
    nvidia.attach(1).unwrap();
    let of_thread = |text: &'static [u8]| {
        std::thread::scope(|threads| threads.spawn(|| nvidia.load_library(text)).join().unwrap())
    };
    assert_eq!(of_thread(b"good"), Some((Library(0xd), Module(0xb))));
    assert_eq!([of_thread(b"bad"), of_thread(b"go\0od"), of_thread(b"no module")], [None; 3]);
    assert_eq!(LIBRARIES.load(Ordering::Relaxed), 1);
    // SAFETY: the library was loaded above.
    unsafe { nvidia.unload_library(Library(0xd)) }.unwrap();
    assert_eq!(LIBRARIES.load(Ordering::Relaxed), 0);
}
