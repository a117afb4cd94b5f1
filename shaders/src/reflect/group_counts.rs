//! Detection of the components of `gl_NumWorkGroups` that the functions of a module read.

use super::parse::{Module, instructions};

const OP_LOAD: u16 = 61;
const OP_ACCESS_CHAIN: u16 = 65;
const OP_IN_BOUNDS_ACCESS_CHAIN: u16 = 66;
const OP_COMPOSITE_EXTRACT: u16 = 81;
const BUILT_IN_NUM_WORKGROUPS: u32 = 24;

/// Returns the components of `gl_NumWorkGroups` that the functions of a module read. `words` are its words.
pub(super) fn components_read(module: &Module, words: &[u32]) -> [bool; 3] {
    let mut counts = GroupCounts::of(module);
    for (opcode, operands) in words.get(module.functions..).map(instructions).into_iter().flatten() {
        counts.instruction(module, opcode, operands);
    }
    counts.read
}

/// Tracks `gl_NumWorkGroups` through the functions of a module.
struct GroupCounts {
    /// ID of the built-in variable, if the module has it.
    variable: Option<u32>,
    /// IDs that hold the whole vector.
    vectors: Vec<u32>,
    /// Components that are read.
    read: [bool; 3],
}

impl GroupCounts {
    /// Creates the state before the first function.
    fn of(module: &Module) -> Self {
        Self { variable: module.built_in(BUILT_IN_NUM_WORKGROUPS), vectors: Vec::new(), read: [false; 3] }
    }

    /// Processes an instruction of a function.
    fn instruction(&mut self, module: &Module, opcode: u16, operands: &[u32]) {
        let Some(variable) = self.variable else { return };
        match (opcode, operands) {
            (OP_ACCESS_CHAIN | OP_IN_BOUNDS_ACCESS_CHAIN, [_, _, base, index]) if *base == variable => {
                self.read(module.constant(*index));
            }
            (OP_LOAD, [_, result, pointer, ..]) if *pointer == variable => self.vectors.push(*result),
            (OP_COMPOSITE_EXTRACT, [_, _, composite, index]) if self.vectors.contains(composite) => {
                self.read(Some(u64::from(*index)));
            }
            // The vector is used by an instruction that is not tracked. (A literal that happens to equal its
            // ID errs on the safe side.)
            (_, operands) if operands.iter().any(|id| self.vectors.contains(id)) => self.read(None),
            _ => {}
        }
    }

    /// Marks a component as read; `None`: unknown, so all of them.
    fn read(&mut self, component: Option<u64>) {
        match component.and_then(|index| self.read.get_mut(usize::try_from(index).ok()?)) {
            Some(read) => *read = true,
            None => self.read = [true; 3],
        }
    }
}
