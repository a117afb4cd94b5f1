//! Penalties on tokens that have occurred already.

use super::candidates::Candidates;
use std::collections::{BTreeMap, VecDeque};

/// Last accepted tokens, and the number of occurrences of each.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    size: usize,
    tokens: VecDeque<u32>,
    counts: BTreeMap<u32, u32>,
}

impl Recent {
    pub(super) fn new(size: usize) -> Recent {
        Recent { size, tokens: VecDeque::new(), counts: BTreeMap::new() }
    }

    pub(super) fn push(&mut self, token: u32) {
        if self.size == 0 {
            return;
        }
        if self.tokens.len() == self.size
            && let Some(old) = self.tokens.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
        self.tokens.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
    }

    /// Changes the logits of all tokens of the window; `all` must still have a candidate for every token, in
    /// order.
    pub(super) fn penalise(&self, all: &mut Candidates, repetition: f32, frequency: f32, presence: f32) {
        if repetition == 1.0 && frequency == 0.0 && presence == 0.0 {
            return;
        }
        for (&token, &count) in &self.counts {
            all.change(token, |x| {
                let x = if x > 0.0 { x / repetition } else { x * repetition };
                x - frequency * count as f32 - presence
            });
        }
    }
}
