//! Progress of quantizing a file, and its cancellation.

use crate::cancel::Cancel;
use ggml_core::{Error, Result};
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;

/// Progress of the work, and its cancellation.
pub(super) struct Progress<'a> {
    path: &'a Path,
    cancel: &'a Cancel,
    progress: &'a dyn Fn(u64, u64),
    done: Cell<u64>,
    total: u64,
}

impl<'a> Progress<'a> {
    /// Creates the progress of writing `path`, which has `total` bytes of weights to read.
    pub(super) fn new(
        path: &'a Path,
        cancel: &'a Cancel,
        progress: &'a dyn Fn(u64, u64),
        total: u64,
    ) -> Progress<'a> {
        Progress { path, cancel, progress, done: Cell::new(0), total }
    }

    /// Adds `bytes` to the bytes of weights that were read.
    ///
    /// # Errors
    /// [`Error::Io`] of the kind [`ErrorKind::Interrupted`] if the work is cancelled.
    pub(super) fn advance(&self, bytes: usize) -> Result<()> {
        if self.cancel.is_set() {
            return Err(Error::io(self.path, ErrorKind::Interrupted));
        }
        self.done.set(self.done.get() + bytes as u64);
        (self.progress)(self.done.get(), self.total);
        Ok(())
    }
}
