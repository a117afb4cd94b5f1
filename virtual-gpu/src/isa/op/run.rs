//! Functions of operations, compiled in two variants: [`valu!`] makes a [`Row`](crate::isa::Row) of each formula.
//!
//! A function reads its sources where they are and writes its results where they belong, chunk by chunk: a chunk of
//! results is complete before it is written, so the destination may be a source. That needs pointers, which stay in this
//! file.

#![allow(unsafe_code)]

use super::lanes::{CHUNK, LANES, Mode, Output, ResultPart, Results, SourcePart};

/// Words of all lanes.
type Words = [u32; LANES];

/// Sources of an instruction: the low and high words of up to three operands, and one bit per lane. Operands that
/// are registers as they are stay where they are: copies cost more than most formulas.
pub(crate) struct Sources<'a> {
    pub(crate) lo: [&'a Words; 3],
    pub(crate) hi: [&'a Words; 3],
    pub(crate) carry: &'a Words,
}

/// Lanes that an instruction writes.
pub(crate) struct Lanes {
    mask: u64,
    /// For each lane all ones or 0. Loaded from memory, so that the host's compiler makes no masked stores of it, which are
    /// slow on some hosts.
    words: Words,
}

impl Lanes {
    pub(crate) fn new() -> Lanes {
        Lanes { mask: 0, words: [0; LANES] }
    }

    /// Sets the lanes.
    #[inline(always)]
    pub(crate) fn set(&mut self, mask: u64) {
        if self.mask != mask {
            self.expand(mask);
        }
    }

    #[inline(never)]
    fn expand(&mut self, mask: u64) {
        self.mask = mask;
        for (lane, word) in self.words.iter_mut().enumerate() {
            *word = ((mask >> lane & 1) as u32).wrapping_neg();
        }
    }
}

/// Sources and destination of a function.
struct Operands {
    lo: [*const Words; 3],
    hi: [*const Words; 3],
    carry: *const Words,
    /// Chunks from one chunk of the first source to the next: 0 if there is only one, for all lanes.
    step: usize,
    mode: Mode,
    /// Chunks that are computed: 1 if the upper half of the lanes is inactive.
    chunks: usize,
    to: [*mut Words; 3],
    /// Lanes that are written; all of them if the destination is a buffer.
    lanes: *const Lanes,
}

impl Operands {
    /// Returns the sources of chunk 0 or 1.
    ///
    /// # Safety
    /// The pointers are valid for reads while the result is used, and nothing writes there.
    #[inline(always)]
    unsafe fn part<'a>(&self, chunk: usize) -> SourcePart<'a> {
        // SAFETY: the caller's promise; a chunk is a half of the words.
        let of = |words: *const Words| unsafe { &*words.cast::<[u32; CHUNK]>().add(chunk % 2) };
        let [_, b, c] = self.lo;
        // SAFETY: as before; a source without a step is one chunk.
        let a = unsafe { &*self.lo[0].cast::<[u32; CHUNK]>().add(chunk % 2 * self.step) };
        SourcePart { lo: [a, of(b), of(c)], hi: self.hi.map(of), carry: of(self.carry) }
    }

    /// Writes the results of chunk 0 or 1: those that an output of type `T` has.
    ///
    /// # Safety
    /// The pointers are valid for reads and writes, and nothing else refers to the destination.
    #[inline(always)]
    unsafe fn store<T: Output>(&self, chunk: usize, part: &ResultPart<'_>) {
        let chunk = chunk % 2;
        // SAFETY: the caller's promise.
        let lanes = unsafe { &*self.lanes };
        let mask = (lanes.mask >> (CHUNK * chunk)) as u32;
        let words = &lanes.words.as_chunks::<CHUNK>().0[chunk];
        let write = |to: *mut Words, values: &[u32; CHUNK]| {
            // SAFETY: the caller's promise; a chunk is a half of the words.
            let to = unsafe { &mut *to.cast::<[u32; CHUNK]>().add(chunk) };
            if mask == u32::MAX {
                *to = *values;
                return;
            }
            for lane in 0..CHUNK {
                to[lane] = to[lane] & !words[lane] | values[lane] & words[lane];
            }
        };
        if T::LO {
            write(self.to[0], part.lo);
        }
        if T::HI {
            write(self.to[1], part.hi);
        }
        if T::BITS {
            write(self.to[2], part.carry);
        }
    }
}

/// Function of an operation: compiled for any host, and for one with wide vectors.
///
/// Without FMA, a fused multiply-add calls a C library function for each lane: correct but slow.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    any: unsafe fn(&Operands),
    #[cfg(target_arch = "x86_64")]
    wide: unsafe fn(&Operands),
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Run")
    }
}

/// Vector instructions that the host has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    #[cfg(target_arch = "x86_64")]
    wide: bool,
}

impl Host {
    pub(crate) fn detect() -> Host {
        Host {
            #[cfg(target_arch = "x86_64")]
            wide: is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt"),
        }
    }

    /// Returns true if it has those that the second variant of functions is compiled for.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn is_wide(self) -> bool {
        self.wide
    }

    /// Calls a function.
    ///
    /// # Safety
    /// As for [`Operands::part`] and [`Operands::store`].
    #[inline(always)]
    unsafe fn call(self, run: &Run, operands: &Operands) {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` is set only if the processor has the features that the function is compiled for; the rest is
            // the caller's promise.
            unsafe { (run.wide)(operands) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { (run.any)(operands) };
    }

    /// Computes an operation for the lanes of a mask, at least, into a buffer.
    #[inline(always)]
    pub(crate) fn compute(self, run: &Run, sources: &Sources<'_>, mode: Mode, mask: u64, to: &mut Results) {
        const ALL: Lanes = Lanes { mask: u64::MAX, words: [u32::MAX; LANES] };
        static EVERY: Lanes = ALL;
        let operands = Operands {
            lo: sources.lo.map(std::ptr::from_ref),
            hi: sources.hi.map(std::ptr::from_ref),
            carry: sources.carry,
            step: 1,
            mode,
            chunks: chunks(mask),
            to: [&raw mut to.lo, &raw mut to.hi, &raw mut to.carry],
            lanes: &EVERY,
        };
        // SAFETY: the pointers come from references that outlive the call, those of the destination from an exclusive one.
        unsafe { self.call(run, &operands) };
    }

    /// Computes an operation of whole registers, some lanes of which it writes. The first source may be the same
    /// chunk for all lanes instead of a register.
    #[inline(always)]
    pub(crate) fn compute_in_place(
        self,
        run: &Run,
        registers: &mut [Words; 256],
        names: [u8; 4],
        same: Option<&[u32; CHUNK]>,
        mode: Mode,
        lanes: &Lanes,
    ) {
        let base: *mut Words = registers.as_mut_ptr();
        // SAFETY: there are 256 registers.
        let register = |n: u8| unsafe { base.add(usize::from(n)) };
        let [dst, a, b, c] = names.map(register);
        let step = usize::from(same.is_none());
        let first = same.map_or(a.cast_const(), |chunk| std::ptr::from_ref(chunk).cast());
        let (b, c) = (b.cast_const(), c.cast_const());
        // Nothing reads high words or masks.
        let (hi, chunks) = ([b; 3], chunks(lanes.mask));
        let operands = Operands { lo: [first, b, c], hi, carry: b, step, mode, chunks, to: [dst; 3], lanes };
        // SAFETY: the pointers come from an exclusive reference to all registers and from references to other memory, all of
        // which outlive the call. A function reads a chunk's sources before it writes the chunk's results.
        unsafe { self.call(run, &operands) };
    }
}

/// Returns the chunks that have lanes of a mask; the first one always counts.
#[inline(always)]
fn chunks(mask: u64) -> usize {
    if mask >> CHUNK == 0 { 1 } else { 2 }
}

/// A formula for a chunk of lanes.
pub(crate) trait Formula {
    /// Type of its result.
    type Output: Output;
    /// Computes it.
    fn compute(mode: Mode, chunk: usize, from: &SourcePart<'_>, to: &mut ResultPart<'_>);
}

impl Run {
    /// Returns the function of a formula.
    pub(crate) const fn of<F: Formula>() -> Run {
        Run {
            any: any::<F>,
            #[cfg(target_arch = "x86_64")]
            wide: wide::<F>,
        }
    }
}

/// # Safety
/// As for [`Operands::part`] and [`Operands::store`].
#[inline(always)]
unsafe fn all_chunks<F: Formula>(operands: &Operands) {
    for chunk in 0..operands.chunks {
        // One by one, so that the compiler drops those that are not used.
        let (mut lo, mut hi, mut carry) = ([0; CHUNK], [0; CHUNK], [0; CHUNK]);
        let mut results = ResultPart { lo: &mut lo, hi: &mut hi, carry: &mut carry };
        // SAFETY: the caller's promise.
        F::compute(operands.mode, chunk, &unsafe { operands.part(chunk) }, &mut results);
        // SAFETY: the caller's promise. The sources are not used any more.
        unsafe { operands.store::<F::Output>(chunk, &results) };
    }
}

/// # Safety
/// As for `all_chunks`.
unsafe fn any<F: Formula>(operands: &Operands) {
    // SAFETY: the caller's promise.
    unsafe { all_chunks::<F>(operands) };
}

/// # Safety
/// As for `all_chunks`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide<F: Formula>(operands: &Operands) {
    // SAFETY: the caller's promise.
    unsafe { all_chunks::<F>(operands) };
}

/// Makes a [`Run`] of a formula over the sources of a chunk and its results, of the types of an output.
macro_rules! run {
    ($output:ty, |$mode:ident, $chunk:ident, $from:ident, $to:ident| $body:block) => {{
        struct Operation;
        impl $crate::isa::op::run::Formula for Operation {
            type Output = $output;
            #[inline(always)]
            #[allow(unused_variables, unused_mut, unused_assignments)]
            fn compute(
                $mode: $crate::isa::op::lanes::Mode,
                $chunk: usize,
                $from: &$crate::isa::op::lanes::SourcePart<'_>,
                $to: &mut $crate::isa::op::lanes::ResultPart<'_>,
            ) $body
        }
        $crate::isa::op::run::Run::of::<Operation>()
    }};
}
pub(crate) use run;

/// Defines operations of the vector unit.
///
/// A row is `name (sources) -> result { formula }`, optionally followed by flags in brackets. Formulas may use `mode`
/// and `lane`.
macro_rules! valu {
    (
        $mode:ident, $lane:ident;
        $( $name:ident ($($a:ident : $t:ty),*) -> $r:ty $body:block $([$($flag:ident)*])? )*
    ) => {$(
        pub(crate) static $name: $crate::isa::Row = $crate::isa::Row {
            name: stringify!($name),
            dst: <$r as $crate::isa::op::lanes::Output>::KIND,
            carry_out: <$r as $crate::isa::op::lanes::Output>::CARRY,
            src: $crate::isa::op::lanes::kinds(&[$(<$t as $crate::isa::op::lanes::Source>::KIND),*]),
            flags: 0 $($(| $crate::isa::flag::$flag)*)?,
            run: $crate::isa::op::run::run!($r, |$mode, chunk, from, to| {
                for at in 0..$crate::isa::op::lanes::CHUNK {
                    let $lane = $crate::isa::op::lanes::CHUNK * chunk + at;
                    let mut n = 0;
                    $(
                        let $a = <$t as $crate::isa::op::lanes::Source>::get(from, n, at);
                        n += 1;
                    )*
                    let result: $r = $body;
                    $crate::isa::op::lanes::Output::set(result, to, at);
                }
            }),
        };
    )*};
}
pub(crate) use valu;
