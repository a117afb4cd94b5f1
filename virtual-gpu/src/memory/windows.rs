//! Windows: the live allocations inside a region that a runtime divides itself. A kernel that leaves them is out of
//! bounds although the region has memory there.
//!
//! Kernels see a region for each window in place of the whole region, so a region without windows costs nothing.

use super::region::{PART_ALIGN, Region};
use crate::fault::{Access, FaultKind, Range, Space};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Windows by the base of their region: offsets and bytes, sorted.
#[derive(Debug, Default)]
pub(super) struct Windows(BTreeMap<u64, Vec<(u64, u64)>>);

impl Windows {
    /// Sets the windows of a region.
    pub(super) fn set(&mut self, region: &Region, windows: Vec<(u64, u64)>) -> Result<(), FaultKind> {
        self.0.insert(region.base, checked(region, windows)?);
        Ok(())
    }

    /// Drops the windows of a region.
    pub(super) fn forget(&mut self, base: u64) {
        self.0.remove(&base);
    }

    /// Returns the regions that kernels see.
    pub(super) fn visible(&self, regions: &Arc<Vec<Region>>) -> Arc<Vec<Region>> {
        if self.0.is_empty() {
            return regions.clone();
        }
        let mut visible = Vec::with_capacity(regions.len());
        for region in regions.iter() {
            match self.0.get(&region.base) {
                // Checked when they were set.
                Some(windows) => visible.extend(windows.iter().filter_map(|&(at, n)| region.part(at, n))),
                None => visible.push(region.clone()),
            }
        }
        Arc::new(visible)
    }
}

/// Sorts windows; they must be inside the region, apart from each other, and aligned.
fn checked(region: &Region, mut windows: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>, FaultKind> {
    windows.retain(|window| window.1 > 0);
    windows.sort_unstable();
    let mut end = 0;
    for &(offset, bytes) in &windows {
        let at = Range {
            space: Space::Global,
            access: Access::Write,
            at: region.base.wrapping_add(offset),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        if offset % PART_ALIGN != 0 {
            return Err(FaultKind::Misaligned(at, PART_ALIGN as u32));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > region.bytes) {
            return Err(FaultKind::OutOfBounds(at));
        }
        if offset < end {
            return Err(FaultKind::Occupied(at));
        }
        end = offset + bytes;
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn seen(memory: &Memory) -> Vec<(u64, u64)> {
        memory.view().regions.iter().map(|r| (r.base, r.bytes)).collect()
    }

    #[test]
    fn kernels_see_windows_in_place_of_the_region() {
        let memory = Memory::new(1 << 20);
        for base in [0x1000, 0x10_0000, 0x20_0000] {
            memory.allocate_at(base, 0x4000).unwrap();
        }
        let before = memory.view();
        memory.set_windows(0x10_0000, Some(vec![(0x1000, 100), (0x100, 0x40), (0x2000, 0)])).unwrap();
        let whole = [(0x1000, 0x4000), (0x20_0000, 0x4000)];
        assert_eq!(seen(&memory), [whole[0], (0x10_0100, 0x40), (0x10_1000, 100), whole[1]]);
        assert_eq!(before.regions.len(), 3, "a launch keeps its view");
        // The host still reads and writes all of it, and both are the same bytes.
        memory.write(0x10_0ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(memory.view().regions[2].load(0, 4)[0], 0x0807_0605);
        // Other regions come and go; the windows stay until they are taken back or the region is freed.
        memory.free(0x1000).unwrap();
        assert_eq!(seen(&memory), [(0x10_0100, 0x40), (0x10_1000, 100), whole[1]]);
        memory.set_windows(0x10_0000, None).unwrap();
        assert_eq!(seen(&memory), [(0x10_0000, 0x4000), whole[1]]);
        memory.set_windows(0x20_0000, Some(Vec::new())).unwrap();
        assert_eq!(seen(&memory), [(0x10_0000, 0x4000)]);
        memory.free(0x20_0000).unwrap();
        memory.allocate_at(0x20_0000, 0x1000).unwrap();
        assert_eq!(seen(&memory), [(0x10_0000, 0x4000), (0x20_0000, 0x1000)]);
    }

    #[test]
    fn windows_that_are_none() {
        let memory = Memory::new(1 << 20);
        memory.allocate_at(0x1000, 0x4000).unwrap();
        let set = |base, windows: &[(u64, u64)]| memory.set_windows(base, Some(windows.to_vec()));
        assert!(matches!(set(0x2000, &[(0, 16)]), Err(FaultKind::OutOfBounds(r)) if r.at == 0x2000));
        assert!(matches!(set(0x1000, &[(8, 16)]), Err(FaultKind::Misaligned(r, 16)) if r.at == 0x1008));
        assert!(matches!(set(0x1000, &[(0x3ff0, 17)]), Err(FaultKind::OutOfBounds(_))));
        assert!(matches!(set(0x1000, &[(16, u64::MAX)]), Err(FaultKind::OutOfBounds(_))));
        assert!(
            matches!(set(0x1000, &[(0x100, 16), (0, 0x101)]), Err(FaultKind::Occupied(r)) if r.at == 0x1100)
        );
        assert_eq!(seen(&memory), [(0x1000, 0x4000)], "nothing changed");
    }
}
