//! Distribution of dispatches over recorded segments, and of segments over submissions.
//!
//! A submission should take no longer than a budget. Dispatches are added to a segment until the budget is used
//! up; a single dispatch that exceeds it is split into portions of its grid, each a separate segment. Time
//! estimates may have improved between recording and running: then a submission holds several segments.

/// A dispatch to be scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Index of its step.
    pub(crate) step: usize,
    /// Work-groups.
    pub(crate) grid: [u32; 3],
    /// Estimated seconds.
    pub(crate) seconds: f64,
    /// Axes along which its grid may be split.
    pub(crate) divisible: [bool; 3],
}

/// A portion of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Portion {
    /// Index of the dispatch.
    pub(crate) item: usize,
    /// First work-group.
    pub(crate) base: [u32; 3],
    /// Work-groups.
    pub(crate) grid: [u32; 3],
    /// Number of portions of its dispatch.
    pub(crate) count: usize,
    /// True if the step is complete after this portion.
    pub(crate) last_of_step: bool,
}

/// Maximum portions of one dispatch.
const MOST_PORTIONS: u32 = 256;

/// Distributes items in order; each inner list is a segment. `budget` is in seconds. `stepwise`: every step
/// begins a segment.
pub(crate) fn schedule(items: &[Item], budget: f64, stepwise: bool) -> Vec<Vec<Portion>> {
    let mut segments: Vec<Vec<Portion>> = Vec::new();
    let mut used = f64::INFINITY;
    for (index, item) in items.iter().enumerate() {
        let first_of_step = index == 0 || items[index - 1].step != item.step;
        let last_item = items.get(index + 1).is_none_or(|next| next.step != item.step);
        let portions = cut(item, budget);
        let count = portions.len();
        for (portion, (base, grid)) in portions.into_iter().enumerate() {
            let seconds = item.seconds / count as f64;
            let begins = count > 1 || used + seconds > budget || (stepwise && first_of_step && portion == 0);
            if segments.is_empty() || begins {
                segments.push(Vec::new());
                used = 0.0;
            }
            used = if count > 1 { f64::INFINITY } else { used + seconds };
            let last_of_step = last_item && portion + 1 == count;
            if let Some(current) = segments.last_mut() {
                current.push(Portion { item: index, base, grid, count, last_of_step });
            }
        }
    }
    segments
}

/// Returns how many segments the next submission holds, at least one. `seconds`: the estimate of each remaining
/// segment.
pub(crate) fn segments_of_submission(seconds: impl IntoIterator<Item = f64>, budget: f64) -> usize {
    let sums = seconds.into_iter().scan(0.0, |sum, segment| {
        *sum += segment;
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= budget).count().max(1)
}

/// Returns the portions of an item as bases and grids, split along the longest divisible axis.
fn cut(item: &Item, budget: f64) -> Vec<([u32; 3], [u32; 3])> {
    let whole = vec![([0; 3], item.grid)];
    let wanted = (item.seconds / budget).ceil();
    let Some(axis) = (0..3).filter(|&d| item.divisible[d]).max_by_key(|&d| item.grid[d]) else {
        return whole;
    };
    if wanted.is_nan() || wanted <= 1.0 {
        return whole;
    }
    let length = item.grid[axis];
    let count = (wanted.min(f64::from(MOST_PORTIONS)) as u32).min(length);
    if count <= 1 {
        return whole;
    }
    let step = length.div_ceil(count);
    (0..length)
        .step_by(step as usize)
        .map(|begin| {
            let (mut base, mut grid) = ([0; 3], item.grid);
            base[axis] = begin;
            grid[axis] = step.min(length - begin);
            (base, grid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(step: usize, seconds: f64) -> Item {
        Item { step, grid: [10, 300, 2], seconds, divisible: [true; 3] }
    }

    #[test]
    fn submissions_stay_within_the_budget() {
        let items: Vec<Item> = (0..10).map(|s| item(s, 0.03)).collect();
        let submissions = schedule(&items, 0.1, false);
        assert_eq!(submissions.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(schedule(&items, 0.1, true).len(), 10);
        assert_eq!(schedule(&items, f64::INFINITY, false).len(), 1);
        assert!(schedule(&[], 0.1, false).is_empty());
    }

    #[test]
    fn submissions_take_what_fits() {
        assert_eq!(segments_of_submission([0.03; 10], 0.1), 3);
        assert_eq!(segments_of_submission([0.03; 2], 0.1), 2);
        assert_eq!(segments_of_submission([0.2, 0.01], 0.1), 1, "too long alone");
        assert_eq!(segments_of_submission([0.0, 0.2], 0.1), 1);
    }

    #[test]
    fn long_dispatches_are_cut_and_covered_exactly() {
        let submissions = schedule(&[item(0, 0.01), item(1, 0.72), item(2, 0.01)], 0.1, false);
        let portions: Vec<Portion> = submissions.iter().flatten().filter(|p| p.item == 1).copied().collect();
        assert_eq!(portions.len(), 8);
        assert_eq!(portions.iter().map(|p| p.grid[1]).sum::<u32>(), 300);
        assert!(portions.windows(2).all(|w| w[0].base[1] + w[0].grid[1] == w[1].base[1]));
        assert!(portions.iter().all(|p| p.grid[0] == 10 && p.grid[2] == 2 && p.count == 8));
        assert_eq!(portions.iter().filter(|p| p.last_of_step).count(), 1);
        assert_eq!(submissions.len(), 10);
        let whole = Item { divisible: [false; 3], ..item(0, 9.0) };
        assert_eq!(schedule(&[whole], 0.1, false).len(), 1);
        let by_columns = Item { divisible: [true, false, true], ..item(0, 9.0) };
        let portions = schedule(&[by_columns], 0.1, false).concat();
        assert!(portions.len() == 10 && portions.iter().all(|p| p.grid == [1, 300, 2]), "{portions:?}");
        let tiny = Item { grid: [1, 1, 1], ..item(0, 9.0) };
        assert_eq!(schedule(&[tiny], 0.1, false).len(), 1);
    }
}
