//! Dot products in F32.
//!
//! An element of a result is always computed as the same sum. The row is cut into segments of [`SEGMENT`]
//! elements. In a segment, lane `l` of one accumulator adds the products of elements `l`, `l + LANES`, ... in
//! order. The lanes are added as by [`Simd::sum4`], and then the sums of the segments in order. So a product
//! of many columns equals the products of its single columns bit for bit, and tiles can have any shape.

use super::{MAX_PARTS, Weight};
use crate::cpu::simd::Simd;

/// Elements of a row that are accumulated in registers. Four rows of weights and six of activations take 40
/// KiB, about the size of a first-level cache. The final sum over the lanes is cheap compared with 1024
/// products.
pub(in crate::cpu) const SEGMENT: usize = 1024;

/// Rows of weights that are multiplied together: independent accumulators hide the latency of additions.
pub(in crate::cpu) const ROWS: usize = 4;

/// Returns the products of four rows with one column, converting the weights to F32 in registers. For
/// matrix-vector products, which are memory-bound: it prefetches `ahead` bytes after each row, because the
/// hardware's prefetcher does not follow several short rows.
#[inline(always)]
pub(in crate::cpu) fn dot_rows<S: Simd, W: Weight>(
    s: S,
    rows: [&[W::Block]; ROWS],
    x: &[f32],
    ahead: usize,
) -> [f32; ROWS] {
    let rows = rows.map(W::split);
    let x_rest = x.as_chunks::<32>().1;
    let mut total = [0.0; ROWS];
    // Hidden from the compiler, which would unroll the loop over the rows for each type and instruction set.
    let at_once = std::hint::black_box(ROWS);
    for (segment, x_groups) in x.chunks(SEGMENT).map(|x| x.as_chunks::<32>().0).enumerate() {
        let first = segment * units::<W>();
        let count = x_groups.len() / W::GROUPS;
        let rows_here = rows.map(|(units, _)| &units[first..first + count]);
        let mut acc = [s.splat(0.0); ROWS];
        for (u, x) in x_groups.chunks(W::GROUPS).take(count).enumerate() {
            for (units, acc) in rows_here.iter().zip(&mut acc).take(at_once) {
                for line in 0..size_of::<W::Unit>().div_ceil(64) {
                    s.prefetch(&units[u], ahead + 64 * line);
                }
                let scale = W::scale(s, &units[u]);
                for (group, x) in x.iter().enumerate() {
                    let mut parts = [s.splat(0.0); MAX_PARTS];
                    W::group(s, &units[u], scale, group, &mut parts);
                    for part in 0..32 / S::LANES {
                        *acc = s.fma(parts[part], s.load(&x[part * S::LANES..]), *acc);
                    }
                }
            }
        }
        if (segment + 1) * SEGMENT > x.len() {
            for (i, x) in x_rest.chunks(S::LANES).enumerate() {
                let x = if x.len() == S::LANES { s.load(x) } else { s.load_partial(x) };
                for r in 0..ROWS {
                    acc[r] = s.fma(W::rest(s, rows[r].1, i * S::LANES), x, acc[r]);
                }
            }
        }
        let sums = s.sum4(acc);
        for r in 0..ROWS {
            total[r] += sums[r];
        }
    }
    total
}

/// Returns the number of units in a segment.
pub(super) const fn units<W: Weight>() -> usize {
    SEGMENT / 32 / W::GROUPS
}

/// Returns the products of four rows with `C` columns, all at most one segment long: `[column][row]`.
///
/// Every vector of a row is used `C` times and every vector of a column four times. The accumulators stay in
/// registers (12 of 16 for `C` = 3, 24 of 32 for `C` = 6).
#[inline(always)]
pub(in crate::cpu) fn tile<S: Simd, const C: usize>(
    s: S,
    a: [&[f32]; ROWS],
    b: [&[f32]; C],
) -> [[f32; ROWS]; C] {
    let n = b[0].len();
    // Checked once, so that the loop needs no bounds checks.
    assert!(a.iter().all(|r| r.len() == n) && b.iter().all(|c| c.len() == n), "rows of different lengths");
    let mut acc = [[s.splat(0.0); ROWS]; C];
    let whole = n - n % S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let mut x = [s.splat(0.0); C];
        for c in 0..C {
            // SAFETY: `at + LANES <= whole <= n`, the length of every row and column.
            x[c] = unsafe { s.load_at(b[c], at) };
        }
        for r in 0..ROWS {
            // SAFETY: as above.
            let w = unsafe { s.load_at(a[r], at) };
            for c in 0..C {
                acc[c][r] = s.fma(w, x[c], acc[c][r]);
            }
        }
    }
    if whole < n {
        let mut x = [s.splat(0.0); C];
        for c in 0..C {
            x[c] = s.load_partial(&b[c][whole..]);
        }
        for r in 0..ROWS {
            let w = s.load_partial(&a[r][whole..]);
            for c in 0..C {
                acc[c][r] = s.fma(w, x[c], acc[c][r]);
            }
        }
    }
    let mut sums = [[0.0; ROWS]; C];
    for c in 0..C {
        sums[c] = s.sum4(acc[c]);
    }
    sums
}

/// Maximum number of rows for [`tiles`].
pub(in crate::cpu) const MAX_ROWS: usize = 64;

/// Rows and columns of at most one segment, and a sink for their products.
pub(in crate::cpu) trait Tiles<'a> {
    /// Returns a row.
    fn row(&self, i: usize) -> &'a [f32];
    /// Returns a column.
    fn column(&self, j: usize) -> &'a [f32];
    /// Receives the products of a column with all rows.
    fn put<S: Simd>(&mut self, s: S, j: usize, products: &[f32]);
}

/// Computes the products of at most [`MAX_ROWS`] rows with any number of columns.
#[inline(always)]
pub(in crate::cpu) fn tiles<'a, S: Simd>(s: S, rows: usize, columns: usize, mut operands: impl Tiles<'a>) {
    let rows = rows.min(MAX_ROWS);
    let mut products = [[0.0; MAX_ROWS]; 6];
    let mut j = 0;
    while j < columns {
        let step = match columns - j {
            6.. if S::WIDE => 6,
            3.. => 3,
            left => left,
        };
        let mut b: [&[f32]; 6] = [&[]; 6];
        for c in 0..step {
            b[c] = operands.column(j + c);
        }
        for i in (0..rows).step_by(ROWS) {
            let mut a: [&[f32]; ROWS] = [&[]; ROWS];
            for r in 0..ROWS {
                // At the end, the last row replaces missing rows.
                a[r] = operands.row((i + r).min(rows - 1));
            }
            match step {
                6 => keep(i, tile::<S, 6>(s, a, b), &mut products),
                3 => keep(i, tile::<S, 3>(s, a, [b[0], b[1], b[2]]), &mut products),
                2 => keep(i, tile::<S, 2>(s, a, [b[0], b[1]]), &mut products),
                _ => keep(i, tile::<S, 1>(s, a, [b[0]]), &mut products),
            }
        }
        for c in 0..step {
            operands.put(s, j + c, &products[c][..rows]);
        }
        j += step;
    }
}

/// Stores the products of four rows, from row `i` on, in the arrays of their columns.
#[inline(always)]
fn keep<const C: usize>(i: usize, tile: [[f32; ROWS]; C], products: &mut [[f32; MAX_ROWS]; 6]) {
    for (to, from) in products.iter_mut().zip(tile) {
        if let Some(to) = to[i..].first_chunk_mut() {
            *to = from;
        }
    }
}
