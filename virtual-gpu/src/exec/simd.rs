//! The loop that executes programs, compiled twice: for any host, and for one with AVX2 and FMA. Operations are compiled
//! in the same two variants.

#![allow(unsafe_code)]

use crate::isa::Kind;
#[cfg(target_arch = "x86_64")]
use crate::isa::moves::GROUPS;
use crate::isa::moves::Groups;
use crate::isa::op::lanes::LANES;
pub(crate) use crate::isa::op::run::Host;

impl Host {
    /// Does work with all instructions that the host has. What the work calls is compiled for them only if it is
    /// inline in [`Work::run`].
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide() {
            // SAFETY: the processor has the features that the function is compiled for.
            return unsafe { run_wide(work) };
        }
        work.run()
    }

    /// Replaces denormals with zeros.
    #[inline(always)]
    pub(crate) fn flush(self, kind: Kind, lo: &mut [u32; LANES], hi: &mut [u32; LANES]) {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide() {
            // SAFETY: as in `run`.
            unsafe { flush_wide(kind, lo, hi) };
            return;
        }
        flush(kind, lo, hi);
    }
}

impl Host {
    /// Moves lanes in vectors of eight.
    #[inline(always)]
    pub(super) fn move_groups(self, groups: &Groups, before: &[u32; LANES], after: &mut [u32; LANES]) {
        #[cfg(target_arch = "x86_64")]
        if self.is_wide() {
            // SAFETY: as in `run`.
            unsafe { move_groups_wide(groups, before, after) };
            return;
        }
        for lane in 0..LANES {
            let from = |which: usize| {
                let first = 8 * usize::from(groups.from[lane / 8][which]);
                before[(first + groups.index[lane] as usize) % LANES] & groups.masks[which][lane]
            };
            after[lane] = from(0) | from(1);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn move_groups_wide(groups: &Groups, before: &[u32; LANES], after: &mut [u32; LANES]) {
    use std::arch::x86_64::{
        _mm256_and_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_permutevar8x32_epi32,
        _mm256_setzero_si256, _mm256_storeu_si256,
    };
    // No closures: they would not be compiled for these instructions.
    let (before, index) = (before.as_chunks::<8>().0, groups.index.as_chunks::<8>().0);
    for (n, after) in after.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: eight words are there.
        let index = unsafe { _mm256_loadu_si256(index[n].as_ptr().cast()) };
        let mut moved = _mm256_setzero_si256();
        for which in 0..2 {
            let from = &before[usize::from(groups.from[n][which]) % GROUPS];
            let mask = &groups.masks[which].as_chunks::<8>().0[n];
            // SAFETY: as before.
            let from = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
            // SAFETY: as before.
            let mask = unsafe { _mm256_loadu_si256(mask.as_ptr().cast()) };
            let part = _mm256_and_si256(_mm256_permutevar8x32_epi32(from, index), mask);
            moved = _mm256_or_si256(moved, part);
        }
        // SAFETY: as before.
        unsafe { _mm256_storeu_si256(after.as_mut_ptr().cast(), moved) };
    }
}

/// Work that is compiled for several hosts: a closure whose body is always inline.
pub(crate) trait Work {
    type Output;
    fn run(self) -> Self::Output;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn run_wide<W: Work>(work: W) -> W::Output {
    work.run()
}

/// Returns word `i` of four lanes for each `i`.
#[inline(always)]
pub(super) fn transposed<const N: usize>(lanes: [[u32; N]; 4]) -> [[u32; 4]; N] {
    #[cfg(target_arch = "x86_64")]
    if N == 4 {
        return transposed_by_vectors(&lanes);
    }
    std::array::from_fn(|i| lanes.map(|words| words[i]))
}

/// [`transposed`] for four words, in eight instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transposed_by_vectors<const N: usize>(lanes: &[[u32; N]; 4]) -> [[u32; 4]; N] {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32,
        _mm_unpacklo_epi64,
    };
    let mut transposed = [[0; 4]; N];
    if N != 4 {
        return transposed;
    }
    // SAFETY: each of the four arrays has four words, and all such processors have SSE2.
    let [a, b, c, d] = lanes.each_ref().map(|words| unsafe { _mm_loadu_si128(words.as_ptr().cast()) });
    // SAFETY: all such processors have SSE2.
    let rows = unsafe {
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (high_ab, high_cd) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        [
            _mm_unpacklo_epi64(ab, cd),
            _mm_unpackhi_epi64(ab, cd),
            _mm_unpacklo_epi64(high_ab, high_cd),
            _mm_unpackhi_epi64(high_ab, high_cd),
        ]
    };
    for (to, row) in transposed.iter_mut().zip(rows) {
        // SAFETY: there are four words.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), row) };
    }
    transposed
}

/// Replaces denormals with zeros of the same sign. One loop per kind, so that the compiler vectorises it.
#[inline(always)]
fn flush(kind: Kind, lo: &mut [u32; LANES], hi: &mut [u32; LANES]) {
    let zero = |x: u32, exponent: u32, number: u32| if x & exponent == 0 { x & !number } else { x };
    match kind {
        Kind::F32 => lo.iter_mut().for_each(|x| *x = zero(*x, 0x7f80_0000, 0x7fff_ffff)),
        Kind::PkF32 => {
            lo.iter_mut().chain(hi).for_each(|x| *x = zero(*x, 0x7f80_0000, 0x7fff_ffff));
        }
        Kind::F16 => lo.iter_mut().for_each(|x| *x = zero(*x, 0x7c00, 0x7fff)),
        Kind::PkF16 => {
            lo.iter_mut().for_each(|x| *x = zero(zero(*x, 0x7c00, 0x7fff), 0x7c00_0000, 0x7fff_0000));
        }
        Kind::F64 => {
            for (lo, hi) in lo.iter_mut().zip(hi) {
                *lo = if *hi & 0x7ff0_0000 == 0 { 0 } else { *lo };
                *hi = zero(*hi, 0x7ff0_0000, 0x7fff_ffff);
            }
        }
        _ => {}
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn flush_wide(kind: Kind, lo: &mut [u32; LANES], hi: &mut [u32; LANES]) {
    flush(kind, lo, hi);
}
