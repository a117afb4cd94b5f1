//! Selection of the memory type for a buffer from the device's heaps and types.

use super::physical::{Heap, MemoryType};
use ash::vk::MemoryPropertyFlags as Flags;
use std::cmp::Reverse;

/// The side that accesses a buffer most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Device memory, possibly accessible to the host.
    Device,
    /// Host memory that both sides can access.
    Host,
}

/// A memory type selected for a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The memory type.
    pub(super) index: usize,
    /// Its properties.
    pub(super) flags: Flags,
    /// Its heap.
    pub(super) heap: usize,
}

impl Choice {
    /// Returns true if the host may access the memory directly: nothing here flushes the host's caches.
    pub(super) fn is_accessible(&self) -> bool {
        self.flags.contains(HOST)
    }
}

/// Memory properties required for host access.
const HOST: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());

/// Returns the memory types with the properties of those outside a bit mask removed, so that none of them is chosen.
pub(super) fn only(types: &[MemoryType], bits: u32) -> Vec<MemoryType> {
    let is_in = |index: usize| index < 32 && bits & (1 << index) != 0;
    let kept = |(index, &(flags, heap)): (usize, &MemoryType)| {
        (if is_in(index) { flags } else { Flags::empty() }, heap)
    };
    types.iter().enumerate().map(kept).collect()
}

/// Returns the memory types for a side, one of each heap, the best first. A later one is used when the heaps
/// before it are full.
///
/// The heaps of the side itself come first, the largest of them first. A host-side buffer may be in any heap
/// that the host can access. A device-side buffer may be in a host heap only where both share one memory
/// (`unified`). Drivers of unified devices split the memory into two heaps: RADV reports two thirds of it as
/// device-local.
pub(super) fn choices(heaps: &[Heap], types: &[MemoryType], unified: bool, side: Side) -> Vec<Choice> {
    let allowed = |h: &usize| side == Side::Host || unified || heaps[*h].local;
    let mut order: Vec<usize> = (0..heaps.len()).filter(allowed).collect();
    order.sort_by_key(|&h| (heaps[h].local != (side == Side::Device), Reverse(heaps[h].bytes)));
    let best = |heap: usize| {
        let (required, preferred) = match side {
            Side::Device if heaps[heap].local && unified => (Flags::DEVICE_LOCAL, HOST | Flags::HOST_CACHED),
            // The CPU reads a card's memory slowly, cached or not.
            Side::Device if heaps[heap].local => (Flags::DEVICE_LOCAL, HOST),
            _ => (HOST, Flags::HOST_CACHED),
        };
        choose(types, heap, required, preferred)
    };
    order.into_iter().filter_map(best).collect()
}

/// Returns the type of a heap that has all of `required`, as much as possible of `preferred`, and little
/// else.
fn choose(types: &[MemoryType], heap: usize, required: Flags, preferred: Flags) -> Option<Choice> {
    let unwanted = Flags::PROTECTED | Flags::LAZILY_ALLOCATED | Flags::DEVICE_UNCACHED_AMD;
    types
        .iter()
        .enumerate()
        .filter(|(_, (flags, of))| *of == heap && flags.contains(required) && !flags.intersects(unwanted))
        .max_by_key(|(index, (flags, _))| {
            // What the host sees but has to flush is worth no more than what it does not see.
            let useful = if flags.contains(HOST) { *flags } else { *flags & !(HOST | Flags::HOST_CACHED) };
            let liked = (useful & preferred).as_raw().count_ones() as i64;
            let extra = (*flags & !(required | preferred)).as_raw().count_ones() as i64;
            // Ties go to the first: drivers list the better type first.
            (16 * liked - extra, -(*index as i64))
        })
        .map(|(index, &(flags, heap))| Choice { index, flags, heap })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const LOCAL: Flags = Flags::DEVICE_LOCAL;
    const CACHED: Flags = Flags::HOST_CACHED;

    /// Returns the type and heap indices of the choices.
    fn chosen(heaps: &[(u64, bool)], types: &[MemoryType], unified: bool, side: Side) -> Vec<(usize, usize)> {
        let heaps: Vec<Heap> = heaps.iter().map(|&(bytes, local)| Heap { bytes, local }).collect();
        choices(&heaps, types, unified, side).iter().map(|c| (c.index, c.heap)).collect()
    }

    /// Returns the types of RADV on a card, in its order: memory invisible to the CPU, host memory, device
    /// memory visible to the CPU.
    fn radv(local: usize, host: usize, visible: usize) -> Vec<MemoryType> {
        let uncached = Flags::DEVICE_COHERENT_AMD | Flags::DEVICE_UNCACHED_AMD;
        vec![
            (LOCAL, local),
            (LOCAL, local),
            (HOST, host),
            (LOCAL | HOST, visible),
            (HOST | CACHED, host),
            (LOCAL | uncached, local),
            (HOST | uncached, host),
            (LOCAL | HOST | uncached, visible),
            (HOST | CACHED | uncached, host),
        ]
    }

    #[test]
    fn a_card_with_a_small_window_keeps_what_the_host_writes_for_last() {
        let heaps = [(16 * GIB - (GIB >> 2), true), (12 * GIB, false), (GIB >> 2, true)];
        let types = radv(0, 1, 2);
        assert_eq!(chosen(&heaps, &types, false, Side::Device), [(0, 0), (3, 2)]);
        assert_eq!(chosen(&heaps, &types, false, Side::Host), [(4, 1), (3, 2)]);
    }

    #[test]
    fn a_card_that_the_host_sees_whole_is_written_directly() {
        let heaps = [(12 * GIB, false), (16 * GIB, true)];
        let types = radv(1, 0, 1);
        assert_eq!(chosen(&heaps, &types, false, Side::Device), [(3, 1)], "never the host's own memory");
        assert_eq!(chosen(&heaps, &types, false, Side::Host), [(4, 0), (3, 1)]);
    }

    /// RADV on an APU: one memory, two thirds of it reported as device-local.
    #[test]
    fn both_parts_of_a_shared_memory_are_used() {
        let heaps = [(5 * GIB, false), (10 * GIB, true)];
        let types = radv(1, 0, 1);
        assert_eq!(chosen(&heaps, &types, true, Side::Device), [(3, 1), (4, 0)]);
        assert_eq!(chosen(&heaps, &types, true, Side::Host), [(4, 0), (3, 1)]);
        let visible_and_cached = [(LOCAL, 1), (LOCAL | HOST, 1), (LOCAL | HOST | CACHED, 1), (HOST, 0)];
        assert_eq!(chosen(&heaps, &visible_and_cached, true, Side::Device), [(2, 1), (3, 0)]);
    }

    /// NVIDIA's driver exports no memory of the type that the host sees.
    #[test]
    fn exported_memory_is_of_the_types_that_allow_it() {
        let heaps = [(140 * GIB, true), (120 * GIB, false)];
        let types = [(Flags::empty(), 1), (LOCAL, 0), (HOST, 1), (HOST | CACHED, 1), (LOCAL | HOST, 0)];
        assert_eq!(chosen(&heaps, &types, false, Side::Device), [(4, 0)]);
        assert_eq!(chosen(&heaps, &only(&types, 0b01011), false, Side::Device), [(1, 0)]);
        assert_eq!(chosen(&heaps, &only(&types, 0b01001), false, Side::Device), []);
    }

    /// Types that Mali, Adreno and MoltenVK list: the host sees the memory, but its caches have to be flushed.
    #[test]
    fn memory_that_must_be_flushed_is_not_preferred() {
        let flushed = LOCAL | Flags::HOST_VISIBLE | CACHED;
        let (heaps, types) = ([(8 * GIB, true)], [(flushed, 0), (LOCAL | HOST, 0)]);
        assert_eq!(chosen(&heaps, &types, true, Side::Device), [(1, 0)]);
        assert_eq!(chosen(&heaps, &types, true, Side::Host), [(1, 0)]);
        let heaps = [Heap { bytes: 8 * GIB, local: true }];
        for (flags, accessible) in [(flushed, false), (LOCAL | HOST, true)] {
            let choices = choices(&heaps, &[(flags, 0)], true, Side::Device);
            assert_eq!(choices.iter().map(Choice::is_accessible).collect::<Vec<_>>(), [accessible]);
        }
    }

    #[test]
    fn a_processor_has_one_memory_for_both_sides() {
        let (heaps, types) = ([(8 * GIB, true)], [(LOCAL | HOST | CACHED, 0)]);
        for side in [Side::Device, Side::Host] {
            assert_eq!(chosen(&heaps, &types, true, side), [(0, 0)]);
        }
    }

    #[test]
    fn a_device_without_visible_memory_has_no_host_side() {
        assert_eq!(chosen(&[(GIB, true)], &[(LOCAL, 0)], false, Side::Host), []);
        assert_eq!(chosen(&[], &[], false, Side::Device), []);
    }
}
