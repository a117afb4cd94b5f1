//! The driver of one process: its devices, and the ioctls.

#![allow(unsafe_code)]

use crate::abi::{self, Command, wait};
use crate::card::Card;
use crate::events::{Events, Outcome, Told};
use crate::inject::Injector;
use crate::memory::{Allocation, Orphan};
use crate::options::Options;
use crate::process;
use crate::queue::Queue;
use crate::record::Record;
use crate::space::Space;
use crate::svm::Ranges;
use crate::topology::gpu_id;
use bytemuck::Zeroable;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use virtual_gpu::{Gpu, PacketCode};

/// Nothing, or a number of errno.
pub(crate) type Answer = Result<(), i32>;

/// Bytes of the largest argument, with room for those of newer interfaces.
const MOST_BYTES: usize = 256;
/// Longest wait for launches that use memory of the process when it is unmapped. A kernel that goes on after it is
/// a hang, which touches no other memory than before.
const UNMAP_LIMIT: Duration = Duration::from_secs(10);
/// `GET_CLOCK_COUNTERS` counts 100 million a second.
const FREQUENCY: u64 = 100_000_000;

/// A card of the machine.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) card: Card,
    pub(crate) gpu: Gpu,
    pub(crate) code: PacketCode,
    pub(crate) in_flight: InFlight,
}

/// Launches and copies that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<(u64, BTreeSet<u64>)>,
    ended: Condvar,
}

/// One of them, until it is dropped.
pub(crate) struct Flight<'a>(&'a InFlight, u64);

impl InFlight {
    fn state(&self) -> MutexGuard<'_, (u64, BTreeSet<u64>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one.
    pub(crate) fn begin(&self) -> Flight<'_> {
        let mut state = self.state();
        state.0 += 1;
        let number = state.0;
        state.1.insert(number);
        Flight(self, number)
    }

    /// Waits until all that have begun have ended, for a limited time; false if one goes on.
    pub(crate) fn wait(&self) -> bool {
        let (mut state, until) = (self.state(), Instant::now() + UNMAP_LIMIT);
        let last = state.0;
        while state.1.first().is_some_and(|&first| first <= last) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.state().1.remove(&self.1);
        self.0.ended.notify_all();
    }
}

/// State under one lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) next_handle: u64,
    /// Freed memory that descriptors still stand for.
    pub(crate) exported: Vec<Orphan>,
    /// Bytes in use of each card.
    pub(crate) used: Vec<u64>,
    /// Shared virtual memory of each card.
    pub(crate) shared: Vec<Ranges>,
    pub(crate) queues: BTreeMap<u32, Arc<Queue>>,
    pub(crate) next_queue: u32,
}

/// All of the driver that queues' threads use, too. Fields are dropped in this order: devices know parts of the
/// space.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) devices: Vec<Device>,
    pub(crate) state: Mutex<State>,
    pub(crate) events: Events,
    pub(crate) injector: Injector,
    pub(crate) record: Record,
    minor: u32,
    svm: bool,
    start: Instant,
    pub(crate) space: Space,
}

/// The driver of one process. Its queues stop when it is dropped.
#[derive(Debug)]
pub struct Driver {
    pub(crate) shared: Arc<Shared>,
}

impl Driver {
    /// Creates a machine.
    ///
    /// # Errors The system gives no memory, or the file of the log cannot be written.
    pub fn new(options: &Options) -> io::Result<Driver> {
        let device = |card: &Card| {
            // The driver counts memory itself.
            let processor = virtual_gpu::Options {
                checks: options.checks,
                max_instructions: options.max_instructions,
                memory: u64::MAX,
            };
            Device {
                card: card.clone(),
                gpu: Gpu::new(card.target, processor),
                code: PacketCode::default(),
                in_flight: InFlight::default(),
            }
        };
        let state = State {
            next_handle: 1,
            used: vec![0; options.cards.len()],
            shared: options.cards.iter().map(|_| Ranges::default()).collect(),
            next_queue: 1,
            ..State::default()
        };
        let shared = Shared {
            devices: options.cards.iter().map(device).collect(),
            state: Mutex::new(state),
            events: Events::default(),
            injector: Injector::new(&options.faults),
            record: Record::new(options.log.as_deref(), options.counts.as_deref())?,
            minor: options.minor,
            svm: options.has_svm(),
            start: Instant::now(),
            space: Space::new()?,
        };
        Ok(Driver { shared: Arc::new(shared) })
    }

    /// Returns a descriptor of `/dev/kfd` (`None`) or of a card's render node, which the caller closes. It is one of a
    /// file of memory: the offsets that ioctls return can be mapped.
    ///
    /// # Errors A number of errno.
    pub fn open(&self, card: Option<usize>) -> Result<std::ffi::c_int, i32> {
        self.shared.space.descriptor(card.map_or(0, |card| card as u64 + 1)).map(IntoRawFd::into_raw_fd)
    }

    /// Returns the index of the card whose render node a descriptor of [`Driver::open`] stands for. Duplicates stand
    /// for the same.
    pub fn card_of(&self, fd: std::ffi::c_int) -> Option<usize> {
        let index = usize::try_from(Space::position(fd)?).ok()?.checked_sub(1)?;
        (self.is_descriptor(fd) && index < self.shared.devices.len()).then_some(index)
    }

    /// Returns true if a descriptor comes from [`Driver::open`], or is a duplicate of such a one.
    pub fn is_descriptor(&self, fd: std::ffi::c_int) -> bool {
        self.shared.space.is_file_of(fd)
    }

    /// Appends the counts to their file, if the options name one.
    pub fn write_counts(&self) {
        self.shared.record.write(self.shared.events.late());
    }

    /// Answers an ioctl of `/dev/kfd`.
    ///
    /// # Errors A number of errno: `ENOTTY` for an ioctl that this version of the interface does not have.
    ///
    /// # Safety
    /// `argument` is the address of as many bytes as the request says, laid out as the interface requires. Addresses
    /// in it are valid as the interface requires: rings, signals and memory of the process until they are destroyed
    /// or unmapped.
    pub unsafe fn ioctl(&self, request: u32, argument: *mut u8) -> Result<(), i32> {
        let (number, bytes) = (request & 0xff, (request >> 16 & 0x3fff) as usize);
        let command = Command::find(number).filter(|c| c.since <= self.shared.minor);
        let Some(command) = command else {
            self.shared.log(|| format!("ioctl {number:#x} of {bytes} bytes: unknown"));
            self.shared.record.count("ioctl", &format!("{number:#04x}, unknown"));
            return Err(libc::ENOTTY);
        };
        let mut buffer = Argument::zeroed();
        // As the kernel: bytes that the caller's argument lacks are 0, those that ours lacks are left alone.
        let bytes = bytes.min(MOST_BYTES);
        // SAFETY: the caller's promise; the buffer has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(argument, buffer.0.as_mut_ptr().cast(), bytes) };
        let answer = match self.shared.injector.ioctl(command.name) {
            Some(errno) => Err(errno),
            None => self.answer(command, &mut buffer),
        };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(buffer.0.as_ptr().cast(), argument, bytes) };
        self.shared.note(command, answer);
        answer
    }

    fn answer(&self, command: &Command, argument: &mut Argument) -> Answer {
        let shared = &self.shared;
        match command.number {
            abi::GET_VERSION => {
                *argument.get() = abi::GetVersion { major: abi::MAJOR, minor: shared.minor };
                Ok(())
            }
            abi::CREATE_QUEUE => Queue::create(shared, argument.get()),
            abi::DESTROY_QUEUE => shared.destroy_queue(argument.get::<abi::DestroyQueue>().queue_id),
            abi::UPDATE_QUEUE => shared.update_queue(argument.get()),
            abi::GET_CLOCK_COUNTERS => shared.clocks(argument.get()),
            abi::GET_PROCESS_APERTURES_NEW => shared.apertures(argument.get()),
            abi::ALLOC_MEMORY_OF_GPU => shared.allocate(argument.get()),
            abi::FREE_MEMORY_OF_GPU => shared.free(argument.get::<abi::FreeMemory>().handle),
            abi::MAP_MEMORY_TO_GPU => shared.map(argument.get()),
            abi::UNMAP_MEMORY_FROM_GPU => shared.unmap(argument.get()),
            abi::AVAILABLE_MEMORY => shared.available(argument.get()),
            abi::GET_DMABUF_INFO => shared.describe_export(argument.get()),
            abi::IMPORT_DMABUF => shared.import_dmabuf(argument.get()),
            abi::EXPORT_DMABUF => shared.export_dmabuf(argument.get()),
            abi::CREATE_EVENT => shared.create_event(argument.get()),
            abi::DESTROY_EVENT => found(shared.events.destroy(argument.event())),
            abi::SET_EVENT => found(shared.events.set(argument.event())),
            abi::RESET_EVENT => found(shared.events.reset(argument.event())),
            abi::WAIT_EVENTS => shared.wait_events(argument.get()),
            abi::SVM => {
                let argument = argument.get::<[u64; MOST_BYTES / 8]>();
                let (head, rest) = argument.split_at_mut(size_of::<abi::Svm>() / 8);
                let a: abi::Svm = bytemuck::pod_read_unaligned(bytemuck::cast_slice(head));
                let attributes: &mut [abi::SvmAttribute] = bytemuck::cast_slice_mut(rest);
                let attributes = attributes.get_mut(..a.count as usize).ok_or(libc::EINVAL)?;
                if shared.svm { shared.svm(a.start, a.bytes, a.op, attributes) } else { Err(libc::ENOTTY) }
            }
            abi::GET_TILE_CONFIG => {
                let a: &mut abi::GetTileConfig = argument.get();
                (a.tile_count, a.macro_tile_count) = (0, 0);
                Ok(())
            }
            // Retried page faults are off, and stay so.
            abi::SET_XNACK_MODE => {
                let a: &mut abi::SetXnackMode = argument.get();
                if a.enabled > 0 {
                    return Err(libc::EPERM);
                }
                a.enabled = 0;
                Ok(())
            }
            // Caches, scratch, trap handlers, shares of compute units: nothing of them is modelled.
            abi::SET_MEMORY_POLICY
            | abi::SET_SCRATCH_BACKING_VA
            | abi::SET_TRAP_HANDLER
            | abi::ACQUIRE_VM
            | abi::SET_CU_MASK
            | abi::RUNTIME_ENABLE => Ok(()),
            _ => Err(libc::ENOTTY),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.events.close();
        let queues = std::mem::take(&mut self.shared.state().queues);
        for queue in queues.into_values() {
            // A thread that goes on holds what it uses.
            let _ = queue.stop();
        }
        self.write_counts();
    }
}

/// The argument of an ioctl.
#[repr(C, align(8))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Argument([u64; MOST_BYTES / 8]);

impl Argument {
    /// Returns it as one of the interface's structures.
    fn get<T: bytemuck::Pod>(&mut self) -> &mut T {
        bytemuck::from_bytes_mut(&mut bytemuck::bytes_of_mut(self)[..size_of::<T>()])
    }

    fn event(&mut self) -> u32 {
        self.get::<abi::OfEvent>().event_id
    }
}

fn found(found: bool) -> Answer {
    if found { Ok(()) } else { Err(libc::EINVAL) }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of a card.
    pub(crate) fn card(&self, id: u32) -> Result<usize, i32> {
        (0..self.devices.len()).find(|&i| gpu_id(i) == id).ok_or(libc::EINVAL)
    }

    /// Returns the time in ticks of [`FREQUENCY`].
    pub(crate) fn clock(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64 / (1_000_000_000 / FREQUENCY)
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        self.record.log(line);
    }

    fn note(&self, command: &Command, answer: Answer) {
        // A wait is logged by what it waits for.
        match answer {
            Ok(()) => self.record.count("ioctl", command.name),
            Err(errno) => self.record.count("ioctl", &format!("{}, errno {errno}", command.name)),
        }
        if command.number != abi::WAIT_EVENTS || answer.is_err() {
            self.log(|| format!("{} ({:#x}): {answer:?}", command.name, command.number));
        }
    }

    fn clocks(&self, a: &mut abi::GetClockCounters) -> Answer {
        let now = self.clock();
        // The processor has a clock, too, and no card's.
        let gpu = self.card(a.gpu_id).map_or(0, |_| now);
        (a.gpu, a.cpu, a.system, a.frequency) = (gpu, now, now, FREQUENCY);
        Ok(())
    }

    fn apertures(&self, a: &mut abi::GetApertures) -> Answer {
        let (lds, scratch) = Gpu::apertures();
        let (lds, scratch) = (u64::from(lds) << 32, u64::from(scratch) << 32);
        let fits = if a.array == 0 { 0 } else { (a.count as usize).min(self.devices.len()) };
        for i in 0..fits {
            let of = abi::Apertures {
                lds_base: lds,
                lds_limit: lds + u64::from(u32::MAX),
                scratch_base: scratch,
                scratch_limit: scratch + u64::from(u32::MAX),
                gpu_base: 4096,
                gpu_limit: (1 << 47) - 1,
                gpu_id: gpu_id(i),
                pad: 0,
            };
            // SAFETY: the interface's promise: the address of `count` structures.
            unsafe { process::write(a.array + (i * size_of::<abi::Apertures>()) as u64, of) };
        }
        a.count = self.devices.len() as u32;
        Ok(())
    }

    fn create_event(&self, a: &mut abi::CreateEvent) -> Answer {
        let id = self.events.create(a.kind, a.auto_reset != 0).ok_or(libc::ENOSPC)?;
        self.record.count("event", &format!("kind {}", a.kind));
        // Not 0: the runtime takes the slot of its page as the event's mailbox.
        a.page_offset = 1 << 62;
        (a.event_id, a.slot, a.trigger) = (id, id, id);
        Ok(())
    }

    fn wait_events(&self, a: &mut abi::WaitEvents) -> Answer {
        if a.count > 4096 {
            return Err(libc::EINVAL);
        }
        let has_ages = self.minor >= 14;
        // SAFETY: the interface's promise: the address of `count` structures.
        let mut data: Vec<abi::EventData> = unsafe { process::read_array(a.events, a.count as usize) };
        let events: Vec<(u32, u64)> =
            data.iter().map(|e| (e.event_id, if has_ages { e.data[0] } else { 0 })).collect();
        let limit = (a.timeout_ms != u32::MAX).then(|| Duration::from_millis(a.timeout_ms.into()));
        let outcome = self.events.wait(&events, a.all != 0, limit);
        let told = match outcome {
            Outcome::Timeout => {
                a.result = wait::TIMEOUT;
                return Ok(());
            }
            Outcome::Fail | Outcome::Unknown => {
                a.result = wait::FAIL;
                return Err(if outcome == Outcome::Fail { libc::EIO } else { libc::EINVAL });
            }
            Outcome::Complete(told) => told,
        };
        a.result = wait::COMPLETE;
        for (i, told) in told.into_iter().enumerate().filter_map(|(i, told)| Some((i, told?))) {
            data[i].data = describe(told, has_ages).unwrap_or(data[i].data);
            self.log(|| format!("event {}: {told:x?}", data[i].event_id));
            // SAFETY: as above.
            unsafe { process::write(a.events + (i * size_of::<abi::EventData>()) as u64, data[i]) };
        }
        Ok(())
    }

    /// Reports an access of a card to a page that is not mapped.
    pub(crate) fn page_fault(&self, card: usize, address: u64) {
        self.log(|| format!("page fault of card {card} at {address:#x}"));
        self.record.count("fault", "page");
        self.events.fault(Told::PageFault { address, gpu_id: gpu_id(card) });
    }

    /// Reports the reset of a card.
    pub(crate) fn reset(&self, card: usize) {
        self.log(|| format!("reset of card {card}"));
        self.record.count("fault", "reset");
        self.events.fault(Told::Reset { gpu_id: gpu_id(card) });
    }
}

/// Returns the description of an event as the interface lays it out.
fn describe(told: Told, has_ages: bool) -> Option<[u64; 4]> {
    match told {
        Told::Signal(age) => has_ages.then_some([age, 0, 0, 0]),
        // `kfd_hsa_memory_exception_data`: not present; address; card.
        Told::PageFault { address, gpu_id } => Some([1, 0, address, gpu_id.into()]),
        // `kfd_hsa_hw_exception_data`: reset of the whole card after a hang; memory is lost.
        Told::Reset { gpu_id } => Some([0, 1 | u64::from(gpu_id) << 32, 0, 0]),
    }
}
