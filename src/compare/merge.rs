//! Merges several runs into one report, with statistics over all their records.

use super::report::{Record, Report, Run, Statistics, Status};
use crate::statistics::Summary;
use ggml_core::{Error, Result};
use std::path::Path;

/// Sets the run ID of all parts of a report and the folder of its run, and adds the statistics.
pub(super) fn complete(report: &mut Report, folder: &Path) {
    let id = &report.run_id;
    report.backends.iter_mut().for_each(|b| b.run_id.clone_from(id));
    report.records.iter_mut().for_each(|r| r.run_id.clone_from(id));
    report.comparisons.iter_mut().for_each(|c| c.run_id.clone_from(id));
    report.runs = vec![Run {
        run_id: id.clone(),
        started_at: report.started_at.clone(),
        command: report.command.clone(),
        host: report.host.clone(),
        environment: report.environment.clone(),
        work: report.work.clone(),
        precision: report.precision.clone(),
        folder: folder.display().to_string(),
    }];
    report.statistics = statistics(report);
}

/// Merges reports into one. Its description of the work is the first report's.
pub(super) fn merge(reports: Vec<Report>) -> Result<Report> {
    let mut reports = reports.into_iter();
    let mut all = reports.next().ok_or_else(|| Error::argument("folders", 0, "at least one"))?;
    for report in reports {
        if all.runs.iter().any(|run| run.run_id == report.run_id) {
            return Err(Error::argument("folders", format!("{} twice", report.run_id), "each run once"));
        }
        all.missing += report.missing;
        all.runs.extend(report.runs);
        all.backends.extend(report.backends);
        all.records.extend(report.records);
        all.comparisons.extend(report.comparisons);
        all.verdict.agree &= report.verdict.agree;
        let findings = report.verdict.findings.into_iter();
        all.verdict.findings.extend(findings.map(|finding| format!("{}: {finding}", report.run_id)));
        let notes = report.verdict.notes.into_iter();
        all.verdict.notes.extend(notes.map(|note| format!("{}: {note}", report.run_id)));
    }
    if all.runs.len() > 1 {
        all.verdict.advice = super::advice::advice(&all);
    }
    all.statistics = statistics(&all);
    Ok(all)
}

/// Key of a line of statistics: backend, device, work, offload.
type Key = (String, String, String, i64);

/// Computes a line of statistics for each backend, device, work and offload, in order of first occurrence.
fn statistics(report: &Report) -> Vec<Statistics> {
    let mut groups: Vec<(Key, Vec<&Record>)> = Vec::new();
    for record in report.records.iter().filter(|r| r.case.is_none()) {
        let device = report
            .backends
            .iter()
            .find(|b| (&b.name, &b.run_id) == (&record.backend, &record.run_id))
            .map_or(String::new(), |b| b.device.clone());
        let run = report.runs.iter().find(|run| run.run_id == record.run_id);
        let work = run.map_or(&report.work, |run| &run.work).clone();
        let key = (record.backend.clone(), device, work, record.offload);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, records)) => records.push(record),
            None => groups.push((key, vec![record])),
        }
    }
    groups.into_iter().map(|(key, records)| line(key, &records)).collect()
}

fn line((backend, device, work, offload): Key, records: &[&Record]) -> Statistics {
    let count = |status| records.iter().filter(|r| r.status == status).count();
    let of = |select: &dyn Fn(&Record) -> Option<f64>| {
        Summary::of(&records.iter().filter_map(|r| select(r)).collect::<Vec<f64>>())
    };
    let good = |r: &Record| r.status == Status::Ok;
    let died = |r: &Record| matches!(r.status, Status::Crash | Status::Hang);
    Statistics {
        backend,
        device,
        work,
        offload,
        runs: records.len(),
        ok: count(Status::Ok),
        errors: count(Status::Error),
        crashes: count(Status::Crash),
        hangs: count(Status::Hang),
        unsupported: count(Status::Unsupported),
        elapsed_s: of(&|r| good(r).then_some(r.elapsed_s)),
        load_s: of(&|r| r.load_s.filter(|_| good(r))),
        prompt_s: of(&|r| r.prompt_s.filter(|_| good(r))),
        eval_s: of(&|r| r.eval_s.filter(|_| good(r))),
        tokens_per_s: of(&|r| r.tokens_per_s.filter(|_| good(r))),
        time_to_crash_s: of(&|r| died(r).then_some(r.elapsed_s)),
    }
}
