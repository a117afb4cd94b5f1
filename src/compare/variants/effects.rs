//! Effects of variants in sentences: which one helps, which one gets further, which one breaks something.

use super::super::report::{Record, Report, Status, label};
use crate::backends::BackendName;
use crate::compare::advice::exclusion;
use crate::statistics::Summary;
use ggml_core::Phase;
use std::cmp::Ordering;

/// The smallest gain in speed that is worth a sentence.
const GAIN: f64 = 1.05;

/// All runs of a backend with one offload and one variant.
pub(super) struct Group<'a> {
    pub(super) run_id: &'a str,
    pub(super) backend: &'a str,
    pub(super) offload: i64,
    /// Name of the variant; `None` for the plain runs.
    pub(super) variant: Option<&'a str>,
    pub(super) records: Vec<&'a Record>,
    /// The runs without results, or with results that differ from the reference's.
    bad: Vec<&'a Record>,
}

impl<'a> Group<'a> {
    /// Collects the records of the backends that have variants, the plain runs of each before its variants.
    pub(super) fn all(report: &'a Report) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let of = |r: &'a Record| (r.run_id.as_str(), r.backend.as_str(), r.offload);
        let mut targets: Vec<(&str, &str, i64)> = Vec::new();
        for record in report.records.iter().filter(|r| r.variant.is_some()) {
            if !targets.contains(&of(record)) {
                targets.push(of(record));
            }
        }
        for target in targets {
            let own = || report.records.iter().filter(|r| r.case.is_none() && of(r) == target);
            let plain = own().filter(|r| r.variant.is_none());
            for record in plain.chain(own().filter(|r| r.variant.is_some())) {
                let (run_id, backend, offload) = target;
                let variant = record.variant.as_deref();
                let known =
                    |g: &Group<'_>| ((g.run_id, g.backend, g.offload), g.variant) == (target, variant);
                let at = groups.iter().position(known).unwrap_or_else(|| {
                    let (records, bad) = (Vec::new(), Vec::new());
                    groups.push(Group { run_id, backend, offload, variant, records, bad });
                    groups.len() - 1
                });
                groups[at].records.push(record);
                if !agrees(report, record) {
                    groups[at].bad.push(record);
                }
            }
        }
        groups
    }

    /// Returns the name of the row.
    pub(super) fn name(&self) -> &str {
        self.variant.unwrap_or(super::super::variant_rows::DEFAULT)
    }

    pub(super) fn label(&self) -> String {
        label(self.backend, self.offload)
    }

    /// True if it is about the same backend with the same offload.
    fn is_alike(&self, other: &Group<'_>) -> bool {
        (self.run_id, self.backend, self.offload) == (other.run_id, other.backend, other.offload)
    }

    /// Returns the number of runs with results that agree with the reference's.
    pub(super) fn ok(&self) -> usize {
        self.records.len() - self.bad.len()
    }

    /// True if every run has results that agree.
    pub(super) fn is_good(&self) -> bool {
        self.bad.is_empty()
    }

    /// Compares the shares of good runs.
    pub(super) fn compare_share(&self, other: &Group<'_>) -> Ordering {
        (self.ok() * other.records.len()).cmp(&(other.ok() * self.records.len()))
    }

    /// Returns the bad run that got least far, or any run if none is bad.
    pub(super) fn worst(&self) -> Option<&'a Record> {
        let bad = self.bad.iter().copied().min_by_key(|record| progress(record));
        bad.or(self.records.first().copied())
    }

    /// Returns how far that run got.
    pub(super) fn progress(&self) -> Progress {
        self.worst().map(progress).unwrap_or_default()
    }

    /// Returns the mean of the tokens generated per second, if there is one.
    pub(super) fn tokens_per_s(&self) -> Option<f64> {
        mean(self.records.iter().filter_map(|r| r.tokens_per_s))
    }

    /// Returns the mean number of seconds of its processes.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        mean(self.records.iter().map(|r| r.elapsed_s))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    Summary::of(&values.collect::<Vec<_>>()).map(|summary| summary.mean)
}

/// True if a run has sound results, and they agree with the reference's or nothing was compared.
fn agrees(report: &Report, record: &Record) -> bool {
    let differs = report.comparison_of(record).is_some_and(|c| c.disagreement.is_some());
    record.is_sound() && !differs
}

/// Distance that a run went: true at its end, the furthest phase that it entered, the part of the work.
pub(super) type Progress = (bool, Option<usize>, usize);

/// Returns how far a run got.
pub(super) fn progress(record: &Record) -> Progress {
    let furthest = record.furthest.as_deref();
    let phase = Phase::ALL.iter().position(|phase| Some(phase.name()) == furthest);
    let step = record.step.as_deref().map_or(0, |step| {
        let number = step.rsplit(' ').next().and_then(|n| n.parse::<usize>().ok());
        1 + number.unwrap_or(0)
    });
    (record.status == Status::Ok, phase, step)
}

/// Describes the outcome of a run in a few words.
pub(super) fn outcome(report: &Report, record: &Record) -> String {
    let phase = record.phase.as_ref().map_or(String::new(), |phase| format!(" in {phase}"));
    match record.status {
        Status::Ok if agrees(report, record) => "ok".into(),
        Status::Ok if !record.is_sound() => "unstable or invalid".into(),
        Status::Ok => "differs".into(),
        Status::Unsupported => "cannot run".into(),
        Status::Hang => format!("hang{phase}"),
        Status::Crash => {
            let signal = record.signal.as_ref().map_or(String::new(), |signal| format!(" ({signal})"));
            format!("crash{phase}{signal}")
        }
        Status::Ended => format!("ended from outside{phase}"),
        Status::Error => format!("error{phase}"),
    }
}

/// Describes a failure without its time.
fn failure(record: &Record) -> String {
    let phase = record.phase.as_deref().unwrap_or("an unknown phase");
    match record.status {
        Status::Hang => format!("the hang in {phase}"),
        Status::Crash => format!("the crash in {phase}"),
        Status::Ok => "a difference".into(),
        Status::Unsupported => "it cannot run".into(),
        Status::Ended => "it was ended from outside".into(),
        Status::Error => format!("the error in {phase}"),
    }
}

/// Returns a sentence for each effect of a variant.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let groups = Group::all(report);
    let mut all = Vec::new();
    for plain in groups.iter().filter(|g| g.variant.is_none()) {
        let rows: Vec<&Group<'_>> =
            groups.iter().filter(|g| g.variant.is_some() && g.is_alike(plain)).collect();
        let effects: Vec<String> = rows.iter().filter_map(|row| effect(plain, row)).collect();
        let none = effects.is_empty() && !plain.is_good();
        all.extend(effects);
        if none {
            let outcome = plain.worst().map_or(String::new(), |worst| {
                format!(": {} after {:.1} s", outcome(report, worst), worst.elapsed_s)
            });
            all.push(format!("no variant helps {}{outcome}", plain.label()));
        }
        all.extend(fastest(plain, &rows));
    }
    all
}

/// Describes the effect of a variant; `None` if it changes nothing.
fn effect(plain: &Group<'_>, row: &Group<'_>) -> Option<String> {
    let (name, label) = (row.name(), row.label());
    let counts = |g: &Group<'_>| format!("{} of {}", g.ok(), g.records.len());
    let shares = || format!("{}, default {}", counts(row), counts(plain));
    match row.compare_share(plain) {
        Ordering::Greater if row.is_good() => Some(format!("{name} helps {label}: {}", shares())),
        Ordering::Greater => Some(format!("{name} helps {label} at times: {}", shares())),
        Ordering::Less => {
            let how = row.worst().map_or(String::new(), failure);
            Some(format!("{name} breaks {label}: {how}; {}", shares()))
        }
        Ordering::Equal if row.is_good() || row.progress() <= plain.progress() => None,
        Ordering::Equal => {
            let (from, to) = (plain.worst()?, row.worst()?);
            let past = from.phase.as_deref().unwrap_or("this phase");
            if from.furthest == to.furthest {
                let [from, to] = [from, to].map(|r| r.step.as_deref().unwrap_or("its beginning"));
                return Some(format!("{name} gets {label} further in {past}: from {from} to {to}"));
            }
            Some(format!("{name} gets {label} past {past}; {} remains", failure(to)))
        }
    }
}

/// Describes the variant that is faster than the plain runs, if all of both are good. An emulated card has no times
/// that are worth comparing.
fn fastest(plain: &Group<'_>, rows: &[&Group<'_>]) -> Option<String> {
    let emulated = plain.backend.parse().is_ok_and(|name: BackendName| name.is_emulated());
    let base = plain.tokens_per_s().filter(|_| plain.is_good() && !emulated)?;
    let timed = rows.iter().filter(|row| row.is_good()).filter_map(|row| Some((row, row.tokens_per_s()?)));
    let (row, speed) = timed.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let gain = speed / base;
    (gain >= GAIN).then(|| {
        format!("{} is {gain:.2} x default on {}: {speed:.1} and {base:.1} tokens/s", row.name(), row.label())
    })
}

/// Returns how to use the first variant that cures a backend, as the end of a sentence; `None` if there is none. It has
/// to be good with every number of units on the device, since the default is all of them, and compared. Emulated cards
/// and drivers that compute on the processor are not recommended.
pub(super) fn usage(report: &Report) -> Option<String> {
    let groups = Group::all(report);
    let plain = |row: &Group<'_>| groups.iter().find(|g| g.variant.is_none() && g.is_alike(row));
    let compared = |row: &Group<'_>| {
        row.records.iter().all(|r| report.comparison_of(r).is_some_and(|c| c.disagreement.is_none()))
    };
    let is_cure = |row: &&Group<'_>| {
        let of = (row.run_id, row.backend, row.variant);
        let mut same = groups.iter().filter(|g| (g.run_id, g.backend, g.variant) == of);
        let cures = row.variant.is_some() && plain(row).is_some_and(|g| !g.is_good());
        cures && same.all(|g| g.is_good() && compared(g)) && exclusion(report, row.backend).is_none()
    };
    let row = groups.iter().find(is_cure)?;
    let settings = report.variants.iter().find(|known| Some(known.name.as_str()) == row.variant)?;
    Some(format!("; or --backend {} with {}", row.backend, settings.usage()))
}

#[cfg(test)]
mod tests {
    use super::super::super::CompareOptions;
    use super::super::super::report::Comparison;
    use super::*;

    /// Returns a report of one backend: the name of each row, its status, phase and speed.
    fn report(rows: &[(&str, Status, &str, f64)]) -> Report {
        let mut report = Report::new(&CompareOptions::default());
        let record = |(variant, status, phase, speed): &(&str, Status, &str, f64)| Record {
            backend: "hip".into(),
            offload: -1,
            variant: (!variant.is_empty()).then(|| variant.to_string()),
            status: *status,
            phase: (*status != Status::Ok).then(|| phase.to_string()),
            furthest: Some(phase.to_string()),
            tokens_per_s: (*speed > 0.0).then_some(*speed),
            elapsed_s: 2.0,
            ..Record::default()
        };
        report.records = rows.iter().map(record).collect();
        let good = report.records.iter().filter(|r| r.status == Status::Ok);
        let compared = good.map(|r| Comparison {
            lhs: r.backend.clone(),
            offload: r.offload,
            variant: r.variant.clone(),
            ..Comparison::default()
        });
        report.comparisons = compared.collect();
        report.variants = vec!["copies=kernel".parse().unwrap()];
        report
    }

    #[test]
    fn effects_are_sentences() {
        use Status::{Crash, Hang, Ok};
        let upload = ("", Hang, "upload", 0.0);
        for (rows, sentences) in [
            (
                vec![
                    upload,
                    upload,
                    ("a", Ok, "close", 9.0),
                    ("a", Ok, "close", 9.0),
                    ("b", Hang, "upload", 0.0),
                ],
                vec!["a helps hip: 2 of 2, default 0 of 2"],
            ),
            (
                vec![upload, upload, ("a", Ok, "close", 9.0), ("a", Hang, "upload", 0.0)],
                vec!["a helps hip at times: 1 of 2, default 0 of 2"],
            ),
            (
                vec![upload, ("a", Crash, "first_compute", 0.0)],
                vec!["a gets hip past upload; the crash in first_compute remains"],
            ),
            (
                vec![upload, ("a", Hang, "open_device", 0.0)],
                vec!["no variant helps hip: hang in upload after 2.0 s"],
            ),
            (
                vec![("", Ok, "close", 60.0), ("a", Ok, "close", 66.0), ("b", Hang, "upload", 0.0)],
                vec![
                    "b breaks hip: the hang in upload; 0 of 1, default 1 of 1",
                    "a is 1.10 x default on hip: 66.0 and 60.0 tokens/s",
                ],
            ),
            (vec![("", Ok, "close", 60.0), ("a", Ok, "close", 61.0)], vec![]),
            (vec![upload], vec![]),
            (
                vec![("", Hang, "open_device", 0.0), ("a", Hang, "upload", 0.0)],
                vec!["a gets hip past open_device; the hang in upload remains"],
            ),
        ] {
            assert_eq!(self::sentences(&report(&rows)), sentences, "{rows:?}");
        }
    }

    #[test]
    fn the_cure_is_in_the_advice() {
        let cured = report(&[("", Status::Hang, "upload", 0.0), ("copies=kernel", Status::Ok, "close", 0.0)]);
        assert_eq!(usage(&cured).unwrap(), "; or --backend hip with DIPTYCH_HIP_COPIES=kernel");
        let but = |change: &dyn Fn(&mut Report)| {
            let mut changed = cured.clone();
            change(&mut changed);
            usage(&changed)
        };
        assert_eq!(but(&|r| r.comparisons.clear()), None, "nothing says that its results are right");
        assert_eq!(but(&|r| r.records[1].unstable = 1), None);
        assert_eq!(but(&|r| r.records[1].invalid_logits = 1), None);
        let hang_of_all = |r: &mut Report| {
            let hang = Record { offload: 3, status: Status::Hang, ..r.records[1].clone() };
            r.records.push(hang);
        };
        assert_eq!(but(&hang_of_all), None, "it is no cure for every number of units");
        let emulated = |r: &mut Report| {
            r.records.iter_mut().for_each(|r| r.backend = "hip-virtual:gfx906".into());
            r.comparisons.iter_mut().for_each(|c| c.lhs = "hip-virtual:gfx906".into());
        };
        assert_eq!(but(&emulated), None);
        let good = report(&[("", Status::Ok, "close", 0.0), ("copies=kernel", Status::Ok, "close", 0.0)]);
        assert_eq!(usage(&good), None);
    }

    /// Progress within a phase is progress too.
    #[test]
    fn a_later_step_is_further() {
        use Status::Hang;
        let mut further = report(&[("", Hang, "compute", 0.0), ("a", Hang, "compute", 0.0)]);
        further.records[1].step = Some("decode step 12".into());
        assert_eq!(
            sentences(&further),
            ["a gets hip further in compute: from its beginning to decode step 12"]
        );
        further.records[0].step = Some("decode step 2".into());
        assert_eq!(
            sentences(&further),
            ["a gets hip further in compute: from decode step 2 to decode step 12"]
        );
        further.records[0].step = Some("decode step 13".into());
        assert_eq!(sentences(&further), ["no variant helps hip: hang in compute after 2.0 s"]);
    }
}
