//! Memory of the caller at an address of its choice.

#![allow(unsafe_code)]

use super::block::{ALIGN, Block};
use super::{Memory, range};
use crate::fault::FaultKind;
use std::ptr::NonNull;

impl Memory {
    /// Adds memory of the caller; both addresses are multiples of 4096.
    ///
    /// # Safety
    /// The bytes are readable and writable until they are freed and no view or copy of a region from before uses them.
    pub(crate) unsafe fn map(&self, base: u64, at: NonNull<u8>, bytes: usize) -> Result<(), FaultKind> {
        if at.as_ptr() as usize % ALIGN != 0 {
            return Err(FaultKind::Misaligned(range(at.as_ptr() as u64, bytes), ALIGN as u32));
        }
        if bytes == 0 {
            return Err(FaultKind::OutOfMemory(0));
        }
        self.insert_at(base, bytes, |_| {
            // SAFETY: the caller's promise.
            Ok(unsafe { Block::borrowed(at) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the host, as a caller has them.
    fn pages(count: usize) -> Block {
        Block::new(count * ALIGN).expect("memory")
    }

    #[test]
    fn memory_of_the_caller_is_neither_counted_nor_freed() {
        let (pages, memory, base) = (pages(2), Memory::new(4096), 0x7000_0000_0000);
        // SAFETY: the pages outlive the memory's use of them.
        unsafe { memory.map(base, pages.at(), 2 * ALIGN) }.unwrap();
        assert_eq!(memory.available(), (4096, 4096));
        memory.write(base + 4094, &[1, 2, 3, 4]).unwrap();
        let mut got = [0; 4];
        memory.read(base + 4094, &mut got).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);
        assert!(matches!(memory.write(base + 8190, &[0; 4]), Err(FaultKind::OutOfBounds(_))));
        memory.free(base).unwrap();
        assert!(matches!(memory.read(base, &mut got), Err(FaultKind::FreedMemory(_))));
        // SAFETY: as above. They still have their contents, at another address.
        unsafe { memory.map(base + 0x10000, pages.at(), 2 * ALIGN) }.unwrap();
        memory.read(base + 0x10000 + 4094, &mut got).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);
        assert_eq!(memory.available(), (4096, 4096));
    }

    #[test]
    fn addresses_that_cannot_be_mapped() {
        let (pages, memory, base) = (pages(2), Memory::new(1 << 20), 0x7000_0000_0000);
        let map = |base, at, bytes| {
            // SAFETY: as above.
            unsafe { memory.map(base, at, bytes) }
        };
        let at = pages.at();
        // SAFETY: inside the pages.
        let odd = unsafe { at.add(16) };
        assert!(matches!(map(base + 16, at, 4096), Err(FaultKind::Misaligned(r, 4096)) if r.at == base + 16));
        assert!(
            matches!(map(base, odd, 4096), Err(FaultKind::Misaligned(r, 4096)) if r.at == odd.as_ptr() as u64)
        );
        assert!(matches!(map(base, at, 0), Err(FaultKind::OutOfMemory(0))));
        assert!(matches!(map(u64::MAX - 4095, at, 8192), Err(FaultKind::OutOfMemory(8192))));
        map(base, at, 8192).unwrap();
        assert!(matches!(map(base + 4096, at, 4096), Err(FaultKind::Occupied(_))));
        assert!(matches!(memory.allocate_at(base, 1), Err(FaultKind::Occupied(_))));
    }
}
