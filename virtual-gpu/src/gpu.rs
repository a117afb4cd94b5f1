//! The device: memory, code objects, launches.

use crate::code::{CodeObject, Descriptor};
use crate::counters::Counters;
use crate::exec::group::{Borrowed, Context, Machines};
use crate::exec::lds::CAPACITY;
use crate::exec::sizes::Sizes;
use crate::fault::{Fault, FaultKind, Result};
use crate::footprint::Footprint;
use crate::isa::Target;
use crate::isa::operand::{PRIVATE_APERTURE, SHARED_APERTURE};
use crate::memory::{Memory, MemoryFile, SharedMemory, Window};
use crate::metadata::KernelInfo;
use crate::options::Options;
use crate::order::Ledger;
use crate::preload;
use crate::random::Noise;
use rayon::prelude::*;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A device.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) target: Target,
    pub(crate) options: Options,
    pub(crate) memory: Memory,
    pub(crate) machines: Machines,
    pub(crate) noise: Arc<Noise>,
}

/// A loaded code object. Its memory is freed with [`Gpu::unload`].
#[derive(Clone)]
pub struct Module {
    code: Arc<CodeObject>,
    base: u64,
}

/// A kernel of a loaded code object.
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    index: usize,
}

/// Parameters of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Number of work-groups along x, y and z.
    pub groups: [u32; 3],
    /// Work-items per work-group along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of LDS in addition to the kernel's static LDS.
    pub dynamic_lds: u32,
    /// The explicit arguments, laid out as in the argument segment.
    pub arguments: &'a [u8],
    /// The memory that the kernel may use, beside its code, constants and arguments: an access to any other is a fault.
    /// Windows may overlap. `None`: all memory of the device. Ranges that a launch only reads cannot be in a race, so
    /// windows also make [`crate::Checks::order`] cheap.
    pub windows: Option<&'a [Window]>,
}

/// Maximum LDS of a work-group in bytes.
pub const MAX_LDS: u32 = CAPACITY as u32;
/// Maximum work-items of a work-group.
pub const MAX_THREADS: u32 = 1024;

impl Gpu {
    /// Creates a device with empty memory.
    pub fn new(target: Target, options: Options) -> Gpu {
        let noise = Arc::new(Noise::new(&options));
        let memory = Memory::with_noise(options.memory, noise.clone());
        Gpu { target, options, memory, machines: Machines::default(), noise }
    }

    /// Returns the processor that the device emulates.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the options of the device.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the free and the total bytes of memory.
    pub fn available(&self) -> (u64, u64) {
        self.memory.available()
    }

    /// Allocates device memory and returns its address. No address is reused. Its contents are random, or zeros
    /// ([`crate::Random::memory`]).
    ///
    /// # Errors [`FaultKind::OutOfMemory`], also for 0 bytes.
    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        Ok(self.memory.allocate(bytes)?)
    }

    /// Allocates zeroed device memory at `address`, a multiple of 4096. Graphics drivers use this for
    /// descriptor sets and constants in memory addressed by 32 bits. [`Gpu::free`] frees it.
    ///
    /// # Errors [`FaultKind::Occupied`] if another allocation overlaps the range; [`FaultKind::Misaligned`];
    /// [`FaultKind::OutOfMemory`], also for 0 bytes or a range beyond the last address.
    pub fn allocate_at(&self, address: u64, bytes: usize) -> Result<()> {
        Ok(self.memory.allocate_at(address, bytes)?)
    }

    /// Allocates host memory that kernels access at the same address. It is valid until freed. Its contents are as those
    /// of [`Gpu::allocate`]. Zeroed pages use no host memory until they are written; kernels access it as fast as device
    /// memory. A driver can use it for mapped memory.
    ///
    /// # Errors [`FaultKind::OutOfMemory`], also for 0 bytes.
    pub fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        Ok(self.memory.allocate_host(bytes)?)
    }

    /// Allocates device memory that other devices can map ([`Gpu::import`]): drivers of one card share memory in this
    /// way. Its contents are as those of [`Gpu::allocate`], and so is its end.
    ///
    /// # Errors [`FaultKind::OutOfMemory`], also for 0 bytes, and where there is no such memory: it needs Linux.
    pub fn allocate_shared(&self, bytes: usize) -> Result<SharedMemory> {
        Ok(self.memory.allocate_shared(bytes)?)
    }

    /// Maps `bytes` bytes of memory that another device allocated with [`Gpu::allocate_shared`], and returns their address
    /// on this one. [`Gpu::free`] ends the use. The devices do not see each other's accesses as races: their drivers must
    /// take turns.
    ///
    /// # Errors [`FaultKind::OutOfMemory`] if the memory has fewer bytes or cannot be mapped.
    pub fn import(&self, file: MemoryFile, bytes: usize) -> Result<u64> {
        Ok(self.memory.import(file, bytes)?)
    }

    /// Frees a device or host allocation by the address of its first byte, or ends the use of memory of the caller
    /// ([`Gpu::map`]) by new launches and copies.
    ///
    /// # Errors [`FaultKind::FreedMemory`] if it was freed before, [`FaultKind::OutOfBounds`] if no
    /// allocation begins there.
    pub fn free(&self, address: u64) -> Result<()> {
        Ok(self.memory.free(address)?)
    }

    /// Copies bytes to memory. No kernel that uses them may run at the same time.
    ///
    /// # Errors The range is not inside one allocation.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<()> {
        Ok(self.memory.write(address, from)?)
    }

    /// Copies bytes from memory. No kernel that writes them may run at the same time.
    ///
    /// # Errors The range is not inside one allocation.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<()> {
        Ok(self.memory.read(address, to)?)
    }

    /// Sets `bytes` bytes to `byte`.
    ///
    /// # Errors The range is not inside one allocation.
    pub fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        Ok(self.memory.fill(address, byte, bytes)?)
    }

    /// Copies bytes between two ranges of memory, which may overlap.
    ///
    /// # Errors One of the ranges is not inside one allocation.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        Ok(self.memory.copy(to, from, bytes)?)
    }

    /// Loads a code object (an ELF file without a bundle).
    ///
    /// # Errors [`FaultKind::InvalidCodeObject`] for invalid bytes or another processor's code;
    /// [`FaultKind::OutOfMemory`].
    pub fn load(&self, image: &[u8]) -> Result<Module> {
        let code = CodeObject::read(image, self.target)?;
        let base = self.memory.allocate(code.image.len())?;
        self.memory.write(base, &code.at(base))?;
        Ok(Module { code: Arc::new(code), base })
    }

    /// Frees the memory allocated by [`Gpu::load`].
    ///
    /// # Errors The module was unloaded before.
    pub fn unload(&self, module: &Module) -> Result<()> {
        self.free(module.base)
    }

    /// Runs a kernel to its end. Work-groups run in parallel, in no particular order.
    ///
    /// # Errors [`FaultKind::InvalidLaunch`] if no hardware would accept the launch; otherwise the first
    /// fault that a work-group raised. No further work-group starts after a fault.
    pub fn launch(&self, kernel: &Kernel, launch: &Launch<'_>) -> Result<Counters> {
        self.launch_tracing(kernel, launch, None)
    }

    /// Runs a kernel as [`Gpu::launch`] does and also returns the bytes read and written. Several times
    /// slower.
    ///
    /// # Errors
    /// As [`Gpu::launch`].
    pub fn trace(&self, kernel: &Kernel, launch: &Launch<'_>) -> Result<(Counters, Footprint)> {
        let footprint = Mutex::new(Footprint::default());
        let counters = self.launch_tracing(kernel, launch, Some(&footprint))?;
        Ok((counters, footprint.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    fn launch_tracing(
        &self,
        kernel: &Kernel,
        launch: &Launch<'_>,
        footprint: Option<&Mutex<Footprint>>,
    ) -> Result<Counters> {
        let (name, descriptor, info) = &kernel.module.code.kernels[kernel.index];
        let at_launch = |why: String| {
            let mut fault = Fault::from(FaultKind::InvalidLaunch(why));
            fault.kernel = name.clone();
            fault
        };
        let lds_bytes = check(launch, descriptor, info.as_ref(), self.target).map_err(at_launch)?;
        let segment = arguments(launch, descriptor, info.as_ref());
        let arguments = self.memory.allocate(segment.len())?;
        let freed = Freed { memory: &self.memory, address: arguments };
        self.memory.write(arguments, &segment)?;
        let packet = self.memory.allocate(64)?;
        let freed_too = Freed { memory: &self.memory, address: packet };
        self.memory.write(packet, &dispatch_packet(launch, lds_bytes, arguments))?;
        let scratch_bytes = descriptor.scratch(descriptor.scratch_bytes);
        let context = Context {
            kernel: name,
            descriptor: *descriptor,
            text: &kernel.module.code.text,
            code_base: kernel.module.base,
            memory: &self.memory,
            view: match launch.windows {
                None => self.memory.view(),
                Some(windows) => self.memory.limited(windows, &[kernel.module.base, arguments, packet])?,
            },
            sizes: Sizes::uniform(launch.threads),
            lds_bytes,
            scratch_bytes,
            user_sgprs: &preload::user_sgprs(&self.memory, descriptor, packet, 0, arguments, scratch_bytes)?,
            checks: self.options.checks,
            max_instructions: self.options.max_instructions,
            interrupt: None,
            footprint,
            noise: &self.noise,
            lines: kernel.module.code.lines.as_ref(),
        };
        let counters = run(&self.machines, &context, [0; 3], launch.groups);
        drop((freed, freed_too));
        counters
    }
}

/// Memory allocated for a launch, freed on drop.
struct Freed<'a> {
    memory: &'a Memory,
    address: u64,
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        // Allocated and freed exactly once, so this cannot fail; drop could not report an error anyway.
        let _ = self.memory.free(self.address);
    }
}

/// Runs all work-groups, with ids from `first` on.
pub(crate) fn run(
    machines: &Machines,
    context: &Context<'_>,
    first: [u32; 3],
    groups: [u32; 3],
) -> Result<Counters> {
    let [x, y, z] = groups.map(|n| n as usize);
    let total = x.saturating_mul(y).saturating_mul(z);
    let id =
        |n: usize| [first[0] + (n % x) as u32, first[1] + (n / x % y) as u32, first[2] + (n / x / y) as u32];
    let (order, traces) = (context.checks.order, context.footprint.is_some());
    let ledger = (order || traces).then(|| Ledger::new(order && total > 1, traces));
    let counters = if total == 1 {
        machines.borrow().run(context, ledger.as_ref(), 0, first)?
    } else {
        let numbers = context.noise.groups(total);
        let one = |machine: &mut Borrowed<'_>, n| {
            let n = numbers.at(n);
            machine.run(context, ledger.as_ref(), n, id(n))
        };
        let sum = |mut a: Counters, b| {
            a += b;
            Ok(a)
        };
        if rayon::current_num_threads() == 1 {
            // The calling thread does what the only other one would: it need not wait for that to wake up.
            let mut machine = machines.borrow();
            (0..total).try_fold(Counters::default(), |all, n| sum(all, one(&mut machine, n)?))?
        } else {
            (0..total)
                .into_par_iter()
                .with_min_len((total / 256).clamp(1, 64))
                .map_init(|| machines.borrow(), one)
                .try_reduce(Counters::default, sum)?
        }
    };
    let (conflict, footprint) = ledger.map(Ledger::verdict).unwrap_or_default();
    if let (Some(all), Some(footprint)) = (context.footprint, footprint) {
        all.lock().unwrap_or_else(PoisonError::into_inner).merge(footprint);
    }
    match conflict {
        Some(conflict) => Err(context.conflict(&conflict, |n| id(n as usize))),
        None => Ok(counters),
    }
}

/// Checks that hardware would accept a launch; returns its total bytes of LDS.
fn check(
    launch: &Launch<'_>,
    descriptor: &Descriptor,
    info: Option<&KernelInfo>,
    target: Target,
) -> std::result::Result<u32, String> {
    let lds = descriptor.lds_bytes.saturating_add(launch.dynamic_lds);
    let threads = fits(launch.threads, lds, descriptor, target)?;
    if launch.groups.contains(&0) {
        return Err(format!("has {:?} work-groups", launch.groups));
    }
    counts(launch.groups, launch.threads)?;
    if launch.arguments.len() > descriptor.argument_bytes as usize {
        return Err(format!(
            "has {} bytes of arguments, the kernel takes {}",
            launch.arguments.len(),
            descriptor.argument_bytes
        ));
    }
    if let Some(info) = info {
        // The metadata is not checked otherwise: offsets and sizes may be any numbers.
        let ends = info.arguments.iter().map(|&(offset, size)| u64::from(offset) + u64::from(size));
        let end = ends.max().unwrap_or(0);
        if (launch.arguments.len() as u64) < end {
            return Err(format!(
                "has {} bytes of arguments, the kernel declares {end}",
                launch.arguments.len()
            ));
        }
        if info.max_threads > 0 && threads > info.max_threads {
            return Err(format!("has {threads} work-items, the kernel is compiled for {}", info.max_threads));
        }
    }
    Ok(lds)
}

/// Checks that a compute unit can hold a work-group; returns its number of work-items.
pub(crate) fn fits(
    threads: [u32; 3],
    lds: u32,
    descriptor: &Descriptor,
    target: Target,
) -> std::result::Result<u32, String> {
    let count = threads.iter().try_fold(1u32, |n, &t| n.checked_mul(t));
    let count = count.filter(|&n| (1..=MAX_THREADS).contains(&n));
    let count = count.ok_or_else(|| format!("has work-groups of {threads:?} work-items"))?;
    if lds > MAX_LDS {
        return Err(format!("wants {lds} bytes of LDS, there are {MAX_LDS}"));
    }
    let (isa, vgprs) = (descriptor.isa(target), descriptor.vgprs + descriptor.accumulators);
    let waves = count.div_ceil(isa.lanes.into()) as usize;
    // A work-group is on four SIMDs, each with vector registers for its wavefronts.
    if waves > 4 * (isa.simd_registers().0 / vgprs) {
        return Err(format!("has {waves} wavefronts of {vgprs} vector registers, more than fit"));
    }
    Ok(count)
}

/// Checks that the number of work-items along each axis fits into 32 bits.
pub(crate) fn counts(groups: [u32; 3], threads: [u32; 3]) -> std::result::Result<(), String> {
    if (0..3).any(|i| groups[i].checked_mul(threads[i]).is_none()) {
        return Err(format!(
            "has {groups:?} work-groups of {threads:?} work-items, whose ids exceed 32 bits"
        ));
    }
    Ok(())
}

/// Builds the argument segment: the caller's arguments, then the hidden arguments at the offsets in the
/// metadata.
fn arguments(launch: &Launch<'_>, descriptor: &Descriptor, info: Option<&KernelInfo>) -> Vec<u8> {
    let mut segment = launch.arguments.to_vec();
    segment.resize((descriptor.argument_bytes as usize).max(16), 0);
    for (kind, offset, size) in info.map(|info| &info.hidden[..]).unwrap_or_default() {
        let value = hidden_argument(launch, kind).to_le_bytes();
        let (offset, size) = (*offset as usize, *size as usize);
        if let Some(to) = segment.get_mut(offset..offset.saturating_add(size.min(8))) {
            let size = to.len();
            to.copy_from_slice(&value[..size]);
        }
    }
    segment
}

/// Returns the value of a hidden argument of code object version 5. Unsupported ones (buffers for `printf`
/// and host calls, queues, the heap) are 0: a kernel that uses them accesses unmapped memory, which is
/// reported.
fn hidden_argument(launch: &Launch<'_>, kind: &str) -> u64 {
    let axis = |kind: &str| match kind.as_bytes().last() {
        Some(b'x') => 0,
        Some(b'y') => 1,
        _ => 2,
    };
    let kind = kind.strip_prefix("hidden_").unwrap_or(kind);
    match kind {
        "block_count_x" | "block_count_y" | "block_count_z" => launch.groups[axis(kind)].into(),
        "group_size_x" | "group_size_y" | "group_size_z" => launch.threads[axis(kind)].into(),
        "grid_dims" => {
            let used = |&i: &usize| u64::from(launch.groups[i]) * u64::from(launch.threads[i]) > 1;
            1 + (0..3).rev().find(used).unwrap_or(0) as u64
        }
        "dynamic_lds_size" => launch.dynamic_lds.into(),
        "private_base" => PRIVATE_APERTURE.into(),
        "shared_base" => SHARED_APERTURE.into(),
        _ => 0,
    }
}

/// Builds an `hsa_kernel_dispatch_packet_t`.
fn dispatch_packet(launch: &Launch<'_>, lds_bytes: u32, arguments: u64) -> [u8; 64] {
    let mut packet = [0; 64];
    let mut set = |offset: usize, bytes: &[u8]| packet[offset..offset + bytes.len()].copy_from_slice(bytes);
    set(0, &2u16.to_le_bytes());
    set(2, &3u16.to_le_bytes());
    for i in 0..3 {
        set(4 + 2 * i, &(launch.threads[i] as u16).to_le_bytes());
        set(12 + 4 * i, &(launch.groups[i] * launch.threads[i]).to_le_bytes());
    }
    set(28, &lds_bytes.to_le_bytes());
    set(40, &arguments.to_le_bytes());
    packet
}

impl Module {
    /// Returns the names of its kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.code.kernels.iter().map(|kernel| kernel.0.as_str())
    }

    /// Returns a kernel by name.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let index = self.code.kernels.binary_search_by(|kernel| kernel.0.as_str().cmp(name)).ok()?;
        Some(Kernel { module: self.clone(), index })
    }
}

impl Kernel {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.module.code.kernels[self.index].0
    }

    /// Returns the size of its argument segment in bytes, including hidden arguments.
    pub fn argument_bytes(&self) -> u32 {
        self.module.code.kernels[self.index].1.argument_bytes
    }

    /// Returns its metadata; `None` if the code object lacks it (assembly).
    pub fn info(&self) -> Option<&KernelInfo> {
        self.module.code.kernels[self.index].2.as_ref()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("base", &self.base).field("kernels", &self.code.kernels.len()).finish()
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernel").field(&self.name()).finish()
    }
}

/// An instruction of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its address in the code object.
    pub address: u64,
    /// Its text, as LLVM's disassembler prints it; `None` if the words are no instruction.
    pub text: Option<String>,
    /// Length in words of 32 bits.
    pub words: usize,
}

/// Disassembles the instructions at some addresses of a code object, an ELF file for the target.
///
/// # Errors [`FaultKind::InvalidCodeObject`]; [`FaultKind::OutOfBounds`] for an address outside its text.
pub fn disassemble(image: &[u8], target: Target, addresses: &[u64]) -> Result<Vec<Line>> {
    let code = CodeObject::read(image, target)?;
    let line = |&address: &u64| {
        let word = address.wrapping_sub(code.text.base) / 4;
        if word >= code.text.len() as u64 {
            let (space, access) = (crate::fault::Space::Global, crate::fault::Access::Read);
            let range = crate::fault::Range { space, access, at: address, bytes: 4 };
            return Err(FaultKind::OutOfBounds(range).into());
        }
        let inst = code.text.at(word as usize);
        let text = inst.as_ref().map(crate::isa::text::print);
        Ok(Line { address, text, words: inst.map_or(1, |inst| inst.words.into()) })
    };
    addresses.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata of a hostile code object: an argument that ends beyond 32 bits.
    #[test]
    fn arguments_may_end_anywhere() {
        let launch =
            Launch { groups: [1; 3], threads: [1; 3], dynamic_lds: 0, arguments: &[0; 16], windows: None };
        let descriptor = Descriptor {
            lds_bytes: 0,
            scratch_bytes: 0,
            argument_bytes: 16,
            entry: 0,
            vgprs: 4,
            accumulators: 0,
            mode: 0,
            user_sgprs: 0,
            rsrc2: 0,
            properties: 0,
            preload: crate::code::Preload::default(),
        };
        let info = |offset| KernelInfo {
            arguments: vec![(offset, 8)],
            hidden: vec![("hidden_block_count_x".into(), u32::MAX, u32::MAX)],
            ..KernelInfo::default()
        };
        let error = check(&launch, &descriptor, Some(&info(u32::MAX)), Target::Gfx906).unwrap_err();
        assert_eq!(error, "has 16 bytes of arguments, the kernel declares 4294967303");
        assert!(check(&launch, &descriptor, Some(&info(8)), Target::Gfx906).is_ok());
        assert_eq!(arguments(&launch, &descriptor, Some(&info(8))), [0; 16]);
    }
}
