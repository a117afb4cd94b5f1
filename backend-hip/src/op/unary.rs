//! Placeholder until the kernels of this family are here.

use super::{Context, Launch, Refusal};

/// The launches of a node of this family.
pub(super) fn plan(_context: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    Err(Refusal("this family has no kernels for HIP yet".into()))
}
