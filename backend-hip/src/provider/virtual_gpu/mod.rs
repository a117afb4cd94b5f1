//! The provider `virtual`: HIP's functions over a GFX9 processor in software.
//!
//! The code objects that [`amd`](crate::provider::amd) gives to a Vega or an MI50 are executed here instruction by instruction
//! (see the crate `virtual-gpu`), so everything above the driver trait runs without a card: kernels, launches,
//! transfers, deadlines. Work is asynchronous as on a device: a queue runs it in order on a thread of its own, events
//! tell how far it is, and a kernel that goes wrong breaks the device for everything after it.
//!
//! Any call can be made to fail or to hang, and any kernel to compute a number wrongly; see [`Faults`].

use crate::driver::codes::Call;
use ggml_core::{Error, Result};
use virtual_gpu::faults::Functions;

mod driver;
mod queue;

pub use driver::VirtualDriver;
pub use virtual_gpu::faults::{Fault, Faults, Wrong};
pub use virtual_gpu::{Checks, Counters, Target};

/// The variable that faults are read from; see [`Faults::parse`].
pub const FAULTS_VARIABLE: &str = "DIPTYCH_VIRTUAL_FAULTS";

/// The faults that a text describes. FUNCTION is one of [`Call`]; only launches, copies and fills stall.
///
/// # Errors
/// An argument error that quotes what is not understood.
pub fn parse_faults(text: &str) -> Result<Faults> {
    let has = |name: &str| Call::from_name(name).is_some_and(|call| call != Call::LoadLibrary);
    let queued = [Call::Launch, Call::Copy, Call::Fill].map(Call::name);
    let functions = Functions { has: &has, queued: &queued };
    Faults::parse(text, &functions)
        .map_err(|(found, expected)| Error::argument(FAULTS_VARIABLE, found, expected))
}

/// How the device is made.
#[derive(Clone, Debug)]
pub struct VirtualOptions {
    /// Processor.
    pub target: Target,
    /// What mistakes of kernels are errors.
    pub checks: Checks,
    /// Bytes of device and pinned memory together.
    pub memory: u64,
    /// Whether it says that it shares the host's memory, as processors with graphics do.
    pub integrated: bool,
    /// What goes wrong.
    pub faults: Faults,
}

impl VirtualOptions {
    /// A processor with all checks, 16 GiB, and no faults.
    pub fn new(target: Target) -> VirtualOptions {
        VirtualOptions {
            target,
            checks: Checks::ALL,
            memory: 16 << 30,
            integrated: false,
            faults: Faults::default(),
        }
    }
}
