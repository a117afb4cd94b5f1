//! Operations that are applied to products before they leave the thread that computes them.

use super::int8::put;
use crate::cpu::isa::Detected;
use crate::cpu::op::binary::Combine;
use crate::cpu::op::norm::Normalize;
use crate::cpu::op::{glu, rows};
use crate::cpu::simd::map::{map, zip};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::op::{Binary, Glu};
use std::ops::Range;

/// Second operand of products.
#[derive(Clone, Copy)]
pub(in crate::cpu::op) struct Source<'a> {
    pub(in crate::cpu::op) x: Input<'a>,
    /// Weight and epsilon of a norm of `x`, computed first; for matrices only.
    pub(in crate::cpu::op) norm: Option<(Input<'a>, f32)>,
}

impl<'a> Source<'a> {
    /// Returns a row; `scratch` has at least its length if there is a norm.
    pub(super) fn row<'s>(&self, detected: Detected, at: [usize; 3], scratch: &'s mut [f32]) -> &'s [f32]
    where
        'a: 's,
    {
        let x = self.x.row(at);
        let Some((weight, eps)) = &self.norm else { return x };
        let row = &mut scratch[..x.len()];
        row.copy_from_slice(x);
        dispatch(detected, Normalize::weighted(row, *eps, weight.row([0; 3])));
        row
    }
}

/// Bias of a column of products.
#[derive(Clone, Copy)]
pub(in crate::cpu::op) enum Bias<'a> {
    /// The same row for all columns.
    Row(Input<'a>),
    /// Rows and indices: each column uses the row selected by its index.
    Chosen(Input<'a>, Input<'a>),
}

/// Weights, and the bias of their products.
#[derive(Clone, Copy)]
pub(in crate::cpu::op) struct Matrix<'a> {
    pub(in crate::cpu::op) weight: Input<'a>,
    pub(in crate::cpu::op) bias: Option<Bias<'a>>,
}

/// Operations that produce a result.
#[derive(Clone, Copy)]
pub(in crate::cpu::op) struct Recipe<'a> {
    pub(in crate::cpu::op) matrix: Matrix<'a>,
    /// GLU of these products and those of another matrix.
    pub(in crate::cpu::op) gated: Option<(Glu, Matrix<'a>)>,
    /// Weights of the sum over a token's products.
    pub(in crate::cpu::op) weights: Option<Input<'a>>,
    /// Tensor that is added last.
    pub(in crate::cpu::op) added: Option<Input<'a>>,
}

impl<'a> Matrix<'a> {
    /// Wraps a matrix without a bias.
    pub(in crate::cpu::op) fn plain(weight: Input<'a>) -> Matrix<'a> {
        Matrix { weight, bias: None }
    }

    /// Returns the upper and the lower half.
    pub(in crate::cpu::op) fn halves(&self) -> [Matrix<'a>; 2] {
        let m = self.weight.ne()[1] / 2;
        [0, m].map(|first| Matrix {
            weight: self.weight.rows(first, m),
            bias: self.bias.map(|bias| match bias {
                Bias::Row(row) => Bias::Row(row.elements(first, m)),
                Bias::Chosen(rows, ids) => Bias::Chosen(rows.elements(first, m), ids),
            }),
        })
    }

    fn compute(
        &self,
        detected: Detected,
        tile: &mut Tile<'_>,
        product: &mut dyn FnMut(&Input<'a>, &mut Tile<'_>),
    ) {
        product(&self.weight, tile);
        match &self.bias {
            None => {}
            Some(Bias::Row(b)) => dispatch(detected, Combine { op: Binary::Add, a: None, b, tile }),
            Some(Bias::Chosen(b, ids)) => dispatch(detected, AddChosen { b, ids, tile }),
        }
    }
}

impl<'a> Recipe<'a> {
    /// Returns the recipe for plain products with a matrix.
    pub(in crate::cpu::op) fn plain(weight: Input<'a>) -> Recipe<'a> {
        Recipe { matrix: Matrix::plain(weight), gated: None, weights: None, added: None }
    }

    /// Returns the number of rows of weights.
    pub(super) fn rows(&self) -> usize {
        self.matrix.weight.ne()[1] * self.matrices()
    }

    /// Returns the number of matrices that contribute rows to a tile.
    pub(super) fn matrices(&self) -> usize {
        1 + usize::from(self.gated.is_some())
    }

    /// Returns the number of columns of products in scratch memory for a tile with `columns` columns.
    pub(super) fn scratch_columns(&self, columns: usize) -> usize {
        let used = self.weights.map(|weights| weights.ne()[1]);
        used.map_or(columns * (self.matrices() - 1), |used| columns * used)
    }

    /// Computes a tile. `product` writes the products with a matrix into a tile.
    pub(super) fn compute(
        &self,
        detected: Detected,
        tile: &mut Tile<'_>,
        scratch: &mut [f32],
        product: &mut dyn FnMut(&Input<'a>, &mut Tile<'_>),
    ) {
        let ranges: [_; 4] = std::array::from_fn(|d| tile.range(d));
        let elements = ranges.iter().map(Range::len).product::<usize>();
        let many = elements > ranges[0].len();
        if let Some(weights) = &self.weights {
            let [_, used, tokens, _] = weights.ne();
            let mut products = Tile::in_scratch(scratch, [tile.range(0), 0..used, 0..tokens, 0..1]);
            self.matrix.compute(detected, &mut products, product);
            dispatch(detected, WeightedSum { products, weights, tile });
        } else if let Some((op, other)) = &self.gated {
            let (up, gate) = scratch.split_at_mut(elements.min(scratch.len()));
            let mut up = Tile::in_scratch(up, ranges.clone());
            if many && gate.len() >= elements {
                let mut gate = Tile::in_scratch(gate, ranges);
                self.matrix.compute(detected, &mut gate, product);
                other.compute(detected, &mut up, product);
                dispatch(detected, Gated { op: *op, gate, up, tile });
            } else {
                self.matrix.compute(detected, tile, product);
                other.compute(detected, &mut up, product);
                for at in tile.rows() {
                    let (row, other) = (tile.row(at), up.row(at));
                    dispatch(detected, glu::Apply { op: *op, row, other, gate_in_row: true });
                }
            }
        } else if let Some(b) = self
            .added
            .as_ref()
            .filter(|b| many && scratch.len() >= elements && b.ne() == tile.extents() && b.rows_contiguous())
        {
            let mut products = Tile::in_scratch(scratch, ranges);
            self.matrix.compute(detected, &mut products, product);
            dispatch(detected, Sum { products, b, tile });
            return;
        } else {
            self.matrix.compute(detected, tile, product);
        }
        if let Some(b) = &self.added {
            dispatch(detected, Combine { op: Binary::Add, a: None, b, tile });
        }
    }
}

/// Job for the GLU of products in scratch memory. Rows of a result may be a power of two apart and compete
/// for the same cache sets, so each is accessed only once.
struct Gated<'a, 'b, 'c> {
    op: Glu,
    gate: Tile<'a>,
    up: Tile<'a>,
    tile: &'c mut Tile<'b>,
}

impl Job for Gated<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for at in self.tile.rows() {
            let (row, other) = (self.gate.row(at), self.up.row(at));
            glu::Apply { op: self.op, row: &mut *row, other, gate_in_row: true }.run(s);
            put(self.tile.row(at), row);
        }
    }
}

/// The same for a sum with rows of the same extents.
struct Sum<'a, 'b, 'c> {
    products: Tile<'a>,
    b: &'a Input<'a>,
    tile: &'c mut Tile<'b>,
}

impl Job for Sum<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let range = self.tile.range(0);
        for at in self.tile.rows() {
            let (row, b) = (self.products.row(at), &self.b.row(at)[range.clone()]);
            zip!(s, &mut *row, b, |x, b| s.add(x, b));
            put(self.tile.row(at), row);
        }
    }
}

/// Job that adds to each column the row selected by its index.
struct AddChosen<'a, 'b, 'c> {
    b: &'a Input<'a>,
    ids: &'a Input<'a>,
    tile: &'c mut Tile<'b>,
}

impl Job for AddChosen<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let range = self.tile.range(0);
        for at in self.tile.rows() {
            // A row index out of range adds nothing.
            let Some(row) = rows::valid(self.ids.at([at[0], at[1], 0, 0]), self.b.ne()[1]) else { continue };
            let bias = &self.b.row([row, 0, 0])[range.clone()];
            zip!(s, self.tile.row(at), bias, |x, bias| s.add(x, bias));
        }
    }
}

/// Job for the weighted sum of the products of each token's experts, from the first to the last.
struct WeightedSum<'a, 'b, 'c> {
    products: Tile<'a>,
    weights: &'a Input<'a>,
    tile: &'c mut Tile<'b>,
}

impl Job for WeightedSum<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for token in self.tile.range(1) {
            let sum = self.tile.row::<f32>([token, 0, 0]);
            for expert in 0..self.weights.ne()[1] {
                let row = self.products.row::<f32>([expert, token, 0]);
                let weight = s.splat(self.weights.at([0, expert, token, 0]));
                if expert == 0 {
                    sum.copy_from_slice(row);
                    map!(s, sum, |x| s.mul(x, weight));
                } else {
                    zip!(s, sum, row, |sum, x| s.add(sum, s.mul(x, weight)));
                }
            }
        }
    }
}
