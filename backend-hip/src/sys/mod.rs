//! Dynamic loading: libraries that are found at run time, and tables of their functions.

pub(crate) mod library;
pub(crate) mod table;
