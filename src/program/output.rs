//! Lines on standard error.

use ggml_core::escape::Escaped;
use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error, with the control characters in it escaped: text of files and drivers must
/// not control a terminal. Write errors are ignored.
pub fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", Escaped(line));
}
