//! Provider for AMD devices: libamdhip64, loaded at run time.
//!
//! Three layers: the table of C functions ([`symbols`]), the loader, and the methods in this module, each of
//! which returns a value or a code.

use super::external::Functions;
use super::ffi::{self, check, handle, same_calls};
use crate::driver::codes::{CODES, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::driver::{
    Address, Code, Coherence, Direction, Driver, External, Module, Properties, Reply, Stream, WRONG_LIBRARY,
};
use crate::options::HipOptions;
use ggml_core::exported::ExportedMemory;
use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

mod events;
pub(crate) mod loader;
pub(crate) mod properties;
#[allow(non_snake_case)]
pub mod symbols;

use symbols::{Symbols, attribute};

/// libamdhip64.
#[derive(Debug)]
pub struct Amd {
    symbols: Symbols,
    path: PathBuf,
    found: String,
    /// The node of the kernel's compute driver.
    node: PathBuf,
    /// Set by the first successful `hipInit`.
    events: OnceLock<events::EventGuard>,
}

/// Converts an address to a C pointer.
fn pointer(address: Address) -> *mut c_void {
    address as usize as *mut c_void
}

impl Amd {
    /// Does nothing: a launch may use as much LDS as a work-group can have.
    fn allow_lds(&self, _function: ffi::Handle, _bytes: u32) -> Reply<()> {
        Ok(())
    }

    /// Loads the library. The error lists each path that was tried, with the result.
    pub fn load(options: &HipOptions) -> Result<Amd, String> {
        let loader::Loaded { symbols, path, found } = loader::load(options)?;
        let node = options.rooted("/dev/kfd");
        Ok(Amd { symbols, path, found, node, events: OnceLock::new() })
    }

    fn version(&self, function: unsafe extern "C" fn(*mut c_int) -> c_int) -> Option<u32> {
        let mut version = 0;
        // SAFETY: the function is one of the table's that write one integer.
        check(unsafe { function(&mut version) }).ok()?;
        u32::try_from(version).ok()
    }

    /// Returns true if a capture takes launches. 5.2.3 starts them at once and captures nothing; 5.7.1 does not.
    fn captures_launches(&self) -> bool {
        let version = self.version(self.symbols.hipRuntimeGetVersion);
        version.is_none_or(|version| version >= FIRST_WITH_CAPTURE)
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the function writes one integer; it checks attribute and device.
        check(unsafe { (self.symbols.hipDeviceGetAttribute)(&mut value, attribute, device) }).ok()?;
        u32::try_from(value).ok()
    }

    /// Reads the properties in the layout of the function that filled them.
    fn structure(&self, device: c_int) -> Reply<Properties> {
        let s = &self.symbols;
        let (layout, function) = match (s.hipGetDevicePropertiesR0600, s.hipGetDeviceProperties) {
            (Some(function), _) => (properties::R0600, function),
            (None, Some(function)) => (properties::R0000, function),
            (None, None) => return Err(NOT_SUPPORTED),
        };
        let mut data = Box::new([0u8; properties::BUFFER_BYTES]);
        // SAFETY: the function fills a structure of less than half this size in any known release.
        check(unsafe { function(data.as_mut_ptr().cast(), device) })?;
        Ok(layout.read(&data))
    }

    /// Prevents a thread of the runtime from polling, which keeps a core busy from the first kernel on. From
    /// [`POLLS`] on it polls unless calls that wait are to block. With several devices nothing prevents it.
    fn stop_polling(&self) {
        let polls = self.version(self.symbols.hipRuntimeGetVersion).is_some_and(|version| version >= POLLS);
        let Some(set_flags) = self.symbols.hipSetDeviceFlags.filter(|_| polls) else { return };
        if self.device_count() == Ok(1) {
            // SAFETY: takes flags and checks them.
            let code = unsafe { set_flags(symbols::DEVICE_BLOCKING_SYNC) };
            tracing::debug!(target: "diptych::hip", code, "hipSetDeviceFlags, so that the runtime does not poll");
        }
    }

    fn uuid(&self, device: c_int) -> Option<[u8; 16]> {
        let mut uuid = [0u8; 16];
        // SAFETY: the function writes 16 bytes; it takes a device as an integer.
        check(unsafe { (self.symbols.hipDeviceGetUuid?)(uuid.as_mut_ptr().cast(), device) }).ok()?;
        Some(uuid).filter(|u| *u != [0; 16])
    }
}

/// Name of the provider.
pub(crate) const NAME: &str = "libamdhip64";

/// First version of the runtime with a thread that polls.
const POLLS: u32 = 71_400_000;
/// First version of HIP whose capture is known to take launches of `hipModuleLaunchKernel`: 5.7.
const FIRST_WITH_CAPTURE: u32 = 50_700_000;

/// Formats 70253211 as "7.2.53211".
fn version_text(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

impl Amd {
    /// Returns the functions for memory of the card's other driver.
    fn external(&self) -> Functions {
        Functions {
            import: self.symbols.hipImportExternalMemory,
            map: self.symbols.hipExternalMemoryGetMappedBuffer,
            destroy: self.symbols.hipDestroyExternalMemory,
            takes_descriptor: false,
        }
    }
}

impl Driver for Amd {
    fn name(&self) -> &str {
        NAME
    }

    fn library(&self) -> Option<&std::path::Path> {
        Some(&self.path)
    }

    fn versions(&self) -> Vec<(String, String)> {
        let mut versions = vec![
            ("library".to_string(), self.path.display().to_string()),
            ("library found".to_string(), self.found.clone()),
        ];
        let runtime = self.version(self.symbols.hipRuntimeGetVersion);
        let driver = self.symbols.hipDriverGetVersion.and_then(|f| self.version(f));
        for (name, version) in [("hip runtime", runtime), ("hip driver", driver)] {
            versions.extend(version.map(|v| (name.to_string(), version_text(v))));
        }
        let mismatch = runtime.and_then(|version| loader::mismatch(&self.path, version / 10_000_000));
        versions.extend(mismatch.map(|text| (WRONG_LIBRARY.to_string(), text)));
        versions
    }

    fn major(&self) -> Option<u32> {
        self.version(self.symbols.hipRuntimeGetVersion).map(|v| v / 10_000_000)
    }

    fn error_name(&self, code: Code) -> Option<String> {
        // Some releases give unknown codes the name of a known one.
        if let Some((_, name)) = CODES.iter().find(|(known, _)| *known == code) {
            return Some((*name).into());
        }
        // SAFETY: the function accepts any integer and returns null or a C string that is never freed.
        unsafe {
            let name = (self.symbols.hipGetErrorName)(code);
            if name.is_null() { None } else { Some(CStr::from_ptr(name).to_string_lossy().into_owned()) }
        }
    }

    fn lost(&self) -> Option<String> {
        events::reported()
    }

    fn init(&self) -> Reply<()> {
        // SAFETY: takes flags, which must be 0.
        check(unsafe { (self.symbols.hipInit)(0) })?;
        self.events.get_or_init(|| events::EventGuard::new(&self.node));
        Ok(())
    }

    fn device_count(&self) -> Reply<u32> {
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { (self.symbols.hipGetDeviceCount)(&mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    fn properties(&self, device: u32) -> Reply<Properties> {
        let device = c_int::try_from(device).unwrap_or(c_int::MAX);
        let mut p = self.structure(device)?;
        // Attributes have no layout that could be wrong, so they override the structure.
        let [domain, bus, slot] = &mut p.pci;
        let attributes = [
            (attribute::WARP_SIZE, &mut p.wave),
            (attribute::MAX_SHARED_MEMORY_PER_BLOCK, &mut p.lds_bytes),
            (attribute::MAX_THREADS_PER_BLOCK, &mut p.max_threads),
            (attribute::MULTIPROCESSOR_COUNT, &mut p.compute_units),
            (attribute::CLOCK_RATE, &mut p.clock_khz),
            (attribute::MEMORY_CLOCK_RATE, &mut p.memory_clock_khz),
            (attribute::MEMORY_BUS_WIDTH, &mut p.memory_bus_bits),
            (attribute::L2_CACHE_SIZE, &mut p.l2_bytes),
            (attribute::PCI_DOMAIN_ID, domain),
            (attribute::PCI_BUS_ID, bus),
            (attribute::PCI_DEVICE_ID, slot),
        ];
        for (attribute, field) in attributes {
            if let Some(value) = self.attribute(device, attribute) {
                *field = value;
            }
        }
        if let Some(value) = self.attribute(device, attribute::INTEGRATED) {
            p.integrated = value != 0;
        }
        if let Some(value) = self.attribute(device, attribute::IS_LARGE_BAR) {
            p.large_bar = Some(value != 0);
        }
        p.uuid = p.uuid.or_else(|| self.uuid(device));
        Ok(p)
    }

    fn attach(&self, device: u32) -> Reply<()> {
        self.stop_polling();
        // SAFETY: takes an integer and checks it.
        check(unsafe { (self.symbols.hipSetDevice)(c_int::try_from(device).unwrap_or(c_int::MAX)) })
    }

    fn memory(&self) -> Reply<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two sizes.
        check(unsafe { (self.symbols.hipMemGetInfo)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Reply<Address> {
        let mut address = null_mut();
        // SAFETY: writes one pointer.
        check(unsafe { (self.symbols.hipMalloc)(&mut address, bytes.max(1)) })?;
        Ok(address as usize as Address)
    }

    unsafe fn free(&self, address: Address) -> Reply<()> {
        // SAFETY: the caller guarantees an address of `allocate` that was not freed.
        check(unsafe { (self.symbols.hipFree)(pointer(address)) })
    }

    fn import(&self, memory: ExportedMemory) -> Reply<(External, Address)> {
        self.external().import(memory)
    }

    unsafe fn release(&self, external: External, _address: Address) -> Reply<()> {
        // The mapping ends with the memory: HIP's own hipFree does not know it in some releases.
        // SAFETY: the caller guarantees imported memory that is not in use.
        unsafe { self.external().release(external) }
    }

    fn allocate_host(&self, bytes: usize, coherence: Coherence) -> Reply<NonNull<u8>> {
        let mut address = null_mut();
        let flags = match coherence {
            Coherence::Always => symbols::HOST_MALLOC_DEFAULT,
            Coherence::AtLaunches => symbols::HOST_MALLOC_NON_COHERENT,
        };
        // SAFETY: writes one pointer.
        check(unsafe { (self.symbols.hipHostMalloc)(&mut address, bytes.max(1), flags) })?;
        NonNull::new(address.cast()).ok_or(OUT_OF_MEMORY)
    }

    unsafe fn free_host(&self, address: NonNull<u8>) -> Reply<()> {
        // SAFETY: the caller guarantees an address of `allocate_host` that was not freed.
        check(unsafe { (self.symbols.hipHostFree)(address.as_ptr().cast()) })
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Stream) -> Reply<()> {
        // SAFETY: the caller guarantees a range in one allocation, a live stream.
        check(unsafe {
            (self.symbols.hipMemsetAsync)(pointer(to), c_int::from(byte), bytes, handle(stream.0))
        })
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        direction: Direction,
        stream: Stream,
    ) -> Reply<()> {
        let kind = match direction {
            Direction::HostToHost => symbols::COPY_HOST_TO_HOST,
            Direction::HostToDevice => symbols::COPY_HOST_TO_DEVICE,
            Direction::DeviceToHost => symbols::COPY_DEVICE_TO_HOST,
            Direction::DeviceToDevice => symbols::COPY_DEVICE_TO_DEVICE,
        };
        // SAFETY: the caller guarantees ranges in one allocation each, on the sides that the direction
        // specifies, pinned on the host, and a live stream.
        check(unsafe {
            (self.symbols.hipMemcpyAsync)(
                pointer(to),
                pointer(from).cast_const(),
                bytes,
                kind,
                handle(stream.0),
            )
        })
    }

    unsafe fn load_module(&self, image: &[u8]) -> Reply<Module> {
        let mut module = null_mut();
        // SAFETY: writes one handle; the image is a whole code object, whose headers contain its length, and
        // outlives the module (guaranteed by the caller).
        check(unsafe { (self.symbols.hipModuleLoadData)(&mut module, image.as_ptr().cast()) })?;
        Ok(Module(module as usize as u64))
    }

    same_calls! {
        streams hipStreamCreateWithFlags hipStreamDestroy,
        events hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventQuery hipEventElapsedTime,
        modules hipModuleUnload hipModuleGetFunction hipModuleLaunchKernel,
        graphs hipStreamBeginCapture hipStreamEndCapture hipGraphInstantiateWithFlags hipGraphLaunch
            hipGraphExecDestroy hipGraphDestroy hipStreamWaitEvent,
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod bindings;
#[cfg(test)]
mod tests;
