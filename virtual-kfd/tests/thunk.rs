//! A thunk and a runtime: ioctls, mappings, rings, signals.
//!
//! Numbers and layouts are written down here again, from the kernel's and ROCm's headers, so that the crate's own are
//! tested.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use virtual_kfd::{Driver, Options, topology};

pub(crate) const VRAM: u32 = 1;
pub(crate) const GTT: u32 = 1 << 1;
pub(crate) const USERPTR: u32 = 1 << 2;
pub(crate) const AQL: u32 = 2;
pub(crate) const SDMA: u32 = 1;
pub(crate) const PAGE: u64 = 4096;
/// Longest wait of a test.
const LIMIT: Duration = Duration::from_secs(30);

/// Two words of 32 bits in one of 64.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Waits until something holds; fails after some time.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: a descriptor of the test that calls it.
    unsafe { libc::close(fd) };
}

/// Duplicates a descriptor.
pub(crate) fn duplicate(fd: i32) -> i32 {
    // SAFETY: any number is allowed.
    unsafe { libc::dup(fd) }
}

/// Makes a reserved page memory of the process, with zeros.
pub(crate) fn anonymous(at: u64) -> Memory {
    let (flags, protection) =
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: replaces a reservation of the test that calls it.
    let done = unsafe { libc::mmap(at as *mut _, PAGE as usize, protection, flags, -1, 0) };
    assert_eq!(done as u64, at);
    Memory { at, bytes: PAGE, handle: 0 }
}

/// A process that has opened the devices.
pub(crate) struct Thunk {
    pub(crate) driver: Driver,
    pub(crate) fd: i32,
}

/// Memory that the process and cards see at the same address.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) handle: u64,
}

impl Memory {
    /// Returns a word of it.
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at % 8 == 0 && at + 8 <= self.bytes);
        // SAFETY: inside the memory, which tests do not unmap while they use it; others access it atomically.
        unsafe { AtomicU64::from_ptr((self.at + at) as *mut u64) }
    }

    pub(crate) fn get(&self, at: u64) -> u64 {
        self.word(at).load(SeqCst)
    }

    pub(crate) fn set(&self, at: u64, value: u64) {
        self.word(at).store(value, SeqCst);
    }

    pub(crate) fn bytes(&self, at: u64, count: u64) -> Vec<u8> {
        let words = (at / 8..(at + count).div_ceil(8)).flat_map(|i| self.get(8 * i).to_le_bytes());
        words.skip((at % 8) as usize).take(count as usize).collect()
    }
}

impl Thunk {
    /// Starts a machine with options as in the environment, without the prefix of the names.
    pub(crate) fn new(variables: &[(&str, &str)]) -> Thunk {
        let find = |name: &str| {
            variables.iter().find(|v| name == format!("VIRTUAL_KFD_{}", v.0)).map(|v| v.1.to_string())
        };
        let driver = Driver::new(&Options::from_variables(find).unwrap()).unwrap();
        let fd = driver.open(None).unwrap();
        Thunk { driver, fd }
    }

    /// Calls an ioctl with its argument as words.
    pub(crate) fn ioctl(&self, number: u32, words: &mut [u64]) -> Result<(), i32> {
        let request = 3 << 30 | (size_of_val(words) as u32) << 16 | u32::from(b'K') << 8 | number;
        // SAFETY: the argument has as many bytes; tests pass addresses of memory that lives.
        unsafe { self.driver.ioctl(request, words.as_mut_ptr().cast()) }
    }

    /// Reserves addresses of this process.
    pub(crate) fn reserve(bytes: u64) -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, of which nothing is used before something is mapped there.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    }

    /// Shows a range of the device's file at an address.
    pub(crate) fn show(&self, at: u64, bytes: u64, offset: u64) {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces a reservation of this test.
        let done = unsafe {
            libc::mmap(at as *mut _, bytes as usize, protection, flags, self.fd, offset as libc::off_t)
        };
        assert_eq!(done as u64, at);
    }

    /// Allocates without mapping: handle and offset.
    pub(crate) fn allocate(
        &self,
        at: u64,
        bytes: u64,
        card: usize,
        flags: u32,
        offset: u64,
    ) -> Result<(u64, u64), i32> {
        let mut a = [at, bytes, 0, offset, pair(topology::gpu_id(card), flags)];
        self.ioctl(0x16, &mut a)?;
        Ok((a[2], a[3]))
    }

    /// Maps to cards or unmaps from them; returns for how many it was done.
    pub(crate) fn map(&self, number: u32, handle: u64, cards: &[usize]) -> Result<u32, i32> {
        let ids: Vec<u32> = cards.iter().map(|&card| topology::gpu_id(card)).collect();
        let mut a = [handle, ids.as_ptr() as u64, pair(ids.len() as u32, 0)];
        self.ioctl(number, &mut a)?;
        Ok((a[2] >> 32) as u32)
    }

    /// Allocates memory of a kind and maps it to the process and to a card.
    pub(crate) fn memory(&self, bytes: u64, card: usize, kind: u32) -> Memory {
        let at = Thunk::reserve(bytes);
        let (handle, offset) = self.allocate(at, bytes, card, kind, 0).unwrap();
        self.show(at, bytes, offset);
        assert_eq!(self.map(0x18, handle, &[card]), Ok(1));
        Memory { at, bytes, handle }
    }

    pub(crate) fn gtt(&self, bytes: u64) -> Memory {
        self.memory(bytes, 0, GTT)
    }

    pub(crate) fn free(&self, handle: u64) -> Result<(), i32> {
        self.ioctl(0x17, &mut [handle])
    }

    pub(crate) fn event(&self, kind: u32, auto_reset: bool) -> u32 {
        let mut a = [0, pair(0, kind), pair(auto_reset.into(), 0), 0];
        self.ioctl(0x08, &mut a).unwrap();
        a[3] as u32
    }

    /// Waits for events with the ages that are known: the result, and what each event tells.
    pub(crate) fn wait(
        &self,
        events: &[(u32, u64)],
        all: bool,
        ms: u32,
    ) -> (Result<(), i32>, u32, Vec<[u64; 4]>) {
        let mut data: Vec<[u64; 6]> =
            events.iter().map(|&(id, age)| [age, 0, 0, 0, 0, pair(id, 0)]).collect();
        let mut a = [data.as_mut_ptr() as u64, pair(events.len() as u32, all.into()), pair(ms, 99)];
        let answer = self.ioctl(0x0c, &mut a);
        (answer, (a[2] >> 32) as u32, data.into_iter().map(|d| [d[0], d[1], d[2], d[3]]).collect())
    }

    /// Creates a queue of a kind.
    pub(crate) fn queue(&self, card: usize, kind: u32) -> Ring<'_> {
        let memory = self.memory(4 * PAGE, card, GTT);
        let mut a = create(&memory, card, kind);
        self.ioctl(0x02, &mut a).unwrap();
        let (id, offset) = ((a[6] >> 32) as u32, a[3]);
        let doorbells = Thunk::reserve(8192);
        self.show(doorbells, 8192, offset & !8191);
        let doorbell = Memory { at: doorbells + offset % 8192, bytes: 8, handle: 0 };
        Ring { thunk: self, memory, doorbell, id, next: Cell::new(0) }
    }

    /// Creates a signal with a value, in its own cache line of some memory.
    pub(crate) fn signal(&self, value: i64) -> Signal {
        let memory = self.gtt(PAGE);
        memory.set(8, value as u64);
        Signal { memory }
    }
}

impl Drop for Thunk {
    fn drop(&mut self) {
        // SAFETY: the descriptor of `new`.
        unsafe { libc::close(self.fd) };
    }
}

/// Bytes of a ring: it is behind the page of its indices.
pub(crate) const RING_BYTES: u64 = 2 * PAGE;
const READ: u64 = 128;
const WRITE: u64 = 256;
const INACTIVE: u64 = 192;

/// Returns the argument that creates a queue.
pub(crate) fn create(memory: &Memory, card: usize, kind: u32) -> [u64; 12] {
    let mut a = [0; 12];
    (a[0], a[1], a[2]) = (memory.at + PAGE, memory.at + WRITE, memory.at + READ);
    (a[4], a[5]) = (pair(RING_BYTES as u32, topology::gpu_id(card)), pair(kind, 100));
    a[6] = pair(7, 0);
    a
}

/// A queue.
pub(crate) struct Ring<'a> {
    thunk: &'a Thunk,
    pub(crate) memory: Memory,
    doorbell: Memory,
    pub(crate) id: u32,
    next: Cell<u64>,
}

impl Ring<'_> {
    /// Appends a packet of 64 bytes, header last, and rings the doorbell.
    pub(crate) fn packet(&self, words: [u64; 8]) {
        let index = self.next.replace(self.next.get() + 1);
        until("room in the ring", || index < self.done() + RING_BYTES / 64);
        let at = PAGE + index * 64 % RING_BYTES;
        for (i, word) in words.iter().enumerate().skip(1) {
            self.memory.set(at + 8 * i as u64, *word);
        }
        self.memory.set(at, words[0] & !0xffff | 1);
        // SAFETY: inside the ring; the card reads it atomically.
        unsafe { AtomicU16::from_ptr((self.memory.at + at) as *mut u16) }.store(words[0] as u16, SeqCst);
        self.memory.set(WRITE, index + 1);
        self.doorbell.set(0, index);
    }

    /// Appends a command of a copy engine.
    pub(crate) fn command(&self, words: &[u32]) {
        for &word in words {
            let at = self.next.replace(self.next.get() + 4);
            until("room in the ring", || at < self.done() + RING_BYTES);
            let at = PAGE + at % RING_BYTES;
            let shift = 8 * (at % 8);
            let old = self.memory.get(at & !7) & !(0xffff_ffff << shift);
            self.memory.set(at & !7, old | u64::from(word) << shift);
        }
        self.memory.set(WRITE, self.next.get());
        self.doorbell.set(0, self.next.get());
    }

    /// Returns the index of the next packet that the card takes.
    pub(crate) fn done(&self) -> u64 {
        self.memory.get(READ)
    }

    /// Waits until all packets are done.
    pub(crate) fn drain(&self) {
        until("the queue", || self.done() == self.next.get());
    }

    /// Sets the signal that the card sets when the queue fails.
    pub(crate) fn fails_to(&self, signal: &Signal) {
        self.memory.set(INACTIVE, signal.memory.at);
    }

    pub(crate) fn update(&self, percentage: u32) -> Result<(), i32> {
        let ring = self.memory.at + PAGE;
        self.thunk.ioctl(0x07, &mut [ring, pair(self.id, RING_BYTES as u32), pair(percentage, 7)])
    }

    pub(crate) fn destroy(&self) -> Result<(), i32> {
        self.thunk.ioctl(0x03, &mut [pair(self.id, 0)])
    }
}

/// A signal of HSA.
pub(crate) struct Signal {
    pub(crate) memory: Memory,
}

impl Signal {
    pub(crate) fn at(&self) -> u64 {
        self.memory.at
    }

    pub(crate) fn value(&self) -> i64 {
        self.memory.get(8) as i64
    }

    pub(crate) fn set(&self, value: i64) {
        self.memory.set(8, value as u64);
    }

    /// Lets completions write an event's number to the mailbox and set the event.
    pub(crate) fn raises(&self, event: u32) {
        self.memory.set(16, self.memory.at + 2048);
        self.memory.set(24, event.into());
    }

    pub(crate) fn mailbox(&self) -> u64 {
        self.memory.get(2048)
    }

    pub(crate) fn times(&self) -> (u64, u64) {
        (self.memory.get(32), self.memory.get(40))
    }

    pub(crate) fn until(&self, value: i64) {
        until("the signal", || self.value() == value);
    }
}

/// Kernels of a few words, for both processors.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    /// Every item adds 1 to the word at the first argument.
    Count,
    /// Ends when the word at the first argument has the value of the second.
    Spin,
    /// Raises an interrupt for the event of the first argument.
    Interrupt,
    /// No instruction.
    Illegal,
}

/// `s_load_dwordx2 s[2:3], s[0:1], 0`; `s_waitcnt lgkmcnt(0)`; `v_mov_b32 v0, s2`; `v_mov_b32 v1, s3`;
/// `v_mov_b32 v2, 1`; `global_atomic_add v[0:1], v2, off`; `s_endpgm`.
const COUNT: [u32; 9] = [
    0xC006_0080,
    0,
    0xBF8C_C07F,
    0x7E00_0202,
    0x7E02_0203,
    0x7E04_0281,
    0xDD08_8000,
    0x007F_0200,
    0xBF81_0000,
];
/// `s_load_dwordx4 s[4:7], s[0:1], 0`; `s_waitcnt lgkmcnt(0)`; `v_mov_b32 v0, s4`; `v_mov_b32 v1, s5`;
/// `global_load_dword v3, v[0:1], off glc`; `s_waitcnt vmcnt(0)`; `v_readfirstlane_b32 s8, v3`; `s_cmp_lg_u32 s8, s6`;
/// `s_cbranch_scc1` to the load; `s_endpgm`.
const SPIN: [u32; 12] = [
    0xC00A_0100,
    0,
    0xBF8C_C07F,
    0x7E00_0204,
    0x7E02_0205,
    0xDC51_8000,
    0x037F_0000,
    0xBF8C_0F70,
    0x7E10_0503,
    0xBF07_0608,
    0xBF85_FFFA,
    0xBF81_0000,
];

/// `s_load_dwordx2 s[2:3], s[0:1], 0`; `s_waitcnt lgkmcnt(0)`; `s_mov_b32 m0, s2`; `s_nop 0`;
/// `s_sendmsg sendmsg(MSG_INTERRUPT)`; `s_endpgm`.
const INTERRUPT: [u32; 7] = [0xC006_0080, 0, 0xBF8C_C07F, 0xBEFC_0002, 0xBF80_0000, 0xBF90_0001, 0xBF81_0000];

/// A kernel in memory, with a place for its arguments.
pub(crate) struct Program {
    memory: Memory,
}

impl Program {
    pub(crate) fn new(thunk: &Thunk, card: usize, kernel: Kernel) -> Program {
        let memory = thunk.memory(4 * PAGE, card, GTT);
        let words: &[u32] = match kernel {
            Kernel::Count => &COUNT,
            Kernel::Spin => &SPIN,
            Kernel::Interrupt => &INTERRUPT,
            Kernel::Illegal => &[0xffff_ffff, 0xBF81_0000],
        };
        // The descriptor: arguments of 16 bytes; the first instruction 256 bytes on; 16 vector and 16 scalar registers,
        // denormals on; two scalar registers, which hold the address of the arguments.
        memory.set(8, 16);
        memory.set(16, 256);
        memory.set(48, pair(3 | 1 << 6 | 0xf0 << 12, 2 << 1));
        memory.set(56, 1 << 3);
        for (i, pair_of) in words.chunks(2).enumerate() {
            memory.set(256 + 8 * i as u64, pair(pair_of[0], pair_of.get(1).copied().unwrap_or(0)));
        }
        Program { memory }
    }

    /// Returns the packet of a launch.
    pub(crate) fn launch(&self, items: u32, arguments: [u64; 2], signal: Option<&Signal>) -> [u64; 8] {
        self.memory.set(PAGE, arguments[0]);
        self.memory.set(PAGE + 8, arguments[1]);
        let group = u64::from(items.min(64));
        [
            2 | 1 << 16 | group << 32 | 1 << 48,
            1 | u64::from(items) << 32,
            pair(1, 1),
            0,
            self.memory.at,
            self.memory.at + PAGE,
            0,
            signal.map_or(0, Signal::at),
        ]
    }
}

/// Returns a barrier packet (3: all, 5: one) for signals.
pub(crate) fn barrier(kind: u64, signals: &[&Signal], done: Option<&Signal>) -> [u64; 8] {
    let mut words = [0; 8];
    words[0] = kind;
    signals.iter().enumerate().for_each(|(i, signal)| words[1 + i] = signal.at());
    words[7] = done.map_or(0, Signal::at);
    words
}
