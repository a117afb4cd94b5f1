//! Candidates: other values of the numbers in a backend's tuning table.
//!
//! The numbers of a table were measured on few cards. A candidate ("vulkan.vectors=256x4x4") is treated as a route whose
//! plain way is the table's value: it is proven and timed on the card itself, and its verdict is kept with those on routes.
//! It is used only if it is verified, and more than [`GAIN`] times as fast.

use super::{Policy, RouteUse, Routes, Row, State, Verdict};

/// Speed from which on a candidate is used, in speeds of the table's value.
pub const GAIN: f64 = 1.05;

/// Another value of a number in a backend's table of type `T`.
#[derive(Debug)]
pub struct Candidate<T: 'static> {
    /// Name of the number and the value ("vulkan.vectors=256x4x4"), with the description of the number.
    pub row: Row,
    /// Returns the table with this value.
    pub change: fn(&T) -> T,
}

impl<T> Candidate<T> {
    /// Creates a candidate; `on_top_of`: the route that it is part of.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        on_top_of: Option<&'static str>,
        change: fn(&T) -> T,
    ) -> Candidate<T> {
        Candidate { row: Row { name, about, plain: "the value of the tuning table", on_top_of }, change }
    }

    /// Returns the name of the number ("vulkan.vectors").
    pub fn number(&self) -> &'static str {
        number(self.row.name)
    }
}

/// Returns the name of the number that a candidate is a value of.
pub fn number(candidate: &str) -> &str {
    candidate.split_once('=').map_or(candidate, |(number, _)| number)
}

/// A set of candidates in a backend's list: those that a device uses, at most one for each number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chosen(u64);

impl Chosen {
    /// Returns the set without the candidate of a name.
    pub fn without<T>(self, list: &[Candidate<T>], name: &str) -> Chosen {
        match list.iter().position(|candidate| candidate.row.name == name) {
            Some(at) => Chosen(self.0 & !(1 << at)),
            None => self,
        }
    }

    /// Returns a table with the values of the candidates.
    pub fn apply<T>(self, table: T, list: &[Candidate<T>]) -> T {
        let used = list.iter().enumerate().filter(|(at, _)| self.0 & (1 << at) != 0);
        used.fold(table, |table, (_, candidate)| (candidate.change)(&table))
    }
}

/// Chooses candidates for a device. `fits` says whether the device could use a table; `has` says whether it uses a route.
/// Candidates that equal the table's value, or do not fit, are left out of the uses.
pub fn choose_candidates<T: PartialEq>(
    (table, list): (&T, &[Candidate<T>]),
    (fits, has): (impl Fn(&T) -> bool, impl Fn(&str) -> bool),
    routes: &Routes,
    verdicts: &[Verdict],
) -> (Chosen, Vec<RouteUse>) {
    let (mut chosen, mut uses) = (Chosen::default(), Vec::<RouteUse>::new());
    for (at, candidate) in list.iter().enumerate() {
        let value = (candidate.change)(table);
        if value == *table || !fits(&value) {
            continue;
        }
        let row = &candidate.row;
        let of = |name: &str| verdicts.iter().find(|verdict| verdict.route == name);
        let others = list.iter().filter(|other| other.number() == candidate.number());
        let asked = others.filter_map(|other| routes.asked(other.row.name)).any(|is_used| is_used);
        let base = row.on_top_of.filter(|base| !has(base));
        let taken = uses.iter().any(|u| u.used && number(&u.name) == candidate.number());
        let (used, why) = match (routes.asked(row.name), base, of(row.name)) {
            (_, Some(base), _) => (false, format!("it is part of {base}")),
            (Some(true), ..) => (!taken, "asked for".into()),
            (Some(false), ..) => (false, "left out as asked".into()),
            _ if asked => (false, "another value is used, as asked".into()),
            _ if routes.untuned || routes.policy != Policy::Verified => {
                (false, "the table's value is used, as asked".into())
            }
            (None, None, Some(verdict)) => (!taken && is_fastest(verdict, verdicts), verdict.sentence()),
            (None, None, None) => (false, "not measured on this device".into()),
        };
        if used {
            chosen.0 |= 1 << at;
        }
        uses.push(RouteUse {
            name: row.name.into(),
            about: row.about.into(),
            used,
            why,
            verdict: of(row.name).cloned(),
            // Nothing is measured for somebody who does not want it.
            lacks: routes.untuned.then(|| "the table's value is used, as asked".into()),
            on_top_of: row.on_top_of.map(String::from),
        });
    }
    (chosen, uses)
}

/// True for the verdict on the candidate of a number that is used: the fastest of those that are verified and fast enough.
pub fn is_fastest(verdict: &Verdict, verdicts: &[Verdict]) -> bool {
    let others = verdicts.iter().filter(|other| number(&other.route) == number(&verdict.route));
    let best = others.filter_map(gain).fold(GAIN, f64::max);
    gain(verdict).is_some_and(|gain| gain >= best)
}

/// Returns the gain of a candidate that was verified and is fast enough to be used.
fn gain(verdict: &Verdict) -> Option<f64> {
    verdict.gain.filter(|&gain| verdict.state == State::Verified && gain > GAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Numbers {
        rows: u32,
        split: u32,
    }

    const fn row(name: &'static str, on_top_of: Option<&'static str>) -> Row {
        Row { name, about: "rows", plain: "the table's", on_top_of }
    }

    const LIST: &[Candidate<Numbers>] = &[
        Candidate { row: row("hip.rows=2", Some("hip.dots")), change: |t| Numbers { rows: 2, ..*t } },
        Candidate { row: row("hip.rows=4", None), change: |t| Numbers { rows: 4, ..*t } },
        Candidate { row: row("hip.rows=8", None), change: |t| Numbers { rows: 8, ..*t } },
        Candidate { row: row("hip.split=9", None), change: |t| Numbers { split: 9, ..*t } },
        Candidate { row: row("hip.split=99", None), change: |t| Numbers { split: 99, ..*t } },
    ];
    const TABLE: Numbers = Numbers { rows: 4, split: 1 };

    fn tuned(text: &str, verdicts: &[Verdict], has_dots: bool) -> (Numbers, Vec<String>) {
        let of_device = (|numbers: &Numbers| numbers.split < 50, |_: &str| has_dots);
        let (chosen, uses) = choose_candidates((&TABLE, LIST), of_device, &text.parse().unwrap(), verdicts);
        assert!(uses.iter().all(|u| !u.why.is_empty()));
        (chosen.apply(TABLE, LIST), uses.into_iter().filter(|u| u.used).map(|u| u.name).collect())
    }

    fn verdict(name: &str, state: State, gain: f64) -> Verdict {
        Verdict { gain: Some(gain), ..Verdict::new(name, state, "as tested") }
    }

    /// The fastest of the verified is used, if it is fast enough; the table's own value and what does not fit are no
    /// candidates.
    #[test]
    fn the_best_of_the_verified_is_used() {
        let verified = |name: &str, gain| verdict(name, State::Verified, gain);
        let none = (TABLE, vec![]);
        assert_eq!(tuned("", &[], true), none);
        assert_eq!(tuned("", &[verified("hip.rows=2", 1.05), verified("hip.rows=4", 2.0)], true), none);
        assert_eq!(tuned("", &[verified("hip.split=99", 3.0)], true), none);
        for state in
            [State::Wrong, State::Crashed, State::Hung, State::Begun, State::NotFaster, State::Unknown]
        {
            assert_eq!(tuned("", &[verdict("hip.rows=8", state, 2.0)], true), none, "{state:?}");
        }
        let both = [verified("hip.rows=2", 1.2), verified("hip.rows=8", 1.3), verified("hip.split=9", 1.06)];
        let best = (Numbers { rows: 8, split: 9 }, vec!["hip.rows=8".to_string(), "hip.split=9".into()]);
        assert_eq!(tuned("", &both, true), best);
        let equal = [verified("hip.rows=2", 1.3), verified("hip.rows=8", 1.3)];
        assert_eq!(tuned("", &equal, true).1, ["hip.rows=2"]);
        for text in ["untuned", "plain", "all"] {
            assert_eq!(tuned(text, &both, true), none, "{text}");
        }
    }

    /// A value that is asked for is used whatever was measured, unless its route is missing.
    #[test]
    fn values_can_be_asked_for() {
        let fast = [verdict("hip.rows=8", State::Verified, 1.3)];
        assert_eq!(tuned("plain,+hip.rows=2", &fast, true).1, ["hip.rows=2"]);
        assert_eq!(tuned("+hip.rows=2", &fast, true).1, ["hip.rows=2"]);
        assert_eq!(tuned("-hip.rows=8", &fast, true).1, [""; 0]);
        assert_eq!(tuned("untuned,+hip.split=9", &fast, true).1, ["hip.split=9"]);
        assert_eq!(tuned("plain,+hip.rows=2", &fast, false).1, [""; 0]);
        let all = Chosen(0b01001);
        assert_eq!(all.without(LIST, "hip.rows=2").apply(TABLE, LIST), Numbers { rows: 4, split: 9 });
        assert_eq!(all.without(LIST, "hip.none=1"), all);
    }
}
