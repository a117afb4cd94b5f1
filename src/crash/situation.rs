//! Backend, phase and call of this process, in texts that a signal handler may read at any moment.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Longest command that is stored, in bytes.
pub(crate) const COMMAND: usize = 1024;

/// Longest name that is stored, in bytes.
const NAME: usize = 160;

/// A text in atomics. A reader that interrupts a writer gets a mixture of two texts, never invalid memory.
#[derive(Debug)]
pub(crate) struct Text<const N: usize = NAME> {
    length: AtomicUsize,
    bytes: [AtomicU8; N],
}

impl<const N: usize> Text<N> {
    const fn new() -> Text<N> {
        Text { length: AtomicUsize::new(0), bytes: [const { AtomicU8::new(0) }; N] }
    }

    /// Stores a text, cut to `N` bytes.
    pub(crate) fn set(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(N)];
        // Nothing is shown while the bytes change.
        self.length.store(0, Ordering::Release);
        bytes.iter().zip(&self.bytes).for_each(|(byte, place)| place.store(*byte, Ordering::Relaxed));
        self.length.store(bytes.len(), Ordering::Release);
    }

    /// Returns the bytes.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is no handler"))]
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let length = self.length.load(Ordering::Acquire).min(N);
        self.bytes[..length].iter().map(|byte| byte.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn get(&self) -> String {
        String::from_utf8_lossy(&self.bytes().collect::<Vec<u8>>()).into_owned()
    }
}

/// Name of the backend that is in use, as on the command line.
pub(crate) static BACKEND: Text = Text::new();

/// Phase that was entered last and not left.
pub(crate) static PHASE: Text = Text::new();

/// The last driver call.
pub(crate) static CALL: Text = Text::new();

/// Command that finds out more.
pub(crate) static NEXT: Text<COMMAND> = Text::new();

/// True if standard output has left the cursor within a line of the terminal that standard error has, too.
pub(crate) static OPEN_LINE: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_stored_and_cut() {
        let text: Text = Text::new();
        assert_eq!(text.get(), "");
        text.set("hipMemcpyAsync");
        assert_eq!(text.get(), "hipMemcpyAsync");
        text.set("x");
        assert_eq!(text.get(), "x");
        text.set(&"y".repeat(1000));
        assert_eq!(text.get(), "y".repeat(NAME));
    }
}
