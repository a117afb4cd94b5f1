//! Removes source text and line numbers from a module and keeps every name.

const OP_SOURCE_CONTINUED: u16 = 2;
const OP_SOURCE: u16 = 3;
const OP_SOURCE_EXTENSION: u16 = 4;
const OP_STRING: u16 = 7;
const OP_LINE: u16 = 8;
const OP_EXT_INST_IMPORT: u16 = 11;
const OP_NO_LINE: u16 = 317;
const OP_MODULE_PROCESSED: u16 = 330;

const HEADER_WORDS: usize = 5;

/// The module without source text and lines; `None` if an instruction reaches past the end.
///
/// Strings stay where an instruction set that is not semantic (such as debug printf) is imported: it may refer to them.
pub(crate) fn strip(words: &[u32]) -> Option<Vec<u32>> {
    let mut instructions = Vec::new();
    let mut rest = words.get(HEADER_WORDS..)?;
    while let Some(first) = rest.first() {
        let (instruction, next) = rest.split_at_checked((first >> 16) as usize)?;
        let opcode = *instruction.first()? as u16;
        instructions.push((opcode, instruction));
        rest = next;
    }
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
    }
}
