//! Accesses of a work-group to global memory, if they are followed.

use super::wave::Wave;
use crate::order::{Conflict, Ledger, Own, Release};

/// The accesses of a work-group, if they are followed, and what they are compared with.
#[derive(Default)]
pub(super) struct Track<'a> {
    pub(super) followed: Option<(&'a mut Own, &'a Ledger)>,
    /// Release of the running instruction, for all its lanes.
    pub(super) release: Option<Release>,
}

impl<'a> Track<'a> {
    /// Begins a work-group. `orders`: whether stores in flight are followed, and whether a barrier orders stores.
    pub(super) fn new(
        orders: [bool; 2],
        own: &'a mut Own,
        ledger: Option<&'a Ledger>,
        number: u32,
        waves: usize,
    ) -> Track<'a> {
        let Some(ledger) = ledger else { return Track::default() };
        own.begin(number, waves, orders[0], orders[1]);
        Track { followed: Some((own, ledger)), release: None }
    }

    /// Begins the turn of a wavefront.
    #[inline(always)]
    pub(super) fn begin_turn(&mut self, wave: u32) {
        if let Some((own, _)) = &mut self.followed {
            own.begin_turn(wave);
        }
    }

    /// Begins an atomic instruction.
    pub(super) fn begin_atomic(&mut self) {
        self.release = None;
    }

    /// Begins a store instruction, before its ranges are noted.
    pub(super) fn begin_store(&mut self) {
        self.release = None;
        if let Some((own, _)) = &mut self.followed {
            own.store();
        }
    }

    /// Ends it; returns a conflict with another wavefront.
    pub(super) fn end_turn(&mut self, checked: bool) -> Option<Conflict> {
        let (own, ledger) = self.followed.as_mut()?;
        own.end_turn(ledger).filter(|_| checked)
    }

    /// All wavefronts have reached a barrier.
    pub(super) fn barrier(&mut self, waves: &[Wave]) {
        if let Some((own, _)) = &mut self.followed {
            own.barrier(|n| waves.get(n).map_or(0, |wave| wave.waits.stores_in_flight()));
        }
    }

    /// Ends the work-group.
    pub(super) fn end(&mut self) {
        if let Some((own, ledger)) = &mut self.followed {
            own.end(ledger);
        }
    }
}
