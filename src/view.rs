//! One driver's view of a device, and the question whether two views are of one card.

use crate::backend_name::BackendName;
use ggml_core::backend::DeviceInfo;
use serde::{Deserialize, Serialize};

/// One driver's view of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The name that opens it ("vulkan:0").
    pub backend: String,
    /// Device name that the driver reports.
    pub name: String,
    /// Name of the driver.
    pub driver: String,
    /// Architecture class or target.
    pub arch: String,
    /// PCI domain, bus and device ("0000:43:00"), if the driver reports them.
    pub pci: Option<String>,
    /// UUID, in the driver's own format.
    pub uuid: Option<String>,
    /// Bytes of its memory, if known.
    pub memory: Option<u64>,
    /// True if the host processor does the computing.
    pub is_processor: bool,
}

impl View {
    /// Returns the view of an open backend.
    pub fn of(info: &DeviceInfo) -> View {
        let DeviceInfo { backend, name, driver, arch, features, uuid, memory, .. } = info;
        View { memory: *memory, ..View::new(backend, name, driver, arch, features, uuid.as_ref()) }
    }

    /// Builds a view from its parts.
    pub(crate) fn new(
        backend: &str,
        name: &str,
        driver: &str,
        arch: &str,
        features: &[(String, String)],
        uuid: Option<&String>,
    ) -> View {
        let feature = |names: &[&str]| {
            features.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, v)| v.clone())
        };
        View {
            backend: backend.into(),
            name: name.into(),
            driver: driver.into(),
            arch: arch.into(),
            pci: feature(&["PCI", "pci_address"]),
            uuid: uuid.cloned(),
            memory: None,
            is_processor: feature(&["kind"]).as_deref() == Some("cpu"),
        }
    }

    /// True if the view is of a real card, neither of the host processor nor of an emulated card.
    #[cfg(feature = "compare")]
    pub(crate) fn is_card(&self) -> bool {
        !self.is_processor && self.emulated().is_none()
    }

    /// Returns the UUID's 32 digits, if they can be compared with another driver's. AMD's runtime reports the
    /// card's serial number instead of a UUID.
    fn digits(&self) -> Option<String> {
        let uuid = self.uuid.as_ref()?;
        let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
        (digits.len() == 32).then(|| digits.to_lowercase())
    }

    /// Returns the PCI address: as the driver reports it, or decoded from RADV's UUID, which consists of it.
    fn pci_address(&self) -> Option<String> {
        if self.pci.is_some() || !self.driver.to_lowercase().contains("radv") {
            return self.pci.clone();
        }
        let digits = self.digits()?;
        // Four integers of four bytes each, least significant byte first: domain, bus, device, function.
        let number = |i: usize| {
            let bytes =
                (0..4).map(|b| u32::from_str_radix(digits.get(8 * i + 2 * b..8 * i + 2 * b + 2)?, 16).ok());
            bytes.enumerate().try_fold(0, |sum, (b, byte)| Some(sum | byte? << (8 * b)))
        };
        let (domain, bus, device, function) = (number(0)?, number(1)?, number(2)?, number(3)?);
        (bus < 256 && device < 32 && function < 8).then(|| format!("{domain:04x}:{bus:02x}:{device:02x}"))
    }

    /// Returns the emulated card; the views of both of its drivers give the same value.
    fn emulated(&self) -> Option<BackendName> {
        let name = self.backend.split(':').take(2).collect::<Vec<_>>().join(":");
        match name.parse().ok()? {
            BackendName::HipVirtual(target)
            | BackendName::VulkanVirtual(target)
            | BackendName::HipKfd(target) => Some(BackendName::HipVirtual(target)),
            _ => None,
        }
    }
}

/// Result of comparing two views: same card or not, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// One card.
    Same(String),
    /// Two cards: comparing them does not test a driver.
    Different(String),
    /// No evidence either way.
    Unknown(String),
}

impl Pairing {
    /// Compares two views by their PCI addresses and UUIDs.
    pub fn of(a: &View, b: &View) -> Pairing {
        let (first, second) = (&a.backend, &b.backend);
        match (a.emulated(), b.emulated()) {
            (Some(one), Some(other)) if one == other => {
                return Pairing::Same("one emulated processor".into());
            }
            (None, None) => {}
            _ => return Pairing::Different(format!("{first} and {second}: not the same emulated processor")),
        }
        if let (Some(one), Some(other)) = (a.pci_address(), b.pci_address()) {
            return match one == other {
                true => Pairing::Same(format!("both at PCI address {one}")),
                false => Pairing::Different(format!("{first} is at PCI address {one}, {second} at {other}")),
            };
        }
        match (a.digits(), b.digits()) {
            (Some(one), Some(other)) if one == other => Pairing::Same(format!("both have UUID {one}")),
            (Some(one), Some(other)) => {
                Pairing::Different(format!("{first} has UUID {one}, {second} has {other}"))
            }
            _ => Pairing::Unknown(format!(
                "{first} and {second} give neither a PCI address nor a UUID that can be compared"
            )),
        }
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

    /// RADV's UUID of the card at 0000:43:00.0.
    const RADV: &str = "00000000-4300-0000-0000-000000000000";

    #[test]
    fn one_card_under_two_drivers() {
        let hip = view("hip:0", "AMD HIP", Some("0000:43:00"), Some("GPU-d2b5e1f8a0c1e0aa"));
        let other = view("hip:1", "AMD HIP", Some("0000:03:00"), None);
        let same = |a: &View, b: &View| matches!(Pairing::of(a, b), Pairing::Same(_));
        assert!(same(&view("vulkan:0", "radv", Some("0000:43:00"), Some(RADV)), &hip));
        // An older driver, without the extension that reports the address.
        let old = view("vulkan:0", "radv", None, Some(RADV));
        assert!(same(&old, &hip));
        let why = Pairing::Different("vulkan:0 is at PCI address 0000:43:00, hip:1 at 0000:03:00".into());
        assert_eq!(Pairing::of(&old, &other), why);
        let amdvlk = view("vulkan:1", "AMD open-source driver", None, Some(RADV));
        assert!(matches!(Pairing::of(&amdvlk, &hip), Pairing::Unknown(_)), "no form that can be compared");
    }

    #[test]
    fn nvidia_and_emulated_cards() {
        let uuid = "8f2b4c9d-0011-2233-4455-66778899aabb";
        let vulkan = view("vulkan:0", "NVIDIA", None, Some(uuid));
        let hip = view("hip-nvidia:0", "NVIDIA", None, Some(&uuid.replace('-', "")));
        assert!(matches!(Pairing::of(&vulkan, &hip), Pairing::Same(_)));
        let another = view("hip-nvidia:1", "NVIDIA", None, Some(&uuid.replace("8f", "90")));
        assert!(matches!(Pairing::of(&vulkan, &another), Pairing::Different(_)));
        let emulated = |name: &str| view(name, "", None, None);
        assert!(matches!(
            Pairing::of(&emulated("hip-virtual:gfx906:0"), &emulated("vulkan-virtual:vega20")),
            Pairing::Same(_)
        ));
        for other in ["vulkan-virtual:vega10", "vulkan:0"] {
            let pairing = Pairing::of(&emulated("hip-virtual:gfx906"), &emulated(other));
            assert!(matches!(pairing, Pairing::Different(_)), "{other}");
        }
    }
}
