//! What is reported: for each device a matrix of gates, and what follows from it.

use crate::backends::View;
use serde::{Deserialize, Serialize};

/// A layer that a card has to pass before anything is computed on it, from the bottom up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The card and its numbers.
    Hardware,
    /// The kernel's driver.
    KernelDriver,
    /// Device nodes and who may open them.
    DeviceNodes,
    /// Firmware, and parameters of the kernel's module.
    Firmware,
    /// The runtime's library, its path and version.
    Runtime,
    /// Whether the maker of the runtime supports the card, which is another question than whether it executes.
    Support,
    /// Code for the card: built in, or made at run time.
    Code,
    /// What the runtime takes the card for, and the override in effect.
    Recognition,
    /// What kernels may count on.
    Features,
    /// Each phase once, in a process of its own.
    Smoke,
}

impl Gate {
    /// Name as in tables.
    pub fn name(self) -> &'static str {
        match self {
            Gate::Hardware => "hardware",
            Gate::KernelDriver => "kernel driver",
            Gate::DeviceNodes => "device nodes",
            Gate::Firmware => "firmware",
            Gate::Runtime => "runtime",
            Gate::Support => "support",
            Gate::Code => "code",
            Gate::Recognition => "recognition",
            Gate::Features => "features",
            Gate::Smoke => "smoke test",
        }
    }
}

/// Whose way to the card is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// All.
    Card,
    /// Through HIP.
    Hip,
    /// Through Vulkan.
    Vulkan,
}

impl Way {
    /// Name as in tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Card => "card",
            Way::Hip => "hip",
            Way::Vulkan => "vulkan",
        }
    }
}

/// What a gate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing stands in the way here.
    Allows,
    /// Something does.
    Blocks,
    /// It could not be found out.
    Unknown,
}

impl State {
    /// Name as in tables.
    pub fn name(self) -> &'static str {
        match self {
            State::Allows => "allows",
            State::Blocks => "blocks",
            State::Unknown => "unknown",
        }
    }
}

/// A gate on a way to a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The layer.
    pub gate: Gate,
    /// Whose way.
    pub way: Way,
    /// What it does.
    pub state: State,
    /// What was seen, and where.
    pub evidence: String,
    /// What helps, and what is known of this card, firmware, kernel and runtime.
    pub advice: Vec<String>,
}

impl Line {
    pub(super) fn new(gate: Gate, way: Way, state: State, evidence: impl Into<String>) -> Line {
        Line { gate, way, state, evidence: evidence.into(), advice: Vec::new() }
    }

    pub(super) fn with(mut self, advice: impl IntoIterator<Item = String>) -> Line {
        self.advice.extend(advice);
        self
    }
}

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// `None`: not known.
    pub answer: Option<bool>,
    /// Why.
    pub why: String,
}

impl Answer {
    pub(super) fn new(answer: Option<bool>, why: impl Into<String>) -> Answer {
        Answer { answer, why: why.into() }
    }
}

/// Four questions that are often taken for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whose way to the card.
    pub way: Way,
    /// Whether it is officially supported.
    pub supported: Answer,
    /// Whether it executes here, and under which override.
    pub executes: Answer,
    /// Whether there is code for it.
    pub artifacts: Answer,
    /// Whether all runs of this probe went well.
    pub stable: Answer,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Vendor and device number ("1002:66a1"), where known.
    pub ids: Option<String>,
    /// Domain, bus and device on the PCI bus, where known.
    pub pci: Option<String>,
    /// The processor as the kernel sees it ("gfx906").
    pub target: Option<String>,
    /// The views that drivers have of it: paired by PCI address and UUID.
    pub views: Vec<View>,
    /// The matrix.
    pub lines: Vec<Line>,
    /// What follows.
    pub verdicts: Vec<Verdict>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this library.
    pub diptych: String,
    /// Where system paths began.
    pub root: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Variables that change what drivers do.
    pub environment: Vec<(String, String)>,
    /// What is missing on a machine without a graphics card that could be used.
    pub machine: Vec<Line>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

impl Report {
    /// Whether something beside the processor computes here; on a recorded system, whether nothing is known that would
    /// stop it on some way.
    pub fn works(&self) -> bool {
        let cards = self.devices.iter().filter(|device| !device.views.iter().any(|view| view.is_processor));
        cards.flat_map(|device| &device.verdicts).any(|verdict| verdict.executes.answer != Some(false))
    }
}
