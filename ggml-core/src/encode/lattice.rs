//! Nearest point of a grid.
//!
//! With equal weights, the nearest point depends only on the nearest level of each element, so a table holds
//! the answer. With different weights it is searched: the cost of a point is the cost of its lower half plus
//! that of its upper half. There are few halves, and points share upper halves.

use crate::dtype::DType;
use crate::grids;
use std::ops::Range;
use std::sync::OnceLock;

/// Grid points of a type.
pub(super) struct Lattice {
    dtype: DType,
    /// Magnitude of each code of an element.
    pub(super) levels: &'static [f32],
    /// Number of elements of a point.
    pub(super) size: usize,
    /// Index of the nearest point for the codes of its elements.
    nearest: OnceLock<Vec<u16>>,
    halves: OnceLock<Halves>,
}

/// Points by their halves. A half is an integer whose digits, in base number of levels, are its codes.
struct Halves {
    /// Upper halves, each with the index range of the points that have it.
    upper: Vec<(u8, Range<usize>)>,
    /// Lower half of each point.
    lower: Vec<u8>,
}

/// Largest number of halves of a type: four elements of three levels (81), or two of eight (64).
const MOST_HALVES: usize = 81;

impl Lattice {
    pub(super) const fn new(dtype: DType, levels: &'static [f32], size: usize) -> Lattice {
        Lattice { dtype, levels, size, nearest: OnceLock::new(), halves: OnceLock::new() }
    }

    pub(super) fn grid(&self) -> &'static [u16] {
        grids::grid(self.dtype).unwrap_or_default()
    }

    /// Returns the bits of a code.
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
                        // Codes 0, 1, 2: 0 and 2 differ in the high bit only; otherwise the low bit differs.
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

    fn halves(&self) -> &Halves {
        self.halves.get_or_init(|| {
            let mut upper: Vec<(u8, Range<usize>)> = Vec::new();
            for (index, &point) in self.grid().iter().enumerate() {
                // Points are sorted by their codes, so points that share an upper half are adjacent.
                let half = self.half(point, self.size / 2) as u8;
                match upper.last_mut() {
                    Some((last, range)) if *last == half => range.end = index + 1,
                    _ => upper.push((half, index..index + 1)),
                }
            }
            Halves { upper, lower: self.grid().iter().map(|&point| self.half(point, 0) as u8).collect() }
        })
    }

    /// Returns the half of a point that begins with element `first`.
    fn half(&self, point: u16, first: usize) -> usize {
        let codes = (first..first + self.size / 2).rev().map(|i| self.code(point, i));
        codes.fold(0, |half, code| half * self.levels.len() + code)
    }

    /// Returns the code of element `i` of a point.
    fn code(&self, point: u16, i: usize) -> usize {
        usize::from(point >> (i * self.bits())) & ((1 << self.bits()) - 1)
    }

    /// Returns the codes of the levels nearest to each element.
    fn key(&self, x: &[f32]) -> u16 {
        x.iter().enumerate().fold(0, |key, (i, &x)| {
            // Levels are sorted: count the midpoints of neighbouring levels that are below the element.
            let code = self.levels.windows(2).filter(|pair| (pair[0] + pair[1]) / 2.0 < x).count();
            key | (code as u16) << (i * self.bits())
        })
    }

    /// Returns the index of a point for `size` elements and writes its levels to `out`: the point nearest to
    /// their nearest codes, or with weights the one with the least weighted sum of squared errors.
    pub(super) fn nearest_to(&self, x: &[f32], weights: Option<&[f32]>, out: &mut [f32]) -> u16 {
        let key = self.key(x);
        let mut index = self.nearest()[usize::from(key)];
        if let Some(weights) = weights {
            // A point that has the nearest level in every element is the nearest for any weights.
            if self.grid()[usize::from(index)] != key {
                index = self.least(x, weights, index);
            }
        }
        let point = self.grid()[usize::from(index)];
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.levels[self.code(point, i)];
        }
        index
    }

    /// Returns the point of least weighted error; among equal ones `first` or the first.
    fn least(&self, x: &[f32], weights: &[f32], first: u16) -> u16 {
        let halves = self.halves();
        let middle = self.size / 2;
        let (mut lower, mut upper) = ([0.0; MOST_HALVES], [0.0; MOST_HALVES]);
        let lower = self.costs(&x[..middle], &weights[..middle], &mut lower);
        let upper = self.costs(&x[middle..], &weights[middle..], &mut upper);
        let least = lower.iter().copied().fold(f32::INFINITY, f32::min);
        let point = self.grid()[usize::from(first)];
        let mut best = (lower[self.half(point, 0)] + upper[self.half(point, middle)], first);
        for (half, points) in &halves.upper {
            let of_half = upper[usize::from(*half)];
            if of_half + least >= best.0 {
                continue;
            }
            for index in points.clone() {
                let cost = lower[usize::from(halves.lower[index])] + of_half;
                if cost < best.0 {
                    best = (cost, index as u16);
                }
            }
        }
        best.1
    }

    /// Returns the weighted squared errors of all halves for some elements.
    fn costs<'a>(&self, x: &[f32], weights: &[f32], out: &'a mut [f32; MOST_HALVES]) -> &'a [f32] {
        let mut count = 1;
        for (x, weight) in x.iter().zip(weights) {
            // Digit by digit, the last level first, because the first one overwrites the costs that the
            // others read.
            for (digit, level) in self.levels.iter().enumerate().rev() {
                let cost = weight * (x - level) * (x - level);
                for half in 0..count {
                    out[digit * count + half] = out[half] + cost;
                }
            }
            count *= self.levels.len();
        }
        &out[..count]
    }
}

#[cfg(test)]
mod tests {
    use super::super::points;
    use crate::rng::Rng;

    /// Compares with all points of the grid, for elements on, between and beyond levels and weights of any
    /// size.
    #[test]
    fn no_other_point_is_nearer() {
        let mut rng = Rng::new(3);
        for points in points::ALL {
            let (levels, size) = (points.levels, points.size);
            let reach = levels[levels.len() - 1] * 1.5;
            let mut off_the_grid = 0;
            for round in 0..2000 {
                let x: Vec<f32> = (0..size).map(|_| rng.uniform(levels[0].min(0.0) - 3.0, reach)).collect();
                let weights: Vec<f32> = (0..size)
                    .map(|_| if round % 2 == 0 { 1.0 } else { (3.0 * rng.normal()).exp() })
                    .collect();
                let cost = |point: u16| -> f64 {
                    let of = |i: usize| {
                        let error = f64::from(x[i]) - f64::from(levels[points.code(point, i)]);
                        f64::from(weights[i]) * error * error
                    };
                    (0..size).map(of).sum()
                };
                let mut out = vec![0.0; size];
                let index = points.nearest_to(&x, Some(&weights), &mut out);
                let found = points.grid()[usize::from(index)];
                let best = points.grid().iter().map(|point| cost(*point)).fold(f64::INFINITY, f64::min);
                assert!(cost(found) <= best * (1.0 + 1e-5), "{}: {} not {best}", points.dtype, cost(found));
                assert!((0..size).all(|i| out[i] == levels[points.code(found, i)]));
                off_the_grid += usize::from(points.key(&x) != found);
            }
            assert!(off_the_grid > 500, "{}", points.dtype);
        }
    }
}
