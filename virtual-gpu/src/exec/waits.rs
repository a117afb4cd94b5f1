//! Checks that a program has the `s_waitcnt` instructions that it needs. Loads complete immediately here but
//! later on hardware. So a register that a load fills must not be used before a wait that covers the load,
//! and no LDS store may be in flight at a barrier.
//!
//! A load fills a register in the active lanes only, so another instruction may use the register in other
//! lanes before the wait: compilers fill a register in two halves of EXEC.
//!
//! Source: LLVM, "User Guide for AMDGPU Backend", "Memory Model gfx6-gfx9", and the manuals' chapters on data
//! dependency resolution: vector memory returns in order and counts in `vmcnt`; LDS returns in order, scalar
//! memory in any order, and both count in `lgkmcnt`.
//!
//! FLAT counts in both, because its addresses decide which memory it accesses. A compiler does not know them and waits
//! for both counters. A hand-written kernel may know that all are in global memory and wait for `vmcnt` alone, as
//! AMD's own copy kernels do. So each lane needs the wait for the memory that it reaches.

use crate::fault::FaultKind;
use crate::isa::flight::{Counter, Pending};
use crate::isa::inst::Wait;
use crate::isa::registers::Registers;
use crate::isa::{Effects, Target};

/// Operations in flight in the counters of a wavefront.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Counted in `vmcnt`, oldest first.
    vm: Vec<Pending>,
    /// Stores, oldest first, where they have a counter of their own (`vscnt`).
    stores: Vec<Pending>,
    /// Counted in `lgkmcnt`, oldest first.
    lgkm: Vec<Pending>,
    /// All registers that operations in flight fill.
    pending: Registers,
    /// True if there are such registers.
    fills: bool,
    /// Largest count of `lgkmcnt`.
    most_lgkm: usize,
}

/// Largest count of the others.
const MOST: usize = 63;

impl Waits {
    /// Begins with none, on a processor.
    pub(crate) fn clear(&mut self, target: Target) {
        self.most_lgkm = target.traits().most_lgkm;
        self.vm.clear();
        self.stores.clear();
        self.lgkm.clear();
        self.pending = Registers::default();
        self.fills = false;
    }

    fn all(&self) -> impl Iterator<Item = &Pending> {
        self.vm.iter().chain(&self.stores).chain(&self.lgkm)
    }

    /// Returns true if one of the registers is one that a load in flight fills, in any lanes.
    #[inline(always)]
    pub(crate) fn are_pending(&self, used: &Registers) -> bool {
        self.fills && used.meets(&self.pending)
    }

    /// Returns an error if an instruction uses a register that a load in flight fills: a scalar register, or
    /// a vector register in one of the instruction's `lanes`.
    pub(crate) fn check_registers(&self, effects: &Effects, lanes: u64) -> Result<(), FaultKind> {
        let used = &effects.used;
        let early = |p: &Pending| {
            let fills = p.fills.registers();
            if p.lanes & lanes == 0 { used.common_scalar(&fills) } else { used.common(&fills) }
        };
        match self.all().find_map(early) {
            Some(register) => {
                Err(FaultKind::MissingWait(format!("{register} is used before a load has filled it")))
            }
            None => Ok(()),
        }
    }

    /// Returns an error if a store to LDS is in flight: the instruction is a barrier.
    pub(crate) fn check_barrier(&self) -> Result<(), FaultKind> {
        if self.lgkm.iter().any(|p| p.stores_lds) {
            return Err(FaultKind::MissingWait("a store to LDS is in flight at a barrier".into()));
        }
        Ok(())
    }

    /// Returns the number of stores to global memory in flight.
    pub(crate) fn stores_in_flight(&self) -> usize {
        self.vm.iter().chain(&self.stores).filter(|p| p.stores_memory).count()
    }

    /// Adds an operation in some lanes.
    #[inline(always)]
    pub(crate) fn begin(&mut self, counter: Counter, pending: &Pending, lanes: u64) {
        let (queue, most) = match counter {
            Counter::Stores => (&mut self.stores, MOST),
            Counter::Vector => (&mut self.vm, MOST),
            Counter::Other => (&mut self.lgkm, self.most_lgkm),
        };
        queue.push(Pending { lanes, ..*pending });
        let full = queue.len() > most;
        self.pending.add_fill(pending.fills);
        self.fills |= !pending.fills.is_empty();
        if full {
            self.stall(counter, most);
        }
    }

    /// Adds a FLAT access of some lanes, `in_lds` of which access LDS.
    pub(crate) fn begin_flat(&mut self, counter: Counter, pending: &Pending, lanes: u64, in_lds: u64) {
        let (ordered, fills) = (pending.ordered, pending.fills);
        // In the counter whose memory no lane reaches it fills nothing. It may leave that counter at any time.
        let none = Pending { ordered, ..Pending::default() };
        if in_lds == lanes && lanes != 0 {
            self.begin(counter, &none, 0);
        } else {
            let beyond = Pending { ordered: ordered || in_lds == 0, ..*pending };
            self.begin(counter, &beyond, lanes & !in_lds);
        }
        if in_lds == 0 {
            self.begin(Counter::Other, &none, 0);
        } else {
            let inside = Pending { stores_lds: fills.is_empty(), ..*pending };
            self.begin(Counter::Other, &inside, in_lds);
        }
    }

    /// On hardware a full counter stalls the wavefront until an operation is complete.
    #[inline(never)]
    fn stall(&mut self, counter: Counter, most: usize) {
        let queue = match counter {
            Counter::Stores => &mut self.stores,
            Counter::Vector => &mut self.vm,
            Counter::Other => &mut self.lgkm,
        };
        retire(queue, most);
        merge(queue, most);
        self.update();
    }

    /// Applies a wait.
    pub(crate) fn wait(&mut self, wait: Wait) {
        let mut retired = false;
        for (queue, left) in
            [(&mut self.vm, wait.loads), (&mut self.stores, wait.stores), (&mut self.lgkm, wait.lgkm)]
        {
            if let Some(left) = left.filter(|_| !queue.is_empty()) {
                let before = queue.len();
                retire(queue, left.into());
                retired |= queue.len() < before;
            }
        }
        if retired {
            self.update();
        }
    }

    /// Recomputes the registers that operations in flight fill.
    fn update(&mut self) {
        if self.vm.is_empty() && self.stores.is_empty() && self.lgkm.is_empty() {
            (self.pending, self.fills) = (Registers::default(), false);
            return;
        }
        let mut pending = Registers::default();
        self.fills = false;
        for queue in [&self.vm, &self.stores, &self.lgkm] {
            for p in queue.iter().filter(|p| !p.fills.is_empty()) {
                pending.add_fill(p.fills);
                self.fills = true;
            }
        }
        self.pending = pending;
    }
}

/// Removes the operations that are complete when `left` remain: all if `left` is 0; otherwise the ordered
/// ones with at least `left` later ordered operations. An unordered operation is known to be complete only
/// when all are.
fn retire(queue: &mut Vec<Pending>, left: usize) {
    if left == 0 {
        return queue.clear();
    }
    let mut later = queue.iter().filter(|p| p.ordered).count();
    queue.retain(|p| {
        later -= usize::from(p.ordered);
        !p.ordered || later < left
    });
}

/// Merges two unordered operations of the same registers into one if there are more than the counter can hold. None of
/// them can be removed, because it is unknown which one is complete.
fn merge(queue: &mut Vec<Pending>, most: usize) {
    if queue.len() <= most {
        return;
    }
    let same = |a: &Pending, b: &Pending| !a.ordered && !b.ordered && a.fills == b.fills;
    let Some(last) = queue.last().copied() else { return };
    let end = queue.len() - 1;
    if let Some(earlier) = queue[..end].iter_mut().find(|p| same(p, &last)) {
        earlier.lanes |= last.lanes;
        earlier.stores_lds |= last.stores_lds;
        earlier.stores_memory |= last.stores_memory;
        queue.pop();
    }
}
