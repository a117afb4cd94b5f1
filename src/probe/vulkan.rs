//! Vulkan's path to a card, as far as files describe it.

use super::card::Found;
use super::report::{AccessPath, Gate, Line, State};
use crate::backends::files::{self, Variables};
use backend_hip::HipOptions;
use backend_hip::advice::{self, Situation, Stack};
use backend_hip::system::KernelFacts;
use ggml_core::files::Root;

/// Source of the loader and the drivers, for advice.
pub(super) const GET: &str = "install Vulkan's loader and Mesa's drivers (Debian, Ubuntu: apt install libvulkan1 \
                              mesa-vulkan-drivers; Fedora: dnf install vulkan-loader mesa-vulkan-drivers)";

/// The same in a few words.
const SHORT: &str = "install libvulkan1 and mesa-vulkan-drivers";

/// Returns the line of the loader and its drivers, and Mesa's version. With `amd`, only drivers for AMD's
/// cards count.
pub(super) fn runtime(root: &Root, variables: &Variables, amd: bool) -> (Line, Option<String>) {
    let line = |state, text: String| Line::new(Gate::Runtime, AccessPath::Vulkan, state, text);
    let Some(loader) = files::vulkan_loader(root) else {
        let none = line(State::Blocks, "no libvulkan.so.1".into()).with([GET.into()]);
        return (none.because("no libvulkan.so.1", SHORT), None);
    };
    let counts = |path: &std::path::Path| {
        let name = path.to_string_lossy();
        !amd || ["radeon", "amdvlk", "amd_pro", "amdgpu"].iter().any(|part| name.contains(part))
    };
    let drivers =
        files::vulkan_drivers(root, variables).into_iter().filter(|driver| counts(&driver.manifest));
    let mut mesa = None;
    let mut there = false;
    let mut parts = vec![loader.display().to_string()];
    for driver in drivers {
        let name = driver.manifest.file_name().unwrap_or_default().to_string_lossy().into_owned();
        there |= driver.library.is_some();
        parts.push(match (&driver.library, &driver.mesa) {
            (None, _) => format!("{}: its library was not found", driver.manifest.display()),
            (Some(_), Some(version)) => format!("{name} (Mesa {version})"),
            (Some(path), None) => format!("{name} ({})", path.display()),
        });
        mesa = mesa.or(driver.mesa);
    }
    if there {
        return (line(State::Allows, parts.join("; ")), mesa);
    }
    let places: Vec<String> =
        files::vulkan_places(variables).iter().map(|place| place.display().to_string()).collect();
    let whose = if amd { " for AMD's cards" } else { "" };
    parts.push(format!("no driver{whose} in {}", places.join(", ")));
    let none = line(State::Blocks, parts.join("; ")).with([GET.into()]);
    (none.because(format!("no driver{whose}"), SHORT), None)
}

/// Returns the line of the code, which runs on any device.
pub(super) fn code() -> Line {
    Line::new(Gate::Code, AccessPath::Vulkan, State::Allows, "SPIR-V for any device is built in")
}

/// Returns the lines of an AMD card.
pub(super) fn lines(
    found: &Found,
    variables: &Variables,
    options: &HipOptions,
    kernel: &KernelFacts,
) -> Vec<Line> {
    let (line, mesa) = runtime(&options.root(), variables, true);
    let version = mesa.as_deref().and_then(|text| {
        let mut numbers = text.split('.').map(|n| n.parse().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    let target = found.target().unwrap_or_default();
    let situation =
        Situation { stack: Stack::Vulkan, mesa: version, ..found.situation(options, kernel, target) };
    let rows = advice::known(&situation).map(|row| row.text());
    vec![
        line.with(rows),
        Line::new(
            Gate::Support,
            AccessPath::Vulkan,
            State::Allows,
            "RADV drives all of AMD's cards from GCN 1 on; nothing depends on a list",
        ),
        code(),
    ]
}
