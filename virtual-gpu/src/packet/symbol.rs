//! Names of kernels in memory: a loaded code object begins with its ELF header, and has its dynamic symbols in memory.
//!
//! Everything here comes from memory that a program may have overwritten, so every number is checked, and nothing but a
//! name depends on it.

use crate::memory::Region;

/// Loaders place code objects at the beginning of a page.
const PAGE: u64 = 4096;
/// Most pages between a kernel's descriptor and the beginning of its code object.
const MOST_PAGES: usize = 1 << 14;
/// Most symbols that are searched, entries of the tables before them, and most bytes of a name.
const MOST_SYMBOLS: u64 = 1 << 20;
const MOST_ENTRIES: u64 = 64;
const MOST_BYTES: u64 = 4096;

const MAGIC: u64 = u32::from_le_bytes(*b"\x7fELF") as u64;
const EM_AMDGPU: u64 = 224;
const PT_DYNAMIC: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
/// Bytes of a program header, an entry of the dynamic section, and a symbol.
const PROGRAM_HEADER: u64 = 56;
const DYNAMIC: u64 = 16;
const SYMBOL: u64 = 24;

/// Returns the name of the kernel whose descriptor is at an offset of a region.
pub(super) fn of_kernel(region: &Region, descriptor: u64) -> Option<String> {
    let mut pages = (0..=descriptor / PAGE).rev().take(MOST_PAGES).map(|page| page * PAGE);
    let image = Image { region, start: pages.find(|&start| Image { region, start }.is_code_object())? };
    image.symbol(descriptor - image.start)?.strip_suffix(".kd").map(str::to_string)
}

/// A code object as a loader placed it: addresses of the file are offsets from its start.
struct Image<'a> {
    region: &'a Region,
    start: u64,
}

impl Image<'_> {
    /// Returns a number of 1 to 8 bytes.
    fn number(&self, at: u64, bytes: u64) -> Option<u64> {
        let offset = self.start.checked_add(at)?;
        let address = self.region.base.checked_add(offset)?;
        let [low, high, ..] = self.region.load(self.region.offset(address, bytes)?, bytes);
        Some(u64::from(low) | u64::from(high) << 32)
    }

    fn is_code_object(&self) -> bool {
        self.number(0, 4) == Some(MAGIC) && self.number(18, 2) == Some(EM_AMDGPU)
    }

    /// Returns the name of the symbol with a value.
    fn symbol(&self, value: u64) -> Option<String> {
        let (headers, count) = (self.number(32, 8)?, self.number(56, 2)?.min(MOST_ENTRIES));
        let header = |i: u64| headers.checked_add(i * PROGRAM_HEADER);
        let dynamic = (0..count).filter_map(header).find(|&at| self.number(at, 4) == Some(PT_DYNAMIC))?;
        let dynamic = self.number(dynamic.checked_add(16)?, 8)?;
        let entry = |tag: u64| {
            let entries = (0..MOST_ENTRIES).filter_map(|i| dynamic.checked_add(i * DYNAMIC));
            // A tag of 0 ends the section.
            let mut entries = entries.take_while(|&at| self.number(at, 8).is_some_and(|tag| tag != 0));
            let found = entries.find(|&at| self.number(at, 8) == Some(tag))?;
            self.number(found.checked_add(8)?, 8)
        };
        let (names, symbols) = (entry(DT_STRTAB)?, entry(DT_SYMTAB)?);
        // The hash table's second word is the number of symbols.
        let count = self.number(entry(DT_HASH)?.checked_add(4)?, 4)?.min(MOST_SYMBOLS);
        let at = |i: u64| symbols.checked_add(i * SYMBOL);
        let has_value = |at: &u64| at.checked_add(8).and_then(|at| self.number(at, 8)) == Some(value);
        let found = (1..count).filter_map(at).find(has_value)?;
        self.text(names.checked_add(self.number(found, 4)?)?)
    }

    /// Returns a text that ends with a zero.
    fn text(&self, at: u64) -> Option<String> {
        let mut bytes = Vec::new();
        for i in 0..MOST_BYTES {
            match self.number(at.checked_add(i)?, 1)? {
                0 => return String::from_utf8(bytes).ok(),
                byte => bytes.push(byte as u8),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    /// A code object of three symbols, one of them a kernel's at 0x240. Table offsets: headers 64, dynamic section 0x100,
    /// hash table 0x180, symbols 0x1a0, names 0x200.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 0x300];
        let mut put = |at: usize, value: u64, size: usize| {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        put(0, MAGIC, 4);
        put(18, EM_AMDGPU, 2);
        put(32, 64, 8);
        put(56, 2, 2);
        put(64, 1, 4);
        put(64 + 56, PT_DYNAMIC, 4);
        put(64 + 56 + 16, 0x100, 8);
        for (i, (tag, value)) in [(DT_STRTAB, 0x200), (DT_SYMTAB, 0x1a0), (DT_HASH, 0x180)].iter().enumerate()
        {
            put(0x100 + 16 * i, *tag, 8);
            put(0x108 + 16 * i, *value, 8);
        }
        put(0x184, 3, 4);
        put(0x1a0 + 24 + 8, 0x280, 8);
        put(0x1a0 + 48, 2, 4);
        put(0x1a0 + 48 + 8, 0x240, 8);
        bytes[0x200..0x20a].copy_from_slice(b"\0\0copy.kd\0");
        bytes
    }

    fn name(bytes: &[u8], start: usize, descriptor: u64) -> Option<String> {
        let memory = Memory::new(1 << 24);
        let base = memory.allocate(start + bytes.len()).expect("memory");
        memory.write(base + start as u64, bytes).expect("inside");
        let (region, _) = memory.whole(base, 1).expect("it is there");
        of_kernel(&region, descriptor)
    }

    #[test]
    fn kernels_have_the_names_of_their_symbols() {
        assert_eq!(name(&image(), 0, 0x240).as_deref(), Some("copy"));
        assert_eq!(name(&image(), 0x5000, 0x5240).as_deref(), Some("copy"), "behind other memory");
        assert_eq!(name(&image(), 0, 0x280), None, "a symbol that is no kernel's");
        assert_eq!(name(&image(), 0, 0x2c0), None, "no symbol");
        assert_eq!(name(&[0; 0x300], 0, 0x240), None, "no code object");
        let mut other = image();
        other[18] = 62;
        assert_eq!(name(&other, 0, 0x240), None, "another machine");
    }

    /// No value in any place makes the search fail otherwise than by finding nothing.
    #[test]
    fn overwritten_code_objects() {
        for at in 0..0x20a {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = image();
                bytes[at] = value;
                let found = name(&bytes, 0, 0x240);
                assert!(found.is_none_or(|name| name.len() < 0x300));
            }
            let mut bytes = image();
            let end = bytes.len().min(at + 8);
            bytes[at..end].fill(0xff);
            name(&bytes, 0, 0x240);
            bytes.truncate(at);
            bytes.resize(bytes.len().max(1), 0);
            name(&bytes, 0, 0x240);
        }
    }
}
