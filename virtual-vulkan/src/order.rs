//! Order of the commands in a command buffer, as defined by its barriers only.

use ash::vk;

/// Kinds of work that a barrier can name, as a bit mask.
pub(crate) type Stages = u8;

/// Dispatches, including reads of indirect grid sizes.
pub(crate) const COMPUTE: Stages = 1;
/// Copies, fills and updates.
pub(crate) const TRANSFER: Stages = 2;
/// Both kinds.
pub(crate) const ALL: Stages = COMPUTE | TRANSFER;

/// Role of a command in the ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Work of these stages.
    Work(Stages),
    /// Makes later work of the second stages wait for earlier work of the first.
    Barrier(Stages, Stages),
    /// Waits for everything before it; nothing waits for it. (A timestamp or a marker.)
    Mark,
}

/// Returns the kinds of work named by a barrier's source (`first`) or destination flags.
pub(crate) fn stages(flags: vk::PipelineStageFlags2, first: bool) -> Stages {
    use vk::PipelineStageFlags2 as F;
    let end = if first { F::BOTTOM_OF_PIPE } else { F::TOP_OF_PIPE };
    if flags.intersects(F::ALL_COMMANDS | end) {
        return ALL;
    }
    let compute = flags.intersects(F::COMPUTE_SHADER | F::DRAW_INDIRECT);
    let transfer = flags.intersects(F::ALL_TRANSFER | F::COPY | F::CLEAR);
    (if compute { COMPUTE } else { 0 }) | if transfer { TRANSFER } else { 0 }
}

/// Work and marks between two points where everything later waits for all earlier work; also the beginning
/// and the end of the command buffer are such points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// For each item: its index in the command buffer, and the positions in this list of the earlier items
    /// that it waits for, directly or through others.
    pub(crate) items: Vec<(usize, Vec<usize>)>,
}

/// Splits a command buffer at the points where everything later waits for all earlier work.
pub(crate) fn segments(roles: &[Role]) -> Vec<Segment> {
    let mut all = Vec::new();
    let mut segment = Segment::default();
    // For each item of the segment: its stages (none for a mark), and the stages of later work that waits for
    // it.
    let mut pending: Vec<(Stages, Stages)> = Vec::new();
    let cuts = |pending: &[(Stages, Stages)]| {
        let mut work = pending.iter().filter(|(stages, _)| *stages != 0).peekable();
        work.peek().is_some() && work.all(|(_, waiting)| *waiting == ALL)
    };
    for (index, &role) in roles.iter().enumerate() {
        match role {
            Role::Work(stages) => {
                let before = (0..pending.len()).filter(|&i| pending[i].1 & stages == stages).collect();
                segment.items.push((index, before));
                pending.push((stages, 0));
            }
            Role::Mark => {
                segment.items.push((index, (0..pending.len()).collect()));
                pending.push((0, 0));
            }
            Role::Barrier(from, to) => {
                for (stages, waiting) in &mut pending {
                    // Directly, or transitively: work that waits for the item is part of what the barrier
                    // waits for.
                    if *stages & from != 0 || *waiting & from != 0 {
                        *waiting |= to;
                    }
                }
            }
        }
        if cuts(&pending) && role != Role::Mark {
            all.push(std::mem::take(&mut segment));
            pending.clear();
        }
    }
    if !segment.items.is_empty() {
        all.push(segment);
    }
    all
}

impl Segment {
    /// Returns true if one of the items at these two positions waits for the other: barriers order them, or
    /// the later one is a mark.
    pub(crate) fn waits(&self, a: usize, b: usize) -> bool {
        self.items[a.max(b)].1.contains(&a.min(b))
    }

    /// Returns the positions of the items in a random order, given by the seed, that respects all
    /// dependencies.
    pub(crate) fn shuffled(&self, seed: &mut u64) -> Vec<usize> {
        let mut remaining: Vec<usize> = (0..self.items.len()).collect();
        let mut done = vec![false; self.items.len()];
        let mut order = Vec::new();
        while !remaining.is_empty() {
            let ready: Vec<usize> = (0..remaining.len())
                .filter(|&i| self.items[remaining[i]].1.iter().all(|&b| done[b]))
                .collect();
            // An item's dependencies precede it, so the first remaining item is always ready.
            let chosen = remaining.remove(ready[next_random(seed) as usize % ready.len()]);
            done[chosen] = true;
            order.push(chosen);
        }
        order
    }
}

/// Returns the next value of a small generator (S. Vigna's SplitMix64).
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Role = Role::Work(COMPUTE);
    const T: Role = Role::Work(TRANSFER);

    fn waits(roles: &[Role]) -> Vec<Vec<(usize, Vec<usize>)>> {
        segments(roles).into_iter().map(|s| s.items).collect()
    }

    #[test]
    fn a_full_barrier_cuts() {
        let full = Role::Barrier(ALL, ALL);
        let cut = vec![vec![(0, vec![]), (1, vec![])], vec![(3, vec![])]];
        assert_eq!(waits(&[D, T, full, D]), cut);
    }

    #[test]
    fn without_a_barrier_nothing_waits() {
        assert_eq!(waits(&[D, D, T]), vec![vec![(0, vec![]), (1, vec![]), (2, vec![])]]);
    }

    /// A barrier for dispatches does not order a copy, unless another barrier passes the dependency on.
    #[test]
    fn barriers_order_what_they_name() {
        let (compute, on) = (Role::Barrier(COMPUTE, COMPUTE), Role::Barrier(COMPUTE, TRANSFER));
        assert_eq!(waits(&[D, compute, T, D]), vec![vec![(0, vec![]), (2, vec![]), (3, vec![0])]]);
        let found = waits(&[D, compute, D, on, T]);
        assert_eq!(found, vec![vec![(0, vec![]), (2, vec![0]), (4, vec![0, 1])]]);
    }

    #[test]
    fn a_mark_waits_for_all_and_holds_nothing_up() {
        assert_eq!(waits(&[D, Role::Mark, D]), [[(0, vec![]), (1, vec![0]), (2, vec![])]]);
        // A full barrier cuts behind a mark, too.
        let full = Role::Barrier(ALL, ALL);
        let cut = [vec![(0, vec![]), (1, vec![0])], vec![(3, vec![])]];
        assert_eq!(waits(&[D, Role::Mark, full, D]), cut);
    }

    #[test]
    fn shuffles_keep_what_is_ordered() {
        let segment = &segments(&[D, D, Role::Barrier(COMPUTE, COMPUTE), T, D])[0];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let order = segment.shuffled(&mut seed.clone());
            let position = |i: usize| order.iter().position(|&x| x == i).unwrap();
            assert!(position(3) > position(0) && position(3) > position(1));
            seen.insert(order);
        }
        // Of the 24 orders of four items, those in which one follows two others.
        assert_eq!(seen.len(), 8);
    }
}
