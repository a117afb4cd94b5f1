//! The circumstances in which a run was measured: precision, settings, variables, machine, and for each backend its
//! driver, its routes and its overrides. Measurements under different circumstances have no common mean.

use super::report::{BackendReport, PROMPT_HASH, Record, Report, Run};
use std::collections::BTreeMap;

/// Name of the fact that is the path of a backend's library.
pub(super) const LIBRARY: &str = "library";

/// A circumstance: its name, its value, and whether it is a variable of the environment.
struct Fact<'a> {
    name: &'a str,
    value: String,
    is_variable: bool,
}

impl<'a> Fact<'a> {
    fn new(name: &'a str, value: impl ToString) -> Fact<'a> {
        Fact { name, value: value.to_string(), is_variable: false }
    }

    fn variables(of: &'a [(String, String)]) -> impl Iterator<Item = Fact<'a>> {
        of.iter().map(|(name, value)| Fact { name, value: value.clone(), is_variable: true })
    }
}

/// Returns the circumstances of a whole run.
fn of_run(run: &Run) -> Vec<Fact<'_>> {
    let host = &run.host;
    let mut facts = vec![Fact::new("precision", &run.precision)];
    facts.extend(run.settings.iter().map(|(name, value)| Fact::new(name, value)));
    facts.extend(Fact::variables(&run.environment.overrides));
    facts.extend([
        Fact::new("host", &host.name),
        Fact::new("processor", &host.cpu),
        Fact::new("threads", host.threads),
        Fact::new("system", &host.os),
        Fact::new("kernel", &host.kernel),
        Fact::new("diptych", &host.diptych),
    ]);
    facts
}

/// Returns the circumstances of one backend: what it opened and the routes that it takes there.
fn of_backend<'a>(report: &'a Report, backend: &'a BackendReport) -> Vec<Fact<'a>> {
    let mut facts = drivers(report, backend);
    facts.push(Fact::new("class", &backend.arch));
    facts.extend(backend.uuid.as_ref().map(|uuid| Fact::new("UUID", uuid)));
    facts.extend(backend.features.iter().map(|(name, value)| Fact::new(name, value)));
    facts.extend(variables(report, backend));
    facts
}

/// Returns the records of a backend.
fn records<'a>(report: &'a Report, backend: &'a BackendReport) -> impl Iterator<Item = &'a Record> {
    let of = (&backend.run_id, &backend.name, &backend.variant);
    report.records.iter().filter(move |r| (&r.run_id, &r.backend, &r.variant) == of)
}

/// Returns the variables of a backend: those that its device was opened with, and those of its children alone.
fn variables<'a>(report: &'a Report, backend: &'a BackendReport) -> Vec<Fact<'a>> {
    let mut facts: Vec<Fact<'a>> = Fact::variables(&backend.overrides).collect();
    let own = records(report, backend).next().map_or(&[][..], |r| &r.environment);
    let known = |name: &str| backend.overrides.iter().any(|(known, _)| known == name);
    facts.extend(Fact::variables(own).filter(|fact| !known(fact.name)));
    facts
}

/// Returns the library and the versions of a backend. Without a device they are known as far as it came.
fn drivers<'a>(report: &'a Report, backend: &'a BackendReport) -> Vec<Fact<'a>> {
    let mut facts = vec![Fact::new("driver", &backend.driver)];
    // Of the host and its library the run knows already.
    let own = backend.versions.iter().filter(|(name, _)| name != "diptych" && name != "kernel");
    facts.extend(own.map(|(name, value)| Fact::new(name, value)));
    let library = records(report, backend).find_map(|r| r.library.as_ref());
    // Some drivers have it among their versions.
    let is_known = |path: &str| backend.versions.iter().any(|(_, value)| value.contains(path));
    facts.extend(library.filter(|path| !is_known(path)).map(|path| Fact::new(LIBRARY, path)));
    facts
}

/// Returns all values of a name.
fn values<'a>(facts: &'a [Fact<'_>], name: &str) -> Vec<&'a str> {
    facts.iter().filter(|f| f.name == name).map(|f| f.value.as_str()).collect()
}

/// Describes those circumstances of the first list in which any of the lists differ.
fn differing(all: &[Vec<Fact<'_>>], which: usize) -> Vec<String> {
    let mut names: Vec<&Fact<'_>> = Vec::new();
    for fact in all.iter().flatten() {
        if !names.iter().any(|known| known.name == fact.name) {
            names.push(fact);
        }
    }
    let own = &all[which];
    names.retain(|fact| all.iter().any(|other| values(other, fact.name) != values(own, fact.name)));
    let words = |fact: &&Fact<'_>| {
        let value = values(own, fact.name).join(" and ");
        match (fact.name, fact.is_variable, value.is_empty()) {
            (name, true, true) => format!("{name} not set"),
            (name, false, true) => format!("{name} not recorded"),
            (name, true, false) => format!("{name}={value}"),
            ("precision", ..) => value,
            (name, ..) => format!("{name} {value}"),
        }
    };
    names.iter().map(words).collect()
}

/// Returns the work of a backend in a run, with the circumstances in which runs of the report differ: those of the
/// runs, then those of the backend on the same device. A variable that both know is said once.
pub(super) fn work_of(report: &Report, run: &Run, backend: Option<&BackendReport>) -> String {
    let mut parts = vec![run.work.clone()];
    parts.extend(between_runs(report, run));
    if let Some(backend) = backend {
        let of = |b: &BackendReport| (b.name.clone(), b.device.clone(), b.variant.clone());
        let alike = |b: &&BackendReport| of(b) == of(backend);
        let alike: Vec<&BackendReport> = report.backends.iter().filter(alike).collect();
        let which = alike.iter().position(|b| b.run_id == backend.run_id);
        let facts: Vec<_> = alike.iter().map(|b| of_backend(report, b)).collect();
        add(&mut parts, which.into_iter().flat_map(|which| differing(&facts, which)));
    }
    parts.join("; ")
}

/// Returns the circumstances of a run in which any run of the report differs from it.
fn between_runs(report: &Report, run: &Run) -> Vec<String> {
    let runs: Vec<_> = report.runs.iter().map(of_run).collect();
    let which = report.runs.iter().position(|other| other.run_id == run.run_id);
    which.into_iter().flat_map(|which| differing(&runs, which)).collect()
}

/// Adds those parts that are not known yet.
fn add(parts: &mut Vec<String>, more: impl Iterator<Item = String>) {
    for part in more {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
}

/// Describes a run by what tells it from the other runs of the report: its work if that differs, its circumstances, and
/// libraries, drivers and devices of its backends. Empty if nothing differs.
fn heading(report: &Report, run: &Run) -> String {
    let mut parts = Vec::new();
    if report.runs.iter().any(|other| other.work != run.work) {
        parts.push(run.work.clone());
    }
    parts.extend(between_runs(report, run));
    // Variants have a table of their own.
    let plain = || report.backends.iter().filter(|b| b.variant.is_none());
    for backend in plain().filter(|b| b.run_id == run.run_id) {
        let alike: Vec<_> = plain().filter(|b| b.name == backend.name).collect();
        let which = alike.iter().position(|b| b.run_id == backend.run_id);
        let facts = alike.iter().map(|b| {
            let mut facts = drivers(report, b);
            facts.push(Fact::new("device", &b.device));
            facts.extend(variables(report, b));
            facts
        });
        let facts: Vec<_> = facts.collect();
        let own = which.into_iter().flat_map(|which| differing(&facts, which));
        let own: Vec<String> = own.filter(|part| !parts.contains(part)).collect();
        if !own.is_empty() {
            parts.push(format!("{}: {}", backend.name, own.join(", ")));
        }
    }
    parts.join("; ")
}

/// Returns the title of the rows of a run: "run ID: what tells it from the others".
pub(super) fn title(report: &Report, run_id: &str) -> String {
    let run = report.runs.iter().find(|run| run.run_id == run_id);
    match run.map(|run| heading(report, run)).filter(|heading| !heading.is_empty()) {
        Some(heading) => format!("run {run_id}: {heading}"),
        None => format!("run {run_id}"),
    }
}

/// Describes the circumstances of a record in which runs of the report differ; empty in a report of one run.
pub(super) fn of_record(report: &Report, record: &Record) -> String {
    let Some(run) = report.runs.iter().find(|run| run.run_id == record.run_id) else { return String::new() };
    let backend = report.backend_of(record);
    let described = work_of(report, run, backend);
    let circumstances = described.strip_prefix(&run.work).unwrap_or_default();
    match run.work.split_once(' ') {
        _ if report.runs.iter().all(|other| other.work == run.work) => {
            circumstances.trim_start_matches("; ").into()
        }
        Some((kind, _)) => format!("{kind} {}{circumstances}", file_name(&run.work)),
        None => described,
    }
}

/// A thing that the user of a run chooses, or that the machine has.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// True for a variable of the environment.
    pub(super) is_variable: bool,
    /// Values by name.
    pub(super) values: Vec<(String, String)>,
    /// Name for texts, which is no value: a copy of a model is the same model.
    pub(super) label: Option<String>,
}

impl PartialEq for Input {
    fn eq(&self, other: &Input) -> bool {
        self.values == other.values
    }
}

/// Inputs of a run by name. One that is missing has no value.
pub(super) type Inputs = BTreeMap<String, Input>;

/// Name of the input that is the model.
pub(super) const MODEL: &str = "model";

/// Name of the input that is the tokens of the prompt.
pub(super) const PROMPT: &str = PROMPT_HASH;

/// Name of the input that is a backend's driver with its versions. It follows from the library.
pub(super) const DRIVER: &str = "driver";

/// Returns the inputs of a backend's run. What a driver reports of its device is no input: it follows from these.
pub(super) fn inputs(report: &Report, run: &Run, backend: &BackendReport) -> Inputs {
    let mut inputs = Inputs::new();
    let mut add = |input: &str, fact: &Fact<'_>| {
        let Input { is_variable, values, .. } = inputs.entry(input.to_string()).or_default();
        *is_variable |= fact.is_variable;
        let entry = (fact.name.to_string(), fact.value.clone());
        if !fact.value.is_empty() && !values.contains(&entry) {
            values.push(entry);
        }
    };
    // The path counts if nothing is known of the contents.
    if !run.settings.iter().any(|(name, _)| name == MODEL) {
        add(MODEL, &Fact::new("work", &run.work));
    }
    for fact in of_run(run).iter().chain(&variables(report, backend)) {
        let input = match fact.name {
            "architecture" | "types" | "bytes" => MODEL,
            "host" | "processor" | "threads" | "system" => "machine",
            "prompt tokens" | "chunks" => PROMPT,
            name => name,
        };
        add(input, fact);
    }
    for fact in drivers(report, backend) {
        add(if fact.name == LIBRARY { LIBRARY } else { DRIVER }, &fact);
    }
    inputs.retain(|_, input| !input.values.is_empty());
    if let Some(model) = inputs.get_mut(MODEL) {
        model.label = Some(file_name(&run.work));
    }
    inputs
}

/// Returns the name of the file in "model FILE" or "graph FILE"; other work as it is.
fn file_name(work: &str) -> String {
    let path = work.split_once(' ').map_or(work, |(_, path)| path);
    path.rsplit(['/', '\\']).find(|name| !name.is_empty()).unwrap_or(path).into()
}
