//! Memory operations in flight: what an instruction begins.

use super::inst::{Body, Inst, Segment};
use super::op::memory::Op;
use super::registers::Fill;

/// A memory operation in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// Lanes of the vector registers that it fills.
    pub(crate) lanes: u64,
    /// Registers that it fills; none for a store.
    pub(crate) fills: Fill,
    /// True if it completes in order with the other ordered operations of its counter.
    pub(crate) ordered: bool,
    pub(crate) stores_lds: bool,
    /// True for a store to global memory.
    pub(crate) stores_memory: bool,
}

/// Memory whose operations a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Loads of vector memory.
    Vector,
    /// Stores to vector memory, which processors without a counter for them count as loads.
    Stores,
    /// LDS and scalar memory.
    Other,
}

/// The operations that an instruction begins, found once, when it is decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begins {
    /// None.
    Nothing,
    /// An operation in all active lanes.
    One(Counter, Pending),
    /// A FLAT access: each lane's address decides in which counters.
    Flat(Counter, Pending),
}

impl Begins {
    /// Returns what an instruction begins, which fills registers.
    pub(crate) fn of(inst: &Inst, fills: Fill) -> Begins {
        let traits = inst.isa.target.traits();
        let stores_memory = matches!(inst.body, Body::Memory(_, row) if matches!(row.op, Op::Store { .. }));
        let pending = Pending { fills, lanes: 0, ordered: true, stores_lds: false, stores_memory };
        let stores = if traits.counts_stores { Counter::Stores } else { Counter::Vector };
        let vector = if fills.is_empty() { stores } else { Counter::Vector };
        match inst.body {
            Body::Lds(row) => {
                let exchange =
                    matches!(row.op, Op::Swizzle | Op::Permute | Op::BackwardPermute | Op::Nothing);
                let load = matches!(row.op, Op::Load { .. } | Op::Load2 { .. } | Op::LoadByLane);
                Begins::One(Counter::Other, Pending { stores_lds: !exchange && !load, ..pending })
            }
            Body::Memory(Segment::Flat, _) => {
                Begins::Flat(vector, Pending { ordered: traits.ordered_flat, ..pending })
            }
            Body::Memory(..) => Begins::One(vector, pending),
            Body::ScalarMemory(_) => Begins::One(Counter::Other, Pending { ordered: false, ..pending }),
            _ => Begins::Nothing,
        }
    }
}
