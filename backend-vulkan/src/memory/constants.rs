//! Constant data that kernels read: on the device once for each content, shared by all programs.
//!
//! They have memory of their own: arenas are shared, and what another program computes would overwrite them.

use crate::raw::buffer::Buffer;
use crate::sync::lock;
use ggml_core::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Contents that no program uses any more are kept up to this number.
const KEPT: usize = 64;

/// Constants on the device, by content.
#[derive(Default)]
pub(crate) struct Constants(Mutex<HashMap<Vec<u32>, Arc<Buffer>>>);

impl Constants {
    /// The buffer with these numbers, made now if there is none. Nothing is locked while it is made: two that ask for
    /// the same numbers at once may both make one, and the first stays.
    pub(crate) fn get(
        &self,
        data: &[u32],
        make: impl FnOnce() -> Result<Arc<Buffer>>,
    ) -> Result<Arc<Buffer>> {
        if let Some(known) = lock(&self.0).get(data) {
            return Ok(known.clone());
        }
        let made = make()?;
        let mut known = lock(&self.0);
        if known.len() >= KEPT {
            known.retain(|_, buffer| Arc::strong_count(buffer) > 1);
        }
        Ok(known.entry(data.to_vec()).or_insert(made).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::{Error, Phase};
    use std::cell::Cell;

    /// Whoever makes a constant allocates and uploads: others must not wait for that.
    #[test]
    fn nothing_is_locked_while_a_constant_is_made() {
        let constants = Constants::default();
        let inside = Cell::new(0);
        let failed = || Error::Timeout {
            backend: "vulkan:0".into(),
            phase: Phase::Allocate,
            node: None,
            after: std::time::Duration::ZERO,
        };
        let result = constants.get(&[1], || {
            assert!(constants.0.try_lock().is_ok(), "another program could ask now");
            inside.set(inside.get() + 1);
            Err(failed())
        });
        assert!(matches!(result, Err(Error::Timeout { .. })) && inside.get() == 1);
        assert!(lock(&constants.0).is_empty(), "what could not be made is asked for again");
    }
}
