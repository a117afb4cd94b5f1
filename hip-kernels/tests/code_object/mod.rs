//! Reads the kernel metadata of a code object: the AMDGPU metadata note, which is MessagePack.
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", "Code Object V5 Metadata". The files come from the build
//! script, so a malformed one is a failed test, not an error to handle.

/// Value of the metadata. Types that AMDGPU metadata does not use are left out.
#[derive(Debug)]
pub(crate) enum Value {
    /// Nil, a float or an extension: unused.
    Other,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Number(u64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Pairs in order.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(pairs) = self else { return None };
        pairs.iter().find(|(k, _)| matches!(k, Value::Text(t) if t == key)).map(|(_, v)| v)
    }

    /// Returns the integer of a key; 0 if it is missing, as the format defines.
    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.get(key) {
            Some(Value::Number(n)) => *n,
            Some(Value::Bool(b)) => u64::from(*b),
            _ => 0,
        }
    }

    /// Returns the text of a key.
    pub(crate) fn text(&self, key: &str) -> &str {
        match self.get(key) {
            Some(Value::Text(t)) => t,
            _ => "",
        }
    }

    /// Returns the list of a key.
    pub(crate) fn list(&self, key: &str) -> &[Value] {
        match self.get(key) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
}

/// Returns the metadata of a bare ELF: the note "AMDGPU" of type 32 in a PT_NOTE segment.
pub(crate) fn metadata(elf: &[u8]) -> Value {
    assert!(elf.starts_with(b"\x7fELF\x02\x01"), "a 64-bit little-endian ELF file");
    let (headers, size, count) = (number(elf, 32, 8), number(elf, 54, 2), number(elf, 56, 2));
    for header in (0..count).map(|i| &elf[headers + i * size..][..size]) {
        let (offset, bytes) = (number(header, 8, 8), number(header, 32, 8));
        if number(header, 0, 4) != 4 {
            continue;
        }
        let notes = &elf[offset..offset + bytes];
        let mut at = 0;
        while at < notes.len() {
            let (name, len) = (number(notes, at, 4), number(notes, at + 4, 4));
            let begin = at + 12 + name.next_multiple_of(4);
            if number(notes, at + 8, 4) == 32 && notes[at + 12..].starts_with(b"AMDGPU\0") {
                return Reader { bytes: &notes[begin..begin + len], at: 0 }.value();
            }
            at = begin + len.next_multiple_of(4);
        }
    }
    panic!("no AMDGPU metadata");
}

/// Returns the words of a kernel: its symbol in a bare ELF is a function with a size, in a section whose file
/// offset differs from its address.
#[allow(dead_code)]
pub(crate) fn words(elf: &[u8], kernel: &str) -> Vec<u32> {
    let (table, size, count) = (number(elf, 40, 8), number(elf, 58, 2), number(elf, 60, 2));
    let section = |i: usize| {
        let at = table + i * size;
        // Type, address, offset, bytes, linked section.
        [(4, 4), (16, 8), (24, 8), (32, 8), (40, 4)].map(|(field, len)| number(elf, at + field, len))
    };
    for [_, _, symbols, bytes, names] in (0..count).map(section).filter(|s| s[0] == 11) {
        let names = section(names)[2];
        for symbol in (0..bytes / 24).map(|i| symbols + i * 24) {
            let name = &elf[names + number(elf, symbol, 4)..];
            if name.starts_with(kernel.as_bytes()) && name[kernel.len()] == 0 && elf[symbol + 4] & 15 == 2 {
                let [_, address, offset, ..] = section(number(elf, symbol + 6, 2));
                let begin = number(elf, symbol + 8, 8) - address + offset;
                let code = &elf[begin..begin + number(elf, symbol + 16, 8)];
                return code.chunks_exact(4).map(|word| number(word, 0, 4) as u32).collect();
            }
        }
    }
    panic!("no code of {kernel}");
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn big_endian(&mut self, len: usize) -> u64 {
        let n = self.bytes[self.at..self.at + len].iter().fold(0, |n, &b| n << 8 | u64::from(b));
        self.at += len;
        n
    }

    fn text(&mut self, len: usize) -> Value {
        let text = String::from_utf8_lossy(&self.bytes[self.at..self.at + len]).into_owned();
        self.at += len;
        Value::Text(text)
    }

    fn list(&mut self, len: usize) -> Value {
        Value::List((0..len).map(|_| self.value()).collect())
    }

    fn map(&mut self, len: usize) -> Value {
        Value::Map((0..len).map(|_| (self.value(), self.value())).collect())
    }

    fn value(&mut self) -> Value {
        let byte = self.big_endian(1) as u8;
        let low = |mask: u8| usize::from(byte & mask);
        match byte {
            0x00..=0x7f => Value::Number(byte.into()),
            0x80..=0x8f => self.map(low(15)),
            0x90..=0x9f => self.list(low(15)),
            0xa0..=0xbf => self.text(low(31)),
            0xc2 | 0xc3 => Value::Bool(byte == 0xc3),
            0xcc..=0xcf => Value::Number(self.big_endian(1 << (byte - 0xcc))),
            0xd9..=0xdb => {
                let len = self.big_endian(1 << (byte - 0xd9)) as usize;
                self.text(len)
            }
            0xdc | 0xdd => {
                let len = self.big_endian(2 << (byte - 0xdc)) as usize;
                self.list(len)
            }
            0xde | 0xdf => {
                let len = self.big_endian(2 << (byte - 0xde)) as usize;
                self.map(len)
            }
            0xe0..=0xff | 0xc0 => Value::Other,
            _ => panic!("MessagePack type {byte:#x} is not used by AMDGPU metadata"),
        }
    }
}
