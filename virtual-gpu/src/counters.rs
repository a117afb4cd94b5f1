//! What a launch did, counted: a measure of work that no noise disturbs.

/// Counts of one launch, summed over its wavefronts. An instruction counts once for a wavefront, whatever EXEC says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wavefronts.
    pub waves: u64,
    /// All instructions.
    pub instructions: u64,
    /// Scalar ALU, without branches and waits.
    pub salu: u64,
    /// Vector ALU.
    pub valu: u64,
    /// Those of them that take four times as long: reciprocals, roots, exponentials, conversions of doubles, and
    /// 32-bit integer products.
    pub valu_quarter: u64,
    /// Dot products of bytes, nibbles or halves.
    pub dot: u64,
    /// Scalar memory.
    pub smem: u64,
    /// Vector memory loads (atomics with a result too).
    pub vmem_load: u64,
    /// Vector memory stores and atomics without a result.
    pub vmem_store: u64,
    /// LDS, and exchanges between lanes through its hardware.
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
    /// Bytes of scratch, both ways.
    pub scratch: u64,
}

macro_rules! sum {
    ($($field:ident)*) => {
        impl Counters {
            /// All of them, by name.
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
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
    waves instructions salu valu valu_quarter dot smem vmem_load vmem_store lds branch barrier wait other global_read
    global_written scalar_read lds_read lds_written scratch
}
