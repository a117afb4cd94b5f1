//! Packing, for the build script and for tests.

use super::grammar::{HEADER, MAGIC, OP_FUNCTION, OP_MEMORY_MODEL, Word, word};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Opcodes that declare types, which follow names and decorations.
const TYPES: std::ops::RangeInclusive<u16> = 19..=39;

/// Packs one container after the other.
#[derive(Default)]
pub(crate) struct Packer {
    numbers: Vec<u8>,
    ids: Vec<u8>,
    /// Declaration number, by the integers that spell the declaration out and the index among identical ones
    /// in a module.
    declarations: HashMap<(Vec<u8>, usize), usize>,
}

/// IDs of the module that is being written.
#[derive(Default)]
struct Ids {
    declared: HashMap<u32, usize>,
    others: HashMap<u32, usize>,
    last: u32,
}

impl Packer {
    /// Adds a container; `None` if an instruction of it is incomplete.
    pub(crate) fn add(&mut self, container: &[u32]) -> Option<()> {
        let tables = container.iter().position(|&word| word == MAGIC).unwrap_or(container.len());
        let (tables, mut rest) = container.split_at(tables);
        leb128(&mut self.numbers, tables.len() as u32);
        tables.iter().for_each(|&word| leb128(&mut self.numbers, word));
        while !rest.is_empty() {
            let mut instructions = Vec::new();
            let (header, mut after) = rest.split_at_checked(HEADER)?;
            while let Some(&first) = after.first().filter(|&&word| word != MAGIC) {
                let (instruction, next) = after.split_at_checked((first >> 16) as usize)?;
                instructions.push(instruction.split_first()?);
                after = next;
            }
            self.module(header, rest.len() - after.len(), &instructions);
            rest = after;
        }
        Some(())
    }

    /// Returns the two streams.
    pub(crate) fn finish(self) -> Vec<u8> {
        [&(self.numbers.len() as u32).to_le_bytes()[..], &self.numbers, &self.ids].concat()
    }

    fn module(&mut self, header: &[u32], length: usize, instructions: &[(&u32, &[u32])]) {
        let opcodes = || instructions.iter().map(|(first, _)| **first as u16);
        let names_at = opcodes().position(|opcode| opcode == OP_MEMORY_MODEL).unwrap_or(0);
        let types_at = opcodes().position(|opcode| TYPES.contains(&opcode)).unwrap_or(0).max(names_at);
        let (before, names, types) =
            (&instructions[..names_at], &instructions[names_at..types_at], &instructions[types_at..]);
        let words =
            |part: &[(&u32, &[u32])]| part.iter().map(|(_, operands)| operands.len() as u32 + 1).sum();
        for number in [length as u32, words(before), words(names)].iter().chain(&header[1..]) {
            leb128(&mut self.numbers, *number);
        }

        let (mut ids, mut alike, mut in_function) = (Ids::default(), HashMap::new(), false);
        for (first, operands) in [before, types, names].into_iter().flatten() {
            let opcode = **first as u16;
            let declaration = if in_function { None } else { ids.declaration(opcode, operands) };
            if let Some((result, spelled)) = declaration {
                let nth = alike.entry(spelled.clone()).and_modify(|nth| *nth += 1).or_insert(0);
                self.declaration(result, spelled, *nth, &mut ids);
                continue;
            }
            if !in_function {
                self.numbers.push(0);
            }
            self.instruction(opcode, operands, &mut ids);
            in_function |= opcode == OP_FUNCTION;
        }
    }

    fn declaration(&mut self, result: u32, spelled: Vec<u8>, nth: usize, ids: &mut Ids) {
        let next = self.declarations.len();
        let number = match self.declarations.entry((spelled, nth)) {
            Entry::Occupied(known) => {
                leb128(&mut self.numbers, *known.get() as u32 + 2);
                *known.get()
            }
            Entry::Vacant(new) => {
                self.numbers.push(1);
                self.numbers.extend(&new.key().0);
                *new.insert(next)
            }
        };
        leb128(&mut self.ids, ids.step(result));
        ids.declared.insert(result, number);
    }

    fn instruction(&mut self, opcode: u16, operands: &[u32], ids: &mut Ids) {
        leb128(&mut self.numbers, opcode.into());
        leb128(&mut self.numbers, operands.len() as u32);
        for (&operand, position) in operands.iter().zip(1..) {
            let number = match word(opcode, position) {
                Word::Literal => operand,
                _ => ids.known(operand).unwrap_or_else(|| {
                    leb128(&mut self.ids, ids.step(operand));
                    ids.others.insert(operand, ids.others.len());
                    0
                }),
            };
            leb128(&mut self.numbers, number);
        }
    }
}

impl Ids {
    /// Returns the encoding of a known ID; `None` at its first appearance.
    fn known(&self, id: u32) -> Option<u32> {
        let declared = self.declared.get(&id).map(|number| 2 * number + 1);
        let other = || self.others.get(&id).map(|index| 2 * (self.others.len() - index));
        Some(declared.or_else(other)? as u32)
    }

    /// Returns the result and the spelling of an instruction that later modules can refer to: one whose
    /// operands are all declarations.
    fn declaration(&self, opcode: u16, operands: &[u32]) -> Option<(u32, Vec<u8>)> {
        let (mut declared, mut spelled) = (None, Vec::new());
        leb128(&mut spelled, opcode.into());
        leb128(&mut spelled, operands.len() as u32);
        for (&operand, position) in operands.iter().zip(1..) {
            match word(opcode, position) {
                Word::Result => declared = Some(operand),
                Word::Literal => leb128(&mut spelled, operand),
                Word::Id => leb128(&mut spelled, 2 * *self.declared.get(&operand)? as u32 + 1),
            }
        }
        declared.filter(|_| opcode != OP_FUNCTION).map(|result| (result, spelled))
    }

    /// Returns the zigzag-encoded difference from the previous ID.
    fn step(&mut self, id: u32) -> u32 {
        let step = id.wrapping_sub(self.last) as i32;
        self.last = id;
        (step << 1 ^ step >> 31) as u32
    }
}

fn leb128(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}
