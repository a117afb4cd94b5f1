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
    /// Report two wavefronts that access the same bytes of global memory, at least one of them writing and not
    /// both with atomics, if nothing orders the accesses: no barrier within a work-group, and between two
    /// work-groups no release by the one and acquire by the other through an atomic. With `waits` also stores that
    /// are still in flight when their wavefront passes a barrier or signals.
    pub order: bool,
}

impl Checks {
    /// All checks.
    pub const ALL: Checks = Checks::of(true);
    /// Only errors that are faults on hardware.
    pub const NONE: Checks = Checks::of(false);

    /// Returns the checks with these names, separated by commas: those of the fields, or `all`, or `none`. `None` for
    /// another name.
    pub fn parse(text: &str) -> Option<Checks> {
        match text {
            "all" => return Some(Checks::ALL),
            "none" => return Some(Checks::NONE),
            _ => {}
        }
        let mut checks = Checks::NONE;
        for name in text.split(',') {
            *match name.trim() {
                "races" => &mut checks.races,
                "uninitialised" => &mut checks.uninitialised,
                "alignment" => &mut checks.alignment,
                "barriers" => &mut checks.barriers,
                "waits" => &mut checks.waits,
                "ranges" => &mut checks.ranges,
                "order" => &mut checks.order,
                _ => return None,
            } = true;
        }
        Some(checks)
    }

    const fn of(on: bool) -> Checks {
        Checks { races: on, uninitialised: on, alignment: on, barriers: on, waits: on, ranges: on, order: on }
    }
}

/// Choices that hardware leaves to chance, and this device to its seed ([`Options::seed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    /// Contents of registers, LDS and scratch when a wavefront starts. Otherwise registers and scratch are 0.
    pub registers: bool,
    /// Contents of memory that [`crate::Gpu::allocate`] and [`crate::Gpu::allocate_host`] return (of large
    /// allocations, 32 MiB at each end). Otherwise it is zeroed, as kernel drivers do.
    pub memory: bool,
    /// Order in which the wavefronts of a work-group run between two barriers. Otherwise ascending.
    pub waves: bool,
    /// Order in which work-groups start. Otherwise ascending in each host thread, which a kernel may need whose
    /// work-groups wait for those before them.
    pub groups: bool,
    /// Results of approximating instructions (`v_rcp_f32`, `v_exp_f32` ...) may differ by one unit in the last place,
    /// which is the error that AMD documents. The same operands have the same result under one seed.
    pub approximations: bool,
}

impl Random {
    /// Everything.
    pub const ALL: Random = Random::of(true);
    /// Nothing: zeros, ascending order.
    pub const NONE: Random = Random::of(false);

    const fn of(on: bool) -> Random {
        Random { registers: on, memory: on, waves: on, groups: on, approximations: on }
    }

    /// Returns true if results may depend on the seed.
    pub(crate) fn any(self) -> bool {
        self != Random::NONE
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
    /// Choices left to chance.
    pub random: Random,
    /// Seed of what is random. A fault shows it.
    pub seed: u64,
}

/// All checks except LDS alignment, 2^32 instructions, 16 GiB; all random under seed 1 but the order of work-groups and
/// approximations.
impl Default for Options {
    fn default() -> Options {
        Options {
            checks: Checks { alignment: false, ..Checks::ALL },
            max_instructions: 1 << 32,
            memory: 16 << 30,
            random: Random { groups: false, approximations: false, ..Random::ALL },
            seed: 1,
        }
    }
}
