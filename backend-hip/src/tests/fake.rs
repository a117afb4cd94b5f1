//! Fake driver for tests: device memory is memory of this process, kernels are a few lines of Rust, and any
//! call fails or hangs on request.

use super::fake_kernels::IMAGE;
use crate::code::ptx;
use crate::driver::codes::{Call, OUT_OF_MEMORY};
use crate::driver::{
    Address, Arguments, Code, Coherence, Direction, Driver, Event, Function, Library, Module, Properties,
    Reply, Shape, Stream, WRONG_LIBRARY,
};
use ggml_core::kernel::{BinaryParams, NormParams, RopeParams, UnaryParams};
use ggml_core::sync::lock;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Behaviour of a call in place of its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Returns a code.
    Fail(Code),
    /// Does not return until [`Fake::release`].
    Hang,
    /// Takes a while, then works.
    Slow(Duration),
    /// For launches: the call works, but this launch and all work after it never completes.
    Stall,
    /// For launches: as `Stall`, but events that wait for it give a code.
    Break(Code),
}

/// Result of loading a library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Libraries {
    Load,
    Fail,
    /// As `Load`, after [`Fake::release`].
    Hang,
}

#[derive(Debug, Default)]
struct State {
    device: BTreeMap<Address, Vec<u8>>,
    host: HashMap<usize, Box<[u8]>>,
    /// For each event, the index of the work before its last record.
    events: HashMap<u64, usize>,
    streams: usize,
    modules: usize,
    /// Names of the kernels of the libraries that were loaded, and the number of those that still are.
    libraries: (Vec<String>, usize),
    functions: Vec<String>,
    next: u64,
    calls: HashMap<&'static str, usize>,
    faults: Vec<(Call, usize, Fault)>,
    work: usize,
    /// Work from which on nothing completes, and the code that waiting returns.
    stalled: Option<(usize, Option<Code>)>,
    used_null_stream: bool,
    /// Kinds of the allocations of host memory, in their order.
    coherence: Vec<Coherence>,
}

/// Fake driver.
#[derive(Debug)]
pub(crate) struct Fake {
    state: Mutex<State>,
    released: AtomicBool,
    pub(crate) properties: Mutex<Properties>,
    pub(crate) memory: usize,
    /// Version of the runtime.
    pub(crate) version: Option<&'static str>,
    /// Name of the driver.
    pub(crate) name: &'static str,
    /// Result of loading a library, if there are libraries.
    pub(crate) libraries: Option<Libraries>,
    /// A contradiction between the library's name and its version.
    pub(crate) wrong: Option<&'static str>,
}

impl Fake {
    /// Returns the kind of the last allocation of host memory.
    pub(crate) fn last_host_memory(&self) -> Option<Coherence> {
        lock(&self.state).coherence.last().copied()
    }
}

impl Default for Fake {
    fn default() -> Fake {
        let properties = Properties {
            name: "Fake".into(),
            arch: "gfx906:sramecc+:xnack-".into(),
            uuid: Some(*b"0123456789abcdef"),
            memory: 1 << 30,
            wave: 64,
            lds_bytes: 65536,
            max_threads: 1024,
            compute_units: 60,
            pci: [0, 3, 0],
            layout: "fake",
            ..Properties::default()
        };
        let state = State { next: 0x7000_0000_0000, ..State::default() };
        Fake {
            state: Mutex::new(state),
            released: AtomicBool::new(false),
            properties: Mutex::new(properties),
            memory: 1 << 30,
            version: None,
            libraries: None,
            wrong: None,
            name: "fake",
        }
    }
}

impl Fake {
    /// Requests a fault at the `n`th of the following calls, counted from 0.
    pub(crate) fn fault(&self, call: Call, n: usize, fault: Fault) {
        let mut state = lock(&self.state);
        let so_far = state.calls.get(call.name()).copied().unwrap_or(0);
        state.faults.push((call, so_far + n, fault));
    }

    /// Ends all hangs.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }

    /// Returns the number of calls of a function.
    pub(crate) fn count(&self, call: Call) -> usize {
        lock(&self.state).calls.get(call.name()).copied().unwrap_or(0)
    }

    /// Returns the number of live allocations, pinned blocks, events, streams and modules.
    pub(crate) fn held(&self) -> [usize; 5] {
        let s = lock(&self.state);
        [s.device.len(), s.host.len(), s.events.len(), s.streams, s.modules]
    }

    /// Returns a fake of an NVIDIA device.
    pub(crate) fn nvidia(libraries: Libraries) -> Fake {
        let fake = Fake { libraries: Some(libraries), ..Fake::default() };
        let properties = Properties { arch: "sm_90".into(), wave: 32, ..lock(&fake.properties).clone() };
        *lock(&fake.properties) = properties;
        fake
    }

    /// Returns the names of the kernels whose libraries were to be loaded, sorted, and the number of those that are.
    pub(crate) fn libraries(&self) -> (Vec<String>, usize) {
        let (mut names, live) = lock(&self.state).libraries.clone();
        names.sort();
        (names, live)
    }

    fn wait_for_release(&self) {
        while !self.released.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns true if work was submitted to the NULL stream.
    pub(crate) fn used_null_stream(&self) -> bool {
        lock(&self.state).used_null_stream
    }

    /// Counts a call and applies its fault.
    fn enter(&self, call: Call) -> Reply<Option<Fault>> {
        let fault = {
            let mut state = lock(&self.state);
            let n = state.calls.entry(call.name()).or_default();
            let now = *n;
            *n += 1;
            state.faults.iter().find(|(c, at, _)| *c == call && *at == now).map(|f| f.2)
        };
        match fault {
            Some(Fault::Fail(code)) => Err(code),
            Some(Fault::Hang) => {
                self.wait_for_release();
                Err(999)
            }
            Some(Fault::Slow(time)) => {
                std::thread::sleep(time);
                Ok(None)
            }
            other => Ok(other),
        }
    }

    fn handle(state: &mut State) -> u64 {
        state.next += 0x10_0000;
        state.next
    }
}

impl State {
    /// If the fault requests it, nothing completes from the last added work on.
    fn stall(&mut self, fault: Option<Fault>) {
        let code = match fault {
            Some(Fault::Stall) => None,
            Some(Fault::Break(code)) => Some(code),
            _ => return,
        };
        self.stalled = self.stalled.or(Some((self.work, code)));
    }

    fn bytes(&mut self, address: Address, len: usize) -> Reply<&mut [u8]> {
        let (base, block) = self.device.range_mut(..=address).next_back().ok_or(1)?;
        let at = (address - base) as usize;
        block.get_mut(at..at + len).ok_or(700)
    }

    fn floats(&mut self, address: Address, count: usize) -> Reply<Vec<f32>> {
        let bytes = self.bytes(address, count * 4)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn run(&mut self, name: &str, p: &[Address], params: &[u8]) -> Reply<()> {
        let (count, out): (usize, Vec<f32>) = match name {
            "add" => {
                let n = params_of::<BinaryParams>(params).ne.iter().product::<u32>() as usize;
                let (a, b) = (self.floats(p[0], n)?, self.floats(p[1], n)?);
                (n, a.iter().zip(&b).map(|(a, b)| a + b).collect())
            }
            "scale" => {
                let params = params_of::<UnaryParams>(params);
                let n = params.ne.iter().product::<u32>() as usize;
                (
                    n,
                    self.floats(p[0], n)?
                        .iter()
                        .map(|a| a * params.scale[0][0] + params.scale[0][1])
                        .collect(),
                )
            }
            // Computed through scratch: twice the operand, then half of that.
            "double" | "halve" => {
                let n = params_of::<NormParams>(params).ne.iter().product::<u32>() as usize;
                let factor = if name == "double" { 2.0 } else { 0.5 };
                (n, self.floats(p[0], n)?.iter().map(|a| a * factor).collect())
            }
            // The first two values of the constant.
            "constant" => {
                let n = params_of::<RopeParams>(params).ne.iter().product::<u32>() as usize;
                let table = self.floats(p[2], 2)?;
                (n, table.iter().copied().cycle().take(n).collect())
            }
            _ => return Err(98),
        };
        let to = self.bytes(*p.last().ok_or(1)?, count * 4)?;
        to.copy_from_slice(bytemuck::cast_slice(&out));
        Ok(())
    }
}

fn params_of<T: bytemuck::Pod>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

impl Driver for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn versions(&self) -> Vec<(String, String)> {
        let version = self.version.map(|version| ("hip runtime".into(), version.into()));
        let wrong = self.wrong.map(|text| (WRONG_LIBRARY.into(), text.into()));
        [("library".into(), "/fake/libamdhip64.so.6".into())]
            .into_iter()
            .chain(version)
            .chain(wrong)
            .collect()
    }

    fn major(&self) -> Option<u32> {
        Some(7)
    }

    fn error_name(&self, code: Code) -> Option<String> {
        (code == 777_777).then(|| "hipErrorOfTomorrow".into())
    }

    fn init(&self) -> Reply<()> {
        self.enter(Call::Init).map(|_| ())
    }

    fn device_count(&self) -> Reply<u32> {
        self.enter(Call::DeviceCount).map(|_| 1)
    }

    fn properties(&self, _device: u32) -> Reply<Properties> {
        self.enter(Call::Properties)?;
        Ok(lock(&self.properties).clone())
    }

    fn attach(&self, _device: u32) -> Reply<()> {
        self.enter(Call::Attach).map(|_| ())
    }

    fn memory(&self) -> Reply<(u64, u64)> {
        self.enter(Call::MemoryInfo)?;
        let used: usize = lock(&self.state).device.values().map(Vec::len).sum();
        Ok(((self.memory - used) as u64, self.memory as u64))
    }

    fn allocate(&self, bytes: usize) -> Reply<Address> {
        self.enter(Call::Allocate)?;
        let mut state = lock(&self.state);
        if state.device.values().map(Vec::len).sum::<usize>() + bytes > self.memory {
            return Err(OUT_OF_MEMORY);
        }
        state.next += 0x1_0000_0000;
        let address = state.next;
        state.device.insert(address, vec![0x5a; bytes]);
        Ok(address)
    }

    unsafe fn free(&self, address: Address) -> Reply<()> {
        self.enter(Call::Free)?;
        lock(&self.state).device.remove(&address).map(|_| ()).ok_or(1)
    }

    fn allocate_host(&self, bytes: usize, coherence: Coherence) -> Reply<NonNull<u8>> {
        self.enter(Call::AllocateHost)?;
        lock(&self.state).coherence.push(coherence);
        let mut block = vec![0x5a; bytes].into_boxed_slice();
        let address = NonNull::new(block.as_mut_ptr()).ok_or(2)?;
        lock(&self.state).host.insert(address.as_ptr() as usize, block);
        Ok(address)
    }

    unsafe fn free_host(&self, address: NonNull<u8>) -> Reply<()> {
        self.enter(Call::FreeHost)?;
        lock(&self.state).host.remove(&(address.as_ptr() as usize)).map(|_| ()).ok_or(1)
    }

    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Stream) -> Reply<()> {
        self.enter(Call::Fill)?;
        let mut state = lock(&self.state);
        state.used_null_stream |= stream.0 == 0;
        state.work += 1;
        state.bytes(to, bytes)?.fill(byte);
        Ok(())
    }

    unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        direction: Direction,
        stream: Stream,
    ) -> Reply<()> {
        let fault = self.enter(Call::Copy)?;
        let mut state = lock(&self.state);
        state.used_null_stream |= stream.0 == 0;
        state.work += 1;
        state.stall(fault);
        let host_from = matches!(direction, Direction::HostToDevice | Direction::HostToHost);
        let host_to = matches!(direction, Direction::DeviceToHost | Direction::HostToHost);
        let data = if host_from {
            // SAFETY: the caller guarantees pinned memory of this driver that contains the range.
            unsafe { std::slice::from_raw_parts(from as usize as *const u8, bytes) }.to_vec()
        } else {
            state.bytes(from, bytes)?.to_vec()
        };
        if host_to {
            // SAFETY: as above.
            unsafe { (to as usize as *mut u8).copy_from_nonoverlapping(data.as_ptr(), bytes) };
        } else {
            state.bytes(to, bytes)?.copy_from_slice(&data);
        }
        Ok(())
    }

    fn create_stream(&self) -> Reply<Stream> {
        self.enter(Call::CreateStream)?;
        let mut state = lock(&self.state);
        state.streams += 1;
        Ok(Stream(Fake::handle(&mut state)))
    }

    unsafe fn destroy_stream(&self, _stream: Stream) -> Reply<()> {
        self.enter(Call::DestroyStream)?;
        lock(&self.state).streams -= 1;
        Ok(())
    }

    fn create_event(&self, _timing: bool) -> Reply<Event> {
        self.enter(Call::CreateEvent)?;
        let mut state = lock(&self.state);
        let event = Fake::handle(&mut state);
        state.events.insert(event, 0);
        Ok(Event(event))
    }

    unsafe fn destroy_event(&self, event: Event) -> Reply<()> {
        self.enter(Call::DestroyEvent)?;
        lock(&self.state).events.remove(&event.0).map(|_| ()).ok_or(400)
    }

    unsafe fn record(&self, event: Event, _stream: Stream) -> Reply<()> {
        self.enter(Call::Record)?;
        let mut state = lock(&self.state);
        let work = state.work;
        state.events.insert(event.0, work).map(|_| ()).ok_or(400)
    }

    unsafe fn complete(&self, event: Event) -> Reply<bool> {
        self.enter(Call::Query)?;
        let state = lock(&self.state);
        let after = *state.events.get(&event.0).ok_or(400)?;
        match state.stalled {
            Some((from, code)) if after >= from => code.map_or(Ok(false), Err),
            _ => Ok(true),
        }
    }

    unsafe fn elapsed_ms(&self, _from: Event, _to: Event) -> Reply<Option<f32>> {
        self.enter(Call::Elapsed).map(|_| Some(1.5))
    }

    unsafe fn load_module(&self, image: &[u8]) -> Reply<Module> {
        self.enter(Call::LoadModule)?;
        let is_text = self.libraries.is_some() && ptx::is_ptx(image);
        if image.as_ptr().align_offset(4096) != 0 || image != IMAGE && !is_text {
            return Err(200);
        }
        let mut state = lock(&self.state);
        state.modules += 1;
        Ok(Module(Fake::handle(&mut state)))
    }

    fn has_libraries(&self) -> bool {
        self.libraries.is_some()
    }

    fn load_library(&self, image: &[u8]) -> Option<(Library, Module)> {
        let (object, _) = ptx::read(image).ok()?;
        let [kernel] = &object.kernels[..] else { return None };
        lock(&self.state).libraries.0.push(kernel.name.clone());
        match self.libraries? {
            Libraries::Load => {}
            Libraries::Fail => return None,
            Libraries::Hang => self.wait_for_release(),
        }
        let mut state = lock(&self.state);
        state.libraries.1 += 1;
        let handle = Fake::handle(&mut state);
        Some((Library(handle), Module(handle)))
    }

    unsafe fn unload_library(&self, _library: Library) -> Reply<()> {
        lock(&self.state).libraries.1 -= 1;
        Ok(())
    }

    unsafe fn unload_module(&self, _module: Module) -> Reply<()> {
        self.enter(Call::UnloadModule)?;
        lock(&self.state).modules -= 1;
        Ok(())
    }

    unsafe fn function(&self, _module: Module, name: &CStr) -> Reply<Function> {
        self.enter(Call::Function)?;
        let mut state = lock(&self.state);
        state.functions.push(name.to_string_lossy().into_owned());
        Ok(Function(state.functions.len() as u64 - 1))
    }

    unsafe fn launch(
        &self,
        function: Function,
        _shape: Shape,
        args: Arguments<'_>,
        stream: Stream,
    ) -> Reply<()> {
        let fault = self.enter(Call::Launch)?;
        let mut state = lock(&self.state);
        state.used_null_stream |= stream.0 == 0;
        state.work += 1;
        state.stall(fault);
        let name = state.functions.get(function.0 as usize).cloned().ok_or(400)?;
        // The last argument is the parameter structure.
        let (&structure, pointers) = args.offsets.split_last().ok_or(1)?;
        let pointer = |&at: &u32| {
            let bytes = args.bytes.get(at as usize..at as usize + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let pointers: Vec<Address> = pointers.iter().map(pointer).collect::<Option<_>>().ok_or(1)?;
        state.run(&name, &pointers, &args.bytes[structure as usize..])
    }
}
