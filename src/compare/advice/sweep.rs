//! Runs of one backend with several numbers of units on the device, in one sentence: where it works and where it dies.

use crate::compare::circumstances;
use crate::compare::report::{EVERYTHING, Record, Report, Status};
use crate::statistics::Summary;

/// The runs of a backend under the same circumstances.
struct Sweep<'a> {
    backend: &'a str,
    /// Circumstances in which the runs of the report differ.
    circumstances: String,
    /// In the order of the number of units, "everything" last.
    points: Vec<Point<'a>>,
}

/// The runs with one number of units.
struct Point<'a> {
    offload: i64,
    records: Vec<(&'a Record, Outcome)>,
}

/// Outcome of one run, or of all runs with one number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Works,
    Differs,
    Fails,
    Dies,
    /// Some of the runs died.
    DiesSometimes,
}

impl Outcome {
    /// Returns the outcome of a run; `None` if the backend could not do the work.
    fn of(report: &Report, record: &Record) -> Option<Outcome> {
        let differs = || report.comparison_of(record).is_some_and(|c| c.disagreement.is_some());
        Some(match record.status {
            Status::Ok if differs() => Outcome::Differs,
            Status::Ok => Outcome::Works,
            Status::Error => Outcome::Fails,
            Status::Crash | Status::Hang => Outcome::Dies,
            // Somebody ended it: that says nothing about the backend.
            Status::Unsupported | Status::Ended => return None,
        })
    }

    fn verb(self) -> &'static str {
        match self {
            Outcome::Works => "works",
            Outcome::Differs => "differs",
            Outcome::Fails => "fails",
            Outcome::Dies => "dies",
            Outcome::DiesSometimes => "sometimes dies",
        }
    }
}

impl Point<'_> {
    fn outcome(&self) -> Outcome {
        let dead = self.dead().count();
        let worst = [Outcome::Fails, Outcome::Differs].into_iter();
        let mut worst = worst.filter(|outcome| self.records.iter().any(|(_, own)| own == outcome));
        match dead {
            0 => worst.next().unwrap_or(Outcome::Works),
            n if n == self.records.len() => Outcome::Dies,
            _ => Outcome::DiesSometimes,
        }
    }

    fn dead(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|(_, outcome)| *outcome == Outcome::Dies).map(|(record, _)| *record)
    }

    /// Returns "2.65 +- 0.06 s".
    fn seconds(&self) -> Option<String> {
        let summary = Summary::of(&self.dead().map(|r| r.elapsed_s).collect::<Vec<_>>())?;
        Some(match summary.n {
            1 => format!("{:.2} s", summary.mean),
            _ => format!("{:.2} +- {:.2} s", summary.mean, summary.sd),
        })
    }
}

/// Groups the runs of backends by their circumstances and number of units.
fn sweeps(report: &Report) -> Vec<Sweep<'_>> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for record in report.records.iter().filter(|r| r.case.is_none()) {
        let Some(outcome) = Outcome::of(report, record) else { continue };
        let circumstances = circumstances::of_record(report, record);
        let is_same = |s: &Sweep<'_>| s.backend == record.backend && s.circumstances == circumstances;
        let at = sweeps.iter().position(is_same).unwrap_or(sweeps.len());
        if at == sweeps.len() {
            sweeps.push(Sweep { backend: &record.backend, circumstances, points: Vec::new() });
        }
        let points = &mut sweeps[at].points;
        match points.iter_mut().find(|point| point.offload == record.offload) {
            Some(point) => point.records.push((record, outcome)),
            None => points.push(Point { offload: record.offload, records: vec![(record, outcome)] }),
        }
    }
    let order = |point: &Point<'_>| if point.offload == EVERYTHING { i64::MAX } else { point.offload };
    sweeps.iter_mut().for_each(|sweep| sweep.points.sort_by_key(order));
    sweeps
}

impl Sweep<'_> {
    /// Returns the smallest number of units with which every run dies, if all runs with fewer work and all with more
    /// die too.
    fn threshold(&self) -> Option<i64> {
        let outcomes: Vec<Outcome> = self.points.iter().map(Point::outcome).collect();
        let working = outcomes.iter().take_while(|outcome| **outcome == Outcome::Works).count();
        let all_die = outcomes[working..].iter().all(|outcome| *outcome == Outcome::Dies);
        let first = self.points.get(working).filter(|_| working > 0 && all_die)?;
        Some(first.offload)
    }

    /// Describes where the backend works and where it dies; `None` if there is one number of units, or nothing died.
    fn describe(&self) -> Option<String> {
        let dying: Vec<&Point<'_>> = self.points.iter().filter(|p| p.dead().next().is_some()).collect();
        if self.points.len() < 2 || dying.is_empty() {
            return None;
        }
        let clauses = match self.threshold() {
            Some(from) => {
                let (working, _) = self.points.split_at(self.points.len() - dying.len());
                format!("works at offload {}, dies from {from} on", list(working))
            }
            None => self.clauses(),
        };
        let dead: usize = dying.iter().map(|p| p.dead().count()).sum();
        let runs: usize = dying.iter().map(|p| p.records.len()).sum();
        let times = dying.iter().filter_map(|point| {
            let at = if dying.len() > 1 { format!(" at {}", point.offload) } else { String::new() };
            Some(format!("{}{at}", point.seconds()?))
        });
        let times: Vec<String> = times.collect();
        let location = self.location().unwrap_or_default();
        let times = times.join(", ");
        Some(format!("{clauses}: {dead} of {runs} runs, {times} after the start{location}"))
    }

    /// Lists the outcomes with the numbers of units that have them: "works at offload 0 and 2, dies at 1".
    fn clauses(&self) -> String {
        let mut by_outcome: Vec<(Outcome, Vec<&Point<'_>>)> = Vec::new();
        for point in &self.points {
            match by_outcome.iter_mut().find(|(outcome, _)| *outcome == point.outcome()) {
                Some((_, points)) => points.push(point),
                None => by_outcome.push((point.outcome(), vec![point])),
            }
        }
        let clause = |(at, (outcome, points)): (usize, &(Outcome, Vec<&Point<'_>>))| {
            let offload = if at == 0 { "offload " } else { "" };
            format!("{} at {offload}{}", outcome.verb(), list(points.iter().copied()))
        };
        by_outcome.iter().enumerate().map(clause).collect::<Vec<_>>().join(", ")
    }

    /// Describes phase and node, if all dead runs have the same.
    fn location(&self) -> Option<String> {
        let mut dead = self.points.iter().flat_map(Point::dead);
        let first = dead.next()?;
        let rest: Vec<&Record> = dead.collect();
        let phase = first.phase.as_ref().filter(|_| rest.iter().all(|r| r.phase == first.phase))?;
        let node = first.node.as_ref().filter(|_| rest.iter().all(|r| r.node == first.node));
        Some(format!(", in phase {phase}{}", node.map(|n| format!(" at node '{n}'")).unwrap_or_default()))
    }
}

/// Lists numbers of units: "0, 1 and 3".
fn list<'a>(points: impl IntoIterator<Item = &'a Point<'a>>) -> String {
    let numbers: Vec<String> = points.into_iter().map(|point| point.offload.to_string()).collect();
    match numbers.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Describes the runs of a record's backend, if they have several numbers of units and some died.
pub(super) fn of_record(report: &Report, record: &Record) -> Option<String> {
    let is_own = |point: &Point<'_>| point.records.iter().any(|(own, _)| std::ptr::eq(*own, record));
    let sweep = sweeps(report).into_iter().find(|sweep| sweep.points.iter().any(is_own))?;
    Some(format!("{} {}", sweep.backend, sweep.describe()?))
}

/// Returns a sentence for each backend that works with some numbers of units and dies with others. Over several runs
/// it says the circumstances, and that the failure is conditional if it is.
pub(in crate::compare) fn patterns(report: &Report) -> Vec<String> {
    let sentence = |sweep: &Sweep<'_>| {
        let described = sweep.describe()?;
        let mut name = sweep.backend.to_string();
        if !sweep.circumstances.is_empty() {
            name = format!("{name} ({})", sweep.circumstances);
        }
        Some(match sweep.threshold().filter(|_| report.runs.len() > 1) {
            Some(EVERYTHING) => format!("{name}: conditional on everything on the device: {described}"),
            Some(from) => format!("{name}: conditional on offload >= {from}: {described}"),
            None => format!("{name} {described}"),
        })
    };
    sweeps(report).iter().filter_map(sentence).collect()
}
