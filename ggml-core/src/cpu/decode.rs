//! Decoding of blocks to F32 outside of a program.

use super::dot::Widen;
use super::dot::block::{ForQuant, Quant, with_quant};
use super::isa::Detected;
use super::simd::dispatch;
use crate::dtype::DType;
use crate::error::Result;

/// Decodes whole blocks into `out`, which has one entry for each element. Returns `Ok(None)` if the type has
/// no blocks or no decoder.
pub(crate) fn decode_blocks(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<Option<()>> {
    Ok(with_quant(dtype, Blocks { detected: Detected::new(None)?, bytes, out }))
}

struct Blocks<'a> {
    detected: Detected,
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl ForQuant for Blocks<'_> {
    type Out = ();

    fn call<Q: Quant>(self) {
        // Blocks are byte structures, which may be at any address.
        const { assert!(align_of::<Q>() == 1) };
        let (blocks, _) = self.bytes.split_at(self.bytes.len() / size_of::<Q>() * size_of::<Q>());
        dispatch(self.detected, Widen::<Q>::new(bytemuck::cast_slice(blocks), self.out));
    }
}
