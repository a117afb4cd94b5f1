//! Typed errors and the phases in which they happen.

use crate::escape::{Escaped, escaped};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Short form used throughout the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Activity of a backend. Every phase has a deadline and is a `tracing` span of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Finding and loading the driver's library.
    LoadRuntime,
    /// Listing devices.
    Enumerate,
    /// Creating the device and its queues, and probing it.
    OpenDevice,
    /// Allocating device memory.
    Allocate,
    /// Host to device copies.
    Upload,
    /// Shader or kernel compilation.
    Compile,
    /// Building a program: descriptors, command recording.
    Prepare,
    /// The first run of a program.
    FirstCompute,
    /// Every later run of a program.
    Compute,
    /// Device to host copies.
    Readback,
    /// Freeing all resources.
    Close,
}

impl Phase {
    /// All phases, in the order in which they occur.
    pub const ALL: [Phase; 11] = [
        Phase::LoadRuntime,
        Phase::Enumerate,
        Phase::OpenDevice,
        Phase::Allocate,
        Phase::Upload,
        Phase::Compile,
        Phase::Prepare,
        Phase::FirstCompute,
        Phase::Compute,
        Phase::Readback,
        Phase::Close,
    ];

    /// Returns the name as in reports ("load_runtime").
    pub fn name(self) -> &'static str {
        match self {
            Phase::LoadRuntime => "load_runtime",
            Phase::Enumerate => "enumerate",
            Phase::OpenDevice => "open_device",
            Phase::Allocate => "allocate",
            Phase::Upload => "upload",
            Phase::Compile => "compile",
            Phase::Prepare => "prepare",
            Phase::FirstCompute => "first_compute",
            Phase::Compute => "compute",
            Phase::Readback => "readback",
            Phase::Close => "close",
        }
    }

    /// Returns the phase with a name.
    pub fn from_name(name: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|p| p.name() == name)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason why a backend cannot be used on this machine. Each reason has a different remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The driver's library was not found or could not be loaded.
    Library,
    /// The library was loaded and reports no device.
    Device,
    /// A device node exists, but this user may not open it.
    Permission,
    /// The device lacks a feature that the backend needs.
    Feature,
    /// The program was built without the backend.
    Build,
}

/// Device memory that a model and its session need, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNeed {
    /// Backend name.
    pub backend: String,
    /// Weights that are copied to the device. Weights that are read in place need none.
    pub weights: u64,
    /// Weights that are read in the memory map of their file. They are no part of the total: the system keeps as
    /// much of the file in memory as it has room for.
    #[serde(default)]
    pub in_place: u64,
    /// State: the KV cache.
    pub state: u64,
    /// Inputs, intermediates and outputs of the largest batch.
    pub compute: u64,
    /// Memory that is free now, where it is known.
    pub free: Option<u64>,
}

impl MemoryNeed {
    /// Returns the sum of all parts, saturating.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.state).saturating_add(self.compute)
    }

    /// True if the total fits into the free memory, or if the free memory is unknown.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }
}

impl std::fmt::Display for MemoryNeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
        let (state, compute) = (mib(self.state), mib(self.compute));
        write!(f, "{} needs {} (", self.backend, mib(self.total()))?;
        if self.weights > 0 || self.in_place == 0 {
            write!(f, "weights {}, ", mib(self.weights))?;
        }
        write!(f, "state {state}, compute {compute}")?;
        if self.in_place > 0 {
            write!(f, "; {} of weights are read in place in the file", mib(self.in_place))?;
        }
        f.write_str(")")?;
        match self.free {
            Some(free) => write!(f, ", free are {}", mib(free)),
            None => Ok(()),
        }
    }
}

/// Any failure, with its location where one is known.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation that this backend has no kernel for, with the reason.
    #[error("{backend}: {op} of node '{}' is not supported: {}", escaped(.node), escaped(.reason))]
    Unsupported {
        /// Backend name.
        backend: String,
        /// Operation name.
        op: &'static str,
        /// Node name.
        node: String,
        /// Reason: the missing kernel or feature.
        reason: String,
    },
    /// The backend cannot be used here.
    #[error("{backend}: not available ({}): {}", missing_name(*.missing), escaped(.reason))]
    Unavailable {
        /// Backend name.
        backend: String,
        /// Phase in which the failure occurred.
        phase: Phase,
        /// Kind of the missing part.
        missing: Missing,
        /// Details: the checks that were made and their results.
        reason: String,
    },
    /// A model file that breaks its format or lacks what its architecture needs.
    #[error("invalid model{}: {}{}", at_path(.path), escaped(.what), found_text(.found, .expected))]
    InvalidModel {
        /// The file, where known.
        path: Option<PathBuf>,
        /// Subject: a metadata key, a tensor, or a part of the file, with its offset where known.
        what: String,
        /// Value found; empty if it is missing.
        found: String,
        /// Expected value; empty if it adds nothing.
        expected: String,
    },
    /// A node whose operands break the rule of its operation.
    #[error("{op}({}): {}", escaped(.operands), escaped(.rule))]
    InvalidGraph {
        /// Operation name.
        op: &'static str,
        /// Operands as `name TYPE [extents]`.
        operands: String,
        /// The rule that is broken.
        rule: String,
    },
    /// A wrong argument of a call.
    #[error("{}{}", escaped(.what), found_text(.found, .expected))]
    InvalidArgument {
        /// Name of the argument.
        what: String,
        /// Value found, or its defect; empty if it is missing.
        found: String,
        /// Expected value; empty if it adds nothing.
        expected: String,
    },
    /// An allocation that failed.
    #[error("{backend}: out of memory in {}: asked for {asked} bytes{}{}", escaped(.heap), free_text(.free), driver_text(.driver))]
    OutOfMemory {
        /// Backend name.
        backend: String,
        /// Bytes requested.
        asked: u64,
        /// Bytes free, where the driver reports them.
        free: Option<u64>,
        /// Name of the memory heap.
        heap: String,
        /// The driver's function and its result ("hipMalloc: hipErrorOutOfMemory (2)"); `None` if no driver
        /// was called.
        driver: Option<String>,
    },
    /// A model that does not fit, detected before anything is loaded.
    #[error("the model does not fit: {}", needs_text(.needs))]
    DoesNotFit {
        /// Memory needed on each device.
        needs: Vec<MemoryNeed>,
    },
    /// A wait that outlasted its deadline.
    #[error("{backend}: no answer in phase {phase}{} after {:.1} s", at_node(.node), .after.as_secs_f64())]
    Timeout {
        /// Backend name.
        backend: String,
        /// Phase.
        phase: Phase,
        /// Node that was running, where known.
        node: Option<String>,
        /// The deadline that passed.
        after: Duration,
    },
    /// The device was lost (reset, removed).
    #[error("{backend}: device lost in phase {phase}{}{}", at_node(.node), found_text(.reason, ""))]
    DeviceLost {
        /// Backend name.
        backend: String,
        /// Phase.
        phase: Phase,
        /// Node that was running, where known.
        node: Option<String>,
        /// The driver's explanation; empty if it gives none.
        reason: String,
    },
    /// A driver call that failed.
    #[error("{backend}: {call} failed in phase {phase}{}: {} ({code})", at_node(.node), escaped(.name))]
    Driver {
        /// Backend name.
        backend: String,
        /// Phase.
        phase: Phase,
        /// Node, where known.
        node: Option<String>,
        /// The driver's function.
        call: &'static str,
        /// The driver's code.
        code: i64,
        /// The driver's name of the code.
        name: String,
    },
    /// A file that could not be read or written.
    #[error("{}: {}", Escaped(.path.display()), Escaped(.source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error, with its kind.
        source: Arc<std::io::Error>,
    },
    /// A requested failure (the `null` backend's fault injection).
    #[error("{backend}: injected fault in phase {phase}{}", at_node(.node))]
    Injected {
        /// Backend name.
        backend: String,
        /// Phase.
        phase: Phase,
        /// Node.
        node: Option<String>,
    },
}

fn missing_name(m: Missing) -> &'static str {
    match m {
        Missing::Library => "no library",
        Missing::Device => "no device",
        Missing::Permission => "no permission",
        Missing::Feature => "missing feature",
        Missing::Build => "left out of this program",
    }
}

fn at_path(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|p| format!(" {}", Escaped(p.display()))).unwrap_or_default()
}

fn found_text(found: &str, expected: &str) -> String {
    let (found, expected) = (escaped(found), escaped(expected));
    match (found.is_empty(), expected.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(": {found}"),
        (true, false) => format!(": expected {expected}"),
        (false, false) => format!(": {found}; expected {expected}"),
    }
}

fn at_node(node: &Option<String>) -> String {
    node.as_ref().map(|n| format!(" at node '{}'", escaped(n))).unwrap_or_default()
}

fn needs_text(needs: &[MemoryNeed]) -> String {
    needs.iter().map(MemoryNeed::to_string).collect::<Vec<_>>().join("; ")
}

fn free_text(free: &Option<u64>) -> String {
    free.map(|f| format!(", {f} are free")).unwrap_or_default()
}

fn driver_text(driver: &Option<String>) -> String {
    driver.as_ref().map(|said| format!(" ({})", escaped(said))).unwrap_or_default()
}

impl Error {
    /// Builds an [`Error::InvalidModel`] without a path from its subject, the value found and the expected
    /// value. Displayed as "what: found; expected expectation"; an empty part is left out.
    pub fn model(what: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> Error {
        Error::InvalidModel {
            path: None,
            what: what.into(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    /// Builds an [`Error::InvalidArgument`] from the argument's name, the value found and the expected value.
    /// Displayed as "what: found; expected expectation"; an empty part is left out.
    pub fn argument(what: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> Error {
        Error::InvalidArgument { what: what.into(), found: found.to_string(), expected: expected.into() }
    }

    /// Builds an [`Error::Io`] from an [`std::io::Error`] or an [`std::io::ErrorKind`].
    pub fn io(path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> Error {
        Error::Io { path: path.into(), source: Arc::new(error.into()) }
    }

    /// Returns the kind of an [`Error::Io`]: for example `BrokenPipe` if the reader of the output has exited,
    /// or `StorageFull`.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Adds the file to an [`Error::InvalidModel`] without a path.
    pub fn with_path(mut self, file: impl Into<PathBuf>) -> Error {
        if let Error::InvalidModel { path, .. } = &mut self {
            path.get_or_insert(file.into());
        }
        self
    }

    /// Adds the node to a timeout, lost device or driver error without one.
    pub fn with_node(mut self, name: &str) -> Error {
        match &mut self {
            Error::Timeout { node, .. } | Error::DeviceLost { node, .. } | Error::Driver { node, .. } => {
                node.get_or_insert_with(|| name.to_string());
            }
            _ => {}
        }
        self
    }

    /// Returns the phase in which the error happened, where it has one.
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Error::Unavailable { phase, .. }
            | Error::Timeout { phase, .. }
            | Error::DeviceLost { phase, .. }
            | Error::Driver { phase, .. }
            | Error::Injected { phase, .. } => Some(*phase),
            Error::OutOfMemory { .. } | Error::DoesNotFit { .. } => Some(Phase::Allocate),
            Error::Unsupported { .. } => Some(Phase::Prepare),
            _ => None,
        }
    }

    /// Returns the node at which the error happened, where it has one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Error::Unsupported { node, .. } => Some(node),
            Error::Timeout { node, .. }
            | Error::DeviceLost { node, .. }
            | Error::Driver { node, .. }
            | Error::Injected { node, .. } => node.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io::{self, ErrorKind};

    #[test]
    fn an_io_error_keeps_its_source_and_kind() {
        let error = Error::io("m.gguf", io::Error::new(ErrorKind::StorageFull, "no space"));
        assert_eq!(
            (error.io_kind(), error.to_string().as_str()),
            (Some(ErrorKind::StorageFull), "m.gguf: no space")
        );
        assert!(error.source().is_some());
        assert_eq!(Error::io("out", ErrorKind::BrokenPipe).io_kind(), Some(ErrorKind::BrokenPipe));
    }

    #[test]
    fn out_of_memory_says_what_the_driver_said() {
        let error = |driver: Option<&str>| Error::OutOfMemory {
            backend: "hip:0".into(),
            asked: 10,
            free: Some(7),
            heap: "device memory".into(),
            driver: driver.map(String::from),
        };
        let plain = "hip:0: out of memory in device memory: asked for 10 bytes, 7 are free";
        assert_eq!(error(None).to_string(), plain);
        assert_eq!(error(Some("hipMalloc: x (2)")).to_string(), format!("{plain} (hipMalloc: x (2))"));
    }

    #[test]
    fn what_was_found_and_what_would_be_right() {
        let text = |found: &str, expected: &str| Error::argument("tokens", found, expected).to_string();
        assert_eq!(text("0", "at least 1"), "tokens: 0; expected at least 1");
        assert_eq!(text("", "at least 1"), "tokens: expected at least 1");
        assert_eq!(text("7 comes twice", ""), "tokens: 7 comes twice");
        let model = Error::model("metadata key 'x'", "i8 -7", "u32").with_path("a.gguf");
        assert_eq!(model.to_string(), "invalid model a.gguf: metadata key 'x': i8 -7; expected u32");
    }
}
