//! Emulated devices: the backend over a processor in software (see [`VirtualDriver`]).

pub use crate::provider::virtual_gpu::{
    Checks, Counters, FAULTS_VARIABLE, Faults, Injection, Random, Target, VirtualDriver, VirtualOptions,
    Wrong, parse_faults,
};

use crate::backend::HipBackend;
use crate::options::HipOptions;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Name of the backend, without the processor.
pub const NAME: &str = "hip-virtual";

/// Variable with the checks: see [`Checks::parse`]; `all` is the default.
pub const CHECKS_VARIABLE: &str = "DIPTYCH_VIRTUAL_CHECKS";

/// Values of the variable.
const CHECKS: &str = "all, none, or some of races, uninitialised, alignment, barriers, waits, ranges, order";

/// Variable with the seed of what is random on an emulated device: contents of memory and registers, orders. The default
/// is 1.
pub const SEED_VARIABLE: &str = "DIPTYCH_VIRTUAL_SEED";

/// Opens an emulated device of a processor ("gfx906", "gfx900", "gfx90a", "gfx942", "gfx1100" or "gfx1151"), with checks,
/// faults and seed from the environment.
///
/// # Errors
/// An argument error for an unknown name or value, and the errors of [`HipBackend::open`].
pub fn open(target: &str, options: HipOptions) -> Result<HipBackend> {
    open_with(from_environment(target)?, options)
}

/// Returns the options of an emulated device of a processor, with checks, faults and seed from the environment.
///
/// # Errors
/// An argument error for an unknown name or value.
pub fn from_environment(target: &str) -> Result<VirtualOptions> {
    let target = Target::parse(target)
        .ok_or_else(|| Error::argument("emulated processor", format!("'{target}'"), names()))?;
    let mut device = VirtualOptions::new(target);
    if let Some(text) = set(FAULTS_VARIABLE) {
        device.faults = parse_faults(&text)?;
    }
    if let Some(text) = set(CHECKS_VARIABLE) {
        let wrong = || Error::argument(CHECKS_VARIABLE, format!("'{text}'"), CHECKS);
        device.checks = Checks::parse(&text).ok_or_else(wrong)?;
    }
    if let Some(text) = set(SEED_VARIABLE) {
        let wrong = || Error::argument(SEED_VARIABLE, format!("'{text}'"), "a number");
        device.seed = text.parse().map_err(|_| wrong())?;
    }
    Ok(device)
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
