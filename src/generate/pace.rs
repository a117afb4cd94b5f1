//! Number of tokens to draft: as many as pay, by what was accepted and by measured times.

use std::time::Duration;

/// Steps without drafts at the beginning, whose time is what a step with drafts has to beat.
const PLAIN: u32 = 4;

/// Steps with drafts before which they are not given up, and steps of each later try.
const TRIED: u32 = 4;
const RETRIED: u32 = 3;

/// Number of later tries that fail before there are no more drafts.
const FAILED: u32 = 2;

/// Steps without drafts after which drafts that did not pay are tried again, the first time. A model that drafts has to
/// compute what it has missed, so each pause is twice as long as the one before.
const PAUSE: u32 = 256;

/// Number of drafts of the first step that has some.
const FIRST: usize = 3;

/// Time of a step with some number of drafts.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Seconds, a moving average.
    seconds: f64,
    /// Number of steps. The first one prepares a program and does not count.
    steps: u32,
}

impl Cost {
    fn known(&self) -> Option<f64> {
        (self.steps > 1).then_some(self.seconds)
    }

    fn add(&mut self, seconds: f64) {
        self.seconds = match self.steps {
            0 | 1 => seconds,
            // A step that something else has held up counts little.
            _ => 0.75 * self.seconds + 0.25 * seconds.min(2.0 * self.seconds),
        };
        self.steps += 1;
    }
}

/// Chooses the number of drafts of each step.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Costs by number of drafts, from none to the maximum.
    costs: Vec<Cost>,
    /// Share of the drafts that are accepted, of those whose predecessors were: a moving average.
    accepted: f64,
    /// Steps with drafts.
    tried: u32,
    /// Steps without drafts since the last with some, and the number after which drafts are tried again.
    plain: u32,
    pause: u32,
    /// Steps of the present try that are left.
    trying: u32,
    /// Later tries that have failed, one after the other.
    failed: u32,
    /// True after it was found that drafts do not pay.
    gave_up: bool,
}

impl Pace {
    /// Creates the choice of up to `most` drafts.
    pub(super) fn new(most: usize) -> Pace {
        Pace {
            costs: vec![Cost::default(); most + 1],
            accepted: 0.8,
            tried: 0,
            plain: 0,
            pause: PAUSE,
            trying: 0,
            failed: 0,
            gave_up: false,
        }
    }

    /// Returns the number of drafts of the next step.
    pub(super) fn next(&self) -> usize {
        let most = self.costs.len() - 1;
        if most == 0 || self.costs[0].steps < PLAIN {
            return 0;
        }
        if self.tried < TRIED {
            return most.min(FIRST);
        }
        let best = self.best();
        if best == 0 && (self.trying > 0 || self.plain >= self.pause) { 1 } else { best }
    }

    /// Records a step: the number of its drafts, of those accepted, and its time with the time of drafting.
    pub(super) fn add(&mut self, drafts: usize, accepted: usize, time: Duration) {
        let Some(cost) = self.costs.get_mut(drafts) else { return };
        cost.add(time.as_secs_f64());
        for i in 0..drafts.min(accepted + 1) {
            self.accepted += (f64::from(u8::from(i < accepted)) - self.accepted) / 16.0;
        }
        if drafts == 0 {
            self.plain = self.plain.saturating_add(1);
        } else {
            if self.plain >= self.pause {
                self.pause = self.pause.saturating_mul(2);
                self.trying = RETRIED;
            }
            if self.trying > 0 {
                self.trying -= 1;
                let pays = self.best() > 0;
                self.failed = if pays { 0 } else { self.failed + u32::from(self.trying == 0) };
            }
            self.plain = 0;
            self.tried = self.tried.saturating_add(1);
        }
    }

    /// Returns a sentence once, when drafts have turned out not to pay.
    pub(super) fn news(&mut self) -> Option<String> {
        if self.gave_up || self.tried < TRIED || self.best() > 0 {
            return None;
        }
        self.gave_up = true;
        let some = (1..self.costs.len()).find(|&n| self.costs[n].known().is_some())?;
        let times = self.time(some) / self.time(0);
        let share = 100.0 * self.accepted;
        Some(format!(
            "drafts do not pay and are hardly tried from now on: {share:.0} % are accepted, and a step with {some} takes {times:.2} times a step without"
        ))
    }

    /// True if drafts were tried so often that it is not worth going on.
    pub(super) fn is_over(&self) -> bool {
        self.failed >= FAILED
    }

    /// Returns the number of drafts with the most tokens per second.
    fn best(&self) -> usize {
        let speed = |drafts: usize| self.tokens(drafts) / self.time(drafts);
        (0..self.costs.len()).max_by(|&a, &b| speed(a).total_cmp(&speed(b)).then(b.cmp(&a))).unwrap_or(0)
    }

    /// Returns the number of tokens to expect of a step: its own, and each draft if all before it are accepted.
    fn tokens(&self, drafts: usize) -> f64 {
        (0..=drafts as i32).map(|i| self.accepted.powi(i)).sum()
    }

    /// Returns the seconds of a step: measured, or on the line through the steps nearest to it.
    fn time(&self, drafts: usize) -> f64 {
        if let Some(seconds) = self.costs[drafts].known() {
            return seconds;
        }
        let known = |n: usize| self.costs[n].known().map(|seconds| (n as f64, seconds));
        let below = (0..drafts).rev().find_map(known);
        let above = (drafts + 1..self.costs.len()).find_map(known);
        let first = known(0);
        let (from, to) = match (below, above, first) {
            (Some(below), Some(above), _) => (below, above),
            (Some(below), None, Some(first)) if below.0 > 0.0 => (first, below),
            _ => return below.or(above).map_or(f64::INFINITY, |(_, seconds)| seconds),
        };
        from.1 + (drafts as f64 - from.0) * (to.1 - from.1) / (to.0 - from.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps that take `time(drafts)` and accept `accepted` of ten drafts; returns the numbers of drafts.
    fn run(most: usize, steps: usize, accepted: usize, time: impl Fn(usize) -> u64) -> (Vec<usize>, Pace) {
        let (mut pace, mut drawn, mut all) = (Pace::new(most), 0, Vec::new());
        for _ in 0..steps {
            let drafts = pace.next();
            let mut kept = 0;
            while kept < drafts {
                drawn += 7;
                if drawn % 10 >= accepted {
                    break;
                }
                kept += 1;
            }
            pace.add(drafts, kept, Duration::from_micros(time(drafts)));
            all.push(drafts);
        }
        (all, pace)
    }

    #[test]
    fn as_many_are_drafted_as_pay() {
        // Steps cost the same whatever the drafts: all that are allowed.
        let (all, _) = run(6, 100, 9, |_| 1000);
        assert_eq!((&all[..5], all[99]), (&[0, 0, 0, 0, 3][..], 6));
        // Each draft costs half a step: few are worth it.
        let (all, _) = run(6, 200, 7, |n| 1000 + 500 * n as u64);
        assert!((1..=2).contains(&all[199]), "{all:?}");
        assert!(run(0, 10, 9, |_| 1000).0.iter().all(|&n| n == 0));
    }

    #[test]
    fn what_does_not_pay_is_given_up_and_tried_again_rarely() {
        let (all, mut pace) = run(4, 700, 0, |n| 1000 + 300 * n as u64);
        let later = &all[40..];
        let tried = later.iter().filter(|&&n| n > 0).count();
        assert_eq!((tried, pace.is_over()), (RETRIED as usize, false));
        let news = pace.news().expect("a sentence");
        assert!(news.starts_with("drafts do not pay"), "{news}");
        assert_eq!(pace.news(), None);
        // Later they pay.
        for _ in 0..5000 {
            let drafts = pace.next();
            pace.add(drafts, drafts, Duration::from_micros(1000));
        }
        assert!(pace.next() > 0 && !pace.is_over());
        assert!(run(4, 2000, 0, |n| 1000 + 300 * n as u64).1.is_over());
        // Drafts of a first measurement that was wrong.
        let (all, _) = run(4, 700, 9, |n| if n == 3 { 9000 } else { 1000 + 200 * n as u64 });
        assert!(all[300..].iter().all(|&n| n == 1), "{all:?}");
    }
}
