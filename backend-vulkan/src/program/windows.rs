//! Descriptor windows: where an operand's window begins, and what remains for the kernel to add.

use crate::raw::descriptors;
use ggml_core::{DType, Tensor};

/// Ends of windows are rounded up to whole words, those of blocks to sixteens of bytes, where the buffer has them.
const WORD: u64 = 4;
const SIXTEEN: u64 = 16;

/// A buffer of a program, which knows it by number until it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferRef {
    /// One that holds tensors ([`Buffers`](super::storage::Buffers)).
    Bound(usize),
    /// One that holds a constant ([`Lowering::constants`](super::lower::Lowering)).
    Constant(usize),
    /// The program's own memory for what work-groups of a dispatch leave each other.
    Scratch,
    /// The program's own zeros, which a dispatch leaves as they were.
    Counters,
}

/// A window of an operand.
pub(crate) type Window = descriptors::Window<BufferRef>;

/// Where the storage of a root tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// The buffer.
    pub(crate) buffer: BufferRef,
    /// Bytes of the buffer.
    pub(crate) room: u64,
    /// Byte offset of the root tensor's first byte.
    pub(crate) offset: u64,
    /// Bytes from there that belong to it.
    pub(crate) bytes: u64,
    /// Whether anything on the device may write it.
    pub(crate) writable: bool,
}

/// The beginning of a window: how many blocks before the operand.
///
/// A window must begin at a multiple of `alignment`, and an operand is addressed in blocks of `block` bytes from the
/// window's beginning, so the distance must be a whole number of blocks: the smallest `k` for which
/// `start - k * block` is aligned. `None` if there is no such place at or after the beginning of the buffer (which
/// takes a tensor that was itself bound at an offset that is not aligned).
pub(crate) fn blocks_before(start: u64, block: u64, alignment: u64) -> Option<u64> {
    (0..alignment.max(1)).find_map(|k| {
        let begin = start.checked_sub(k * block)?;
        (begin % alignment == 0).then_some(k)
    })
}

/// Bytes that an element range of a type occupies in whole blocks, as an addressing unit.
fn block_bytes(dtype: DType) -> u64 {
    dtype.block_bytes() as u64
}

/// A window that covers `bytes` bytes from `skip` bytes after a tensor's first byte, and its remainder in blocks.
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
