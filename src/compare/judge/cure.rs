//! The cure of a finding, and the command that comes next: from the advice that a backend reported with its error, the
//! phase, and the backends that agree.

use crate::compare::report::{Finding, Record, Report, Status};
use crate::isolate::recorder::{LOGGED, WROTE};
use crate::remedy::setting;
use crate::shell::quoted;

/// Advice after any hang or fault, which is less specific than the rest.
#[cfg(feature = "hip")]
use backend_hip::advice::GENERAL;
#[cfg(not(feature = "hip"))]
const GENERAL: &str = "";

/// Variable that makes a kernel copy in place of the DMA engines.
const COPIES: &str = "DIPTYCH_HIP_COPIES";

/// Returns the advice that a backend reported with the error of its run, the most specific first, or what helps in general
/// in that phase.
pub(super) fn known(record: &Record) -> Vec<String> {
    let mut cures = Vec::new();
    for advice in record.warnings.iter().filter_map(|warning| advice_in(record, warning)) {
        let specific = advice.strip_suffix(GENERAL).filter(|_| !GENERAL.is_empty());
        let parts = match specific {
            Some(rows) => [rows.trim_end_matches("; "), GENERAL],
            None => [advice.as_str(), ""],
        };
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if !cures.iter().any(|known| known == part) {
                cures.push(part.to_string());
            }
        }
    }
    let died = matches!(record.status, Status::Hang | Status::Crash);
    if died && cures.iter().all(|cure| cure == GENERAL) {
        let phase = record.phase.as_deref().unwrap_or_default();
        cures.splice(0..0, setting(&record.backend, phase).map(String::from));
    }
    // The record keeps it as a warning.
    if cures.iter().any(|cure| cure != GENERAL) {
        cures.retain(|cure| cure != GENERAL);
    }
    cures
}

/// Returns the advice in a warning that repeats the error of the run: "ERROR: ADVICE". The error may have got its node
/// later.
fn advice_in(record: &Record, warning: &str) -> Option<String> {
    let failed = matches!(record.status, Status::Hang | Status::Error | Status::Crash);
    let message = record.message.as_ref().filter(|message| failed && !message.is_empty())?;
    // What others wrote follows the error.
    let error = [WROTE, LOGGED].iter().filter_map(|begin| message.find(begin)).min().map(|at| &message[..at]);
    let (warning, message) = (without_node(warning), without_node(error.unwrap_or(message)));
    warning.strip_prefix(&message)?.strip_prefix(": ").map(str::to_string)
}

/// Removes " at node 'NAME'".
fn without_node(text: &str) -> String {
    const NODE: &str = " at node '";
    let Some((before, rest)) = text.split_once(NODE) else { return text.into() };
    match rest.split_once('\'') {
        Some((_, after)) => format!("{before}{after}"),
        None => text.into(),
    }
}

/// Adds what follows from the whole report: another backend if nothing else helps, and the next command.
pub(super) fn complete(finding: &mut Finding, report: &Report, recommended: Option<&str>) {
    let died = ["crash", "hang", "error"].iter().any(|status| finding.cause.starts_with(status));
    let is_other =
        |recommended: &&str| !recommended.starts_with(&format!("use --backend {} ", finding.backend));
    if died && finding.cure.iter().all(|cure| cure == GENERAL) {
        finding.cure.splice(0..0, recommended.filter(is_other).map(str::to_string));
    }
    if finding.next.is_none() && !finding.backend.is_empty() {
        finding.next = next(finding, report);
    }
}

/// Returns the command that narrows a failure down; `None` if the report has everything.
fn next(finding: &Finding, report: &Report) -> Option<String> {
    let (backend, location) = (&finding.backend, &finding.location);
    let compare = format!("compare {}--backends {backend} --reference {}", work(report), report.reference);
    if let Some(case) = &location.case {
        let (case, reference) = (quoted(case), &report.reference);
        return Some(format!("compare --ops {case} --backends {backend} --reference {reference}"));
    }
    let is_hip = backend.starts_with("hip");
    let is_set = |name: &str| report.environment.overrides.iter().any(|(set, _)| set == name);
    let phase = location.phase.as_deref()?;
    let hangs = finding.cause.starts_with("hang");
    match phase {
        "load_runtime" | "enumerate" | "open_device" | "allocate" => Some("probe".into()),
        "upload" | "readback" if is_hip && hangs && !is_set(COPIES) => {
            Some(format!("{COPIES}=kernel {compare}"))
        }
        "first_compute" | "compute" if is_hip && location.node.is_none() => {
            Some(format!("DIPTYCH_HIP_BREADCRUMBS=every {compare}"))
        }
        "first_compute" | "compute" | "compile" | "prepare" => {
            Some(format!("compare --ops --backends {backend} --reference {}", report.reference))
        }
        _ => None,
    }
}

/// Returns the options of the work, with a space at the end; empty for the default model.
fn work(report: &Report) -> String {
    match report.work.split_once(' ') {
        Some((kind @ ("model" | "graph"), path)) => format!("--{kind} {} ", quoted(path)),
        Some(("ops", filter)) => format!("--ops {} ", quoted(filter)),
        _ if report.work == "ops" => "--ops ".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::CompareOptions;
    use crate::compare::judge::set_verdict;
    use crate::compare::report::Location;

    /// The advice that a backend reported with its hang is the cure, and no warning any more. The next command tries it.
    #[cfg(feature = "hip")]
    #[test]
    fn a_hang_has_its_cure() {
        let row = "uploads stall in the DMA engines: set DIPTYCH_HIP_COPIES=kernel (ROCm issue 6182)";
        let mut record = Record {
            backend: "hip".into(),
            offload: -1,
            status: Status::Hang,
            phase: Some("upload".into()),
            last_call: Some("hipEventQuery".into()),
            waits_for: Some("hipMemcpyAsync".into()),
            library: Some("/x/libamdhip64.so.7".into()),
            elapsed_s: 2.5,
            stem: "hip".into(),
            message: Some("hip: no answer in phase upload at node 'x' after 2.0 s".into()),
            warnings: vec![
                "another".into(),
                format!("hip: no answer in phase upload after 2.0 s: {row}; {GENERAL}"),
            ],
            ..Record::default()
        };
        let mut report = Report { work: "model a b.gguf".into(), ..Report::new(&CompareOptions::default()) };
        report.environment.overrides.clear();
        report.records = vec![record.clone()];
        set_verdict(&mut report);
        let finding = &report.verdict.details[0];
        assert_eq!(finding.text, report.verdict.findings[0]);
        assert!(finding.text.starts_with("hip: hang in phase upload waiting for hipMemcpyAsync ("));
        assert_eq!((finding.cause.as_str(), finding.cure.as_slice()), ("hang", &[row.to_string()][..]));
        assert_eq!(finding.location.waits_for.as_deref(), Some("hipMemcpyAsync"));
        assert!(!finding.run_id.is_empty() && finding.run_id == report.run_id);
        let message = "hip: no answer in phase upload at node 'x' after 2.0 s";
        assert_eq!(
            finding.evidence,
            [message, "library /x/libamdhip64.so.7", "2.50 s after its start", "hip.log"]
        );
        let next =
            "DIPTYCH_HIP_COPIES=kernel compare --model 'a b.gguf' --backends hip --reference reference";
        assert_eq!(finding.next.as_deref(), Some(next));
        // Without advice, what helps in the phase is the cure, or else the backend that agrees.
        record.warnings.clear();
        report.records = vec![record.clone()];
        set_verdict(&mut report);
        assert!(report.verdict.details[0].cure[0].starts_with("DIPTYCH_HIP_COPIES=kernel: "));
        record.phase = Some("allocate".into());
        report.records = vec![
            Record { backend: "reference".into(), offload: -1, ..Record::default() },
            Record { backend: "cpu".into(), offload: -1, ..Record::default() },
            record,
        ];
        report.records[..2].iter_mut().for_each(|r| r.status = Status::Ok);
        report.comparisons = vec![crate::compare::report::Comparison {
            lhs: "cpu".into(),
            rhs: "reference".into(),
            ..Default::default()
        }];
        set_verdict(&mut report);
        assert_eq!(report.verdict.details[0].cure, ["use --backend cpu (nothing faster agrees)"]);
    }

    /// The next command narrows a failure down to a node or to a case, and tries nothing that is set already.
    #[test]
    fn the_next_command_narrows_it_down() {
        let mut report = Report { work: "model a.gguf".into(), ..Report::new(&CompareOptions::default()) };
        report.environment.overrides.clear();
        let command = |report: &Report, backend: &str, cause: &str, location: Location| {
            let finding =
                Finding { backend: backend.into(), cause: cause.into(), location, ..Finding::default() };
            next(&finding, report).unwrap_or_default()
        };
        let phase = |phase: &str| Location { phase: Some(phase.into()), ..Location::default() };
        let case = Location { case: Some("MUL_MAT(a b)".into()), ..phase("compute") };
        let of = |backend: &str, cause: &str, location| command(&report, backend, cause, location);
        let compare = "compare --model a.gguf --backends hip --reference reference";
        assert_eq!(
            of("hip", "crash (SIGSEGV)", case),
            "compare --ops 'MUL_MAT(a b)' --backends hip --reference reference"
        );
        assert_eq!(of("hip", "hang", phase("compute")), format!("DIPTYCH_HIP_BREADCRUMBS=every {compare}"));
        let node = Location { node: Some("x".into()), ..phase("compute") };
        assert_eq!(of("hip", "hang", node), "compare --ops --backends hip --reference reference");
        let ops = "compare --ops --backends vulkan --reference reference";
        assert_eq!(of("vulkan", "crash", phase("first_compute")), ops);
        assert_eq!(of("hip", "hang", phase("upload")), format!("DIPTYCH_HIP_COPIES=kernel {compare}"));
        assert_eq!(
            (of("hip", "crash", phase("upload")), of("vulkan", "hang", phase("upload"))),
            Default::default()
        );
        assert_eq!(of("hip", "hang", phase("allocate")), "probe");
        report.environment.overrides = vec![(COPIES.into(), "kernel".into())];
        assert_eq!(command(&report, "hip", "hang", phase("upload")), "", "it is set");
    }
}
