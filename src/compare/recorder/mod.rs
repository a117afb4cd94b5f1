//! The flight recorder: what happens in a run, in files of its folder, every event before the act that it announces.
//!
//! Each child appends its [`Message`](super::protocol::Message)s to a file of its own, the parent appends
//! [`RunEvent`]s to another. Nothing but these files is needed to make the records of a run: the parent of a run that is
//! going on reads them as they grow, a report reads them when child, parent or machine are gone. One event is one line of
//! JSON. Files begin with room for events, so that those of the last moments need no space on a disk that is full.

mod account;
mod reader;
mod writer;

pub(super) use account::{Account, ChildOutcome, UNHEARD};
pub(super) use reader::{Follower, read};
pub(super) use writer::{Sync, Writer, create};

use super::report::Stuck;
use serde::{Deserialize, Serialize};

/// An event and when it was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Timed<E> {
    /// Seconds since the recording began.
    pub(super) at: f64,
    /// The event.
    #[serde(flatten)]
    pub(super) event: E,
}

/// What the parent does with its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum RunEvent {
    /// A child is about to be started.
    Started {
        /// Stem of its files.
        stem: String,
    },
    /// A child has ended, or was left behind.
    Ended {
        /// Stem of its files.
        stem: String,
        /// How.
        #[serde(flatten)]
        end: End,
    },
}

/// How a child ended, as its parent saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct End {
    /// Seconds since it was started.
    pub(super) elapsed_s: f64,
    /// Its exit status.
    pub(super) status: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<String>,
    /// It said nothing for so many seconds and was killed.
    pub(super) silent_s: Option<f64>,
    /// The user ended the run, and it was killed.
    pub(super) interrupted: bool,
    /// It did not end when it was killed.
    pub(super) stuck: Option<Stuck>,
    /// Why it was not started, or could not be watched.
    pub(super) error: Option<String>,
}
