//! Comparison of this crate's declarations with those of hip-runtime-sys (generated from the headers of HIP
//! 5.4). Nothing is called or linked: only types and constants are compared.

use super::properties::R0000;
use super::symbols::{self, Symbols, attribute};
use crate::driver::codes::CODES;
use crate::provider::ffi;
use hip_runtime_sys as hip;
use std::mem::{offset_of, size_of};

/// Sizes of a function's arguments and, last, of its result.
trait Signature {
    fn sizes() -> Vec<usize>;
}

macro_rules! signatures {
    ($($arg:ident)*) => {
        impl<R, $($arg),*> Signature for unsafe extern "C" fn($($arg),*) -> R {
            fn sizes() -> Vec<usize> {
                vec![$(size_of::<$arg>(),)* size_of::<R>()]
            }
        }
    };
}

signatures!(A);
signatures!(A B);
signatures!(A B C);
signatures!(A B C D);
signatures!(A B C D E);
signatures!(A B C D E F G H I J K);

/// Returns the signature of a function's result; the function is not called.
fn of<T, F: Signature>(_: impl Fn(T) -> F) -> Vec<usize> {
    F::sizes()
}

macro_rules! compare {
    ($($name:ident($($any:tt)*);)*) => {
        $(assert_eq!(
            of(|s: &Symbols| s.$name),
            of(|_: ()| hip::$name as unsafe extern "C" fn($($any)*) -> _),
            stringify!($name)
        );)*
    };
}

#[test]
fn functions_have_the_same_arguments() {
    compare! {
        hipInit(_);
        hipRuntimeGetVersion(_);
        hipGetDeviceCount(_);
        hipSetDevice(_);
        hipDeviceGetAttribute(_, _, _);
        hipMemGetInfo(_, _);
        hipMalloc(_, _);
        hipFree(_);
        hipHostMalloc(_, _, _);
        hipHostFree(_);
        hipMemsetAsync(_, _, _, _);
        hipMemcpyAsync(_, _, _, _, _);
        hipStreamCreateWithFlags(_, _);
        hipStreamDestroy(_);
        hipEventCreateWithFlags(_, _);
        hipEventDestroy(_);
        hipEventRecord(_, _);
        hipEventQuery(_);
        hipModuleLoadData(_, _);
        hipModuleUnload(_);
        hipModuleGetFunction(_, _, _);
        hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
        hipGetErrorName(_);
    }
    let optional = [
        (
            of(|s: &Symbols| s.hipImportExternalMemory.unwrap()),
            of(|_: ()| hip::hipImportExternalMemory as unsafe extern "C" fn(_, _) -> _),
        ),
        (
            of(|s: &Symbols| s.hipExternalMemoryGetMappedBuffer.unwrap()),
            of(|_: ()| hip::hipExternalMemoryGetMappedBuffer as unsafe extern "C" fn(_, _, _) -> _),
        ),
        (
            of(|s: &Symbols| s.hipDestroyExternalMemory.unwrap()),
            of(|_: ()| hip::hipDestroyExternalMemory as unsafe extern "C" fn(_) -> _),
        ),
        (
            of(|s: &Symbols| s.hipGetDeviceProperties.unwrap()),
            of(|_: ()| hip::hipGetDeviceProperties as unsafe extern "C" fn(_, _) -> _),
        ),
        (
            of(|s: &Symbols| s.hipSetDeviceFlags.unwrap()),
            of(|_: ()| hip::hipSetDeviceFlags as unsafe extern "C" fn(_) -> _),
        ),
        (
            of(|s: &Symbols| s.hipDriverGetVersion.unwrap()),
            of(|_: ()| hip::hipDriverGetVersion as unsafe extern "C" fn(_) -> _),
        ),
        (
            of(|s: &Symbols| s.hipDeviceGetUuid.unwrap()),
            of(|_: ()| hip::hipDeviceGetUuid as unsafe extern "C" fn(_, _) -> _),
        ),
        (
            of(|s: &Symbols| s.hipEventElapsedTime.unwrap()),
            of(|_: ()| hip::hipEventElapsedTime as unsafe extern "C" fn(_, _, _) -> _),
        ),
    ];
    for (ours, theirs) in optional {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn constants_are_the_same() {
    use hip::hipDeviceAttribute_t as a;
    for (ours, theirs) in [
        (attribute::CLOCK_RATE, a::hipDeviceAttributeClockRate),
        (attribute::INTEGRATED, a::hipDeviceAttributeIntegrated),
        (attribute::L2_CACHE_SIZE, a::hipDeviceAttributeL2CacheSize),
        (attribute::MAX_THREADS_PER_BLOCK, a::hipDeviceAttributeMaxThreadsPerBlock),
        (attribute::MEMORY_BUS_WIDTH, a::hipDeviceAttributeMemoryBusWidth),
        (attribute::MEMORY_CLOCK_RATE, a::hipDeviceAttributeMemoryClockRate),
        (attribute::MULTIPROCESSOR_COUNT, a::hipDeviceAttributeMultiprocessorCount),
        (attribute::PCI_BUS_ID, a::hipDeviceAttributePciBusId),
        (attribute::PCI_DEVICE_ID, a::hipDeviceAttributePciDeviceId),
        (attribute::PCI_DOMAIN_ID, a::hipDeviceAttributePciDomainID),
        (attribute::MAX_SHARED_MEMORY_PER_BLOCK, a::hipDeviceAttributeMaxSharedMemoryPerBlock),
        (attribute::WARP_SIZE, a::hipDeviceAttributeWarpSize),
        (attribute::IS_LARGE_BAR, a::hipDeviceAttributeIsLargeBar),
    ] {
        assert_eq!(ours, theirs as i32, "{theirs:?}");
    }
    use hip::hipMemcpyKind as k;
    for (ours, theirs) in [
        (symbols::COPY_HOST_TO_HOST, k::hipMemcpyHostToHost),
        (symbols::COPY_HOST_TO_DEVICE, k::hipMemcpyHostToDevice),
        (symbols::COPY_DEVICE_TO_HOST, k::hipMemcpyDeviceToHost),
        (symbols::COPY_DEVICE_TO_DEVICE, k::hipMemcpyDeviceToDevice),
    ] {
        assert_eq!(ours, theirs as i32, "{theirs:?}");
    }
    assert_eq!(symbols::HOST_MALLOC_DEFAULT, hip::hipHostMallocDefault);
    assert_eq!(symbols::HOST_MALLOC_NON_COHERENT, hip::hipHostMallocNonCoherent);
    assert_eq!(symbols::DEVICE_BLOCKING_SYNC, hip::hipDeviceScheduleBlockingSync);
    assert_eq!(ffi::STREAM_NON_BLOCKING, hip::hipStreamNonBlocking);
    assert_eq!(ffi::EVENT_DEFAULT, hip::hipEventDefault);
    assert_eq!(ffi::EVENT_DISABLE_TIMING, hip::hipEventDisableTiming);
}

#[test]
fn structures_of_shared_memory_are_the_same() {
    use crate::provider::external::{BufferDescription as B, HandleDescription as H, OPAQUE_FD};
    type Handle = hip::hipExternalMemoryHandleDesc;
    type Buffer = hip::hipExternalMemoryBufferDesc;
    assert_eq!(OPAQUE_FD, hip::hipExternalMemoryHandleType::hipExternalMemoryHandleTypeOpaqueFd as i32);
    for (ours, theirs) in [
        (offset_of!(H, handle), offset_of!(Handle, handle)),
        (offset_of!(H, size), offset_of!(Handle, size)),
        (offset_of!(H, flags), offset_of!(Handle, flags)),
        (offset_of!(B, offset), offset_of!(Buffer, offset)),
        (offset_of!(B, size), offset_of!(Buffer, size)),
        (offset_of!(B, flags), offset_of!(Buffer, flags)),
    ] {
        assert_eq!(ours, theirs);
    }
    // Later releases appended reserved words, which earlier ones do not read.
    assert!(size_of::<H>() >= size_of::<Handle>() && size_of::<B>() >= size_of::<Buffer>());
}

#[test]
fn codes_have_the_same_names() {
    use hip::hipError_t as e;
    let theirs = [
        e::hipSuccess,
        e::hipErrorInvalidValue,
        e::hipErrorOutOfMemory,
        e::hipErrorNotInitialized,
        e::hipErrorDeinitialized,
        e::hipErrorInvalidConfiguration,
        e::hipErrorInvalidPitchValue,
        e::hipErrorInvalidSymbol,
        e::hipErrorInvalidDevicePointer,
        e::hipErrorInvalidMemcpyDirection,
        e::hipErrorInsufficientDriver,
        e::hipErrorInvalidDeviceFunction,
        e::hipErrorNoDevice,
        e::hipErrorInvalidDevice,
        e::hipErrorInvalidImage,
        e::hipErrorInvalidContext,
        e::hipErrorMapFailed,
        e::hipErrorNoBinaryForGpu,
        e::hipErrorECCNotCorrectable,
        e::hipErrorInvalidKernelFile,
        e::hipErrorFileNotFound,
        e::hipErrorSharedObjectSymbolNotFound,
        e::hipErrorSharedObjectInitFailed,
        e::hipErrorOperatingSystem,
        e::hipErrorInvalidHandle,
        e::hipErrorIllegalState,
        e::hipErrorNotFound,
        e::hipErrorNotReady,
        e::hipErrorIllegalAddress,
        e::hipErrorLaunchOutOfResources,
        e::hipErrorLaunchTimeOut,
        e::hipErrorContextIsDestroyed,
        e::hipErrorAssert,
        e::hipErrorHostMemoryAlreadyRegistered,
        e::hipErrorHostMemoryNotRegistered,
        e::hipErrorLaunchFailure,
        e::hipErrorCooperativeLaunchTooLarge,
        e::hipErrorNotSupported,
        e::hipErrorUnknown,
        e::hipErrorRuntimeMemory,
        e::hipErrorRuntimeOther,
    ];
    let theirs: Vec<(i32, String)> = theirs.iter().map(|e| (*e as i32, format!("{e:?}"))).collect();
    let ours: Vec<(i32, String)> = CODES.iter().map(|(code, name)| (*code, name.to_string())).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn the_layout_of_hip_5_is_the_same() {
    type P = hip::hipDeviceProp_t;
    assert_eq!(R0000.bytes, size_of::<P>());
    for (ours, theirs) in [
        (0, offset_of!(P, name)),
        (R0000.total_global_mem, offset_of!(P, totalGlobalMem)),
        (R0000.shared_mem_per_block, offset_of!(P, sharedMemPerBlock)),
        (R0000.warp_size, offset_of!(P, warpSize)),
        (R0000.max_threads_per_block, offset_of!(P, maxThreadsPerBlock)),
        (R0000.clock_rate, offset_of!(P, clockRate)),
        (R0000.memory_clock_rate, offset_of!(P, memoryClockRate)),
        (R0000.memory_bus_width, offset_of!(P, memoryBusWidth)),
        (R0000.multi_processor_count, offset_of!(P, multiProcessorCount)),
        (R0000.l2_cache_size, offset_of!(P, l2CacheSize)),
        (R0000.pci[0], offset_of!(P, pciDomainID)),
        (R0000.pci[1], offset_of!(P, pciBusID)),
        (R0000.pci[2], offset_of!(P, pciDeviceID)),
        (R0000.gcn_arch_name, offset_of!(P, gcnArchName)),
        (R0000.integrated, offset_of!(P, integrated)),
        (R0000.is_large_bar, offset_of!(P, isLargeBar)),
    ] {
        assert_eq!(ours, theirs);
    }
}
