//! The circumstances in which a run was measured: precision, settings, variables, machine, and for each backend its
//! driver, its routes and its overrides. Measurements under different circumstances have no common mean.

use super::report::{BackendReport, Report, Run};

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
fn of_backend(backend: &BackendReport) -> Vec<Fact<'_>> {
    let mut facts = vec![Fact::new("driver", &backend.driver), Fact::new("class", &backend.arch)];
    facts.extend(backend.uuid.as_ref().map(|uuid| Fact::new("UUID", uuid)));
    // Of the host and its library the run knows already.
    let own = backend.versions.iter().filter(|(name, _)| name != "diptych" && name != "kernel");
    facts.extend(own.chain(&backend.features).map(|(name, value)| Fact::new(name, value)));
    facts.extend(Fact::variables(&backend.overrides));
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
    let runs: Vec<_> = report.runs.iter().map(of_run).collect();
    let which = report.runs.iter().position(|other| other.run_id == run.run_id);
    let mut parts = vec![run.work.clone()];
    parts.extend(which.into_iter().flat_map(|which| differing(&runs, which)));
    if let Some(backend) = backend.filter(|b| !b.device.is_empty()) {
        let of = |b: &BackendReport| (b.name.clone(), b.device.clone(), b.variant.clone());
        let alike = |b: &&BackendReport| of(b) == of(backend);
        let alike: Vec<&BackendReport> = report.backends.iter().filter(alike).collect();
        let which = alike.iter().position(|b| b.run_id == backend.run_id);
        let facts: Vec<_> = alike.iter().map(|b| of_backend(b)).collect();
        for part in which.into_iter().flat_map(|which| differing(&facts, which)) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts.join("; ")
}
