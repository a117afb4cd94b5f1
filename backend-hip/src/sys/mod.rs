//! Below the runtime: libraries that are found at run time, tables of their functions, and the kernel's
//! compute driver.

pub(crate) mod kfd;
pub(crate) mod library;
pub(crate) mod table;
