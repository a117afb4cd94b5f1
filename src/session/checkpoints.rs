//! Checkpoints: copies of recurrent state in host memory, so that a sequence can go back.
//!
//! Recurrent state holds all earlier tokens in one block, which cannot be cut. A checkpoint is a copy of the block after
//! some number of positions. Going back to a position restores the nearest checkpoint at or before it; the tokens from
//! there on are owed, see [`super::cells`], and computed again before the next ones.
//!
//! Memory is bounded. When it is full, the checkpoints thin out: the distance between two of them grows with their
//! distance from the end of the sequence, because texts change near their end.

use super::layout::StateLayout;
use super::{Session, Want};
use crate::model::StateKind;
use ggml_core::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least number of tokens of a call that is a prompt: a checkpoint is made before it, so that another prompt can take its
/// place.
const PROMPT: usize = 16;

/// Tokens between the checkpoint near the end of a conversation and its end, and the least number of tokens to compute
/// for which that checkpoint is worth a batch of its own. The next turn of a chat often changes the last tokens of the
/// prompt: templates begin answers differently than they repeat them.
const NEAR_END: [usize; 2] = [16, 64];

/// Least time between checkpoints that are not asked for, in times of making one: they cost 3 % of the time at most.
const RARELY: u32 = 32;

/// Recurrent state of a sequence.
#[derive(Clone, Debug)]
struct Checkpoint {
    sequence: usize,
    /// Number of positions that the state covers.
    position: usize,
    /// Blocks of the state tensors, one after the other. Sequences with a common prefix share them.
    state: Arc<Vec<u8>>,
}

/// Checkpoints of a session.
#[derive(Debug)]
pub(super) struct Checkpoints {
    held: Vec<Checkpoint>,
    /// Memory of dropped checkpoints.
    spare: Vec<Vec<u8>>,
    /// Number of blocks of memory that exist, and the maximum.
    blocks: [usize; 2],
    /// Bytes of a block.
    bytes: usize,
    /// Number of positions between checkpoints.
    every: usize,
    /// True if checkpoints are made at all these positions, however long they take.
    at_all: bool,
    /// Time of the last checkpoint, and how long it took to make it.
    last_made: Option<(Instant, Duration)>,
    /// For each sequence, a position where a checkpoint is wanted.
    wanted: Vec<Option<usize>>,
}

impl Checkpoints {
    /// Creates the structure for state with these layouts, without checkpoints. `every` are the positions between them if
    /// they were asked for, otherwise `batch`; `memory` is the maximum of their bytes. None are made of a model without
    /// recurrent state.
    pub(super) fn new(
        layouts: &[StateLayout],
        sequences: usize,
        (every, batch): (Option<usize>, usize),
        memory: u64,
    ) -> Checkpoints {
        let slots = layouts.iter().filter(|layout| layout.kind == StateKind::Slots);
        let bytes: usize = slots.map(|layout| layout.bytes).sum();
        let most = memory.checked_div(bytes as u64).unwrap_or(0);
        Checkpoints {
            held: Vec::new(),
            spare: Vec::new(),
            blocks: [0, usize::try_from(most).unwrap_or(usize::MAX)],
            bytes,
            every: every.unwrap_or(batch),
            at_all: every.is_some(),
            last_made: None,
            wanted: vec![None; sequences],
        }
    }

    /// True if checkpoints are made.
    fn are_made(&self) -> bool {
        self.blocks[1] > 0
    }

    /// Returns the number of tokens from `position` to the next checkpoint of a sequence.
    pub(super) fn distance(&self, sequence: usize, position: usize) -> usize {
        if !self.are_made() {
            return usize::MAX;
        }
        let wanted = self.wanted.get(sequence).copied().flatten().filter(|&wanted| wanted > position);
        let every = self.every - position % self.every;
        wanted.map_or(every, |wanted| every.min(wanted - position))
    }

    /// True if a checkpoint that nobody asked for costs little: not many are made for the time that everything else takes.
    fn costs_little(&self) -> bool {
        self.at_all || self.last_made.is_none_or(|(when, took)| when.elapsed() >= took * RARELY)
    }

    /// Returns the position of the last checkpoint of a sequence at or before `position`; 0 if there is none.
    pub(super) fn before(&self, sequence: usize, position: usize) -> usize {
        self.last(sequence, position).map_or(0, |checkpoint| checkpoint.position)
    }

    fn last(&self, sequence: usize, position: usize) -> Option<&Checkpoint> {
        let own = self.held.iter().filter(|held| held.sequence == sequence && held.position <= position);
        own.max_by_key(|held| held.position)
    }

    /// Wants a checkpoint near the end of a prompt that makes a sequence `length` positions long, if enough of it has to
    /// be computed.
    pub(super) fn want_near_end(&mut self, sequence: usize, computed: usize, length: usize) {
        let [distance, least] = NEAR_END;
        if let Some(wanted) = self.wanted.get_mut(sequence) {
            *wanted = (length.saturating_sub(computed) > least).then(|| length - distance);
        }
    }

    /// Drops the checkpoints of a sequence after `position`.
    pub(super) fn truncate(&mut self, sequence: usize, position: usize) {
        if let Some(wanted) = self.wanted.get_mut(sequence) {
            *wanted = wanted.filter(|&wanted| wanted <= position);
        }
        while let Some(index) =
            self.held.iter().position(|held| held.sequence == sequence && held.position > position)
        {
            self.drop_at(index);
        }
    }

    /// Drops all checkpoints.
    pub(super) fn clear(&mut self) {
        self.wanted.fill(None);
        while !self.held.is_empty() {
            self.drop_at(self.held.len() - 1);
        }
    }

    /// Gives a sequence the checkpoints of another one up to `position`.
    pub(super) fn share(&mut self, from: usize, to: usize, position: usize) {
        let shared = self.held.iter().filter(|held| held.sequence == from && held.position <= position);
        let shared: Vec<Checkpoint> =
            shared.map(|held| Checkpoint { sequence: to, ..held.clone() }).collect();
        self.held.extend(shared);
    }

    fn drop_at(&mut self, index: usize) {
        let dropped = self.held.swap_remove(index);
        // Another sequence may still hold the state.
        self.spare.extend(Arc::into_inner(dropped.state));
    }

    /// Returns memory for a checkpoint: unused, new, or that of the checkpoint that is missed least.
    fn memory(&mut self) -> Option<Vec<u8>> {
        while self.are_made() {
            if let Some(spare) = self.spare.pop() {
                return Some(spare);
            }
            if self.blocks[0] < self.blocks[1] {
                self.blocks[0] += 1;
                return Some(vec![0; self.bytes]);
            }
            self.drop_at(self.least_missed()?);
        }
        None
    }

    /// Returns the index of the checkpoint without which the gap that remains is smallest, in proportion to the distance
    /// from the gap's beginning to the sequence's last checkpoint. The last ones stay, unless there are no others.
    fn least_missed(&self) -> Option<usize> {
        let missed = |checkpoint: &Checkpoint| {
            let own = || self.held.iter().filter(|held| held.sequence == checkpoint.sequence);
            let positions = || own().map(|held| held.position);
            let last = positions().max().unwrap_or(0);
            let before = positions().filter(|&p| p < checkpoint.position).max().unwrap_or(0);
            let after = positions().filter(|&p| p > checkpoint.position).min();
            after.map_or(2.0, |after| (after - before) as f64 / (last - before) as f64)
        };
        let all = self.held.iter().enumerate().map(|(index, held)| (index, missed(held)));
        all.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index)
    }
}

impl Session {
    /// Keeps a checkpoint of the computed positions of a sequence, so that [`Session::truncate`] to them costs
    /// no computation. Checkpoints are kept by themselves every [`SessionOptions::checkpoint_every`] positions
    /// and before prompts; this is for other positions to which an application will return. It does nothing for
    /// models without recurrent state, which can go back to any position, and without
    /// [`SessionOptions::checkpoint_memory`].
    ///
    /// [`SessionOptions::checkpoint_every`]: super::SessionOptions::checkpoint_every
    /// [`SessionOptions::checkpoint_memory`]: super::SessionOptions::checkpoint_memory
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence; errors of the backend while it reads the state.
    pub fn keep_checkpoint(&mut self, sequence: usize) -> Result<()> {
        self.check_sequence(sequence)?;
        let position = self.cells.computed(sequence);
        if position == 0 || self.checkpoints.before(sequence, position) == position {
            return Ok(());
        }
        self.wait_in_flight()?;
        let Some(mut memory) = self.checkpoints.memory() else { return Ok(()) };
        let start = Instant::now();
        let read = self.read_slots(sequence, &mut memory);
        self.checkpoints.last_made = Some((Instant::now(), start.elapsed()));
        match read {
            Ok(()) => self.checkpoints.held.push(Checkpoint { sequence, position, state: Arc::new(memory) }),
            Err(_) => self.checkpoints.spare.push(memory),
        }
        read
    }

    /// Keeps a checkpoint before a call that appends `tokens` tokens to a sequence, if they are a prompt.
    pub(super) fn keep_before_prompt(&mut self, sequence: usize, tokens: usize, want: Want) -> Result<()> {
        if tokens < PROMPT || matches!(want, Want::Hidden(_)) || !self.checkpoints.costs_little() {
            return Ok(());
        }
        self.keep_checkpoint(sequence)
    }

    /// Keeps a checkpoint of a sequence if one was due after position `before`: at its last computed position, and rarely
    /// enough.
    pub(super) fn keep_if_due(&mut self, sequence: usize, before: usize, want: Want) -> Result<()> {
        let position = self.cells.computed(sequence);
        let checkpoints = &self.checkpoints;
        let due = position > before && position - before >= checkpoints.distance(sequence, before);
        // Layers after the wanted one have no state.
        if !due || matches!(want, Want::Hidden(_)) {
            return Ok(());
        }
        let is_wanted = checkpoints.wanted.get(sequence).copied().flatten() == Some(position);
        if is_wanted || checkpoints.costs_little() { self.keep_checkpoint(sequence) } else { Ok(()) }
    }

    /// Makes the recurrent state of a sequence be the one after its first `position` positions or fewer, and takes the
    /// cells of the positions after these. Without a checkpoint the sequence starts from the beginning.
    pub(super) fn roll_back(&mut self, sequence: usize, position: usize) -> Result<()> {
        self.wait_in_flight()?;
        let last = self.checkpoints.last(sequence, position);
        let outcome = match last {
            // A token at position 0 starts from zeros, whatever its slot holds.
            None => Ok(0),
            Some(last) => self.write_slots(sequence, &last.state).map(|()| last.position),
        };
        self.cells.unplace(sequence, *outcome.as_ref().unwrap_or(&0));
        outcome.map(|_| ())
    }

    /// Gives a sequence the recurrent state of another one after `position` positions: the present one if it has as many,
    /// otherwise that of a checkpoint, which exists.
    pub(super) fn copy_slots(&mut self, from: usize, to: usize, position: usize) -> Result<()> {
        if position == 0 {
            return Ok(());
        }
        self.wait_in_flight()?;
        if self.cells.computed(from) != position {
            let Some(last) = self.checkpoints.last(from, position) else {
                return Err(Error::argument(
                    "checkpoint",
                    format!("none at {position}"),
                    "one of the sequence",
                ));
            };
            return self.write_slots(to, &last.state);
        }
        for (tensor, layout) in self.layouts.iter().enumerate().filter(|(_, layout)| is_slot(layout)) {
            let (backend, mut slice) = self.state.location(tensor)?;
            let mut other = slice.clone();
            (slice.offset, other.offset) =
                (slice.offset + from * layout.bytes, other.offset + to * layout.bytes);
            backend.copy(&slice, &other, layout.bytes)?;
        }
        Ok(())
    }

    fn read_slots(&self, sequence: usize, mut out: &mut [u8]) -> Result<()> {
        for (tensor, layout) in self.layouts.iter().enumerate().filter(|(_, layout)| is_slot(layout)) {
            let (own, rest) = out.split_at_mut(layout.bytes);
            self.state.download(tensor, sequence * layout.bytes, own)?;
            out = rest;
        }
        Ok(())
    }

    fn write_slots(&self, sequence: usize, mut data: &[u8]) -> Result<()> {
        for (tensor, layout) in self.layouts.iter().enumerate().filter(|(_, layout)| is_slot(layout)) {
            let (own, rest) = data.split_at(layout.bytes);
            self.state.upload(tensor, sequence * layout.bytes, own)?;
            data = rest;
        }
        Ok(())
    }
}

fn is_slot(layout: &StateLayout) -> bool {
    layout.kind == StateKind::Slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoints(most: u64) -> Checkpoints {
        let layouts = [(StateKind::Rows, 9), (StateKind::Slots, 3), (StateKind::Slots, 5)];
        let layouts = layouts.map(|(kind, bytes)| StateLayout { kind, bytes });
        Checkpoints::new(&layouts, 3, (Some(10), 99), 8 * most + 7)
    }

    fn keep(all: &mut Checkpoints, sequence: usize, position: usize) {
        let memory = all.memory().expect("memory");
        assert_eq!(memory.len(), 8);
        all.held.push(Checkpoint { sequence, position, state: Arc::new(memory) });
    }

    fn positions(all: &Checkpoints, sequence: usize) -> Vec<usize> {
        let own = all.held.iter().filter(|held| held.sequence == sequence);
        let mut positions: Vec<usize> = own.map(|held| held.position).collect();
        positions.sort_unstable();
        positions
    }

    #[test]
    fn positions_are_multiples_and_one_near_the_end() {
        let mut all = checkpoints(4);
        assert_eq!([0, 7, 10].map(|p| all.distance(0, p)), [10, 3, 10]);
        all.want_near_end(0, 3, 99);
        assert_eq!([0, 79, 80, 82, 83].map(|p| all.distance(0, p)), [10, 1, 3, 1, 7]);
        assert_eq!(all.distance(1, 82), 8);
        all.want_near_end(0, 40, 99);
        assert_eq!(all.distance(0, 80), 10);
        // Without memory, and without recurrent state, nothing is cut.
        let none = Checkpoints::new(&[StateLayout { kind: StateKind::Rows, bytes: 9 }], 1, (None, 10), 1000);
        for none in [checkpoints(0), none] {
            assert_eq!((none.distance(0, 7), none.are_made()), (usize::MAX, false));
        }
    }

    #[test]
    fn the_nearest_one_is_found_and_later_ones_are_dropped() {
        let mut all = checkpoints(8);
        for (sequence, position) in [(0, 10), (0, 30), (1, 20), (0, 20)] {
            keep(&mut all, sequence, position);
        }
        assert_eq!([9, 10, 25, 99].map(|p| all.before(0, p)), [0, 10, 20, 30]);
        all.truncate(0, 20);
        assert_eq!((positions(&all, 0), positions(&all, 1)), (vec![10, 20], vec![20]));
        all.share(0, 2, 15);
        assert_eq!(positions(&all, 2), [10]);
        all.truncate(0, 0);
        assert_eq!((positions(&all, 0), positions(&all, 2), all.spare.len()), (vec![], vec![10], 2));
        all.clear();
        assert_eq!((all.held.len(), all.spare.len(), all.blocks), (0, 4, [4, 8]));
    }

    #[test]
    fn those_that_nobody_asked_for_are_rare() {
        let mut all = checkpoints(4);
        let took = Duration::from_secs(1000);
        all.last_made = Some((Instant::now(), took));
        assert!(all.costs_little());
        all.at_all = false;
        assert!(!all.costs_little());
        all.last_made = Some((Instant::now(), Duration::ZERO));
        assert!(all.costs_little());
        all.last_made = None;
        assert!(all.costs_little());
    }

    /// Memory is bounded; the gaps between those that stay grow with the distance from the end.
    #[test]
    fn they_thin_out_when_memory_is_full() {
        let mut all = checkpoints(12);
        for position in (10..=10_000).step_by(10) {
            keep(&mut all, 0, position);
        }
        let kept = positions(&all, 0);
        assert_eq!((kept.len(), all.blocks, kept.last()), (12, [12, 12], Some(&10_000)));
        for pair in [&[0], &kept[..]].concat().windows(2) {
            let (gap, distance) = (pair[1] - pair[0], 10_000 - pair[0]);
            assert!(gap <= 10 || gap * 10 <= distance * 7, "{kept:?}");
        }
        // Another sequence gets memory too, and keeps its last one.
        keep(&mut all, 1, 500);
        keep(&mut all, 0, 10_010);
        assert_eq!((positions(&all, 1), all.held.len()), (vec![500], 12));
    }
}
