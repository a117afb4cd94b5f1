//! Known hangs and faults of drivers, and what helps: one table.
//!
//! A row says what is seen, on which processors, under which versions and circumstances, what to do, and who reported
//! it. Rows that apply to a device stand among its features when it is opened, so that every report has them; when a
//! call times out or the device is lost, those whose symptom fits are logged with the error and added to what later
//! calls say. What this crate avoids by its design (see the crate's documentation) has a row only where users of other
//! programs look for it. Rows about RADV are for those who look at a card as a whole.

mod rows;

pub use rows::ADVICE;

use crate::driver::codes::Call;
use crate::options::{Environment, HipOptions};
use crate::system::KernelFacts;
use ggml_core::{Error, Missing, Phase, Result};
use std::sync::OnceLock;

/// What a user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// Nothing is answered any more.
    Hang,
    /// The device reports an error or is reset.
    Fault,
    /// The runtime does not take a code object.
    Refusal,
    /// Memory cannot be had although there is some.
    OutOfMemory,
    /// Results are wrong.
    WrongResult,
    /// It is slower than it should be, or busy while it does nothing.
    Slow,
}

/// The drivers over which a card can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// AMD's runtime.
    #[default]
    Hip,
    /// Mesa's RADV.
    Vulkan,
}

/// A circumstance beside processor and versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circumstance {
    /// None.
    Always,
    /// A variable is not set.
    Unset(&'static str),
    /// A variable is set to something that is not 0.
    Set(&'static str),
    /// Waves are saved and restored (`amdgpu.cwsr_enable` is not 0), and kernel or runtime are older than these
    /// versions.
    SavedWaves {
        /// Kernel.
        kernel: (u32, u32),
        /// HIP.
        hip: Version,
    },
    /// The MES firmware has this version.
    Mes(u32),
    /// Waves are not saved and restored (`amdgpu.cwsr_enable` is 0).
    UnsavedWaves,
    /// The kernel is older than this.
    KernelBefore(u32, u32),
    /// The kernel is this one or newer.
    KernelFrom(u32, u32),
    /// Mesa is older than this.
    MesaBefore(Version),
    /// The runtime reports another processor than the kernel.
    Overridden,
    /// The DMA engines copy: neither a kernel does nor does `HSA_ENABLE_SDMA=0` keep them out.
    DmaCopies,
}

/// Major, minor and patch version of HIP. Patches tell releases of ROCm apart: 7.2.1 is 7.2.53211.
pub type Version = (u32, u32, u32);

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Which driver is meant.
    pub stack: Stack,
    /// What is seen.
    pub symptom: Symptom,
    /// Whether it is to be expected that nothing works as long as it holds.
    pub blocks: bool,
    /// Phases in which it is seen; empty for any.
    pub phases: &'static [Phase],
    /// Processors; a name that ends in `*` stands for all that begin so.
    pub targets: &'static [&'static str],
    /// The first version of HIP that has it.
    pub from: Option<Version>,
    /// The first version of HIP that has it no more.
    pub before: Option<Version>,
    /// What else must be so.
    pub when: Circumstance,
    /// What it is and what helps.
    pub advice: &'static str,
    /// Who reported it.
    pub source: &'static str,
}

/// What helps everybody to find out more after a hang or a fault.
pub const GENERAL: &str = "the kernel's log (dmesg) says whether a ring was reset (\"GPU Hang\", \"MES failed to \
    respond\", \"Memory access fault\"); DIPTYCH_HIP_BREADCRUMBS=every names the node exactly, DIPTYCH_HIP_STREAM=null \
    and DIPTYCH_HIP_COPIES=kernel (or HSA_ENABLE_SDMA=0) change how work and data reach the device, and the Vulkan backend runs the same graph on the same card";

/// What rows are compared with.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// The driver.
    pub stack: Stack,
    /// Version of Mesa, under Vulkan.
    pub mesa: Option<Version>,
    /// Processor that the runtime reports.
    pub target: String,
    /// Processor that the kernel reports, where it does.
    pub real_target: Option<String>,
    /// Version of HIP.
    pub hip: Option<Version>,
    /// The kernel and its firmware.
    pub kernel: KernelFacts,
    /// Variables.
    pub environment: Environment,
    /// Whether the runtime copies between host and device.
    pub dma_copies: bool,
}

impl Situation {
    /// `versions` are those of the driver, with "hip runtime" among them.
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
            real_target: crate::system::kfd_gpu_at(options, pci).map(|gpu| gpu.target.processor),
            hip: version,
            kernel: KernelFacts::read(options, pci),
            environment: options.environment.clone(),
            dma_copies: true,
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
            Circumstance::KernelBefore(major, minor) => {
                self.kernel.release.is_some_and(|release| release < (major, minor))
            }
            Circumstance::KernelFrom(major, minor) => {
                self.kernel.release.is_some_and(|release| release >= (major, minor))
            }
            Circumstance::MesaBefore(version) => self.mesa.is_some_and(|mesa| mesa < version),
            Circumstance::DmaCopies => {
                self.dma_copies && self.environment.get("HSA_ENABLE_SDMA") != Some("0")
            }
            Circumstance::Overridden => self.real_target.as_ref().is_some_and(|real| *real != self.target),
        }
    }
}

impl Advice {
    /// Whether a row is about this device.
    pub fn applies(&self, situation: &Situation) -> bool {
        let named = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(beginning) => situation.target.starts_with(beginning),
            None => situation.target == **pattern,
        };
        let after = self.from.is_none_or(|from| situation.hip.is_some_and(|hip| hip >= from));
        let before = self.before.is_none_or(|before| situation.hip.is_some_and(|hip| hip < before));
        self.stack == situation.stack
            && self.targets.iter().any(named)
            && after
            && before
            && situation.holds(self.when)
    }

    /// Whether it hangs on the kernel and its firmware rather than on the runtime.
    pub fn is_of_kernel(&self) -> bool {
        use Circumstance::{KernelBefore, KernelFrom, Mes, SavedWaves, UnsavedWaves};
        matches!(self.when, SavedWaves { .. } | Mes(_) | KernelBefore(..) | KernelFrom(..) | UnsavedWaves)
    }

    /// "advice (source)".
    pub fn text(&self) -> String {
        format!("{} ({})", self.advice, self.source)
    }
}

/// Rows about a device.
pub fn known(situation: &Situation) -> impl Iterator<Item = &'static Advice> {
    ADVICE.iter().filter(|row| row.applies(situation))
}

/// Rows that may be why a call failed; none for errors that say why themselves.
pub fn for_error(situation: &Situation, error: &Error) -> Vec<&'static Advice> {
    let symptoms: &[Symptom] = match error {
        // A fault that nobody reports looks like a hang.
        Error::Timeout { .. } => &[Symptom::Hang, Symptom::Fault],
        Error::DeviceLost { .. } => &[Symptom::Fault, Symptom::Hang],
        Error::OutOfMemory { .. } => &[Symptom::OutOfMemory],
        Error::Driver { call, .. } if *call == Call::LoadModule.name() => &[Symptom::Refusal],
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

/// What to say after an error: rows that fit, and what helps everybody. `None` for errors that say all themselves.
fn say(situation: &Situation, error: &Error) -> Option<String> {
    let rows = for_error(situation, error);
    let general = crate::driver::codes::is_fatal(error) && situation.target.starts_with("gfx");
    let parts: Vec<String> =
        rows.iter().map(|row| row.text()).chain(general.then(|| GENERAL.to_string())).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Says what is known when calls of a backend fail.
#[derive(Debug)]
pub(crate) struct Advisor {
    backend: String,
    situation: Situation,
    /// What was said of the error that ended the device's life.
    last: OnceLock<String>,
}

impl Advisor {
    /// For an open backend.
    pub(crate) fn new(backend: &str, situation: Situation) -> Advisor {
        Advisor { backend: backend.into(), situation, last: OnceLock::new() }
    }

    /// Rows that may be why a call failed.
    pub(crate) fn for_error(&self, error: &Error) -> Vec<&'static Advice> {
        for_error(&self.situation, error)
    }

    /// Logs what is known of an error. What was known of the one that ended the device's life is part of all later
    /// ones.
    pub(crate) fn advise<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|mut error| {
            if let Some(text) = say(&self.situation, &error) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn situation(target: &str, hip: Version) -> Situation {
        Situation { target: target.into(), hip: Some(hip), ..Situation::default() }
    }

    fn timeout(phase: Phase) -> Error {
        Error::Timeout { backend: "hip:0".into(), phase, node: None, after: Duration::ZERO }
    }

    fn sources(situation: &Situation, error: &Error) -> Vec<&'static str> {
        for_error(situation, error).iter().map(|row| row.source).collect()
    }

    #[test]
    fn rows_are_complete() {
        for row in ADVICE {
            assert!(row.advice.len() > 10 && row.source.len() > 5 && !row.targets.is_empty(), "{row:?}");
            assert!(row.from.is_none() || row.before.is_none() || row.from < row.before, "{row:?}");
            let ends = |text: &str| text.ends_with(['.', ' ']);
            assert!(!ends(row.advice) && !ends(row.source), "{row:?}");
        }
    }

    #[test]
    fn a_hang_of_gfx1151() {
        let mut s = situation("gfx1151", (7, 1, 52802));
        s.kernel = KernelFacts { release: Some((6, 14)), cwsr: Some(true), mes: Some(0x80) };
        let hang = timeout(Phase::Compute);
        assert_eq!(sources(&s, &hang), ["ROCm issue 5590; rocm-systems 1807, 2200, 2324, 2811"]);
        s.kernel.mes = Some(0x83);
        assert_eq!(sources(&s, &hang).len(), 2);
        assert!(sources(&s, &timeout(Phase::Allocate)).is_empty(), "no row is about allocations");
        s.kernel = KernelFacts { cwsr: Some(false), ..s.kernel };
        assert_eq!(sources(&s, &hang), ["ROCm issues 5724, 5991"]);
        // Both must be new.
        s.kernel = KernelFacts { release: Some((6, 18)), cwsr: Some(true), mes: None };
        assert_eq!(sources(&s, &hang).len(), 1);
        s.hip = Some((7, 2, 53211));
        assert!(sources(&s, &hang).is_empty());
    }

    #[test]
    fn circumstances() {
        let mut apu = Situation { dma_copies: true, ..situation("gfx90c", (6, 0, 0)) };
        assert_eq!(sources(&apu, &timeout(Phase::Upload)), ["ROCm issue 2781"]);
        apu.environment = Environment::new([("HSA_ENABLE_SDMA".into(), "0".into())]);
        assert!(sources(&apu, &timeout(Phase::Upload)).is_empty());
        apu.environment = Environment::default();
        apu.hip = Some((6, 1, 40091));
        assert!(sources(&apu, &timeout(Phase::Upload)).is_empty());
        let halo = Situation { dma_copies: true, ..situation("gfx1151", (7, 2, 53211)) };
        let modern = KernelFacts { release: Some((7, 0)), ..KernelFacts::default() };
        let halo = Situation { kernel: modern, ..halo };
        assert_eq!(sources(&halo, &timeout(Phase::Upload)), ["ROCm issues 6182, 6582"]);
        assert!(sources(&Situation { dma_copies: false, ..halo }, &timeout(Phase::Upload)).is_empty());
        let mut s = situation("gfx906", (6, 2, 41133));
        assert!(sources(&s, &timeout(Phase::Compute)).is_empty());
        s.environment = Environment::new([("AMD_SERIALIZE_KERNEL".into(), "3".into())]);
        assert_eq!(sources(&s, &timeout(Phase::Compute)), ["ROCm 6.2.1 release notes"]);
        s.hip = Some((6, 2, 41134));
        assert!(sources(&s, &timeout(Phase::Compute)).is_empty());
        s.real_target = Some("gfx90c".into());
        let fault = Error::Driver {
            backend: "hip:0".into(),
            phase: Phase::Compute,
            node: None,
            call: "hipEventQuery",
            code: 700,
            name: "hipErrorIllegalAddress".into(),
        };
        assert!(say(&s, &fault).unwrap().starts_with("HSA_OVERRIDE_GFX_VERSION has the runtime"));
        let full = Error::OutOfMemory {
            backend: "hip:0".into(),
            asked: 1,
            free: None,
            heap: "device".into(),
            driver: None,
        };
        assert!(say(&s, &full).unwrap().contains("GPU_SINGLE_ALLOC_PERCENT"));
        // Nobody knows the version: rows that ask for one do not apply.
        s.hip = None;
        assert_eq!(say(&s, &full), None);
        assert_eq!(known(&situation("gfx1100", (7, 0, 0))).count(), 1, "only what is seen when idle");
        assert_eq!(known(&situation("gfx1100", (7, 1, 25424))).count(), 2, "and small allocations");
        let vulkan = |mesa, kernel| Situation {
            stack: Stack::Vulkan,
            mesa: Some(mesa),
            kernel: KernelFacts { release: Some(kernel), ..KernelFacts::default() },
            ..situation("gfx1201", (7, 0, 0))
        };
        let of = |situation| known(&situation).map(|row| row.source).collect::<Vec<_>>();
        assert_eq!(of(vulkan((25, 3, 1), (6, 18))), ["Mesa 25.3.2 release notes"]);
        assert_eq!(of(vulkan((25, 3, 2), (7, 0))), ["llama.cpp issues 25664, 21724"]);
        let unsaved = KernelFacts { cwsr: Some(false), ..KernelFacts::default() };
        let apu = Situation { kernel: unsaved, ..situation("gfx90c", (6, 1, 1)) };
        assert!(of(apu).contains(&"amd-vega-rocm-vulkan-llm-toolkit"));
        assert_eq!(say(&situation("sm_90", (0, 0, 0)), &timeout(Phase::Compute)), None);
        assert!(
            say(&situation("gfx1100", (7, 0, 0)), &timeout(Phase::OpenDevice)).unwrap().contains("dmesg")
        );
    }
}
