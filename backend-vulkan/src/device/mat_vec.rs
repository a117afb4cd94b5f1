//! Shapes of matrix-vector kernels; the tuning table has an entry for each class.

/// A matrix-vector kernel for a given number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatVec {
    /// Invocations of a work-group.
    pub workgroup: u32,
    /// Number of teams: parts of the work-group with their own rows, each one subgroup or more.
    pub teams: u32,
    /// Rows of a team.
    pub rows: u32,
    /// Rows of a team for types that are read 32 weights at a time, which need more registers.
    pub rows_of_32: u32,
}

/// A matrix-vector kernel for one column that reads weights through workgroup-shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Subgroups of a work-group.
    pub subgroups: u32,
    /// Rows of a subgroup: 1, 2 or 4.
    pub rows: u32,
    /// Minimum length of rows.
    pub least: u32,
    /// Work-groups per compute unit. They compute all rows; further rows are computed one after the other.
    pub of_unit: u32,
}

/// A kernel for products of few columns on matrix units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// Subgroups of a work-group.
    pub subgroups: u32,
    /// Work-groups per compute unit. They compute all rows; further rows are computed one after the other.
    pub of_unit: u32,
    /// Fewest columns.
    pub from: u32,
    /// Most columns, at most 64.
    pub most: u32,
}
