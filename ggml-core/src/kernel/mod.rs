//! Interface shared by the GPU backends: the parameter structures and the constants of kernels.
//!
//! Each family has one `#[repr(C)]` structure of 4-byte fields. In Vulkan it is the push-constant block, in
//! HIP the kernel argument after the operand pointers, so that a test can check both layouts against the
//! compiled code.
//!
//! Extents and strides count elements (blocks for block types), not bytes. `off` fields are the remainder of
//! an operand's offset after its window has been aligned, in the same unit (0 where pointers are exact).

use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub mod chunks;
mod constants;
pub mod params;
pub mod rope;

pub use constants::{Constants, constant};
pub use params::*;

/// Reason why a backend cannot compute a node or group, in terms that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal(error.to_string())
    }
}

/// Converts an integer to a 32-bit field.
pub(crate) fn narrow(value: usize, what: &str, tensor: &Tensor) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::InvalidGraph {
        op: tensor.op().map_or("LEAF", |o| o.name()),
        operands: tensor.describe(),
        rule: format!("{what} {value} does not fit 32 bits"),
    })
}

/// Converts extents to 32-bit fields.
pub(crate) fn extents(t: &Tensor) -> Result<[u32; 4]> {
    let [n0, n1, n2, n3] = t.ne.map(|n| narrow(n, "extent", t));
    Ok([n0?, n1?, n2?, n3?])
}

/// Converts strides to blocks in 32-bit fields.
pub(crate) fn strides(t: &Tensor) -> Result<[u32; 4]> {
    let unit = t.dtype.block_bytes();
    // Strides of dimensions of extent 1 are never used and may have any value.
    let stride = |d: usize| if t.ne[d] == 1 { Ok(0) } else { narrow(t.nb[d] / unit, "stride", t) };
    let first = if t.ne[0] == 1 { 1 } else { stride(0)? };
    Ok([first, stride(1)?, stride(2)?, stride(3)?])
}
