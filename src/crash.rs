//! The last line of a process that a driver's library kills with a fatal signal: on standard error,
//! with the signal, the address, and the module that executed.
//!
//! A child of a comparison writes a line for its parent ([`MARK`]), which knows what the child was doing; a program writes a
//! sentence for its user, with what [`situation`] was last told. The process then dies of the same signal as without a handler. Only
//! Linux on x86-64 and aarch64 has the handler.

#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod handler;
#[cfg(any(
    test,
    all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))
))]
mod maps;
pub(crate) mod situation;

/// Beginning of the line that a child writes for its parent.
#[cfg_attr(not(feature = "compare"), allow(dead_code, reason = "without children"))]
pub(crate) const MARK: &str = "diptych-fault ";

/// Reader of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The parent of this child process: [`MARK`] and fields of the form `name=value`.
    #[cfg(feature = "compare")]
    Parent,
    /// The user: a sentence, and the next command on a line of its own.
    User,
}

/// Installs the handler. Call it on the main thread. If the system refuses it, the process dies without a line.
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn install(reader: Reader) {
    handler::install(reader);
}

/// Does nothing: this system has no handler.
#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(crate) fn install(_reader: Reader) {}
