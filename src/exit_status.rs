//! Exit statuses of programs.

/// Exit status of wrong use: an invalid argument or environment variable, or a named file that is missing,
/// inaccessible or broken.
pub const WRONG_USE: u8 = 2;

/// Exit status of any other failure.
pub const FAILED: u8 = 1;
