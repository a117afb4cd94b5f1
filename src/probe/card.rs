//! The layers below the drivers: the card, the kernel's driver, device nodes, firmware.

use super::report::{AccessPath, Gate, Line, State};
use crate::backends::View;
use backend_hip::HipOptions;
use backend_hip::advice::{self, Advice, Situation};
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
                lines.push(
                    line(AccessPath::Card, State::Blocks, text).with(["bind the card to amdgpu".into()]),
                );
            }
            Some(None) => {
                let help = "load amdgpu (modprobe amdgpu); dmesg shows why it is not bound to the card";
                let text = format!("no driver is bound to it{release}");
                lines.push(line(AccessPath::Card, State::Blocks, text).with([help.into()]));
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
        let files = self.card.iter().flat_map(|card| &card.firmware).filter(|(name, _)| name != "mes");
        parts.extend(files.map(|(name, version)| format!("{name} {version}")));
        let rows: Vec<&&Advice> = rows.iter().filter(|row| row.is_of_kernel()).collect();
        let depends = self.target().is_some_and(|target| {
            advice::ADVICE
                .iter()
                .any(|row| matches!(row.when, advice::Circumstance::Mes(_)) && row.targets.contains(&target))
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
        Line::new(Gate::Firmware, AccessPath::Hip, state, parts.join(", "))
            .with(rows.iter().map(|row| row.text()))
            .with(missing.then_some(command))
    }

    /// Returns the situation that the rows of the advice table are compared with.
    pub(super) fn situation(&self, options: &HipOptions, kernel: &KernelFacts, target: &str) -> Situation {
        Situation {
            target: target.into(),
            real_target: self.target().map(String::from),
            kernel: kernel.clone(),
            environment: options.environment.clone(),
            ..Situation::default()
        }
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
    Line::new(Gate::DeviceNodes, way, state, evidence.join("; "))
        .with(help.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_string()))
}
