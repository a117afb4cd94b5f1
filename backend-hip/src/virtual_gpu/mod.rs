//! The provider `virtual`: HIP's functions over a GFX9 processor in software.
//!
//! The code objects that [`amd`](crate::amd) gives to a Vega or an MI50 are executed here instruction by instruction
//! (see the crate `virtual-gpu`), so everything above the driver trait runs without a card: kernels, launches,
//! transfers, deadlines. Work is asynchronous as on a device: a queue runs it in order on a thread of its own, events
//! tell how far it is, and a kernel that goes wrong breaks the device for everything after it.
//!
//! Any call can be made to fail or to hang; see [`Faults`].

mod driver;
mod faults;
mod queue;

pub use driver::VirtualDriver;
pub use faults::{Fault, Faults};
pub use virtual_gpu::{Checks, Counters, Target};

use crate::{HipBackend, HipOptions};
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Name of the backend, without the processor.
pub const NAME: &str = "hip-virtual";

/// The variable that [`open`] reads faults from; see [`Faults::parse`].
pub const FAULTS_VARIABLE: &str = "DIPTYCH_VIRTUAL_FAULTS";

/// The variable that turns checks on or off: `all` (the default) or `none`.
pub const CHECKS_VARIABLE: &str = "DIPTYCH_VIRTUAL_CHECKS";

/// How the device is made.
#[derive(Clone, Debug)]
pub struct VirtualOptions {
    /// Processor.
    pub target: Target,
    /// What mistakes of kernels are errors.
    pub checks: Checks,
    /// Bytes of device and pinned memory together.
    pub memory: u64,
    /// What goes wrong.
    pub faults: Faults,
}

impl VirtualOptions {
    /// A processor with all checks, 16 GiB, and no faults.
    pub fn new(target: Target) -> VirtualOptions {
        VirtualOptions { target, checks: Checks::ALL, memory: 16 << 30, faults: Faults::default() }
    }
}

/// Opens an emulated device of a processor ("gfx906" or "gfx900"), with checks and faults as the environment says.
///
/// # Errors
/// An argument error for a name or a variable that is not known, and those of [`HipBackend::open`].
pub fn open(target: &str, options: HipOptions) -> Result<HipBackend> {
    let target = Target::parse(target).ok_or_else(|| {
        Error::argument_said(target, "is no emulated processor; there are gfx906 and gfx900")
    })?;
    let mut device = VirtualOptions::new(target);
    if let Some(text) = set(FAULTS_VARIABLE) {
        device.faults = Faults::parse(&text)?;
    }
    device.checks = match set(CHECKS_VARIABLE).as_deref() {
        None | Some("all") => Checks::ALL,
        Some("none") => Checks::NONE,
        Some(other) => {
            return Err(Error::argument_said(CHECKS_VARIABLE, format!("'{other}' is not one of all, none")));
        }
    };
    open_with(device, options)
}

fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Opens an emulated device.
///
/// # Errors
/// As [`HipBackend::open`].
pub fn open_with(device: VirtualOptions, options: HipOptions) -> Result<HipBackend> {
    let name = format!("{NAME}:{}", device.target.name());
    HipBackend::open_driver(&name, options, Arc::new(VirtualDriver::new(device)))
}
