//! The evidence of the verdict, in folded sections.

use super::super::circumstances;
use super::super::report::{BackendReport, Divergence, Finding, Record, Report, Run, Stuck};
use super::text::Escaped;
use std::fmt::Write;

pub(super) fn evidence(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        text.push_str(&folded(&circumstances::title(report, &run.run_id), &of_run(run)));
    }
    for backend in &report.backends {
        text.push_str(&folded(&format!("backend {}", backend.name), &of_backend(backend)));
    }
    for record in &report.records {
        let case = record.case.as_ref().map_or(String::new(), |case| format!(" case {case}"));
        let title = format!("{} epoch {}{case}: {}", record.label(), record.epoch + 1, record.status);
        text.push_str(&folded(&title, &of_record(record)));
    }
    for c in &report.comparisons {
        if let Some(divergence) = &c.first_divergence {
            let title = format!("first node out of bounds: {}", super::name(report, c));
            text.push_str(&folded(&title, &of_divergence(divergence)));
        }
    }
    text
}

/// A list of names and values; empty values are omitted.
#[derive(Default)]
struct Facts(String);

impl Facts {
    fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let _ = writeln!(self.0, "<dt>{}</dt><dd>{}</dd>", Escaped(name), Escaped(value));
        }
    }

    fn add_some(&mut self, name: &str, value: Option<impl ToString>) {
        self.add(name, &value.map_or(String::new(), |value| value.to_string()));
    }

    fn add_pairs(&mut self, what: &str, pairs: &[(String, String)]) {
        pairs.iter().for_each(|(name, value)| self.add(&format!("{what} {name}"), value));
    }
}

/// Formats the fields of a finding under its text, without its cure.
pub(super) fn of_finding(finding: &Finding) -> String {
    let mut facts = Facts::default();
    facts.add("cause", &finding.cause);
    finding.location.parts().for_each(|(name, value)| facts.add(name, &value));
    finding.evidence.iter().for_each(|evidence| facts.add("evidence", evidence));
    facts.add_some("next command", finding.next.as_ref());
    format!("<dl>\n{}</dl>\n", facts.0)
}

fn folded(title: &str, facts: &Facts) -> String {
    format!("<details>\n<summary>{}</summary>\n<dl>\n{}</dl>\n</details>\n", Escaped(title), facts.0)
}

fn of_run(run: &Run) -> Facts {
    let mut facts = Facts::default();
    facts.add("started", &run.started_at);
    facts.add("folder", &run.folder);
    facts.add("command", &run.command.join(" "));
    facts.add("work", &run.work);
    facts.add("precision", &run.precision);
    facts.add("system", &run.host.os);
    facts.add("kernel", &run.host.kernel);
    facts.add("processor", &format!("{}, {} threads", run.host.cpu, run.host.threads));
    facts.add("diptych", &run.host.diptych);
    facts.add_pairs("set", &run.environment.overrides);
    facts
}

fn of_backend(backend: &BackendReport) -> Facts {
    let mut facts = Facts::default();
    facts.add("run", &backend.run_id);
    facts.add("device", &backend.device);
    facts.add("driver", &backend.driver);
    facts.add("architecture", &backend.arch);
    facts.add_some("UUID", backend.uuid.as_ref());
    facts.add_pairs("version", &backend.versions);
    facts.add_pairs("override", &backend.overrides);
    facts.add_pairs("feature", &backend.features);
    for route in &backend.routes {
        let used = if route.used { "used" } else { "not used" };
        facts.add(&format!("route {}", route.name), &format!("{used}: {}", route.why));
    }
    facts
}

fn of_record(record: &Record) -> Facts {
    let mut facts = Facts::default();
    facts.add("run", &record.run_id);
    facts.add_some("phase", record.phase.as_ref());
    facts.add_some("step", record.step.as_ref());
    facts.add_some("node", record.node.as_ref());
    facts.add_some("library", record.library.as_ref());
    facts.add_some("last driver call", record.last_call.as_ref());
    facts.add_some("waiting for", record.waits_for.as_ref());
    facts.add_some("signal", record.signal.as_ref());
    facts.add_some("cannot be killed", record.stuck.as_ref().map(Stuck::describe));
    facts.add_some("message", record.message.as_ref());
    record.warnings.iter().for_each(|warning| facts.add("warning", warning));
    facts.add("process", &record.pid.to_string());
    facts.add("seconds", &format!("{:.3}", record.elapsed_s));
    facts.add_some("text", record.text.as_ref());
    facts.add_some("driver allocations", record.driver_allocations);
    facts.add_some("bytes in memory", record.resident_bytes);
    facts.add_some("bytes on the device", record.device_bytes);
    facts
}

fn of_divergence(divergence: &Divergence) -> Facts {
    let mut facts = Facts::default();
    facts.add("node", &divergence.node);
    facts.add("operation", &divergence.op);
    facts.add("NMSE", &format!("{:.1e}", divergence.nmse));
    facts.add("computed with", &divergence.members.join(", "));
    facts.add_some("graph file", divergence.file.as_ref().map(|file| file.display()));
    facts.add_some("command", divergence.rerun.as_ref());
    facts
}
