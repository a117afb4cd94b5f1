//! Two accesses that nothing orders.

use super::bits::{ATOMIC, Marks, READ, WRITE};
use super::block::Site;
use crate::fault::Access;

/// One of two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// Number of the work-group; `None` if it is one of many.
    pub(crate) group: Option<u32>,
    pub(crate) wave: u32,
    /// Word of the instruction in the text.
    pub(crate) word: usize,
    pub(crate) access: Access,
    /// True for a store that was in flight when its wavefront passed a barrier, or when its work-group signalled.
    pub(crate) late: bool,
}

/// Two accesses to the same byte that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) address: u64,
    pub(crate) one: Party,
    pub(crate) other: Party,
    /// True if the other access is a store that was in flight at a barrier between them.
    pub(crate) in_flight: bool,
}

impl Conflict {
    pub(super) fn new(address: u64, one: Party, other: Party, in_flight: bool) -> Conflict {
        Conflict { address, one, other, in_flight }
    }
}

impl Party {
    pub(super) fn new(group: u32, site: &Site) -> Party {
        let access = match usize::from(site.kind) {
            WRITE => Access::Write,
            ATOMIC => Access::Atomic,
            _ => Access::Read,
        };
        let (wave, word) = (site.wave.into(), site.word as usize);
        Party { group: Some(group), wave, word, access, late: site.late }
    }

    pub(super) fn of_store(group: u32, wave: u32, word: u32) -> Party {
        Party { group: Some(group), wave, word: word as usize, access: Access::Write, late: false }
    }
}

/// Returns the kinds of the two accesses that conflict at a byte.
pub(super) fn kinds(a: &Marks, b: &Marks, at: usize) -> (usize, usize) {
    let pairs =
        [(WRITE, WRITE), (WRITE, READ), (READ, WRITE), (WRITE, ATOMIC), (ATOMIC, WRITE), (ATOMIC, READ)];
    let found = pairs.into_iter().find(|&(x, y)| a.has(x, at) && b.has(y, at));
    found.unwrap_or((READ, ATOMIC))
}
