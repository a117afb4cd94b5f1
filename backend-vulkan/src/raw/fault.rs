//! The driver's details of a lost device (VK_EXT_device_fault): faulting addresses and descriptions.

use super::physical::text;
use ash::{ext, vk};

/// Maximum entries requested for each list.
const MOST: usize = 8;

/// Returns the driver's description of the fault in one line; `None` if there is none. The device must be
/// lost.
pub(super) fn describe(functions: &ext::device_fault::Device) -> Option<String> {
    let mut addresses = [vk::DeviceFaultAddressInfoEXT::default(); MOST];
    let mut notes = [vk::DeviceFaultVendorInfoEXT::default(); MOST];
    let mut counts = vk::DeviceFaultCountsEXT {
        address_info_count: MOST as u32,
        vendor_info_count: MOST as u32,
        ..Default::default()
    };
    let mut info = vk::DeviceFaultInfoEXT {
        p_address_infos: addresses.as_mut_ptr(),
        p_vendor_infos: notes.as_mut_ptr(),
        ..Default::default()
    };
    let code =
        // SAFETY: the extension and its feature are enabled, and the device is lost (the caller's duty); both
        // arrays have room for the numbers in `counts`, and no binary data is requested.
        unsafe { (functions.fp().get_device_fault_info_ext)(functions.device(), &mut counts, &mut info) };
    if code != vk::Result::SUCCESS && code != vk::Result::INCOMPLETE {
        return None;
    }
    let mut words = vec![text(&info.description)];
    let filled = (counts.address_info_count as usize).min(MOST);
    words.extend(addresses[..filled].iter().map(|a| {
        let (kind, around) = (a.address_type, a.address_precision);
        format!("{kind:?} at {:#x} (within {around:#x})", a.reported_address)
    }));
    let filled = (counts.vendor_info_count as usize).min(MOST);
    words.extend(
        notes[..filled].iter().map(|n| {
            format!("{} {:#x} {:#x}", text(&n.description), n.vendor_fault_code, n.vendor_fault_data)
        }),
    );
    Some(words.join("; "))
}
