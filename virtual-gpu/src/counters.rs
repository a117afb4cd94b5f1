//! Counters of a launch: a deterministic measure of its work.

/// Counts of one launch, summed over its wavefronts. An instruction counts once per wavefront, regardless of
/// EXEC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wavefronts.
    pub waves: u64,
    /// Their lanes, the inactive ones too.
    pub lanes: u64,
    /// All instructions.
    pub instructions: u64,
    /// Scalar ALU instructions, without branches and waits.
    pub salu: u64,
    /// Vector ALU instructions.
    pub valu: u64,
    /// Vector ALU instructions at quarter rate: reciprocals, roots, exponentials, conversions of doubles,
    /// 32-bit integer products.
    pub valu_quarter: u64,
    /// Dot products of bytes, nibbles or halves; also counted in `valu`.
    pub dot: u64,
    /// Matrix instructions; also counted in `valu`.
    pub matrix: u64,
    /// Scalar memory instructions.
    pub smem: u64,
    /// Vector memory loads, including atomics with a result.
    pub vmem_load: u64,
    /// Vector memory stores and atomics without a result.
    pub vmem_store: u64,
    /// LDS instructions, including lane exchanges through the LDS hardware.
    pub lds: u64,
    /// Branches, taken or not.
    pub branch: u64,
    /// Barriers.
    pub barrier: u64,
    /// `s_waitcnt`.
    pub wait: u64,
    /// No-ops and the end of the program.
    pub other: u64,
    /// Bytes that lanes loaded from global memory.
    pub global_read: u64,
    /// Bytes that lanes stored to global memory.
    pub global_written: u64,
    /// Bytes that scalar loads read.
    pub scalar_read: u64,
    /// Bytes that lanes loaded from LDS.
    pub lds_read: u64,
    /// Bytes that lanes stored to LDS.
    pub lds_written: u64,
    /// Bytes of scratch loaded and stored.
    pub scratch: u64,
}

macro_rules! sum {
    ($($field:ident)*) => {
        impl Counters {
            /// Returns all counters with their names.
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }

        impl std::ops::Mul<u64> for Counters {
            type Output = Counters;

            fn mul(self, times: u64) -> Counters {
                Counters { $($field: self.$field * times),* }
            }
        }

        impl std::ops::AddAssign for Counters {
            fn add_assign(&mut self, other: Counters) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

sum! {
    waves lanes instructions salu valu valu_quarter dot matrix smem vmem_load vmem_store lds branch barrier wait other global_read
    global_written scalar_read lds_read lds_written scratch
}
