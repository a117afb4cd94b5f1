//! The grammar that packing and unpacking share: the words of an instruction that are IDs.

/// First word of a module.
pub(crate) const MAGIC: u32 = 0x0723_0203;

/// Words of a module before its instructions.
pub(crate) const HEADER: usize = 5;

pub(crate) const OP_MEMORY_MODEL: u16 = 14;
pub(crate) const OP_FUNCTION: u16 = 54;
const OP_SWITCH: u16 = 251;

/// Kind of a word of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Result,
    Id,
    Literal,
}

/// Returns the kind of the word at a position; the opcode has position 0.
pub(crate) fn word(opcode: u16, position: usize) -> Word {
    let (result, literals) = layout(opcode);
    match position {
        _ if position == result => Word::Result,
        // Targets alternate with the values.
        3.. if opcode == OP_SWITCH && position.is_multiple_of(2) => Word::Id,
        _ if literals.contains(&position) => Word::Literal,
        _ => Word::Id,
    }
}

/// Returns the position of the result, or 0, and the positions of literals. An opcode not listed has a type,
/// a result, and operands that are IDs.
fn layout(opcode: u16) -> (usize, std::ops::Range<usize>) {
    const END: usize = usize::MAX;
    match opcode {
        // Capability, Extension, MemoryModel, EntryPoint.
        10 | 17 | OP_MEMORY_MODEL | 15 => (0, 1..END),
        // Name, MemberName, ExecutionMode, Decorate, MemberDecorate, SelectionMerge.
        5 | 6 | 16 | 71 | 72 | 247 => (0, 2..END),
        // Store, LoopMerge, Switch.
        62 | 246 | OP_SWITCH => (0, 3..END),
        // CooperativeMatrixStore.
        4458 => (0, 5..END),
        // FunctionEnd, CopyMemory, barriers, branches, returns.
        56 | 63 | 224 | 225 | 249 | 250 | 252..=255 => (0, 0..0),
        // ExtInstImport, TypeVoid, TypeBool, TypeInt, TypeFloat.
        11 | 19..=22 => (1, 2..END),
        // TypeVector.
        23 => (1, 3..END),
        // TypeArray, TypeRuntimeArray, TypeStruct, TypeFunction, Label, TypeCooperativeMatrix.
        28..=30 | 33 | 248 | 4456 => (1, 0..0),
        // TypePointer.
        32 => (1, 2..3),
        // Constant, SpecConstant.
        43 | 50 => (2, 3..END),
        // SpecConstantOp, Function, Variable.
        52 | OP_FUNCTION | 59 => (2, 3..4),
        // Load, CompositeExtract.
        61 | 81 => (2, 4..END),
        // ExtInst, and the group operations with a literal for the kind of reduction.
        12 | 342 | 349..=364 => (2, 4..5),
        // VectorShuffle, CompositeInsert, dot products of packed integers.
        79 | 82 | 4450..=4455 => (2, 5..END),
        // CooperativeMatrixLoad, CooperativeMatrixMulAdd.
        4457 | 4459 => (2, 6..END),
        _ => (2, 0..0),
    }
}

/// Returns a checksum that depends on the words and their order.
pub(crate) fn checksum(words: &[u32]) -> u64 {
    words.iter().fold(words.len() as u64, |sum, &word| {
        (sum ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}
