//! State that the driver thread owns: the device, its stream, memory, modules and events.
//!
//! Handles and addresses from the driver are stored here and passed back to it only from here. So this module
//! upholds the safety contracts of [`Driver`]'s unsafe methods: a handle in a table is live because it is
//! removed when it is destroyed, and a range is within one allocation because every copy checks it.

use crate::code::excerpt::Libraries;
use crate::code::kernels::{self, Kernel};
use crate::driver::codes::{Call, OUT_OF_MEMORY, describe, driver_error, is_fatal};
use crate::driver::{
    Address, Arguments, Code, Coherence, Driver, Event, External, Function, Module, Reply, Shape, Stream,
    Window,
};
use crate::runtime::monitor::Monitor;
use ggml_core::backend::{KernelCounts, Stats};
use ggml_core::exported::ExportedMemory;
use ggml_core::repeat::Range;
use ggml_core::sync::lock;
use ggml_core::{Error, Result};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod copies;
mod events;
pub(crate) mod graphs;
mod host;

use copies::whole_words;
pub(crate) use copies::{Location, WORD};
pub(crate) use graphs::GraphId;
pub(crate) use host::HostBlock;
use host::Image;

/// Allocation of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockId(Address);

impl BlockId {
    /// Returns the address on the device.
    pub(crate) fn address(self) -> Address {
        self.0
    }
}

/// Index of an event of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId(usize);

/// Index of a kernel of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionId(usize);

/// Loaded code object with its image.
#[derive(Debug)]
struct Loaded {
    module: Module,
    _image: Image,
}

/// Kernel with its checked arguments, ready to launch.
#[derive(Debug)]
pub(crate) struct PreparedLaunch {
    function: FunctionId,
    shape: Shape,
    bytes: Box<[u8]>,
    offsets: Box<[u32]>,
    windows: Box<[Window]>,
}

/// Pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// Address of the first byte.
    pub(crate) address: Address,
    /// Bytes that the kernel may access from there.
    pub(crate) bytes: usize,
}

impl Range for Pointer {
    fn meets(&self, other: &Self) -> bool {
        self.address < other.address + other.bytes as u64 && other.address < self.address + self.bytes as u64
    }
}

/// Time after a fatal code in which the event behind it is reported.
const EVENT_DELAY: Duration = Duration::from_millis(200);

/// The device as the driver thread owns it.
pub(crate) struct Session {
    driver: Arc<dyn Driver>,
    monitor: Arc<Monitor>,
    stats: Arc<Mutex<Stats>>,
    stream: Stream,
    own_stream: bool,
    closed: bool,
    blocks: HashMap<Address, usize>,
    /// Blocks that are memory of the card's other driver.
    imported: HashMap<Address, External>,
    host: Vec<Arc<HostBlock>>,
    events: Vec<Event>,
    modules: HashMap<(&'static str, Option<&'static str>), Loaded>,
    libraries: Libraries,
    functions: Vec<Function>,
    function_ids: HashMap<(&'static str, &'static str), FunctionId>,
    graphs: graphs::Graphs,
    /// Kernel that copies between host and device, if one is used.
    copier: Option<Arc<Kernel>>,
}

impl Session {
    /// Attaches the calling thread to a device. Work goes to the NULL stream until [`Session::create_stream`].
    pub(crate) fn open(
        driver: Arc<dyn Driver>,
        monitor: Arc<Monitor>,
        stats: Arc<Mutex<Stats>>,
        device: u32,
    ) -> Result<Session> {
        let session = Session {
            driver,
            monitor,
            stats,
            stream: Stream(0),
            own_stream: false,
            closed: false,
            blocks: HashMap::new(),
            imported: HashMap::new(),
            host: Vec::new(),
            events: Vec::new(),
            modules: HashMap::new(),
            libraries: Libraries::default(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
            graphs: graphs::Graphs::default(),
            copier: None,
        };
        if let Some(lost) = session.lost() {
            return Err(lost);
        }
        session.call(Call::Attach, |d| d.attach(device))?;
        Ok(session)
    }

    /// Creates the session's own stream, which takes all later work.
    pub(crate) fn create_stream(&mut self) -> Result<()> {
        self.stream = self.call(Call::CreateStream, |d| d.create_stream())?;
        self.own_stream = true;
        Ok(())
    }

    /// Returns counters of the executed kernels, if the device counts.
    pub(crate) fn counts(&self) -> Vec<KernelCounts> {
        self.driver.counts()
    }

    /// Returns the monitor of the thread.
    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    fn attempt<T>(&self, call: Call, f: impl FnOnce(&dyn Driver) -> Reply<T>) -> Reply<T> {
        self.monitor.enter(call);
        let reply = f(&*self.driver);
        self.monitor.leave();
        reply
    }

    fn call<T>(&self, call: Call, f: impl FnOnce(&dyn Driver) -> Reply<T>) -> Result<T> {
        self.attempt(call, f).map_err(|code| self.error(call, code))
    }

    /// Returns the error of a device whose runtime reported a fatal event asynchronously.
    fn lost(&self) -> Option<Error> {
        let reason = self.driver.lost()?;
        let (backend, phase) = (self.monitor.backend.clone(), self.monitor.phase());
        Some(Error::DeviceLost { backend, phase, node: self.monitor.node_name(), reason })
    }

    /// Returns the event behind a code that says only that the device cannot be used any more. The runtime may
    /// return the code before it reports the event.
    fn reason_of_end(&self) -> Option<Error> {
        let start = Instant::now();
        loop {
            let lost = self.lost();
            if lost.is_some() || start.elapsed() > EVENT_DELAY {
                return lost;
            }
            std::thread::sleep(EVENT_DELAY / 20);
        }
    }

    fn error(&self, call: Call, code: Code) -> Error {
        if let Some(lost) = self.lost() {
            return lost;
        }
        let error = driver_error(&self.monitor.backend, &*self.driver, self.monitor.phase(), call, code);
        if is_fatal(&error)
            && let Some(lost) = self.reason_of_end()
        {
            return lost;
        }
        match self.monitor.node_name() {
            // The launch that is refused is not the node that is running; the caller adds its node.
            Some(node) if !matches!(call, Call::Launch | Call::LaunchGraph) || is_fatal(&error) => {
                error.with_node(&node)
            }
            _ => error,
        }
    }

    /// Returns the bytes of free device memory.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.attempt(Call::MemoryInfo, |d| d.memory()).ok().map(|(free, _)| free)
    }

    fn allocation_error(&self, call: Call, code: Code, bytes: usize, heap: &str) -> Error {
        if code != OUT_OF_MEMORY {
            return self.error(call, code);
        }
        let free = self.free_memory().filter(|_| call == Call::Allocate);
        Error::OutOfMemory {
            backend: self.monitor.backend.clone(),
            asked: bytes as u64,
            free,
            heap: heap.into(),
            driver: Some(format!("{}: {}", call.name(), describe(&*self.driver, code))),
        }
    }

    fn count_allocation(&self, bytes: usize) {
        let mut stats = lock(&self.stats);
        stats.driver_allocations += 1;
        stats.allocated_bytes += bytes as u64;
    }

    fn count_free(&self, bytes: usize) {
        let mut stats = lock(&self.stats);
        stats.allocated_bytes = stats.allocated_bytes.saturating_sub(bytes as u64);
    }

    /// Allocates device memory with one call of the driver.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<BlockId> {
        let address = self
            .attempt(Call::Allocate, |d| d.allocate(whole_words(bytes)))
            .map_err(|code| self.allocation_error(Call::Allocate, code, bytes, "device memory"))?;
        self.blocks.insert(address, bytes);
        self.count_allocation(bytes);
        Ok(BlockId(address))
    }

    /// Maps memory that the card's other driver exported. It is counted where it was allocated.
    pub(crate) fn import(&mut self, memory: ExportedMemory, bytes: usize) -> Result<BlockId> {
        if memory.bytes() < whole_words(bytes) as u64 {
            let found = format!("{} bytes", memory.bytes());
            return Err(Error::argument("exported memory", found, format!("at least {bytes}")));
        }
        let (external, address) = self.call(Call::Import, |d| d.import(memory))?;
        self.blocks.insert(address, bytes);
        self.imported.insert(address, external);
        Ok(BlockId(address))
    }

    /// Frees device memory, or ends the use of imported memory. Does nothing if it is not this session's.
    pub(crate) fn free(&mut self, block: BlockId) -> Result<()> {
        let Some(bytes) = self.blocks.remove(&block.0) else { return Ok(()) };
        if let Some(external) = self.imported.remove(&block.0) {
            // SAFETY: handle and address are those of one import and were just removed from the table.
            return self.call(Call::Release, |d| unsafe { d.release(external, block.0) });
        }
        self.count_free(bytes);
        // SAFETY: the address is one of `allocate` and was just removed from the table, so it is freed once.
        self.call(Call::Free, |d| unsafe { d.free(block.0) })
    }

    /// Allocates pinned host memory with one call of the driver.
    pub(crate) fn allocate_host(&mut self, bytes: usize, coherence: Coherence) -> Result<Arc<HostBlock>> {
        let address = self
            .attempt(Call::AllocateHost, |d| d.allocate_host(bytes, coherence))
            .map_err(|code| self.allocation_error(Call::AllocateHost, code, bytes, "pinned host memory"))?;
        let block = Arc::new(HostBlock { address, bytes });
        self.host.push(block.clone());
        self.count_allocation(bytes);
        Ok(block)
    }

    /// Frees the pinned host memory that has no other holder.
    pub(crate) fn free_unused_host(&mut self) -> Result<()> {
        let mut result = Ok(());
        for i in (0..self.host.len()).rev() {
            // The block is removed from the table by value, so that no further handle can be created.
            match Arc::try_unwrap(self.host.swap_remove(i)) {
                Ok(block) => {
                    self.count_free(block.bytes);
                    // SAFETY: the address is one of `allocate_host`, and its only handle is consumed here.
                    let freed = self.call(Call::FreeHost, |d| unsafe { d.free_host(block.address) });
                    result = result.and(freed);
                }
                Err(block) => self.host.push(block),
            }
        }
        result
    }

    /// Returns the list of the libraries that are loaded on the device: they are unloaded when the session closes.
    pub(crate) fn libraries(&self) -> Libraries {
        self.libraries.clone()
    }

    /// Loads a kernel's code object, unless it is loaded.
    pub(crate) fn load(&mut self, kernel: &Kernel) -> Result<Module> {
        // Such a module lives as long as its library.
        if let Some(module) = kernel.loaded() {
            return Ok(module);
        }
        if let Some(loaded) = self.modules.get(&kernel.module()) {
            return Ok(loaded.module);
        }
        let image = Image::new(&kernel.image());
        // SAFETY: the image is a whole code object (`Kernels` has read its headers to the end) and lives as
        // long as the module: moving an `Image` does not move its bytes.
        let module = self.call(Call::LoadModule, |d| unsafe { d.load_module(image.get()) })?;
        self.modules.insert(kernel.module(), Loaded { module, _image: image });
        Ok(module)
    }

    /// Returns a kernel; its code object is loaded on first use.
    fn function(&mut self, kernel: &Kernel) -> Result<FunctionId> {
        if let Some(id) = self.function_ids.get(&(kernel.module, kernel.name)) {
            return Ok(*id);
        }
        let start = Instant::now();
        let module = self.load(kernel)?;
        let name = CString::new(kernel.name).map_err(|_| {
            Error::argument("kernel", format!("{:?}", kernel.name), "a name without zero bytes")
        })?;
        // SAFETY: modules stay loaded until the session closes.
        let function = self.call(Call::Function, |d| unsafe { d.function(module, &name) })?;
        let id = FunctionId(self.functions.len());
        self.functions.push(function);
        self.function_ids.insert((kernel.module, kernel.name), id);
        let mut stats = lock(&self.stats);
        stats.pipelines += 1;
        stats.compile_time += start.elapsed();
        Ok(id)
    }

    /// Prepares a launch: finds the kernel and lays out its arguments.
    pub(crate) fn prepare_launch(
        &mut self,
        kernel: &Kernel,
        shape: Shape,
        (pointers, written): (&[Pointer], usize),
        params: &[u8],
    ) -> Result<PreparedLaunch> {
        let passed = kernels::arguments(pointers.len(), params.len());
        if kernel.info.as_ref().is_some_and(|info| info.arguments != passed) {
            let takes = kernel.info.as_ref().map(|info| format!("{:?}", info.arguments));
            let what = format!("arguments (offset, bytes) of kernel {}", kernel.name);
            return Err(Error::argument(what, format!("{passed:?}"), takes.unwrap_or_default()));
        }
        for pointer in pointers {
            self.check_pointer(kernel, pointer)?;
        }
        let mut bytes: Vec<u8> = pointers.iter().flat_map(|p| p.address.to_le_bytes()).collect();
        bytes.extend_from_slice(params);
        let function = self.function(kernel)?;
        let offsets = passed.iter().map(|(offset, _)| *offset).collect();
        let window = |(i, pointer): (usize, &Pointer)| Window {
            address: pointer.address,
            bytes: pointer.bytes,
            writable: i + written >= pointers.len(),
        };
        let windows = pointers.iter().enumerate().map(window).collect();
        Ok(PreparedLaunch { function, shape, bytes: bytes.into(), offsets, windows })
    }

    /// Returns an error unless a pointer's range is memory of this session.
    fn check_pointer(&self, kernel: &Kernel, pointer: &Pointer) -> Result<()> {
        let within = |base: Address, size: usize| {
            let end = pointer.address.checked_add(pointer.bytes as u64);
            pointer.address >= base && end.is_some_and(|end| end <= base + size as u64)
        };
        let device = self.blocks.iter().any(|(&base, &size)| within(base, whole_words(size)));
        if device || self.host.iter().any(|b| within(b.address(), b.bytes())) {
            return Ok(());
        }
        let what = format!("operand of kernel {}", kernel.name);
        let found = format!("{} bytes at {:#x}", pointer.bytes, pointer.address);
        Err(Error::argument(what, found, "a range in one allocation"))
    }

    /// Launches a kernel.
    pub(crate) fn launch(&mut self, ready: &PreparedLaunch) -> Result<()> {
        self.launch_into(self.stream, ready)
    }

    fn launch_into(&mut self, stream: Stream, ready: &PreparedLaunch) -> Result<()> {
        let function = self.functions.get(ready.function.0).copied();
        let function =
            function.ok_or_else(|| Error::argument("kernel", "of another session", "one of this session"))?;
        let args = Arguments { bytes: &ready.bytes, offsets: &ready.offsets, windows: &ready.windows };
        // SAFETY: functions live as long as their modules, until the session closes. `prepare_launch` has compared the
        // arguments with those that the code object declares, and the operands with the allocations, which
        // the program that holds this launch keeps alive. A kernel stays within its operands by the kernels'
        // contract: their parameters come from a graph whose shapes and strides were checked when its nodes
        // were added.
        self.call(Call::Launch, |d| unsafe { d.launch(function, ready.shape, args, stream) })
    }

    /// Waits for all started work, then frees everything. Returns the first error; objects that cannot be
    /// freed are left.
    pub(crate) fn close(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        if let Ok(event) = self.create_event(false) {
            self.record(event)?;
            self.wait(event)?;
        }
        let mut result = self.free_graphs();
        self.functions.clear();
        self.function_ids.clear();
        for (_, loaded) in std::mem::take(&mut self.modules) {
            // SAFETY: the module was just removed from the table, and none of its functions is in use.
            result = result.and(self.call(Call::UnloadModule, |d| unsafe { d.unload_module(loaded.module) }));
        }
        let libraries = std::mem::take(&mut *lock(&self.libraries));
        for library in libraries {
            // SAFETY: the library was just removed from the list, and none of its functions is in use.
            result = result.and(self.call(Call::UnloadModule, |d| unsafe { d.unload_library(library) }));
        }
        for event in std::mem::take(&mut self.events) {
            // SAFETY: the event was just removed from the table.
            result = result.and(self.call(Call::DestroyEvent, |d| unsafe { d.destroy_event(event) }));
        }
        for address in self.blocks.keys().copied().collect::<Vec<_>>() {
            result = result.and(self.free(BlockId(address)));
        }
        result = result.and(self.free_unused_host());
        result = result.and(self.free_branches());
        if std::mem::take(&mut self.own_stream) {
            let stream = std::mem::replace(&mut self.stream, Stream(0));
            // SAFETY: the stream is this session's own and was just replaced.
            result = result.and(self.call(Call::DestroyStream, |d| unsafe { d.destroy_stream(stream) }));
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.monitor.is_given_up() || self.close().is_err() {
            // The driver may still read the images.
            std::mem::forget(std::mem::take(&mut self.modules));
        }
    }
}
