//! Forms of mat-vec kernels, of which the table of tuning has one for each class.

/// A mat-vec kernel for some number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatVec {
    /// Invocations.
    pub workgroup: u32,
    /// Parts of the work-group that have rows of their own; a subgroup or more each.
    pub teams: u32,
    /// Rows of a team.
    pub rows: u32,
    /// The same of types with pieces of 32 weights, which take more registers.
    pub rows_of_32: u32,
}

/// Mat-vec of one column whose weights go through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Subgroups of a work-group.
    pub subgroups: u32,
    /// Rows of a subgroup: 1, 2 or 4.
    pub rows: u32,
    /// The least length of rows.
    pub least: u32,
    /// Work-groups for each compute unit, which compute all rows; more rows are computed after each other.
    pub of_unit: u32,
}
