//! Memory dependencies of a command buffer, which barriers make visible, next to the order
//! that `order` is about.
//!
//! A write is *available* after a barrier whose source names its stage and its kind of access, and *visible* to an access
//! after a barrier, the same or a later one in order, whose destination names that kind. (Vulkan specification, "Memory
//! Dependencies".) On a card, these masks decide which caches are flushed and invalidated.

use crate::order::{ALL, COMPUTE, Role, Stages, TRANSFER};
use ash::vk;

/// Kinds of access, as a bit mask.
pub(crate) type Kinds = u8;

/// Reads and writes of dispatches, and of copies, fills and updates.
pub(crate) const SHADER_READ: Kinds = 1;
pub(crate) const SHADER_WRITE: Kinds = 2;
pub(crate) const TRANSFER_READ: Kinds = 4;
pub(crate) const TRANSFER_WRITE: Kinds = 8;
/// Reads of the sizes of grids.
pub(crate) const INDIRECT_READ: Kinds = 16;

const READS: Kinds = SHADER_READ | TRANSFER_READ | INDIRECT_READ;
const WRITES: Kinds = SHADER_WRITE | TRANSFER_WRITE;

/// Kinds of access of a barrier's source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masks {
    pub(crate) from: Kinds,
    pub(crate) to: Kinds,
}

/// Returns the kinds that access flags name.
pub(crate) fn kinds(flags: vk::AccessFlags2) -> Kinds {
    use vk::AccessFlags2 as A;
    let named = [
        (A::MEMORY_READ, READS),
        (A::MEMORY_WRITE, WRITES),
        (A::SHADER_READ | A::SHADER_STORAGE_READ | A::UNIFORM_READ, SHADER_READ),
        (A::SHADER_WRITE | A::SHADER_STORAGE_WRITE, SHADER_WRITE),
        (A::TRANSFER_READ, TRANSFER_READ),
        (A::TRANSFER_WRITE, TRANSFER_WRITE),
        (A::INDIRECT_COMMAND_READ, INDIRECT_READ),
    ];
    named.into_iter().filter(|(flag, _)| flags.intersects(*flag)).fold(0, |all, (_, kinds)| all | kinds)
}

/// An earlier item whose accesses an item of a command buffer does not see, although it waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Index of the earlier item in the command buffer.
    pub(crate) earlier: usize,
    /// True if what it wrote is not visible to reads, or to writes.
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// Work whose writes are not visible to everything yet.
struct Written {
    index: usize,
    stages: Stages,
    available: bool,
    /// Stages of later work that waits for it.
    waiting: Stages,
    visible: Kinds,
}

/// Returns for each item what it does not see. `masks` are those of the barriers.
pub(crate) fn unseen(roles: &[(Role, Option<Masks>)]) -> Vec<Vec<Unseen>> {
    let mut written: Vec<Written> = Vec::new();
    let mut all = Vec::with_capacity(roles.len());
    for (index, (role, masks)) in roles.iter().enumerate() {
        let mut missing = Vec::new();
        match *role {
            Role::Work(stages) => {
                let (read, write) = if stages & COMPUTE != 0 {
                    (SHADER_READ, SHADER_WRITE)
                } else {
                    (TRANSFER_READ, TRANSFER_WRITE)
                };
                // Without an order there is no question of visibility.
                for w in written.iter().filter(|w| w.waiting & stages == stages) {
                    let (reads, writes) = (w.visible & read == 0, w.visible & write == 0);
                    if reads || writes {
                        missing.push(Unseen { earlier: w.index, reads, writes });
                    }
                }
                written.push(Written { index, stages, available: false, waiting: 0, visible: 0 });
            }
            Role::Barrier(from, to) => {
                let masks = masks.unwrap_or(Masks { from: 0, to: 0 });
                for w in &mut written {
                    let direct = w.stages & from != 0;
                    let write = if w.stages & COMPUTE != 0 { SHADER_WRITE } else { TRANSFER_WRITE };
                    w.available |= direct && masks.from & write != 0;
                    if direct || w.waiting & from != 0 {
                        w.waiting |= to;
                        w.visible |= if w.available { masks.to & of_stages(to) } else { 0 };
                    }
                }
                let seen = of_stages(ALL) & !INDIRECT_READ;
                written.retain(|w| w.waiting != ALL || w.visible & seen != seen);
            }
            Role::Mark => {}
        }
        all.push(missing);
    }
    all
}

/// Returns the kinds of access that stages have.
fn of_stages(stages: Stages) -> Kinds {
    let compute = if stages & COMPUTE != 0 { SHADER_READ | SHADER_WRITE | INDIRECT_READ } else { 0 };
    compute | if stages & TRANSFER != 0 { TRANSFER_READ | TRANSFER_WRITE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: (Role, Option<Masks>) = (Role::Work(COMPUTE), None);
    const T: (Role, Option<Masks>) = (Role::Work(TRANSFER), None);
    const FULL: Kinds = READS | WRITES;

    fn barrier(stages: [Stages; 2], from: Kinds, to: Kinds) -> (Role, Option<Masks>) {
        (Role::Barrier(stages[0], stages[1]), Some(Masks { from, to }))
    }

    fn found(roles: &[(Role, Option<Masks>)]) -> Vec<(usize, usize, bool, bool)> {
        let of = |(i, list): (usize, Vec<Unseen>)| {
            list.into_iter().map(move |u| (i, u.earlier, u.reads, u.writes)).collect::<Vec<_>>()
        };
        unseen(roles).into_iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn masks_that_cover_the_accesses() {
        let compute = [COMPUTE, COMPUTE];
        assert_eq!(found(&[D, barrier(compute, SHADER_WRITE, SHADER_READ | SHADER_WRITE), D]), []);
        assert_eq!(found(&[D, T, barrier([ALL, ALL], WRITES, FULL), T, D]), []);
        assert_eq!(found(&[D, D, T]), [], "no barrier: another check");
        // Available by one barrier, visible by the next.
        let first = barrier([COMPUTE, TRANSFER], SHADER_WRITE, TRANSFER_READ | TRANSFER_WRITE);
        assert_eq!(found(&[D, first, T, barrier([TRANSFER, COMPUTE], TRANSFER_WRITE, FULL), D]), []);
    }

    #[test]
    fn masks_that_do_not() {
        let compute = [COMPUTE, COMPUTE];
        let after = |from, to| found(&[D, barrier(compute, from, to), D]);
        assert_eq!(after(0, SHADER_READ | SHADER_WRITE), [(2, 0, true, true)]);
        assert_eq!(after(SHADER_READ, FULL), [(2, 0, true, true)], "a source that reads");
        assert_eq!(after(TRANSFER_WRITE, FULL), [(2, 0, true, true)], "another kind of write");
        assert_eq!(after(SHADER_WRITE, SHADER_READ), [(2, 0, false, true)]);
        assert_eq!(after(SHADER_WRITE, SHADER_WRITE), [(2, 0, true, false)]);
        assert_eq!(after(SHADER_WRITE, TRANSFER_READ), [(2, 0, true, true)]);
        // What was not made available stays so.
        let late = barrier([ALL, ALL], TRANSFER_WRITE, FULL);
        assert_eq!(found(&[D, T, late, D]), [(3, 0, true, true)]);
        assert_eq!(
            kinds(vk::AccessFlags2::MEMORY_WRITE | vk::AccessFlags2::SHADER_READ),
            WRITES | SHADER_READ
        );
        assert_eq!(kinds(vk::AccessFlags2::HOST_READ), 0);
    }
}
