//! Common code of AVX2 and AVX-512: blocks of eight rows, rearranged so that lanes are rows.

use super::{PanelShape, ROWS};
use crate::cpu::dot::block::{Fields, Group, Quant, Unit, power};
use crate::cpu::dot::column::Rounded;
use crate::cpu::simd::avx2::prefetch;
use std::arch::x86_64::*;

/// Loads 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(x: &[u8; 32]) -> __m256i {
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// Loads 16 bytes into both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn load_twice(x: &[u8; 16]) -> __m256i {
    // SAFETY: the array is as long as the access.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(x.as_ptr().cast()) })
}

/// Extracts 32 nibbles from 16 bytes, the low ones first.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(q: &[u8; 16]) -> __m256i {
    // SAFETY: the array is as long as the access.
    let q = unsafe { _mm_loadu_si128(q.as_ptr().cast()) };
    _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(q), q), _mm256_set1_epi8(15))
}

/// Returns 16 in each byte whose bit is set: every byte receives the byte that contains its bit and masks
/// that bit.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteens(bits: u32) -> __m256i {
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), spread);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own), own);
    _mm256_and_si256(set, _mm256_set1_epi8(16))
}

/// Extracts bit fields of bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn fields(f: Fields<'_>) -> __m256i {
    let mut numbers = field(load(f.low), f.low_shift, f.low_bits);
    if f.high_bits > 0 {
        numbers = above(numbers, field(load(f.high), f.high_shift, f.high_bits), f.low_bits);
    }
    if f.excess == 0 { numbers } else { _mm256_sub_epi8(numbers, _mm256_set1_epi8(f.excess)) }
}

/// Returns the values of a group in the order of the activations, with offset [`Quant::OFFSET`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn numbers<Q: Quant>(block: &Q, g: usize) -> __m256i {
    match block.group(g) {
        Group::Bytes(q) => load(bytemuck::cast_ref(q)),
        Group::Nibbles(q) => nibbles(q),
        Group::Five(q, high) => _mm256_or_si256(nibbles(q), sixteens(high)),
        Group::Named(q, table) => _mm256_shuffle_epi8(load_twice(bytemuck::cast_ref(table)), nibbles(&q)),
        Group::Made(q) => load(bytemuck::cast_ref(&q)),
        Group::Fields(f) => fields(f),
    }
}

/// Loads 16 bytes of each of two rows.
#[inline]
#[target_feature(enable = "avx2")]
fn joined(a: &[u8], b: &[u8]) -> __m256i {
    let (Some(a), Some(b)) = (a.first_chunk::<16>(), b.first_chunk::<16>()) else {
        return _mm256_setzero_si256();
    };
    // SAFETY: the arrays are as long as the accesses.
    unsafe {
        let a = _mm256_castsi128_si256(_mm_loadu_si128(a.as_ptr().cast()));
        _mm256_inserti128_si256::<1>(a, _mm_loadu_si128(b.as_ptr().cast()))
    }
}

/// Returns the values of a group of two rows as [`numbers`] does: those of the first half of the group of both rows,
/// and those of the last half. Sums over lanes of such vectors need half of the steps.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn numbers_of_two<Q: Quant>(a: &Q, b: &Q, g: usize) -> [__m256i; 2] {
    match (a.group(g), b.group(g)) {
        (Group::Bytes(a), Group::Bytes(b)) => {
            let (a, b): (&[u8; 32], &[u8; 32]) = (bytemuck::cast_ref(a), bytemuck::cast_ref(b));
            [joined(a, b), joined(&a[16..], &b[16..])]
        }
        (Group::Nibbles(a), Group::Nibbles(b)) => nibbles_of_two(a, b),
        (Group::Five(a, high), Group::Five(b, other)) => {
            let [first, last] = nibbles_of_two(a, b);
            let bits = [high & 0xffff | other << 16, high >> 16 | other & 0xffff_0000];
            [_mm256_or_si256(first, sixteens(bits[0])), _mm256_or_si256(last, sixteens(bits[1]))]
        }
        (Group::Named(a, table), Group::Named(b, _)) => {
            let table = load_twice(bytemuck::cast_ref(table));
            let [first, last] = nibbles_of_two(&a, &b);
            [_mm256_shuffle_epi8(table, first), _mm256_shuffle_epi8(table, last)]
        }
        (Group::Fields(a), Group::Fields(b)) => [fields_of_two(a, b, 0), fields_of_two(a, b, 16)],
        (a, b) => {
            let (a, b) = (a.numbers(), b.numbers());
            let (a, b): (&[u8], &[u8]) = (bytemuck::cast_slice(&a), bytemuck::cast_slice(&b));
            [joined(a, b), joined(&a[16..], &b[16..])]
        }
    }
}

/// Extracts the nibbles of 16 bytes of each of two rows: the low ones, and the high ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn nibbles_of_two(a: &[u8; 16], b: &[u8; 16]) -> [__m256i; 2] {
    let (both, low) = (joined(a, b), _mm256_set1_epi8(15));
    [_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16::<4>(both), low)]
}

/// Extracts bit fields of 16 bytes of each of two rows, from byte `first` on.
#[inline]
#[target_feature(enable = "avx2")]
fn fields_of_two(a: Fields<'_>, b: Fields<'_>, first: usize) -> __m256i {
    let mut numbers = field(joined(&a.low[first..], &b.low[first..]), a.low_shift, a.low_bits);
    if a.high_bits > 0 {
        let high = field(joined(&a.high[first..], &b.high[first..]), a.high_shift, a.high_bits);
        numbers = above(numbers, high, a.low_bits);
    }
    if a.excess == 0 { numbers } else { _mm256_sub_epi8(numbers, _mm256_set1_epi8(a.excess)) }
}

/// Extracts a bit field of bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn field(bytes: __m256i, shift: u32, bits: u32) -> __m256i {
    let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift as i32));
    _mm256_and_si256(shifted, _mm256_set1_epi8((1 << bits) - 1))
}

/// Places a field above one of `bits` bits; it fits into its byte.
#[inline]
#[target_feature(enable = "avx2")]
fn above(low: __m256i, high: __m256i, bits: u32) -> __m256i {
    _mm256_or_si256(low, _mm256_sll_epi16(high, _mm_cvtsi32_si128(bits as i32)))
}

/// Loads 16 values of an activation's group into both halves: the first, and the last ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn halves_twice(q: &[i8; 32]) -> [__m256i; 2] {
    let halves: &[[u8; 16]; 2] = bytemuck::cast_ref(q);
    [load_twice(&halves[0]), load_twice(&halves[1])]
}

/// Adds the four lanes of each half of four vectors: those of the first halves, then those of the last halves.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_halves4(v: [__m256i; 4]) -> __m256i {
    _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]))
}

/// Returns the values of a group without the offset.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn signed<Q: Quant>(block: &Q, g: usize) -> __m256i {
    match Q::OFFSET {
        None | Some(0) => numbers(block, g),
        Some(offset) => _mm256_sub_epi8(numbers(block, g), _mm256_set1_epi8(offset as i8)),
    }
}

/// Returns the values of a group without the offset, as an array.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn signed_bytes<Q: Quant>(block: &Q, g: usize) -> [i8; 32] {
    let mut out = [0; 32];
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), signed(block, g)) };
    out
}

/// Adds the first four lanes of each of eight vectors, and the last four: one lane for each vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn half_sums8(v: [__m256i; 8]) -> [__m256i; 2] {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)]
}

/// Adds the lanes of each of eight vectors: one lane for each vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum8(v: [__m256i; 8]) -> __m256i {
    let [first, last] = half_sums8(v);
    _mm256_add_epi32(first, last)
}

/// Returns a block of each of eight rows. Written out, because the compiler would not inline a closure or
/// unroll a loop.
#[inline(always)]
pub(super) fn blocks8<'a, Q>(rows: &[&'a [Q]; ROWS], b: usize) -> [&'a Q; ROWS] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    [&r0[b], &r1[b], &r2[b], &r3[b], &r4[b], &r5[b], &r6[b], &r7[b]]
}

/// Prefetches a part of the eight rows after those that are multiplied, which begin `ahead` bytes after the first of
/// these: as much as a block of eight rows takes. `first` is block `b` of the first row. The lines are asked for in the
/// order of their addresses, which the hardware's prefetcher follows; eight rows at once it does not.
#[inline(always)]
pub(super) fn prefetch8<Q>(first: &Q, b: usize, ahead: usize) {
    let bytes = ROWS * size_of::<Q>();
    let at = ahead + b * (bytes - size_of::<Q>());
    for line in 0..bytes.div_ceil(64) {
        prefetch(first, at + 64 * line);
    }
}

/// Converts eight binary16 values.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves8(bits: [u16; 8]) -> __m256 {
    let [a, b, c, d, e, f, g, h] = bits.map(u16::cast_signed);
    _mm256_cvtph_ps(_mm_set_epi16(h, g, f, e, d, c, b, a))
}

/// Returns the first four bytes of eight blocks. Loads and blends need no shuffles, which are scarce.
#[inline]
#[target_feature(enable = "avx2")]
fn words8<Q: Quant>(blocks: [&Q; 8]) -> __m256i {
    let mut words = [_mm256_setzero_si256(); 8];
    for r in 0..8 {
        if let Some(word) = bytemuck::bytes_of(blocks[r]).first_chunk() {
            words[r] = _mm256_set1_epi32(i32::from_le_bytes(*word));
        }
    }
    let pair = [
        _mm256_blend_epi32::<0b0000_0010>(words[0], words[1]),
        _mm256_blend_epi32::<0b0000_1000>(words[2], words[3]),
        _mm256_blend_epi32::<0b0010_0000>(words[4], words[5]),
        _mm256_blend_epi32::<0b1000_0000>(words[6], words[7]),
    ];
    let (low, high) = (
        _mm256_blend_epi32::<0b0000_1100>(pair[0], pair[1]),
        _mm256_blend_epi32::<0b1100_0000>(pair[2], pair[3]),
    );
    _mm256_blend_epi32::<0b1111_0000>(low, high)
}

/// Returns the units of eight blocks that begin with them, and the units of their minima.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn leading_units8<Q: Quant>(blocks: [&Q; 8]) -> [__m256; 2] {
    let words = words8(blocks);
    let (low, high) = (_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32::<16>(words));
    let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
    let units = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    let minima = if Q::MINIMA > 0 { _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(both)) } else { units };
    [units, minima]
}

/// Returns the units of eight blocks.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn units8<Q: Quant>(blocks: [&Q; 8]) -> __m256 {
    match Q::UNIT {
        Unit::Half if Q::FRACTION != 1.0 => {
            _mm256_mul_ps(halves8(blocks.map(Q::unit)), _mm256_set1_ps(Q::FRACTION))
        }
        Unit::Half => halves8(blocks.map(Q::unit)),
        Unit::Power => {
            let [a, b, c, d, e, f, g, h] = blocks.map(|q| power(q.unit() as u8));
            _mm256_set_ps(h, g, f, e, d, c, b, a)
        }
    }
}

/// Multiplies eight small integers of each of eight blocks by the factor of the block's lane. Returns a
/// vector for each of the eight integers.
#[inline]
#[target_feature(enable = "avx2")]
fn times8(factor: __m256, rows: [[i8; 8]; 8]) -> [__m256; 8] {
    let mut r = [_mm_setzero_si128(); 8];
    for i in 0..8 {
        r[i] = _mm_cvtsi64_si128(i64::from_le_bytes(bytemuck::cast(rows[i])));
    }
    // Interleave the bytes of two rows, then of four, then of all.
    let (a, b) = (_mm_unpacklo_epi8(r[0], r[1]), _mm_unpacklo_epi8(r[2], r[3]));
    let (c, d) = (_mm_unpacklo_epi8(r[4], r[5]), _mm_unpacklo_epi8(r[6], r[7]));
    let (ab, cd) = (_mm_unpacklo_epi16(a, b), _mm_unpacklo_epi16(c, d));
    let (ab_high, cd_high) = (_mm_unpackhi_epi16(a, b), _mm_unpackhi_epi16(c, d));
    let pairs = [
        _mm_unpacklo_epi32(ab, cd),
        _mm_unpackhi_epi32(ab, cd),
        _mm_unpacklo_epi32(ab_high, cd_high),
        _mm_unpackhi_epi32(ab_high, cd_high),
    ];
    let mut out = [factor; 8];
    for i in 0..4 {
        let both = [pairs[i], _mm_unpackhi_epi64(pairs[i], pairs[i])];
        for n in 0..2 {
            out[2 * i + n] = _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(both[n])));
        }
    }
    out
}

/// Scales and minima of the groups of eight blocks, one lane for each block.
pub(super) struct Factors {
    /// Scales of the groups (the unit for types with half scales).
    scales: [__m256; 8],
    /// Negated minima of the groups or of their halves.
    minima: [[__m256; 8]; 2],
}

impl Factors {
    /// Returns the scale and the minima of a group.
    #[inline(always)]
    pub(super) fn of(&self, g: usize) -> [__m256; 3] {
        [self.scales[g], self.minima[0][g], self.minima[1][g]]
    }
}

/// Returns the factors of eight blocks.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn factors8<Q: Quant>(blocks: [&Q; 8]) -> Factors {
    if Q::UNIT_LEADS {
        let [units, minima] = leading_units8(blocks);
        return Factors { scales: [units; 8], minima: [[minima; 8]; 2] };
    }
    let units = units8(blocks);
    let mut factors = Factors { scales: [units; 8], minima: [[_mm256_setzero_ps(); 8]; 2] };
    if Q::GROUPS > 1 && !Q::HALVES {
        factors.scales = times8(units, blocks.map(Q::scales));
    }
    if Q::MINIMA > 0 {
        let units = halves8(blocks.map(Q::negative_unit));
        for half in 0..Q::MINIMA {
            factors.minima[half] = match Q::GROUPS {
                1 => [units; 8],
                _ => times8(units, blocks.map(|q| q.minima(half))),
            };
        }
    }
    factors
}

/// Returns the number of scales and minima of a row and group.
pub(super) const fn factors_of<Q: Quant>() -> usize {
    1 + Q::MINIMA
}

/// Writes the factors of the groups of eight blocks into those of a panel of `shape`, from row `first` on.
/// Further factors of a group follow them.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn put_factors<Q: Quant>(from: &Factors, shape: PanelShape, first: usize, panel: &mut [f32]) {
    for (g, group) in panel.chunks_exact_mut(shape.rows * shape.factors).enumerate() {
        let parts = group.chunks_exact_mut(shape.rows).take(factors_of::<Q>());
        for (to, factor) in parts.zip(from.of(g)) {
            to[first..first + 8].copy_from_slice(&to_array(factor));
        }
    }
}

/// Loads the factors of eight rows, from row `first` on, from those of a group of a panel with `rows` rows.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_factors(group: &[f32], rows: usize, first: usize) -> [__m256; 3] {
    let mut out = [_mm256_setzero_ps(); 3];
    for (out, factors) in out.iter_mut().zip(group.chunks_exact(rows)) {
        if let Some(x) = factors[first..].first_chunk::<8>() {
            // SAFETY: the array is as long as the access.
            *out = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        }
    }
    out
}

/// Adds a group to the totals of eight rows: the scaled sums of its products, and the minima times the sums
/// of its activations. `count` is the number of minima, a constant where it is called.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_group(
    count: usize,
    mut total: __m256,
    sums: __m256,
    [scale, minima @ ..]: [__m256; 3],
    x: &Rounded,
) -> __m256 {
    let scale = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale));
    total = _mm256_add_ps(total, _mm256_mul_ps(scale, sums));
    for (minimum, x) in minima.into_iter().zip(x.weighed()).take(count) {
        total = _mm256_add_ps(total, _mm256_mul_ps(minimum, _mm256_set1_ps(x)));
    }
    total
}

/// Converts a vector to an array.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_array(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

/// Converts an array to a vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn from_array(x: [f32; 8]) -> __m256 {
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

/// Transposes an 8 x 8 matrix of 32-bit integers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose8(r: [__m256i; 8]) -> [__m256i; 8] {
    let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let quad = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) =
        (pair(r[0], r[1]), pair(r[2], r[3]), pair(r[4], r[5]), pair(r[6], r[7]));
    let ((e0, e1), (e2, e3)) = (quad(a0, b0), quad(a1, b1));
    let ((f0, f1), (f2, f3)) = (quad(c0, d0), quad(c1, d1));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [
        low(e0, f0),
        low(e1, f1),
        low(e2, f2),
        low(e3, f3),
        high(e0, f0),
        high(e1, f1),
        high(e2, f2),
        high(e3, f3),
    ]
}
