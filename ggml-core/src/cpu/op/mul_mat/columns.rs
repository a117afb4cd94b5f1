//! Parts of a product's tile: matrices, and the columns that they are multiplied with.

use crate::cpu::window::{Input, Tile};
use std::ops::Range;

/// Expert indices of tokens, sorted by matrix. A pair of token and index is stored as `token * used + index`.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu::op) struct Routes<'a> {
    /// Pairs, those of the first matrix first; pairs with an index out of range at the end.
    pub(in crate::cpu::op) pairs: &'a [u32],
    /// End of each matrix's pairs.
    pub(in crate::cpu::op) ends: &'a [u32],
    /// Number of indices of a token.
    pub(in crate::cpu::op) used: usize,
}

/// A matrix, and the columns of a tile that it is multiplied with.
#[derive(Clone, Debug)]
pub(super) struct TileProduct<'a> {
    /// Index of the matrix in `a`.
    pub(super) matrix: [usize; 2],
    /// Columns, at least one.
    pub(super) columns: Columns<'a>,
}

/// Columns of the result.
#[derive(Clone, Debug)]
pub(super) enum Columns<'a> {
    /// Some columns of a matrix.
    Matrix(Range<usize>, [usize; 2]),
    /// Pairs that selected the same matrix, and the number of indices of a token.
    Pairs(&'a [u32], usize),
}

impl Columns<'_> {
    /// Returns the number of columns.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Columns::Matrix(range, _) => range.len(),
            Columns::Pairs(pairs, _) => pairs.len(),
        }
    }

    /// Returns the index of a column in the result.
    #[inline(always)]
    pub(super) fn at(&self, c: usize) -> [usize; 3] {
        match self {
            Columns::Matrix(range, [s, t]) => [range.start + c, *s, *t],
            Columns::Pairs(pairs, used) => [pairs[c] as usize % used, pairs[c] as usize / used, 0],
        }
    }
}

/// Iterates over the products of a tile. Columns with an index out of range are in no product; they are set
/// to zero here.
pub(super) fn tile_products<'a>(
    a: &Input<'_>,
    tile: &mut Tile<'_>,
    routes: Option<Routes<'a>>,
) -> impl Iterator<Item = TileProduct<'a>> + use<'a> {
    if let Some(Routes { pairs, ends, used }) = routes {
        let outside = Columns::Pairs(&pairs[ends.last().map_or(0, |&end| end as usize)..], used);
        (0..outside.len()).for_each(|c| tile.row::<f32>(outside.at(c)).fill(0.0));
    }
    let [_, _, b2, b3] = tile.extents();
    let [_, _, a2, a3] = a.ne();
    let (columns, batches) = (tile.range(1), [tile.range(2), tile.range(3)]);
    let count = routes.map_or(batches[0].len() * batches[1].len(), |routes| routes.ends.len());
    let product = move |i: usize| match routes {
        None => {
            let [s, t] = [batches[0].start + i % batches[0].len(), batches[1].start + i / batches[0].len()];
            TileProduct {
                matrix: [s * a2 / b2, t * a3 / b3],
                columns: Columns::Matrix(columns.clone(), [s, t]),
            }
        }
        Some(Routes { pairs, ends, used }) => {
            let first = i.checked_sub(1).map_or(0, |before| ends[before]);
            TileProduct {
                matrix: [i, 0],
                columns: Columns::Pairs(&pairs[first as usize..ends[i] as usize], used),
            }
        }
    };
    (0..count).map(product).filter(|product| product.columns.len() > 0)
}

/// Returns the column of `b` for a column of the result. With MUL_MAT_ID, a token may have one column for all
/// of its indices.
#[inline(always)]
pub(super) fn source(b: &Input<'_>, [j, s, t]: [usize; 3]) -> [usize; 3] {
    [if b.ne()[1] == 1 { 0 } else { j }, s, t]
}
