//! The flight recorder: the events of a run, in files of its folder. Every event is written before the act
//! that it announces.
//!
//! Each child appends its [`Message`](super::protocol::Message)s to its own file, the parent appends
//! [`RunEvent`]s to another. These files are all that is needed to build the records of a run. The parent of
//! a running comparison reads them as they grow; a report can be built from them after child, parent or
//! machine have stopped. One event is one line of JSON. Files start with reserved space, so that the last
//! events can be written even on a full disk.

mod account;
mod reader;
mod writer;

pub(crate) use account::{Account, ChildOutcome, LOGGED, UNRECORDED, WROTE};
pub(crate) use reader::{Follower, read};
pub(crate) use writer::{Sync, Writer, create};

use super::record::{KernelLog, Stuck};
use serde::{Deserialize, Serialize};

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timed<E> {
    /// Seconds since the start of the recording.
    pub(crate) at: f64,
    /// The event.
    #[serde(flatten)]
    pub(crate) event: E,
}

/// An action of the parent on its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RunEvent {
    /// A child is about to be started.
    Started {
        /// Stem of its files.
        stem: String,
    },
    /// A child has ended, or was abandoned.
    Ended {
        /// Stem of its files.
        stem: String,
        /// End of the child.
        #[serde(flatten)]
        end: End,
    },
}

/// The end of a child, as its parent observed it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Seconds since the child was started.
    pub(crate) elapsed_s: f64,
    /// Its exit status.
    pub(crate) status: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<String>,
    /// Seconds without an event, after which the child was killed.
    pub(crate) silent_s: Option<f64>,
    /// True if the user ended the run and the child was killed.
    pub(crate) interrupted: bool,
    /// State of a child that did not end when it was killed.
    pub(crate) stuck: Option<Stuck>,
    /// The reason it was not started, or could not be observed.
    pub(crate) error: Option<String>,
    /// Lines of the kernel about graphics cards meanwhile.
    #[serde(default, skip_serializing_if = "KernelLog::is_empty")]
    pub(crate) kernel: Box<KernelLog>,
}
