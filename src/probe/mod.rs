//! The gate matrix: for each card and each path to it, the layers that allow or block it.
//!
//! A failure such as "runner crashed" does not name its cause. The layers between the hardware and a result
//! are the kernel's driver, device nodes, firmware, the runtime's library, official support, code for the
//! processor, the processor that the runtime recognises, and execution. They are easily confused. [`probe`]
//! checks each layer separately and gives evidence. It reads files and loads nothing in this process;
//! anything that must be executed runs in child processes with deadlines.
//!
//! ```no_run
//! use diptych::probe::{ProbeOptions, probe, table};
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     if let Some(status) = diptych::compare::child_entry() {
//!         return status;
//!     }
//!     diptych::program::run(|| diptych::program::print(table(&probe(&ProbeOptions::default())?)))
//! }
//! ```

mod card;
mod foreign;
mod hip;
mod outcome;
mod recording;
pub mod report;
mod smoke;
mod summary;
mod support;
mod table;
#[cfg(test)]
mod tests;
mod vendor;
mod vulkan;

pub use foreign::{NeededLibrary, ProgramCard, ProgramLibrary, ProgramReport, probe_program, program_table};
pub use recording::record;
pub use report::Report;
pub use table::table;

use crate::backends::files;
use crate::backends::{DRIVERS, DeviceList, View};
use crate::isolate;
use backend_hip::HipOptions;
use backend_hip::arch::Target;
use backend_hip::installed::{Installation, installed};
use backend_hip::options::Environment;
use backend_hip::system::{KernelFacts, SystemReport, cards, pci_text};
use card::Found;
use ggml_core::files::Root;
use ggml_core::{Error, Result, setters};
use hip::HipPath;
use report::{AccessPath, DeviceReport, Gate, Line, State};
use std::path::PathBuf;
use std::time::Duration;

/// Options of [`probe`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeOptions {
    /// Root of the system paths ("/"): /sys, /proc, /dev, /opt, /etc, /usr. With another root nothing is run,
    /// and the environment is read from `proc/self/environ` below it.
    pub root: PathBuf,
    /// The HIP library to load; `None` searches for it.
    pub hip_library: Option<PathBuf>,
    /// Time limit for each phase of a driver.
    pub timeout: Duration,
    /// Number of smoke tests on each path to each device; 0 runs none.
    pub runs: usize,
    /// False to read files only: no child lists the devices of a driver or runs a smoke test.
    pub children: bool,
    /// Replacement for opening a device node, for tests.
    open_node: Option<fn(&std::path::Path) -> std::io::Result<()>>,
    /// Replacement for the list of targets with built-in code, for tests.
    built_in: Option<Vec<String>>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        ProbeOptions {
            root: PathBuf::from("/"),
            hip_library: None,
            timeout: Duration::from_secs(30),
            runs: 1,
            children: true,
            open_node: None,
            built_in: None,
        }
    }
}

setters!(ProbeOptions {
    with_root => root: impl Into<PathBuf>,
    with_hip_library => hip_library: impl Into<Option<PathBuf>>,
    with_timeout => timeout: Duration,
    with_runs => runs: usize,
    with_children => children: bool,
});

/// The inputs of a probe.
struct Inspection<'a> {
    options: &'a ProbeOptions,
    root: Root,
    /// Environment of this process, or of the recorded system.
    variables: Vec<(String, String)>,
    hip: HipOptions,
    system: SystemReport,
    libraries: Installation,
    built_in: Vec<String>,
}

/// Probes every device of this machine, or of a recorded one.
///
/// Smoke tests and the drivers' device lists need child processes: the program has to call
/// [`child_entry`](crate::compare::child_entry) first in `main`. Otherwise nothing is run, and the lines of
/// the report state it.
///
/// # Errors
/// [`Error::InvalidArgument`] if the root is no folder or a value in the environment is invalid.
pub fn probe(options: &ProbeOptions) -> Result<Report> {
    if !options.root.is_dir() {
        return Err(Error::argument("root", options.root.display(), "a folder"));
    }
    let inspection = Inspection::new(options)?;
    let listed = inspection.listed();
    let devices: Vec<DeviceReport> =
        inspection.found(&listed).iter().map(|found| inspection.device(found, &listed)).collect();
    let machine = if devices.iter().any(|d| !d.views.iter().any(|v| v.is_processor)) {
        Vec::new()
    } else {
        inspection.machine(&listed)
    };
    let summary = summary::of_machine(&machine, &devices);
    Ok(Report {
        summary,
        diptych: env!("CARGO_PKG_VERSION").into(),
        root: options.root.display().to_string(),
        kernel: inspection.root.line("/proc/sys/kernel/osrelease"),
        environment: inspection.hip.environment.variables().to_vec(),
        machine,
        devices,
    })
}

impl<'a> Inspection<'a> {
    fn new(options: &'a ProbeOptions) -> Result<Inspection<'a>> {
        let root = Root::new(&options.root);
        let variables = if root.is_here() { files::variables() } else { recorded_variables(&root) };
        let mut hip = if root.is_here() { HipOptions::from_env()? } else { recorded(&root, &variables) };
        hip.library = options.hip_library.clone().or(hip.library);
        if let Some(open) = options.open_node {
            hip.open_node = open;
        }
        let built_in = || backend_hip::built_in().iter().map(|target| target.to_string()).collect();
        Ok(Inspection {
            system: SystemReport::read(&hip),
            libraries: installed(&hip),
            built_in: options.built_in.clone().unwrap_or_else(built_in),
            options,
            root,
            variables,
            hip,
        })
    }

    /// True if child processes can be run.
    fn runs(&self) -> bool {
        self.options.children && self.root.is_here() && isolate::has_children()
    }

    /// Lists the devices that the drivers report; empty if nothing can be run.
    fn listed(&self) -> DeviceList {
        let mut list = DeviceList::default();
        if !self.runs() {
            return list;
        }
        for driver in DRIVERS {
            let limit = self.options.timeout;
            match isolate::list(driver, limit, self.hip.library.clone()) {
                Ok(views) => views.into_iter().for_each(|view| list.add(view)),
                Err(why) => list.absent.push((driver.to_string(), why)),
            }
        }
        list
    }

    /// Returns the devices that the kernel lists, with the drivers' views of them, then the devices that only
    /// drivers list.
    fn found(&self, listed: &DeviceList) -> Vec<Found> {
        let mut views: Vec<Vec<View>> = listed.devices.iter().map(|device| device.views.clone()).collect();
        let mut remove_views = |pci: [u32; 3]| {
            let text = pci_text(pci);
            let at = views.iter().position(|views| views.iter().any(|v| v.pci.as_ref() == Some(&text)));
            at.map_or_else(Vec::new, |at| views.swap_remove(at))
        };
        let gpus = &self.system.gpus;
        let mut all: Vec<Found> = cards(&self.hip)
            .into_iter()
            .map(|card| Found {
                gpu: gpus.iter().find(|gpu| gpu.pci == card.pci).cloned(),
                views: remove_views(card.pci),
                card: Some(card),
            })
            .collect();
        // Cards that only compute may have no entry among the graphics cards.
        let rest = gpus.iter().filter(|gpu| !all.iter().any(|found| found.pci() == Some(gpu.pci)));
        let rest: Vec<Found> = rest
            .map(|gpu| Found { views: remove_views(gpu.pci), gpu: Some(gpu.clone()), card: None })
            .collect();
        all.extend(rest);
        views.sort_by(|a, b| a[0].backend.cmp(&b[0].backend));
        all.extend(views.into_iter().map(|views| Found { card: None, gpu: None, views }));
        all
    }

    fn device(&self, found: &Found, listed: &DeviceList) -> DeviceReport {
        let kernel = KernelFacts::read(&self.hip, found.pci().unwrap_or_default());
        let mut lines = vec![found.hardware()];
        let mut note = None;
        if found.is_amd() {
            lines.extend(found.memory());
            lines.extend(found.kernel_driver(&kernel));
            lines.extend(found.nodes(&self.system));
            let refusal =
                listed.absent.iter().find(|(driver, _)| driver == "hip").map(|(_, why)| why.as_str());
            let path = HipPath {
                found,
                options: &self.hip,
                libraries: &self.libraries,
                kernel: &kernel,
                built_in: &self.built_in,
                refusal,
                was_queried: self.runs(),
                system: &self.system,
            };
            lines.extend(path.lines());
            lines.extend(self.vendor_files(found, path.seen().as_deref()));
            lines.extend(vulkan::lines(found, &self.variables, &self.hip, &kernel));
            note = path.overridden();
        } else if found.views.iter().any(|view| view.backend.starts_with("vulkan")) {
            lines.extend([vulkan::runtime(&self.root, &self.variables, false).0, vulkan::code()]);
        }
        let (mut verdicts, mut routes, mut cards) = (Vec::new(), Vec::new(), Vec::new());
        for way in [AccessPath::Hip, AccessPath::Vulkan] {
            let view = found.views.iter().find(|view| view.backend.starts_with(way.name()));
            if view.is_none() && !found.is_amd() {
                continue;
            }
            let smoke = smoke::smoke(view, way, self.options, self.runs(), self.hip.library.clone());
            lines.extend(smoke.lines.iter().cloned());
            routes.extend(smoke.routes.iter().cloned());
            cards.extend(smoke.card.clone());
            let note = note.as_ref().filter(|_| way == AccessPath::Hip);
            let backend = view.map_or(way.name(), |view| view.backend.as_str());
            verdicts.push(smoke::verdict(way, &lines, &smoke, note, backend));
        }
        DeviceReport {
            summary: summary::of_card(&verdicts),
            name: name(found),
            ids: found.card.as_ref().map(|card| format!("{:04x}:{:04x}", card.ids.0, card.ids.1)),
            pci: found.pci().map(pci_text).or_else(|| found.views.iter().find_map(|view| view.pci.clone())),
            target: found.target().map(String::from),
            views: found.views.clone(),
            lines: ordered(lines),
            verdicts,
            routes,
            cards,
        }
    }

    /// Returns the lines of AMD's own files for a card: firmware for the chip, and files of libraries, which choose by
    /// the processor that the runtime reports.
    fn vendor_files(&self, found: &Found, seen: Option<&str>) -> Vec<Line> {
        let Some(chip) = found.target() else { return Vec::new() };
        let asic = found.gpu.as_ref().map_or("", |gpu| gpu.name.as_str());
        let folders = vendor::folders(&self.libraries);
        let processor = seen.and_then(Target::parse).map_or(chip.into(), |target| target.processor);
        vec![vendor::firmware(&self.root, chip, asic), vendor::libraries(&self.root, &processor, &folders)]
    }

    /// Returns the lines for a machine without a card, with the missing parts.
    fn machine(&self, listed: &DeviceList) -> Vec<Line> {
        let line = |gate, way, text: String| Line::new(gate, way, State::Blocks, text);
        let driver = self.root.at("/sys/module/amdgpu").is_dir();
        let text = match driver {
            true => "amdgpu is loaded but lists no card",
            false => "amdgpu is not loaded",
        };
        let nodes = [
            "install a card and check that its slot works (lspci -nn -d 1002:); in a container or a virtual machine, pass \
             the card through",
        ];
        let refusal =
            listed.absent.iter().find(|(driver, _)| driver == "hip" && self.libraries.chosen.is_some());
        let refusal = refusal.map(|(_, why)| {
            hip::refused(
                line(Gate::Recognition, AccessPath::Hip, format!("the runtime lists no device: {why}")),
                why,
            )
            .with(hip::help(why))
        });
        let mut lines = vec![
            line(
                Gate::Hardware,
                AccessPath::Card,
                "neither /sys/class/drm nor KFD lists a graphics card".into(),
            )
            .with(nodes.map(String::from))
            .because("the kernel lists none", "install a card, or pass it through"),
            line(Gate::KernelDriver, AccessPath::Card, text.into())
                .with((!driver).then(|| "with a card: modprobe amdgpu; dmesg shows why it fails".into())),
            line(Gate::DeviceNodes, AccessPath::Card, self.system.describe()),
            hip::runtime(&self.libraries),
            vulkan::runtime(&self.root, &self.variables, false).0,
        ];
        lines.extend(refusal);
        lines
    }
}

/// Sorts the lines by layer; the order within a layer stays.
fn ordered(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| line.gate as u8);
    lines
}

fn name(found: &Found) -> String {
    if let Some(view) = found.views.first() {
        return view.name.clone();
    }
    match (&found.gpu, &found.card) {
        (Some(gpu), _) if !gpu.name.is_empty() => format!("{} ({})", gpu.target, gpu.name),
        (Some(gpu), _) => gpu.target.to_string(),
        (None, Some(card)) => card.name.clone(),
        (None, None) => "a device".into(),
    }
}

/// Returns the environment of a recorded system.
fn recorded_variables(root: &Root) -> Vec<(String, String)> {
    let bytes = std::fs::read(root.at("/proc/self/environ")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(n, v)| (n.into(), v.into())).collect()
}

/// Returns the HIP options of a recorded system, from its environment.
fn recorded(root: &Root, variables: &[(String, String)]) -> HipOptions {
    let named =
        |name: &str| variables.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.into());
    HipOptions {
        library: named("DIPTYCH_HIP_LIBRARY"),
        environment: Environment::new(variables.to_vec()),
        system_root: root.folder().into(),
        ..HipOptions::default()
    }
}
