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
use super::report::{BackendReport, Comparison, Record, Report, Status, label};
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
    report.cure_command = cure::command(report, &header.options);
    if let Some(usage) = effects::usage(report) {
        report.verdict.advice.push_str(&usage);
    }
    report.variant_findings = effects;
    report.verdict.agree &= findings.is_empty();
    report.verdict.findings.extend(findings);
    Ok(())
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
        let is_like = || Some(compared.logits?.nmse <= 2.0 * plain?.logits?.nmse);
        if compared.disagreement.is_some() && look.is_some() && is_like() == Some(true) {
            compared.second_look = look.cloned();
            compared.disagreement = None;
        }
        Some(compared)
    }

    /// Describes the failures and differences of the records from an index on, each once.
    fn findings(&self, begin: usize) -> Vec<String> {
        let mut findings: Vec<String> = Vec::new();
        let mut add = |finding: String| {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        };
        for record in &self.report.records[begin..] {
            judge::failure(record).into_iter().for_each(&mut add);
            judge::instability(record).into_iter().for_each(&mut add);
            judge::variance(record).for_each(&mut add);
            let why = self.report.comparison_of(record).and_then(|c| c.disagreement.as_ref());
            if let Some(why) = why {
                add(format!("{} differs from {}: {why}", record.label(), self.report.reference));
            }
        }
        let planned = self.report.missing;
        if planned > 0
            && !self.report.verdict.findings.iter().any(|f| f.contains("planned runs were not made"))
        {
            add(format!("{planned} of the planned runs were not made"));
        }
        findings
    }
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
