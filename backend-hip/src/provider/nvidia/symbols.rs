//! Table of CUDA driver functions: the only place that declares them.
//!
//! Signatures are those of `cuda.h` of CUDA 11 and later, with every enum as its C integer and every handle
//! as a pointer. `CUdeviceptr` is an integer, `CUdevice` an `int`. A suffix `_v2` is part of the exported
//! name: headers add it.

use crate::provider::external::{BufferDescription, HandleDescription};
use crate::provider::ffi::Handle;
use crate::sys::table::function_table;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

function_table! {
    /// Addresses of the functions in a loaded library, which stays loaded.
    Symbols {
    required {
        /// Flags, which must be 0.
        cuInit: fn(c_uint) -> c_int;
        /// Version = major * 1000 + minor * 10. Works without a device.
        cuDriverGetVersion: fn(*mut c_int) -> c_int;
        /// Number of devices.
        cuDeviceGetCount: fn(*mut c_int) -> c_int;
        /// Device, index.
        cuDeviceGet: fn(*mut c_int, c_int) -> c_int;
        /// Text, its size, device.
        cuDeviceGetName: fn(*mut c_char, c_int, c_int) -> c_int;
        /// Bytes, device.
        cuDeviceTotalMem_v2: fn(*mut usize, c_int) -> c_int;
        /// Value, attribute, device.
        cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> c_int;
        /// Context, device.
        cuDevicePrimaryCtxRetain: fn(*mut Handle, c_int) -> c_int;
        /// Device.
        cuDevicePrimaryCtxRelease_v2: fn(c_int) -> c_int;
        /// Context of the calling thread.
        cuCtxSetCurrent: fn(Handle) -> c_int;
        /// Free and total bytes.
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> c_int;
        /// Address, bytes.
        cuMemAlloc_v2: fn(*mut u64, usize) -> c_int;
        /// Address.
        cuMemFree_v2: fn(u64) -> c_int;
        /// Address, bytes, flags.
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> c_int;
        /// Address.
        cuMemFreeHost: fn(*mut c_void) -> c_int;
        /// Address, byte, bytes, stream.
        cuMemsetD8Async: fn(u64, c_uchar, usize, Handle) -> c_int;
        /// To, from, bytes, stream. The driver determines the side of each address.
        cuMemcpyAsync: fn(u64, u64, usize, Handle) -> c_int;
        /// Stream, flags.
        cuStreamCreate: fn(*mut Handle, c_uint) -> c_int;
        /// Stream.
        cuStreamDestroy_v2: fn(Handle) -> c_int;
        /// Event, flags.
        cuEventCreate: fn(*mut Handle, c_uint) -> c_int;
        /// Event.
        cuEventDestroy_v2: fn(Handle) -> c_int;
        /// Event, stream.
        cuEventRecord: fn(Handle, Handle) -> c_int;
        /// Event. Returns 600 while it is not complete.
        cuEventQuery: fn(Handle) -> c_int;
        /// Module, image, number of options, options, their values.
        cuModuleLoadDataEx: fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> c_int;
        /// Module.
        cuModuleUnload: fn(Handle) -> c_int;
        /// Function, module, name.
        cuModuleGetFunction: fn(*mut Handle, Handle, *const c_char) -> c_int;
        /// Function, grid in blocks, block, dynamic shared memory, stream, argument pointers, extra (null).
        cuLaunchKernel: fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> c_int;
        /// Code, its name.
        cuGetErrorName: fn(c_int, *mut *const c_char) -> c_int;
    }
    optional {
        /// 16 bytes, device; distinguishes the instances of a partitioned device.
        cuDeviceGetUuid_v2: fn(*mut c_void, c_int) -> c_int;
        /// 16 bytes, device.
        cuDeviceGetUuid: fn(*mut c_void, c_int) -> c_int;
        /// Function, attribute, value. CUDA 9.
        cuFuncSetAttribute: fn(Handle, c_int, c_int) -> c_int;
        /// Library, image; options of the compiler, their values, their number; options of the library, their values,
        /// their number. CUDA 12, as the next two; any thread may load one.
        cuLibraryLoadData: fn(
            *mut Handle, *const c_void, *mut c_int, *mut *mut c_void, c_uint, *mut c_int, *mut *mut c_void, c_uint
        ) -> c_int;
        /// Module in the calling thread's context, library.
        cuLibraryGetModule: fn(*mut Handle, Handle) -> c_int;
        /// Library.
        cuLibraryUnload: fn(Handle) -> c_int;
        /// Milliseconds, from, to.
        cuEventElapsedTime: fn(*mut f32, Handle, Handle) -> c_int;
        /// Memory, its description. CUDA 10, as the next two.
        cuImportExternalMemory: fn(*mut Handle, *const HandleDescription) -> c_int;
        /// Address, memory, description of the range.
        cuExternalMemoryGetMappedBuffer: fn(*mut *mut c_void, Handle, *const BufferDescription) -> c_int;
        /// Memory.
        cuDestroyExternalMemory: fn(Handle) -> c_int;
        /// Stream, event, flags.
        cuStreamWaitEvent: fn(Handle, Handle, c_uint) -> c_int;
        /// Stream, mode. This function and those up to `cuGraphDestroy` serve graphs of launches.
        cuStreamBeginCapture_v2: fn(Handle, c_int) -> c_int;
        /// Stream, graph.
        cuStreamEndCapture: fn(Handle, *mut Handle) -> c_int;
        /// Executable graph, graph, flags.
        cuGraphInstantiateWithFlags: fn(*mut Handle, Handle, u64) -> c_int;
        /// Executable graph, stream.
        cuGraphLaunch: fn(Handle, Handle) -> c_int;
        /// Executable graph.
        cuGraphExecDestroy: fn(Handle) -> c_int;
        /// Graph.
        cuGraphDestroy: fn(Handle) -> c_int;
    }
    }
}

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
pub const HOST_ALLOC: c_uint = 1 | 2;
/// `CU_JIT_ERROR_LOG_BUFFER`.
pub const JIT_ERROR_LOG: c_int = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
pub const JIT_ERROR_LOG_BYTES: c_int = 6;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const MAX_DYNAMIC_SHARED: c_int = 8;

/// `CUdevice_attribute`.
pub mod attribute {
    #![allow(missing_docs)]
    use std::ffi::c_int;

    pub const MAX_THREADS_PER_BLOCK: c_int = 1;
    pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
    pub const WARP_SIZE: c_int = 10;
    pub const CLOCK_RATE: c_int = 13;
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    pub const INTEGRATED: c_int = 18;
    pub const PCI_BUS_ID: c_int = 33;
    pub const PCI_DEVICE_ID: c_int = 34;
    pub const MEMORY_CLOCK_RATE: c_int = 36;
    pub const MEMORY_BUS_WIDTH: c_int = 37;
    pub const L2_CACHE_SIZE: c_int = 38;
    pub const UNIFIED_ADDRESSING: c_int = 41;
    pub const PCI_DOMAIN_ID: c_int = 50;
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
}
