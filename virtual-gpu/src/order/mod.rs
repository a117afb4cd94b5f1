//! Order of accesses to global memory: finds two accesses to the same bytes by different wavefronts, at least one of
//! them a write and not both atomic, that nothing orders.
//!
//! A work-group marks the bytes that it reads and writes in maps of its own ([`Own`]), one bit for each byte and kind
//! of access. They are compared where an order is known to begin or to end:
//!
//! * Wavefronts of one work-group: what a wavefront does between two barriers (its *turn*) is compared with the turns of
//!   the others between the same barriers.
//! * Work-groups: the maps go to the launch's [`Ledger`] when a work-group ends. When all have ended, the maps of every
//!   two of them are compared, so that the verdict does not depend on which ran first. The race at the lowest address is
//!   reported.
//!
//! Two work-groups are ordered by atomics, as [C11 orders threads](https://www.open-std.org/jtc1/sc22/wg14/www/docs/n1570.pdf)
//! (5.1.2.4): an atomic access to a word *releases* what the work-group did before; an atomic access by another one to
//! the same word, later and with a result, *acquires* that when the work-group then invalidates its cache
//! (`buffer_wbinvl1` and the like, as an acquire fence does). What a wavefront releases is: its own accesses, and those of
//! the other wavefronts before the last barrier. Not those stores that are still in flight: nobody waited for them before
//! the barrier, or before the atomic. A map is kept for each interval between two such events.
//!
//! # What it cannot tell
//!
//! * Order by atomics is that of the run: if a kernel is right only because one work-group happened to come first, other
//!   seeds of [`crate::Random::groups`] have to show that.
//! * A load with `glc` (on gfx940 and later with `sc0` or `sc1`) counts as atomic, as volatile loads and loads of flags
//!   have it, and a store to a word that its own work-group has accessed atomically, as the end of a lock. Races of such
//!   accesses with plain stores are not reported. A load with `glc` acquires what the work-group did that stored there.
//! * Lanes of one wavefront that write the same bytes are not compared.
//! * Two wavefronts of a work-group that both use atomics between two barriers are not compared there.
//! * Of the work-groups that read the same KiB without storing to it, four are known by name, and 16 of those that have
//!   acquired something; further ones of the latter are not compared.
//! * A plain load of bytes that the same work-group also accesses atomically is not compared: compilers begin a loop around
//!   compare-and-swap with one.
//! * Scope and write-backs: an atomic counts for the whole device.

mod bits;
mod block;
mod conflict;
mod judge;
mod ledger;
mod own;
mod release;

pub(crate) use conflict::{Conflict, Party};
pub(crate) use ledger::Ledger;
pub(crate) use own::{Lanes, Own};
pub(crate) use release::Release;
