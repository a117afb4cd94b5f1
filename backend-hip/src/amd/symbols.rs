//! The table of HIP functions: the only place that declares them.
//!
//! Signatures are those of `hip_runtime_api.h`, with every enum as the integer that it is in C (a code that these
//! bindings do not know must not be undefined behaviour) and every handle as a pointer. They are the same from HIP 5.0
//! on. The crate's feature `check-bindings` compares them with the types of hip-runtime-sys.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A handle.
pub(crate) type Handle = *mut c_void;

macro_rules! symbols {
    (required { $($(#[$rdoc:meta])* $required:ident: fn($($rarg:ty),*);)* }
     optional { $($(#[$odoc:meta])* $optional:ident: fn($($oarg:ty),*);)* }) => {
        /// Addresses of the functions in a loaded library, which stays loaded.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Symbols {
            $($(#[$rdoc])* pub(crate) $required: unsafe extern "C" fn($($rarg),*) -> c_int,)*
            $($(#[$odoc])* pub(crate) $optional: Option<unsafe extern "C" fn($($oarg),*) -> c_int>,)*
            /// Name of a code. The only function that gives no code.
            pub(crate) hipGetErrorName: unsafe extern "C" fn(c_int) -> *const c_char,
        }

        /// Functions without which nothing works; all are in every release from 5.0 on.
        pub const REQUIRED: &[&str] = &[$(stringify!($required),)* "hipGetErrorName"];

        /// Functions that a release may lack, each with a way around it.
        pub const OPTIONAL: &[&str] = &[$(stringify!($optional)),*];

        impl Symbols {
            /// Fills the table. The error lists the required functions that are missing.
            ///
            /// # Safety
            /// `lookup` must give null or the address of the HIP function of that name, valid for the rest of the
            /// process.
            pub(crate) unsafe fn resolve(
                mut lookup: impl FnMut(&CStr) -> *mut c_void,
            ) -> Result<Symbols, Vec<&'static str>> {
                let mut missing = Vec::new();
                let mut find = |name: &'static CStr, required: bool| {
                    let address = lookup(name);
                    if address.is_null() && required {
                        missing.push(name.to_str().unwrap_or_default());
                    }
                    address
                };
                $(let $required = find(name_of(concat!(stringify!($required), "\0")), true);)*
                $(let $optional = find(name_of(concat!(stringify!($optional), "\0")), false);)*
                let error_name = find(c"hipGetErrorName", true);
                if !missing.is_empty() {
                    return Err(missing);
                }
                // SAFETY: an address is that of the function of its name (the caller's promise), which has the
                // declared signature in every release; an `Option` of a function pointer has the pointer's layout
                // with null as `None`, and the required ones were seen not to be null.
                unsafe {
                    Ok(Symbols {
                        $($required: std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($rarg),*) -> c_int>(
                            $required),)*
                        $($optional: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($oarg),*) -> c_int>>($optional),)*
                        hipGetErrorName: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn(c_int) -> *const c_char>(error_name),
                    })
                }
            }
        }
    };
}

/// A literal that ends in a zero byte.
fn name_of(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

symbols! {
    required {
        /// Flags, which must be 0.
        hipInit: fn(c_uint);
        /// Version = major * 10^7 + minor * 10^5 + patch. Works without a device.
        hipRuntimeGetVersion: fn(*mut c_int);
        /// Number of devices.
        hipGetDeviceCount: fn(*mut c_int);
        /// Device of the calling thread.
        hipSetDevice: fn(c_int);
        /// Value, attribute, device.
        hipDeviceGetAttribute: fn(*mut c_int, c_int, c_int);
        /// Structure in the layout R0000 ([`super::properties`]), device.
        hipGetDeviceProperties: fn(*mut c_void, c_int);
        /// Free and all bytes.
        hipMemGetInfo: fn(*mut usize, *mut usize);
        /// Address, bytes.
        hipMalloc: fn(*mut *mut c_void, usize);
        /// Address.
        hipFree: fn(*mut c_void);
        /// Address, bytes, flags.
        hipHostMalloc: fn(*mut *mut c_void, usize, c_uint);
        /// Address.
        hipHostFree: fn(*mut c_void);
        /// Address, byte, bytes, stream.
        hipMemsetAsync: fn(*mut c_void, c_int, usize, Handle);
        /// To, from, bytes, kind, stream.
        hipMemcpyAsync: fn(*mut c_void, *const c_void, usize, c_int, Handle);
        /// Stream, flags.
        hipStreamCreateWithFlags: fn(*mut Handle, c_uint);
        /// Stream.
        hipStreamDestroy: fn(Handle);
        /// Event, flags.
        hipEventCreateWithFlags: fn(*mut Handle, c_uint);
        /// Event.
        hipEventDestroy: fn(Handle);
        /// Event, stream.
        hipEventRecord: fn(Handle, Handle);
        /// Event. 600 while it is not complete.
        hipEventQuery: fn(Handle);
        /// Module, image. The image tells its own length.
        hipModuleLoadData: fn(*mut Handle, *const c_void);
        /// Module.
        hipModuleUnload: fn(Handle);
        /// Function, module, name.
        hipModuleGetFunction: fn(*mut Handle, Handle, *const c_char);
        /// Function, grid in blocks, block, dynamic LDS, stream, pointers to arguments, extra (null).
        hipModuleLaunchKernel: fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        );
    }
    optional {
        /// As `hipGetDeviceProperties`, in the layout R0600; from 6.0.
        hipGetDevicePropertiesR0600: fn(*mut c_void, c_int);
        /// Version of the kernel driver's interface; the runtime's version in fact.
        hipDriverGetVersion: fn(*mut c_int);
        /// 16 bytes, device. Older layouts of the properties have no UUID.
        hipDeviceGetUuid: fn(*mut c_void, c_int);
        /// Milliseconds, from, to.
        hipEventElapsedTime: fn(*mut f32, Handle, Handle);
    }
}

/// `hipHostMallocDefault`: pinned, mapped, coherent.
pub const HOST_MALLOC_DEFAULT: c_uint = 0;
/// `hipStreamNonBlocking`: the stream does not wait for the NULL stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipEventDefault`.
pub const EVENT_DEFAULT: c_uint = 0;
/// `hipEventDisableTiming`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
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

    /// A library without some functions: the required ones are named, the others are `None`.
    #[test]
    fn missing_functions_are_named() {
        let mut asked = Vec::new();
        // SAFETY: nothing is called, so an address only has to be null or not.
        let found = unsafe {
            Symbols::resolve(|name| {
                asked.push(name.to_str().unwrap().to_string());
                if name.to_bytes().ends_with(b"R0600") { std::ptr::null_mut() } else { 8 as *mut c_void }
            })
        };
        let symbols = found.unwrap();
        assert!(symbols.hipGetDevicePropertiesR0600.is_none() && symbols.hipEventElapsedTime.is_some());
        let all: Vec<&str> = REQUIRED[..REQUIRED.len() - 1].iter().chain(OPTIONAL).copied().collect();
        assert_eq!(asked[..asked.len() - 1], all);
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
}
