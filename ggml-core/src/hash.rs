//! 64-bit FNV-1a hash (Fowler, Noll, Vo) for names and identities. It gives the same value on every machine
//! and in every version. It is not collision-resistant against chosen inputs.

use std::io;

/// Incremental FNV-1a hasher; also an [`io::Write`].
#[derive(Clone, Debug)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    /// Returns the hasher of the empty input.
    fn default() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    /// Hashes a byte slice.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Fnv1a::default();
        hash.update(bytes);
        hash.finish()
    }

    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    }

    /// Returns the hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

impl io::Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the authors' own list (draft-eastlake-fnv, appendix C).
    #[test]
    fn known_values() {
        assert_eq!(Fnv1a::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv1a::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv1a::of(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
