//! Descriptor windows: the offset of an operand's window, and the remainder that the kernel adds.

use crate::raw::descriptors;
use ggml_core::{DType, Tensor};

/// Granularity of window ends in bytes: whole words, for types with blocks 16 bytes, as far as the buffer
/// extends.
const WORD: u64 = 4;
const SIXTEEN: u64 = 16;

/// A reference to a buffer of a program, resolved when the program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferRef {
    /// A buffer that holds tensors ([`Bound`](super::bound::Bound)).
    Bound(usize),
    /// A buffer that holds a constant ([`Lowering::constants`](super::lower::Lowering)).
    Constant(usize),
    /// The program's scratch memory, for data exchanged between work-groups of a dispatch.
    Scratch,
    /// The program's counters: zero at the beginning of a dispatch, which must leave them zero.
    Counters,
}

/// A window of an operand.
pub(crate) type Window = descriptors::Window<BufferRef>;

/// Location of a root tensor's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// The buffer.
    pub(crate) buffer: BufferRef,
    /// Length of the buffer in bytes.
    pub(crate) room: u64,
    /// Offset of the root tensor's first byte.
    pub(crate) offset: u64,
    /// Length of the root tensor in bytes.
    pub(crate) bytes: u64,
    /// True if the storage may be written on the device.
    pub(crate) writable: bool,
}

/// Returns the number of blocks by which a window begins before its operand.
///
/// A window must begin at a multiple of `alignment`, and an operand is addressed in blocks of `block` bytes
/// from the window's beginning, so the distance must be a whole number of blocks: the smallest `k` for which
/// `start - k * block` is aligned. `None` if there is no such offset within the buffer (which happens only
/// for a tensor that was itself bound at an unaligned offset).
pub(crate) fn blocks_before(start: u64, block: u64, alignment: u64) -> Option<u64> {
    (0..alignment.max(1)).find_map(|k| {
        let begin = start.checked_sub(k * block)?;
        (begin % alignment == 0).then_some(k)
    })
}

/// Returns the bytes of a type's block, the unit of addressing.
fn block_bytes(dtype: DType) -> u64 {
    dtype.block_bytes() as u64
}

/// Returns a window that covers `bytes` bytes from `skip` bytes after a tensor's first byte, and its
/// remainder in blocks.
pub(crate) fn window(
    storage: &Storage,
    tensor: &Tensor,
    skip: u64,
    bytes: u64,
    alignment: u64,
) -> Option<(Window, u32)> {
    let block = block_bytes(tensor.dtype);
    let start = storage.offset.checked_add(tensor.offset as u64)?.checked_add(skip)?;
    let before = blocks_before(start, block, alignment)?;
    let offset = start - before * block;
    let unit = if tensor.dtype.is_quantized() { SIXTEEN } else { WORD };
    let end = start.checked_add(bytes)?.next_multiple_of(unit).min(storage.room);
    let window = Window { buffer: storage.buffer, offset, bytes: end.checked_sub(offset)? };
    Some((window, u32::try_from(before).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_are_whole_blocks_and_windows_aligned() {
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q6_K, DType::Q4_K] {
            let block = block_bytes(dtype);
            for alignment in [4, 16, 32, 64, 256] {
                for base in [0, 256, 4096 * 3] {
                    for view in 0..300 {
                        let start = base + view * block;
                        let k = blocks_before(start, block, alignment)
                            .expect("a root is aligned, so a place exists");
                        assert_eq!((start - k * block) % alignment, 0);
                        assert!(k <= view.max(alignment), "{dtype} {alignment} {view}: {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_places_are_found() {
        assert_eq!(blocks_before(2, 4, 4), None);
        assert_eq!(blocks_before(34, 34, 16), Some(1));
        assert_eq!(blocks_before(33, 34, 16), None);
        assert_eq!(blocks_before(0, 18, 256), Some(0));
    }
}
