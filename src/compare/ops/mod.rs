//! Operation tests: the cases of the catalogue on every backend, each backend in its own child processes.
//!
//! The reference runs first and writes its results to a file once. Every other child compares while it runs
//! and records each case, so that nothing is lost when a child dies: the parent records the failed case and
//! starts a new child for the remaining cases.

use super::header::Header;
use super::options::{CompareOptions, Event, Progress, Subject};
use super::report::{
    BackendReport, Comparison, Divergence, EVERYTHING, Finding, NodeReport, Record, Report, Status,
};
use super::{files, judge};
use crate::isolate::parent::Children;
use crate::isolate::protocol::{OpsTask, Task};
use ggml_core::catalogue::{self, Case};
use ggml_core::precision::Precision;
use ggml_core::{Error, Result};
use std::collections::{BTreeSet, HashSet};

mod child;
mod parent;
mod results;
mod table;

pub(super) use child::run_cases;
pub(super) use table::table;

/// Message of a case that no child reached.
const NOT_RUN: &str = "was not run";

/// Message of a case of which the reference has no result.
const NO_REFERENCE: &str = "the reference has no result to compare with";

/// Outcome of all cases on one backend.
#[derive(Default)]
struct BackendCases {
    backend: BackendReport,
    /// Record of the backend as a whole.
    record: Record,
    /// Records of the cases that crashed, hung or ended with an error.
    failures: Vec<Record>,
    /// Results of every case; empty if the backend cannot run here.
    cases: Vec<NodeReport>,
}

/// Checks the filter and builds the header of the run.
pub(super) fn plan(filter: &str, options: &CompareOptions) -> Result<Header> {
    select(filter)?;
    let results = files::reference_results(&options.out).into();
    Ok(Header {
        report: Report::new(options),
        options: options.clone(),
        measure: None,
        task: Task::Ops(OpsTask { cases: Vec::new(), results, is_reference: false }),
        runs: Vec::new(),
        resumed_by: Vec::new(),
    })
}

/// Runs all backends, one after the other.
pub(super) fn run(header: &Header, children: &mut Children, progress: Progress<'_>) -> Result<Report> {
    let (options, mut report) = (&header.options, header.report.clone());
    let Subject::Ops(filter) = &options.work else { return Ok(report) };
    let cases = select(filter)?;
    let mut findings = Vec::new();
    for backend in &options.order() {
        let live = children.starts(&files::stem(&backend.to_string(), EVERYTHING, 0));
        if live {
            progress(&Event::new(backend, format!("{} cases", cases.len())));
        }
        let Some(run) = parent::run_backend(backend, &cases, options, children, progress)? else {
            report.missing += 1;
            continue;
        };
        if live {
            progress(&Event::new(backend, format!("{} in {:.1} s", run.record.status, run.record.elapsed_s)));
        }
        findings.extend(faults(&run, &report.reference));
        if run.record.backend != report.reference && !run.cases.is_empty() {
            report.comparisons.push(comparison(&run, &report.reference));
        }
        report.backends.push(run.backend);
        report.records.push(run.record);
        report.records.extend(run.failures);
    }
    let compared = report.comparisons.iter().any(|c| c.nodes.iter().any(|n| n.status == Status::Ok));
    judge::conclude(&mut report, findings, compared);
    Ok(report)
}

/// Returns the operation, or the group of operations, that a case tests.
fn operation(case: &Case) -> &'static str {
    if let Some(group) = case.group {
        return group;
    }
    let node = case.graph.as_ref().ok().map(|g| g.tensor(case.node));
    node.and_then(|n| n.op()).map_or("", |op| op.name())
}

/// Selects cases by a filter. A term that is a case's name selects that case, an operation's name selects its
/// cases, `all` selects every case, and any other term selects the cases whose names contain it.
pub(super) fn select(filter: &str) -> Result<Vec<Case>> {
    Ok(selected(&catalogue::cases(), filter)?.into_iter().cloned().collect())
}

/// Returns those of some cases that a filter selects.
fn selected<'a>(cases: &'a [Case], filter: &str) -> Result<Vec<&'a Case>> {
    let names: HashSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    let operations: BTreeSet<&str> = cases.iter().map(operation).collect();
    let terms = if names.contains(filter) { vec![filter] } else { terms(filter) };
    let selects = |term: &str, case: &Case| {
        if term == "all" {
            true
        } else if names.contains(term) {
            case.name == term
        } else if operations.contains(term) {
            operation(case) == term
        } else {
            case.name.contains(term)
        }
    };
    if let Some(term) = terms.iter().find(|t| !cases.iter().any(|c| selects(t, c))) {
        let all: Vec<&str> = operations.into_iter().collect();
        let expected = format!("a part of a case's name, or an operation: {}", all.join(", "));
        return Err(Error::argument(format!("filter '{term}'"), "selects no case", expected));
    }
    let is_selected = |case: &&Case| terms.is_empty() || terms.iter().any(|t| selects(t, case));
    Ok(cases.iter().filter(is_selected).collect())
}

/// Splits a filter into terms at commas, except within parentheses and brackets, so that a case's whole name
/// is one term.
fn terms(filter: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let separates = |c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    filter.split(separates).map(str::trim).filter(|t| !t.is_empty()).collect()
}

/// Builds the report of a case before it runs.
fn describe(case: &Case, precision: Precision) -> NodeReport {
    let mut report = NodeReport {
        node: case.name.clone(),
        op: operation(case).into(),
        nmse: f64::INFINITY,
        row: f64::INFINITY,
        max_abs: f64::INFINITY,
        ..NodeReport::default()
    };
    report.hold_to(&catalogue::bound(case, precision));
    if let Ok(g) = &case.graph {
        let t = g.tensor(case.node);
        (report.dtype, report.shape) = (t.dtype.name().into(), t.ne);
        report.operand_type = g.operands(case.node).first().map_or(t.dtype, |o| o.dtype).name().into();
    }
    report
}

/// Lists the problems of a backend: one line for each operation and kind of failure. The report has every
/// case.
fn faults(run: &BackendCases, reference: &str) -> Vec<Finding> {
    let backend = &run.record.backend;
    let mut findings = failures(run);
    if run.failures.is_empty() || run.record.phase.is_some() {
        findings.extend(judge::finding(&run.record));
    }
    for cases in by_operation(run.cases.iter().filter(|n| n.is_out_of_bounds())) {
        let Some(worst) = cases.iter().max_by(|a, b| a.excess().total_cmp(&b.excess())) else { continue };
        let (which, what) = (several(&cases, worst), worst.describe_error());
        let text = format!("{backend} differs from {reference}: {which}: {what}");
        let mut finding = Finding::about(backend, EVERYTHING, "difference", text);
        finding.location.case = Some(worst.node.clone());
        findings.push(finding);
    }
    for cases in by_operation(run.cases.iter().filter(|n| n.unstable > 0)) {
        let Some(worst) = cases.iter().max_by_key(|n| n.unstable) else { continue };
        let (which, values) = (several(&cases, worst), worst.unstable);
        let text = format!("{backend}: {which}: {values} values change from run to run");
        let mut finding = Finding::about(backend, EVERYTHING, "unstable result", text);
        finding.location.case = Some(worst.node.clone());
        findings.push(finding);
    }
    let left_out = run.cases.iter().filter(|n| n.message.as_deref() == Some(NOT_RUN)).count();
    if left_out > 0 {
        findings.push(format!("{backend}: {left_out} cases were not run").into());
    }
    let unjudged = run.cases.iter().filter(|n| n.message.as_deref() == Some(NO_REFERENCE)).count();
    if unjudged > 0 {
        findings
            .push(format!("{backend}: of {unjudged} cases {reference} has no result to compare with").into());
    }
    if *backend == reference && run.record.status == Status::Unsupported {
        findings.push(format!("{reference} has no result: nothing to compare with").into());
    }
    findings
}

/// Lists crashes, hangs and errors of cases, with one line for those of the same operation and phase.
fn failures(run: &BackendCases) -> Vec<Finding> {
    let mut alike: Vec<(&str, Vec<&Record>)> = Vec::new();
    for record in &run.failures {
        let named = |n: &&NodeReport| Some(&n.node) == record.case.as_ref();
        let op = run.cases.iter().find(named).map_or("", |n| n.op.as_str());
        let same =
            |r: &Record| (r.status, &r.phase, &r.signal) == (record.status, &record.phase, &record.signal);
        match alike.iter_mut().find(|(o, records)| *o == op && same(records[0])) {
            Some((_, records)) => records.push(record),
            None => alike.push((op, vec![record])),
        }
    }
    let line = |(op, records): &(&str, Vec<&Record>)| {
        let mut first = judge::finding(records[0])?;
        if let more @ 1.. = records.len() - 1 {
            first.text = format!("{} (and {more} more cases of {op})", first.text);
        }
        Some(first)
    };
    alike.iter().filter_map(line).collect()
}

/// Groups cases by operation, in order of first occurrence.
fn by_operation<'a>(cases: impl Iterator<Item = &'a NodeReport>) -> Vec<Vec<&'a NodeReport>> {
    let mut groups: Vec<Vec<&NodeReport>> = Vec::new();
    for case in cases {
        match groups.iter_mut().find(|g| g[0].op == case.op) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    groups
}

/// Formats the name of the worst of some cases of one operation, with their number if there are several.
fn several(cases: &[&NodeReport], worst: &NodeReport) -> String {
    match cases.len() {
        1 => worst.node.clone(),
        n => format!("{n} cases of {}, the worst {}", worst.op, worst.node),
    }
}

fn comparison(run: &BackendCases, reference: &str) -> Comparison {
    let out: Vec<&NodeReport> = run.cases.iter().filter(|n| n.is_out_of_bounds()).collect();
    let first = out.first().map(|n| Divergence::new(n));
    Comparison {
        lhs: run.record.backend.clone(),
        rhs: reference.into(),
        offload: EVERYTHING,
        first_divergence: first,
        disagreement: disagreement(run, out.len()),
        nodes: run.cases.clone(),
        ..Comparison::default()
    }
}

/// Describes what is against an agreement: cases out of bounds or, if there are none, that none was compared or
/// some could not be.
fn disagreement(run: &BackendCases, out: usize) -> Option<String> {
    let number = |status: Status| run.cases.iter().filter(|n| n.status == status).count();
    let failed = number(Status::Error) + number(Status::Crash) + number(Status::Hang) + number(Status::Ended);
    let all = run.cases.len();
    match out {
        1.. => Some(format!("{out} of {all} cases are out of bounds")),
        _ if failed > 0 => Some(format!("{failed} of {all} cases have no result that can be judged")),
        _ => (number(Status::Ok) == 0).then(|| "no case was compared".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compared_is_no_agreement() {
        let case = |status| NodeReport { status, bound: 1.0, row_bound: 1.0, ..NodeReport::default() };
        let of = |cases: Vec<NodeReport>| {
            let run = BackendCases { cases, ..BackendCases::default() };
            comparison(&run, "reference").disagreement
        };
        assert_eq!(of(vec![case(Status::Ok), case(Status::Unsupported)]), None);
        for cases in [vec![], vec![case(Status::Unsupported)], vec![case(Status::Ok), case(Status::Error)]] {
            assert!(of(cases.clone()).is_some(), "{cases:?}");
        }
    }

    #[test]
    fn filters() {
        assert_eq!(terms(""), [""; 0]);
        assert_eq!(terms("ADD, MUL_MAT(F32, k=1),a=[2, 3],"), ["ADD", "MUL_MAT(F32, k=1)", "a=[2, 3]"]);
        assert_eq!(terms("MUL_MAT(F32, k"), ["MUL_MAT(F32, k"]);
        assert_eq!(terms("x),y"), ["x)", "y"]);

        let all = select("").unwrap();
        assert_eq!(all.len(), catalogue::cases().len());
        assert_eq!(select("all").unwrap().len(), all.len(), "not those with 'small' in their names");
        let muls = select("MUL").unwrap();
        assert!(!muls.is_empty() && muls.iter().all(|c| operation(c) == "MUL"), "MUL is not MUL_MAT");
        let both = select("MUL,RMS_NORM").unwrap();
        assert_eq!(both.len(), muls.len() + select("RMS_NORM").unwrap().len());
        for case in &all {
            let names: Vec<&str> =
                selected(&all, &case.name).unwrap().iter().map(|case| case.name.as_str()).collect();
            assert_eq!(names, [case.name.as_str()]);
        }
        let error = select("ADD,QUANTUM").unwrap_err().to_string();
        assert!(error.contains("'QUANTUM'") && error.contains("RMS_NORM"), "{error}");
    }
}
