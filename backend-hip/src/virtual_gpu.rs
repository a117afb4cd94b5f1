//! Emulated devices: the backend over a processor in software (see [`VirtualDriver`]).

pub use crate::provider::virtual_gpu::{
    Checks, Counters, FAULTS_VARIABLE, Faults, Injection, Target, VirtualDriver, VirtualOptions, Wrong,
    parse_faults,
};

use crate::backend::HipBackend;
use crate::options::HipOptions;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Name of the backend, without the processor.
pub const NAME: &str = "hip-virtual";

/// Variable that enables or disables checks: `all` (the default) or `none`.
pub const CHECKS_VARIABLE: &str = "DIPTYCH_VIRTUAL_CHECKS";

/// Opens an emulated device of a processor ("gfx906", "gfx900", "gfx90a", "gfx942", "gfx1100" or "gfx1151"), with checks
/// and faults from the environment.
///
/// # Errors
/// An argument error for an unknown name or value, and the errors of [`HipBackend::open`].
pub fn open(target: &str, options: HipOptions) -> Result<HipBackend> {
    let target = Target::parse(target)
        .ok_or_else(|| Error::argument("emulated processor", format!("'{target}'"), names()))?;
    let mut device = VirtualOptions::new(target);
    if let Some(text) = set(FAULTS_VARIABLE) {
        device.faults = parse_faults(&text)?;
    }
    device.checks = match set(CHECKS_VARIABLE).as_deref() {
        None | Some("all") => Checks::ALL,
        Some("none") => Checks::NONE,
        Some(other) => {
            return Err(Error::argument(CHECKS_VARIABLE, format!("'{other}'"), "all or none"));
        }
    };
    open_with(device, options)
}

/// Returns the names of the emulated processors, for messages.
fn names() -> String {
    let names = Target::ALL.map(Target::name);
    format!("one of {}", names.join(", "))
}

fn set(variable: &str) -> Option<String> {
    // A value that is no valid text is no known value either: the error quotes it.
    let value = std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
    value.filter(|value| !value.is_empty())
}

/// Opens an emulated device.
///
/// # Errors
/// As [`HipBackend::open`].
pub fn open_with(device: VirtualOptions, options: HipOptions) -> Result<HipBackend> {
    let name = format!("{NAME}:{}", device.target.name());
    HipBackend::open_driver(&name, options, Arc::new(VirtualDriver::new(device)))
}
