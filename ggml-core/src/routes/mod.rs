//! Routes: the ways to compute a family of operations, or to use a mechanism of a driver, beyond the plain one.
//!
//! A backend has a table of its routes ([`Row`]). Each has a plain way in its place, so a device without any route
//! computes correctly. Which routes a device uses follows from what it can do, from the user's choice ([`Routes`]),
//! and from the [`Verdict`]s that were reached on the device itself and kept in a [`Record`].

mod candidate;
pub mod cards;
mod demote;
mod record;
mod tune;
mod verdict;

pub use candidate::{Candidate, Chosen, GAIN, choose_candidates, is_fastest, number};
pub use demote::demote;
pub use record::{Claim, Record, Refused};
pub use tune::TUNE;
pub use verdict::{Identity, State, Verdict, digest_of};

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A row of a backend's table of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name with the driver in front ("vulkan.matrix-products").
    pub name: &'static str,
    /// Description of the route, as part of a sentence.
    pub about: &'static str,
    /// Description of the plain way in its place.
    pub plain: &'static str,
    /// Name of the route without which this one has no effect.
    pub on_top_of: Option<&'static str>,
}

/// The routes of a backend, an enumeration in the order of its table.
pub trait Table: Copy + Eq + fmt::Debug + 'static {
    /// All routes.
    const ALL: &'static [Self];

    /// Returns the row of a route.
    fn row(self) -> &'static Row;
}

/// A set of a backend's routes: those that a device uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Used<R>(u32, PhantomData<R>);

impl<R: Table> Used<R> {
    /// Returns the set without routes.
    pub const fn none() -> Used<R> {
        Used(0, PhantomData)
    }

    /// Returns the set of the routes for which `is_used` is true.
    pub fn those(is_used: impl Fn(R) -> bool) -> Used<R> {
        R::ALL.iter().fold(Used::none(), |set, &route| if is_used(route) { set.with(route) } else { set })
    }

    fn bit(route: R) -> u32 {
        R::ALL.iter().position(|&other| other == route).map_or(0, |at| 1 << at)
    }

    /// True if a route is in the set.
    pub fn has(self, route: R) -> bool {
        self.0 & Used::bit(route) != 0
    }

    /// Returns the set with one more route.
    pub fn with(self, route: R) -> Used<R> {
        Used(self.0 | Used::bit(route), PhantomData)
    }

    /// Returns the set without a route.
    pub fn without(self, route: R) -> Used<R> {
        Used(self.0 & !Used::bit(route), PhantomData)
    }
}

impl<R: Table> fmt::Debug for Used<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(R::ALL.iter().filter(|&&route| self.has(route))).finish()
    }
}

/// The rule by which routes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Routes that were verified on the device, and those that are known to work on devices like it.
    #[default]
    Verified,
    /// No route.
    Plain,
    /// Every route that the device is capable of, whatever a verdict says.
    All,
}

/// Name of the variable that holds the user's choice of routes.
pub const VARIABLE: &str = "DIPTYCH_ROUTES";

/// Drivers that have routes: what a route's name begins with.
const DRIVERS: [&str; 2] = ["vulkan", "hip"];

/// The user's choice of routes: a policy, and routes and [candidates](Candidate) that are used or left out by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The policy for all other routes.
    pub policy: Policy,
    /// True to use the numbers of the tuning table, whatever was measured on the device.
    pub untuned: bool,
    named: Vec<(String, bool)>,
}

impl Routes {
    /// Accepted forms, for messages.
    pub const FORMS: &str = "verified, plain or all, untuned for the numbers of the tuning table, then +ROUTE or -ROUTE for single routes, separated by commas ('verified,-hip.graphs')";

    /// Returns the choice by a policy alone.
    pub fn by(policy: Policy) -> Routes {
        Routes { policy, untuned: false, named: Vec::new() }
    }

    /// Returns the choice with one route used or left out. It replaces an earlier word about the same route.
    pub fn with(mut self, route: &str, is_used: bool) -> Routes {
        self.named.retain(|(name, _)| name != route);
        self.named.push((route.to_string(), is_used));
        self
    }

    /// Returns the choice with a route used or left out unless it is named already.
    pub fn or(self, route: &str, is_used: bool) -> Routes {
        if self.asked(route).is_some() { self } else { self.with(route, is_used) }
    }

    /// Returns whether the user wants a route, if it is named.
    pub fn asked(&self, route: &str) -> Option<bool> {
        self.named.iter().find(|(name, _)| name == route).map(|(_, is_used)| *is_used)
    }

    /// Checks that the named routes of a driver are in its table, and the candidates in its list.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the unknown name and the names that there are.
    pub fn check<R: Table>(&self, candidates: impl IntoIterator<Item = &'static str>) -> Result<(), Error> {
        let routes = R::ALL.iter().map(|route| route.row().name);
        let names: Vec<&str> = routes.chain(candidates).collect();
        let driver = |name: &str| name.split('.').next().unwrap_or_default().to_string();
        let own = names.first().map(|name| driver(name)).unwrap_or_default();
        let unknown =
            self.named.iter().find(|(name, _)| driver(name) == own && !names.contains(&name.as_str()));
        match unknown {
            Some((name, _)) => {
                Err(Error::argument("route", format!("'{name}'"), format!("one of {}", names.join(", "))))
            }
            None => Ok(()),
        }
    }
}

impl FromStr for Routes {
    type Err = Error;

    /// Parses a policy and named routes, in any order; without a policy it is the default.
    fn from_str(text: &str) -> Result<Routes, Error> {
        let wrong = || Error::argument("routes", format!("'{text}'"), Routes::FORMS);
        let mut routes = Routes::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let named = match word.split_at_checked(1) {
                Some(("+", name)) => Some((name, true)),
                Some(("-", name)) => Some((name, false)),
                _ => None,
            };
            match (word, named) {
                (_, Some((name, is_used))) => {
                    let (driver, route) = name.split_once('.').ok_or_else(wrong)?;
                    if !DRIVERS.contains(&driver) || route.is_empty() {
                        return Err(wrong());
                    }
                    routes = routes.with(name, is_used);
                }
                ("untuned", _) => routes.untuned = true,
                ("verified", _) => routes.policy = Policy::Verified,
                ("plain", _) => routes.policy = Policy::Plain,
                ("all", _) => routes.policy = Policy::All,
                _ => return Err(wrong()),
            }
        }
        Ok(routes)
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.policy {
            Policy::Verified => "verified",
            Policy::Plain => "plain",
            Policy::All => "all",
        })?;
        if self.untuned {
            f.write_str(",untuned")?;
        }
        for (name, is_used) in &self.named {
            write!(f, ",{}{name}", if *is_used { '+' } else { '-' })?;
        }
        Ok(())
    }
}

/// Use of a route by a device, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteUse {
    /// Name of the route.
    pub name: String,
    /// Description of the route.
    pub about: String,
    /// True if the device uses it.
    pub used: bool,
    /// The reason.
    pub why: String,
    /// The verdict on it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The reason why the device cannot use it, or is known to gain nothing: then it is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Name of the route without which this one has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_top_of: Option<String>,
}

/// Ability of a device to use a route, before a choice is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Able {
    /// It lacks something, which is described.
    No(String),
    /// It can use the route, and devices like it were seen to do so correctly: used unless a verdict is against it.
    Known,
    /// It can use the route: used only after a verdict for it.
    Unproven,
    /// It can use the route, but a known reason is against it: used only if it is asked for by name.
    Against(String),
}

/// Chooses the routes of a device.
pub fn choose<R: Table>(
    routes: &Routes,
    able: impl Fn(R) -> Able,
    verdicts: &[Verdict],
) -> (Used<R>, Vec<RouteUse>) {
    let (mut used, mut uses) = (Used::none(), Vec::new());
    for &route in R::ALL {
        let row = route.row();
        let able = able(route);
        let verdict = verdicts.iter().find(|verdict| verdict.route == row.name).cloned();
        let base =
            row.on_top_of.is_some_and(|base| uses.iter().any(|u: &RouteUse| u.name == base && !u.used));
        let (is_used, why) = match &able {
            Able::No(lacks) => (false, lacks.clone()),
            _ if base => (false, format!("it is part of {}", row.on_top_of.unwrap_or_default())),
            Able::Against(why) if routes.asked(row.name).is_none() => (false, why.clone()),
            able => reason(routes, row.name, *able == Able::Known, verdict.as_ref()),
        };
        if is_used {
            used = used.with(route);
        }
        uses.push(RouteUse {
            name: row.name.into(),
            about: row.about.into(),
            used: is_used,
            why,
            verdict,
            lacks: match able {
                Able::No(lacks) | Able::Against(lacks) => Some(lacks),
                Able::Known | Able::Unproven => None,
            },
            on_top_of: row.on_top_of.map(String::from),
        });
    }
    (used, uses)
}

/// Decides about a route that a device is capable of.
fn reason(routes: &Routes, name: &str, is_known: bool, verdict: Option<&Verdict>) -> (bool, String) {
    match (routes.asked(name), routes.policy, verdict) {
        (Some(true), ..) => (true, "asked for".into()),
        (Some(false), ..) => (false, "left out as asked".into()),
        (None, Policy::Plain, _) => (false, "no route is used, as asked".into()),
        (None, Policy::All, _) => (true, "all routes are used, as asked".into()),
        (None, Policy::Verified, Some(verdict)) if verdict.state.decides() => {
            (verdict.state == State::Verified, verdict.sentence())
        }
        (None, Policy::Verified, _) if is_known => (true, "known to work on devices like this".into()),
        (None, Policy::Verified, Some(verdict)) => (false, verdict.sentence()),
        (None, Policy::Verified, None) => (false, "not verified on this device".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Trick {
        Units,
        Shared,
        Dots,
    }

    impl Table for Trick {
        const ALL: &'static [Trick] = &[Trick::Units, Trick::Shared, Trick::Dots];

        fn row(self) -> &'static Row {
            const ROWS: [Row; 3] = [
                Row { name: "hip.units", about: "units", plain: "none", on_top_of: None },
                Row { name: "hip.shared", about: "shared tiles", plain: "own", on_top_of: Some("hip.units") },
                Row { name: "hip.dots", about: "dots", plain: "floats", on_top_of: None },
            ];
            &ROWS[self as usize]
        }
    }

    fn able(way: Trick) -> Able {
        match way {
            Trick::Units | Trick::Shared => Able::Unproven,
            Trick::Dots => Able::Known,
        }
    }

    #[test]
    fn choices_are_read_back() {
        for text in
            ["verified", "plain", "all,-hip.graphs", "plain,untuned,+vulkan.matrix-products,-hip.graphs"]
        {
            assert_eq!(text.parse::<Routes>().unwrap().to_string(), text);
        }
        assert_eq!(" -hip.graphs ,".parse::<Routes>().unwrap().to_string(), "verified,-hip.graphs");
        let twice = "+hip.dots,-hip.dots".parse::<Routes>().unwrap();
        assert_eq!((twice.asked("hip.dots"), twice.asked("hip.units")), (Some(false), None));
        for wrong in ["graphs", "+graphs", "-cuda.graphs", "+hip.", "all plain", "+", "\u{e9}"] {
            let error = wrong.parse::<Routes>().unwrap_err().to_string();
            assert!(error.contains("+ROUTE"), "{wrong}: {error}");
        }
        let unknown = "-hip.graph,+vulkan.any".parse::<Routes>().unwrap().check::<Trick>([]).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "route: 'hip.graph'; expected one of hip.units, hip.shared, hip.dots"
        );
        assert!("-hip.dots,+vulkan.any".parse::<Routes>().unwrap().check::<Trick>([]).is_ok());
        let value = "+hip.rows=4".parse::<Routes>().unwrap();
        assert!(
            value.check::<Trick>(["hip.rows=4"]).is_ok() && value.check::<Trick>(["hip.rows=2"]).is_err()
        );
    }

    #[test]
    fn a_route_is_used_by_the_best_of_reasons() {
        let verdict = |route: &str, state| Verdict::new(route, state, "as tested");
        let used = |text: &str, verdicts: &[Verdict]| {
            let (used, uses) = choose(&text.parse().unwrap(), able, verdicts);
            assert!(uses.iter().all(|u| !u.why.is_empty()));
            Trick::ALL.iter().map(|&way| used.has(way)).collect::<Vec<_>>()
        };
        assert_eq!(used("", &[]), [false, false, true]);
        assert_eq!(used("plain", &[]), [false, false, false]);
        assert_eq!(used("all", &[verdict("hip.dots", State::Wrong)]), [true, true, true]);
        assert_eq!(used("plain,+hip.dots", &[]), [false, false, true]);
        for state in [State::Wrong, State::Crashed, State::Hung, State::Begun, State::Slower] {
            assert_eq!(used("", &[verdict("hip.dots", state)]), [false; 3], "{state:?}");
        }
        assert_eq!(used("", &[verdict("hip.dots", State::Unknown)]), [false, false, true]);
        let both = [verdict("hip.units", State::Verified), verdict("hip.shared", State::Verified)];
        assert_eq!(used("", &both), [true, true, true]);
        assert_eq!(used("-hip.units", &both), [false, false, true], "shared tiles are part of the units");
        let against = |_: Trick| Able::Against("it is slow".into());
        let (used, uses) = choose(&"all,+hip.dots".parse().unwrap(), against, &both);
        assert_eq!((used, uses[0].why.as_str()), (Used::none().with(Trick::Dots), "it is slow"));
        let (used, uses) =
            choose(&Routes::by(Policy::All), |_: Trick| Able::No("it lacks units".into()), &both);
        assert_eq!((used, uses[0].why.as_str()), (Used::none(), "it lacks units"));
        assert_eq!(format!("{:?}", Used::none().with(Trick::Dots).with(Trick::Units)), "{Units, Dots}");
        assert_eq!(
            Used::those(|way| way != Trick::Dots).without(Trick::Units),
            Used::none().with(Trick::Shared)
        );
    }
}
