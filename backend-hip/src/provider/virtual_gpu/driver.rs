//! HIP's functions over the emulated device.

use super::queue::{Failure, Queue, Work};
use super::{Faults, VirtualOptions};
use crate::driver::codes::{CODES, Call, INVALID_IMAGE, OUT_OF_MEMORY};
use crate::driver::{
    Address, Arguments, Code, Coherence, Direction, Driver, Event, External, Function, LaunchGraph, Module,
    Properties, Reply, Shape, Stream, Window,
};
use ggml_core::backend::KernelCounts;
use ggml_core::exported::ExportedMemory;
use ggml_core::sync::lock;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use virtual_gpu::{Counters, FaultKind, Gpu, Kernel, Launch, Options, Target};

/// `hipErrorInvalidValue`, `hipErrorInvalidHandle`, `hipErrorNotFound`.
const INVALID_VALUE: Code = 1;
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;

/// Emulated device behind HIP's functions.
pub struct VirtualDriver {
    gpu: Arc<Gpu>,
    integrated: bool,
    change_arguments: Option<fn(&str, &mut [u8])>,
    faults: Faults,
    queue: Queue,
    handles: Mutex<Handles>,
    counters: Arc<Mutex<HashMap<String, Counters>>>,
    /// Launches recorded while a stream is capturing.
    captured: Mutex<Option<Vec<Repeated>>>,
}

/// Repeatable work.
type Repeated = Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>;

#[derive(Default)]
struct Handles {
    next: u64,
    streams: usize,
    /// For each event, the index of the work before its last record.
    events: HashMap<u64, u64>,
    modules: HashMap<u64, virtual_gpu::Module>,
    functions: HashMap<u64, (u64, Kernel)>,
    graphs: HashMap<u64, Vec<Repeated>>,
    device: HashMap<Address, usize>,
    host: HashMap<u64, usize>,
}

impl Handles {
    fn handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl VirtualDriver {
    /// Creates a device.
    pub fn new(options: VirtualOptions) -> VirtualDriver {
        let VirtualOptions { checks, memory, random, seed, .. } = options;
        let of_gpu = Options { checks, memory, random, seed, ..Options::default() };
        VirtualDriver {
            gpu: Arc::new(Gpu::new(options.target, of_gpu)),
            integrated: options.integrated,
            change_arguments: options.change_arguments,
            faults: options.faults,
            queue: Queue::new(),
            handles: Mutex::default(),
            counters: Arc::default(),
            captured: Mutex::default(),
        }
    }

    /// Returns the counters of all launches so far, by kernel.
    pub fn counters(&self) -> Vec<(String, Counters)> {
        let mut all: Vec<_> = lock(&self.counters).iter().map(|(name, c)| (name.clone(), *c)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Returns the number of live allocations, pinned blocks, events, streams, modules and graphs.
    pub fn held(&self) -> [usize; 6] {
        let h = lock(&self.handles);
        [h.device.len(), h.host.len(), h.events.len(), h.streams, h.modules.len(), h.graphs.len()]
    }

    fn push(&self, call: Call, work: Work) -> Reply<()> {
        let stall = self.faults.enter(call.name())?;
        self.queue.push(stall, work).map(|_| ())
    }
}

/// Returns the runtime's code for a fault of the device.
fn code_of(kind: &FaultKind) -> Code {
    match kind {
        FaultKind::OutOfBounds(_)
        | FaultKind::OutsideWindows(_)
        | FaultKind::FreedMemory(_)
        | FaultKind::Misaligned(..) => 700,
        FaultKind::OutOfMemory(_) => OUT_OF_MEMORY,
        FaultKind::InvalidCodeObject(_) => INVALID_IMAGE,
        FaultKind::InvalidLaunch(_) => INVALID_VALUE,
        FaultKind::Budget(_) => 702,
        FaultKind::Trap(_) => 710,
        _ => 719,
    }
}

fn failure(fault: virtual_gpu::Fault) -> Failure {
    Failure { code: code_of(&fault.kind), text: fault.to_string() }
}

fn code(fault: virtual_gpu::Fault) -> Code {
    code_of(&fault.kind)
}

/// Maps memory of another device.
#[cfg(target_os = "linux")]
fn mapped(gpu: &Gpu, memory: ExportedMemory, bytes: usize) -> Reply<Address> {
    gpu.import(memory.into_descriptor(), bytes).map_err(code)
}

#[cfg(not(target_os = "linux"))]
fn mapped(_gpu: &Gpu, _memory: ExportedMemory, _bytes: usize) -> Reply<Address> {
    Err(crate::driver::codes::NOT_SUPPORTED)
}

/// Returns windows as the device has them.
fn windows(windows: &[Window]) -> Vec<virtual_gpu::Window> {
    let window =
        |w: &Window| virtual_gpu::Window { at: w.address, bytes: w.bytes as u64, writable: w.writable };
    windows.iter().map(window).collect()
}

impl Driver for VirtualDriver {
    fn name(&self) -> &str {
        "virtual"
    }

    fn versions(&self) -> Vec<(String, String)> {
        vec![("virtual GPU".into(), env!("CARGO_PKG_VERSION").into())]
    }

    fn major(&self) -> Option<u32> {
        None
    }

    /// Returns the name of a code and, if a kernel failed with it, the details of the failure.
    fn error_name(&self, code: Code) -> Option<String> {
        let name = CODES.iter().find(|(c, _)| *c == code)?.1;
        match self.queue.failure() {
            Some(failure) if failure.code == code => Some(format!("{name}: {}", failure.text)),
            _ => Some(name.to_string()),
        }
    }

    fn counts(&self) -> Vec<KernelCounts> {
        let named =
            |(kernel, counters): (String, Counters)| KernelCounts { kernel, counts: counters.by_name() };
        self.counters().into_iter().map(named).collect()
    }

    fn init(&self) -> Reply<()> {
        self.faults.enter(Call::Init.name()).map(|_| ())
    }

    fn device_count(&self) -> Reply<u32> {
        self.faults.enter(Call::DeviceCount.name()).map(|_| 1)
    }

    fn properties(&self, device: u32) -> Reply<Properties> {
        self.faults.enter(Call::Properties.name())?;
        if device != 0 {
            return Err(101);
        }
        let (name, arch, compute_units, clock_khz, memory_clock_khz, memory_bus_bits) = match self
            .gpu
            .target()
        {
            Target::Gfx900 => ("virtual Vega 10", "gfx900:xnack-", 64, 1_500_000, 945_000, 2048),
            Target::Gfx906 => ("virtual Vega 20", "gfx906:sramecc+:xnack-", 60, 1_725_000, 1_000_000, 4096),
            Target::Gfx90a => ("virtual MI210", "gfx90a:sramecc+:xnack-", 104, 1_700_000, 1_600_000, 4096),
            Target::Gfx942 => ("virtual MI300X", "gfx942:sramecc+:xnack-", 304, 2_100_000, 2_600_000, 8192),
            // HIP counts pairs of compute units.
            Target::Gfx1100 => ("virtual Navi 31", "gfx1100", 48, 2_498_000, 1_249_000, 384),
            Target::Gfx1151 => ("virtual Strix Halo", "gfx1151", 20, 2_900_000, 1_000_000, 256),
        };
        let is_rdna = matches!(self.gpu.target(), Target::Gfx1100 | Target::Gfx1151);
        let mut uuid = [0; 16];
        uuid.iter_mut().zip(self.gpu.target().name().bytes()).for_each(|(to, byte)| *to = byte);
        Ok(Properties {
            name: name.into(),
            arch: arch.into(),
            uuid: Some(uuid),
            memory: self.gpu.available().1,
            wave: if is_rdna { 32 } else { 64 },
            lds_bytes: virtual_gpu::MAX_LDS,
            max_threads: virtual_gpu::MAX_THREADS,
            compute_units,
            clock_khz,
            memory_clock_khz,
            memory_bus_bits,
            l2_bytes: match self.gpu.target() {
                Target::Gfx1100 => 6 << 20,
                Target::Gfx1151 => 2 << 20,
                _ => 4 << 20,
            },
            integrated: self.integrated,
            large_bar: Some(false),
            pci: [0; 3],
            layout: "virtual",
        })
    }

    fn attach(&self, device: u32) -> Reply<()> {
        self.faults.enter(Call::Attach.name())?;
        if device == 0 { Ok(()) } else { Err(101) }
    }

    fn memory(&self) -> Reply<(u64, u64)> {
        self.faults.enter(Call::MemoryInfo.name())?;
        Ok(self.gpu.available())
    }

    fn allocate(&self, bytes: usize) -> Reply<Address> {
        self.faults.enter(Call::Allocate.name())?;
        self.faults.allocation(bytes)?;
        let address = self.gpu.allocate(bytes).map_err(code)?;
        lock(&self.handles).device.insert(address, bytes);
        Ok(address)
    }

    unsafe fn free(&self, address: Address) -> Reply<()> {
        self.faults.enter(Call::Free.name())?;
        lock(&self.handles).device.remove(&address).ok_or(INVALID_VALUE)?;
        self.queue.drain(|| self.faults.released());
        self.gpu.free(address).map_err(code)
    }

    fn import(&self, memory: ExportedMemory) -> Reply<(External, Address)> {
        self.faults.enter(Call::Import.name())?;
        let bytes = usize::try_from(memory.bytes()).map_err(|_| INVALID_VALUE)?;
        let address = mapped(&self.gpu, memory, bytes)?;
        lock(&self.handles).device.insert(address, bytes);
        Ok((External(address), address))
    }

    unsafe fn release(&self, _external: External, address: Address) -> Reply<()> {
        self.faults.enter(Call::Release.name())?;
        lock(&self.handles).device.remove(&address).ok_or(INVALID_VALUE)?;
        self.queue.drain(|| self.faults.released());
        self.gpu.free(address).map_err(code)
    }

    fn allocate_host(&self, bytes: usize, _: Coherence) -> Reply<NonNull<u8>> {
        self.faults.enter(Call::AllocateHost.name())?;
        let at = self.gpu.allocate_host(bytes).map_err(code)?;
        lock(&self.handles).host.insert(at.as_ptr() as u64, bytes);
        Ok(at)
    }

    unsafe fn free_host(&self, address: NonNull<u8>) -> Reply<()> {
        self.faults.enter(Call::FreeHost.name())?;
        let address = address.as_ptr() as u64;
        lock(&self.handles).host.remove(&address).ok_or(INVALID_VALUE)?;
        self.queue.drain(|| self.faults.released());
        self.gpu.free(address).map_err(code)
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, _stream: Stream) -> Reply<()> {
        let gpu = self.gpu.clone();
        self.push(Call::Fill, Box::new(move || gpu.fill(to, byte, bytes).map_err(failure)))
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        _direction: Direction,
        _stream: Stream,
    ) -> Reply<()> {
        let gpu = self.gpu.clone();
        self.push(Call::Copy, Box::new(move || gpu.copy(to, from, bytes).map_err(failure)))
    }

    fn create_stream(&self) -> Reply<Stream> {
        self.faults.enter(Call::CreateStream.name())?;
        let mut handles = lock(&self.handles);
        handles.streams += 1;
        Ok(Stream(handles.handle()))
    }

    unsafe fn destroy_stream(&self, _stream: Stream) -> Reply<()> {
        self.faults.enter(Call::DestroyStream.name())?;
        let mut handles = lock(&self.handles);
        handles.streams = handles.streams.checked_sub(1).ok_or(INVALID_HANDLE)?;
        Ok(())
    }

    fn create_event(&self, _timing: bool) -> Reply<Event> {
        self.faults.enter(Call::CreateEvent.name())?;
        let mut handles = lock(&self.handles);
        let event = handles.handle();
        handles.events.insert(event, 0);
        Ok(Event(event))
    }

    unsafe fn destroy_event(&self, event: Event) -> Reply<()> {
        self.faults.enter(Call::DestroyEvent.name())?;
        lock(&self.handles).events.remove(&event.0).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    unsafe fn record(&self, event: Event, _stream: Stream) -> Reply<()> {
        self.faults.enter(Call::Record.name())?;
        let number = self.queue.push(false, Box::new(|| Ok(())))?;
        let mut handles = lock(&self.handles);
        handles.events.insert(event.0, number).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    unsafe fn complete(&self, event: Event) -> Reply<bool> {
        self.faults.enter(Call::Query.name())?;
        let number = lock(&self.handles).events.get(&event.0).copied().ok_or(INVALID_HANDLE)?;
        self.queue.complete(number)
    }

    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Reply<Option<f32>> {
        self.faults.enter(Call::Elapsed.name())?;
        let handles = lock(&self.handles);
        let time = |event: Event| {
            let number = handles.events.get(&event.0).copied().ok_or(INVALID_HANDLE)?;
            self.queue.time(number).ok_or(600)
        };
        Ok(Some(time(to)?.saturating_duration_since(time(from)?).as_secs_f32() * 1e3))
    }

    unsafe fn load_module(&self, image: &[u8]) -> Reply<Module> {
        self.faults.enter(Call::LoadModule.name())?;
        let module = self.gpu.load(image).map_err(code)?;
        let mut handles = lock(&self.handles);
        let handle = handles.handle();
        handles.modules.insert(handle, module);
        Ok(Module(handle))
    }

    unsafe fn unload_module(&self, module: Module) -> Reply<()> {
        self.faults.enter(Call::UnloadModule.name())?;
        let mut handles = lock(&self.handles);
        let loaded = handles.modules.remove(&module.0).ok_or(INVALID_HANDLE)?;
        handles.functions.retain(|_, (of, _)| *of != module.0);
        self.gpu.unload(&loaded).map_err(code)
    }

    unsafe fn function(&self, module: Module, name: &CStr) -> Reply<Function> {
        self.faults.enter(Call::Function.name())?;
        let mut handles = lock(&self.handles);
        let loaded = handles.modules.get(&module.0).ok_or(INVALID_HANDLE)?;
        let kernel = name.to_str().ok().and_then(|name| loaded.kernel(name)).ok_or(NOT_FOUND)?;
        let handle = handles.handle();
        handles.functions.insert(handle, (module.0, kernel));
        Ok(Function(handle))
    }

    unsafe fn launch(
        &self,
        function: Function,
        shape: Shape,
        args: Arguments<'_>,
        _stream: Stream,
    ) -> Reply<()> {
        let kernel =
            lock(&self.handles).functions.get(&function.0).map(|f| f.1.clone()).ok_or(INVALID_HANDLE)?;
        let (gpu, counters, mut arguments) = (self.gpu.clone(), self.counters.clone(), args.bytes.to_vec());
        if let Some(change) = self.change_arguments {
            change(kernel.name(), &mut arguments);
        }
        let windows = windows(args.windows);
        let wrong = self.faults.wrong_of(kernel.name());
        let work = move || {
            let launch = Launch {
                groups: shape.grid,
                threads: shape.block,
                dynamic_lds: shape.lds_bytes,
                arguments: &arguments,
                windows: Some(&windows),
            };
            let counted = match wrong {
                None => gpu.launch(&kernel, &launch),
                Some(wrong) => gpu.trace(&kernel, &launch).and_then(|(counted, footprint)| {
                    gpu.spoil(&footprint, wrong)?;
                    Ok(counted)
                }),
            };
            let counted = counted.map_err(failure)?;
            *lock(&counters).entry(kernel.name().to_string()).or_default() += counted;
            Ok(())
        };
        // Nothing starts yet, so no fault occurs.
        if let Some(captured) = lock(&self.captured).as_mut() {
            captured.push(Arc::new(work));
            return Ok(());
        }
        self.push(Call::Launch, Box::new(work))
    }

    fn has_graphs(&self) -> bool {
        true
    }

    fn has_branches(&self) -> bool {
        true
    }

    // There is only one queue, so later work always runs later.
    unsafe fn wait_event(&self, _stream: Stream, event: Event) -> Reply<()> {
        self.faults.enter(Call::WaitEvent.name())?;
        lock(&self.handles).events.contains_key(&event.0).then_some(()).ok_or(INVALID_HANDLE)
    }

    unsafe fn begin_capture(&self, _stream: Stream) -> Reply<()> {
        self.faults.enter(Call::BeginCapture.name())?;
        *lock(&self.captured) = Some(Vec::new());
        Ok(())
    }

    unsafe fn end_capture(&self, _stream: Stream) -> Reply<LaunchGraph> {
        let captured = lock(&self.captured).take().ok_or(INVALID_VALUE)?;
        self.faults.enter(Call::EndCapture.name())?;
        let mut handles = lock(&self.handles);
        let handle = handles.handle();
        handles.graphs.insert(handle, captured);
        Ok(LaunchGraph(handle))
    }

    unsafe fn launch_graph(&self, graph: LaunchGraph, _stream: Stream) -> Reply<()> {
        let works = lock(&self.handles).graphs.get(&graph.0).cloned().ok_or(INVALID_HANDLE)?;
        self.push(Call::LaunchGraph, Box::new(move || works.iter().try_for_each(|work| work())))
    }

    unsafe fn destroy_graph(&self, graph: LaunchGraph) -> Reply<()> {
        self.faults.enter(Call::DestroyGraph.name())?;
        lock(&self.handles).graphs.remove(&graph.0).map(|_| ()).ok_or(INVALID_HANDLE)
    }
}
