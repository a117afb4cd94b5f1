//! Placeholder: the table of tile sizes and rows per work-group, architecture by family of operations.
