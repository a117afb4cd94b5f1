//! HIP's path to a card, as far as files and variables describe it: library, official support, code,
//! recognition, features.

use super::card::Found;
use super::report::{AccessPath, Gate, Line, State};
use super::support::official;
use backend_hip::HipOptions;
use backend_hip::advice::{self, Advice, Circumstance, Situation, Symptom};
use backend_hip::arch::{Profile, Target};
use backend_hip::installed::{Installation, LibraryFile, Release};
use backend_hip::system::{self, KernelFacts, SystemReport};

/// Source of the runtime, for advice.
pub(super) const GET: &str = "install ROCm's HIP runtime (https://rocm.docs.amd.com), or name a library: \
                              DIPTYCH_HIP_LIBRARY=/path/to/libamdhip64.so";

/// The same in a few words.
const SHORT: &str = "install ROCm's HIP runtime, or name a library: DIPTYCH_HIP_LIBRARY=FILE";

/// Remedy for a library that ends or blocks its process.
pub(super) const ANOTHER: &str = "try another copy of the library: DIPTYCH_HIP_LIBRARY=FILE";

/// The override that is in effect for a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Override {
    /// The variable with its value, and the processor that the runtime then reports.
    Target(String, String),
    /// A value that the runtime rejects; it finds no device then.
    Wrong(String),
}

/// HIP's path to one card.
pub(super) struct HipPath<'a> {
    pub(super) found: &'a Found,
    pub(super) options: &'a HipOptions,
    pub(super) libraries: &'a Installation,
    pub(super) kernel: &'a KernelFacts,
    /// Targets with built-in code objects.
    pub(super) built_in: &'a [String],
    /// The reason the runtime lists no devices, if it was queried.
    pub(super) refusal: Option<&'a str>,
    /// True if the runtime was queried.
    pub(super) was_queried: bool,
    /// The devices that the kernel lists.
    pub(super) system: &'a SystemReport,
}

impl HipPath<'_> {
    /// Returns the override in effect. A variable for the card's node takes precedence over the variable for
    /// all nodes.
    pub(super) fn overridden(&self) -> Option<Override> {
        let gpu = self.found.gpu.as_ref()?;
        let names = [format!("HSA_OVERRIDE_GFX_VERSION_{}", gpu.node), "HSA_OVERRIDE_GFX_VERSION".into()];
        let (name, value) =
            names.into_iter().find_map(|name| Some((name.clone(), self.options.environment.get(&name)?)))?;
        let setting = format!("{name}={value}");
        let numbers: Option<Vec<u32>> = value.split('.').map(|n| n.parse().ok()).collect();
        Some(match numbers.as_deref() {
            Some(&[major, minor, step]) if major <= 63 && minor < 100 && step < 100 => {
                let target = Target::from_kfd(major * 10_000 + minor * 100 + step);
                Override::Target(setting, target.processor)
            }
            _ => Override::Wrong(setting),
        })
    }

    /// Returns the processor that the runtime reports for the card.
    pub(super) fn seen(&self) -> Option<String> {
        let view = self.found.views.iter().find(|view| view.backend.starts_with("hip"));
        let real = || self.found.target().map(String::from);
        view.map(|view| view.arch.clone()).or_else(|| match self.overridden() {
            Some(Override::Target(_, target)) => Some(target),
            _ => real(),
        })
    }

    /// Returns the rows of the advice table that apply.
    pub(super) fn rows(&self) -> Vec<&'static Advice> {
        let Some(seen) = self.seen() else { return Vec::new() };
        let situation = Situation {
            hip: self.release().and_then(Release::hip),
            // On a device that shares the host's memory the backend itself copies with a kernel.
            dma_copies: false,
            ..self.found.situation(self.options, self.kernel, &seen)
        };
        advice::known(&situation).collect()
    }

    fn release(&self) -> Option<Release> {
        self.libraries.chosen()?.release.map(|(release, _)| release)
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        let rows = self.rows();
        vec![
            self.found.firmware(self.kernel, &rows),
            self.runtime(&rows),
            self.support(),
            self.code(),
            self.recognition(&rows),
            self.features(),
        ]
    }

    fn runtime(&self, rows: &[&'static Advice]) -> Line {
        let mut line = runtime(self.libraries);
        let of_runtime = |row: &&&Advice| {
            let is_slow = row.symptom == Symptom::Slow && row.is_of_any_runtime();
            !row.is_of_kernel() && row.when != Circumstance::Overridden && !is_slow
        };
        let rows: Vec<&&Advice> = rows.iter().filter(of_runtime).collect();
        if let Some(row) = rows.iter().find(|row| row.blocks) {
            line.state = State::Blocks;
            line = line.because(row.advice.split(": ").next().unwrap_or(row.advice), row.cure);
        }
        line.with(rows.iter().map(|row| row.text()))
    }

    fn support(&self) -> Line {
        let line = |state, text: String| Line::new(Gate::Support, AccessPath::Hip, state, text);
        match (self.found.target(), self.release()) {
            (Some(target), Some(release)) => match official(target, release) {
                (Some(true), why) => line(State::Allows, why),
                (Some(false), why) => {
                    line(State::Blocks, why).with(["an unsupported card may still execute".into()])
                }
                (None, why) => line(State::Unknown, why),
            },
            (None, _) => line(State::Unknown, "the processor is unknown".into()),
            (_, None) => line(State::Unknown, "the release of ROCm is unknown".into()),
        }
    }

    fn code(&self) -> Line {
        let line = |state, text: String| Line::new(Gate::Code, AccessPath::Hip, state, text);
        let Some(target) = self.seen().as_deref().and_then(Target::parse) else {
            return line(State::Unknown, "the processor is unknown".into());
        };
        let all = match self.built_in {
            [] => "none".to_string(),
            all => all.join(", "),
        };
        if let Some(target) = target.choose(self.built_in.iter().map(String::as_str)) {
            return line(State::Allows, format!("code objects for {target} are built in (of {all})"));
        }
        let text = format!("no code object for {target} is built in (built in: {all})");
        match self.hiprtc() {
            Some(path) => line(State::Allows, format!("{text}; {path} compiles the kernels at run time")),
            None => line(State::Blocks, format!("{text}, and there is no libhiprtc to compile the kernels"))
                .with([format!("build with clang 19 and DIPTYCH_HIP_TARGETS={target}, or install hiprtc")])
                .because(
                    format!("no code for {target} in this program"),
                    format!("build with DIPTYCH_HIP_TARGETS={target}, or install hiprtc"),
                ),
        }
    }

    /// Finds a run-time compiler next to the runtime's library.
    fn hiprtc(&self) -> Option<String> {
        let folder = self.libraries.chosen()?.path.parent()?;
        let names = std::fs::read_dir(self.options.rooted(folder)).ok()?.flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let name = names.find(|name| name.starts_with("libhiprtc.so."))?;
        Some(folder.join(name).display().to_string())
    }

    pub(super) fn recognition(&self, rows: &[&'static Advice]) -> Line {
        let line = |state, text: String| Line::new(Gate::Recognition, AccessPath::Hip, state, text);
        let real = self.found.target().unwrap_or("an unknown processor");
        let setting = match self.overridden() {
            None => "no override is set".to_string(),
            Some(Override::Wrong(setting)) => {
                let help = "it has to be three decimal numbers (9.0.6); with other values the runtime finds no device";
                let cause = format!("{setting} is not a version that the runtime accepts");
                let blocked = line(State::Blocks, cause.clone()).with([help.into()]);
                return blocked.because(cause, "unset it, or set three decimal numbers");
            }
            Some(Override::Target(setting, target)) if target == real => {
                format!("{setting} sets {target}, the real processor")
            }
            Some(Override::Target(setting, target)) => format!("{setting} makes the runtime report {target}"),
        };
        let listed = self.found.views.iter().find(|view| view.backend.starts_with("hip"));
        let (state, text) = match (listed, self.refusal) {
            (Some(view), _) => {
                (State::Allows, format!("the runtime lists it as {}, {}", view.backend, view.arch))
            }
            (None, Some(why)) => (State::Blocks, format!("the runtime does not list it: {why}")),
            (None, None) if self.was_queried => (State::Blocks, "the runtime does not list it".into()),
            (None, None) => (State::Allows, format!("the kernel reports {real}")),
        };
        let hidden = self.hidden().filter(|_| listed.is_none());
        let foreign: Vec<&&Advice> = rows.iter().filter(|row| row.when == Circumstance::Overridden).collect();
        let state = match (&hidden, foreign.is_empty()) {
            (Some(_), _) => State::Blocks,
            (None, false) if state == State::Allows => State::Unknown,
            _ => state,
        };
        let mut line = line(state, format!("{text}; {setting}"));
        let variable = |setting: &str| setting.split('=').next().unwrap_or_default().to_string();
        if let Some(hidden) = &hidden {
            line = line.because(format!("{hidden} hides the card"), format!("unset {}", variable(hidden)));
        } else if let (State::Blocks, Some(why)) = (state, self.refusal) {
            line = refused(line, why);
        } else if state == State::Unknown {
            line = line.because(setting.clone(), format!("unset {}", variable(&setting)));
        }
        let help = self.refusal.and_then(help);
        let hidden = hidden.map(|hidden| format!("{hidden} hides the card: unset it"));
        line.with(foreign.iter().map(|row| row.text())).with(hidden).with(help)
    }

    /// Returns the variable that hides the card, as "NAME=VALUE".
    fn hidden(&self) -> Option<String> {
        let gpu = self.found.gpu.as_ref()?;
        system::hiding(&self.options.environment, &self.system.gpus, gpu.pci)
    }

    fn features(&self) -> Line {
        let line = |state, text: String| Line::new(Gate::Features, AccessPath::Hip, state, text);
        let target = self.seen().as_deref().and_then(Target::parse);
        match target.as_ref().and_then(Profile::of) {
            Some(p) => line(
                State::Allows,
                format!(
                    "{:?}, waves of {}, dot product of bytes {:?}, matrix units {:?}, packed half {}, LDS {} KiB",
                    p.family,
                    p.wave,
                    p.dot4,
                    p.matrix,
                    p.packed_half,
                    p.lds_bytes >> 10
                ),
            ),
            None => line(State::Blocks, "the processor belongs to no known family".into()),
        }
    }
}

/// Remedy for a library that contradicts its file name.
pub(super) const RIGHT: &str = "select the right library: DIPTYCH_HIP_LIBRARY=FILE";

/// Adds cause and remedy of a refusal by the runtime.
pub(super) fn refused(line: Line, why: &str) -> Line {
    line.because(short_refusal(why), if is_wrong(why) { RIGHT } else { ANOTHER })
}

fn is_wrong(why: &str) -> bool {
    why.contains("wrong library: ")
}

/// Returns the cause of a refusal in a few words: what is wrong with the library, or the first clause.
fn short_refusal(why: &str) -> String {
    let clauses = |text: &str, count: usize| text.split(": ").take(count).collect::<Vec<_>>().join(": ");
    match why.find("wrong library: ") {
        Some(at) => clauses(&why[at..], 2),
        None => why.split("; ").next().unwrap_or(why).into(),
    }
}

/// Returns advice for a runtime that crashed or hung when its devices were listed.
pub(super) fn help(why: &str) -> Option<String> {
    let ended = why.starts_with("crashed") || why.starts_with("hung");
    ended.then(|| {
        "the library crashes or hangs the process that uses it: try another copy of it (DIPTYCH_HIP_LIBRARY), or use \
         Vulkan (--backend vulkan)"
            .into()
    })
}

/// Returns the line of the runtime's library: the library that is loaded, and problems of the installed
/// copies.
pub(super) fn runtime(libraries: &Installation) -> Line {
    let line = |state, text: String| Line::new(Gate::Runtime, AccessPath::Hip, state, text);
    if let Some(path) = &libraries.absent {
        let cause = format!("{} is configured but does not exist", path.display());
        return line(State::Blocks, cause.clone())
            .with([GET.into()])
            .because(cause, "name a library that exists");
    }
    let (Some(library), Some((_, name))) = (libraries.chosen(), &libraries.chosen) else {
        let others = libraries.copies.iter().map(LibraryFile::describe);
        return line(State::Blocks, "no libamdhip64 was found".into())
            .with(others.map(|what| format!("{what}: set DIPTYCH_HIP_LIBRARY to use it")))
            .with([GET.into()])
            .because("no libamdhip64 was found", SHORT);
    };
    let link = if *name == library.path { String::new() } else { format!(", found as {}", name.display()) };
    let release = match library.release {
        Some((release, what)) => format!("ROCm {release} by {what}"),
        None => "of an unknown release".into(),
    };
    let mut state = State::Allows;
    let mut findings = Vec::new();
    let mut cause = None;
    if let Some(releases) = libraries.mixed() {
        let releases: Vec<String> = releases.iter().map(Release::to_string).collect();
        let copies: Vec<String> = libraries.copies.iter().map(LibraryFile::describe).collect();
        findings.push(format!(
            "mixed versions: ROCm {} are installed ({}); a process that loads two of them collides, and an application \
             may load another one",
            releases.join(" and "),
            copies.join("; ")
        ));
    }
    for copy in &libraries.copies {
        if let Some(bent) = copy.redirected_name() {
            findings.push(format!(
                "{} leads to {}: another major version than its name says, with another interface; set \
                 DIPTYCH_HIP_LIBRARY to the intended library instead",
                bent.display(),
                copy.path.display()
            ));
            if bent == name.as_path() {
                state = State::Blocks;
                cause = Some(format!("{} leads to another major version than its name says", bent.display()));
            }
        }
        if let Some((what, other)) = copy.contradicts {
            findings
                .push(format!("{}, but {other} by {what}: files of two releases are mixed", copy.describe()));
            if std::ptr::eq(copy, library) {
                state = State::Unknown;
                cause = Some(format!("{} has files of two releases around it", copy.path.display()));
            }
        }
    }
    let text = format!("{}{link}, {release}", library.path.display());
    Line { cure: cause.as_ref().map(|_| RIGHT.into()), cause, ..line(state, text).with(findings) }
}
