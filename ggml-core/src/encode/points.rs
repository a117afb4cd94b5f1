//! Blocks that name points of a grid: IQ1, IQ2, IQ3.
//!
//! The numbers of a scale are tried with some scales; the one that loses least after a least-squares fit is kept, and these
//! are rounded to odd multiples of one F16. A point is the nearest to the codes that are nearest to each number, so that a
//! table has all answers. ggml weighs the numbers with an importance matrix, and so loses less of what matters.

use super::{extreme, inverse};
use crate::dtype::DType;
use crate::grids;
use half::f16;
use std::sync::OnceLock;

/// How a type names numbers.
struct Points {
    dtype: DType,
    /// What the codes of a number mean.
    levels: &'static [f32],
    /// Numbers of a point.
    size: usize,
    /// The index of the nearest point by the codes of its numbers.
    nearest: OnceLock<Vec<u16>>,
}

impl Points {
    const fn new(dtype: DType, levels: &'static [f32], size: usize) -> Points {
        Points { dtype, levels, size, nearest: OnceLock::new() }
    }

    fn grid(&self) -> &'static [u16] {
        grids::grid(self.dtype).unwrap_or_default()
    }

    /// Bits of a code.
    fn bits(&self) -> usize {
        16 / self.size
    }

    fn nearest(&self) -> &[u16] {
        self.nearest.get_or_init(|| {
            let codes = |point: u16| (0..self.size).map(move |i| self.code(point, i) as i32);
            let is_legal = |key: &u16| codes(*key).all(|c| c < self.levels.len() as i32);
            let mut table = vec![0; 1 << 16];
            for key in (0..=u16::MAX).filter(is_legal) {
                let distance = |point: u16| -> i32 {
                    let differ = key ^ point;
                    match self.size {
                        // Codes 0, 1, 2: 0 and 2 differ in the high bit alone, others in the low one.
                        8 => {
                            ((differ & 0x5555).count_ones()
                                + 4 * (differ >> 1 & !differ & 0x5555).count_ones())
                                as i32
                        }
                        _ => codes(key).zip(codes(point)).map(|(a, b)| (a - b).pow(2)).sum(),
                    }
                };
                let best = (0u16..).zip(self.grid()).min_by_key(|(_, point)| distance(**point));
                table[usize::from(key)] = best.map_or(0, |(index, _)| index);
            }
            table
        })
    }

    /// Code of number `i` of a point.
    fn code(&self, point: u16, i: usize) -> usize {
        usize::from(point >> (i * self.bits())) & ((1 << self.bits()) - 1)
    }

    /// The point for some numbers, as many as it has, and what they become.
    fn name(&self, x: &[f32], out: &mut [f32]) -> u16 {
        let key = x.iter().enumerate().fold(0, |key, (i, &x)| {
            // Levels are in order: those whose middle to the one before lies below the number.
            let code = self.levels.windows(2).filter(|pair| (pair[0] + pair[1]) / 2.0 < x).count();
            key | (code as u16) << (i * self.bits())
        });
        let index = self.nearest()[usize::from(key)];
        let point = self.grid()[usize::from(index)];
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.levels[self.code(point, i)];
        }
        index
    }
}

const IQ2: &[f32] = &[8.0, 25.0, 43.0];
static IQ2_XXS: Points = Points::new(DType::IQ2_XXS, IQ2, 8);
static IQ2_XS: Points = Points::new(DType::IQ2_XS, IQ2, 8);
static IQ2_S: Points = Points::new(DType::IQ2_S, IQ2, 8);
static IQ3_XXS: Points = Points::new(DType::IQ3_XXS, &[4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0], 4);
static IQ3_S: Points = Points::new(DType::IQ3_S, &[1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0], 4);
static IQ1: Points = Points::new(DType::IQ1_S, &[-1.0, 0.0, 1.0], 8);

/// How the numbers of eight get their signs or their shift.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    /// Eight signs.
    Signs,
    /// Seven signs; an even number of them is negative.
    EvenSigns,
    /// An eighth more, or less where the bit is 0x80, for all of a scale.
    Shift,
    /// The same for each eight.
    Shifts,
}

/// The numbers of a scale as they are named: 16 or 32.
#[derive(Clone, Copy, Default)]
struct Named {
    /// Indices of the points.
    indices: [u16; 8],
    /// Signs of eight numbers, the first in the lowest bit, or whether an eighth is taken off: all bits or none.
    extra: [u8; 4],
    /// What the numbers become, without their scale.
    values: [f32; 32],
}

/// A type: points, extras, numbers of a scale, largest multiple `s` of a scale `2 s + 1`, how much smaller than the F16
/// the unit of the scales is.
struct Format {
    points: &'static Points,
    extra: Extra,
    group: usize,
    top: u8,
    fraction: f32,
}

/// A block as it is named: bits of the F16, multiples of it, numbers of each scale.
struct Block {
    unit: f16,
    scales: Vec<u8>,
    groups: Vec<Named>,
}

impl Format {
    /// Eight numbers, divided by the scale already.
    fn eight(&self, x: &[f32], shift: u8, n: usize, named: &mut Named) {
        let values = &mut named.values[8 * n..8 * n + 8];
        let mut extra = shift;
        if matches!(self.extra, Extra::Signs | Extra::EvenSigns) {
            extra = x.iter().enumerate().fold(0, |bits, (i, x)| bits | u8::from(*x < 0.0) << i);
            if self.extra == Extra::EvenSigns && extra.count_ones() % 2 == 1 {
                let least = (1..8).fold(0, |least, i| if x[i].abs() < x[least].abs() { i } else { least });
                extra ^= 1 << least;
            }
        }
        let sign = |i: usize| if self.is_shifted() || extra >> i & 1 == 0 { 1.0 } else { -1.0 };
        let added = match (self.is_shifted(), shift) {
            (false, _) => 0.0,
            (true, 0) => 0.125,
            (true, _) => -0.125,
        };
        let mut bare = [0.0; 8];
        bare.iter_mut().zip(x).enumerate().for_each(|(i, (to, x))| *to = x * sign(i) - added);
        let size = self.points.size;
        for (i, (x, out)) in bare.chunks(size).zip(values.chunks_mut(size)).enumerate() {
            named.indices[8 / size * n + i] = self.points.name(x, out);
        }
        values.iter_mut().enumerate().for_each(|(i, value)| *value = (*value + added) * sign(i));
        named.extra[n] = extra;
    }

    fn is_shifted(&self) -> bool {
        matches!(self.extra, Extra::Shift | Extra::Shifts)
    }

    /// The numbers of a scale with all of some shifts, those that lose least.
    fn named(&self, x: &[f32], inverse: f32) -> Named {
        let mut scaled = [0.0; 32];
        scaled.iter_mut().zip(x).for_each(|(to, x)| *to = x * inverse);
        let scaled = &scaled[..x.len()];
        let with = |shifts: u8| {
            let mut named = Named::default();
            for (n, eight) in scaled.chunks_exact(8).enumerate() {
                self.eight(eight, if shifts >> n & 1 == 1 { u8::MAX } else { 0 }, n, &mut named);
            }
            named
        };
        let lost =
            |named: &Named| -> f32 { scaled.iter().zip(named.values).map(|(x, q)| (x - q).powi(2)).sum() };
        let shifts: &[u8] = match self.extra {
            Extra::Signs | Extra::EvenSigns => &[0],
            Extra::Shift => &[0, 15],
            Extra::Shifts => &[0, 1, 2, 3],
        };
        let all = shifts.iter().map(|&shifts| with(shifts));
        let best = all.map(|named| (lost(&named), named)).reduce(|a, b| if b.0 < a.0 { b } else { a });
        best.map_or_else(Named::default, |(_, named)| named)
    }

    /// The scale that loses least of some.
    fn fit(&self, x: &[f32]) -> f32 {
        let levels = self.points.levels;
        let (most, top) = (extreme(x).abs(), levels.last().copied().unwrap_or(1.0));
        let mut best = (0.0, most / top);
        // The largest magnitude somewhere about the highest level, or at one of the others.
        let near = (4..=11).map(|step| most / top * step as f32 / 10.0);
        for scale in near.chain(levels.iter().filter(|level| **level > 0.0).map(|level| most / level)) {
            let named = self.named(x, inverse(scale));
            let (q2, qx) =
                x.iter().zip(named.values).fold((0.0, 0.0), |(q2, qx), (&x, q)| (q2 + q * q, qx + q * x));
            // What the fit takes off the sum of squares.
            if qx > 0.0 && qx * qx / q2 > best.0 {
                best = (qx * qx / q2, qx / q2);
            }
        }
        best.1
    }

    fn block(&self, block: &[f32; 256]) -> Block {
        let fits: Vec<f32> = block.chunks_exact(self.group).map(|x| self.fit(x)).collect();
        let unit = extreme(&fits) / (2.0 * f32::from(self.top) + 1.0);
        let unit = f16::from_f32(unit / self.fraction);
        let step = unit.to_f32() * self.fraction;
        let multiple = |fit: &f32| (((fit * inverse(step) - 1.0) / 2.0).round() as u8).min(self.top);
        let scales: Vec<u8> = fits.iter().map(multiple).collect();
        let of = |(x, s): (&[f32], &u8)| self.named(x, inverse(step * (2.0 * f32::from(*s) + 1.0)));
        let groups = block.chunks_exact(self.group).zip(&scales).map(of).collect();
        Block { unit, scales, groups }
    }
}

impl Block {
    /// All indices in order.
    fn indices(&self, each: usize) -> impl Iterator<Item = u16> + '_ {
        self.groups.iter().flat_map(move |g| g.indices.into_iter().take(each))
    }

    /// The signs of all eights.
    fn signs(&self, each: usize) -> impl Iterator<Item = u8> + '_ {
        self.groups.iter().flat_map(move |g| g.extra.into_iter().take(each))
    }

    /// Scales in nibbles, the low ones first.
    fn nibbles(&self) -> impl Iterator<Item = u8> + '_ {
        self.scales.as_chunks().0.iter().map(|[a, b]| a | b << 4)
    }

    /// The words of 32 numbers: four times seven signs and the scale.
    fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().zip(&self.scales).map(|(g, s)| {
            let signs = g.extra.iter().enumerate();
            signs.fold(u32::from(*s) << 28, |word, (i, signs)| word | u32::from(signs & 127) << (7 * i))
        })
    }
}

/// Bits `shift` and up of some indices, `bits` of each, the first the lowest.
fn high(indices: &[u16], shift: u32, bits: usize) -> u8 {
    indices.iter().enumerate().fold(0, |byte, (i, index)| byte | ((index >> shift) as u8) << (bits * i))
}

/// For each 32: four indices and a word.
pub(super) fn iq2_xxs(block: &[f32; 256], out: &mut Vec<u8>) {
    let format = Format { points: &IQ2_XXS, extra: Extra::EvenSigns, group: 32, top: 15, fraction: 0.125 };
    let block = format.block(block);
    out.extend(block.unit.to_le_bytes());
    for (group, word) in block.groups.iter().zip(block.words()) {
        out.extend(group.indices[..4].iter().map(|&index| index as u8));
        out.extend(word.to_le_bytes());
    }
}

/// For each 8: nine bits of index and seven signs.
pub(super) fn iq2_xs(block: &[f32; 256], out: &mut Vec<u8>) {
    let format = Format { points: &IQ2_XS, extra: Extra::EvenSigns, group: 16, top: 15, fraction: 0.125 };
    let block = format.block(block);
    out.extend(block.unit.to_le_bytes());
    let words =
        block.indices(2).zip(block.signs(2)).map(|(index, signs)| index | u16::from(signs & 127) << 9);
    out.extend(words.flat_map(u16::to_le_bytes));
    out.extend(block.nibbles());
}

/// Low bytes of indices, signs, high bits of indices.
pub(super) fn iq2_s(block: &[f32; 256], out: &mut Vec<u8>) {
    let format = Format { points: &IQ2_S, extra: Extra::Signs, group: 16, top: 15, fraction: 0.125 };
    let block = format.block(block);
    let indices: Vec<u16> = block.indices(2).collect();
    out.extend(block.unit.to_le_bytes());
    out.extend(indices.iter().map(|&index| index as u8));
    out.extend(block.signs(2));
    out.extend(indices.chunks(4).map(|four| high(four, 8, 2)));
    out.extend(block.nibbles());
}

/// Indices, words.
pub(super) fn iq3_xxs(block: &[f32; 256], out: &mut Vec<u8>) {
    let format = Format { points: &IQ3_XXS, extra: Extra::EvenSigns, group: 32, top: 15, fraction: 0.25 };
    let block = format.block(block);
    out.extend(block.unit.to_le_bytes());
    out.extend(block.indices(8).map(|index| index as u8));
    out.extend(block.words().flat_map(u32::to_le_bytes));
}

/// Low bytes of indices, their ninth bits, signs.
pub(super) fn iq3_s(block: &[f32; 256], out: &mut Vec<u8>) {
    let format = Format { points: &IQ3_S, extra: Extra::Signs, group: 32, top: 15, fraction: 1.0 };
    let block = format.block(block);
    let indices: Vec<u16> = block.indices(8).collect();
    out.extend(block.unit.to_le_bytes());
    out.extend(indices.iter().map(|&index| index as u8));
    out.extend(indices.chunks(8).map(|eight| high(eight, 8, 1)));
    out.extend(block.signs(4));
    out.extend(block.nibbles());
}

/// Low bytes of indices; for each 32 a word of their high bits, the scale and the shift.
pub(super) fn iq1_s(block: &[f32; 256], out: &mut Vec<u8>) {
    let block = Format { points: &IQ1, extra: Extra::Shift, group: 32, top: 7, fraction: 1.0 }.block(block);
    out.extend(block.unit.to_le_bytes());
    out.extend(block.indices(4).map(|index| index as u8));
    for (group, scale) in block.groups.iter().zip(&block.scales) {
        let top = u16::from(*scale) << 12 | u16::from(group.extra[0] & 1) << 15;
        let indices = group.indices[..4].iter().enumerate();
        let word = indices.fold(top, |word, (i, index)| word | index >> 8 << (3 * i));
        out.extend(word.to_le_bytes());
    }
}

/// Low bytes of indices; nibbles of their high bits and the shift; words of scales, with a nibble of the F16 on top.
pub(super) fn iq1_m(block: &[f32; 256], out: &mut Vec<u8>) {
    let block = Format { points: &IQ1, extra: Extra::Shifts, group: 16, top: 7, fraction: 1.0 }.block(block);
    out.extend(block.indices(2).map(|index| index as u8));
    for group in &block.groups {
        let nibble = |n: usize| (group.indices[n] >> 8) as u8 | group.extra[n] & 8;
        out.push(nibble(0) | nibble(1) << 4);
    }
    for (n, four) in block.scales.chunks_exact(4).enumerate() {
        let top = block.unit.to_bits() >> (4 * n) << 12;
        let scales = four.iter().enumerate();
        let word = scales.fold(top, |word, (i, scale)| word | u16::from(*scale) << (3 * i));
        out.extend(word.to_le_bytes());
    }
}
