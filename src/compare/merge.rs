//! Merges several runs into one report, with statistics over all their records.

use super::circumstances::work_of;
use super::matched;
use super::report::{Record, Report, Run, Statistics, Status, Verdict};
use crate::statistics::Summary;
use ggml_core::{Error, Result};
use std::path::Path;

#[cfg(test)]
mod deck;

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
        settings: report.settings.clone(),
        folder: folder.display().to_string(),
    }];
    report.statistics = statistics(report);
    report.verdict.patterns = patterns(&report.plain());
}

/// Returns the sentences on the runs of a report with different numbers of units on the device, and on matched runs.
fn patterns(report: &Report) -> Vec<String> {
    let mut patterns = super::advice::patterns(report);
    patterns.extend(matched::sentences(report));
    patterns
}

/// Merges reports into one. Its description of the work is the first report's.
pub(super) fn merge(reports: Vec<Report>) -> Result<Report> {
    let mut reports = reports.into_iter();
    let mut all = reports.next().ok_or_else(|| Error::argument("folders", 0, "at least one"))?;
    // With one report, its findings need no name of a run.
    let several = reports.len() > 0;
    if several {
        let id = all.run_id.clone();
        name(&mut all.verdict, &id);
        name_effects(&mut all.variant_findings, &id);
        // It continues one of the runs.
        all.cure_command = None;
    }
    for report in reports {
        if all.runs.iter().any(|run| run.run_id == report.run_id) {
            return Err(Error::argument("folders", format!("{} twice", report.run_id), "each run once"));
        }
        all.missing += report.missing;
        all.runs.extend(report.runs);
        all.backends.extend(report.backends);
        all.records.extend(report.records);
        all.comparisons.extend(report.comparisons);
        all.variants.extend(report.variants);
        let mut effects = report.variant_findings;
        name_effects(&mut effects, &report.run_id);
        all.variant_findings.extend(effects);
        let mut verdict = report.verdict;
        all.verdict.agree &= verdict.agree;
        name(&mut verdict, &report.run_id);
        all.verdict.findings.extend(verdict.findings);
        all.verdict.details.extend(verdict.details);
        all.verdict.notes.extend(verdict.notes);
    }
    if all.runs.len() > 1 {
        all.verdict.advice = super::advice::advice(&all.plain()) + &super::variants::usage(&all);
    }
    all.statistics = statistics(&all);
    all.verdict.patterns = patterns(&all.plain());
    Ok(all)
}

/// Puts the name of a run in front of its sentences on variants.
fn name_effects(effects: &mut [String], run_id: &str) {
    effects.iter_mut().for_each(|text| *text = format!("{run_id}: {text}"));
}

/// Puts the name of a run in front of its findings and notes.
fn name(verdict: &mut Verdict, run_id: &str) {
    let Verdict { findings, details, notes, .. } = verdict;
    let texts = details.iter_mut().map(|finding| &mut finding.text);
    for text in findings.iter_mut().chain(notes).chain(texts) {
        *text = format!("{run_id}: {text}");
    }
}

/// Key of a line of statistics: backend, device, work, offload. The work includes the circumstances that are
/// not the same in all runs.
type Key = (String, String, String, i64);

/// Computes a line of statistics for each backend, device, work and offload, in order of first occurrence.
fn statistics(report: &Report) -> Vec<Statistics> {
    let mut groups: Vec<(Key, Vec<&Record>)> = Vec::new();
    for record in report.records.iter().filter(|r| r.case.is_none()) {
        let backend = report.backend_of(record);
        let device = backend.map_or(String::new(), |b| b.device.clone());
        let run = report.runs.iter().find(|run| run.run_id == record.run_id);
        let work = run.map_or_else(|| report.work.clone(), |run| work_of(report, run, backend));
        let variant = record.variant.as_ref().map_or(String::new(), |variant| format!("; variant {variant}"));
        let key = (record.backend.clone(), device, work + &variant, record.offload);
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
        ended: count(Status::Ended),
        unsupported: count(Status::Unsupported),
        elapsed_s: of(&|r| good(r).then_some(r.elapsed_s)),
        load_s: of(&|r| r.load_s.filter(|_| good(r))),
        prompt_s: of(&|r| r.prompt_s.filter(|_| good(r))),
        eval_s: of(&|r| r.eval_s.filter(|_| good(r))),
        tokens_per_s: of(&|r| r.tokens_per_s.filter(|_| good(r))),
        time_to_crash_s: of(&|r| died(r).then_some(r.elapsed_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::{Environment, Host};
    use super::super::report::{BackendReport, EVERYTHING, Finding, PROMPT_HASH};
    use super::super::{CompareOptions, table, text::Style};
    use super::*;

    /// A report of two runs with the same speed, in which a part is changed.
    fn report(id: &str, tokens_per_s: f64, change: fn(&mut Report)) -> Report {
        let mut report = Report::new(&CompareOptions::default());
        report.run_id = id.into();
        report.environment = Environment::default();
        report.host = Host { name: "desk".into(), cpu: "one".into(), threads: 8, ..Host::default() };
        report.backends = vec![BackendReport {
            name: "vulkan".into(),
            device: "card".into(),
            features: pair("matrix units", "F16 16x16x16"),
            ..BackendReport::default()
        }];
        let record = |epoch| Record {
            backend: "vulkan".into(),
            epoch,
            status: Status::Ok,
            tokens_per_s: Some(tokens_per_s),
            offload: EVERYTHING,
            ..Record::default()
        };
        report.records = [0, 1].map(record).into();
        report.verdict = Verdict { findings: vec!["it differs".into()], ..Verdict::default() };
        change(&mut report);
        complete(&mut report, Path::new(id));
        report
    }

    /// Runs of another precision, with other settings or variables, on another host or by other routes have statistics
    /// of their own, and the table says which; runs that differ in nothing share them.
    #[test]
    fn only_runs_alike_have_a_common_mean() {
        let first = || report("a", 10.0, |_| ());
        let alike = merge(vec![first(), report("b", 20.0, |_| ())]).unwrap();
        let lines = |report: &Report| {
            report.statistics.iter().map(|s| (s.runs, s.tokens_per_s.unwrap().mean)).collect::<Vec<_>>()
        };
        assert_eq!(lines(&alike), [(4, 15.0)]);
        assert_eq!(alike.statistics[0].work, first().work);
        assert_eq!(alike.verdict.findings, ["a: it differs", "b: it differs"]);
        assert_eq!(merge(vec![first()]).unwrap().verdict.findings, ["it differs"]);
        type Change = fn(&mut Report);
        let changes: [(Change, [&str; 2]); 10] = [
            (|r| r.precision = "exact".into(), ["fast", "exact"]),
            (
                |r| r.environment.overrides = pair("DIPTYCH_VULKAN_MATRIX_UNITS", "off"),
                ["DIPTYCH_VULKAN_MATRIX_UNITS not set", "DIPTYCH_VULKAN_MATRIX_UNITS=off"],
            ),
            (|r| r.settings.extend(pair("predict", "4")), ["predict not recorded", "predict 4"]),
            (|r| r.host.name = "tower".into(), ["host desk", "host tower"]),
            (|r| r.host.cpu = "two".into(), ["processor one", "processor two"]),
            (
                |r| r.backends[0].features = pair("matrix units", "none"),
                ["matrix units F16 16x16x16", "matrix units none"],
            ),
            (|r| r.backends[0].versions = pair("api", "1.4"), ["api not recorded", "api 1.4"]),
            (|r| r.backends[0].overrides = pair("RADV_DEBUG", "x"), ["RADV_DEBUG not set", "RADV_DEBUG=x"]),
            (|r| r.backends[0].uuid = Some("77".into()), ["UUID not recorded", "UUID 77"]),
            (
                |r| r.records.iter_mut().for_each(|record| record.environment = pair("HSA_XNACK", "1")),
                ["HSA_XNACK not set", "HSA_XNACK=1"],
            ),
        ];
        for (change, words) in changes {
            let all = merge(vec![first(), report("b", 20.0, change)]).unwrap();
            assert_eq!(lines(&all), [(2, 10.0), (2, 20.0)], "{words:?}");
            let text = table::table(&all, Style::Plain);
            assert!(text.contains("vulkan (1)") && text.contains("vulkan (2)"), "{text}");
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for (line, words) in all.statistics.iter().zip(words) {
                assert_eq!(line.work, format!("model; {words}"));
            }
            assert!(flat.contains(&format!("(2): {}", all.statistics[1].work)), "{text}");
            let page = super::super::page::html(&all);
            assert!(page.contains("vulkan (2)"), "the page says which");
        }
    }

    /// Runs that opened no device are told apart by the library that they loaded.
    #[test]
    fn libraries_without_a_device_have_lines_of_their_own() {
        fn died(report: &mut Report, library: &str) {
            report.backends[0].device.clear();
            for record in &mut report.records {
                (record.status, record.library) = (Status::Crash, Some(library.into()));
            }
        }
        let old = report("a", 10.0, |r| died(r, "/opt/rocm-6.4.3/lib/libamdhip64.so.6"));
        let new = report("b", 10.0, |r| died(r, "/opt/rocm-7.2.4/lib/libamdhip64.so.7"));
        let all = merge(vec![old, new]).unwrap();
        let works: Vec<&str> = all.statistics.iter().map(|line| line.work.as_str()).collect();
        let work = |library: &str| format!("model; library {library}");
        let libraries = ["/opt/rocm-6.4.3/lib/libamdhip64.so.6", "/opt/rocm-7.2.4/lib/libamdhip64.so.7"];
        assert_eq!(works, libraries.map(work));
        let pattern = format!(
            "vulkan: library is the only difference ({} | {}): 0 of 2 against 0 of 2 complete",
            libraries[0], libraries[1]
        );
        assert_eq!(all.verdict.patterns, [pattern]);
        let text = table::table(&all, Style::Plain);
        for (run, library) in ["a", "b"].into_iter().zip(libraries) {
            let heading = format!("run {run}: vulkan: library {library}");
            assert!(text.contains(&heading), "{heading}: {text}");
        }
    }

    /// Findings of several runs have the names of their runs, and keep their cures and commands.
    #[test]
    fn findings_of_several_runs_keep_their_cures() {
        fn hung(report: &mut Report) {
            let finding = Finding {
                text: "it hangs".into(),
                cure: vec!["set A=1".into()],
                next: Some("probe".into()),
                ..Finding::default()
            };
            let findings = vec![finding.text.clone()];
            report.verdict = Verdict { findings, details: vec![finding], ..Verdict::default() };
            report.variant_findings = vec!["a helps".into()];
            report.cure_command = Some("compare --resume x --cure".into());
        }
        let all = merge(vec![report("a", 10.0, hung), report("b", 10.0, hung)]).unwrap();
        let text = table::table(&all, Style::Plain);
        let block = "  cure: set A=1\n  a: it hangs\n    next: probe\n  b: it hangs\n";
        assert!(text.contains(block), "what they share is said once: {text}");
        assert_eq!(all.variant_findings, ["a: a helps", "b: a helps"]);
        assert_eq!(all.cure_command, None, "it continues one of the runs");
        assert!(merge(vec![report("a", 10.0, hung)]).unwrap().cure_command.is_some());
    }

    /// A variant has a line of its own, and what a person ended is no death.
    #[test]
    fn variants_and_ended_runs_are_kept_apart() {
        let with_variant = report("a", 10.0, |report| {
            let variant = Some("x".to_string());
            report.records[1].variant.clone_from(&variant);
            report.backends.push(BackendReport { variant, ..report.backends[0].clone() });
        });
        let works: Vec<&str> = with_variant.statistics.iter().map(|line| line.work.as_str()).collect();
        assert_eq!(works, ["model", "model; variant x"]);
        let ended = report("a", 10.0, |report| {
            report.records.iter_mut().for_each(|r| (r.status, r.elapsed_s) = (Status::Ended, 3.0));
        });
        let line = &ended.statistics[0];
        assert_eq!((line.ended, line.crashes, line.time_to_crash_s), (2, 0, None));
    }

    /// A consequence of another input is no difference of its own: a model's tokens, a library's version. A version that
    /// one run did not come to know is none either.
    #[test]
    fn consequences_are_no_differences() {
        fn dead(report: &mut Report) {
            report.records.iter_mut().for_each(|r| r.status = Status::Crash);
        }
        fn model(report: &mut Report, model: &str, types: &str, prompt: &str) {
            let settings = [("model", model), ("types", types), ("bytes", model), (PROMPT_HASH, prompt)];
            report.settings.extend(settings.map(|(name, value)| (name.into(), value.into())));
        }
        let one = report("a", 10.0, |r| model(r, "11", "Q8_0 100 %", "1"));
        let other = report("b", 10.0, |r| {
            model(r, "22", "Q4_K 100 %", "2");
            dead(r);
        });
        let patterns = merge(vec![one, other]).unwrap().verdict.patterns;
        assert!(patterns.len() == 1 && patterns[0].starts_with("vulkan: model-dependent: "), "{patterns:?}");
        fn library(report: &mut Report, path: &str, version: &str) {
            report.backends[0].versions = pair("runtime", version);
            report.records.iter_mut().for_each(|r| r.library = Some(path.into()));
        }
        let old = || report("a", 10.0, |r| library(r, "/six/libamdhip64.so.6", "6.4"));
        let new = report("b", 10.0, |r| library(r, "/seven/libamdhip64.so.7", "7.2"));
        assert_eq!(
            merge(vec![old(), new]).unwrap().verdict.patterns,
            [
                "vulkan: library is the only difference (/six/libamdhip64.so.6 | /seven/libamdhip64.so.7): 2 of 2 against 2 of \
              2 complete"
            ]
        );
        let blind = report("b", 10.0, |r| {
            library(r, "/six/libamdhip64.so.6", "6.4");
            r.backends[0].versions.clear();
            dead(r);
        });
        assert_eq!(merge(vec![old(), blind]).unwrap().verdict.patterns, [""; 0]);
        // Runs that somebody ended are compared with none, and the pair that decides comes first.
        let set = |id, change: fn(&mut Report)| report(id, 10.0, change);
        let three = merge(vec![
            set("a", |_| ()),
            set("b", |r| r.environment.overrides = pair("RADV_DEBUG", "x")),
            set("c", |r| {
                r.environment.overrides = pair("HSA_XNACK", "1");
                r.records.iter_mut().for_each(|r| r.status = Status::Ended);
            }),
            set("d", |r| {
                r.environment.overrides = pair("MESA_DEBUG", "1");
                dead(r);
            }),
        ]);
        assert_eq!(
            three.unwrap().verdict.patterns,
            [
                "vulkan: MESA_DEBUG is the only difference (unset | 1): 2 of 2 against 0 of 2 complete",
                "vulkan: RADV_DEBUG is the only difference (unset | x): 2 of 2 against 2 of 2 complete",
            ]
        );
    }

    fn pair(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.into(), value.into())]
    }
}
