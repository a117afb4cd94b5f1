//! Which axes of a grid a shader may be cut along.
//!
//! A long dispatch is run in parts with vkCmdDispatchBase: work-group ids go on counting, but the number of work-groups
//! that a shader can ask for is that of its part. So a grid is cut only along axes whose number the shader does not ask
//! for. (A kernel that strides over an axis by the number of work-groups asks for it.)

/// Opcodes, decorations and built-ins of SPIR-V that matter here.
mod spirv {
    pub(super) const CONSTANT: u32 = 43;
    pub(super) const LOAD: u32 = 61;
    pub(super) const ACCESS_CHAIN: u32 = 65;
    pub(super) const IN_BOUNDS_ACCESS_CHAIN: u32 = 66;
    pub(super) const DECORATE: u32 = 71;
    pub(super) const COMPOSITE_EXTRACT: u32 = 81;
    pub(super) const BUILT_IN: u32 = 11;
    pub(super) const NUM_WORKGROUPS: u32 = 24;
    /// Words before the first instruction.
    pub(super) const HEADER: usize = 5;
}

/// An instruction: opcode and operands.
type Instruction<'a> = (u32, &'a [u32]);

fn instructions(words: &[u32]) -> impl Iterator<Item = Instruction<'_>> {
    let mut at = spirv::HEADER;
    std::iter::from_fn(move || {
        let first = *words.get(at)?;
        let length = (first >> 16).max(1) as usize;
        let operands = words.get(at + 1..at + length)?;
        at += length;
        Some((first & 0xffff, operands))
    })
}

/// Whether a grid may be cut along each axis.
pub(crate) fn divisible(words: &[u32]) -> [bool; 3] {
    let is_count = |(opcode, operands): &Instruction<'_>| {
        *opcode == spirv::DECORATE && operands.get(1..3) == Some(&[spirv::BUILT_IN, spirv::NUM_WORKGROUPS])
    };
    let Some(variable) =
        instructions(words).find(is_count).and_then(|(_, operands)| operands.first().copied())
    else {
        return [true; 3];
    };
    let mut free = [true; 3];
    let mut taken = |axis: Option<u32>| match axis.and_then(|a| free.get_mut(a as usize)) {
        Some(axis) => *axis = false,
        None => free = [false; 3],
    };
    let constant = |id: u32| {
        let found =
            instructions(words).find(|(opcode, o)| *opcode == spirv::CONSTANT && o.get(1) == Some(&id));
        found.and_then(|(_, operands)| operands.get(2).copied())
    };
    // Ids that hold the whole vector.
    let mut vectors = Vec::new();
    for (opcode, operands) in instructions(words) {
        match (opcode, operands) {
            (spirv::ACCESS_CHAIN | spirv::IN_BOUNDS_ACCESS_CHAIN, [_, _, base, index, ..])
                if *base == variable =>
            {
                taken(constant(*index));
            }
            (spirv::LOAD, [_, result, pointer, ..]) if *pointer == variable => vectors.push(*result),
            (spirv::COMPOSITE_EXTRACT, [_, _, composite, index, ..]) if vectors.contains(composite) => {
                taken(Some(*index));
            }
            // The vector goes somewhere that is not followed. (Numbers that happen to equal its id err on the safe side.)
            (_, operands) if operands.iter().any(|id| vectors.contains(id)) => taken(None),
            _ => {}
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module of these instructions.
    fn module(instructions: &[&[u32]]) -> Vec<u32> {
        let mut words = vec![0; spirv::HEADER];
        for i in instructions {
            words.push((i.len() as u32) << 16 | i[0]);
            words.extend(&i[1..]);
        }
        words
    }

    const DECORATION: &[u32] = &[spirv::DECORATE, 9, spirv::BUILT_IN, spirv::NUM_WORKGROUPS];

    #[test]
    fn axes_that_are_asked_for_are_found() {
        assert_eq!(divisible(&module(&[])), [true; 3]);
        assert_eq!(divisible(&module(&[DECORATION])), [true; 3]);
        let chain: &[u32] = &[spirv::ACCESS_CHAIN, 1, 20, 9, 30];
        let two: &[u32] = &[spirv::CONSTANT, 2, 30, 2];
        assert_eq!(divisible(&module(&[DECORATION, two, chain])), [true, true, false]);
        assert_eq!(divisible(&module(&[DECORATION, chain])), [false; 3], "an index that is no constant");
        let load: &[u32] = &[spirv::LOAD, 1, 40, 9];
        let extract: &[u32] = &[spirv::COMPOSITE_EXTRACT, 2, 41, 40, 0];
        assert_eq!(divisible(&module(&[DECORATION, load, extract])), [false, true, true]);
        assert_eq!(divisible(&module(&[DECORATION, load, &[128, 1, 42, 40, 40]])), [false; 3]);
    }

    #[test]
    fn products_can_be_cut_by_rows_and_columns() {
        let words = shaders::module("mul_mat_tile", "f32_tile32").expect("in the committed set");
        let free = divisible(words);
        assert!(free[0] && free[1], "{free:?}");
    }
}
