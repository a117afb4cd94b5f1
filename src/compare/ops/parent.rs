//! The parent's part of operation tests: starts children for one backend until every case has an outcome.

use super::{BackendCases, NOT_RUN, describe, results};
use crate::backends::BackendName;
use crate::compare::files;
use crate::compare::options::{CompareOptions, Event, Progress};
use crate::compare::report::{EVERYTHING, NodeReport, Record, Status};
use crate::isolate::parent::Children;
use crate::isolate::protocol::{Message, OpsTask, Task, Work};
use crate::isolate::recorder::ChildOutcome;
use ggml_core::Result;
use ggml_core::catalogue::Case;
use std::time::Duration;

/// Number of cases that may hang in a row before the rest is skipped. Each costs a whole deadline, and a
/// device that hangs so often will not recover.
const HANGS_IN_A_ROW: usize = 8;

/// Number of restarts, and the pause before each, for a child that ended before it ran a case. A device may
/// need some time after a reset.
const RESTARTS: usize = 3;
const PAUSE: Duration = Duration::from_secs(2);

/// Runs all cases on a backend; `None` if no child was started.
pub(super) fn run_backend(
    backend: &BackendName,
    cases: &[Case],
    options: &CompareOptions,
    children: &mut Children,
    progress: Progress<'_>,
) -> Result<Option<BackendCases>> {
    let is_reference = *backend == options.reference;
    let results = files::reference_results(&options.out);
    if is_reference && children.starts(&stem(&backend.to_string(), 1)) {
        results::create(&results)?;
    }
    let task = Task::Ops(OpsTask { cases: Vec::new(), results: results.into(), is_reference });
    let mut series = Series {
        cases,
        work: options.child_work(backend, task),
        run: BackendCases {
            backend: Default::default(),
            record: Record::default(),
            failures: Vec::new(),
            cases: Vec::new(),
        },
        started: 0,
        fruitless: 0,
        hangs: 0,
        elapsed_s: 0.0,
    };
    while series.next_child(children, progress)? {}
    Ok((series.started > 0).then(|| series.conclude()))
}

/// The children of one backend, one after the other.
struct Series<'a> {
    cases: &'a [Case],
    work: Work,
    run: BackendCases,
    started: usize,
    /// Number of children in a row that ended before they ran a case.
    fruitless: usize,
    /// Number of cases in a row that hung.
    hangs: usize,
    elapsed_s: f64,
}

/// Returns the stem of the files of a backend's n-th child.
fn stem(backend: &str, n: usize) -> String {
    let stem = files::stem(backend, EVERYTHING, 0);
    if n == 1 { stem } else { format!("{stem}.{n}") }
}

impl Series<'_> {
    /// Runs one child over the cases that have no outcome yet; returns true if another child is needed.
    fn next_child(&mut self, children: &mut Children, progress: Progress<'_>) -> Result<bool> {
        let before = self.run.cases.len();
        let rest = self.cases.get(before..).unwrap_or_default();
        let rest: Vec<String> = rest.iter().map(|c| c.name.clone()).collect();
        if let Task::Ops(task) = &mut self.work.task {
            task.cases = rest;
        }
        let stem = stem(&self.work.backend, self.started + 1);
        if self.fruitless > 0 && children.starts(&stem) {
            std::thread::sleep(PAUSE);
        }
        let (mut done, total) = (before, self.cases.len());
        let outcome = children.run(&self.work, &stem, &mut |message| match message {
            Message::Case { name } => {
                progress(&Event { done: Some((done, total)), ..Event::new(&self.work.backend, name) });
            }
            Message::CaseDone(_) => done += 1,
            _ => {}
        })?;
        let Some(outcome) = outcome else { return Ok(false) };
        self.started += 1;
        Ok(self.account(outcome))
    }

    /// Merges the outcome of a child; returns true if another child is needed.
    fn account(&mut self, outcome: ChildOutcome) -> bool {
        let ChildOutcome { backend, record, cases, case, ended } = outcome;
        if self.run.backend.device.is_empty() {
            self.run.backend = backend;
        }
        self.elapsed_s += record.elapsed_s;
        let ran = !cases.is_empty() || case.is_some();
        if !cases.is_empty() {
            self.hangs = 0;
        }
        self.run.cases.extend(cases);
        if case.is_some() {
            self.hangs = if record.status == Status::Hang { self.hangs + 1 } else { 0 };
            self.assign_to_case(record.clone());
        }
        self.run.record = record;
        self.fruitless = if ran { 0 } else { self.fruitless + 1 };
        let rest = self.cases.len().saturating_sub(self.run.cases.len());
        // A case that may have stopped the machine is not tried again.
        if rest == 0 || self.hangs >= HANGS_IN_A_ROW || !ended {
            return false;
        }
        // A backend that never opened is absent; one that has opened before may recover soon.
        ran || self.started > self.fruitless && self.fruitless <= RESTARTS
    }

    /// Assigns the child's record to the case that was running when the child ended.
    fn assign_to_case(&mut self, mut record: Record) {
        let Some(case) = self.cases.get(self.run.cases.len()) else { return };
        record.case = Some(case.name.clone());
        if record.node.is_none() && record.phase.as_deref().is_some_and(|p| p.ends_with("compute")) {
            record.node = Some(case.name.clone());
        }
        self.run.cases.push(NodeReport {
            status: record.status,
            message: record.message.clone(),
            ..describe(case, self.work.precision)
        });
        if record.status != Status::Unsupported {
            self.run.failures.push(record);
        }
    }

    /// Builds the record of the backend as a whole, and an entry for every case that was not run.
    fn conclude(self) -> BackendCases {
        let Series { cases, work, mut run, hangs, elapsed_s, .. } = self;
        let rest = cases.get(run.cases.len()..).unwrap_or_default();
        let opened = !run.cases.is_empty();
        let last = &run.record;
        let mut record = Record {
            elapsed_s,
            status: last.status,
            offload: EVERYTHING,
            backend: last.backend.clone(),
            pid: last.pid,
            stem: last.stem.clone(),
            library: last.library.clone(),
            last_call: last.last_call.clone(),
            waits_for: last.waits_for.clone(),
            driver_allocations: last.driver_allocations,
            warnings: last.warnings.clone(),
            ..Record::default()
        };
        if let Some(worst) = run.failures.iter().map(|r| r.status).max_by_key(|s| severity(*s)) {
            record.status = worst;
            record.message = Some(format!("{} of {} cases failed", run.failures.len(), cases.len()));
        }
        if hangs >= HANGS_IN_A_ROW && !rest.is_empty() {
            let more = format!("{hangs} cases in a row hung, {} were skipped", rest.len());
            record.message = Some(record.message.map_or(more.clone(), |m| format!("{m}; {more}")));
        } else if run.failures.last().is_none_or(|f| f.stem != last.stem) && last.status != Status::Ok {
            // The last child ended outside of a case: while it opened or closed its device.
            record = Record { elapsed_s, ..last.clone() };
        }
        if opened {
            run.cases.extend(rest.iter().map(|case| NodeReport {
                status: Status::Error,
                message: Some(NOT_RUN.into()),
                ..describe(case, work.precision)
            }));
        }
        run.record = record;
        run
    }
}

/// Returns the rank of a status; the highest one represents all cases.
fn severity(status: Status) -> usize {
    match status {
        Status::Ok => 0,
        Status::Unsupported => 1,
        Status::Error => 2,
        Status::Ended => 3,
        Status::Hang => 4,
        Status::Crash => 5,
    }
}
