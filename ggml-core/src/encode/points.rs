//! Encoders of the types whose codes are indices of grid points: IQ1, IQ2, IQ3.
//!
//! Several scales are tried for each group of elements that share a scale. The one with the least error after
//! a least-squares fit is used, and the scales are rounded to odd multiples of one F16. A search tries more
//! scales, weights errors as ggml does, and uses the points nearest by these weights. It then fits the F16 to
//! all elements and chooses multiples and points again.

use super::lattice::Lattice;
use super::{BlockMethod, extreme, inverse, mean_square, weights};
use crate::dtype::DType;
use half::f16;
use std::ops::Range;

const IQ2: &[f32] = &[8.0, 25.0, 43.0];
static IQ2_XXS: Lattice = Lattice::new(DType::IQ2_XXS, IQ2, 8);
static IQ2_XS: Lattice = Lattice::new(DType::IQ2_XS, IQ2, 8);
static IQ2_S: Lattice = Lattice::new(DType::IQ2_S, IQ2, 8);
static IQ3_XXS: Lattice = Lattice::new(DType::IQ3_XXS, &[4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0], 4);
static IQ3_S: Lattice = Lattice::new(DType::IQ3_S, &[1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0], 4);
static IQ1: Lattice = Lattice::new(DType::IQ1_S, &[-1.0, 0.0, 1.0], 8);

/// All point sets.
#[cfg(test)]
pub(super) static ALL: [&Lattice; 6] = [&IQ2_XXS, &IQ2_XS, &IQ2_S, &IQ3_XXS, &IQ3_S, &IQ1];

/// Meaning of the extra bits of eight elements: signs or a shift.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    /// Eight signs.
    Signs,
    /// Seven signs; the number of negative elements is even.
    EvenSigns,
    /// 1/8 is added to all elements of a scale, or subtracted if the shift bit is set.
    Shift,
    /// As `Shift`, but with one bit for each eight elements.
    Shifts,
}

/// Encoded elements of a scale: 16 or 32.
#[derive(Clone, Copy, Default)]
struct Encoded {
    /// Indices of the points.
    indices: [u16; 8],
    /// Signs of eight elements, the first in the lowest bit, or the shift: all bits set if 1/8 is subtracted,
    /// else none.
    extra: [u8; 4],
    /// Decoded elements, without their scale.
    values: [f32; 32],
}

impl Encoded {
    /// Replaces each group of eight whose bit is set by that of `other`. For types with points of eight.
    fn or(&self, other: &Encoded, bits: u8) -> Encoded {
        let mut mixed = *self;
        for n in (0..4).filter(|n| bits >> n & 1 == 1) {
            (mixed.indices[n], mixed.extra[n]) = (other.indices[n], other.extra[n]);
            mixed.values[8 * n..8 * n + 8].copy_from_slice(&other.values[8 * n..8 * n + 8]);
        }
        mixed
    }
}

/// A type: points, meaning of the extra bits, elements of a scale, the largest `s` of a scale `2 s + 1`, and
/// the unit of the scales as a fraction of the F16.
struct Format {
    points: &'static Lattice,
    extra: Extra,
    group: usize,
    top: u8,
    fraction: f32,
    /// Multiple of the block's mean square in the error weights with importance.
    squares: f32,
}

/// An encoded block: the F16, its multiples, and the elements of each scale.
struct Block {
    unit: f16,
    scales: Vec<u8>,
    groups: Vec<Encoded>,
}

/// Elements, the weights of their errors, and whether the point search uses the weights. With equal weights
/// the table has the answer.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    x: &'a [f32],
    weights: &'a [f32],
    exact: bool,
}

impl<'a> Numbers<'a> {
    fn part(self, range: Range<usize>) -> Numbers<'a> {
        Numbers { x: &self.x[range.clone()], weights: &self.weights[range], ..self }
    }

    /// Returns the weighted sums of squares of the decoded values and of their products with the elements.
    fn sums(self, values: &[f32]) -> (f32, f32) {
        let (mut q2, mut qx) = (0.0, 0.0);
        for ((x, weight), q) in self.x.iter().zip(self.weights).zip(values) {
            q2 += weight * q * q;
            qx += weight * q * x;
        }
        (q2, qx)
    }

    /// Returns the weighted squared error.
    fn lost(self, scale: f32, values: &[f32]) -> f32 {
        let numbers = self.x.iter().zip(self.weights).zip(values);
        numbers.map(|((x, weight), q)| weight * (x - scale * q).powi(2)).sum()
    }
}

/// Number of times that a scale is refitted to its points.
const REFITS: usize = 2;

impl Format {
    const IQ2_XXS: Format = Format {
        points: &IQ2_XXS,
        extra: Extra::EvenSigns,
        group: 32,
        top: 15,
        fraction: 0.125,
        squares: 1.0,
    };
    const IQ2_XS: Format = Format {
        points: &IQ2_XS,
        extra: Extra::EvenSigns,
        group: 16,
        top: 15,
        fraction: 0.125,
        squares: 1.0,
    };
    const IQ2_S: Format =
        Format { points: &IQ2_S, extra: Extra::Signs, group: 16, top: 15, fraction: 0.125, squares: 2.0 };
    const IQ3_XXS: Format = Format {
        points: &IQ3_XXS,
        extra: Extra::EvenSigns,
        group: 32,
        top: 15,
        fraction: 0.25,
        squares: 2.0,
    };
    const IQ3_S: Format =
        Format { points: &IQ3_S, extra: Extra::Signs, group: 32, top: 15, fraction: 1.0, squares: 2.0 };
    const IQ1_S: Format =
        Format { points: &IQ1, extra: Extra::Shift, group: 32, top: 7, fraction: 1.0, squares: 2.0 };
    const IQ1_M: Format =
        Format { points: &IQ1, extra: Extra::Shifts, group: 16, top: 7, fraction: 1.0, squares: 2.0 };

    /// Encodes eight elements that are already divided by the scale.
    fn eight(&self, numbers: Numbers<'_>, shift: u8, n: usize, encoded: &mut Encoded) {
        let x = numbers.x;
        let values = &mut encoded.values[8 * n..8 * n + 8];
        let mut extra = shift;
        if matches!(self.extra, Extra::Signs | Extra::EvenSigns) {
            extra = x.iter().enumerate().fold(0, |bits, (i, x)| bits | u8::from(*x < 0.0) << i);
            if self.extra == Extra::EvenSigns && extra.count_ones() % 2 == 1 {
                // Flips the sign with the smallest error.
                let cost = |i: usize| f64::from(numbers.weights[i]) * f64::from(x[i]).powi(2);
                let least = (1..8).fold(0, |least, i| if cost(i) < cost(least) { i } else { least });
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
            let weights = numbers.exact.then(|| &numbers.weights[i * size..(i + 1) * size]);
            encoded.indices[8 / size * n + i] = self.points.nearest_to(x, weights, out);
        }
        values.iter_mut().enumerate().for_each(|(i, value)| *value = (*value + added) * sign(i));
        encoded.extra[n] = extra;
    }

    fn is_shifted(&self) -> bool {
        matches!(self.extra, Extra::Shift | Extra::Shifts)
    }

    /// Encodes the elements of a scale; for types with shifts, with the combination of shifts of least error.
    fn encode(&self, numbers: Numbers<'_>, inverse: f32) -> Encoded {
        let mut scaled = [0.0; 32];
        scaled.iter_mut().zip(numbers.x).for_each(|(to, x)| *to = x * inverse);
        let scaled = Numbers { x: &scaled[..numbers.x.len()], ..numbers };
        let with = |shift: u8| {
            let mut encoded = Encoded::default();
            for n in 0..scaled.x.len() / 8 {
                self.eight(scaled.part(8 * n..8 * n + 8), shift, n, &mut encoded);
            }
            encoded
        };
        let shifts: &[u8] = match self.extra {
            Extra::Signs | Extra::EvenSigns => return with(0),
            Extra::Shift => &[0, 15],
            Extra::Shifts => &[0, 1, 2, 3],
        };
        let (more, less) = (with(0), with(u8::MAX));
        let all = shifts.iter().map(|shifts| more.or(&less, *shifts));
        let best = all.map(|encoded| (scaled.lost(1.0, &encoded.values), encoded));
        best.reduce(|a, b| if b.0 < a.0 { b } else { a }).map_or(more, |(_, encoded)| encoded)
    }

    /// Returns the scale of least error among several.
    fn fit(&self, numbers: Numbers<'_>, searched: bool) -> f32 {
        let levels = self.points.levels;
        let (most, top) = (extreme(numbers.x).abs(), levels.last().copied().unwrap_or(1.0));
        let mut best = (0.0, most / top);
        let attempt = |best: &mut (f32, f32), scale: f32, exact: bool| {
            let (q2, qx) = numbers.sums(&self.encode(Numbers { exact, ..numbers }, inverse(scale)).values);
            // Reduction of the sum of squares by the fit.
            if qx > 0.0 && qx * qx / q2 > best.0 {
                *best = (qx * qx / q2, qx / q2);
            }
        };
        // Map the largest magnitude near the highest level, or to one of the other levels.
        let (steps, parts) = if searched { (5..=25, 20.0) } else { (4..=11, 10.0) };
        let near = steps.map(|step| most / top * step as f32 / parts);
        for scale in near.chain(levels.iter().filter(|level| **level > 0.0).map(|level| most / level)) {
            attempt(&mut best, scale, false);
        }
        if searched {
            for _ in 0..REFITS {
                let scale = best.1;
                attempt(&mut best, scale, true);
            }
        }
        best.1
    }

    fn block(&self, block: &[f32; 256], method: BlockMethod<'_>) -> Block {
        let searched = !matches!(method, BlockMethod::Quick);
        let square = Some(self.squares * mean_square(block));
        let weights = match method {
            BlockMethod::Quick => [1.0; 256],
            BlockMethod::Search => weights(block, &[1.0; 256], square),
            BlockMethod::Weighted(importance, _) => weights(block, importance, square),
        };
        let all = Numbers { x: block, weights: &weights, exact: searched };
        let groups = || (0..256 / self.group).map(|i| all.part(i * self.group..(i + 1) * self.group));
        let fits: Vec<f32> = groups().map(|numbers| self.fit(numbers, searched)).collect();
        let unit = extreme(&fits) / (2.0 * f32::from(self.top) + 1.0);
        let first = self.rounded(&fits, f16::from_f32(unit / self.fraction), groups());
        if !searched {
            return first;
        }
        (0..REFITS).fold(first, |best, _| self.refitted(best, groups()))
    }

    /// Returns the scale of multiple `s`.
    fn scale(&self, unit: f16, s: u8) -> f32 {
        unit.to_f32() * self.fraction * (2.0 * f32::from(s) + 1.0)
    }

    /// Encodes a block with the multiples nearest to the given scales.
    fn rounded<'a>(&self, fits: &[f32], unit: f16, groups: impl Iterator<Item = Numbers<'a>>) -> Block {
        let step = unit.to_f32() * self.fraction;
        let multiple = |fit: &f32| (((fit * inverse(step) - 1.0) / 2.0).round() as u8).min(self.top);
        let scales: Vec<u8> = fits.iter().map(multiple).collect();
        let encoded =
            groups.zip(&scales).map(|(numbers, s)| self.encode(numbers, inverse(self.scale(unit, *s))));
        Block { unit, groups: encoded.collect(), scales }
    }

    /// Refits the F16 to all elements and chooses multiples and points again; returns the block unchanged
    /// unless that reduces the error.
    fn refitted<'a>(&self, block: Block, groups: impl Iterator<Item = Numbers<'a>> + Clone) -> Block {
        let (mut q2, mut qx, mut before) = (0.0, 0.0, 0.0);
        for ((numbers, encoded), s) in groups.clone().zip(&block.groups).zip(&block.scales) {
            let multiple = self.fraction * (2.0 * f32::from(*s) + 1.0);
            let sums = numbers.sums(&encoded.values);
            q2 += multiple * multiple * sums.0;
            qx += multiple * sums.1;
            before += numbers.lost(self.scale(block.unit, *s), &encoded.values);
        }
        let unit = f16::from_f32(qx * inverse(q2));
        let mut new = Block { unit, scales: Vec::new(), groups: Vec::new() };
        let mut after = 0.0;
        for (numbers, &s) in groups.zip(&block.scales) {
            let near = (s.saturating_sub(1)..=(s + 1).min(self.top)).map(|s| {
                let scale = self.scale(unit, s);
                let encoded = self.encode(numbers, inverse(scale));
                (numbers.lost(scale, &encoded.values), s, encoded)
            });
            if let Some((lost, s, encoded)) = near.reduce(|a, b| if b.0 < a.0 { b } else { a }) {
                after += lost;
                new.scales.push(s);
                new.groups.push(encoded);
            }
        }
        if after < before { new } else { block }
    }
}

impl Block {
    /// Returns all indices in order, `each` per scale.
    fn indices(&self, each: usize) -> impl Iterator<Item = u16> + '_ {
        self.groups.iter().flat_map(move |g| g.indices.into_iter().take(each))
    }

    /// Returns the signs of all groups of eight, `each` per scale.
    fn signs(&self, each: usize) -> impl Iterator<Item = u8> + '_ {
        self.groups.iter().flat_map(move |g| g.extra.into_iter().take(each))
    }

    /// Returns the scales as nibbles, low ones first.
    fn nibbles(&self) -> impl Iterator<Item = u8> + '_ {
        self.scales.as_chunks().0.iter().map(|[a, b]| a | b << 4)
    }

    /// Returns a word for each 32 elements: four times seven signs, and the scale.
    fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().zip(&self.scales).map(|(g, s)| {
            let signs = g.extra.iter().enumerate();
            signs.fold(u32::from(*s) << 28, |word, (i, signs)| word | u32::from(signs & 127) << (7 * i))
        })
    }
}

/// Packs `bits` bits of each index, starting at bit `shift`; the first index in the lowest bits.
fn high(indices: &[u16], shift: u32, bits: usize) -> u8 {
    indices.iter().enumerate().fold(0, |byte, (i, index)| byte | ((index >> shift) as u8) << (bits * i))
}

/// Encodes four indices and a word for each 32 elements.
pub(super) fn iq2_xxs(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ2_XXS.block(block, method);
    out.extend(block.unit.to_le_bytes());
    for (group, word) in block.groups.iter().zip(block.words()) {
        out.extend(group.indices[..4].iter().map(|&index| index as u8));
        out.extend(word.to_le_bytes());
    }
}

/// Encodes nine index bits and seven signs for each 8 elements, then the scales.
pub(super) fn iq2_xs(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ2_XS.block(block, method);
    out.extend(block.unit.to_le_bytes());
    let words =
        block.indices(2).zip(block.signs(2)).map(|(index, signs)| index | u16::from(signs & 127) << 9);
    out.extend(words.flat_map(u16::to_le_bytes));
    out.extend(block.nibbles());
}

/// Encodes low bytes of indices, signs, high bits of indices, scales.
pub(super) fn iq2_s(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ2_S.block(block, method);
    let indices: Vec<u16> = block.indices(2).collect();
    out.extend(block.unit.to_le_bytes());
    out.extend(indices.iter().map(|&index| index as u8));
    out.extend(block.signs(2));
    out.extend(indices.chunks(4).map(|four| high(four, 8, 2)));
    out.extend(block.nibbles());
}

/// Encodes indices, then words.
pub(super) fn iq3_xxs(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ3_XXS.block(block, method);
    out.extend(block.unit.to_le_bytes());
    out.extend(block.indices(8).map(|index| index as u8));
    out.extend(block.words().flat_map(u32::to_le_bytes));
}

/// Encodes low bytes of indices, their ninth bits, signs, scales.
pub(super) fn iq3_s(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ3_S.block(block, method);
    let indices: Vec<u16> = block.indices(8).collect();
    out.extend(block.unit.to_le_bytes());
    out.extend(indices.iter().map(|&index| index as u8));
    out.extend(indices.chunks(8).map(|eight| high(eight, 8, 1)));
    out.extend(block.signs(4));
    out.extend(block.nibbles());
}

/// Encodes low bytes of indices, then for each 32 elements a word with their high bits, the scale and the
/// shift.
pub(super) fn iq1_s(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ1_S.block(block, method);
    out.extend(block.unit.to_le_bytes());
    out.extend(block.indices(4).map(|index| index as u8));
    for (group, scale) in block.groups.iter().zip(&block.scales) {
        let top = u16::from(*scale) << 12 | u16::from(group.extra[0] & 1) << 15;
        let indices = group.indices[..4].iter().enumerate();
        let word = indices.fold(top, |word, (i, index)| word | index >> 8 << (3 * i));
        out.extend(word.to_le_bytes());
    }
}

/// Encodes low bytes of indices; nibbles with their high bits and the shift; words with scales and a nibble
/// of the F16 on top.
pub(super) fn iq1_m(block: &[f32; 256], method: BlockMethod<'_>, out: &mut Vec<u8>) {
    let block = Format::IQ1_M.block(block, method);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::tests::decode;
    use crate::rng::Rng;

    /// A decoded block equals the values that the search computed: points, signs, shifts and scales are
    /// stored at the right offsets.
    #[test]
    fn blocks_hold_what_was_meant() {
        type Put = fn(&[f32; 256], BlockMethod<'_>, &mut Vec<u8>);
        let all: [(DType, Format, Put); 7] = [
            (DType::IQ2_XXS, Format::IQ2_XXS, iq2_xxs),
            (DType::IQ2_XS, Format::IQ2_XS, iq2_xs),
            (DType::IQ2_S, Format::IQ2_S, iq2_s),
            (DType::IQ3_XXS, Format::IQ3_XXS, iq3_xxs),
            (DType::IQ3_S, Format::IQ3_S, iq3_s),
            (DType::IQ1_S, Format::IQ1_S, iq1_s),
            (DType::IQ1_M, Format::IQ1_M, iq1_m),
        ];
        let mut rng = Rng::new(6);
        for round in 0..20 {
            let x: [f32; 256] = std::array::from_fn(|i| rng.normal() * (1 + i / 16 % 5) as f32);
            let importance: [f32; 256] = std::array::from_fn(|_| rng.normal().exp());
            let method =
                [BlockMethod::Quick, BlockMethod::Search, BlockMethod::Weighted(&importance, 1.0)][round % 3];
            for (dtype, format, put) in &all {
                let block = format.block(&x, method);
                let step = block.unit.to_f64() * f64::from(format.fraction);
                let meant = block.groups.iter().zip(&block.scales).flat_map(|(encoded, s)| {
                    let scale = step * (2.0 * f64::from(*s) + 1.0);
                    encoded.values[..format.group].iter().map(move |value| scale * f64::from(*value))
                });
                let mut bytes = Vec::new();
                put(&x, method, &mut bytes);
                let decoded = decode(*dtype, &bytes);
                assert!(decoded.iter().copied().eq(meant), "{dtype} {round}");
                // More than one point, sign, shift and scale must occur.
                let mut scales = block.scales.clone();
                scales.sort_unstable();
                scales.dedup();
                assert!(scales.len() > 2, "{dtype}: {scales:?}");
            }
        }
    }
}
