//! Memory of this process, mapped on a device, with a code object, a packet and its arguments.

use crate::support::Arguments;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use virtual_gpu::{Counters, Fault, Gpu, Options, PacketCode, Target};

/// Device addresses, none of which is an address of this process.
pub(crate) const CODE: u64 = 0x5000_0000_0000;
pub(crate) const DATA: u64 = 0x5100_0000_0000;
const RING: u64 = 0x5200_0000_0000;
/// The packet of all launches, their arguments, and the queue, which no test reads.
pub(crate) const PACKET: u64 = RING + 0x40;
const ARGUMENTS: u64 = RING + 0x1000;
pub(crate) const QUEUE: u64 = 0x5300_0000_1000;

#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "accessed through pointers")] UnsafeCell<[u8; 4096]>);

/// Pages of this process. What a device may access is read and written through pointers only.
pub(crate) struct Pages {
    pages: Vec<Page>,
}

// SAFETY: pages are bytes behind a cell; tests access them while no kernel runs.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) fn new(bytes: usize) -> Pages {
        let page = || Page(UnsafeCell::new([0; 4096]));
        Pages { pages: (0..bytes.div_ceil(4096)).map(|_| page()).collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * 4096
    }

    fn at(&self) -> NonNull<u8> {
        NonNull::new(self.pages.as_ptr().cast_mut().cast()).expect("the vector is not empty")
    }

    /// Maps the pages. A test that frees them waits for its launches; all live as long as the device.
    pub(crate) fn map(&self, gpu: &Gpu, address: u64) {
        // SAFETY: the pages are behind a cell and live longer than the device's use of them: `Process` drops its device
        // first, and the tests' other pages are freed, or outlive the launches of their process.
        unsafe { gpu.map(address, self.at(), self.bytes()) }.expect("nothing else is there");
    }

    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes());
        // SAFETY: inside the pages, and no kernel runs.
        unsafe { self.at().add(offset).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub(crate) fn words(&self, offset: usize, count: usize) -> Vec<u32> {
        assert!(offset % 4 == 0 && offset + 4 * count <= self.bytes());
        // SAFETY: inside the pages, aligned, and no kernel runs.
        let word = |i| unsafe { self.at().add(offset + 4 * i).cast::<u32>().read() };
        (0..count).map(word).collect()
    }
}

/// A device and the memory of this process that it knows.
pub(crate) struct Process {
    pub(crate) gpu: Gpu,
    pub(crate) cache: PacketCode,
    pub(crate) code: Pages,
    pub(crate) data: Pages,
    ring: Pages,
    /// Addresses of kernel descriptors.
    objects: HashMap<String, u64>,
}

impl Process {
    pub(crate) fn new(target: Target, options: Options) -> Process {
        let [code, data, ring] = [64 << 10, 64 << 10, 8 << 10].map(Pages::new);
        let gpu = Gpu::new(target, options);
        code.map(&gpu, CODE);
        data.map(&gpu, DATA);
        ring.map(&gpu, RING);
        Process { gpu, cache: PacketCode::default(), code, data, ring, objects: HashMap::new() }
    }

    /// Loads a code object, as a runtime's loader does, at the start of the code.
    pub(crate) fn load(&mut self, image: &[u8]) {
        self.objects = load(&self.code, image);
    }

    /// Returns the address of a kernel object.
    pub(crate) fn object(&self, kernel: &str) -> u64 {
        *self.objects.get(kernel).unwrap_or_else(|| panic!("the code object has no kernel {kernel}"))
    }

    /// Returns the words of a kernel's descriptor.
    pub(crate) fn descriptor(&self, kernel: &str) -> Vec<u32> {
        self.code.words((self.object(kernel) - CODE) as usize, 16)
    }

    /// Returns a launch of one work-group of 64 work-items.
    pub(crate) fn dispatch(&self, kernel: &str, arguments: &Arguments) -> Dispatch<'_> {
        self.dispatch_at(self.object(kernel), arguments)
    }

    pub(crate) fn dispatch_at(&self, object: u64, arguments: &Arguments) -> Dispatch<'_> {
        self.ring.fill((ARGUMENTS - RING) as usize, &arguments.0);
        let mut packet = [0; 64];
        packet[0] = 2;
        packet[2] = 3;
        packet[32..40].copy_from_slice(&object.to_le_bytes());
        packet[40..48].copy_from_slice(&ARGUMENTS.to_le_bytes());
        Dispatch { process: self, packet, address: PACKET }.grid([64, 1, 1], [64, 1, 1])
    }
}

/// Copies the segments of a code object to pages that are mapped at [`CODE`]; returns its kernels.
pub(crate) fn load(pages: &Pages, image: &[u8]) -> HashMap<String, u64> {
    let file = object::File::parse(image).expect("an ELF file");
    for segment in file.segments() {
        pages.fill(segment.address() as usize, segment.data().expect("the file is whole"));
    }
    let symbols = file.dynamic_symbols().filter_map(|symbol| {
        let name = symbol.name().ok()?.strip_suffix(".kd")?.to_string();
        Some((name, CODE + symbol.address()))
    });
    symbols.collect()
}

/// A packet.
#[derive(Clone, Copy)]
pub(crate) struct Dispatch<'a> {
    process: &'a Process,
    packet: [u8; 64],
    address: u64,
}

impl Dispatch<'_> {
    pub(crate) fn grid(mut self, grid: [u32; 3], threads: [u16; 3]) -> Self {
        for i in 0..3 {
            self.packet[4 + 2 * i..6 + 2 * i].copy_from_slice(&threads[i].to_le_bytes());
            self.packet[12 + 4 * i..16 + 4 * i].copy_from_slice(&grid[i].to_le_bytes());
        }
        self
    }

    /// Sets the bytes of LDS of a work-group and of scratch of a work-item.
    pub(crate) fn sizes(mut self, lds: u32, scratch: u32) -> Self {
        self.packet[24..28].copy_from_slice(&scratch.to_le_bytes());
        self.packet[28..32].copy_from_slice(&lds.to_le_bytes());
        self
    }

    pub(crate) fn byte(mut self, at: usize, value: u8) -> Self {
        self.packet[at] = value;
        self
    }

    pub(crate) fn at(self, address: u64) -> Self {
        Self { address, ..self }
    }

    pub(crate) fn launch(&self) -> Result<Counters, Fault> {
        self.launch_with(None)
    }

    /// Launches it for a host that takes interrupts, or does not.
    pub(crate) fn launch_with(&self, interrupt: Option<&(dyn Fn(u32) + Sync)>) -> Result<Counters, Fault> {
        let (process, packet) = (self.process, &self.packet);
        process.ring.fill((PACKET - RING) as usize, packet);
        match interrupt {
            None => process.gpu.launch_packet(&process.cache, packet, self.address, QUEUE),
            Some(f) => process.gpu.launch_interrupting_packet(&process.cache, packet, self.address, QUEUE, f),
        }
    }
}
