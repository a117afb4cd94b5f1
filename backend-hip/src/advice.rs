//! Table of known driver hangs and faults, each with a remedy.
//!
//! Each row gives a symptom, the affected processors, versions and circumstances, the remedy and the source
//! of the report. Opening a device adds the rows that apply to it to its features, so every report contains
//! them. When a call times out or the device is lost, the rows with a matching symptom are logged with the
//! error and added to the errors of later calls. A problem that this crate avoids by design (see the crate's
//! documentation) has a row only if users of other programs need it. Rows about RADV help to diagnose a card
//! under both drivers.

mod rows;

pub use rows::ADVICE;

use crate::driver::codes::Call;
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

/// Returns the text to log with an error: matching rows and [`GENERAL`]. `None` for errors that explain
/// themselves.
fn text_for(situation: &Situation, error: &Error) -> Option<String> {
    let rows = for_error(situation, error);
    let general = crate::driver::codes::is_fatal(error) && situation.target.starts_with("gfx");
    let parts: Vec<String> =
        rows.iter().map(|row| row.text()).chain(general.then(|| GENERAL.to_string())).collect();
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
            assert_eq!(row.cure.is_empty(), !row.blocks, "{row:?}");
            let ends = |text: &str| text.ends_with(['.', ' ']);
            assert!(!ends(row.advice) && !ends(row.source), "{row:?}");
        }
    }

    #[test]
    fn a_hang_of_gfx1151() {
        let mut s = situation("gfx1151", (7, 1, 52802));
        s.kernel = KernelFacts { release: Some((6, 14)), cwsr: Some(true), mes: Some(0x80), kfd: None };
        let hang = timeout(Phase::Compute);
        assert_eq!(
            sources(&s, &hang),
            ["ROCm issues 5590, 5151; TheRock 1413; rocm-systems 1807, 2200, 2324, 2811"]
        );
        s.kernel.mes = Some(0x83);
        assert_eq!(sources(&s, &hang).len(), 2);
        assert!(sources(&s, &timeout(Phase::Allocate)).is_empty(), "no row is about allocations");
        s.kernel = KernelFacts { cwsr: Some(false), ..s.kernel };
        assert_eq!(sources(&s, &hang), ["ROCm issues 5724, 5991"]);
        // Only a new kernel together with a new runtime is unaffected.
        s.kernel = KernelFacts { release: Some((6, 18)), cwsr: Some(true), mes: None, kfd: None };
        assert_eq!(sources(&s, &hang).len(), 1);
        s.hip = Some((7, 2, 53211));
        assert!(sources(&s, &hang).is_empty());
    }

    /// Field case C: the override of the Strix Halo's owner must not hide what is known of its chip, and a chip that
    /// is made to look like another does not get that one's problems.
    #[test]
    fn rows_match_the_chip_whatever_is_pretended() {
        let kernel = KernelFacts { release: Some((6, 14)), cwsr: Some(true), mes: Some(0x83), kfd: None };
        let chip = |chip: &str, target: &str| Situation {
            chip: Some(chip.into()),
            kernel: kernel.clone(),
            ..situation(target, (7, 2, 26015))
        };
        let blocking = |situation: &Situation| known(situation).filter(|row| row.blocks).count();
        assert_eq!(blocking(&chip("gfx1151", "gfx1151")), 2, "waves, and MES 0x83");
        assert_eq!(blocking(&chip("gfx1151", "gfx1100")), 2, "the same with HSA_OVERRIDE_GFX_VERSION=11.0.0");
        assert_eq!(blocking(&chip("gfx1100", "gfx1151")), 0, "the chip is no Strix Halo");
        assert_eq!(blocking(&Situation { chip: None, ..chip("", "gfx1151") }), 2, "the chip is unknown");
        // Which of the two a fault of graphs depends on is not known, so either counts.
        let of_graphs = |chip_name, target| {
            let with = Situation { graphs: true, hip: Some((7, 2, 53211)), ..chip(chip_name, target) };
            known(&with).any(|row| row.source == "HIP issue 3887")
        };
        assert!(of_graphs("gfx1201", "gfx1100") && of_graphs("gfx1100", "gfx1201"));
        assert!(!of_graphs("gfx1100", "gfx1100"));
    }

    /// `amdgpu.cwsr_enable=0` is no advice where it is set.
    #[test]
    fn waves_that_are_not_saved_are_not_advised_again() {
        let mut s = situation("gfx1100", (7, 1, 52802));
        let text = |s: &Situation| text_for(s, &timeout(Phase::Allocate)).unwrap();
        assert!(text(&s).contains("amdgpu.cwsr_enable=0 or ROCm 6.4.4 helped"), "{}", text(&s));
        s.kernel.cwsr = Some(false);
        let off = text(&s);
        assert!(off.contains("ROCm 6.4.4 helped") && !off.contains("amdgpu.cwsr_enable=0 or"), "{off}");
    }

    /// Rows for people who came with another program, or whose machine is in danger.
    #[test]
    fn what_other_programs_run_into() {
        let has =
            |situation: &Situation, source: &str| known(situation).any(|row| row.source.contains(source));
        for (target, lacks_code) in [("gfx1150", true), ("gfx1151", true), ("gfx1100", false)] {
            assert_eq!(has(&situation(target, (7, 2, 53211)), "ROCm issue 5534"), lacks_code, "{target}");
        }
        let mut polls = situation("gfx1100", (7, 14, 60850));
        assert!(has(&polls, "TheRock issue 7051"));
        polls.environment = Environment::new([("HIP_VISIBLE_DEVICES".into(), "0".into())]);
        assert!(!has(&polls, "TheRock issue 7051"), "the runtime lists one device");
        assert!(!has(&situation("gfx1100", (7, 13, 0)), "TheRock issue 7051"));
        let mut apu = situation("gfx90c", (6, 1, 1));
        assert!(!has(&apu, "TROUBLESHOOTING.md"));
        apu.environment = Environment::new([("HSA_XNACK".into(), "1".into())]);
        let cures: Vec<&str> = known(&apu).filter(|row| row.blocks).map(|row| row.cure).collect();
        assert_eq!(cures, ["unset HSA_XNACK"]);
        let old = KernelFacts { release: Some((6, 14)), ..KernelFacts::default() };
        let halo = Situation { kernel: old, ..situation("gfx1151", (7, 2, 53211)) };
        assert!(
            has(&halo, "ROCm issue 5750") && !has(&situation("gfx1151", (7, 2, 53211)), "ROCm issue 5750")
        );
        for (source, target, hip, other) in [
            ("ROCm issue 6630", "gfx1201", (7, 14, 60850), (7, 13, 0)),
            ("HIP issue 3314", "gfx1034", (5, 7, 0), (6, 0, 0)),
            ("LLVM's AMDGPU guide", "gfx906", (5, 1, 0), (5, 2, 0)),
        ] {
            assert!(
                has(&situation(target, hip), source) && !has(&situation(target, other), source),
                "{source}"
            );
        }
    }

    /// Graphs are used where nothing is known against them, and where they are requested.
    #[test]
    fn graphs_that_fail_are_not_used() {
        let used = |target, hip| graphs(&situation(target, hip), Graphs::Auto);
        for (target, hip) in [
            ("gfx942", (7, 2, 0)),
            ("gfx950", (7, 2, 53220)),
            ("gfx1100", (7, 2, 26015)),
            ("gfx1201", (7, 2, 53211)),
            ("gfx1200", (7, 14, 60850)),
        ] {
            assert_eq!(used(target, hip), Graphs::Off, "{target} {hip:?}");
        }
        for (target, hip) in [
            ("gfx942", (7, 1, 52802)),
            ("gfx942", (7, 13, 0)),
            ("gfx1201", (7, 1, 52802)),
            ("gfx1100", (7, 2, 53211)),
            ("gfx906", (7, 2, 53211)),
        ] {
            assert_eq!(used(target, hip), Graphs::Auto, "{target} {hip:?}");
        }
        let mut forced = situation("gfx1201", (7, 2, 53211));
        assert_eq!(graphs(&forced, Graphs::On), Graphs::On);
        // The row is shown only while graphs are used.
        let is_shown =
            |situation: &Situation| known(situation).any(|row| row.symptom == Symptom::WrongResult);
        assert!(!is_shown(&forced));
        forced.graphs = true;
        assert!(is_shown(&forced));
        assert_eq!(graphs(&Situation::default(), Graphs::Auto), Graphs::Auto, "no version is known");
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
        s.chip = Some("gfx90c".into());
        let fault = Error::Driver {
            backend: "hip:0".into(),
            phase: Phase::Compute,
            node: None,
            call: "hipEventQuery",
            code: 700,
            name: "hipErrorIllegalAddress".into(),
        };
        let text = text_for(&s, &fault).unwrap();
        assert!(text.contains("HSA_OVERRIDE_GFX_VERSION makes the runtime"), "{text}");
        assert!(text.starts_with("kernels may hang on this processor"), "the chip is a gfx90c: {text}");
        let full = Error::OutOfMemory {
            backend: "hip:0".into(),
            asked: 1,
            free: None,
            heap: "device".into(),
            driver: None,
        };
        assert!(text_for(&s, &full).unwrap().contains("GPU_SINGLE_ALLOC_PERCENT"));
        // Rows that require a HIP version do not apply if the version is unknown.
        s.hip = None;
        assert_eq!(text_for(&s, &full), None);
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
        assert_eq!(text_for(&situation("sm_90", (0, 0, 0)), &timeout(Phase::Compute)), None);
        assert!(
            text_for(&situation("gfx1100", (7, 0, 0)), &timeout(Phase::OpenDevice))
                .unwrap()
                .contains("dmesg")
        );
    }
}
