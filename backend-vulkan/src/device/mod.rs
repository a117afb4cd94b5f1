//! Enumeration, selection and reporting of devices.

pub mod candidates;
pub(crate) mod cost;
mod mat_vec;
pub(crate) mod probe;
mod processor;
pub mod profile;
mod routes;
mod tiles;
pub mod tuning;

use self::probe::LaneReport;
use self::profile::Profile;
use self::routes::Choice;
use crate::arch::{ArchClass, Matrices, SharedTiles};
use crate::deadline::guarded;
use crate::environment::environment;
use crate::options::VulkanOptions;
use crate::raw::device::{Device, Purpose};
use crate::raw::instance::{Instance, driver_manifests, version_text};
use crate::raw::physical::{self, DeviceKind, Facts};
use crate::raw::provider::{BACKEND, Provider};
use crate::route::Route;
use ggml_core::Deadline;
use ggml_core::backend::{DeviceInfo, Limits};
use ggml_core::routes::Identity;
use ggml_core::{Error, Missing, Phase, Result, phase};
use std::path::Path;
use std::sync::Arc;

/// Properties of a device that are known without opening it.
#[derive(Clone, Debug)]
pub struct DeviceSummary {
    /// Index in the loader's list: N of `vulkan:N`.
    pub index: usize,
    /// Device name from the driver.
    pub name: String,
    /// Kind of device.
    pub kind: DeviceKind,
    /// Driver name and version.
    pub driver: String,
    /// Highest supported Vulkan version ("1.4.305").
    pub api: String,
    /// Architecture class.
    pub arch: ArchClass,
    /// UUID.
    pub uuid: String,
    /// PCI domain, bus and device, if the driver reports them.
    pub pci: Option<[u32; 3]>,
    /// Bytes of device-local memory.
    pub memory: u64,
    /// The reason if the device cannot be opened.
    pub unusable: Option<String>,
}

/// Returns the devices of this machine in the loader's order, without opening any.
///
/// # Errors
/// [`Error::Unavailable`] if there is no loader, no driver or no device.
pub fn enumerate(options: &VulkanOptions) -> Result<Vec<DeviceSummary>> {
    let deadline = Deadline::new(Phase::Enumerate, options.deadlines.open);
    let options = options.clone();
    guarded(BACKEND, deadline, move || {
        let instance = instance(&options)?;
        let all = candidates(&instance)?;
        let is_processor = |c: &Candidate| c.facts.as_ref().is_ok_and(|f| f.kind == DeviceKind::Cpu);
        if all.iter().all(is_processor) {
            report_processor(&instance);
        }
        Ok(all.iter().map(Candidate::summary).collect())
    })
}

/// Lowest supported Vulkan version; earlier versions lack features that the backend requires.
const OLDEST: u32 = ash::vk::API_VERSION_1_2;

/// A device in the loader's list.
struct Candidate {
    index: usize,
    physical: ash::vk::PhysicalDevice,
    /// Device properties, or `Err` with the name and version of a device whose version is too low.
    facts: std::result::Result<Facts, (String, u32)>,
}

impl Candidate {
    fn summary(&self) -> DeviceSummary {
        match &self.facts {
            Ok(facts) => DeviceSummary {
                index: self.index,
                name: facts.name.clone(),
                kind: facts.kind,
                driver: format!("{} {}", facts.driver, facts.driver_info).trim().to_string(),
                api: facts.api_text(),
                arch: facts.caps.arch,
                uuid: uuid_text(&facts.uuid),
                pci: facts.pci,
                memory: facts.local_memory(),
                unusable: None,
            },
            Err((name, version)) => DeviceSummary {
                index: self.index,
                name: name.clone(),
                kind: DeviceKind::Other,
                driver: String::new(),
                api: version_text(*version),
                arch: ArchClass::Other,
                uuid: String::new(),
                pci: None,
                memory: 0,
                unusable: Some(too_old(*version)),
            },
        }
    }
}

fn too_old(version: u32) -> String {
    format!("it supports Vulkan {}; {} is required", version_text(version), version_text(OLDEST))
}

fn instance(options: &VulkanOptions) -> Result<Arc<Instance>> {
    let _span = phase::enter(Phase::LoadRuntime, BACKEND);
    Instance::new(Provider::of(options)?, options.validation)
}

fn candidates(instance: &Instance) -> Result<Vec<Candidate>> {
    let _span = phase::enter(Phase::Enumerate, BACKEND);
    let candidate = |(index, physical)| {
        phase::call("vkGetPhysicalDeviceProperties", "");
        let version = physical::api_version(instance, physical);
        let facts = match version >= OLDEST {
            true => Ok(Facts::of(instance, physical)),
            false => Err((physical::name_of(instance, physical), version)),
        };
        Candidate { index, physical, facts }
    };
    let all: Vec<Candidate> = instance.physical_devices()?.into_iter().enumerate().map(candidate).collect();
    if all.is_empty() {
        let denied = processor::denied_nodes(Path::new("/"));
        let (missing, why) = match denied.is_empty() {
            true => (Missing::Device, driver_manifests()),
            false => {
                (Missing::Permission, format!("this user has no permission to open {}", denied.join(", ")))
            }
        };
        let reason = format!("{} lists no device; {why}", instance.library);
        return Err(Error::Unavailable { backend: BACKEND.into(), phase: Phase::Enumerate, missing, reason });
    }
    Ok(all)
}

/// Says that a processor stands in for a card, and why a card of this machine is not listed.
fn report_processor(instance: &Instance) {
    let root = Path::new("/");
    let (denied, library) = (processor::denied_nodes(root), &instance.library);
    match processor::missing_card(root, &denied, &driver_manifests()) {
        Some(why) => tracing::warn!(
            library,
            why,
            "the Vulkan loader lists no GPU, and a processor is many times slower"
        ),
        None => tracing::info!(library, "the Vulkan loader lists no GPU: a processor is used"),
    }
}

/// Properties of a device by which one of several is preferred.
#[derive(Clone, Copy, Debug)]
struct Rank {
    kind: DeviceKind,
    /// PCI domain, bus and device.
    pci: Option<[u32; 3]>,
    /// True for Mesa's driver of an AMD card.
    is_mesa: bool,
}

/// Returns the first device of the best kind; those without a rank cannot be used. Of several drivers for one card Mesa's
/// comes first.
fn preferred(ranks: &[Option<Rank>]) -> Option<usize> {
    let usable = ranks.iter().enumerate().filter_map(|(index, rank)| Some((index, (*rank)?)));
    let best = usable.min_by_key(|(index, rank)| {
        let is_same = |other: &Option<Rank>| rank.pci.is_some() && other.is_some_and(|o| o.pci == rank.pci);
        (rank.kind, ranks.iter().position(is_same).unwrap_or(*index), !rank.is_mesa, *index)
    });
    best.map(|(index, _)| index)
}

/// Returns the device selected by the options.
fn choose(all: Vec<Candidate>, wanted: Option<usize>) -> Result<(usize, ash::vk::PhysicalDevice, Facts)> {
    let count = all.len();
    let unavailable = |backend: String, missing, reason| {
        Err(Error::Unavailable { backend, phase: Phase::Enumerate, missing, reason })
    };
    let rank = |candidate: &Candidate| {
        let facts = candidate.facts.as_ref().ok()?;
        Some(Rank { kind: facts.kind, pci: facts.pci, is_mesa: facts.is_mesas_for_amd() })
    };
    let best = || preferred(&all.iter().map(rank).collect::<Vec<_>>());
    let chosen = wanted.or_else(best).and_then(|index| all.into_iter().nth(index));
    match chosen {
        Some(Candidate { index, physical, facts: Ok(facts) }) => Ok((index, physical, facts)),
        Some(Candidate { index, facts: Err((name, version)), .. }) => {
            unavailable(format!("vulkan:{index}"), Missing::Feature, format!("{name}: {}", too_old(version)))
        }
        None => match wanted {
            Some(index) => {
                let reason = format!("there is no device {index}; the loader lists {count}");
                unavailable(format!("vulkan:{index}"), Missing::Device, reason)
            }
            None => {
                let reason = format!("none of {count} devices supports Vulkan {}", version_text(OLDEST));
                unavailable(BACKEND.into(), Missing::Feature, reason)
            }
        },
    }
}

/// Opens only the device selected by the options, and returns it with the choice of its routes.
pub(crate) fn open(options: &VulkanOptions, purpose: Purpose) -> Result<(Arc<Device>, Choice)> {
    let (forced, matrices) = (options.forced_arch()?, options.used_matrices()?);
    let shared = options.chosen_shared_tiles()?;
    let instance = instance(options)?;
    let (index, physical, mut facts) = choose(candidates(&instance)?, options.device)?;
    if options.device.is_none() && facts.kind == DeviceKind::Cpu {
        report_processor(&instance);
    }
    if let Some(class) = forced {
        facts.caps.arch = class;
    }
    facts.caps.small_shared_tiles = shared == Some(SharedTiles::Small);
    facts.caps.emulated_matrices = matrices == Some(Matrices::Emulated);
    if let Some(limit) = options.max_binding {
        facts.caps.max_binding = facts.caps.max_binding.min(limit.max(256));
    }
    if let Some(limit) = options.max_workgroups {
        facts.caps.max_workgroups = facts.caps.max_workgroups.map(|n| n.min(limit.max(1)));
    }
    let name = instance.provider.device_name(index);
    let _span = phase::enter(Phase::OpenDevice, &name);
    phase::learnt("device", &facts.name);
    phase::learnt("driver", &format!("{} {}", facts.driver, facts.driver_info));
    let choice = Choice::read(&facts, options)?;
    facts.support.features.matrices = choice.wants_matrices();
    facts.support.features.matrix_rows &= facts.support.features.matrices;
    if facts.support.features.matrices {
        facts.caps.matrices = physical::matrices(&instance, physical);
    }
    Ok((Device::open(&instance, physical, facts, name, purpose)?, choice))
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Alignment of tensors in an arena: the device's, but at least a cache line of any GPU.
const ARENA_ALIGNMENT: u64 = 256;

/// Returns the report of an opened device, without its routes.
pub(crate) fn info(
    device: &Device,
    profile: &Profile,
    lanes: &LaneReport,
    max_allocation: u64,
    options: &VulkanOptions,
) -> DeviceInfo {
    let facts = &device.facts;
    let instance = device.instance();
    let text = |s: &str| s.to_string();
    let versions = vec![
        (text("api"), facts.api_text()),
        (text("driver"), facts.driver_info.clone()),
        (text("driver_number"), format!("{:#x}", facts.driver_version)),
        (text("conformance"), facts.conformance.clone()),
        (text("loader"), version_text(instance.loader_version)),
        (text("loader_library"), instance.library.clone()),
        (text("shaders"), text(shaders::digest())),
        (text("diptych"), text(env!("CARGO_PKG_VERSION"))),
    ];
    let caps = &profile.caps;
    DeviceInfo {
        backend: device.name.clone(),
        name: facts.name.clone(),
        driver: facts.driver.clone(),
        versions,
        arch: text(caps.arch.name()),
        uuid: Some(uuid_text(&facts.uuid)),
        memory: Some(facts.local_memory()),
        unified: facts.unified(),
        features: features(facts, profile, lanes),
        overrides: overrides(options),
        limits: Limits {
            max_allocation,
            max_binding: caps.max_binding,
            alignment: caps.binding_alignment.max(ARENA_ALIGNMENT) as usize,
        },
        routes: Vec::new(),
        candidates: Vec::new(),
        identity: Identity::default(),
    }
}

fn features(facts: &Facts, profile: &Profile, lanes: &LaneReport) -> Vec<(String, String)> {
    let caps = &profile.caps;
    let ops = [
        (caps.subgroup.arithmetic, "arithmetic"),
        (caps.subgroup.shuffle, "shuffle"),
        (caps.subgroup.ballot, "ballot"),
    ];
    let ops: Vec<&str> = ops.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let matrices: Vec<String> =
        caps.matrices.iter().map(|s| format!("{:?} {}x{}x{}", s.types, s.m, s.n, s.k)).collect();
    let none = |list: String| if list.is_empty() { "none".into() } else { list };
    let dot = match (caps.int_dot, caps.int_dot_signed, caps.int_dot_mixed) {
        (false, ..) => "no",
        (true, false, _) => "emulated",
        (true, true, false) => "signed",
        (true, true, true) => "signed, mixed",
    };
    let pairs = [
        ("kind", facts.kind.name().to_string()),
        ("pci", format!("{:04x}:{:04x}", facts.ids.0, facts.ids.1)),
        ("unified_memory", facts.unified().to_string()),
        ("fp16", caps.fp16.to_string()),
        ("int8", caps.int8.to_string()),
        ("storage16", caps.storage16.to_string()),
        ("storage8", caps.storage8.to_string()),
        ("int_dot", dot.to_string()),
        ("matrices", none(matrices.join(", "))),
        ("matrices_used", used_matrices(profile).into()),
        (
            "subgroup_size",
            format!("{} ({}..{})", caps.subgroup_default, caps.subgroup_min, caps.subgroup_max),
        ),
        ("subgroup_size_control", caps.subgroup_control.to_string()),
        ("subgroup_ops", none(ops.join(", "))),
        ("lane_probe", lanes.summary()),
        ("shared_memory", caps.shared_bytes.to_string()),
        ("workgroup", caps.max_invocations.to_string()),
        ("waves_per_simd", caps.waves_per_simd.map_or("unknown".into(), |w| w.to_string())),
        ("compute_units", caps.compute_units.map_or("unknown".into(), |c| c.to_string())),
        ("buffer_marker", facts.support.features.marker.to_string()),
    ];
    let address = facts.pci.map(|[domain, bus, device]| format!("{domain:04x}:{bus:02x}:{device:02x}"));
    let address = address.map(|text| (PCI_ADDRESS, text));
    pairs.into_iter().chain(address).map(|(name, value)| (name.to_string(), value)).collect()
}

fn used_matrices(profile: &Profile) -> &'static str {
    let products = profile.uses(Route::MatrixProducts);
    match (profile.caps.emulated_matrices, products, profile.uses(Route::MatrixAttention)) {
        (_, false, false) => "off",
        (true, ..) => "emulated",
        (_, true, true) => "on",
        (_, true, false) => "products",
        (_, false, true) => "attention",
    }
}

/// Name of the feature of [`DeviceInfo`] that holds a device's PCI address ("0000:43:00").
pub const PCI_ADDRESS: &str = "pci_address";

fn overrides(options: &VulkanOptions) -> Vec<(String, String)> {
    let mut all = environment().overrides.clone();
    if let Some(class) = options.arch {
        all.push(("option arch".into(), class.name().into()));
    }
    if let Some(routes) = &options.routes {
        all.push(("option routes".into(), routes.to_string()));
    }
    if let Some(matrices) = options.matrices {
        all.push(("option matrices".into(), matrices.name().into()));
    }
    if let Some(limit) = options.max_binding {
        all.push(("option max_binding".into(), limit.to_string()));
    }
    if let Some(limit) = options.max_workgroups {
        all.push(("option max_workgroups".into(), limit.to_string()));
    }
    if let Some(budget) = options.memory {
        all.push(("option memory".into(), format!("{budget:?}")));
    }
    if options.force_staging {
        all.push(("option force_staging".into(), "true".into()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_has_its_own_error() {
        let options =
            VulkanOptions { library: Some("/nonexistent/libvulkan.so".into()), ..VulkanOptions::default() };
        match enumerate(&options) {
            Err(Error::Unavailable {
                missing: Missing::Library, phase: Phase::LoadRuntime, reason, ..
            }) => {
                assert!(reason.contains("/nonexistent/libvulkan.so"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// The loader's order does not decide which driver of a card is used, but which of two cards.
    #[test]
    fn of_two_drivers_mesas_is_preferred() {
        let of = |kind, bus, is_mesa| Some(Rank { kind, pci: Some([0, bus, 0]), is_mesa });
        let card = |bus, is_mesa| of(DeviceKind::Discrete, bus, is_mesa);
        assert_eq!(preferred(&[card(3, false), card(3, true)]), Some(1));
        assert_eq!(preferred(&[card(3, true), card(3, false)]), Some(0));
        assert_eq!(preferred(&[card(3, false), card(9, true)]), Some(0), "another card");
        assert_eq!(preferred(&[card(3, false), card(9, true), card(3, true)]), Some(2));
        assert_eq!(preferred(&[of(DeviceKind::Integrated, 3, true), card(9, false)]), Some(1));
        let nowhere = |is_mesa| Some(Rank { kind: DeviceKind::Discrete, pci: None, is_mesa });
        assert_eq!(preferred(&[nowhere(false), nowhere(true)]), Some(0));
        assert_eq!((preferred(&[None, card(3, false)]), preferred(&[None])), (Some(1), None));
    }

    #[test]
    fn uuids_are_written_as_usual() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid_text(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
