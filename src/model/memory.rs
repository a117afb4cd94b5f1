//! Check of the memory that is needed against the memory that is free.

use ggml_core::{Error, MemoryNeed, Result};

/// Returns the bytes of all buffers together.
pub(super) fn bytes(buffers: &[usize]) -> u64 {
    buffers.iter().map(|&bytes| bytes as u64).sum()
}

/// Checks that there is enough memory, as far as the free memory is known.
pub(super) fn check_fits(needs: Vec<MemoryNeed>) -> Result<()> {
    if needs.iter().all(MemoryNeed::fits) { Ok(()) } else { Err(Error::DoesNotFit { needs }) }
}
