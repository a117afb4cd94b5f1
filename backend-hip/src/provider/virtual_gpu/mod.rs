//! Provider `virtual`: HIP's functions over a processor in software.
//!
//! The code objects that [`amd`](crate::provider::amd) loads on a card are executed here
//! instruction by instruction (see the crate `virtual-gpu`), so everything above the driver trait runs
//! without a card: kernels, launches, transfers, deadlines. Work is asynchronous as on a device: a queue runs
//! it in order on a thread of its own, events report its progress, and a kernel that fails breaks the device
//! for all later work.
//!
//! Any call can be made to fail or to hang, and any kernel to compute a wrong value; see [`Faults`].

use crate::driver::codes::Call;
use ggml_core::{Error, Result};
use virtual_gpu::faults::Functions;

mod driver;
mod queue;

pub use driver::VirtualDriver;
pub use virtual_gpu::faults::{Faults, Injection, Wrong};
pub use virtual_gpu::{Checks, Counters, Random, Target};

/// Variable that faults are read from; see [`Faults::parse`].
pub const FAULTS_VARIABLE: &str = "DIPTYCH_VIRTUAL_FAULTS";

/// Parses the faults that a text describes. FUNCTION is one of [`Call`]; only launches, copies and fills can
/// stall.
///
/// # Errors
/// An argument error that quotes the part that is not understood.
pub fn parse_faults(text: &str) -> Result<Faults> {
    let has = |name: &str| Call::from_name(name).is_some_and(|call| call != Call::LoadLibrary);
    let queued = [Call::Launch, Call::Copy, Call::Fill].map(Call::name);
    let functions = Functions { has: &has, queued: &queued };
    Faults::parse(text, &functions)
        .map_err(|(found, expected)| Error::argument(FAULTS_VARIABLE, found, expected))
}

/// Options of an emulated device.
#[derive(Clone, Debug)]
pub struct VirtualOptions {
    /// Processor.
    pub target: Target,
    /// Kernel mistakes that are reported as errors.
    pub checks: Checks,
    /// Bytes of device and pinned memory together.
    pub memory: u64,
    /// True if the device reports that it shares the host's memory, as processors with graphics do.
    pub integrated: bool,
    /// Choices left to chance: by default all but approximations.
    pub random: Random,
    /// Seed of what is random.
    pub seed: u64,
    /// Function that changes the arguments of each launch of a kernel (given by name), to plant an error that must be
    /// detected.
    pub change_arguments: Option<fn(&str, &mut [u8])>,
    /// Injected faults.
    pub faults: Faults,
}

impl VirtualOptions {
    /// Returns a processor with all checks, 16 GiB, and no faults.
    pub fn new(target: Target) -> VirtualOptions {
        VirtualOptions {
            target,
            checks: Checks::ALL,
            memory: 16 << 30,
            integrated: false,
            random: Random { approximations: false, ..Random::ALL },
            seed: 1,
            change_arguments: None,
            faults: Faults::default(),
        }
    }
}
