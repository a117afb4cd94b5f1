//! Provider for NVIDIA devices: HIP's NVIDIA platform, which maps HIP's calls to CUDA's driver.
//!
//! libcuda is loaded at run time; no toolkit is needed. Kernels are PTX, which the driver compiles for the
//! device when it loads them (and stores in a cache of its own). So one card can run the same graph through
//! Vulkan and through HIP.
//!
//! Codes and their names are CUDA's (`CUDA_ERROR_ILLEGAL_ADDRESS`); the codes that matter here (2, 100, 600,
//! 700, 719) have the same values in both. Errors name the HIP function; the libcuda function called has the
//! corresponding name.

use super::external::Functions;
use super::ffi::{self, check, handle, same_calls};
use crate::driver::codes::{INVALID_IMAGE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::driver::{
    Address, Code, Coherence, Direction, Driver, External, Library, Module, Properties, Reply, Stream,
};
use crate::options::HipOptions;
use crate::sys::library::{Found, Wanted, search};
use ggml_core::exported::ExportedMemory;
use ggml_core::phase;
use ggml_core::sync::lock;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

#[allow(non_snake_case)]
pub mod symbols;
#[cfg(test)]
mod tests;

use symbols::{Symbols, attribute};

/// Name of the provider.
pub(crate) const NAME: &str = "libcuda";

/// Size of the log buffer for the driver's compiler in bytes.
const LOG_BYTES: usize = 4096;

/// libcuda.
#[derive(Debug)]
pub struct Nvidia {
    symbols: Symbols,
    path: PathBuf,
    found: String,
    /// Device whose primary context is retained, and that context.
    attached: Mutex<Option<(c_int, Context)>>,
    /// Compiler log of the last refused image, and the code that came with it.
    log: Mutex<Option<(Code, String)>>,
}

/// Handle of a context.
#[derive(Clone, Copy, Debug)]
struct Context(ffi::Handle);

// SAFETY: CUDA allows any thread to make a context current; this program never reads what the handle points at.
unsafe impl Send for Context {}

/// Returns the library to search: in the loader's path, or in the directory that Windows provides to Linux
/// guests.
fn wanted(options: &HipOptions) -> Wanted {
    Wanted {
        what: NAME,
        names: if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] },
        named: options.cuda_library.clone(),
        directories: vec![(options.rooted("/usr/lib/wsl/lib"), "default directory in WSL")],
    }
}

impl Nvidia {
    /// Returns true if a capture takes launches.
    fn captures_launches(&self) -> bool {
        true
    }

    /// Loads the library. The error lists each path that was tried, with the result.
    pub fn load(options: &HipOptions) -> Result<Nvidia, String> {
        search(options, &wanted(options), |found| {
            let Found { library, name, how } = found;
            let symbols =
                // SAFETY: `symbol` returns null or an address in the library, which is never unloaded. A
                // library with this name exports CUDA's functions under CUDA's names.
                unsafe { Symbols::resolve(|name| library.symbol(name).unwrap_or(std::ptr::null_mut())) };
            let path = library.file(c"cuInit").unwrap_or(name);
            phase::learnt("library", &path.to_string_lossy());
            let symbols = symbols.map_err(|missing| format!("lacks {}", missing.join(", ")))?;
            Ok(Nvidia::new(symbols, path, how))
        })
    }

    fn new(symbols: Symbols, path: PathBuf, found: String) -> Nvidia {
        Nvidia { symbols, path, found, attached: Mutex::new(None), log: Mutex::new(None) }
    }

    fn device(&self, index: u32) -> Reply<c_int> {
        let mut device = 0;
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: writes one integer; the driver checks the index.
        check(unsafe { (self.symbols.cuDeviceGet)(&mut device, index) })?;
        Ok(device)
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Reply<u32> {
        let mut value = 0;
        // SAFETY: the function writes one integer; it checks attribute and device.
        check(unsafe { (self.symbols.cuDeviceGetAttribute)(&mut value, attribute, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn device_name(&self, device: c_int) -> Reply<String> {
        let mut text = [0u8; 256];
        let room = text.len() as c_int;
        // SAFETY: the function writes at most `room` bytes.
        check(unsafe { (self.symbols.cuDeviceGetName)(text.as_mut_ptr().cast(), room, device) })?;
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    fn uuid(&self, device: c_int) -> Option<[u8; 16]> {
        let function = self.symbols.cuDeviceGetUuid_v2.or(self.symbols.cuDeviceGetUuid)?;
        let mut uuid = [0u8; 16];
        // SAFETY: the function writes 16 bytes.
        check(unsafe { function(uuid.as_mut_ptr().cast(), device) }).ok()?;
        Some(uuid)
    }

    /// Returns the major and minor version of CUDA that the driver implements.
    fn version(&self) -> Option<(u32, u32)> {
        let mut version = 0;
        // SAFETY: writes one integer.
        check(unsafe { (self.symbols.cuDriverGetVersion)(&mut version) }).ok()?;
        let version = u32::try_from(version).ok()?;
        Some((version / 1000, version % 1000 / 10))
    }

    /// Allows a kernel more than 48 KiB of shared memory in a launch, which is the limit otherwise.
    fn allow_lds(&self, function: ffi::Handle, bytes: u32) -> Reply<()> {
        const ALLOWED: u32 = 48 << 10;
        let Ok(value) = c_int::try_from(bytes) else { return Err(INVALID_VALUE) };
        if bytes <= ALLOWED {
            return Ok(());
        }
        let set = self.symbols.cuFuncSetAttribute.ok_or(NOT_SUPPORTED)?;
        // SAFETY: sets an integer attribute; the function is live, as the caller of its launch guarantees.
        check(unsafe { set(function, symbols::MAX_DYNAMIC_SHARED, value) })
    }

    /// Loads PTX; on failure stores the compiler's log.
    fn load_text(&self, text: &CStr) -> Reply<Module> {
        let mut module = null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut names = [symbols::JIT_ERROR_LOG, symbols::JIT_ERROR_LOG_BYTES];
        // Values are passed in the pointers themselves.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
        // SAFETY: writes one handle, and at most `LOG_BYTES` to the log; the image is a C string, which the
        // call copies; there are two options with two values.
        let code = unsafe {
            (self.symbols.cuModuleLoadDataEx)(
                &mut module,
                text.as_ptr().cast(),
                names.len() as u32,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code != 0 {
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            let said = String::from_utf8_lossy(&log[..end]).trim().replace('\n', "; ");
            *lock(&self.log) = (!said.is_empty()).then_some((code, said));
        }
        check(code)?;
        Ok(Module(module as usize as u64))
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        if let Some((device, _)) = lock(&self.attached).take() {
            // SAFETY: the context was retained by `attach` and is released once. Nothing of this driver is
            // used afterwards: it is being dropped.
            unsafe { (self.symbols.cuDevicePrimaryCtxRelease_v2)(device) };
        }
    }
}

impl Nvidia {
    /// Returns the functions for memory of the card's other driver.
    fn external(&self) -> Functions {
        Functions {
            import: self.symbols.cuImportExternalMemory,
            map: self.symbols.cuExternalMemoryGetMappedBuffer,
            destroy: self.symbols.cuDestroyExternalMemory,
            takes_descriptor: true,
        }
    }
}

impl Driver for Nvidia {
    fn name(&self) -> &str {
        NAME
    }

    fn versions(&self) -> Vec<(String, String)> {
        let mut versions = vec![
            ("library".to_string(), self.path.display().to_string()),
            ("library found".to_string(), self.found.clone()),
        ];
        let version = self.version().map(|(major, minor)| format!("{major}.{minor}"));
        versions.extend(version.map(|v| ("cuda driver".to_string(), v)));
        versions
    }

    fn major(&self) -> Option<u32> {
        // The version is CUDA's, so HIP's version limits do not apply.
        None
    }

    fn error_name(&self, code: Code) -> Option<String> {
        let mut name = std::ptr::null();
        // SAFETY: the function writes the address of a C string that is never freed, or null for an unknown
        // code.
        let name = unsafe {
            if (self.symbols.cuGetErrorName)(code, &mut name) != 0 || name.is_null() {
                return None;
            }
            CStr::from_ptr(name).to_string_lossy().into_owned()
        };
        // The compiler's log belongs to the error being created, and to no later one.
        Some(match lock(&self.log).take_if(|(of, _)| *of == code) {
            Some((_, said)) => format!("{name}: {said}"),
            None => name,
        })
    }

    fn init(&self) -> Reply<()> {
        // SAFETY: takes flags, which must be 0.
        check(unsafe { (self.symbols.cuInit)(0) })
    }

    fn device_count(&self) -> Reply<u32> {
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { (self.symbols.cuDeviceGetCount)(&mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    fn properties(&self, device: u32) -> Reply<Properties> {
        let device = self.device(device)?;
        let of = |attribute| self.attribute(device, attribute);
        let some = |attribute| of(attribute).unwrap_or(0);
        let mut memory = 0;
        // SAFETY: writes one size.
        check(unsafe { (self.symbols.cuDeviceTotalMem_v2)(&mut memory, device) })?;
        // Only with unified addressing does pinned memory have one address on both sides.
        if of(attribute::UNIFIED_ADDRESSING)? == 0 {
            return Err(NOT_SUPPORTED);
        }
        let (major, minor) =
            (of(attribute::COMPUTE_CAPABILITY_MAJOR)?, of(attribute::COMPUTE_CAPABILITY_MINOR)?);
        Ok(Properties {
            name: self.device_name(device)?,
            arch: format!("sm_{major}{minor}"),
            uuid: self.uuid(device),
            memory: memory as u64,
            wave: of(attribute::WARP_SIZE)?,
            lds_bytes: of(attribute::MAX_SHARED_MEMORY_PER_BLOCK)?,
            max_threads: of(attribute::MAX_THREADS_PER_BLOCK)?,
            compute_units: of(attribute::MULTIPROCESSOR_COUNT)?,
            clock_khz: some(attribute::CLOCK_RATE),
            memory_clock_khz: some(attribute::MEMORY_CLOCK_RATE),
            memory_bus_bits: some(attribute::MEMORY_BUS_WIDTH),
            l2_bytes: some(attribute::L2_CACHE_SIZE),
            integrated: some(attribute::INTEGRATED) != 0,
            large_bar: None,
            pci: [attribute::PCI_DOMAIN_ID, attribute::PCI_BUS_ID, attribute::PCI_DEVICE_ID].map(some),
            layout: "cuDeviceGetAttribute",
        })
    }

    fn attach(&self, device: u32) -> Reply<()> {
        let device = self.device(device)?;
        let mut context = null_mut();
        let mut attached = lock(&self.attached);
        // SAFETY: writes one handle.
        check(unsafe { (self.symbols.cuDevicePrimaryCtxRetain)(&mut context, device) })?;
        if let Some((former, _)) = attached.replace((device, Context(context))) {
            // SAFETY: this context was retained by an earlier call and is released once.
            unsafe { (self.symbols.cuDevicePrimaryCtxRelease_v2)(former) };
        }
        // SAFETY: the context is retained until this driver is dropped.
        check(unsafe { (self.symbols.cuCtxSetCurrent)(context) })
    }

    fn memory(&self) -> Reply<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two sizes.
        check(unsafe { (self.symbols.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Reply<Address> {
        let mut address = 0;
        // SAFETY: writes one address.
        check(unsafe { (self.symbols.cuMemAlloc_v2)(&mut address, bytes.max(1)) })?;
        Ok(address)
    }

    unsafe fn free(&self, address: Address) -> Reply<()> {
        // SAFETY: the caller guarantees an address of `allocate` that was not freed.
        check(unsafe { (self.symbols.cuMemFree_v2)(address) })
    }

    fn import(&self, memory: ExportedMemory) -> Reply<(External, Address)> {
        self.external().import(memory)
    }

    unsafe fn release(&self, external: External, address: Address) -> Reply<()> {
        // SAFETY: the caller guarantees the mapping of this memory, which CUDA's driver frees as an allocation.
        check(unsafe { (self.symbols.cuMemFree_v2)(address) })?;
        // SAFETY: the caller guarantees imported memory that is not in use.
        unsafe { self.external().release(external) }
    }

    fn allocate_host(&self, bytes: usize, _: Coherence) -> Reply<NonNull<u8>> {
        let mut address = null_mut();
        // SAFETY: writes one pointer.
        check(unsafe { (self.symbols.cuMemHostAlloc)(&mut address, bytes.max(1), symbols::HOST_ALLOC) })?;
        NonNull::new(address.cast()).ok_or(OUT_OF_MEMORY)
    }

    unsafe fn free_host(&self, address: NonNull<u8>) -> Reply<()> {
        // SAFETY: the caller guarantees an address of `allocate_host` that was not freed.
        check(unsafe { (self.symbols.cuMemFreeHost)(address.as_ptr().cast()) })
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Stream) -> Reply<()> {
        // SAFETY: the caller guarantees a range in one allocation, a live stream.
        check(unsafe { (self.symbols.cuMemsetD8Async)(to, byte, bytes, handle(stream.0)) })
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        _direction: Direction,
        stream: Stream,
    ) -> Reply<()> {
        // SAFETY: the caller guarantees ranges in one allocation each, pinned on the host, and a live stream.
        // The driver determines from the addresses on which side they are: addressing is unified, which
        // `properties` has checked.
        check(unsafe { (self.symbols.cuMemcpyAsync)(to, from, bytes, handle(stream.0)) })
    }

    unsafe fn load_module(&self, image: &[u8]) -> Reply<Module> {
        // A zero byte would end the text early.
        let text = CString::new(image).map_err(|_| INVALID_IMAGE)?;
        self.load_text(&text)
    }

    fn has_libraries(&self) -> bool {
        let symbols = &self.symbols;
        symbols.cuLibraryLoadData.is_some()
            && symbols.cuLibraryGetModule.is_some()
            && symbols.cuLibraryUnload.is_some()
    }

    fn load_library(&self, image: &[u8]) -> Option<(Library, Module)> {
        let text = CString::new(image).ok()?;
        let (_, context) = (*lock(&self.attached))?;
        let load = self.symbols.cuLibraryLoadData?;
        let (mut library, mut module) = (null_mut(), null_mut());
        let (no_names, no_values) = (null_mut(), null_mut());
        // SAFETY: the context is retained until this driver is dropped.
        check(unsafe { (self.symbols.cuCtxSetCurrent)(context.0) }).ok()?;
        // SAFETY: writes one handle; the image is a C string, which the call copies; there are no options.
        let loaded = check(unsafe {
            load(&mut library, text.as_ptr().cast(), no_names, no_values, 0, no_names, no_values, 0)
        });
        loaded.ok()?;
        let library = Library(library as usize as u64);
        // SAFETY: writes one handle; the library was just loaded.
        let found = check(unsafe { (self.symbols.cuLibraryGetModule?)(&mut module, handle(library.0)) });
        if found.is_err() {
            // SAFETY: the library was just loaded, and nothing of it is used.
            let _ = unsafe { self.unload_library(library) };
            return None;
        }
        Some((library, Module(module as usize as u64)))
    }

    unsafe fn unload_library(&self, library: Library) -> Reply<()> {
        let unload = self.symbols.cuLibraryUnload.ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees a library of `load_library` that was not unloaded.
        check(unsafe { unload(handle(library.0)) })
    }

    same_calls! {
        streams cuStreamCreate cuStreamDestroy_v2,
        events cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventElapsedTime,
        modules cuModuleUnload cuModuleGetFunction cuLaunchKernel,
        graphs cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphInstantiateWithFlags cuGraphLaunch
            cuGraphExecDestroy cuGraphDestroy cuStreamWaitEvent,
    }
}
