//! Child processes with deadlines: each does one work on one backend, and records each action before it
//! performs it.
//!
//! The parent writes a [`protocol::Work`] file and starts a child by exec of its own executable. The child
//! answers with events ([`recorder`]). The [`parent`] follows them, ends a child that hangs, and builds a
//! [`record::Record`] of its outcome. [`trial`](mod@trial) opens a backend or lists a driver's devices in a
//! child. The work itself is in [`compare`](crate::compare), which may use every backend; this module uses
//! none.

mod entry;
pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod json;
pub(crate) mod kernel_log;
mod own_program;
pub(crate) mod parent;
pub(crate) mod protocol;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod results;
pub(crate) mod system;
mod trial;

pub(crate) use entry::{allow_children, has_children};
#[cfg(feature = "probe")]
pub(crate) use trial::Trial;
pub(crate) use trial::{list, trial};
