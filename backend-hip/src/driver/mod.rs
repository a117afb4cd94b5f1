//! The HIP functions that this backend uses: a trait that a provider implements.
//!
//! The main provider is [`amd`](crate::provider::amd), which loads libamdhip64 at run time. The trait is
//! narrow on purpose, so that other providers can implement it: one that maps the calls to another vendor's
//! driver, or one that computes in this process.
//!
//! Results cross the boundary as integers ([`Code`]): a runtime may return a code that no current header
//! defines, which would be undefined behaviour as a Rust enum. Names of codes are in [`codes`].
//!
//! Addresses and handles are integers too. Only the session stores them and passes them back to the driver
//! that created them.

use ggml_core::backend::KernelCounts;
use ggml_core::exported::ExportedMemory;
use std::ptr::NonNull;

pub mod codes;

/// A `hipError_t`.
pub type Code = i32;

/// Result of a call, or its nonzero code.
pub type Reply<T> = Result<T, Code>;

/// Device address. Pinned host memory has the same address on the device.
pub type Address = u64;

/// Handle of a stream; 0 is the NULL stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u64);

/// Handle of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

/// Handle of a loaded code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module(pub u64);

/// Handle of a library: code that any thread may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library(pub u64);

/// Handle of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u64);

/// Handle of an executable graph of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchGraph(pub u64);

/// Handle of memory of the card's other driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External(pub u64);

/// Source and destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Pinned host memory to device memory.
    HostToDevice,
    /// Device memory to pinned host memory.
    DeviceToHost,
    /// Device memory to device memory.
    DeviceToDevice,
    /// Pinned host memory to pinned host memory.
    HostToHost,
}

/// Time at which the device sees what the host writes into pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Always. Caches of some devices do not keep such memory.
    Always,
    /// In kernels that are launched after the write.
    AtLaunches,
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of work-groups.
    pub grid: [u32; 3],
    /// Threads of a work-group.
    pub block: [u32; 3],
    /// Bytes of LDS in addition to those that the kernel declares.
    pub lds_bytes: u32,
}

/// Arguments of a kernel: bytes, and the offset of each argument.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// The argument segment.
    pub bytes: &'a [u8],
    /// Offset of each argument in order; the last argument extends to the end.
    pub offsets: &'a [u32],
    /// Memory that the kernel may access. A runtime does not know it; an emulated device holds a kernel to it.
    pub windows: &'a [Window],
}

/// Range of memory that a launch may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Address of the first byte.
    pub address: Address,
    /// Size in bytes.
    pub bytes: usize,
    /// True if the launch may write there.
    pub writable: bool,
}

/// Device properties that a runtime reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// Product name.
    pub name: String,
    /// Target with its modes ("gfx906:sramecc+:xnack-"), or "sm_90".
    pub arch: String,
    /// UUID.
    pub uuid: Option<[u8; 16]>,
    /// Bytes of device memory.
    pub memory: u64,
    /// Threads of a wavefront.
    pub wave: u32,
    /// LDS of one work-group in bytes.
    pub lds_bytes: u32,
    /// Maximum number of threads of a work-group.
    pub max_threads: u32,
    /// Number of compute units (work-group processors on RDNA).
    pub compute_units: u32,
    /// Engine clock in kHz.
    pub clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u32,
    /// True if device and host share one memory.
    pub integrated: bool,
    /// True if the host can access all device memory; `None` if the runtime does not report it.
    pub large_bar: Option<bool>,
    /// PCI domain, bus and device.
    pub pci: [u32; 3],
    /// Function that these values come from ("hipGetDevicePropertiesR0600").
    pub layout: &'static str,
}

/// Name in [`Driver::versions`] of a contradiction between a library's file name and the version that it reports.
pub(crate) const WRONG_LIBRARY: &str = "wrong library";

/// HIP implementation.
///
/// All calls come from one thread, the one that called [`Driver::attach`], except those of
/// [`Driver::load_library`]. A call may block forever, so callers with a deadline wait on another thread.
///
/// # Safety of calling
///
/// The methods that take handles or addresses are unsafe. Each handle or address must come from the same
/// driver and must not have been destroyed or freed, and each range must be within one allocation. Host
/// memory that is passed to a copy must stay valid until the copy is complete, which an event recorded after
/// it reports.
pub trait Driver: Send + Sync {
    /// Returns the name of the provider ("libamdhip64").
    fn name(&self) -> &str;

    /// Returns library path and versions, by name. Must work without a device.
    fn versions(&self) -> Vec<(String, String)>;

    /// Returns the path of the library of AMD's runtime, if it is one. Asking that for its version may initialise it.
    fn library(&self) -> Option<&std::path::Path> {
        None
    }

    /// Returns the major version of the runtime, if it has one.
    fn major(&self) -> Option<u32>;

    /// Returns the implementation's own name of a code.
    fn error_name(&self, code: Code) -> Option<String>;

    /// Returns the fatal event that the runtime reported asynchronously, if any. Called before every event
    /// query, so it must be cheap.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Returns counters of the executed kernels, if the device counts.
    fn counts(&self) -> Vec<KernelCounts> {
        Vec::new()
    }

    /// `hipInit`.
    fn init(&self) -> Reply<()>;

    /// `hipGetDeviceCount`.
    fn device_count(&self) -> Reply<u32>;

    /// `hipGetDeviceProperties` and `hipDeviceGetAttribute`.
    fn properties(&self, device: u32) -> Reply<Properties>;

    /// `hipSetDevice`: selects the device for every later call of this thread.
    fn attach(&self, device: u32) -> Reply<()>;

    /// `hipMemGetInfo`: free and total bytes.
    fn memory(&self) -> Reply<(u64, u64)>;

    /// `hipMalloc`. At least one byte.
    fn allocate(&self, bytes: usize) -> Reply<Address>;

    /// `hipFree`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn free(&self, address: Address) -> Reply<()>;

    /// `hipImportExternalMemory` and `hipExternalMemoryGetMappedBuffer`: maps all of an allocation that the card's other
    /// driver exported. Returns its address.
    fn import(&self, _memory: ExportedMemory) -> Reply<(External, Address)> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipDestroyExternalMemory`, after the end of the mapping.
    ///
    /// # Safety
    /// See [`Driver`]; handle and address are those of one call of [`Driver::import`].
    unsafe fn release(&self, _external: External, _address: Address) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipHostMalloc`: pinned host memory, not necessarily zeroed, valid at the same address on the device.
    fn allocate_host(&self, bytes: usize, coherence: Coherence) -> Reply<NonNull<u8>>;

    /// `hipHostFree`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn free_host(&self, address: NonNull<u8>) -> Reply<()>;

    /// `hipMemsetAsync`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Stream) -> Reply<()>;

    /// `hipMemcpyAsync`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        direction: Direction,
        stream: Stream,
    ) -> Reply<()>;

    /// `hipStreamCreateWithFlags(hipStreamNonBlocking)`.
    fn create_stream(&self) -> Reply<Stream>;

    /// `hipStreamDestroy`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn destroy_stream(&self, stream: Stream) -> Reply<()>;

    /// `hipEventCreateWithFlags`; without `timing` with `hipEventDisableTiming`.
    fn create_event(&self, timing: bool) -> Reply<Event>;

    /// `hipEventDestroy`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn destroy_event(&self, event: Event) -> Reply<()>;

    /// `hipEventRecord`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn record(&self, event: Event, stream: Stream) -> Reply<()>;

    /// `hipEventQuery`: true if everything before the last record is complete.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn complete(&self, event: Event) -> Reply<bool>;

    /// `hipEventElapsedTime` in milliseconds between two complete events with timing; `None` if the library
    /// lacks it.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Reply<Option<f32>>;

    /// `hipModuleLoadData`.
    ///
    /// # Safety
    /// The image must be a whole code object (the call is not given its length) and outlive the module.
    unsafe fn load_module(&self, image: &[u8]) -> Reply<Module>;

    /// Returns true if [`Driver::load_library`] works.
    fn has_libraries(&self) -> bool {
        false
    }

    /// `hipLibraryLoadData`, and the library's module on the attached device. Several threads may call this at once: a
    /// driver whose images are text compiles in this call, and compiles one at a time in [`Driver::load_module`]. `None`
    /// if it fails; loading the module then returns the reason.
    fn load_library(&self, _image: &[u8]) -> Option<(Library, Module)> {
        None
    }

    /// `hipLibraryUnload`. The library's module ends with it.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn unload_library(&self, _library: Library) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipModuleUnload`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn unload_module(&self, module: Module) -> Reply<()>;

    /// `hipModuleGetFunction`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn function(&self, module: Module, name: &std::ffi::CStr) -> Reply<Function>;

    /// `hipModuleLaunchKernel`. The arguments are copied before the call returns.
    ///
    /// # Safety
    /// See [`Driver`]; number, offsets and sizes of the arguments must be those of the kernel.
    unsafe fn launch(
        &self,
        function: Function,
        shape: Shape,
        args: Arguments<'_>,
        stream: Stream,
    ) -> Reply<()>;

    /// Returns true if launches can be captured in a graph, which is started as one.
    fn has_graphs(&self) -> bool {
        false
    }

    /// `hipStreamBeginCapture`: later launches into the stream become part of a graph and do not run. Not for
    /// the NULL stream.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn begin_capture(&self, _stream: Stream) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipStreamEndCapture` and `hipGraphInstantiateWithFlags`.
    ///
    /// # Safety
    /// See [`Driver`]. Everything that the launches use must live as long as the graph.
    unsafe fn end_capture(&self, _stream: Stream) -> Reply<LaunchGraph> {
        Err(codes::NOT_SUPPORTED)
    }

    /// Returns true if a graph can have branches: several streams that wait for each other's events during
    /// capture.
    fn has_branches(&self) -> bool {
        false
    }

    /// `hipStreamWaitEvent`: later work in the stream runs after the event's last record.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn wait_event(&self, _stream: Stream, _event: Event) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipGraphLaunch`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn launch_graph(&self, _graph: LaunchGraph, _stream: Stream) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }

    /// `hipGraphExecDestroy`.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn destroy_graph(&self, _graph: LaunchGraph) -> Reply<()> {
        Err(codes::NOT_SUPPORTED)
    }
}
