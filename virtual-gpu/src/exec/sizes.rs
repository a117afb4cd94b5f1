//! Sizes of work-groups: those at the upper edges of a grid are smaller if the grid is no multiple of a work-group.

/// Work-items of the work-groups of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    full: [u32; 3],
    /// Id of the last work-group along each axis, and its work-items.
    last: [(u32, u32); 3],
}

impl Sizes {
    /// Returns the sizes of work-groups that are all equal.
    pub(crate) fn uniform(threads: [u32; 3]) -> Sizes {
        Sizes { full: threads, last: threads.map(|n| (u32::MAX, n)) }
    }

    /// Returns the sizes and the numbers of the work-groups of a grid of work-items, neither of which is empty.
    pub(crate) fn of_grid(grid: [u32; 3], threads: [u32; 3]) -> (Sizes, [u32; 3]) {
        let last = [0, 1, 2].map(|i| {
            let id = (grid[i] - 1) / threads[i];
            (id, grid[i] - id * threads[i])
        });
        (Sizes { full: threads, last }, last.map(|(id, _)| id.saturating_add(1)))
    }

    /// Returns the work-items of a work-group along each axis.
    pub(crate) fn of(&self, id: [u32; 3]) -> [u32; 3] {
        [0, 1, 2].map(|i| if id[i] == self.last[i].0 { self.last[i].1 } else { self.full[i] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_at_the_edges_are_smaller() {
        let (sizes, groups) = Sizes::of_grid([70, 5, 3], [32, 2, 4]);
        assert_eq!(groups, [3, 3, 1]);
        assert_eq!(sizes.of([0, 0, 0]), [32, 2, 3]);
        assert_eq!(sizes.of([2, 1, 0]), [6, 2, 3]);
        assert_eq!(sizes.of([2, 2, 0]), [6, 1, 3]);
        let (exact, groups) = Sizes::of_grid([64, u32::MAX, 1], [32, 1, 1]);
        assert_eq!((groups, exact.of([1, u32::MAX - 1, 0])), ([2, u32::MAX, 1], [32, 1, 1]));
        assert_eq!(Sizes::uniform([8, 2, 1]).of([u32::MAX, 7, 0]), [8, 2, 1]);
        // One work-group, smaller than what was asked for.
        assert_eq!(Sizes::of_grid([1, 1, 1], [256, 1, 1]).0.of([0; 3]), [1, 1, 1]);
    }
}
