//! The memory that one launch may use: ranges that it may read, and such that it may write too.

use super::{Memory, View, find};
use crate::fault::{Access, FaultKind, Range, Space};
use std::sync::Arc;

/// A range of memory that a launch may use ([`crate::Launch::windows`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Address of the first byte.
    pub at: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// True if the launch may write there.
    pub writable: bool,
}

impl Memory {
    /// Returns a view of windows, which may overlap, and of whole regions at the addresses in `whole`, which can only be
    /// read.
    pub(crate) fn limited(&self, windows: &[Window], whole: &[u64]) -> Result<View, FaultKind> {
        let state = self.state();
        let mut parts = Vec::with_capacity(windows.len() + whole.len());
        for &address in whole {
            if let Some(region) = find(&state.regions, address) {
                let mut region = region.clone();
                region.writable = false;
                parts.push(region);
            }
        }
        for (at, bytes, writable) in apart(windows) {
            let range = Range {
                space: Space::Global,
                access: if writable { Access::Write } else { Access::Read },
                at,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            let part = find(&state.regions, at).and_then(|region| region.part(at - region.base, bytes));
            let mut part = part.ok_or(FaultKind::OutOfBounds(range))?;
            part.writable = writable;
            parts.push(part);
        }
        parts.sort_by_key(|region| region.base);
        Ok(View { regions: Arc::new(parts) })
    }
}

/// Returns ranges that do not overlap; neighbours of the same kind are one.
fn apart(windows: &[Window]) -> Vec<(u64, u64, bool)> {
    let end = |w: &Window| w.at.saturating_add(w.bytes);
    let mut edges: Vec<u64> = windows.iter().flat_map(|w| [w.at, end(w)]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    for pair in edges.windows(2) {
        let covers = |w: &&Window| w.at <= pair[0] && end(w) >= pair[1];
        let Some(writable) = windows.iter().filter(covers).map(|w| w.writable).reduce(|a, b| a || b) else {
            continue;
        };
        match ranges.last_mut() {
            Some((at, bytes, same)) if *at + *bytes == pair[0] && *same == writable => {
                *bytes += pair[1] - pair[0]
            }
            _ => ranges.push((pair[0], pair[1] - pair[0], writable)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_may_be_written_if_one_may() {
        let window = |at, bytes, writable| Window { at, bytes, writable };
        assert_eq!(apart(&[]), []);
        assert_eq!(apart(&[window(8, 8, true), window(0, 8, true)]), [(0, 16, true)]);
        assert_eq!(apart(&[window(0, 8, false), window(8, 8, true)]), [(0, 8, false), (8, 8, true)]);
        assert_eq!(
            apart(&[window(0, 32, false), window(8, 8, true), window(40, 0, true), window(64, 1, false)]),
            [(0, 8, false), (8, 8, true), (16, 16, false), (64, 1, false)]
        );
    }
}
