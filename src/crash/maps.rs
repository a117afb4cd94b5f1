//! Finds the module of an address in the text of `/proc/self/maps`. Everything here works on fixed memory: a signal
//! handler may call it.

/// Longest line that is read; the rest of a longer path is cut.
pub(super) const LINE: usize = 512;

/// A mapping that contains the address that is searched for, if any was found, and the state of the search.
#[derive(Debug)]
pub(super) struct Search {
    wanted: u64,
    line: [u8; LINE],
    length: usize,
    /// Path of the last mapping with a path, and where its file begins in memory.
    path: [u8; LINE],
    path_length: usize,
    begin: u64,
    found: bool,
}

impl Search {
    pub(super) const fn new() -> Search {
        Search {
            wanted: 0,
            line: [0; LINE],
            length: 0,
            path: [0; LINE],
            path_length: 0,
            begin: 0,
            found: false,
        }
    }

    /// Begins the search for an address.
    pub(super) fn start(&mut self, wanted: u64) {
        (self.wanted, self.length, self.path_length, self.begin, self.found) = (wanted, 0, 0, 0, false);
    }

    /// Reads a further part of the text. Returns true if the rest is not needed.
    pub(super) fn read(&mut self, part: &[u8]) -> bool {
        for &byte in part {
            if self.found {
                return true;
            }
            if byte == b'\n' {
                self.end_line();
                self.length = 0;
            } else if let Some(place) = self.line.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
        self.found
    }

    fn end_line(&mut self) {
        let line = &self.line[..self.length];
        let Some(mapping) = Mapping::parse(line) else { return };
        let same = mapping.path == &self.path[..self.path_length];
        if !same {
            self.path[..mapping.path.len()].copy_from_slice(mapping.path);
            self.path_length = mapping.path.len();
            self.begin = mapping.begin.wrapping_sub(mapping.offset);
        }
        self.found = (mapping.begin..mapping.end).contains(&self.wanted);
    }

    /// Returns the path of the module and the address relative to its beginning. `None` if no mapping of a file
    /// contains the address.
    pub(super) fn module(&self) -> Option<(&[u8], u64)> {
        let path = &self.path[..self.path_length];
        let named = self.found && !path.is_empty();
        named.then(|| (path, self.wanted.wrapping_sub(self.begin)))
    }
}

/// A line: "7f00-7f10 r-xp 00001000 08:02 173521   /usr/lib/libc.so.6".
struct Mapping<'a> {
    begin: u64,
    end: u64,
    offset: u64,
    path: &'a [u8],
}

impl Mapping<'_> {
    fn parse(line: &[u8]) -> Option<Mapping<'_>> {
        let (begin, rest) = hexadecimal(line)?;
        let (end, rest) = hexadecimal(rest.strip_prefix(b"-")?)?;
        let (_permissions, rest) = word(rest);
        let (offset, _) = hexadecimal(word(rest).0)?;
        let (_device, rest) = word(word(rest).1);
        let (_inode, rest) = word(rest);
        Some(Mapping { begin, end, offset, path: rest.trim_ascii() })
    }
}

/// Splits the next word from the rest.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    text.split_at(text.iter().position(|&b| b == b' ').unwrap_or(text.len()))
}

fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let digit = |b: &u8| u64::from((*b as char).to_digit(16).unwrap_or(0));
    let value = text[..digits].iter().fold(0_u64, |value, b| (value << 4) | digit(b));
    (1..=16).contains(&digits).then_some((value, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c8000000-55d0c8010000 r--p 00000000 08:02 1001                       /opt/my programs/generate
55d0c8010000-55d0c8090000 r-xp 00010000 08:02 1001                       /opt/my programs/generate
55d0c9000000-55d0c9021000 rw-p 00000000 00:00 0                          [heap]
7f1000000000-7f1000001000 r--p 00000000 08:02 1002                       /opt/rocm/lib/libamdhip64.so.7
7f1000001000-7f1000008000 r-xp 00001000 08:02 1002                       /opt/rocm/lib/libamdhip64.so.7
7f1000008000-7f1000009000 rw-p 00000000 00:00 0 \n";

    fn module(wanted: u64, parts: usize) -> Option<(String, u64)> {
        let mut search = Search::new();
        search.start(wanted);
        MAPS.as_bytes().chunks(parts).find(|part| search.read(part));
        search.module().map(|(path, offset)| (String::from_utf8(path.to_vec()).unwrap(), offset))
    }

    #[test]
    fn an_address_has_its_module_and_its_offset() {
        for parts in [1, 7, 100, 10_000] {
            let hip = Some(("/opt/rocm/lib/libamdhip64.so.7".to_string(), 0x1234));
            assert_eq!(module(0x7f10_0000_1234, parts), hip);
            let own = Some(("/opt/my programs/generate".to_string(), 0x1_0010));
            assert_eq!(module(0x55d0_c801_0010, parts), own);
            assert_eq!(module(0x10, parts), None);
            assert_eq!(module(0x7f10_0000_8010, parts), None, "memory of no file");
        }
        // An address is relative to where the file begins in memory, whatever is mapped first and whatever gaps follow.
        let mut search = Search::new();
        search.start(0x7000_3010);
        let gaps = "70001000-70002000 r-xp 00001000 08:02 9 /z\n70003000-70004000 rw-p 00002000 08:02 9 /z\n";
        assert!(search.read(gaps.as_bytes()));
        assert_eq!(search.module(), Some((&b"/z"[..], 0x3010)));
        // What follows a line that is too long is read.
        let mut search = Search::new();
        search.start(0x2010);
        let long = format!("1000-2000 r-xp 00000000 08:02 7 /{}\n", "x".repeat(3 * LINE));
        assert!(!search.read(long.as_bytes()));
        assert!(search.read(b"nonsense\n2000-3000 r-xp 00000000 08:02 8 /y\n"));
        assert_eq!(search.module(), Some((&b"/y"[..], 0x10)));
    }
}
