//! Location of a lane's access to memory.

/// Location of a lane's access.
#[derive(Clone, Copy)]
pub(super) enum Location {
    Global(u64),
    Lds(u32),
    /// Offset in the lane's own scratch.
    Scratch(u64),
    /// Address in global memory, and the number of bytes of the access inside a buffer. The bytes beyond its
    /// end load as 0 and are not stored.
    Clipped(u64, u32),
}
