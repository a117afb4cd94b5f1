//! A finding as fields: cause, place, evidence, cure, next command.

use serde::{Deserialize, Serialize};

/// A disagreement or a failure. Its text is one of [`Verdict::findings`](super::report::Verdict::findings).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// All of it in one line.
    pub text: String,
    /// ID of the run that it belongs to, see [`Run`](super::report::Run).
    pub run_id: String,
    /// Backend name; empty if it is not about one backend.
    pub backend: String,
    /// Kind of the failure: "crash", "hang", "error", "difference", or a sentence.
    pub cause: String,
    /// Part of the run in which it happened.
    pub location: Location,
    /// Last words and last observations, one line each.
    pub evidence: Vec<String>,
    /// Known remedies, the most specific first.
    pub cure: Vec<String>,
    /// Command that reproduces it or narrows it down.
    pub next: Option<String>,
}

/// Part of a run in which a backend failed, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Location {
    /// Number of the model's units on the device, see [`Record::offload`](super::report::Record::offload).
    pub offload: Option<i64>,
    /// Phase.
    pub phase: Option<String>,
    /// Part of a model's work.
    pub step: Option<String>,
    /// Case of the operation catalogue.
    pub case: Option<String>,
    /// Node.
    pub node: Option<String>,
    /// The last call into a driver.
    pub call: Option<String>,
    /// The call whose work was waited for, if the last call only waits.
    pub waits_for: Option<String>,
}

impl From<String> for Finding {
    /// Creates a finding of which only the text is known.
    fn from(text: String) -> Finding {
        Finding { cause: text.clone(), text, ..Finding::default() }
    }
}

impl Finding {
    /// Creates a finding about a backend.
    pub(super) fn about(backend: &str, offload: i64, cause: impl Into<String>, text: String) -> Finding {
        let location = Location { offload: Some(offload), ..Location::default() };
        Finding { backend: backend.into(), cause: cause.into(), location, text, ..Finding::default() }
    }
}

impl Location {
    /// Returns the known parts with their names.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let offload = self.offload.filter(|offload| *offload >= 0).map(|offload| offload.to_string());
        let call = self.call.clone().filter(|_| self.waits_for.is_none());
        let parts = [
            ("offload", offload),
            ("case", self.case.clone()),
            ("phase", self.phase.clone()),
            ("step", self.step.clone()),
            ("node", self.node.clone()),
            ("waiting for", self.waits_for.clone()),
            ("last call", call),
        ];
        parts.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}
