//! Reports of cards: what drivers do on them, as their owners sent it.
//!
//! The folder `cards` of this package has their files, each with a list of reports. A fast way that reports verified on a class of
//! cards is known to work there, so it is used on other cards of the class before it is checked on them.

use super::verdict::{State, Verdict};
use crate::error::Error;
use crate::files::write_atomically;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::sync::OnceLock;

/// The reports, with the names of their files.
pub const FILES: &[(&str, &str)] = &[
    ("emulated-navi31.json", include_str!("../../cards/emulated-navi31.json")),
    ("nvidia-h200.json", include_str!("../../cards/nvidia-h200.json")),
];

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
    /// Returns the report with more versions, by name. Paths, which may have names of users, are left out, and so are names
    /// that somebody gave a kernel.
    pub fn with_versions<'a>(mut self, versions: impl IntoIterator<Item = (&'a str, &'a str)>) -> CardReport {
        for (name, value) in versions {
            let is_new = !self.versions.iter().any(|(known, _)| known == name);
            if is_new && !value.is_empty() && !has_path(value) {
                let value = if name.contains("kernel") { number(value) } else { value };
                self.versions.push((name.into(), value.into()));
            }
        }
        self
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

/// Returns the first version number in a text; all of it if there is none.
fn number(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let words = text.split(|c: char| c.is_whitespace() || c == '(');
    let mut numbers = words.map(|word| &word[..word.find(|c| !is_part(c)).unwrap_or(word.len())]);
    numbers.find(|number| number.contains('.') && !number.starts_with('.')).unwrap_or(text)
}

/// Returns a verdict without evidence that holds a path, its gain rounded.
fn impersonal(verdict: Verdict) -> Verdict {
    let gain = verdict.gain.map(|gain| (gain * 100.0).round() / 100.0);
    let bandwidth = verdict.bandwidth.map(|both| both.map(f64::round));
    let verdict = Verdict { gain, bandwidth, ..verdict };
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
    use super::*;
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
        let versions = [
            ("driver", "AMD HIP"),
            ("library", "/opt/rocm/lib/libamdhip64.so"),
            ("empty", ""),
            ("kernel", "6.12.9-of-anna"),
            ("driver", "another"),
        ];
        let seen = report("AMD_RDNA3", true, &[]).with_versions(versions);
        let seen = seen.with_verdicts([Verdict::new("hip.a", State::Wrong, "see /tmp/x")]);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(seen.versions, [pair("driver", "AMD HIP"), pair("kernel", "6.12.9")]);
        assert_eq!(seen.verdicts[0].evidence, "left out, because it names a path");
        assert_eq!(number("NVRM version: NVIDIA UNIX Module  580.159.04  (anna@)"), "580.159.04");
    }
}
