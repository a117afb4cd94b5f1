//! Shared virtual memory: ranges of the process that cards may access at the process's own addresses.
//!
//! The kernel follows changes of the process's memory; here a range stays known until its attributes change, or other
//! memory takes its place. It has no effect where its pages are, so locations, flags and granularity are only
//! accepted.

use crate::abi::SvmAttribute;
use crate::ranges::Ranges;
use crate::shared::{Answer, Shared};

/// Operations.
const SET: u32 = 0;
const GET: u32 = 1;

/// Types of attributes.
const PREFERRED_LOCATION: u32 = 0;
const PREFETCH_LOCATION: u32 = 1;
const ACCESS: u32 = 2;
const ACCESS_IN_PLACE: u32 = 3;
const NO_ACCESS: u32 = 4;
const SET_FLAGS: u32 = 5;
const CLEAR_FLAGS: u32 = 6;
const GRANULARITY: u32 = 7;

/// A location that nobody chose.
const UNDEFINED: u32 = u32::MAX;
/// Granularity by default: 2^9 pages.
const DEFAULT_GRANULARITY: u32 = 9;

impl Shared {
    /// Sets or reads attributes of a range.
    pub(crate) fn svm(&self, start: u64, bytes: u64, op: u32, attributes: &mut [SvmAttribute]) -> Answer {
        let end = start.checked_add(bytes).filter(|_| start % 4096 == 0 && bytes % 4096 == 0 && bytes > 0);
        let end = end.ok_or(libc::EINVAL)?;
        self.log(|| format!("  {start:#x} to {end:#x}, {op}: {attributes:?}"));
        match op {
            SET => attributes.iter().try_for_each(|a| self.set_attribute(start, end, *a)),
            GET => attributes.iter_mut().try_for_each(|a| self.read_attribute(start, end, a)),
            _ => Err(libc::EINVAL),
        }
    }

    fn set_attribute(&self, begin: u64, end: u64, attribute: SvmAttribute) -> Answer {
        match attribute.kind {
            ACCESS | ACCESS_IN_PLACE => {
                let card = self.card(attribute.value)?;
                self.state().shared[card].add(&self.devices[card].gpu, begin, end)
            }
            NO_ACCESS => {
                let card = self.card(attribute.value)?;
                self.state().shared[card].remove(&self.devices[card].gpu, begin, end);
                Ok(())
            }
            PREFERRED_LOCATION | PREFETCH_LOCATION | SET_FLAGS | CLEAR_FLAGS | GRANULARITY => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    fn read_attribute(&self, begin: u64, end: u64, attribute: &mut SvmAttribute) -> Answer {
        match attribute.kind {
            PREFERRED_LOCATION | PREFETCH_LOCATION => attribute.value = UNDEFINED,
            ACCESS | ACCESS_IN_PLACE | NO_ACCESS => {
                let card = self.card(attribute.value)?;
                let may = self.state().shared[card].contain(begin, end);
                attribute.kind = if may { ACCESS } else { NO_ACCESS };
            }
            SET_FLAGS | CLEAR_FLAGS => attribute.value = 0,
            GRANULARITY => attribute.value = DEFAULT_GRANULARITY,
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    /// Removes shared ranges that overlap memory which is mapped to a card: the process has used their addresses
    /// anew.
    pub(crate) fn replace_shared(&self, shared: &mut Ranges, card: usize, begin: u64, bytes: u64) {
        shared.remove(&self.devices[card].gpu, begin, begin + bytes);
    }
}
