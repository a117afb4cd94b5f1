//! Extents and grids: merging of dimensions, and distribution over work-groups.

use crate::device::profile::Profile;

/// The dimensions of a tensor, as an operand of an element-wise kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strided {
    /// Extents: those of the result, or 1 or a divisor where the operand is repeated.
    pub(super) ne: [u32; 4],
    /// Strides in elements.
    pub(super) nb: [u32; 4],
}

/// Merges neighbouring dimensions that are contiguous in all operands, the first of which is the result.
///
/// Dimension `e` continues `d` in an operand that has the extents of the result in both and a stride of `e`
/// equal to stride times extent of `d`, or that has extent 1 in both. Dimensions of extent 1 are removed.
pub(super) fn merge<const N: usize>(operands: &mut [Strided; N]) {
    let mut last = 0;
    for e in 1..4 {
        if operands[0].ne[e] == 1 {
            continue;
        }
        let (d, extent) = (last, operands[0].ne[last]);
        let continues = |o: &Strided| {
            let whole = o.ne[d] == extent
                && o.ne[e] == operands[0].ne[e]
                && o.nb[d].checked_mul(extent) == Some(o.nb[e]);
            whole || o.ne[d] == 1 && o.ne[e] == 1 && extent != 1
        };
        let merged = extent.checked_mul(operands[0].ne[e]);
        if extent == 1 {
            // No dimension has been placed yet: move this one down.
            operands.iter_mut().for_each(|o| (o.ne[d], o.nb[d]) = (o.ne[e], o.nb[e]));
        } else if merged.is_some() && operands.iter().all(continues) {
            for o in operands.iter_mut() {
                o.ne[d] = o.ne[d].saturating_mul(o.ne[e]);
            }
        } else {
            last += 1;
            operands.iter_mut().for_each(|o| (o.ne[last], o.nb[last]) = (o.ne[e], o.nb[e]));
        }
    }
    for o in operands {
        for e in last + 1..4 {
            (o.ne[e], o.nb[e]) = (1, 0);
        }
    }
}

/// A grid for kernels that can loop over the work that does not fit the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Work-groups.
    pub(super) groups: [u32; 3],
    /// 1 if the grid covers everything, otherwise 0: the specialisation constant ONCE.
    pub(super) once: u32,
}

/// Returns a grid of `wanted` work-groups, each dimension clamped to the device's limit.
pub(super) fn cover(profile: &Profile, wanted: [u64; 3]) -> Grid {
    let limits = profile.caps.max_workgroups;
    let groups = std::array::from_fn(|d| wanted[d].clamp(1, u64::from(limits[d].max(1))) as u32);
    Grid { groups, once: (0..3).all(|d| wanted[d] <= u64::from(groups[d])) as u32 }
}

/// Returns a grid for kernels with columns along x, rows along y, and the outer dimensions along z.
pub(super) fn rows(profile: &Profile, workgroup: u32, ne: [u32; 4]) -> Grid {
    let columns = u64::from(ne[0]).div_ceil(u64::from(workgroup));
    cover(profile, [columns, ne[1].into(), u64::from(ne[2]) * u64::from(ne[3])])
}

/// Returns a grid for kernels with one work-group per row: rows along y, the outer dimensions along z.
pub(super) fn whole_rows(profile: &Profile, ne: [u32; 4]) -> Grid {
    cover(profile, [1, ne[1].into(), u64::from(ne[2]) * u64::from(ne[3])])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided(ne: [u32; 4], nb: [u32; 4]) -> Strided {
        Strided { ne, nb }
    }

    #[test]
    fn contiguous_operands_become_one_row() {
        let whole = strided([5, 3, 2, 4], [1, 5, 15, 30]);
        let mut operands = [whole, whole, strided([1; 4], [1, 0, 0, 0])];
        merge(&mut operands);
        assert_eq!(operands[0], strided([120, 1, 1, 1], [1, 0, 0, 0]));
        assert_eq!(operands[2], strided([1, 1, 1, 1], [1, 0, 0, 0]));
    }

    #[test]
    fn repeated_and_strided_dimensions_stay() {
        let whole = strided([5, 3, 2, 1], [1, 5, 15, 0]);
        let mut operands = [whole, strided([5, 1, 1, 1], [1, 0, 0, 0])];
        merge(&mut operands);
        assert_eq!(operands[0], strided([5, 6, 1, 1], [1, 5, 0, 0]));
        assert_eq!(operands[1], strided([5, 1, 1, 1], [1, 0, 0, 0]));

        let mut operands = [strided([1, 6, 1, 4], [1, 1, 0, 6]), strided([1, 6, 1, 4], [1, 2, 0, 100])];
        merge(&mut operands);
        assert_eq!(operands[0], strided([6, 4, 1, 1], [1, 6, 0, 0]));
        assert_eq!(operands[1], strided([6, 4, 1, 1], [2, 100, 0, 0]));
    }
}
