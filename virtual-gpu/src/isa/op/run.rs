//! Functions of operations, compiled in two variants: [`valu!`] makes a [`Row`](crate::isa::Row) of each formula.
//!
//! A function reads its sources where they are and writes its results where they belong, chunk by chunk: a chunk of
//! results is complete before it is written, so the destination may be a source. That needs pointers, which stay in this
//! file.

#![allow(unsafe_code)]

use super::file::{Name, RegisterFile, Words};
use super::lanes::{CHUNK, CHUNKS, LANES, Mode, Output, ResultPart, SourcePart};
use std::mem::MaybeUninit;

/// Rows of an instruction's operands, and one bit for each lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// Low words of the sources, and of the results.
    pub(crate) lo: [Name; 4],
    /// High words.
    pub(crate) hi: [Name; 4],
    /// A source with one bit for each lane.
    pub(crate) carry: u64,
}

impl Operands {
    /// Returns operands of one word without bits.
    #[inline(always)]
    pub(crate) fn short(lo: [Name; 4]) -> Operands {
        Operands { lo, hi: lo, carry: 0 }
    }
}

/// Lanes that an instruction writes.
pub(crate) struct Lanes {
    mask: u64,
    /// The mask whose words are set.
    expanded: u64,
    /// For each lane all ones or 0. Loaded from memory, so that the host's compiler makes no masked stores of it, which are
    /// slow on some hosts.
    words: Words,
}

impl Lanes {
    pub(crate) fn new() -> Lanes {
        Lanes { mask: 0, expanded: 0, words: [0; LANES] }
    }

    /// Returns all lanes of the chunks that have some of these: results go to a buffer.
    #[inline(always)]
    pub(crate) fn all_of(mask: u64) -> &'static Lanes {
        const ALL: Lanes = Lanes { mask: u64::MAX, expanded: 0, words: [u32::MAX; LANES] };
        const LOWER: Lanes = Lanes { mask: u32::MAX as u64, expanded: 0, words: [u32::MAX; LANES] };
        static EACH: [Lanes; 2] = [LOWER, ALL];
        &EACH[usize::from(mask >> 32 != 0)]
    }

    /// Sets the lanes.
    #[inline(always)]
    pub(crate) fn set(&mut self, mask: u64) {
        self.mask = mask;
        // All lanes of a wavefront need no words.
        if !matches!(mask, u64::MAX | 0xffff_ffff) && mask != self.expanded {
            self.expand(mask);
        }
    }

    #[inline(never)]
    fn expand(&mut self, mask: u64) {
        self.expanded = mask;
        for (lane, word) in self.words.iter_mut().enumerate() {
            *word = ((mask >> lane & 1) as u32).wrapping_neg();
        }
    }
}

/// Operands of a call of a function, and the lanes that it writes.
struct Call<'a> {
    file: *mut Words,
    operands: &'a Operands,
    /// Low words of the first source, and chunks from one chunk of it to the next: 0 if there is only one, for all lanes.
    first: *const [u32; CHUNK],
    step: usize,
    mode: Mode,
    /// Chunks that are computed: half of them if the upper half of the lanes is inactive.
    chunks: usize,
    /// Lanes that are written.
    lanes: &'a Lanes,
}

/// The rows of a call: read once, because the compiler does not know that results are written elsewhere.
struct Rows<'a> {
    lo: [*mut [u32; CHUNK]; 4],
    hi: [*mut [u32; CHUNK]; 4],
    step: usize,
    carry: u64,
    lanes: &'a Lanes,
    /// True if all lanes are written of the chunks that are computed.
    whole: bool,
}

impl<'a> Call<'a> {
    /// Returns the rows.
    ///
    /// # Safety
    /// `file` points to a [`RegisterFile`].
    #[inline(always)]
    unsafe fn rows(&self) -> Rows<'a> {
        // SAFETY: a name is that of a row of the file.
        let row = |name: Name| unsafe { self.file.add(name.row()).cast() };
        let [_, b, c, to] = self.operands.lo.map(row);
        let lo = [self.first.cast_mut(), b, c, to];
        let (hi, carry) = (self.operands.hi.map(row), self.operands.carry);
        let whole = matches!(self.lanes.mask, u64::MAX | 0xffff_ffff);
        Rows { lo, hi, step: self.step, carry, lanes: self.lanes, whole }
    }
}

impl Rows<'_> {
    /// Returns the sources of a chunk.
    ///
    /// # Safety
    /// The rows are those of a [`RegisterFile`], which have this chunk; of the first source there are as many chunks as `step`
    /// says. Nothing writes there while the result is used.
    #[inline(always)]
    unsafe fn part<'a>(&self, chunk: usize) -> SourcePart<'a> {
        // SAFETY: the caller's promise; a row has so many chunks.
        let of = |row: *mut [u32; CHUNK]| unsafe { &*row.add(chunk) };
        let ([a, b, c, _], [x, y, z, _]) = (self.lo, self.hi);
        // SAFETY: the caller's promise.
        let a = unsafe { &*a.add(chunk * self.step) };
        let carry = (self.carry >> (CHUNK * chunk)) as u32;
        SourcePart { lo: [a, of(b), of(c)], hi: [of(x), of(y), of(z)], carry }
    }

    /// Writes the results of a chunk: those that an output of type `T` has. Returns its bits.
    ///
    /// # Safety
    /// As before, and nothing else refers to the destination. A formula wrote all lanes of the results.
    #[inline(always)]
    unsafe fn store<T: Output>(&self, chunk: usize, part: &ResultPart<'_>) -> u64 {
        if T::LO {
            // SAFETY: the caller's promise.
            unsafe { self.write(self.lo[3], chunk, known(part.lo)) };
        }
        if T::HI {
            // SAFETY: the caller's promise.
            unsafe { self.write(self.hi[3], chunk, known(part.hi)) };
        }
        if !T::BITS {
            return 0;
        }
        // SAFETY: the caller's promise.
        let bits = bits_of(unsafe { known(part.carry) });
        u64::from(bits) << (CHUNK * chunk)
    }

    /// # Safety
    /// As for `store`.
    #[inline(always)]
    unsafe fn write(&self, row: *mut [u32; CHUNK], chunk: usize, values: &[u32; CHUNK]) {
        // SAFETY: the caller's promise.
        let to = unsafe { &mut *row.add(chunk) };
        if self.whole {
            *to = *values;
            return;
        }
        let words = &self.lanes.words.as_chunks::<CHUNK>().0[chunk % CHUNKS];
        // All are read before one is written: then the host's compiler makes a vector of them.
        let (old, mut new) = (*to, [0; CHUNK]);
        for lane in 0..CHUNK {
            new[lane] = old[lane] & !words[lane] | values[lane] & words[lane];
        }
        *to = new;
    }
}

/// The bits of all lanes of a chunk.
pub(crate) const EVERY: u32 = (1 << CHUNK) - 1;

/// Returns a bit of each word, which is all ones or 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn bits_of(words: &[u32; CHUNK]) -> u32 {
    use std::arch::x86_64::{_mm_loadu_ps, _mm_movemask_ps};
    let [low, high] = [0, CHUNK / 2].map(|first| {
        // SAFETY: four words are there, and all such processors have SSE.
        unsafe { _mm_movemask_ps(_mm_loadu_ps(words.as_ptr().add(first).cast())) as u32 }
    });
    low | high << (CHUNK / 2)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn bits_of(words: &[u32; CHUNK]) -> u32 {
    words.iter().enumerate().fold(0, |bits, (lane, word)| bits | word & 1 << lane)
}

/// # Safety
/// All were written.
#[inline(always)]
unsafe fn known(values: &[MaybeUninit<u32>; CHUNK]) -> &[u32; CHUNK] {
    // SAFETY: the caller's promise.
    unsafe { &*std::ptr::from_ref(values).cast() }
}

/// Function of an operation: compiled for any host, and for one with wide vectors. It returns the result that has one bit
/// for each lane.
///
/// Without FMA, a fused multiply-add calls a C library function for each lane: correct but slow.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    any: unsafe fn(&Call<'_>) -> u64,
    #[cfg(target_arch = "x86_64")]
    wide: unsafe fn(&Call<'_>) -> u64,
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

    /// Computes an operation of rows of a file, and writes some lanes of its results. Returns the bits of all lanes.
    #[inline(always)]
    pub(crate) fn compute(
        self,
        run: &Run,
        file: &mut RegisterFile,
        operands: &Operands,
        mode: Mode,
        lanes: &Lanes,
    ) -> u64 {
        let file: *mut Words = std::ptr::from_mut(file).cast();
        // SAFETY: a name is that of a row of the file.
        let first = unsafe { file.add(operands.lo[0].row()) }.cast_const().cast();
        let call = Call::new(file, operands, (first, 1), mode, lanes);
        // SAFETY: the file comes from an exclusive reference, and the first source is one of its rows.
        unsafe { self.call(run, &call) }
    }

    /// Computes an operation whose first source may be the same for all lanes.
    #[inline(always)]
    pub(crate) fn compute_same(
        self,
        run: &Run,
        file: &mut RegisterFile,
        operands: &Operands,
        same: Option<&[u32; CHUNK]>,
        mode: Mode,
        lanes: &Lanes,
    ) -> u64 {
        let file: *mut Words = std::ptr::from_mut(file).cast();
        // SAFETY: a name is that of a row of the file.
        let row = || unsafe { file.add(operands.lo[0].row()) }.cast_const().cast();
        let first = same.map_or_else(|| (row(), 1), |same| (std::ptr::from_ref(same), 0));
        let call = Call::new(file, operands, first, mode, lanes);
        // SAFETY: the file comes from an exclusive reference, and the first source is one of its rows or a chunk elsewhere.
        unsafe { self.call(run, &call) }
    }

    /// Calls a function.
    ///
    /// # Safety
    /// As for [`Rows::part`] and [`Rows::store`]. A function reads a chunk's sources before it writes the chunk's results.
    #[inline(always)]
    unsafe fn call(self, run: &Run, call: &Call<'_>) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` is set only if the processor has the features that the function is compiled for; the rest is
            // the caller's promise.
            return unsafe { (run.wide)(call) };
        }
        // SAFETY: the caller's promise.
        unsafe { (run.any)(call) }
    }
}

impl<'a> Call<'a> {
    #[inline(always)]
    fn new(
        file: *mut Words,
        operands: &'a Operands,
        (first, step): (*const [u32; CHUNK], usize),
        mode: Mode,
        lanes: &'a Lanes,
    ) -> Call<'a> {
        // Those of a wavefront of 32 lanes always count.
        let chunks = if lanes.mask >> 32 == 0 { CHUNKS / 2 } else { CHUNKS };
        Call { file, operands, first, step, mode, chunks, lanes }
    }
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
/// As for [`Rows::part`] and [`Rows::store`].
#[inline(always)]
unsafe fn all_chunks<F: Formula>(call: &Call<'_>) -> u64 {
    let (mode, mut bits) = (call.mode, 0);
    // SAFETY: the caller's promise.
    let rows = unsafe { call.rows() };
    for chunk in 0..call.chunks.min(CHUNKS) {
        // One by one, so that the compiler drops those that are not used.
        const EMPTY: [MaybeUninit<u32>; CHUNK] = [MaybeUninit::uninit(); CHUNK];
        let (mut lo, mut hi, mut carry) = (EMPTY, EMPTY, EMPTY);
        let mut results = ResultPart { lo: &mut lo, hi: &mut hi, carry: &mut carry };
        // SAFETY: the caller's promise.
        F::compute(mode, chunk, &unsafe { rows.part(chunk) }, &mut results);
        // SAFETY: the caller's promise. The sources are not used any more, and a formula writes all lanes of a chunk.
        bits |= unsafe { rows.store::<F::Output>(chunk, &results) };
    }
    bits
}

/// # Safety
/// As for `all_chunks`.
unsafe fn any<F: Formula>(call: &Call<'_>) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { all_chunks::<F>(call) }
}

/// # Safety
/// As for `all_chunks`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide<F: Formula>(call: &Call<'_>) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { all_chunks::<F>(call) }
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

/// Does something with the sources of each lane of a chunk.
macro_rules! for_lanes {
    ($chunk:ident, $from:ident, $lane:ident, $at:ident, ($($a:ident : $t:ty),*), $body:block) => {
        for $at in 0..$crate::isa::op::lanes::CHUNK {
            let $lane = $crate::isa::op::lanes::CHUNK * $chunk + $at;
            let mut n = 0;
            $(
                let $a = <$t as $crate::isa::op::lanes::Source>::get($from, n, $at);
                n += 1;
            )*
            $body
        }
    };
}
pub(crate) use for_lanes;

/// Returns the types of sources.
macro_rules! kinds_of {
    (($($a:ident : $t:ty),*)) => {
        $crate::isa::op::lanes::kinds(&[$(<$t as $crate::isa::op::lanes::Source>::KIND),*])
    };
}
pub(crate) use kinds_of;

/// Defines operations of the vector unit.
///
/// A row is `name (sources) -> result { formula }`, optionally followed by flags in brackets. Formulas may use `mode`
/// and `lane`. Between them may stand `=> (condition) { formula }`: a simple formula that gives the same if the condition
/// holds. It is used if it holds for all lanes of a chunk: then the host's compiler can make vectors of it.
macro_rules! valu {
    (
        $mode:ident, $lane:ident;
        $( $name:ident $sources:tt -> $r:ty $body:block
            $(=> ($usual:expr) $simple:block)? $([$($flag:ident)*])? )*
    ) => {$(
        pub(crate) static $name: $crate::isa::Row = $crate::isa::Row {
            name: stringify!($name),
            dst: <$r as $crate::isa::op::lanes::Output>::KIND,
            carry_out: <$r as $crate::isa::op::lanes::Output>::CARRY,
            src: $crate::isa::op::run::kinds_of!($sources),
            flags: 0 $($(| $crate::isa::flag::$flag)*)?,
            run: $crate::isa::op::run::run!($r, |$mode, chunk, from, to| {
                $(
                    let mut usual = [0; $crate::isa::op::lanes::CHUNK];
                    $crate::isa::op::run::for_lanes!(chunk, from, $lane, at, $sources, {
                        usual[at] = u32::from($usual).wrapping_neg();
                    });
                    if $crate::isa::op::run::bits_of(&usual) == $crate::isa::op::run::EVERY {
                        $crate::isa::op::run::for_lanes!(chunk, from, $lane, at, $sources, {
                            let result: $r = $simple;
                            $crate::isa::op::lanes::Output::set(result, to, at);
                        });
                        return;
                    }
                )?
                $crate::isa::op::run::for_lanes!(chunk, from, $lane, at, $sources, {
                    let result: $r = $body;
                    $crate::isa::op::lanes::Output::set(result, to, at);
                });
            }),
        };
    )*};
}
pub(crate) use valu;
