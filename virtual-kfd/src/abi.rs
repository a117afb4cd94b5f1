//! The interface of `/dev/kfd`: numbers of the ioctls and their arguments.
//!
//! Source: `include/uapi/linux/kfd_ioctl.h` of Linux 6.14 (version 1.17 of the interface); the names of the
//! fields are ours.

use bytemuck::{Pod, Zeroable};

/// Major version of the interface.
pub(crate) const MAJOR: u32 = 1;

/// One ioctl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Its number, the low byte of the request.
    pub(crate) number: u32,
    /// Its name in the kernel's header, without `AMDKFD_IOC_`.
    pub(crate) name: &'static str,
    /// Bytes of its argument.
    #[cfg(test)]
    bytes: usize,
    /// Minor version of the interface that brought it.
    pub(crate) since: u32,
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
    )*};
}

arguments! {
    /// Version of the interface, from the driver.
    GetVersion { major: u32, minor: u32, }
    /// A new queue; the doorbell's offset and the queue's number come from the driver.
    CreateQueue {
        ring: u64,
        write_pointer: u64,
        read_pointer: u64,
        doorbell_offset: u64,
        ring_bytes: u32,
        gpu_id: u32,
        kind: u32,
        percentage: u32,
        priority: u32,
        queue_id: u32,
        end_of_pipe: u64,
        end_of_pipe_bytes: u64,
        context: u64,
        context_bytes: u32,
        stack_bytes: u32,
    }
    /// A queue ends.
    DestroyQueue { queue_id: u32, pad: u32, }
    /// Caching of memory.
    SetMemoryPolicy {
        alternate_base: u64,
        alternate_bytes: u64,
        gpu_id: u32,
        default_policy: u32,
        alternate_policy: u32,
        pad: u32,
    }
    /// Clocks, from the driver.
    GetClockCounters { gpu: u64, cpu: u64, system: u64, frequency: u64, gpu_id: u32, pad: u32, }
    /// A queue's ring or share changes.
    UpdateQueue { ring: u64, queue_id: u32, ring_bytes: u32, percentage: u32, priority: u32, }
    /// A new event; `page_offset`, `trigger`, `event_id` and `slot` come from the driver.
    CreateEvent {
        page_offset: u64,
        trigger: u32,
        kind: u32,
        auto_reset: u32,
        node: u32,
        event_id: u32,
        slot: u32,
    }
    /// Destroys, sets or resets an event.
    OfEvent { event_id: u32, pad: u32, }
    /// Waits for one or all of some events, an array of [`EventData`].
    WaitEvents { events: u64, count: u32, all: u32, timeout_ms: u32, result: u32, }
    /// Backing of scratch.
    SetScratchBacking { address: u64, gpu_id: u32, pad: u32, }
    /// Tiling of images.
    GetTileConfig {
        tiles: u64,
        macro_tiles: u64,
        tile_count: u32,
        macro_tile_count: u32,
        gpu_id: u32,
        address_config: u32,
        banks: u32,
        ranks: u32,
    }
    /// Trap handler.
    SetTrapHandler { handler: u64, memory: u64, gpu_id: u32, pad: u32, }
    /// Apertures of all cards, written to an array of [`Apertures`].
    GetApertures { array: u64, count: u32, pad: u32, }
    /// Binds a render node's address space to the process.
    AcquireVm { render_fd: u32, gpu_id: u32, }
    /// New memory; `offset` is an address for memory of the process, otherwise it comes from the driver.
    AllocateMemory { address: u64, bytes: u64, handle: u64, offset: u64, gpu_id: u32, flags: u32, }
    /// Memory ends.
    FreeMemory { handle: u64, }
    /// Maps memory to cards, or removes it from them: `gpu_ids` is an array of `count` numbers.
    MapMemory { handle: u64, gpu_ids: u64, count: u32, done: u32, }
    /// Compute units of a queue.
    SetCuMask { queue_id: u32, bits: u32, mask: u64, }
    /// A descriptor of events for management tools, from the driver.
    SmiEvents { gpu_id: u32, fd: u32, }
    /// Shared virtual memory; an array of [`SvmAttribute`] follows.
    Svm { start: u64, bytes: u64, op: u32, count: u32, }
    /// Address space with retried page faults: 1, 0, or -1 to ask.
    SetXnackMode { enabled: i32, }
    /// Free memory of a card, from the driver.
    AvailableMemory { available: u64, gpu_id: u32, pad: u32, }
    /// The memory of a descriptor, from the driver.
    GetDmabufInfo { bytes: u64, metadata: u64, metadata_bytes: u32, gpu_id: u32, flags: u32, fd: u32, }
    /// Makes memory of a descriptor known to the process; the handle comes from the driver.
    ImportDmabuf { address: u64, handle: u64, gpu_id: u32, fd: u32, }
    /// A descriptor of memory, from the driver.
    ExportDmabuf { handle: u64, flags: u32, fd: u32, }
    /// Enables the debugger's view of a process.
    RuntimeEnable { debug_page: u64, mode: u32, capabilities: u32, }

    /// Apertures of one card.
    Apertures {
        lds_base: u64,
        lds_limit: u64,
        scratch_base: u64,
        scratch_limit: u64,
        gpu_base: u64,
        gpu_limit: u64,
        gpu_id: u32,
        pad: u32,
    }
    /// One attribute of shared virtual memory.
    SvmAttribute { kind: u32, value: u32, }
    /// One event to wait for. `data` is the fault's description or the age of a signal.
    EventData { data: [u64; 4], next: u64, event_id: u32, pad: u32, }
}

macro_rules! commands {
    ($($constant:ident = $number:literal, $kind:ty, $since:literal;)*) => {
        $(pub(crate) const $constant: u32 = $number;)*
        /// All ioctls that the driver knows, by number.
        pub(crate) const COMMANDS: &[Command] = &[$(Command {
            number: $number,
            name: stringify!($constant),
            #[cfg(test)]
            bytes: size_of::<$kind>(),
            since: $since,
        },)*];
    };
}

commands! {
    GET_VERSION = 0x01, GetVersion, 0;
    CREATE_QUEUE = 0x02, CreateQueue, 0;
    DESTROY_QUEUE = 0x03, DestroyQueue, 0;
    SET_MEMORY_POLICY = 0x04, SetMemoryPolicy, 0;
    GET_CLOCK_COUNTERS = 0x05, GetClockCounters, 0;
    UPDATE_QUEUE = 0x07, UpdateQueue, 0;
    CREATE_EVENT = 0x08, CreateEvent, 0;
    DESTROY_EVENT = 0x09, OfEvent, 0;
    SET_EVENT = 0x0a, OfEvent, 0;
    RESET_EVENT = 0x0b, OfEvent, 0;
    WAIT_EVENTS = 0x0c, WaitEvents, 0;
    SET_SCRATCH_BACKING_VA = 0x11, SetScratchBacking, 0;
    GET_TILE_CONFIG = 0x12, GetTileConfig, 0;
    SET_TRAP_HANDLER = 0x13, SetTrapHandler, 0;
    GET_PROCESS_APERTURES_NEW = 0x14, GetApertures, 0;
    ACQUIRE_VM = 0x15, AcquireVm, 0;
    ALLOC_MEMORY_OF_GPU = 0x16, AllocateMemory, 0;
    FREE_MEMORY_OF_GPU = 0x17, FreeMemory, 0;
    MAP_MEMORY_TO_GPU = 0x18, MapMemory, 0;
    UNMAP_MEMORY_FROM_GPU = 0x19, MapMemory, 0;
    SET_CU_MASK = 0x1a, SetCuMask, 0;
    GET_DMABUF_INFO = 0x1c, GetDmabufInfo, 0;
    IMPORT_DMABUF = 0x1d, ImportDmabuf, 0;
    SMI_EVENTS = 0x1f, SmiEvents, 3;
    SVM = 0x20, Svm, 5;
    SET_XNACK_MODE = 0x21, SetXnackMode, 5;
    AVAILABLE_MEMORY = 0x23, AvailableMemory, 9;
    EXPORT_DMABUF = 0x24, ExportDmabuf, 12;
    RUNTIME_ENABLE = 0x25, RuntimeEnable, 13;
}

impl Command {
    /// Returns the ioctl of a number.
    pub(crate) fn find(number: u32) -> Option<&'static Command> {
        COMMANDS.iter().find(|c| c.number == number)
    }
}

/// Kinds of queues.
pub(crate) mod queue {
    /// A copy engine.
    pub(crate) const SDMA: u32 = 1;
    /// Dispatch packets of HSA.
    pub(crate) const AQL: u32 = 2;
    /// A copy engine that is connected to other cards.
    pub(crate) const SDMA_XGMI: u32 = 3;
    /// A copy engine by its number.
    pub(crate) const SDMA_BY_ENGINE: u32 = 4;
}

/// Kinds of events.
pub(crate) mod event {
    /// A signal.
    pub(crate) const SIGNAL: u32 = 0;
    /// A reset or an error of the card.
    pub(crate) const HARDWARE: u32 = 3;
    /// A page fault.
    pub(crate) const MEMORY: u32 = 8;
}

/// Results of a wait.
pub(crate) mod wait {
    /// The events came.
    pub(crate) const COMPLETE: u32 = 0;
    /// The time passed.
    pub(crate) const TIMEOUT: u32 = 1;
    /// An event was destroyed, or there is none of this number.
    pub(crate) const FAIL: u32 = 2;
}

/// Flags of memory.
pub(crate) mod memory {
    /// Bits of the kinds.
    pub(crate) const KINDS: u32 = 31;
    /// Memory of the card.
    pub(crate) const VRAM: u32 = 1;
    /// Memory of the system.
    pub(crate) const GTT: u32 = 1 << 1;
    /// Memory of the process.
    pub(crate) const USERPTR: u32 = 1 << 2;
    /// Doorbells.
    pub(crate) const DOORBELL: u32 = 1 << 3;
    /// Registers that flush caches.
    pub(crate) const REMAPPED_REGISTERS: u32 = 1 << 4;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Program;

    /// The kernel's header, as the C compiler reads it, has the same numbers and sizes.
    #[test]
    fn numbers_and_sizes_are_those_of_the_header() {
        let dir = std::env::temp_dir().join(format!("virtual-kfd-abi-{}", std::process::id()));
        // The header includes one of graphics, which few systems have, and uses nothing of it.
        std::fs::create_dir_all(dir.join("drm")).unwrap();
        std::fs::write(dir.join("drm/drm.h"), "#include <linux/types.h>\n").unwrap();
        let mut text = String::from("#include <linux/kfd_ioctl.h>\n#include <stdio.h>\nint main(void) {\n");
        for c in COMMANDS {
            let name = c.name;
            text += &format!(
                "#ifdef AMDKFD_IOC_{name}\nprintf(\"{name} %u %u\\n\", (unsigned)_IOC_NR(AMDKFD_IOC_{name}), \
                 (unsigned)_IOC_SIZE(AMDKFD_IOC_{name}));\n#endif\n"
            );
        }
        text += "printf(\"event %zu\\n\", sizeof(struct kfd_event_data));\n";
        text += "printf(\"apertures %zu\\n\", sizeof(struct kfd_process_device_apertures));\nreturn 0;\n}\n";
        let (source, program) = (dir.join("abi.c"), dir.join("abi"));
        std::fs::write(&source, text).unwrap();
        let built =
            Program::new("cc").arg("-I").arg(&dir).arg(&source).arg("-o").arg(&program).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let output = Program::new(&program).output().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        let mut known = 0;
        for c in COMMANDS {
            let Some(line) = lines.iter().find(|l| l.split(' ').next() == Some(c.name)) else { continue };
            // Two that grew since, at their ends.
            let grown = matches!(c.number, CREATE_QUEUE) && line.ends_with(" 96");
            assert!(grown || **line == format!("{} {} {}", c.name, c.number, c.bytes), "{line} is not {c:?}");
            known += 1;
        }
        assert!(known >= 22, "{known} ioctls of {lines:?}");
        assert!(lines.contains(&format!("event {}", size_of::<EventData>()).as_str()), "{lines:?}");
        assert!(lines.contains(&format!("apertures {}", size_of::<Apertures>()).as_str()), "{lines:?}");
    }
}
