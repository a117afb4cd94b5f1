//! The child's part of operation tests: run case after case, compare, report.

use super::{NO_REFERENCE, describe, results};
use crate::compare::generate::differences;
use crate::compare::report::{NodeReport, Status};
use crate::isolate::protocol::{Done, Message, OpsTask, Work};
use ggml_core::backend::Backend;
use ggml_core::catalogue::{self, Case, Outcome};
use ggml_core::{Error, Result};
use std::collections::HashMap;
use std::time::Instant;

/// Runs the cases of a task. The first error ends it: after a failure the device cannot be trusted with the
/// next case.
pub(in crate::compare) fn run_cases(
    work: &Work,
    task: &OpsTask,
    backend: &dyn Backend,
    send: &mut dyn FnMut(Message),
) -> Result<Done> {
    let reference = if task.is_reference { None } else { Some(results::read(task.results.as_ref())?) };
    let mut cases: HashMap<String, Case> =
        catalogue::cases().into_iter().map(|c| (c.name.clone(), c)).collect();
    for name in &task.cases {
        let unknown = || Error::argument("case", format!("'{name}'"), "one of the catalogue");
        let mut case = cases.remove(name).ok_or_else(unknown)?;
        // Name the node after the case, so that errors name the case.
        case.graph = case.graph.and_then(|mut g| g.name(case.node, &case.name).map(|()| g));
        send(Message::Case { name: name.clone() });
        let start = Instant::now();
        let (mut report, values) = run_case(work, &case, backend)?;
        report.elapsed_s = start.elapsed().as_secs_f64();
        match (&reference, values) {
            (None, Some(values)) => {
                results::append(task.results.as_ref(), name, &values)?;
                report.set(&catalogue::distance(&case, &values, &values));
            }
            (Some(reference), Some(values)) => judge(&mut report, &case, &values, reference.get(name)),
            (_, None) => {}
        }
        send(Message::CaseDone(report));
    }
    Ok(Done { stats: backend.stats(), ..Done::default() })
}

/// Runs a case `work.repeat` times; no values if the backend does not support it.
fn run_case(work: &Work, case: &Case, backend: &dyn Backend) -> Result<(NodeReport, Option<Vec<f32>>)> {
    let mut report = describe(case, work.precision);
    let mut first: Option<Vec<f32>> = None;
    let contents = case.contents()?;
    for _ in 0..work.repeat {
        let values = match catalogue::run_with(case, &contents, backend, work.precision) {
            Ok(Outcome::Values(values)) => values,
            Ok(Outcome::Unsupported(reason)) | Err(Error::Unsupported { reason, .. }) => {
                (report.status, report.message) = (Status::Unsupported, Some(reason));
                return Ok((report, None));
            }
            Err(error) => return Err(error.with_node(&case.name)),
        };
        match &first {
            Some(first) => report.unstable += differences(first, &values),
            None => first = Some(values),
        }
    }
    Ok((report, first))
}

fn judge(report: &mut NodeReport, case: &Case, values: &[f32], want: Option<&Vec<f32>>) {
    match want {
        Some(want) => report.set(&catalogue::distance(case, values, want)),
        None => report.fail(NO_REFERENCE),
    }
}
