//! The layers below the drivers: the card, the kernel's driver, device nodes, firmware.

use super::report::{AccessPath, Gate, Line, State};
use crate::backends::View;
use backend_hip::HipOptions;
use backend_hip::advice::{self, Advice, Circumstance, Situation};
use backend_hip::system::{Card, KernelFacts, KfdGpu, Node, NodeState, SystemReport, pci_text};

/// A device, as the system describes it.
pub(super) struct Found {
    /// The graphics card that the kernel lists.
    pub(super) card: Option<Card>,
    /// The GPU that the kernel's compute driver (KFD) lists.
    pub(super) gpu: Option<KfdGpu>,
    /// The views of the drivers.
    pub(super) views: Vec<View>,
}

/// AMD's vendor ID on the PCI bus.
const AMD: u32 = 0x1002;

impl Found {
    pub(super) fn pci(&self) -> Option<[u32; 3]> {
        self.card.as_ref().map(|card| card.pci).or(self.gpu.as_ref().map(|gpu| gpu.pci))
    }

    pub(super) fn is_amd(&self) -> bool {
        self.gpu.is_some() || self.card.as_ref().is_some_and(|card| card.ids.0 == AMD)
    }

    /// Returns the processor that the kernel reports.
    pub(super) fn target(&self) -> Option<&str> {
        self.gpu.as_ref().map(|gpu| gpu.target.processor.as_str())
    }

    pub(super) fn hardware(&self) -> Line {
        let mut parts = Vec::new();
        if let Some(Card { ids: (vendor, device), pci, name, .. }) = &self.card {
            parts.push(format!("{vendor:04x}:{device:04x} at {}, {name}", pci_text(*pci)));
        }
        if let Some(gpu) = &self.gpu {
            let name = if gpu.name.is_empty() { String::new() } else { format!(" ({})", gpu.name) };
            parts.push(format!("processor {}{name}", gpu.target));
        }
        if parts.is_empty() {
            parts.extend(self.views.iter().map(|view| format!("{} lists {}", view.backend, view.name)));
        }
        Line::new(Gate::Hardware, AccessPath::Card, State::Allows, parts.join("; "))
    }

    /// Returns the line of the sizes of the card's memory, if the kernel reports them.
    pub(super) fn memory(&self) -> Option<Line> {
        let memory = self.card.as_ref()?.memory;
        let size = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let vram = memory.vram.map(|bytes| format!("VRAM {} (on an APU the carve-out)", size(bytes)));
        let gtt = memory.gtt.map(|bytes| format!("GTT {} (host memory that it may map)", size(bytes)));
        let parts: Vec<String> = vram.into_iter().chain(gtt).collect();
        let line = Line::new(Gate::Hardware, AccessPath::Card, State::Allows, parts.join(", "));
        (!parts.is_empty()).then_some(line)
    }

    /// Returns the lines of the kernel's driver, and of KFD, its part for computing.
    pub(super) fn kernel_driver(&self, kernel: &KernelFacts) -> Vec<Line> {
        let line = |way, state, text: String| Line::new(Gate::KernelDriver, way, state, text);
        let release =
            kernel.release.map_or(String::new(), |(major, minor)| format!(", kernel {major}.{minor}"));
        let mut lines = Vec::new();
        match self.card.as_ref().map(|card| card.driver.as_deref()) {
            Some(Some("amdgpu")) => {
                lines.push(line(AccessPath::Card, State::Allows, format!("amdgpu is bound to it{release}")));
            }
            Some(Some(other)) => {
                let text = format!("{other} is bound to it, not amdgpu{release}");
                let help = "bind the card to amdgpu";
                let blocked = line(AccessPath::Card, State::Blocks, text).with([help.into()]);
                lines.push(blocked.because(format!("{other} is bound to the card, not amdgpu"), help));
            }
            Some(None) => {
                let help = "load amdgpu (modprobe amdgpu); dmesg shows why it is not bound to the card";
                let text = format!("no driver is bound to it{release}");
                let blocked = line(AccessPath::Card, State::Blocks, text).with([help.into()]);
                lines.push(
                    blocked.because("no driver is bound to the card", "modprobe amdgpu, and read dmesg"),
                );
            }
            None => {}
        }
        lines.push(match &self.gpu {
            Some(gpu) => {
                let text = "the compute driver KFD, a part of amdgpu, lists it as node";
                line(AccessPath::Hip, State::Allows, format!("{text} {}", gpu.node))
            }
            None => {
                let help = "the kernel lacks CONFIG_HSA_AMD, or the slot lacks the PCIe atomics that older cards need: \
                            dmesg | grep kfd";
                line(AccessPath::Hip, State::Blocks, "the kernel's compute driver (KFD) does not list it".into())
                    .with([help.into()])
                    .because("the kernel's compute driver (KFD) does not list the card", "read dmesg | grep kfd")
            }
        });
        lines
    }

    /// Returns the lines of `/dev/kfd` (HIP only) and of the card's render node (HIP and Vulkan).
    pub(super) fn nodes(&self, system: &SystemReport) -> Vec<Line> {
        let minor = self.gpu.as_ref().and_then(|gpu| gpu.render_minor);
        let own = minor.map(|minor| format!("renderD{minor}"));
        let is_own = |node: &&Node| own.as_ref().is_none_or(|own| node.path.ends_with(own));
        let render: Vec<&Node> = system.render.iter().filter(is_own).collect();
        vec![
            node_line(AccessPath::Hip, &[&[&system.kfd], &render[..]].concat(), render.is_empty()),
            node_line(AccessPath::Vulkan, &render, render.is_empty()),
        ]
    }

    /// Returns the line of firmware versions and module parameters, with the advice of the kernel's rows.
    pub(super) fn firmware(&self, kernel: &KernelFacts, rows: &[&Advice]) -> Line {
        let mut parts = Vec::new();
        parts.extend(kernel.mes.map(|version| format!("MES {version:#x}")));
        let cwsr = kernel.cwsr.map(|on| format!("amdgpu.cwsr_enable={}", u8::from(on)));
        parts.extend(cwsr);
        parts.extend(kernel.kfd.map(|(major, minor)| format!("KFD {major}.{minor}")));
        let files = self.card.iter().flat_map(|card| &card.firmware).filter(|(name, _)| name != "mes");
        parts.extend(files.map(|(name, version)| format!("{name} {version}")));
        let rows: Vec<&&Advice> = rows.iter().filter(|row| row.is_of_kernel()).collect();
        let depends = self.target().is_some_and(|target| {
            advice::ADVICE
                .iter()
                .any(|row| matches!(row.when, Circumstance::Mes(_)) && row.targets.contains(&target))
        });
        let missing = depends && kernel.mes.is_none();
        let state = match rows.iter().any(|row| row.blocks) {
            true => State::Blocks,
            false if missing => State::Unknown,
            false => State::Allows,
        };
        if missing {
            parts.push("the version of the MES firmware is unknown".into());
        }
        if parts.is_empty() {
            parts.push(
                "neither firmware nor parameters can be read; no version of them is known to cause problems"
                    .into(),
            );
        }
        let command = "sudo cat /sys/kernel/debug/dri/*/amdgpu_firmware_info | grep MES".to_string();
        let mut line = Line::new(Gate::Firmware, AccessPath::Hip, state, parts.join(", "));
        if let Some(row) = rows.iter().find(|row| row.blocks) {
            line = line.because(in_short(row, kernel), row.cure);
        } else if missing {
            line = line.because("the version of the MES firmware is unknown", command.as_str());
        }
        line.with(rows.iter().map(|row| row.text())).with(missing.then_some(command))
    }

    /// Returns the situation that the rows of the advice table are compared with.
    pub(super) fn situation(&self, options: &HipOptions, kernel: &KernelFacts, target: &str) -> Situation {
        Situation {
            target: target.into(),
            chip: self.target().map(String::from),
            kernel: kernel.clone(),
            environment: options.environment.clone(),
            ..Situation::default()
        }
    }
}

/// Returns the state of kernel and firmware that a row is about, in a few words.
fn in_short(row: &Advice, kernel: &KernelFacts) -> String {
    let mes = kernel.mes.map_or("unknown MES firmware".into(), |version| format!("MES {version:#x}"));
    match row.when {
        Circumstance::SavedWaves { .. } if kernel.cwsr == Some(true) => format!("{mes} with CWSR on"),
        Circumstance::SavedWaves { .. } => format!("{mes}, and CWSR is not known to be off"),
        Circumstance::Mes(version) => format!("MES {version:#x} is broken"),
        _ => row.advice.split(": ").next().unwrap_or(row.advice).into(),
    }
}

fn node_line(way: AccessPath, nodes: &[&Node], no_render: bool) -> Line {
    let mut evidence: Vec<String> = nodes.iter().map(|node| node.describe()).collect();
    if no_render {
        evidence.push("/dev/dri: no render node of this card".into());
    }
    let is = |wanted: fn(&NodeState) -> bool| nodes.iter().any(|node| wanted(&node.state));
    let absent = no_render || is(|state| matches!(state, NodeState::Absent));
    let state = match absent || is(|state| !matches!(state, NodeState::Open)) {
        true => State::Blocks,
        false => State::Allows,
    };
    let denied = is(|state| matches!(state, NodeState::Denied(_)));
    let help = [
        (absent, "load amdgpu; in a container pass --device /dev/kfd --device /dev/dri"),
        (denied, "this user may not open it: sudo usermod -aG render,video $USER, then log in again"),
    ];
    let mut line = Line::new(Gate::DeviceNodes, way, state, evidence.join("; "))
        .with(help.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_string()));
    if let Some(node) = nodes.iter().find(|node| matches!(node.state, NodeState::Denied(_))) {
        let cause = format!("this user may not open {}", node.path.display());
        line = line.because(cause, "sudo usermod -aG render,video $USER, and log in again");
    } else if absent {
        let node = nodes.iter().find(|node| matches!(node.state, NodeState::Absent));
        let cause = node.map_or("the card has no render node".into(), |n| format!("no {}", n.path.display()));
        line = line.because(cause, help[0].1);
    }
    line
}
