//! Which memory type a buffer gets: a choice over the table of heaps and types that a device lists.

use super::physical::{Facts, MemoryType};
use ash::vk::MemoryPropertyFlags as Flags;

/// A memory type that was chosen for a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The memory type.
    pub(super) index: usize,
    /// Its properties.
    pub(super) flags: Flags,
    /// Its heap.
    pub(super) heap: usize,
}

/// The type that has all of `required`, as much as possible of `preferred`, and little else.
fn choose(types: &[MemoryType], required: Flags, preferred: Flags) -> Option<Choice> {
    let unwanted = Flags::PROTECTED | Flags::LAZILY_ALLOCATED | Flags::DEVICE_UNCACHED_AMD;
    types
        .iter()
        .enumerate()
        .filter(|(_, (flags, _))| flags.contains(required) && !flags.intersects(unwanted))
        .max_by_key(|(index, (flags, _))| {
            let liked = (*flags & preferred).as_raw().count_ones() as i64;
            let extra = (*flags & !(required | preferred)).as_raw().count_ones() as i64;
            // Of equals the first: drivers list the better type first.
            (16 * liked - extra, -(*index as i64))
        })
        .map(|(index, &(flags, heap))| Choice { index, flags, heap })
}

/// What the host needs of memory that it touches.
pub(super) const HOST: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());

/// The type for the device's side: one that the host can write where such a type reaches the largest local heap.
pub(super) fn device_side(facts: &Facts) -> Option<Choice> {
    let largest = facts.heaps.iter().filter(|h| h.local).map(|h| h.bytes).max()?;
    let preferred = if facts.unified() { Flags::HOST_CACHED } else { Flags::empty() };
    let direct = choose(&facts.types, Flags::DEVICE_LOCAL | HOST, preferred)
        .filter(|c| facts.heaps.get(c.heap).is_some_and(|h| h.bytes == largest));
    direct.or_else(|| choose(&facts.types, Flags::DEVICE_LOCAL, Flags::empty()))
}

/// The type for the host's side.
pub(super) fn host_side(facts: &Facts) -> Option<Choice> {
    choose(&facts.types, HOST, Flags::HOST_CACHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::MemoryPropertyFlags as F;

    /// The types of RADV on a card without and with resizable BAR, in its order.
    #[test]
    fn types_are_chosen_by_their_flags() {
        let types = [
            (F::DEVICE_LOCAL, 0),
            (HOST, 1),
            (F::DEVICE_LOCAL | HOST, 2),
            (HOST | F::HOST_CACHED, 1),
            (F::DEVICE_LOCAL | HOST | F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD, 2),
        ];
        assert_eq!(choose(&types, F::DEVICE_LOCAL, F::empty()).unwrap().index, 0);
        assert_eq!(choose(&types, F::DEVICE_LOCAL | HOST, F::empty()).unwrap().index, 2);
        assert_eq!(choose(&types, HOST, F::HOST_CACHED).unwrap().index, 3);
        assert_eq!(choose(&types, HOST, F::empty()).unwrap().index, 1);
        assert!(choose(&types[..1], HOST, F::empty()).is_none());
    }
}
