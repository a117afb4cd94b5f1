//! Changes to a module after compilation: source text and line numbers are removed, all names are retained,
//! and storage buffers are declared to alias.

use shaders::reflect::{DECORATION_ALIASED, STORAGE_BUFFER};

const OP_SOURCE_CONTINUED: u16 = 2;
const OP_SOURCE: u16 = 3;
const OP_SOURCE_EXTENSION: u16 = 4;
const OP_STRING: u16 = 7;
const OP_LINE: u16 = 8;
const OP_EXT_INST_IMPORT: u16 = 11;
const OP_VARIABLE: u16 = 59;
const OP_DECORATE: u16 = 71;
const OP_MEMBER_DECORATE: u16 = 72;
const OP_NO_LINE: u16 = 317;
const OP_MODULE_PROCESSED: u16 = 330;

const HEADER_WORDS: usize = 5;

/// Returns the instructions of a module, each with its opcode; `None` if one reaches past the end.
fn instructions(words: &[u32]) -> Option<Vec<(u16, &[u32])>> {
    let mut instructions = Vec::new();
    let mut rest = words.get(HEADER_WORDS..)?;
    while let Some(first) = rest.first() {
        let (instruction, next) = rest.split_at_checked((first >> 16) as usize)?;
        let opcode = *instruction.first()? as u16;
        instructions.push((opcode, instruction));
        rest = next;
    }
    Some(instructions)
}

/// Removes source text and line numbers from a module; `None` if it is damaged.
///
/// Strings are retained if a non-semantic instruction set (such as debug printf) is imported, because its
/// instructions may refer to them.
pub(crate) fn strip(words: &[u32]) -> Option<Vec<u32>> {
    let instructions = instructions(words)?;
    let non_semantic = instructions.iter().any(|(opcode, instruction)| {
        let name: Vec<u8> = instruction.iter().skip(2).flat_map(|word| word.to_le_bytes()).collect();
        *opcode == OP_EXT_INST_IMPORT && name.starts_with(b"NonSemantic.")
    });
    let mut kept = words[..HEADER_WORDS].to_vec();
    for (opcode, instruction) in instructions {
        let drop = match opcode {
            OP_SOURCE_CONTINUED | OP_SOURCE | OP_SOURCE_EXTENSION | OP_LINE | OP_NO_LINE
            | OP_MODULE_PROCESSED => true,
            OP_STRING => !non_semantic,
            _ => false,
        };
        if !drop {
            kept.extend(instruction);
        }
    }
    Some(kept)
}

/// Declares every storage buffer of a module to alias others; `None` if the module is damaged.
///
/// In the memory model of GLSL, two buffers without this decoration are assumed to be distinct. Here they
/// often are not: an in-place operation has one tensor behind two bindings, and some shaders access one
/// binding both as words and as vectors. GLSL has no syntax for this decoration.
pub(crate) fn alias(words: &[u32]) -> Option<Vec<u32>> {
    let instructions = instructions(words)?;
    let is_aliased = |id: u32| {
        let known = |(opcode, i): &(u16, &[u32])| {
            *opcode == OP_DECORATE && i.get(1..3) == Some(&[id, DECORATION_ALIASED])
        };
        instructions.iter().any(known)
    };
    let buffers = instructions.iter().filter_map(|(opcode, i)| match i {
        [_, _, id, STORAGE_BUFFER, ..] if *opcode == OP_VARIABLE => Some(*id),
        _ => None,
    });
    let mut added: Vec<u32> = buffers
        .filter(|id| !is_aliased(*id))
        .flat_map(|id| [3 << 16 | u32::from(OP_DECORATE), id, DECORATION_ALIASED])
        .collect();
    let mut changed = words[..HEADER_WORDS].to_vec();
    for (opcode, instruction) in &instructions {
        // Decorations are contiguous. A storage buffer always has some: its set and binding.
        if matches!(*opcode, OP_DECORATE | OP_MEMBER_DECORATE) {
            changed.append(&mut added);
        }
        changed.extend(*instruction);
    }
    added.is_empty().then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(instructions: &[&[u32]]) -> Vec<u32> {
        let mut words = vec![shaders::SPIRV_MAGIC, 0x0001_0500, 0, 10, 0];
        for instruction in instructions {
            words.push((instruction.len() as u32) << 16 | instruction[0]);
            words.extend(&instruction[1..]);
        }
        words
    }

    #[test]
    fn names_stay_and_lines_go() {
        let name: &[u32] = &[5, 1, u32::from_le_bytes(*b"abc\0")];
        let source: &[&[u32]] =
            &[&[7, 2, u32::from_le_bytes(*b"x.c\0")], &[3, 2, 450, 2], name, &[8, 2, 1, 1], &[317]];
        assert_eq!(strip(&module(source)), Some(module(&[name])));
    }

    #[test]
    fn strings_of_printf_stay_and_damage_is_none() {
        let import: &[u32] =
            &[11, 3, u32::from_le_bytes(*b"NonS"), u32::from_le_bytes(*b"eman"), 0x2e63_6974, 0];
        let string: &[u32] = &[7, 2, u32::from_le_bytes(*b"%d\0\0")];
        assert_eq!(strip(&module(&[import, string])), Some(module(&[import, string])));
        let cut = module(&[import, string]);
        assert_eq!(strip(&cut[..cut.len() - 1]), None);
        assert_eq!(strip(&[shaders::SPIRV_MAGIC, 0, 0, 0, 0, 0]), None);
        assert_eq!(alias(&cut[..cut.len() - 1]), None);
    }

    #[test]
    fn storage_buffers_are_declared_to_alias_once() {
        let binding: &[u32] = &[71, 4, 33, 0];
        let (buffer, other): (&[u32], &[u32]) = (&[59, 3, 4, 12], &[59, 3, 5, 12]);
        let shared: &[u32] = &[59, 3, 6, 4];
        let aliased: [&[u32]; 2] = [&[71, 4, 20], &[71, 5, 20]];
        let once = module(&[aliased[0], aliased[1], binding, buffer, other, shared]);
        assert_eq!(alias(&module(&[binding, buffer, other, shared])).as_ref(), Some(&once));
        assert_eq!(alias(&once).as_ref(), Some(&once));
        assert_eq!(alias(&module(&[buffer])), None, "a buffer without a binding");
    }
}
