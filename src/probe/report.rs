//! The probe's report: for each device a matrix of gates and the verdicts derived from it.

use crate::backends::View;
use ggml_core::routes::RouteUse;
use ggml_core::routes::cards::CardReport;
use serde::{Deserialize, Serialize};

/// A layer that a card has to pass before anything is computed on it, from the bottom up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The card and its IDs.
    Hardware,
    /// The kernel's driver.
    KernelDriver,
    /// Device nodes and the permissions to open them.
    DeviceNodes,
    /// Firmware, and parameters of the kernel's module.
    Firmware,
    /// The runtime's library, its path and version.
    Runtime,
    /// AMD's libraries and databases for the card (rocBLAS, hipBLASLt, MIOpen), which other programs need and this
    /// library does not.
    VendorFiles,
    /// Official support by the maker of the runtime. An unsupported card may execute, a supported one fail.
    Support,
    /// Code for the card: built in, or compiled at run time.
    Code,
    /// The processor that the runtime recognises, and the override in effect.
    Recognition,
    /// Hardware features that kernels may use.
    Features,
    /// Each phase once, in a separate process.
    Smoke,
}

impl Gate {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Gate::Hardware => "hardware",
            Gate::KernelDriver => "kernel driver",
            Gate::DeviceNodes => "device nodes",
            Gate::Firmware => "firmware",
            Gate::Runtime => "runtime",
            Gate::VendorFiles => "AMD's files",
            Gate::Support => "support",
            Gate::Code => "code",
            Gate::Recognition => "recognition",
            Gate::Features => "features",
            Gate::Smoke => "smoke test",
        }
    }
}

/// The path to a card that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPath {
    /// All paths.
    Card,
    /// Through HIP.
    Hip,
    /// Through Vulkan.
    Vulkan,
}

impl AccessPath {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            AccessPath::Card => "card",
            AccessPath::Hip => "hip",
            AccessPath::Vulkan => "vulkan",
        }
    }
}

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing blocks the card at this gate.
    Allows,
    /// Something blocks the card.
    Blocks,
    /// The state could not be determined.
    Unknown,
}

impl State {
    /// Returns the name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            State::Allows => "allows",
            State::Blocks => "blocks",
            State::Unknown => "unknown",
        }
    }
}

/// One gate on one path to a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The layer.
    pub gate: Gate,
    /// The path.
    pub way: AccessPath,
    /// State of the gate.
    pub state: State,
    /// The observation and its source.
    pub evidence: String,
    /// Remedies, and known problems of this card, firmware, kernel and runtime.
    pub advice: Vec<String>,
    /// The cause of a block in a few words, if they differ from the beginning of the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The remedy for a block in a few words, if they differ from the first advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Line {
    pub(super) fn new(gate: Gate, way: AccessPath, state: State, evidence: impl Into<String>) -> Line {
        Line { gate, way, state, evidence: evidence.into(), advice: Vec::new(), cause: None, cure: None }
    }

    pub(super) fn with(mut self, advice: impl IntoIterator<Item = String>) -> Line {
        self.advice.extend(advice);
        self
    }

    /// True if the line blocks another program. Official support blocks none.
    pub(super) fn blocks_a_program(&self) -> bool {
        self.state == State::Blocks && self.gate != Gate::Support
    }

    /// Adds cause and remedy of a block in a few words.
    pub(super) fn because(mut self, cause: impl Into<String>, cure: impl Into<String>) -> Line {
        (self.cause, self.cure) = (Some(cause.into()), Some(cure.into()));
        self
    }
}

/// Answer to a question, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer; `None` if unknown.
    pub answer: Option<bool>,
    /// The reason.
    pub why: String,
}

impl Answer {
    pub(super) fn new(answer: Option<bool>, why: impl Into<String>) -> Answer {
        Answer { answer, why: why.into() }
    }
}

/// Answers to four questions that are often confused, for one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The path to the card.
    pub way: AccessPath,
    /// Is the card officially supported?
    pub supported: Answer,
    /// Does it execute here, and under which override?
    pub executes: Answer,
    /// Has this library code for it? AMD's own files for the card are another question: [`Gate::VendorFiles`].
    pub artifacts: Answer,
    /// Did all runs of this probe succeed?
    pub stable: Answer,
    /// These in one sentence, with the cause and the remedy of a block or the option that uses the path.
    #[serde(default)]
    pub sentence: String,
}

/// Report on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Vendor and device ID ("1002:66a1"), if known.
    pub ids: Option<String>,
    /// PCI domain, bus and device, if known.
    pub pci: Option<String>,
    /// The processor that the kernel reports ("gfx906").
    pub target: Option<String>,
    /// The views of the drivers, paired by PCI address and UUID.
    pub views: Vec<View>,
    /// The matrix of gates.
    pub lines: Vec<Line>,
    /// One verdict for each path.
    pub verdicts: Vec<Verdict>,
    /// Routes of the card under each driver, see [`mod@qualify`](mod@crate::qualify): used or not, by which verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteUse>,
    /// Reports of the card under each driver that opened it, for `docs/cards.md`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardReport>,
    /// The sentences of the paths in one.
    #[serde(default)]
    pub summary: String,
}

/// Report of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this library.
    pub diptych: String,
    /// Root of the system paths.
    pub root: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Environment variables that change the behaviour of drivers.
    pub environment: Vec<(String, String)>,
    /// Missing parts, on a machine without a usable graphics card.
    pub machine: Vec<Line>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
    /// One sentence for each card, or one for a machine without a card.
    #[serde(default)]
    pub summary: Vec<String>,
}

impl Report {
    /// True if a card has a path on which execution is not known to fail; the host processor does not count.
    /// On a recorded system, where nothing is run, this means that no known problem blocks the path.
    pub fn works(&self) -> bool {
        let cards = self.devices.iter().filter(|device| !device.views.iter().any(|view| view.is_processor));
        cards.flat_map(|device| &device.verdicts).any(|verdict| verdict.executes.answer != Some(false))
    }
}
