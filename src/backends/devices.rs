//! The devices of this machine. Views of one card by different drivers are grouped into one device.

#[cfg(any(feature = "vulkan", feature = "hip"))]
use super::drivers;
use crate::backend_name::BackendName;
use crate::view::{Pairing, View};
use ggml_core::phase::Deadlines;
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A device, with the view that each driver has of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The views, one per driver.
    pub views: Vec<View>,
}

/// Result of [`devices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceList {
    /// The devices.
    pub devices: Vec<Device>,
    /// Drivers that list no device: name and reason.
    pub absent: Vec<(String, String)>,
}

/// Drivers that list devices.
pub(crate) const DRIVERS: &[&str] = &["vulkan", "hip", "hip-nvidia"];

/// Time limit for one driver to list its devices.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Lists the devices of this machine, with the drivers that can reach each of them. No device is opened.
/// Drivers run in child processes, where a crash does no harm, if the program has called
/// [`compare::child_entry`](crate::compare::child_entry); otherwise they run in this process, and a driver
/// that crashes ends the program.
///
/// ```no_run
/// for device in diptych::devices().devices {
///     println!("{}", device.name);
///     for view in device.views {
///         println!("  {} ({}, {})", view.backend, view.driver, view.arch);
///     }
/// }
/// ```
pub fn devices() -> DeviceList {
    devices_with(None)
}

/// Lists [`devices`], loading the given HIP library.
pub(crate) fn devices_with(library: Option<PathBuf>) -> DeviceList {
    let mut list = DeviceList::default();
    for driver in DRIVERS {
        match views_of(driver, library.clone()) {
            Ok(views) => views.into_iter().for_each(|view| list.add(view)),
            Err(reason) => list.absent.push((driver.to_string(), reason)),
        }
    }
    list
}

fn views_of(driver: &str, library: Option<PathBuf>) -> Result<Vec<View>, String> {
    #[cfg(feature = "compare")]
    if crate::isolate::has_children() {
        return crate::isolate::list(driver, LIST_TIMEOUT, library);
    }
    views(driver, LIST_TIMEOUT, library).map_err(|error| error.to_string())
}

impl DeviceList {
    /// Adds a view to the device it belongs to, or as a new device.
    pub(crate) fn add(&mut self, view: View) {
        let is_of = |device: &&mut Device| {
            device.views.iter().any(|other| matches!(Pairing::of(other, &view), Pairing::Same(_)))
        };
        match self.devices.iter_mut().find(is_of) {
            Some(device) => device.views.push(view),
            None => self.devices.push(Device { name: view.name.clone(), views: vec![view] }),
        }
    }
}

/// Lists the devices of a driver, in this process.
///
/// # Errors
/// The errors of loading the driver's library; [`Error::InvalidArgument`] for a name that is not in
/// [`DRIVERS`].
pub(crate) fn views(driver: &str, limit: Duration, library: Option<PathBuf>) -> Result<Vec<View>> {
    let _options =
        super::OpenOptions::default().with_deadlines(Deadlines::all(limit)).with_hip_library(library);
    match driver.parse::<BackendName>()? {
        #[cfg(feature = "vulkan")]
        BackendName::Vulkan(_) => drivers::vulkan_views(&_options),
        #[cfg(feature = "hip")]
        BackendName::Hip(_) => drivers::hip_views(&_options),
        #[cfg(feature = "hip")]
        BackendName::HipNvidia(_) => drivers::hip_nvidia_views(&_options),
        name if super::feature(&name).is_some() => Err(super::unavailable(&name)),
        _ => Err(Error::argument("driver", format!("'{driver}'"), DRIVERS.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(backend: &str, driver: &str, pci: Option<&str>, uuid: Option<&str>) -> View {
        View {
            backend: backend.into(),
            driver: driver.into(),
            pci: pci.map(String::from),
            uuid: uuid.map(String::from),
            ..View::default()
        }
    }

    #[test]
    fn views_of_one_card_are_one_device() {
        let mut list = DeviceList::default();
        list.add(view("vulkan:0", "radv", Some("0000:43:00"), None));
        list.add(view("vulkan:1", "llvmpipe", None, None));
        list.add(view("hip:0", "AMD HIP", Some("0000:43:00"), None));
        let names: Vec<Vec<&str>> =
            list.devices.iter().map(|d| d.views.iter().map(|v| v.backend.as_str()).collect()).collect();
        assert_eq!(names, [vec!["vulkan:0", "hip:0"], vec!["vulkan:1"]]);
        assert!(views("cpu", LIST_TIMEOUT, None).is_err());
    }
}
