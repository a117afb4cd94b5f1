//! The driver of one process: its devices, and the ioctls.

#![allow(unsafe_code)]

use crate::abi::{self, Command};
use crate::card::Card;
use crate::events::Events;
use crate::inject::Injector;
use crate::options::Options;
use crate::queue;
use crate::ranges::Ranges;
use crate::record::Record;
use crate::shared::{Answer, Device, InFlight, Shared, State};
use crate::smi::Listeners;
use crate::space::Space;
use bytemuck::Zeroable;
use std::io;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use virtual_gpu::{Gpu, PacketCode};

/// Bytes of the largest argument, with room for those of newer interfaces.
const MOST_BYTES: usize = 256;
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
                // Kernel drivers zero memory and start work-groups in ascending order.
                random: virtual_gpu::Random {
                    memory: false,
                    groups: false,
                    approximations: false,
                    ..virtual_gpu::Random::ALL
                },
                seed: options.seed,
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
            smi: options.cards.iter().map(|_| Listeners::default()).collect(),
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
            abi::CREATE_QUEUE => queue::create(shared, argument.get()),
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
            abi::SMI_EVENTS => shared.open_events(argument.get()),
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

impl Shared {
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
