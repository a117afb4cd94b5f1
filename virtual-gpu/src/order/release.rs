//! Releases: what a work-group did before one is ordered for those that acquire it.

/// A release by a work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(super) group: u32,
    pub(super) number: u32,
    /// Number of acquires before it.
    pub(super) seen: u32,
}
