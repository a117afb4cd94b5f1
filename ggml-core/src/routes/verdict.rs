//! Verdicts on routes, and the identity of the device that they are valid for.

use crate::hash::Fnv1a;
use serde::{Deserialize, Serialize};
use std::fmt;

/// State of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The checks have begun. Found later, it means that they ended the process or the machine.
    Begun,
    /// All checks passed, and the route is not slower.
    Verified,
    /// A result was wrong, or had other bits in another run.
    Wrong,
    /// The process died.
    Crashed,
    /// A deadline passed.
    Hung,
    /// The results are right, but the plain way is faster.
    Slower,
    /// The first results are right, but a [candidate](super::Candidate) is not faster enough than the table's value, which
    /// stays in use.
    NotFaster,
    /// The checks did not come to an end, for a reason that says nothing about the route: time ran out, or memory was
    /// short.
    Unknown,
}

impl State {
    /// Returns the word in reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Begun => "begun",
            State::Verified => "verified",
            State::Wrong => "wrong",
            State::Crashed => "crashed",
            State::Hung => "hung",
            State::Slower => "slower",
            State::NotFaster => "not faster",
            State::Unknown => "unknown",
        }
    }

    /// True if the verdict stands: the route is not checked again on the same device.
    pub fn decides(self) -> bool {
        self != State::Unknown
    }
}

/// Verdict on a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the route.
    pub route: String,
    /// The state.
    pub state: State,
    /// The number of checks that passed, or the first that failed.
    pub evidence: String,
    /// Time of the plain way divided by that of the route, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Weights that products of one token read in the plain way and with the route, in GB/s (10^9 bytes), if that was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<[f64; 2]>,
    /// True if checks were left out for lack of time.
    #[serde(default)]
    pub partial: bool,
}

impl Verdict {
    /// Creates a verdict without a gain.
    pub fn new(route: &str, state: State, evidence: impl Into<String>) -> Verdict {
        Verdict {
            route: route.into(),
            state,
            evidence: evidence.into(),
            gain: None,
            bandwidth: None,
            partial: false,
        }
    }

    /// Returns state, gain and evidence, as a reason.
    pub fn sentence(&self) -> String {
        let gain = self.gain.map_or(String::new(), |gain| format!(", {gain:.2} times the speed"));
        let read = self.bandwidth.map_or(String::new(), |[plain, route]| {
            format!(" (weights of one token at {route:.0} GB/s, {plain:.0} without it)")
        });
        let gain = gain + &read;
        let evidence = match self.state {
            State::Begun => "an earlier check did not come to an end",
            _ => self.evidence.as_str(),
        };
        match evidence {
            "" => format!("{}{gain}", self.state.name()),
            evidence => format!("{}{gain}: {evidence}", self.state.name()),
        }
    }
}

/// Identity of a device for verdicts: everything that they depend on, by name. With another driver, kernel,
/// firmware or code the routes are checked anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity(pub Vec<(String, String)>);

/// Returns a digest of a backend's tuning table, for an identity.
pub fn digest_of(table: &impl fmt::Debug) -> String {
    format!("{:016x}", Fnv1a::of(format!("{table:?}").as_bytes()))
}

impl Identity {
    /// Returns the name of the record's file.
    pub fn file_name(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            text += &format!("{name}\0{value}\0");
        }
        let driver = self.0.first().map_or("device", |(_, driver)| driver.as_str());
        let plain = driver.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        format!("{plain}-{:016x}.json", Fnv1a::of(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_digests() {
        #[derive(Debug)]
        struct Table {
            _rows: u32,
        }
        let [one, two] = [1, 2].map(|rows| digest_of(&Table { _rows: rows }));
        assert!(one != two && one == digest_of(&Table { _rows: 1 }));
    }

    #[test]
    fn sentences() {
        let verdict = Verdict { gain: Some(1.5), ..Verdict::new("hip.units", State::Verified, "9 cases") };
        assert_eq!(verdict.sentence(), "verified, 1.50 times the speed: 9 cases");
        let begun = Verdict::new("hip.units", State::Begun, "");
        assert_eq!(begun.sentence(), "begun: an earlier check did not come to an end");
        assert_eq!(Verdict::new("hip.units", State::Slower, "").sentence(), "slower");
    }

    #[test]
    fn another_part_is_another_file() {
        let of = |pairs: &[(&str, &str)]| {
            Identity(pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()).file_name()
        };
        let one = of(&[("driver", "vulkan"), ("kernel", "6.1")]);
        assert!(one.starts_with("vulkan-") && one.ends_with(".json") && one.len() == 28, "{one}");
        assert_ne!(one, of(&[("driver", "vulkan"), ("kernel", "6.2")]));
        assert_ne!(of(&[("a", "b"), ("c", "")]), of(&[("a", ""), ("b", "c")]));
        assert!(of(&[("driver", "../x/y")]).starts_with("xy-"));
    }
}
