//! Table of known driver hangs and faults, each with a remedy.
//!
//! Each row gives a symptom, the affected processors, versions and circumstances, the remedy and the source
//! of the report. Opening a device adds the rows that apply to it to its features, so every report contains
//! them. When a call times out or the device is lost, the rows with a matching symptom are logged with the
//! error and added to the errors of later calls. A problem that this crate avoids by design (see the crate's
//! documentation) has a row only if users of other programs need it. Rows about RADV help to diagnose a card
//! under both drivers.

mod rows;
#[cfg(test)]
mod tests;

pub use rows::ADVICE;

use crate::driver::codes::{Call, refuses_code};
use crate::options::{Environment, Graphs, HipOptions};
use crate::system::KernelFacts;
use ggml_core::{Error, Missing, Phase, Result};
use std::sync::OnceLock;

/// Symptom that a user observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// The device no longer responds.
    Hang,
    /// The device reports an error or is reset.
    Fault,
    /// The runtime rejects a code object.
    Refusal,
    /// An allocation fails although enough memory is free.
    OutOfMemory,
    /// Results are wrong.
    WrongResult,
    /// The device is slower than it should be, or busy while idle.
    Slow,
}

/// Driver stack through which a card is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// AMD's runtime.
    #[default]
    Hip,
    /// Mesa's RADV.
    Vulkan,
}

/// Condition besides processor and versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circumstance {
    /// No further condition.
    Always,
    /// The variable is not set.
    Unset(&'static str),
    /// The variable is set and its value is not 0.
    Set(&'static str),
    /// Compute wave save and restore is on (`amdgpu.cwsr_enable` is not 0), and the kernel or the runtime is
    /// older than the given version.
    SavedWaves {
        /// Kernel version.
        kernel: (u32, u32),
        /// HIP version.
        hip: Version,
    },
    /// The MES firmware has this version.
    Mes(u32),
    /// Compute wave save and restore is off (`amdgpu.cwsr_enable` is 0).
    UnsavedWaves,
    /// Compute wave save and restore is on, or its state is unknown.
    MaySaveWaves,
    /// The kernel is older than this version.
    KernelBefore(u32, u32),
    /// The kernel has this version or a newer one.
    KernelFrom(u32, u32),
    /// The interface of the kernel's compute driver (KFD) is older than this version, and the variable is not set.
    KfdBefore((u32, u32), &'static str),
    /// Mesa is older than this version.
    MesaBefore(Version),
    /// The runtime reports a different processor than the kernel.
    Overridden,
    /// Copies run on the DMA engines: neither copies by a kernel nor `HSA_ENABLE_SDMA=0` is in use.
    DmaCopies,
    /// Launches are started as graphs. The option [`Graphs::Auto`] uses none where such a row applies.
    Graphs,
    /// Graphs have branches, which are captured from several streams: on request only ([`Graphs::On`]).
    Branches,
}

/// Processor that a row is about. An override (`HSA_OVERRIDE_GFX_VERSION`) changes the processor that the runtime
/// reports, not the chip: its hardware, firmware and the kernel's driver stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// The chip, as the kernel reports it; the reported processor if the kernel's report cannot be read.
    #[default]
    Chip,
    /// The chip, or the processor that the runtime reports: the fault may be in code of the runtime that it selects
    /// by the reported processor.
    ChipOrReported,
}

/// Major, minor and patch version of HIP. The patch version distinguishes releases of ROCm: 7.2.1 is
/// 7.2.53211.
pub type Version = (u32, u32, u32);

/// Row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Driver stack that the row is about.
    pub stack: Stack,
    /// Observed symptom.
    pub symptom: Symptom,
    /// True if nothing can be expected to work while the row applies.
    pub blocks: bool,
    /// Phases in which the symptom occurs; empty for any phase.
    pub phases: &'static [Phase],
    /// Affected processors; a name that ends in `*` matches every processor with that prefix.
    pub targets: &'static [&'static str],
    /// Processor that is compared with `targets`.
    pub subject: Subject,
    /// First affected version of HIP.
    pub from: Option<Version>,
    /// First version of HIP with a fix.
    pub before: Option<Version>,
    /// Further condition.
    pub when: Circumstance,
    /// Description of the problem and its remedy.
    pub advice: &'static str,
    /// The remedy in a few words, for a row that blocks; else empty.
    pub cure: &'static str,
    /// Source of the report.
    pub source: &'static str,
}

/// General diagnostic advice after a hang or a fault.
pub const GENERAL: &str = "the kernel's log (dmesg) shows whether a ring was reset (\"GPU Hang\", \"MES failed to \
    respond\", \"Memory access fault\"); DIPTYCH_HIP_BREADCRUMBS=every identifies the exact node, DIPTYCH_HIP_STREAM=null \
    DIPTYCH_HIP_GRAPHS=off and DIPTYCH_HIP_COPIES=kernel (or HSA_ENABLE_SDMA=0) change how work and data reach the device, \
    and the Vulkan backend can run the same graph on the same card";

/// Facts that rows are matched against.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// Driver stack in use.
    pub stack: Stack,
    /// Version of Mesa, under Vulkan.
    pub mesa: Option<Version>,
    /// Processor that the runtime reports. An override changes it.
    pub target: String,
    /// Processor that the kernel reports, if known. No override changes it.
    pub chip: Option<String>,
    /// Version of HIP.
    pub hip: Option<Version>,
    /// Kernel version and firmware.
    pub kernel: KernelFacts,
    /// Relevant environment variables.
    pub environment: Environment,
    /// True if the runtime copies between host and device.
    pub dma_copies: bool,
    /// True if launches are started as graphs.
    pub graphs: bool,
    /// True if graphs have branches.
    pub branches: bool,
    /// Memory of the device in bytes, if known.
    pub memory: Option<u64>,
    /// True if the runtime has loaded code of this library on the device.
    pub code_works: bool,
}

impl Situation {
    /// Collects the facts about a device. `versions` are the driver's versions, including "hip runtime".
    pub(crate) fn read(
        options: &HipOptions,
        versions: &[(String, String)],
        target: &str,
        pci: [u32; 3],
    ) -> Situation {
        let version = versions.iter().find(|(name, _)| name == "hip runtime").and_then(|(_, text)| {
            let mut numbers = text.split('.').map(|n| n.parse().ok());
            Some((numbers.next()??, numbers.next()??, numbers.next()??))
        });
        Situation {
            stack: Stack::Hip,
            mesa: None,
            target: target.into(),
            chip: crate::system::kfd_gpu_at(options, pci).map(|gpu| gpu.target.processor),
            hip: version,
            kernel: KernelFacts::read(options, pci),
            environment: options.environment.clone(),
            dma_copies: true,
            graphs: false,
            branches: false,
            memory: None,
            code_works: false,
        }
    }

    fn holds(&self, when: Circumstance) -> bool {
        let set = |name| self.environment.get(name).is_some_and(|value| value != "0");
        match when {
            Circumstance::Always => true,
            Circumstance::Unset(name) => self.environment.get(name).is_none(),
            Circumstance::Set(name) => set(name),
            Circumstance::SavedWaves { kernel, hip } => {
                let old = self.kernel.release.is_some_and(|release| release < kernel)
                    || self.hip.is_some_and(|version| version < hip);
                self.kernel.cwsr != Some(false) && old
            }
            Circumstance::Mes(version) => self.kernel.mes == Some(version),
            Circumstance::UnsavedWaves => self.kernel.cwsr == Some(false),
            Circumstance::MaySaveWaves => self.kernel.cwsr != Some(false),
            Circumstance::KernelBefore(major, minor) => {
                self.kernel.release.is_some_and(|release| release < (major, minor))
            }
            Circumstance::KernelFrom(major, minor) => {
                self.kernel.release.is_some_and(|release| release >= (major, minor))
            }
            Circumstance::KfdBefore(version, unless) => {
                self.kernel.kfd.is_some_and(|kfd| kfd < version) && !set(unless)
            }
            Circumstance::MesaBefore(version) => self.mesa.is_some_and(|mesa| mesa < version),
            Circumstance::DmaCopies => {
                self.dma_copies && self.environment.get("HSA_ENABLE_SDMA") != Some("0")
            }
            Circumstance::Graphs => self.graphs,
            Circumstance::Branches => self.branches,
            Circumstance::Overridden => self.chip.as_ref().is_some_and(|chip| *chip != self.target),
        }
    }
}

impl Advice {
    /// Returns true if the row applies to the device.
    pub fn applies(&self, situation: &Situation) -> bool {
        let named = |target: &str| {
            self.targets.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => target.starts_with(beginning),
                None => target == *pattern,
            })
        };
        let reported = situation.target.as_str();
        let of_chip = named(situation.chip.as_deref().unwrap_or(reported));
        let is_named = of_chip || self.subject == Subject::ChipOrReported && named(reported);
        let after = self.from.is_none_or(|from| situation.hip.is_some_and(|hip| hip >= from));
        let before = self.before.is_none_or(|before| situation.hip.is_some_and(|hip| hip < before));
        self.stack == situation.stack && is_named && after && before && situation.holds(self.when)
    }

    /// Returns true if the row depends on the kernel and its firmware rather than on the runtime.
    pub fn is_of_kernel(&self) -> bool {
        use Circumstance::{
            KernelBefore, KernelFrom, KfdBefore, MaySaveWaves, Mes, SavedWaves, UnsavedWaves,
        };
        let of_kernel = matches!(
            self.when,
            SavedWaves { .. }
                | KfdBefore(..)
                | Mes(_)
                | KernelBefore(..)
                | KernelFrom(..)
                | UnsavedWaves
                | MaySaveWaves
        );
        of_kernel && self.is_of_any_runtime()
    }

    /// Returns true if the row holds for every version of the runtime.
    pub fn is_of_any_runtime(&self) -> bool {
        self.from.is_none() && self.before.is_none()
    }

    /// Returns "advice (source)".
    pub fn text(&self) -> String {
        format!("{} ({})", self.advice, self.source)
    }
}

/// Returns the rows because of which the runtime ends the process, or lists no device, before anything can be done with
/// one: the interface of the kernel's compute driver is too old for the runtime.
pub(crate) fn too_old_driver(situation: &Situation, phase: Phase) -> Option<&'static Advice> {
    known(situation).find(|row| {
        row.blocks && row.phases.contains(&phase) && matches!(row.when, Circumstance::KfdBefore(..))
    })
}

/// Returns advice on a message of the system's loader about AMD's runtime.
pub(crate) fn of_loader(message: &str) -> Option<&'static str> {
    // glibc 2.41 changed `dlopen`. Where a policy of the system forbids such stacks, the loader reports "Permission denied".
    let is_refused =
        message.contains("cannot enable executable stack") && message.contains("Invalid argument");
    is_refused.then_some(
        "glibc from 2.41 on loads a library that wants an executable stack, as libamdhip64 of ROCm 5.2 does, only if the \
         process was started with GLIBC_TUNABLES=glibc.rtld.execstack=2: set it, or use a later ROCm",
    )
}

/// Returns the rows that apply to a device.
pub fn known(situation: &Situation) -> impl Iterator<Item = &'static Advice> {
    ADVICE.iter().filter(|row| row.applies(situation))
}

/// Returns the use of graphs that an option means on a device: [`Graphs::Auto`] uses none where they are known
/// to fail.
pub(crate) fn graphs(situation: &Situation, option: Graphs) -> Graphs {
    let with = Situation { graphs: true, ..situation.clone() };
    let fail = || known(&with).any(|row| row.when == Circumstance::Graphs);
    if option == Graphs::Auto && fail() { Graphs::Off } else { option }
}

/// Returns the rows that may explain why a call failed; empty for errors that explain themselves.
pub fn for_error(situation: &Situation, error: &Error) -> Vec<&'static Advice> {
    let symptoms: &[Symptom] = match error {
        // An unreported fault looks like a hang.
        Error::Timeout { .. } => &[Symptom::Hang, Symptom::Fault],
        Error::DeviceLost { .. } => &[Symptom::Fault, Symptom::Hang],
        Error::OutOfMemory { asked, .. } if is_small(situation, *asked) => &[],
        Error::OutOfMemory { .. } => &[Symptom::OutOfMemory],
        Error::Driver { call, .. } if *call == Call::LoadModule.name() && !situation.code_works => {
            &[Symptom::Refusal]
        }
        error if crate::driver::codes::is_fatal(error) => &[Symptom::Fault, Symptom::Hang],
        _ => &[],
    };
    let phase = error.phase();
    let fits = |row: &&Advice| {
        symptoms.contains(&row.symptom)
            && (row.phases.is_empty() || phase.is_some_and(|phase| row.phases.contains(&phase)))
    };
    known(situation).filter(fits).collect()
}

/// Returns true if an allocation is smaller than those that a runtime refuses for their size.
fn is_small(situation: &Situation, asked: u64) -> bool {
    situation.memory.is_some_and(|memory| asked <= memory / 100 * 85)
}

/// Advice on code that a runtime refuses although it has loaded other code that was built in the same way.
const NO_MEMORY_FOR_CODE: &str = "this runtime has loaded other code of this library; it answers so, too, if no memory \
    is left for code: a smaller context or fewer layers on the device take less, and other programs may hold memory of \
    the card";

/// Returns true if a runtime refuses code although it has loaded other code.
fn refuses_further_code(situation: &Situation, error: &Error) -> bool {
    let is_refusal = |error: &Error| matches!(error, Error::Driver { call, code, .. } if *call == Call::LoadModule.name() && refuses_code(*code));
    situation.code_works && is_refusal(error)
}

/// Returns the text to log with an error: matching rows and [`GENERAL`]. `None` for errors that explain
/// themselves.
fn text_for(situation: &Situation, error: &Error) -> Option<String> {
    let rows = for_error(situation, error);
    let general = crate::driver::codes::is_fatal(error) && situation.target.starts_with("gfx");
    let parts: Vec<String> =
        rows.iter().map(|row| row.text()).chain(general.then(|| GENERAL.to_string())).collect();
    let parts = if refuses_further_code(situation, error) { vec![NO_MEMORY_FOR_CODE.into()] } else { parts };
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Logs known problems when calls of a backend fail.
#[derive(Debug)]
pub(crate) struct Advisor {
    backend: String,
    situation: Situation,
    /// Text logged for the error that lost the device.
    last: OnceLock<String>,
}

impl Advisor {
    /// Creates the advisor of an open backend.
    pub(crate) fn new(backend: &str, situation: Situation) -> Advisor {
        Advisor { backend: backend.into(), situation, last: OnceLock::new() }
    }

    /// Returns the rows that may explain why a call failed.
    pub(crate) fn for_error(&self, error: &Error) -> Vec<&'static Advice> {
        for_error(&self.situation, error)
    }

    /// Logs the rows that match an error. The text for the error that lost the device is part of all later
    /// errors.
    pub(crate) fn advise<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|mut error| {
            if let Some(text) = text_for(&self.situation, &error) {
                tracing::warn!(target: "diptych::hip", backend = %self.backend, "{error}: {text}");
                if crate::driver::codes::is_fatal(&error) {
                    let _ = self.last.set(text);
                }
            }
            if let Error::Unavailable { missing: Missing::Device, reason, .. } = &mut error
                && let Some(text) = self.last.get()
            {
                *reason = format!("{reason}; advice: {text}");
            }
            error
        })
    }
}
