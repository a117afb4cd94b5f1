//! Number of executions of each block by a work-group: counters are added once for each block, not once for each
//! execution.

use crate::counters::Counters;
use crate::instructions::Block;

/// Executions of blocks.
pub(super) struct Tally<'a> {
    /// By the number of the block.
    executions: &'a mut Vec<u32>,
    executed: Vec<&'a Block>,
    /// Counts that no longer fit.
    before: Counters,
}

impl<'a> Tally<'a> {
    /// Begins with none. `executions` is a buffer.
    pub(super) fn new(executions: &'a mut Vec<u32>) -> Tally<'a> {
        executions.clear();
        Tally { executions, executed: Vec::new(), before: Counters::default() }
    }

    /// Adds an execution.
    #[inline(always)]
    pub(super) fn add(&mut self, block: &'a Block) {
        match self.executions.get_mut(block.number) {
            Some(count) if *count > 0 && *count < u32::MAX => *count += 1,
            _ => self.add_first(block),
        }
    }

    #[inline(never)]
    fn add_first(&mut self, block: &'a Block) {
        if self.executions.len() <= block.number {
            self.executions.resize(block.number + 1, 0);
        }
        match &mut self.executions[block.number] {
            count if *count == 0 => {
                *count = 1;
                self.executed.push(block);
            }
            count => {
                self.before += block.counts * (*count).into();
                *count = 1;
            }
        }
    }

    /// Adds the counts of all executions.
    pub(super) fn count(&self, counters: &mut Counters) {
        *counters += self.before;
        for block in &self.executed {
            *counters += block.counts * self.executions[block.number].into();
        }
    }
}
