//! Lines on standard error.

use crate::crash::situation::OPEN_LINE;
use ggml_core::escape::Escaped;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;

/// Writes a line to standard error, with the control characters in it escaped: text of files and drivers must
/// not control a terminal. If text of standard output has left the cursor within a line of the same terminal, that line
/// is ended first. Write errors are ignored.
pub fn note(line: impl Display) {
    let start = if OPEN_LINE.swap(false, Ordering::Relaxed) { "\n" } else { "" };
    let _ = writeln!(std::io::stderr(), "{start}{}", Escaped(line));
}

/// Remembers where text of standard output has left the cursor.
pub(super) fn printed(text: &[u8]) {
    leave_cursor(text, || std::io::stdout().is_terminal() && std::io::stderr().is_terminal());
}

fn leave_cursor(text: &[u8], is_shared_terminal: impl Fn() -> bool) {
    if let Some(last) = text.last() {
        OPEN_LINE.store(*last != b'\n' && is_shared_terminal(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test by itself, because the state is global.
    #[test]
    fn an_error_begins_on_a_line_of_its_own() {
        let is_open_after = |text: &[u8], terminal| {
            leave_cursor(text, || terminal);
            OPEN_LINE.load(Ordering::Relaxed)
        };
        assert!(is_open_after(b"The sea", true) && is_open_after(b"", true));
        note("ends the line");
        assert!(!OPEN_LINE.load(Ordering::Relaxed), "the next one begins at its start");
        assert!(!is_open_after(b"The sea", false), "a file gets no further line ends");
        assert!(is_open_after(b"is", true) && !is_open_after(b"\n", true));
    }
}
