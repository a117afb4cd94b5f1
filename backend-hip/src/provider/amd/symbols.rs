//! Table of HIP functions: the only place that declares them.
//!
//! Signatures are those of `hip_runtime_api.h`, with every enum as its C integer (an unknown code must not be
//! undefined behaviour) and every handle as a pointer. They are the same from HIP 5.0 on. A test
//! (`bindings.rs`) compares them with the types of hip-runtime-sys.

use crate::provider::external::{BufferDescription, HandleDescription};
use crate::provider::ffi::Handle;
use crate::sys::table::function_table;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

function_table! {
    /// Addresses of the functions in a loaded library, which stays loaded.
    Symbols {
    required {
        /// Flags, which must be 0.
        hipInit: fn(c_uint) -> c_int;
        /// Version = major * 10^7 + minor * 10^5 + patch. Works without a device.
        hipRuntimeGetVersion: fn(*mut c_int) -> c_int;
        /// Number of devices.
        hipGetDeviceCount: fn(*mut c_int) -> c_int;
        /// Device of the calling thread.
        hipSetDevice: fn(c_int) -> c_int;
        /// Value, attribute, device.
        hipDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> c_int;
        /// Free and total bytes.
        hipMemGetInfo: fn(*mut usize, *mut usize) -> c_int;
        /// Address, bytes.
        hipMalloc: fn(*mut *mut c_void, usize) -> c_int;
        /// Address.
        hipFree: fn(*mut c_void) -> c_int;
        /// Address, bytes, flags.
        hipHostMalloc: fn(*mut *mut c_void, usize, c_uint) -> c_int;
        /// Address.
        hipHostFree: fn(*mut c_void) -> c_int;
        /// Address, byte, bytes, stream.
        hipMemsetAsync: fn(*mut c_void, c_int, usize, Handle) -> c_int;
        /// To, from, bytes, kind, stream.
        hipMemcpyAsync: fn(*mut c_void, *const c_void, usize, c_int, Handle) -> c_int;
        /// Stream, flags.
        hipStreamCreateWithFlags: fn(*mut Handle, c_uint) -> c_int;
        /// Stream.
        hipStreamDestroy: fn(Handle) -> c_int;
        /// Event, flags.
        hipEventCreateWithFlags: fn(*mut Handle, c_uint) -> c_int;
        /// Event.
        hipEventDestroy: fn(Handle) -> c_int;
        /// Event, stream.
        hipEventRecord: fn(Handle, Handle) -> c_int;
        /// Event. Returns 600 while it is not complete.
        hipEventQuery: fn(Handle) -> c_int;
        /// Module, image. The image contains its own length.
        hipModuleLoadData: fn(*mut Handle, *const c_void) -> c_int;
        /// Module.
        hipModuleUnload: fn(Handle) -> c_int;
        /// Function, module, name.
        hipModuleGetFunction: fn(*mut Handle, Handle, *const c_char) -> c_int;
        /// Function, grid in blocks, block, dynamic LDS, stream, pointers to arguments, extra (null).
        hipModuleLaunchKernel: fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> c_int;
        /// Name of a code.
        hipGetErrorName: fn(c_int) -> *const c_char;
    }
    optional {
        /// Structure in the layout R0000 ([`super::properties`]), device. One of this and the next is required.
        hipGetDeviceProperties: fn(*mut c_void, c_int) -> c_int;
        /// As `hipGetDeviceProperties`, in the layout R0600; from 6.0.
        hipGetDevicePropertiesR0600: fn(*mut c_void, c_int) -> c_int;
        /// Flags of the current device.
        hipSetDeviceFlags: fn(c_uint) -> c_int;
        /// Version of the kernel driver's interface; actually the runtime's version.
        hipDriverGetVersion: fn(*mut c_int) -> c_int;
        /// 16 bytes, device. Older layouts of the properties have no UUID.
        hipDeviceGetUuid: fn(*mut c_void, c_int) -> c_int;
        /// Milliseconds, from, to.
        hipEventElapsedTime: fn(*mut f32, Handle, Handle) -> c_int;
        /// Memory, its description.
        hipImportExternalMemory: fn(*mut Handle, *const HandleDescription) -> c_int;
        /// Address, memory, description of the range.
        hipExternalMemoryGetMappedBuffer: fn(*mut *mut c_void, Handle, *const BufferDescription) -> c_int;
        /// Memory.
        hipDestroyExternalMemory: fn(Handle) -> c_int;
        /// Stream, event, flags.
        hipStreamWaitEvent: fn(Handle, Handle, c_uint) -> c_int;
        /// Stream, mode. This function and those up to `hipGraphDestroy` serve graphs of launches.
        hipStreamBeginCapture: fn(Handle, c_int) -> c_int;
        /// Stream, graph.
        hipStreamEndCapture: fn(Handle, *mut Handle) -> c_int;
        /// Executable graph, graph, flags.
        hipGraphInstantiateWithFlags: fn(*mut Handle, Handle, u64) -> c_int;
        /// Executable graph, stream.
        hipGraphLaunch: fn(Handle, Handle) -> c_int;
        /// Executable graph.
        hipGraphExecDestroy: fn(Handle) -> c_int;
        /// Graph.
        hipGraphDestroy: fn(Handle) -> c_int;
    }
    }
}

/// Functions with a second name for the same signature and meaning. Headers of late releases prefer the second
/// name, so a release may export that one only.
const SECOND_NAMES: [(&CStr, &CStr); 2] =
    [(c"hipHostMalloc", c"hipHostAlloc"), (c"hipHostFree", c"hipFreeHost")];

impl Symbols {
    /// Fills the table from a runtime of any release. The error lists the required functions that are missing
    /// under each of their names.
    ///
    /// # Safety
    /// As [`Symbols::resolve`].
    pub(crate) unsafe fn find(
        mut lookup: impl FnMut(&CStr) -> *mut c_void,
    ) -> Result<Symbols, Vec<&'static str>> {
        let either = |name: &CStr| {
            let second = SECOND_NAMES.iter().find(|(first, _)| *first == name);
            match (lookup(name), second) {
                (address, Some((_, second))) if address.is_null() => lookup(second),
                (address, _) => address,
            }
        };
        // SAFETY: the functions of a pair have the same signature; the caller guarantees the rest.
        let symbols = unsafe { Symbols::resolve(either) }?;
        match (symbols.hipGetDeviceProperties, symbols.hipGetDevicePropertiesR0600) {
            (None, None) => Err(vec!["hipGetDeviceProperties"]),
            _ => Ok(symbols),
        }
    }
}

/// `hipHostMallocDefault`: pinned, mapped, coherent.
pub const HOST_MALLOC_DEFAULT: c_uint = 0;
/// `hipHostMallocNonCoherent`: pinned, mapped, and kept by the device's caches within a kernel.
pub const HOST_MALLOC_NON_COHERENT: c_uint = 0x8000_0000;
/// `hipDeviceScheduleBlockingSync`: calls that wait for the device block instead of polling.
pub const DEVICE_BLOCKING_SYNC: c_uint = 4;
/// `hipMemcpyHostToHost`.
pub const COPY_HOST_TO_HOST: c_int = 0;
/// `hipMemcpyHostToDevice`.
pub const COPY_HOST_TO_DEVICE: c_int = 1;
/// `hipMemcpyDeviceToHost`.
pub const COPY_DEVICE_TO_HOST: c_int = 2;
/// `hipMemcpyDeviceToDevice`.
pub const COPY_DEVICE_TO_DEVICE: c_int = 3;

/// `hipDeviceAttribute_t`. Values are stable from 5.0 on.
pub mod attribute {
    #![allow(missing_docs)]
    use std::ffi::c_int;

    pub const CLOCK_RATE: c_int = 5;
    pub const INTEGRATED: c_int = 16;
    pub const L2_CACHE_SIZE: c_int = 19;
    pub const MAX_THREADS_PER_BLOCK: c_int = 56;
    pub const MEMORY_BUS_WIDTH: c_int = 59;
    pub const MEMORY_CLOCK_RATE: c_int = 60;
    pub const MULTIPROCESSOR_COUNT: c_int = 63;
    pub const PCI_BUS_ID: c_int = 67;
    pub const PCI_DEVICE_ID: c_int = 68;
    pub const PCI_DOMAIN_ID: c_int = 69;
    pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 74;
    pub const WARP_SIZE: c_int = 87;
    pub const IS_LARGE_BAR: c_int = 10011;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With functions missing, the required ones are named and the optional ones are `None`.
    #[test]
    fn missing_functions_are_named() {
        let mut asked = Vec::new();
        // SAFETY: no function is called; only the nullness of the addresses matters.
        let found = unsafe {
            Symbols::resolve(|name| {
                asked.push(name.to_str().unwrap().to_string());
                if name.to_bytes().ends_with(b"R0600") { std::ptr::null_mut() } else { 8 as *mut c_void }
            })
        };
        let symbols = found.unwrap();
        assert!(symbols.hipGetDevicePropertiesR0600.is_none() && symbols.hipEventElapsedTime.is_some());
        let all: Vec<&str> = REQUIRED.iter().chain(OPTIONAL).copied().collect();
        assert_eq!(asked, all);
        // SAFETY: as above.
        let found = unsafe {
            Symbols::resolve(|name| {
                if [c"hipMalloc", c"hipEventQuery"].contains(&name) {
                    std::ptr::null_mut()
                } else {
                    8 as *mut c_void
                }
            })
        };
        assert_eq!(found.err().unwrap(), ["hipMalloc", "hipEventQuery"]);
    }

    /// A release without the older names of functions is used with the newer ones.
    #[test]
    fn second_names() {
        let without = |absent: &[&CStr]| {
            // SAFETY: no function is called; only the addresses matter.
            unsafe {
                Symbols::find(|name| match name.to_bytes() {
                    _ if absent.contains(&name) => std::ptr::null_mut(),
                    b"hipHostAlloc" => 16 as *mut c_void,
                    b"hipFreeHost" => 24 as *mut c_void,
                    _ => 8 as *mut c_void,
                })
            }
        };
        let symbols = without(&[c"hipHostMalloc", c"hipHostFree", c"hipGetDeviceProperties"]).unwrap();
        assert_eq!((symbols.hipHostMalloc as usize, symbols.hipHostFree as usize), (16, 24));
        assert!(symbols.hipGetDeviceProperties.is_none() && symbols.hipGetDevicePropertiesR0600.is_some());
        let symbols = without(&[c"hipGetDevicePropertiesR0600"]).unwrap();
        assert_eq!((symbols.hipHostMalloc as usize, symbols.hipHostFree as usize), (8, 8));
        let none = without(&[c"hipHostMalloc", c"hipHostAlloc"]).unwrap_err();
        assert_eq!(none, ["hipHostMalloc"]);
        let none = without(&[c"hipGetDeviceProperties", c"hipGetDevicePropertiesR0600"]).unwrap_err();
        assert_eq!(none, ["hipGetDeviceProperties"]);
    }
}
