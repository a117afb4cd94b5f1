//! A block of memory as one work-group accessed it, and the instructions that did.

use super::bits::{KINDS, Marks};

/// An instruction that accessed a block: bytes from `first` to `end`, perhaps with gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) word: u32,
    pub(super) first: u16,
    pub(super) end: u16,
    pub(super) wave: u8,
    pub(super) kind: u8,
    /// True for a store that was in flight when its work-group signalled.
    pub(super) late: bool,
}

/// Most instructions that a block remembers.
const SITES: usize = 64;

/// A block and the bytes of it that were accessed.
#[derive(Default)]
pub(super) struct Block {
    pub(super) number: u64,
    /// By the running wavefront since the last barrier or event, and before that event.
    pub(super) turn: Marks,
    pub(super) before: Marks,
    /// By wavefronts that ran since the last barrier.
    pub(super) epoch: Marks,
    /// By all wavefronts before the last barrier, since the last event.
    pub(super) interval: Marks,
    pub(super) in_turn: bool,
    pub(super) in_epoch: bool,
    pub(super) in_interval: bool,
    pub(super) sites: Vec<Site>,
}

impl Site {
    pub(super) fn extend(&mut self, other: &Site) {
        (self.first, self.end) = (self.first.min(other.first), self.end.max(other.end));
    }

    pub(super) fn covers(&self, at: usize, kind: usize) -> bool {
        usize::from(self.kind) == kind && (usize::from(self.first)..usize::from(self.end)).contains(&at)
    }
}

impl Block {
    #[inline(never)]
    pub(super) fn remember(&mut self, site: Site) {
        let same =
            |known: &&mut Site| (known.word, known.wave, known.kind) == (site.word, site.wave, site.kind);
        if let Some(known) = self.sites.iter_mut().find(same) {
            known.extend(&site);
        } else if self.sites.len() < SITES {
            self.sites.push(site);
        }
    }

    /// Returns the last instruction that accessed a byte.
    pub(super) fn site(&self, at: usize, kind: usize, of: impl Fn(&Site) -> bool) -> Option<Site> {
        self.sites.iter().rev().find(|site| site.covers(at, kind) && of(site)).copied()
    }
}

/// The number of kinds fits into the field of a site.
const _: () = assert!(KINDS < 256);
