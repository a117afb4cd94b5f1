//! Runs of variants: the same work with other variables, another library or other options, each in children of its own
//! and in a folder of its own, after the plain runs.
//!
//! The reference is that of the plain runs. A variant is compared by its logits or outputs only.

mod cure;
mod effects;
mod table;

pub(super) use table::{sentences, table};

use super::files;
use super::graph_runs::{remove_results, task};
use super::header::{Header, Planned};
use super::judge;
use super::options::{Event, PerNode, Progress};
use super::report::{
    BackendReport, Comparison, Finding, LogitsReport, Record, Report, Status, Verdict, label,
};
use super::variant_rows::VariantRow;
use crate::backends::BackendName;
use crate::isolate::parent::Children;
use crate::isolate::protocol::{Message, Work};
use crate::isolate::recorder::ChildOutcome;
use ggml_core::hash::Fnv1a;
use ggml_core::{Error, Result};

/// The most characters of a variant's name in the name of its folder.
const MAX_SLUG: usize = 40;

/// A backend with a number of the model's units on it, see [`Record::offload`].
type Target = (BackendName, i64);

/// Runs the variants of the options, then those that may cure a crash or a hang, and adds their records and effects to
/// the report.
pub(super) fn run(
    header: &Header,
    children: &mut Children,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    if header.measure.is_none() {
        return Ok(());
    }
    let plain = Header { options: header.options.clone().with_per_node(PerNode::Off), ..header.clone() };
    let mut runner = Runner { header: &plain, children, report, progress };
    let begin = runner.report.records.len();
    runner.run_listed()?;
    let findings = runner.findings(begin);
    if header.options.cure {
        cure::run(&mut runner)?;
    }
    let effects = effects::sentences(report);
    report.cure_command = cure::command(report, header);
    report.verdict.advice.push_str(&usage(report));
    report.variant_findings = effects;
    conclude(&mut report.verdict, findings, report.missing);
    Ok(())
}

/// Adds findings on variants to a verdict. The plain runs may have counted runs that were not made.
fn conclude(verdict: &mut Verdict, findings: Vec<Finding>, missing: usize) {
    let is_count = |text: &str| text.contains("planned runs were not made");
    verdict.findings.retain(|text| !is_count(text));
    verdict.details.retain(|finding| !is_count(&finding.text));
    let missing = (missing > 0).then(|| format!("{missing} of the planned runs were not made").into());
    for finding in findings.into_iter().chain(missing) {
        verdict.findings.push(finding.text.clone());
        verdict.details.push(finding);
    }
    verdict.agree &= verdict.findings.is_empty();
}

/// Returns how to use the first variant that cures a backend, as the end of the advice; empty if there is none.
pub(super) fn usage(report: &Report) -> String {
    effects::usage(report).unwrap_or_default()
}

/// A run in progress to which variants are added.
struct Runner<'a, 'b> {
    /// The run without results of nodes.
    header: &'a Header,
    children: &'a mut Children,
    report: &'a mut Report,
    progress: Progress<'b>,
}

impl Runner<'_, '_> {
    /// Runs the variants of the options, all of an epoch before the next epoch.
    fn run_listed(&mut self) -> Result<()> {
        let header = self.header;
        let mut targets: Vec<Target> = Vec::new();
        for run in &header.runs {
            let target = (run.backend.parse()?, run.offload);
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        for epoch in 0..header.options.epochs {
            for row in &header.options.variants {
                for target in targets.iter().filter(|(backend, _)| row.applies_to(backend)) {
                    self.run_one(row, target, epoch)?;
                }
            }
        }
        Ok(())
    }

    /// Runs a variant once on each epoch.
    fn run_epochs(&mut self, row: &VariantRow, target: &Target) -> Result<()> {
        (0..self.header.options.epochs).try_for_each(|epoch| self.run_one(row, target, epoch))
    }

    /// Runs a variant on a backend and compares its results with the reference's.
    fn run_one(&mut self, row: &VariantRow, (backend, offload): &Target, epoch: usize) -> Result<()> {
        let options = &self.header.options;
        let run = Planned { folder: folder(row), ..Planned::new(backend, *offload, epoch) };
        let starts = self.children.starts(&run.stem());
        if starts {
            let folder = options.out.join(&run.folder);
            ggml_core::files::create_folders(&folder).map_err(|e| Error::io(folder, e))?;
            remove_results(self.header, &run)?;
        }
        let name = format!("{} [{}]", label(&run.backend, *offload), row.name);
        let progress = &mut self.progress;
        let mut report_progress = |what: &dyn std::fmt::Display| {
            if starts {
                progress(&Event::new(&name, what));
            }
        };
        report_progress(&"running");
        let work = options.variant_work(row, backend, task(self.header, &run, self.report));
        let work = Work { epoch, ..work };
        let mut receive = |message: &Message| {
            if let Message::Progress { what } = message {
                report_progress(what);
            }
        };
        let outcome = match self.children.run(&work, &run.stem(), &mut receive) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                self.report.missing += 1;
                return Ok(());
            }
            // A value that the backend refuses is the outcome of this row; the other rows are not affected.
            Err(error @ Error::InvalidArgument { .. }) => refused(&work, &run.stem(), &error),
            Err(error) => return Err(error),
        };
        report_progress(&outcome.record.status);
        self.add(row, outcome);
        Ok(())
    }

    /// Adds the outcome of a variant to the report.
    fn add(&mut self, row: &VariantRow, outcome: ChildOutcome) {
        let variant = Some(row.name.clone());
        let record = Record { variant: variant.clone(), ..outcome.record };
        let report = &mut *self.report;
        if !report.variants.iter().any(|known| known.name == row.name) {
            report.variants.push(row.clone());
        }
        report.add_backend(BackendReport { variant, ..outcome.backend });
        let comparison = self.compare(&record);
        self.report.comparisons.extend(comparison);
        self.report.records.push(record);
    }

    /// Compares a variant's results with the reference's; `None` if one of them has none.
    fn compare(&self, record: &Record) -> Option<Comparison> {
        let (report, options) = (&*self.report, &self.header.options);
        let reference =
            report.reference_record().filter(|r| r.status == Status::Ok && r.invalid_logits == 0)?;
        let measure = self.header.measure.as_ref().filter(|_| record.status == Status::Ok)?;
        let unestimated = Some("results of variants are compared once");
        let mut compared = judge::compare(record, reference, options, measure, unestimated);
        let of = (&record.backend, record.offload);
        let plain = report.comparisons.iter().find(|c| (&c.lhs, c.offload) == of && c.variant.is_none());
        // A difference that is rounding in the plain run is rounding here too, if it is about as large.
        let look = plain.and_then(|c| c.second_look.as_ref()).filter(|look| look.rounding);
        if compared.disagreement.is_some()
            && look.is_some()
            && plain.is_some_and(|plain| is_like(&compared, plain))
        {
            compared.second_look = look.cloned();
            compared.disagreement = None;
        }
        Some(compared)
    }

    /// Returns the failures and differences of the records from an index on, each once.
    fn findings(&self, begin: usize) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let mut add = |finding: Finding| {
            if !findings.iter().any(|known| known.text == finding.text) {
                findings.push(finding);
            }
        };
        for record in &self.report.records[begin..] {
            let about =
                |cause: &str, text: String| Finding::about(&record.backend, record.offload, cause, text);
            judge::finding(record).into_iter().for_each(&mut add);
            judge::instability(record)
                .map(|text| about("unstable result", text))
                .into_iter()
                .for_each(&mut add);
            judge::variance(record)
                .map(|text| about("result that depends on the method", text))
                .for_each(&mut add);
            let why = self.report.comparison_of(record).and_then(|c| c.disagreement.as_ref());
            if let Some(why) = why {
                let text = format!("{} differs from {}: {why}", record.label(), self.report.reference);
                add(about("difference", text));
            }
        }
        findings
    }
}

/// True if all distances of a comparison are about as large as those of another one at most, and the same tokens differ.
fn is_like(compared: &Comparison, plain: &Comparison) -> bool {
    let of = |c: &Comparison| [c.logits, c.steps, c.text.map(|text| text.logits)];
    let near = |(own, other): (Option<LogitsReport>, Option<LogitsReport>)| match (own, other) {
        (Some(own), Some(other)) => own.non_finite == 0 && own.nmse <= 2.0 * other.nmse,
        (own, other) => own.is_none() && other.is_none(),
    };
    compared.logits.is_some()
        && of(compared).into_iter().zip(of(plain)).all(near)
        && compared.greedy_divergence_at == plain.greedy_divergence_at
}

/// Returns the outcome of a child whose backend refuses a setting.
fn refused(work: &Work, stem: &str, error: &Error) -> ChildOutcome {
    let record = Record {
        backend: work.backend.clone(),
        stem: stem.into(),
        offload: work.offload(),
        epoch: work.epoch,
        environment: work.environment.clone(),
        message: Some(error.to_string()),
        ..Record::default()
    };
    let backend = BackendReport { name: work.backend.clone(), ..BackendReport::default() };
    ChildOutcome { record, backend, ended: true, ..ChildOutcome::default() }
}

/// Returns the folder of a variant's files within the run's folder. It depends on all of its settings, so rows of one
/// name and different settings share no results.
fn folder(row: &VariantRow) -> String {
    let slug: String =
        row.name.chars().take(MAX_SLUG).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let hash = Fnv1a::of(format!("{row:?}").as_bytes());
    format!("{}/{slug}-{:08x}", files::VARIANTS, hash as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A difference of the plain run that is rounding is no excuse for another one.
    #[test]
    fn rounding_of_the_plain_run_excuses_what_is_alike() {
        let logits = |nmse| LogitsReport { nmse, ..LogitsReport::default() };
        let of = |prompt, steps| Comparison {
            logits: Some(logits(prompt)),
            steps: Some(logits(steps)),
            ..Comparison::default()
        };
        let plain = of(1e-3, 1e-3);
        assert!(is_like(&of(2e-3, 1e-4), &plain));
        assert!(!is_like(&of(3e-3, 1e-3), &plain) && !is_like(&of(1e-3, 1.0), &plain));
        let invalid = LogitsReport { non_finite: 1, ..logits(1e-3) };
        assert!(!is_like(&Comparison { steps: Some(invalid), ..of(1e-3, 1e-3) }, &plain));
        assert!(!is_like(&Comparison { greedy_divergence_at: Some(1), ..of(1e-3, 1e-3) }, &plain));
        assert!(!is_like(&Comparison { steps: None, ..of(1e-3, 1e-3) }, &plain));
    }
}
