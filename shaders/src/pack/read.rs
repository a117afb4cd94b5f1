//! Unpacking. It terminates for any input, and with no more words than the containers have.

use super::grammar::{HEADER, MAGIC, OP_FUNCTION, Word, checksum, word};

/// The error for packed SPIR-V that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed SPIR-V is damaged: {0}")]
pub(crate) struct Damaged(&'static str);

impl Damaged {
    pub(crate) const LZMA: Self = Self("LZMA");
}

/// Properties of a container that the build script records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) stem: &'static str,
    pub(crate) words: usize,
    pub(crate) checksum: u64,
}

/// Returns the words of the containers from the two streams.
pub(crate) fn unpack(bytes: &[u8], containers: &[Summary]) -> Result<Vec<Vec<u32>>, Damaged> {
    let (length, rest) = bytes.split_first_chunk().ok_or(Damaged("no length"))?;
    let streams = rest.split_at_checked(u32::from_le_bytes(*length) as usize);
    let (numbers, ids) = streams.ok_or(Damaged("the file is too short"))?;
    let mut reader = Reader { numbers: Numbers(numbers), ids: Numbers(ids), declarations: Vec::new() };
    let all = containers.iter().map(|container| reader.container(container)).collect::<Result<_, _>>()?;
    let read = reader.numbers.0.is_empty() && reader.ids.0.is_empty();
    if read { Ok(all) } else { Err(Damaged("trailing bytes")) }
}

/// A stream of LEB128 integers.
#[derive(Clone, Copy)]
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Result<u32, Damaged> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Damaged("it ends too soon"))?;
            self.0 = rest;
            number |= u32::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(Damaged("a number has no end"))
    }

    fn length(&mut self) -> Result<usize, Damaged> {
        self.next().map(|number| number as usize)
    }
}

struct Reader<'a> {
    numbers: Numbers<'a>,
    ids: Numbers<'a>,
    /// Positions in the stream at which the declarations of all modules are spelled out.
    declarations: Vec<Numbers<'a>>,
}

/// IDs of the module that is being read.
#[derive(Default)]
struct Ids {
    /// IDs by declaration number; 0 if the module does not have the declaration.
    declared: Vec<u32>,
    /// Other IDs in the order of first appearance.
    others: Vec<u32>,
    last: u32,
}

impl Reader<'_> {
    fn container(&mut self, container: &Summary) -> Result<Vec<u32>, Damaged> {
        let mut words = Vec::with_capacity(container.words);
        let tables = self.numbers.length()?;
        if tables > container.words {
            return Err(Damaged("the tables of a container"));
        }
        for _ in 0..tables {
            words.push(self.numbers.next()?);
        }
        while words.len() < container.words {
            self.module(&mut words, container.words)?;
        }
        if checksum(&words) == container.checksum { Ok(words) } else { Err(Damaged("the words are others")) }
    }

    /// Appends a module; the words end at `limit` at the latest.
    fn module(&mut self, words: &mut Vec<u32>, limit: usize) -> Result<(), Damaged> {
        let length = self.numbers.length()?;
        let end = words.len().checked_add(length).filter(|&end| length >= HEADER && end <= limit);
        let end = end.ok_or(Damaged("the length of a module"))?;
        let (names_at, names) = (self.numbers.length()?, self.numbers.length()?);
        words.push(MAGIC);
        for _ in 1..HEADER {
            words.push(self.numbers.next()?);
        }

        let (first, mut ids, mut in_function) = (words.len(), Ids::default(), false);
        while words.len() < end {
            let how = if in_function { 0 } else { self.numbers.length()? };
            let opcode = match how {
                0 => self.instruction(None, words, end, &mut ids)?,
                1 => {
                    self.declarations.push(self.numbers);
                    self.instruction(Some(self.declarations.len() - 1), words, end, &mut ids)?
                }
                _ => {
                    let known = self.declarations.get(how - 2).ok_or(Damaged("no such declaration"))?;
                    let here = std::mem::replace(&mut self.numbers, *known);
                    let opcode = self.instruction(Some(how - 2), words, end, &mut ids)?;
                    self.numbers = here;
                    opcode
                }
            };
            in_function |= opcode == OP_FUNCTION;
        }
        let moved = words.get_mut(first.saturating_add(names_at)..).filter(|moved| names <= moved.len());
        moved.ok_or(Damaged("the order of a module"))?.rotate_right(names);
        Ok(())
    }

    /// Appends an instruction and returns its opcode. `declaration`: its number, if it is one.
    fn instruction(
        &mut self,
        declaration: Option<usize>,
        words: &mut Vec<u32>,
        end: usize,
        ids: &mut Ids,
    ) -> Result<u16, Damaged> {
        let (opcode, count) = (self.numbers.next()? as u16, self.numbers.next()?);
        if count as usize >= end - words.len() || count >= 0xffff {
            return Err(Damaged("the length of an instruction"));
        }
        words.push((count + 1) << 16 | u32::from(opcode));
        for position in 1..=count as usize {
            let word = match (word(opcode, position), declaration) {
                (Word::Literal, _) => self.numbers.next()?,
                (Word::Result, Some(number)) => {
                    let id = self.new_id(ids)?;
                    ids.declare(number, id);
                    id
                }
                _ => self.id(ids)?,
            };
            words.push(word);
        }
        Ok(opcode)
    }

    fn id(&mut self, ids: &mut Ids) -> Result<u32, Damaged> {
        let number = self.numbers.length()?;
        let (index, declared) = (number / 2, number % 2 == 1);
        let id = match index {
            _ if declared => ids.declared.get(index).copied(),
            0 => {
                let id = self.new_id(ids)?;
                ids.others.push(id);
                Some(id)
            }
            _ => ids.others.len().checked_sub(index).map(|i| ids.others[i]),
        };
        id.ok_or(Damaged("an id that has not appeared"))
    }

    fn new_id(&mut self, ids: &mut Ids) -> Result<u32, Damaged> {
        let step = self.ids.next()?;
        // Even values are steps forward, odd ones are steps back.
        ids.last = ids.last.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg());
        Ok(ids.last)
    }
}

impl Ids {
    fn declare(&mut self, number: usize, id: u32) {
        if self.declared.len() <= number {
            self.declared.resize(number + 1, 0);
        }
        self.declared[number] = id;
    }
}
