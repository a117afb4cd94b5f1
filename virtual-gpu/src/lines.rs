//! Source lines of a code object, from its section `.debug_line` if it has one.
//!
//! Source: DWARF Debugging Information Format, versions 4 and 5, 6.2 "Line Number Information".

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};
use std::sync::OnceLock;

/// The lines of a code object. They are read when a fault asks for one.
pub(crate) struct Lines {
    line: Vec<u8>,
    /// `.debug_line_str` and `.debug_str`.
    strings: [Vec<u8>; 2],
    rows: OnceLock<Vec<Row>>,
}

/// Beginning of a range of addresses that belong to a line; no line at the end of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    address: u64,
    place: Option<String>,
}

impl Lines {
    /// Returns the lines of an ELF file; `None` if it has none.
    pub(crate) fn read(file: &ElfFile64<'_, Endianness>) -> Option<Lines> {
        let section = |name: &str| {
            let data = file.section_by_name(name).and_then(|section| section.uncompressed_data().ok());
            data.map(|data| data.into_owned()).unwrap_or_default()
        };
        let line = section(".debug_line");
        let strings = [".debug_line_str", ".debug_str"].map(section);
        (!line.is_empty()).then(|| Lines { line, strings, rows: OnceLock::new() })
    }

    /// Returns the file and line of an address.
    pub(crate) fn at(&self, address: u64) -> Option<String> {
        let rows = self.rows.get_or_init(|| {
            let mut rows = Vec::new();
            let mut unit = Some(Bytes(&self.line));
            while let Some(next) = unit.filter(|unit| !unit.0.is_empty()) {
                unit = next.unit(&self.strings, &mut rows);
            }
            rows.sort_by_key(|row| row.address);
            rows
        });
        let after = rows.partition_point(|row| row.address <= address);
        rows[..after].last()?.place.clone()
    }
}

/// Bytes that are read from the beginning. `None` if they end too early.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// A number of any length, 7 bits in each byte.
    fn unsigned(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte & 128 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= i64::from(byte & 127) << shift;
            shift += 7;
            if byte & 128 == 0 {
                let sign = if byte & 64 != 0 && shift < 64 { -1 << shift } else { 0 };
                return Some(number | sign);
            }
            if shift >= 63 {
                return None;
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = String::from_utf8_lossy(self.take(end)?).into_owned();
        self.byte()?;
        Some(text)
    }

    /// Reads one unit's program into rows; returns what is behind it.
    fn unit(mut self, strings: &[Vec<u8>; 2], rows: &mut Vec<Row>) -> Option<Bytes<'a>> {
        let (mut wide, mut length) = (4, self.number(4)?);
        if length == 0xffff_ffff {
            (wide, length) = (8, self.number(8)?);
        }
        let unit = Bytes(self.take(usize::try_from(length).ok()?)?);
        // A unit that cannot be read has no lines; those behind it may have some.
        if let Some(program) = Program::read(unit, wide, strings) {
            program.run(rows);
        }
        Some(self)
    }
}

/// The program of a unit, which makes its rows.
struct Program<'a> {
    code: Bytes<'a>,
    /// Names by number; version 5 counts from 0, earlier ones from 1.
    files: Vec<String>,
    first_file: u64,
    step: u64,
    line_base: i8,
    line_range: u8,
    opcode_base: u8,
    lengths: &'a [u8],
}

impl<'a> Program<'a> {
    fn read(mut unit: Bytes<'a>, wide: usize, strings: &[Vec<u8>; 2]) -> Option<Program<'a>> {
        let version = unit.number(2)?;
        if !(2..=5).contains(&version) {
            return None;
        }
        if version == 5 {
            unit.take(2)?;
        }
        let header = usize::try_from(unit.number(wide)?).ok()?;
        let mut head = Bytes(unit.take(header)?);
        let step = head.byte()?.into();
        if version >= 4 {
            head.byte()?;
        }
        head.byte()?;
        let (line_base, line_range, opcode_base) = (head.byte()? as i8, head.byte()?, head.byte()?);
        if line_range == 0 {
            return None;
        }
        let lengths = head.take(usize::from(opcode_base.checked_sub(1)?))?;
        let files = match version {
            5 => {
                head.entries(wide, strings)?;
                head.entries(wide, strings)?
            }
            _ => head.old_files()?,
        };
        let first_file = u64::from(version < 5);
        Some(Program { code: unit, files, first_file, step, line_base, line_range, opcode_base, lengths })
    }

    fn place(&self, file: u64, line: u64) -> Option<String> {
        let file = self.files.get(usize::try_from(file.checked_sub(self.first_file)?).ok()?)?;
        Some(format!("{file}:{line}"))
    }

    /// Runs the program as far as it can be read.
    fn run(mut self, rows: &mut Vec<Row>) -> Option<()> {
        let (mut address, mut file, mut line) = (0u64, 1u64, 1u64);
        while !self.code.0.is_empty() {
            let opcode = self.code.byte()?;
            let mut row = false;
            match opcode {
                0 => {
                    let length = usize::try_from(self.code.unsigned()?).ok()?;
                    let mut operands = Bytes(self.code.take(length)?);
                    match operands.byte()? {
                        1 => {
                            rows.push(Row { address, place: None });
                            (address, file, line) = (0, 1, 1);
                        }
                        2 => address = operands.number(operands.0.len().min(8))?,
                        _ => {}
                    }
                }
                1 if opcode < self.opcode_base => row = true,
                2 if opcode < self.opcode_base => {
                    address = address.wrapping_add(self.code.unsigned()?.wrapping_mul(self.step));
                }
                3 if opcode < self.opcode_base => line = line.wrapping_add_signed(self.code.signed()?),
                4 if opcode < self.opcode_base => file = self.code.unsigned()?,
                8 if opcode < self.opcode_base => address = address.wrapping_add(self.advance(255)),
                9 if opcode < self.opcode_base => address = address.wrapping_add(self.code.number(2)?),
                _ if opcode < self.opcode_base => {
                    for _ in 0..*self.lengths.get(usize::from(opcode) - 1)? {
                        self.code.unsigned()?;
                    }
                }
                _ => {
                    let adjusted = opcode - self.opcode_base;
                    address = address.wrapping_add(self.advance(opcode));
                    let lines = i64::from(self.line_base) + i64::from(adjusted % self.line_range);
                    line = line.wrapping_add_signed(lines);
                    row = true;
                }
            }
            if row {
                rows.push(Row { address, place: self.place(file, line) });
            }
        }
        Some(())
    }

    /// Returns the bytes by which a special opcode advances the address.
    fn advance(&self, opcode: u8) -> u64 {
        u64::from((opcode - self.opcode_base) / self.line_range) * self.step
    }
}

impl Bytes<'_> {
    /// Reads a table of directories or files of version 5; returns the names.
    fn entries(&mut self, wide: usize, strings: &[Vec<u8>; 2]) -> Option<Vec<String>> {
        let count = self.byte()?;
        let formats: Vec<(u64, u64)> =
            (0..count).map(|_| Some((self.unsigned()?, self.unsigned()?))).collect::<Option<_>>()?;
        let mut names = Vec::new();
        for _ in 0..self.unsigned()? {
            let mut name = String::new();
            for &(content, form) in &formats {
                let text = self.form(form, wide, strings)?;
                if content == 1 {
                    name = text;
                }
            }
            names.push(name);
            if formats.is_empty() {
                return None;
            }
        }
        Some(names)
    }

    /// Reads a value; returns it if it is text.
    fn form(&mut self, form: u64, wide: usize, strings: &[Vec<u8>; 2]) -> Option<String> {
        let section = match form {
            0x08 => return self.text(),
            0x1f => &strings[0],
            0x0e => &strings[1],
            // data16, data1, data2, data4, data8, udata, block.
            0x1e => return self.take(16).map(|_| String::new()),
            0x0b => return self.take(1).map(|_| String::new()),
            0x05 => return self.take(2).map(|_| String::new()),
            0x06 => return self.take(4).map(|_| String::new()),
            0x07 => return self.take(8).map(|_| String::new()),
            0x0f => return self.unsigned().map(|_| String::new()),
            0x09 => {
                let length = usize::try_from(self.unsigned()?).ok()?;
                return self.take(length).map(|_| String::new());
            }
            _ => return None,
        };
        let offset = usize::try_from(self.number(wide)?).ok()?;
        Bytes(section.get(offset..)?).text()
    }

    /// Reads the files of a version before 5.
    fn old_files(&mut self) -> Option<Vec<String>> {
        while !self.text()?.is_empty() {}
        let mut files = Vec::new();
        loop {
            let name = self.text()?;
            if name.is_empty() {
                return Some(files);
            }
            for _ in 0..3 {
                self.unsigned()?;
            }
            files.push(name);
        }
    }
}
