//! Constant data that kernels read: on the device once for each content, shared by all programs.
//!
//! They have memory of their own: arenas are shared, and what another program computes would overwrite them.

use crate::backend::Shared;
use crate::pipeline::lock;
use crate::raw::memory::{Buffer, Side};
use ggml_core::Deadline;
use ggml_core::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Contents that no program uses any more are kept up to this number.
const KEPT: usize = 64;

/// Constants on the device, by content.
#[derive(Default)]
pub(crate) struct Constants(Mutex<HashMap<Vec<u32>, Arc<Buffer>>>);

impl Constants {
    /// A buffer with these numbers.
    pub(crate) fn get(shared: &Shared, data: &[f32], deadline: &Deadline) -> Result<Arc<Buffer>> {
        let key: Vec<u32> = data.iter().map(|x| x.to_bits()).collect();
        let mut known = lock(&shared.constants.0);
        if let Some(buffer) = known.get(&key) {
            return Ok(buffer.clone());
        }
        if known.len() >= KEPT {
            known.retain(|_, buffer| Arc::strong_count(buffer) > 1);
        }
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let buffer = shared.new_buffer(bytes.len(), Side::Device, "constants", deadline)?;
        shared.put(&buffer, 0, bytes, deadline)?;
        known.insert(key, buffer.clone());
        Ok(buffer)
    }
}
