//! Number of executions of each block by a work-group: counters are added once for each block, not once for each
//! execution.

use crate::counters::Counters;
use crate::instructions::Block;

/// Lists of a tally, which keep their room from one work-group to the next.
#[derive(Default)]
pub(super) struct Lists {
    /// Executions by the number of the block.
    executions: Vec<u32>,
    /// Numbers of the executed blocks, and the counts of one execution.
    executed: Vec<(usize, Counters)>,
}

/// Executions of blocks.
pub(super) struct Tally<'a> {
    lists: &'a mut Lists,
    /// Counts that no longer fit.
    before: Counters,
}

impl<'a> Tally<'a> {
    /// Begins with none.
    pub(super) fn new(lists: &'a mut Lists) -> Tally<'a> {
        for (block, _) in lists.executed.drain(..) {
            lists.executions[block] = 0;
        }
        Tally { lists, before: Counters::default() }
    }

    /// Adds an execution.
    #[inline(always)]
    pub(super) fn add(&mut self, block: &Block) {
        match self.lists.executions.get_mut(block.number) {
            Some(count) if *count > 0 && *count < u32::MAX => *count += 1,
            _ => self.add_first(block),
        }
    }

    #[inline(never)]
    fn add_first(&mut self, block: &Block) {
        let Lists { executions, executed } = self.lists;
        if executions.len() <= block.number {
            executions.resize(block.number + 1, 0);
        }
        match &mut executions[block.number] {
            count if *count == 0 => {
                *count = 1;
                executed.push((block.number, block.counts));
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
        for &(block, counts) in &self.lists.executed {
            *counters += counts * self.lists.executions[block].into();
        }
    }
}
