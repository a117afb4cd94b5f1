//! A device with helpers to fill and read its memory.

use bytemuck::Pod;
use virtual_gpu::{Counters, Fault, Gpu, Launch, Module, Options, Target};

/// Explicit kernel arguments, each at its natural alignment.
#[derive(Clone, Default)]
pub(crate) struct Arguments(pub(crate) Vec<u8>);

impl Arguments {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends an integer, a float, a pointer or a plain structure.
    #[must_use]
    pub(crate) fn add<T: Pod>(mut self, value: T) -> Self {
        let alignment = align_of::<T>();
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self.0.extend_from_slice(bytemuck::bytes_of(&value));
        self
    }
}

/// A device with one loaded code object.
pub(crate) struct Session {
    pub(crate) gpu: Gpu,
    pub(crate) module: Module,
    pub(crate) target: Target,
    label: String,
}

impl Session {
    pub(crate) fn new(target: Target, label: &str, object: &[u8]) -> Self {
        Self::with_options(target, label, object, Options::default())
    }

    pub(crate) fn with_options(target: Target, label: &str, object: &[u8], options: Options) -> Self {
        let gpu = Gpu::new(target, options);
        let label = format!("{} {label}", target.name());
        let module = gpu.load(object).unwrap_or_else(|fault| panic!("{label}: load: {fault}"));
        Self { gpu, module, target, label }
    }

    pub(crate) fn allocate(&self, bytes: usize) -> u64 {
        self.gpu.allocate(bytes).unwrap_or_else(|fault| panic!("{}: allocate: {fault}", self.label))
    }

    pub(crate) fn upload<T: Pod>(&self, data: &[T]) -> u64 {
        let address = self.allocate(size_of_val(data));
        let written = self.gpu.write(address, bytemuck::cast_slice(data));
        written.unwrap_or_else(|fault| panic!("{}: write: {fault}", self.label));
        address
    }

    pub(crate) fn download<T: Pod>(&self, address: u64, count: usize) -> Vec<T> {
        let mut data = vec![T::zeroed(); count];
        let read = self.gpu.read(address, bytemuck::cast_slice_mut(&mut data));
        read.unwrap_or_else(|fault| panic!("{}: read: {fault}", self.label));
        data
    }

    /// Launches a kernel and returns its counters or fault.
    pub(crate) fn attempt(
        &self,
        kernel: &str,
        groups: [u32; 3],
        threads: [u32; 3],
        dynamic_lds: u32,
        arguments: &Arguments,
    ) -> Result<Counters, Fault> {
        let found = self.module.kernel(kernel);
        let found = found.unwrap_or_else(|| panic!("{}: the code object has no kernel {kernel}", self.label));
        self.gpu
            .launch(&found, &Launch { groups, threads, dynamic_lds, arguments: &arguments.0, windows: None })
    }

    /// Launches a kernel; panics on a fault.
    pub(crate) fn run(
        &self,
        kernel: &str,
        groups: [u32; 3],
        threads: [u32; 3],
        arguments: &Arguments,
    ) -> Counters {
        self.attempt(kernel, groups, threads, 0, arguments)
            .unwrap_or_else(|fault| panic!("{}: {kernel}: {fault}", self.label))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was on {}", self.label);
        }
    }
}
