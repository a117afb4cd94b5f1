//! Reports of cards: what drivers do on them, as their owners sent it.
//!
//! The folder `cards` of this package has their files, each with a list of reports. A fast way that reports verified on a class of
//! cards is known to work there, so it is used on other cards of the class before it is checked on them.

use super::verdict::{State, Verdict};
use crate::backend::DeviceInfo;
use crate::error::Error;
use crate::files::write_atomically;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::sync::OnceLock;

/// The reports, with the names of their files.
pub const FILES: &[(&str, &str)] = &[];

/// Report of a card under one driver. It holds nothing of its owner: no serial number, no path, no name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardReport {
    /// Driver: "vulkan" or "hip".
    pub driver: String,
    /// Name of the device.
    pub card: String,
    /// Class of cards ("AMD_RDNA3").
    pub class: String,
    /// Processor ("gfx1100"), if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// True for an emulated card.
    #[serde(default)]
    pub emulated: bool,
    /// Bytes of device memory, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Versions of driver, runtime, kernel, firmware and this library, by name.
    pub versions: Vec<(String, String)>,
    /// Verdicts on the routes that the card could use.
    pub verdicts: Vec<Verdict>,
}

impl CardReport {
    /// Returns the report of an opened device.
    pub fn of(device: &DeviceInfo) -> CardReport {
        let feature = |wanted: &str| {
            device.features.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let mut versions = vec![("driver".to_string(), device.driver.clone())];
        for (name, value) in &device.versions {
            add(&mut versions, if name == "driver" { "driver version" } else { name }, value);
        }
        let is_version = |name: &str| name.contains("kernel") || name.ends_with("version");
        for (name, value) in device.identity.0.iter().filter(|(name, _)| is_version(name)) {
            add(&mut versions, name, value);
        }
        CardReport {
            driver: device.backend.split([':', '-']).next().unwrap_or_default().into(),
            card: device.name.clone(),
            class: feature("class").unwrap_or_else(|| device.arch.clone()),
            processor: feature("target").filter(|target| !target.is_empty()),
            emulated: device.backend.contains("virtual"),
            memory: device.memory,
            versions,
            verdicts: Vec::new(),
        }
        .with_verdicts(device.routes.iter().filter_map(|route| route.verdict.clone()))
    }

    /// Returns the report with other verdicts.
    pub fn with_verdicts(self, verdicts: impl IntoIterator<Item = Verdict>) -> CardReport {
        CardReport { verdicts: verdicts.into_iter().map(impersonal).collect(), ..self }
    }

    /// Returns the version of a part, by its name.
    fn version(&self, wanted: &str) -> &str {
        self.versions.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value)
    }
}

/// Adds a version. Paths, which may have names of users, are left out.
fn add(versions: &mut Vec<(String, String)>, name: &str, value: &str) {
    let is_new = !versions.iter().any(|(known, _)| known == name);
    if is_new && !value.is_empty() && !has_path(value) {
        versions.push((name.into(), value.into()));
    }
}

/// Returns a verdict without evidence that holds a path.
fn impersonal(verdict: Verdict) -> Verdict {
    if !has_path(&verdict.evidence) {
        return verdict;
    }
    Verdict { evidence: "left out, because it names a path".into(), ..verdict }
}

/// True if a text holds a path.
fn has_path(text: &str) -> bool {
    let is_path = |word: &str| {
        (word.starts_with('/') && word.len() > 1) || word.starts_with("~/") || word.contains(":\\")
    };
    text.split([' ', ',', ';', '(', '\'', '"', '=']).any(is_path)
}

/// Writes reports into a file, without those that have no verdicts.
///
/// # Errors
/// [`Error::InvalidArgument`] if none has verdicts; [`Error::Io`].
pub fn write(path: &Path, reports: &[CardReport]) -> Result<(), Error> {
    let reports: Vec<&CardReport> = reports.iter().filter(|report| !report.verdicts.is_empty()).collect();
    if reports.is_empty() {
        return Err(Error::argument("verdicts", "none", "a card that was checked: run qualify first"));
    }
    let text = serde_json::to_string_pretty(&reports).map_err(|e| Error::argument("report", e, "JSON"))?;
    write_atomically(path, format!("{text}\n").as_bytes()).map_err(|e| Error::io(path, e))
}

/// Returns the reports of the folder.
pub fn reports() -> &'static [CardReport] {
    static REPORTS: OnceLock<Vec<CardReport>> = OnceLock::new();
    REPORTS.get_or_init(|| FILES.iter().flat_map(|(_, text)| parse(text).unwrap_or_default()).collect())
}

fn parse(text: &str) -> serde_json::Result<Vec<CardReport>> {
    serde_json::from_str(text)
}

/// True if reports of real cards of a class verified a route under a driver, and none of them found a fault in it.
pub fn is_known(driver: &str, class: &str, route: &str) -> bool {
    known(reports(), driver, class, route)
}

fn known(reports: &[CardReport], driver: &str, class: &str, route: &str) -> bool {
    let of_class =
        |report: &&CardReport| !report.emulated && report.driver == driver && report.class == class;
    let verdicts = reports.iter().filter(of_class).flat_map(|report| &report.verdicts);
    let states: Vec<State> = verdicts.filter(|v| v.route == route).map(|v| v.state).collect();
    let is_fault =
        |state: &State| matches!(state, State::Wrong | State::Crashed | State::Hung | State::Begun);
    states.contains(&State::Verified) && !states.iter().any(is_fault)
}

/// Returns the reports as tables in Markdown.
pub fn tables() -> String {
    let mut text = String::new();
    for report in reports() {
        let _ = write!(text, "### {} ({})\n\n", report.card, report.driver);
        let kind = if report.emulated { ", emulated" } else { "" };
        let processor = report.processor.as_ref().map_or(String::new(), |name| format!(", {name}"));
        let memory = report
            .memory
            .map_or(String::new(), |bytes| format!(", {:.0} GiB", bytes as f64 / f64::from(1 << 30)));
        let driver = [report.version("driver"), report.version("driver version")].join(" ");
        let _ = write!(text, "{}{processor}{memory}{kind}; {}\n\n", report.class, driver.trim());
        text += "| route | verdict | speed | evidence |\n| --- | --- | --- | --- |\n";
        for verdict in &report.verdicts {
            let gain = verdict.gain.map_or("-".into(), |gain| format!("{gain:.2}"));
            let evidence = verdict.evidence.replace('|', "\\|");
            let _ =
                writeln!(text, "| `{}` | {} | {gain} | {evidence} |", verdict.route, verdict.state.name());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::RouteUse;
    use super::*;
    use crate::backend::Limits;
    use std::collections::BTreeSet;

    fn report(class: &str, emulated: bool, verdicts: &[(&str, State)]) -> CardReport {
        CardReport {
            driver: "vulkan".into(),
            card: "card".into(),
            class: class.into(),
            processor: None,
            emulated,
            memory: None,
            versions: Vec::new(),
            verdicts: verdicts.iter().map(|(route, state)| Verdict::new(route, *state, "")).collect(),
        }
    }

    #[test]
    fn reports_make_routes_known() {
        let verified = |class, emulated| report(class, emulated, &[("vulkan.a", State::Verified)]);
        let is = |reports: &[CardReport], class| known(reports, "vulkan", class, "vulkan.a");
        assert!(is(&[verified("NVIDIA", false)], "NVIDIA"));
        assert!(!is(&[verified("NVIDIA", false)], "AMD_RDNA3"));
        assert!(!is(&[verified("NVIDIA", true)], "NVIDIA"), "an emulated card proves nothing of cards");
        assert!(!known(&[verified("NVIDIA", false)], "hip", "NVIDIA", "vulkan.a"));
        // One that is slow somewhere is not wrong; one that was wrong once has to be checked everywhere.
        let with = |state| [verified("NVIDIA", false), report("NVIDIA", false, &[("vulkan.a", state)])];
        assert!(is(&with(State::Slower), "NVIDIA") && is(&with(State::Unknown), "NVIDIA"));
        for state in [State::Wrong, State::Crashed, State::Hung, State::Begun] {
            assert!(!is(&with(state), "NVIDIA"), "{state:?}");
        }
    }

    /// Every file of the folder is in the table, can be read, and has nothing personal.
    #[test]
    fn all_files_are_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cards");
        let files =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = files.filter(|name| name.ends_with(".json")).collect();
        let known: BTreeSet<String> = FILES.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(files, known, "FILES in routes/cards.rs lists the folder");
        for (name, text) in FILES {
            assert!(!has_path(text) && !text.contains("GPU-"), "{name} has a path or a serial number");
            let reports = parse(text).unwrap();
            assert!(!reports.is_empty(), "{name}");
            for report in reports {
                assert!(["vulkan", "hip"].contains(&report.driver.as_str()), "{name}");
                assert!(report.verdicts.iter().all(|v| v.route.starts_with(&report.driver)), "{name}");
                assert!(!report.versions.is_empty() && !report.verdicts.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn reports_have_nothing_personal() {
        for path in ["/home/anna/x", "at '/usr/lib/libamdhip64.so'", "in C:\\Users", "HOME=~/x"] {
            assert!(has_path(path), "{path}");
        }
        for text in ["9 cases, 12 GB/s", "1.4.303", "a/b", "/"] {
            assert!(!has_path(text), "{text}");
        }
        let names = |all: &[(String, String)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let routes = vec![RouteUse {
            name: "hip.a".into(),
            about: String::new(),
            used: true,
            why: String::new(),
            verdict: Some(Verdict::new("hip.a", State::Wrong, "see /tmp/x")),
            lacks: None,
            on_top_of: None,
        }];
        let device = DeviceInfo {
            backend: "hip-virtual:gfx1100".into(),
            name: "Navi 31".into(),
            driver: "AMD HIP".into(),
            versions: pairs(&[("driver", "6.4"), ("library", "/opt/rocm/lib/libamdhip64.so"), ("empty", "")]),
            arch: "gfx1100".into(),
            uuid: Some("GPU-0123".into()),
            memory: Some(1 << 34),
            features: pairs(&[("class", "AMD_RDNA3"), ("target", "gfx1100")]),
            overrides: pairs(&[("HOME", "/home/anna")]),
            limits: Limits { max_allocation: 0, max_binding: 0, alignment: 1 },
            routes,
            identity: super::super::Identity(pairs(&[
                ("uuid", "0123"),
                ("kernel", "6.12"),
                ("mec_fw_version", "0x20"),
                ("DIPTYCH_X", "1"),
            ])),
        };
        let report = CardReport::of(&device);
        assert_eq!((report.driver.as_str(), report.emulated), ("hip", true));
        assert_eq!((report.class.as_str(), report.processor.as_deref()), ("AMD_RDNA3", Some("gfx1100")));
        assert_eq!(names(&report.versions), ["driver", "driver version", "kernel", "mec_fw_version"]);
        assert_eq!(report.verdicts[0].evidence, "left out, because it names a path");
    }
}
