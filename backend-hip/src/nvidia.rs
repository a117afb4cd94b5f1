//! NVIDIA devices: the backend over libcuda (see [`Nvidia`]).

pub use crate::provider::nvidia::Nvidia;

use crate::backend::HipBackend;
use crate::code::kernels::Embedded;
use crate::driver::Driver;
use crate::options::HipOptions;
use crate::runtime::device::{self, Provider};
use ggml_core::Result;
use ggml_core::backend::DeviceInfo;
use std::sync::Arc;

/// Opens an NVIDIA device. The backend's name is `hip-nvidia`.
///
/// # Errors
/// As [`HipBackend::open`], with libcuda in place of libamdhip64.
pub fn open(options: HipOptions) -> Result<HipBackend> {
    HipBackend::open_with("hip-nvidia", options, provider(), Arc::new(Embedded))
}

/// Returns the devices that libcuda lists.
///
/// # Errors
/// As [`open`], except that devices without kernels are listed too.
pub fn devices(options: &HipOptions) -> Result<Vec<DeviceInfo>> {
    device::enumerate("hip-nvidia", options, provider())
}

fn provider() -> Provider {
    Box::new(|options| Nvidia::load(options).map(|nvidia| Arc::new(nvidia) as Arc<dyn Driver>))
}
