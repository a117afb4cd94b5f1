//! Variants: settings that differ from those of the plain run, each for children of its own.
//!
//! A variant changes variables of the environment, the HIP library or options of a backend. It is read from text:
//! `[hip] nosdma: HSA_ENABLE_SDMA=0 + copies=kernel`.

use crate::backend_name::BackendName;
use crate::isolate::json;
use ggml_core::environment::{HIP, OWN, VULKAN, is_recorded};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Name of the plain run, which is always made and made first.
pub(super) const DEFAULT: &str = "default";

/// Options that stand for variables of this project.
const OPTIONS: &[(&str, &[&str])] = &[
    ("copies", &["DIPTYCH_HIP_COPIES"]),
    ("graphs", &["DIPTYCH_HIP_GRAPHS"]),
    ("host-weights", &["DIPTYCH_HIP_HOST_WEIGHTS"]),
    ("matrix-units", &["DIPTYCH_HIP_MATRIX_UNITS", "DIPTYCH_VULKAN_MATRIX_UNITS"]),
    ("rtc", &["DIPTYCH_HIP_RTC"]),
    ("shared-tiles", &["DIPTYCH_VULKAN_SHARED_TILES"]),
    ("staged-weights", &["DIPTYCH_VULKAN_STAGED_WEIGHTS"]),
];

/// Values of variables of this project, so that a wrong one is refused before anything runs. A child refuses the wrong
/// values of others.
const VALUES: &[(&str, &[&str])] = &[
    ("DIPTYCH_HIP_BREADCRUMBS", &["every", "auto"]),
    ("DIPTYCH_HIP_COPIES", &["kernel", "dma", "auto"]),
    ("DIPTYCH_HIP_GRAPHS", &["off", "on", "auto"]),
    ("DIPTYCH_HIP_HOST_WEIGHTS", &["off", "on", "auto"]),
    ("DIPTYCH_HIP_MATRIX_UNITS", &["off", "on", "auto"]),
    ("DIPTYCH_HIP_RTC", &["force", "off", "auto"]),
    ("DIPTYCH_HIP_STREAM", &["null", "own"]),
    ("DIPTYCH_VULKAN_MATRIX_UNITS", &["off", "on", "emulated"]),
    ("DIPTYCH_VULKAN_SHARED_TILES", &["off", "small", "on"]),
    ("DIPTYCH_VULKAN_STAGED_WEIGHTS", &["false", "true"]),
];

/// All settings of a variant, for messages.
const EXPECTED: &str = "NAME=value, library=PATH, copies=kernel, graphs=off, null-stream, matrix-units=off, \
    host-weights=off, rtc=force, shared-tiles=off, staged-weights=false, validation or default; a value with a comma, \
    a space or '+' in double quotes";

/// One row of a comparison by variants: what its children have in place of the plain run's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VariantRow {
    /// Unique name, by default its settings.
    pub name: String,
    /// Name of the only backend that it is for, or of a kind of backends ("hip"); `None`: every backend whose driver
    /// reads one of the settings.
    pub only: Option<String>,
    /// Variables of the child's environment; one with an empty value is removed from it.
    pub environment: Vec<(String, String)>,
    /// HIP: runtime library to load.
    #[serde(with = "json::some_path")]
    pub library: Option<PathBuf>,
    /// Vulkan: true to run under the validation layers, whose messages become warnings.
    pub validation: bool,
}

/// A variable in the environment of children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackendVariable {
    /// Name of the only backend that gets it, or of a kind of backends; `None`: all.
    pub only: Option<String>,
    /// Name.
    pub name: String,
    /// Value; an empty one removes the variable.
    pub value: String,
}

impl BackendVariable {
    /// True if the children of a backend get the variable.
    pub fn applies_to(&self, backend: &BackendName) -> bool {
        self.only.as_ref().is_none_or(|only| names(only, backend))
    }
}

/// Formats the variable as `[backend:]NAME=value`.
impl std::fmt::Display for BackendVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let only = self.only.as_ref().map_or(String::new(), |only| format!("{only}:"));
        write!(f, "{only}{}={}", self.name, self.value)
    }
}

impl FromStr for BackendVariable {
    type Err = Error;

    /// Reads `[backend:]NAME=value`.
    fn from_str(text: &str) -> Result<BackendVariable> {
        let wrong = || Error::argument("variable of a backend", format!("'{text}'"), "[BACKEND:]NAME=value");
        let (left, value) = text.split_once('=').ok_or_else(wrong)?;
        let (only, name) = match left.rsplit_once(':') {
            Some((only, name)) => (Some(backend(only)?), name),
            None => (None, left),
        };
        let (name, value) = variable(name, value)?;
        Ok(BackendVariable { only, name, value })
    }
}

impl VariantRow {
    /// True if the row changes something for a backend.
    pub fn applies_to(&self, backend: &BackendName) -> bool {
        if let Some(only) = &self.only {
            return names(only, backend);
        }
        let library = self.library.is_some() && backend.loads_libamdhip64();
        let validation = self.validation && is_vulkan(backend);
        library || validation || self.environment.iter().any(|(name, _)| reads(backend, name))
    }

    /// True if a row has the same settings.
    pub(super) fn is_same(&self, other: &VariantRow) -> bool {
        let of = |row: &VariantRow| (row.environment.clone(), row.library.clone(), row.validation);
        of(self) == of(other)
    }

    /// Returns a row with the settings of both.
    pub(super) fn with(&self, other: &VariantRow) -> VariantRow {
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| other.environment.iter().all(|(known, _)| known != name));
        environment.extend(other.environment.iter().cloned());
        VariantRow {
            name: format!("{}+{}", self.name, other.name),
            only: None,
            environment,
            library: other.library.clone().or_else(|| self.library.clone()),
            validation: self.validation || other.validation,
        }
    }

    /// Returns what makes a program use the settings: variables, and the option for the library.
    pub(super) fn usage(&self) -> String {
        let variable = |(name, value): &(String, String)| match value.is_empty() {
            true => format!("{name} unset"),
            false => format!("{name}={value}"),
        };
        let mut all: Vec<String> = self.environment.iter().map(variable).collect();
        all.extend(self.library.iter().map(|path| format!("DIPTYCH_HIP_LIBRARY={}", path.display())));
        all.extend(self.validation.then(|| "the validation layers".to_string()));
        all.join(" ")
    }

    /// Adds a setting; `default` adds none.
    fn add(&mut self, setting: &str) -> Result<()> {
        let wrong = |found: &str, expected: &str| {
            Error::argument("setting of a variant", format!("'{found}'"), expected)
        };
        let (key, value) = match setting.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (setting, None),
        };
        match (key, value) {
            (DEFAULT, None) => {}
            ("validation", None) => self.validation = true,
            ("null-stream", None) => self.environment.push(("DIPTYCH_HIP_STREAM".into(), "null".into())),
            ("flash-attention", _) => {
                let why = "no such setting: attention is one operation on every backend";
                return Err(wrong(setting, why));
            }
            ("library", Some(path)) => {
                if path.is_empty() || (path.contains('/') && !Path::new(path).is_file()) {
                    return Err(wrong(setting, "the path of a library that exists"));
                }
                self.library = Some(path.into());
            }
            (_, Some(value)) => {
                let option = OPTIONS.iter().find(|(option, _)| *option == key);
                for name in option.map_or(&[key][..], |(_, variables)| variables) {
                    self.environment.push(variable(name, value)?);
                }
            }
            (_, None) => return Err(wrong(setting, EXPECTED)),
        }
        Ok(())
    }
}

impl FromStr for VariantRow {
    type Err = Error;

    /// Reads `[backend] name: setting + setting`; backend and name may be absent.
    fn from_str(text: &str) -> Result<VariantRow> {
        let wrong = |expected: &str| Error::argument("variant", format!("'{text}'"), expected);
        let mut row = VariantRow::default();
        let mut rest = text.trim();
        loop {
            if let Some(inner) = rest.strip_prefix('[').filter(|_| row.only.is_none()) {
                let (only, after) = inner.split_once(']').ok_or_else(|| wrong("']' after the backend"))?;
                row.only = Some(backend(only.trim())?);
                rest = after.trim_start();
            } else if let Some((name, after)) = named(rest).filter(|_| row.name.is_empty()) {
                row.name = name.into();
                rest = after.trim_start();
            } else {
                break;
            }
        }
        let settings = pieces(rest, |c| c == '+' || c.is_whitespace(), false)?;
        if settings.is_empty() {
            return Err(wrong(EXPECTED));
        }
        settings.iter().try_for_each(|setting| row.add(setting))?;
        if row.name.is_empty() {
            row.name = settings.join("+");
        }
        Ok(row)
    }
}

/// Splits a name from the beginning of a text: the characters before a colon, if they are no setting.
fn named(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.split_once(':')?;
    let is_name = !name.is_empty() && !name.contains(|c: char| "=+\"[]".contains(c) || c.is_whitespace());
    is_name.then_some((name, after))
}

/// Reads variants: the lines of a file if the text begins with `@` or is the path of a file, else a list separated by
/// commas. In a file, `#` begins a comment. The row `default` is left out: it is always made.
///
/// # Errors
/// [`Error::InvalidArgument`] for text that is no variant, a variable that is not for drivers, an invalid value, or two
/// rows of one name; [`Error::Io`] for a file that cannot be read.
pub fn read_variants(text: &str) -> Result<Vec<VariantRow>> {
    let path =
        text.strip_prefix('@').map(Path::new).or_else(|| Some(Path::new(text)).filter(|p| p.is_file()));
    let rows: Vec<VariantRow> = match path {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
            let lines = text.lines().map(without_comment).filter(|line| !line.trim().is_empty());
            lines.map(of_line).collect::<Result<_>>()?
        }
        None => pieces(text, |c| c == ',', true)?.iter().map(|row| row.parse()).collect::<Result<_>>()?,
    };
    if rows.is_empty() {
        return Err(Error::argument("variants", format!("'{text}'"), EXPECTED));
    }
    let is_default = |row: &VariantRow| row.name == DEFAULT;
    if rows.iter().any(|row| is_default(row) && !row.is_same(&VariantRow::default())) {
        let expected = format!("a name that is not '{DEFAULT}', which is the plain run");
        return Err(Error::argument("variants", format!("'{DEFAULT}' with settings"), expected));
    }
    let rows: Vec<VariantRow> = rows.into_iter().filter(|row| !is_default(row)).collect();
    check_names(&rows)?;
    Ok(rows)
}

/// Reads the row of a line. A comma separates rows elsewhere, so it is no part of a value here without quotes.
fn of_line(line: &str) -> Result<VariantRow> {
    if pieces(line, |c| c == ',', true)?.len() > 1 {
        return Err(Error::argument(
            "variants",
            format!("'{line}'"),
            "one row in a line, and commas in double quotes",
        ));
    }
    line.parse()
}

/// Checks that no two rows have one name.
fn check_names(rows: &[VariantRow]) -> Result<()> {
    let mut seen = HashSet::new();
    match rows.iter().find(|row| !seen.insert(&row.name)) {
        Some(row) => Err(Error::argument(
            "variants",
            format!("'{}' twice", row.name),
            "a name for each row (NAME: ...)",
        )),
        None => Ok(()),
    }
}

/// Removes a comment: `#` at the beginning of a line or after white space.
fn without_comment(line: &str) -> &str {
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(|(at, _)| begins(*at)).map_or(line, |(at, _)| &line[..at])
}

/// Splits a text at separators outside double quotes; empty pieces are left out.
fn pieces(text: &str, separates: fn(char) -> bool, keep_quotes: bool) -> Result<Vec<String>> {
    let (mut all, mut piece, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        if c == '"' {
            quoted = !quoted;
        }
        match c {
            '"' if !keep_quotes => {}
            c if !quoted && separates(c) => all.push(std::mem::take(&mut piece)),
            c => piece.push(c),
        }
    }
    if quoted {
        return Err(Error::argument("variant", format!("'{text}'"), "a second double quote"));
    }
    all.push(piece);
    all.retain(|piece| !piece.trim().is_empty());
    Ok(all)
}

/// Checks the name of a backend or of a kind of backends, and returns it.
fn backend(name: &str) -> Result<String> {
    name.parse::<BackendName>().map(|_| name.to_string())
}

/// True if a name is that of a backend, or of its kind.
fn names(name: &str, backend: &BackendName) -> bool {
    let full = backend.to_string();
    let is_card = name.contains(':') && name.parse::<BackendName>().is_ok_and(|named| named == *backend);
    name == full || is_card || full.split_once(':').is_some_and(|(kind, _)| kind == name)
}

/// Checks a variable of a child's environment.
fn variable(name: &str, value: &str) -> Result<(String, String)> {
    let wrong =
        |expected: String| Error::argument("variable of a variant", format!("{name}={value}"), expected);
    if name.starts_with("LD_") || name.starts_with("DYLD_") || name == "HSA_TOOLS_LIB" {
        let expected =
            "a variable that loads no other code into the program; library=PATH names a HIP library";
        return Err(wrong(expected.into()));
    }
    if !is_recorded(name, &[OWN, VULKAN, HIP]) {
        return Err(wrong("a variable that a driver or this library reads (docs/environment.md)".into()));
    }
    if value.contains('\0') {
        return Err(wrong("a value without NUL".into()));
    }
    match VALUES.iter().find(|(known, _)| *known == name) {
        Some((_, values)) if !value.is_empty() && !values.contains(&value) => Err(wrong(values.join(" or "))),
        _ => Ok((name.into(), value.into())),
    }
}

fn is_vulkan(backend: &BackendName) -> bool {
    matches!(backend, BackendName::Vulkan(_) | BackendName::VulkanVirtual(_))
}

fn is_hip(backend: &BackendName) -> bool {
    matches!(
        backend,
        BackendName::Hip(_) | BackendName::HipNvidia(_) | BackendName::HipVirtual(_) | BackendName::HipKfd(_)
    )
}

/// True if a backend or its driver reads a variable.
fn reads(backend: &BackendName, name: &str) -> bool {
    if let BackendName::Pair(both) = backend {
        return both.iter().any(|half| reads(half, name));
    }
    match name {
        "DIPTYCH_VIRTUAL_FAULTS" => matches!(backend, BackendName::HipVirtual(_)),
        "DIPTYCH_VIRTUAL_VULKAN_FAULTS" => matches!(backend, BackendName::VulkanVirtual(_)),
        "DIPTYCH_HIP_LIBRARY" => backend.loads_libamdhip64(),
        "DIPTYCH_CUDA_LIBRARY" => matches!(backend, BackendName::HipNvidia(_)),
        _ if name.starts_with("VIRTUAL_KFD_") => matches!(backend, BackendName::HipKfd(_)),
        _ if name.starts_with("DIPTYCH_VIRTUAL_") => backend.is_emulated(),
        _ if name.starts_with("DIPTYCH_HIP_") => is_hip(backend),
        _ if name.starts_with("DIPTYCH_VULKAN_") => is_vulkan(backend),
        _ if is_recorded(name, &[VULKAN]) => is_vulkan(backend),
        _ => is_recorded(name, &[HIP]) && is_hip(backend),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend_of(name: &str) -> BackendName {
        name.parse().unwrap()
    }

    #[test]
    fn a_list_has_rows_of_settings() {
        let rows = read_variants(
            "default,HSA_ENABLE_SDMA=0 + graphs=off,[hip:1] second: null-stream,RADV_DEBUG=\"a,b\"",
        )
        .unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["HSA_ENABLE_SDMA=0+graphs=off", "second", "RADV_DEBUG=a,b"]);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(rows[0].environment, [pair("HSA_ENABLE_SDMA", "0"), pair("DIPTYCH_HIP_GRAPHS", "off")]);
        assert_eq!(rows[1].environment, [pair("DIPTYCH_HIP_STREAM", "null")]);
        assert_eq!((rows[1].only.as_deref(), rows[2].environment[0].1.as_str()), (Some("hip:1"), "a,b"));
        let applies = |row: usize| {
            let all = ["cpu", "hip", "hip:1", "hip-virtual:gfx906", "vulkan:2"];
            all.into_iter().filter(|name| rows[row].applies_to(&backend_of(name))).collect::<Vec<_>>()
        };
        assert_eq!(applies(0), ["hip", "hip:1", "hip-virtual:gfx906"]);
        assert_eq!(applies(1), ["hip:1"]);
        assert_eq!(applies(2), ["vulkan:2"]);
        assert_eq!(rows[0].usage(), "HSA_ENABLE_SDMA=0 DIPTYCH_HIP_GRAPHS=off");
    }

    #[test]
    fn a_file_has_a_row_in_each_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        std::fs::write(
            &path,
            "# cases\nplain: copies=kernel  # by a kernel\n\n[vulkan] layers: validation\n",
        )
        .unwrap();
        for text in [path.to_str().unwrap().to_string(), format!("@{}", path.display())] {
            let rows = read_variants(&text).unwrap();
            assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["plain", "layers"]);
            assert!(rows[1].validation && rows[1].applies_to(&backend_of("vulkan:0")));
        }
        std::fs::write(&path, "HSA_ENABLE_SDMA=0,copies=kernel\n").unwrap();
        assert!(read_variants(path.to_str().unwrap()).unwrap_err().to_string().contains("one row in a line"));
        assert!(matches!(read_variants("@/nowhere/at/all"), Err(Error::Io { .. })));
    }

    #[test]
    fn wrong_variants_say_what_is_expected() {
        for (text, words) in [
            ("default: copies=kernel", "which is the plain run"),
            ("LD_PRELOAD=/tmp/x.so", "loads no other code"),
            ("LD_LIBRARY_PATH=/tmp", "loads no other code"),
            ("HSA_TOOLS_LIB=/tmp/x.so", "loads no other code"),
            ("PATH=/tmp", "a driver or this library reads"),
            ("DIPTYCH_PASSWORD=x", "a driver or this library reads"),
            ("copies=fast", "kernel or dma or auto"),
            ("DIPTYCH_HIP_COPIES=fast", "kernel or dma or auto"),
            ("matrix-units=emulated", "off or on or auto"),
            ("flash-attention=off", "one operation on every backend"),
            ("library=/nowhere/libamdhip64.so", "that exists"),
            ("nothing", "null-stream"),
            ("[gpu] copies=kernel", "one of reference"),
            ("[hip copies=kernel", "']'"),
            ("RADV_DEBUG=\"a", "second double quote"),
            ("copies=kernel,copies=kernel", "a name for each row"),
            ("", "null-stream"),
        ] {
            let error = read_variants(text).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{text}: {error}");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
        assert!(read_variants("DIPTYCH_HIP_MATRIX_UNITS=auto,DIPTYCH_VULKAN_MATRIX_UNITS=emulated").is_ok());
    }

    #[test]
    fn variables_may_be_for_one_backend() {
        let of = |text: &str| text.parse::<BackendVariable>();
        let one = of("hip:0:HSA_OVERRIDE_GFX_VERSION=9.0.0").unwrap();
        assert_eq!(one.to_string(), "hip:0:HSA_OVERRIDE_GFX_VERSION=9.0.0");
        assert!(one.applies_to(&backend_of("hip:0")) && !one.applies_to(&backend_of("vulkan")));
        let kind = of("hip:HSA_ENABLE_SDMA=0").unwrap();
        assert!(kind.applies_to(&backend_of("hip")) && kind.applies_to(&backend_of("hip:1")));
        assert!(!kind.applies_to(&backend_of("hip-virtual:gfx906")));
        assert!(of("RADV_DEBUG=").unwrap().applies_to(&backend_of("vulkan")));
        for wrong in ["hip:HSA_ENABLE_SDMA", "gpu:HSA_ENABLE_SDMA=0", "hip:LD_PRELOAD=x", "HOME=/"] {
            assert!(matches!(of(wrong), Err(Error::InvalidArgument { .. })), "{wrong}");
        }
    }

    #[test]
    fn rows_are_combined() {
        let [one, two] =
            ["copies=kernel+graphs=on", "graphs=off"].map(|text| text.parse::<VariantRow>().unwrap());
        let both = one.with(&two);
        assert_eq!(both.usage(), "DIPTYCH_HIP_COPIES=kernel DIPTYCH_HIP_GRAPHS=off");
        assert!(both.is_same(&"copies=kernel graphs=off".parse().unwrap()) && !both.is_same(&one));
    }
}
