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
        data: &[f32],
        make: impl FnOnce() -> Result<Arc<Buffer>>,
    ) -> Result<Arc<Buffer>> {
        let key: Vec<u32> = data.iter().map(|x| x.to_bits()).collect();
        if let Some(known) = lock(&self.0).get(&key) {
            return Ok(known.clone());
        }
        let made = make()?;
        let mut known = lock(&self.0);
        if known.len() >= KEPT {
            known.retain(|_, buffer| Arc::strong_count(buffer) > 1);
        }
        Ok(known.entry(key).or_insert(made).clone())
    }
}
