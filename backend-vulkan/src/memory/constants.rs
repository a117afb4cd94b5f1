//! Constant data for kernels: uploaded once per content and shared by all programs.
//!
//! Constants have their own memory: arenas are shared, so another program's results would overwrite them.

use crate::raw::buffer::Buffer;
use ggml_core::Result;
use ggml_core::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Number of constants from which on unused ones are removed.
const REMOVE_FROM: usize = 64;

/// Constants on the device, by content.
#[derive(Default)]
pub(crate) struct Constants(Mutex<HashMap<Vec<u32>, Arc<Buffer>>>);

impl Constants {
    /// Returns the buffer with this content, and creates it if there is none. No lock is held while it is
    /// created: two threads with the same content may both create a buffer, and the first one is used.
    pub(crate) fn get_or_create(
        &self,
        data: &[u32],
        create: impl FnOnce() -> Result<Arc<Buffer>>,
    ) -> Result<Arc<Buffer>> {
        if let Some(known) = lock(&self.0).get(data) {
            return Ok(known.clone());
        }
        let created = create()?;
        let mut known = lock(&self.0);
        if known.len() >= REMOVE_FROM {
            known.retain(|_, buffer| Arc::strong_count(buffer) > 1);
        }
        Ok(known.entry(data.to_vec()).or_insert(created).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::{Error, Phase};
    use std::cell::Cell;

    /// Creating a constant allocates and uploads; other threads must not wait for that.
    #[test]
    fn nothing_is_locked_while_a_constant_is_created() {
        let constants = Constants::default();
        let inside = Cell::new(0);
        let failed = || Error::Timeout {
            backend: "vulkan:0".into(),
            phase: Phase::Allocate,
            node: None,
            after: std::time::Duration::ZERO,
        };
        let result = constants.get_or_create(&[1], || {
            assert!(constants.0.try_lock().is_ok(), "another program could use the table now");
            inside.set(inside.get() + 1);
            Err(failed())
        });
        assert!(matches!(result, Err(Error::Timeout { .. })) && inside.get() == 1);
        assert!(lock(&constants.0).is_empty(), "a failed creation is tried again");
    }
}
