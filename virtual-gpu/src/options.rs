//! Options of a device: its checks and limits.

/// Optional checks for kernel errors. Accesses out of bounds are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Report two wavefronts that access the same bytes of LDS without a barrier between them, if at least
    /// one writes.
    pub races: bool,
    /// Report reads of uninitialised LDS.
    pub uninitialised: bool,
    /// Report LDS addresses that are no multiple of the access size. The runtime enables a processor mode
    /// that allows these accesses (slowly), and compilers use it; atomic operations must be aligned in any
    /// case. Global memory allows any address.
    pub alignment: bool,
    /// Report wavefronts of a work-group that wait at different barriers, or that end while others wait.
    pub barriers: bool,
    /// Report uses of a register that a load fills, and barriers, without the `s_waitcnt` that hardware
    /// needs.
    pub waits: bool,
    /// Report accesses beyond the `num_records` of a buffer resource (V#); hardware reads 0 there and drops
    /// writes.
    pub ranges: bool,
}

impl Checks {
    /// All checks.
    pub const ALL: Checks = Checks::of(true);
    /// Only errors that are faults on hardware.
    pub const NONE: Checks = Checks::of(false);

    const fn of(on: bool) -> Checks {
        Checks { races: on, uninitialised: on, alignment: on, barriers: on, waits: on, ranges: on }
    }
}

/// Options of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Enabled checks.
    pub checks: Checks,
    /// Maximum instructions of one wavefront: a kernel that does not end gives an error instead of a hang.
    pub max_instructions: u64,
    /// Capacity of device and pinned memory together, in bytes.
    pub memory: u64,
}

/// All checks except LDS alignment, 2^32 instructions, 16 GiB.
impl Default for Options {
    fn default() -> Options {
        Options {
            checks: Checks { alignment: false, ..Checks::ALL },
            max_instructions: 1 << 32,
            memory: 16 << 30,
        }
    }
}
