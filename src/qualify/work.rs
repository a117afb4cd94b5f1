//! Graphs that the checks of routes compute, with their contents.

use crate::isolate::protocol::ProductShape;
use ggml_core::encode::encode;
use ggml_core::evaluate::{Contents, evaluate};
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::rng::Rng;
use ggml_core::{DType, Graph, Result, Source, TensorId};

/// A graph with one output, and the contents of its leaves.
pub(super) struct Work {
    /// Description for a verdict.
    pub(super) name: String,
    pub(super) graph: Graph,
    pub(super) data: Contents,
    /// The node whose error is bounded.
    pub(super) node: TensorId,
    /// Values that the result must have to the bit, if they are known.
    pub(super) exact: Option<Vec<f32>>,
    /// Values of the reference, if they are known.
    pub(super) wanted: Option<Repeated>,
}

impl Work {
    /// Returns the bytes of the weights of a large product of one column.
    pub(super) fn read_bytes(&self) -> Option<u64> {
        let is_of_one = self.wanted.as_ref().is_some_and(|wanted| wanted.columns == 1);
        let weights = self.graph.ids().filter(|&id| self.graph.tensor(id).source == Source::Weight);
        is_of_one.then(|| weights.map(|id| self.graph.tensor(id).dense_bytes() as u64).sum())
    }
}

/// Result of a large product whose weights and columns repeat: as many values as the reference computes in no time say
/// what all are.
pub(super) struct Repeated {
    /// A row for each distinct column.
    distinct: Vec<Vec<f32>>,
    rows: usize,
    columns: usize,
}

impl Repeated {
    /// Returns the whole result.
    pub(super) fn values(&self) -> Vec<f32> {
        let mut all = Vec::with_capacity(self.rows * self.columns);
        for row in self.distinct.iter().cycle().take(self.columns) {
            all.extend(row.iter().cycle().take(self.rows));
        }
        all
    }
}

/// Distinct rows of weights; the others repeat them, because encoding is slow. No tile has a multiple of these rows.
const DISTINCT: usize = 7;

/// Extents of a product of whole numbers: no multiples of a tile, and several steps along k.
const ROWS: usize = 70;
const LENGTH: usize = 320;
const COLUMNS: usize = 130;

/// Returns a product whose operands are whole numbers that say where they are. Every sum is exact in F32, in whatever
/// order it is computed, and rounding to F16 or to 8 bits changes no operand: the largest of each 32 is 127.
pub(super) fn whole_numbers(dtype: DType, columns: usize) -> Result<Work> {
    let number = |row: usize, k: usize, seed: usize| match k % 32 {
        0 => 127,
        _ => ((row * 37 + k * 11 + row * k * 3 + seed) % 41) as i64 - 20,
    };
    let (a, b) = (|row, k| number(row, k, 5), |column, k| number(column, k, 17));
    let mut graph = Graph::new();
    let w = graph.leaf("w", dtype, [LENGTH, ROWS, 1, 1], Source::Weight)?;
    let x = graph.leaf("x", DType::F32, [LENGTH, columns, 1, 1], Source::Input)?;
    let node = graph.mul_mat(w, x)?;
    graph.output(node)?;
    let values = |count: usize, of: &dyn Fn(usize, usize) -> i64| -> Vec<f32> {
        (0..count).flat_map(|i| (0..LENGTH).map(move |k| (i, k))).map(|(i, k)| of(i, k) as f32).collect()
    };
    let data = Contents::from([
        (w, encode(dtype, LENGTH, &values(ROWS, &a))?),
        (x, encode(DType::F32, LENGTH, &values(columns, &b))?),
    ]);
    let sum = |row: usize, column: usize| (0..LENGTH).map(|k| a(row, k) * b(column, k)).sum::<i64>() as f32;
    let exact = (0..columns).flat_map(|column| (0..ROWS).map(move |row| sum(row, column))).collect();
    let name = format!("whole numbers, {dtype}, {columns} columns");
    Ok(Work { name, graph, data, node, exact: Some(exact), wanted: None })
}

/// Returns a product of many columns whose 2nd column has an infinity and whose 5th a NaN.
pub(super) fn special_values(dtype: DType) -> Result<Work> {
    let whole = whole_numbers(dtype, COLUMNS)?;
    let x = whole.graph.ids().find(|&id| whole.graph.tensor(id).name == "x");
    let mut data = whole.data;
    if let Some(bytes) = x.and_then(|x| data.get_mut(&x)) {
        for (column, value) in [(2, f32::INFINITY), (5, f32::NAN)] {
            let at = (column * LENGTH + 3) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
    let name = format!("infinity and NaN, {dtype}");
    Ok(Work { name, data, exact: None, ..whole })
}

/// Columns of [`whole_numbers`] for a kernel of many columns, of few, and of one.
pub(super) const COUNTS: [usize; 3] = [COLUMNS, 3, 1];

/// Returns random rows of `n` elements of a type; some are encoded, and repeated.
fn repeated(dtype: DType, n: usize, rows: usize, seed: u64) -> Result<Vec<u8>> {
    let mut rng = Rng::named("rows", seed);
    let distinct: Vec<f32> = (0..n * DISTINCT).map(|_| rng.uniform(-1.0, 1.0)).collect();
    let some = encode(dtype, n, &distinct)?;
    let mut all = some.repeat(rows.div_ceil(DISTINCT));
    all.truncate(some.len() / DISTINCT * rows);
    Ok(all)
}

/// Returns a product of a model's weights.
pub(super) fn product(shape: ProductShape, columns: usize) -> Result<Work> {
    let ProductShape { dtype, k, rows } = shape;
    let small = ProductShape { rows: rows.min(DISTINCT), ..shape };
    let few = product_of(small, columns.min(DISTINCT))?;
    let all = evaluate(&ReferenceBackend::default(), &few.graph, &few.data, Precision::Exact)?;
    let values = all.into_iter().map(|result| result.values()).collect::<Result<Vec<_>>>()?.concat();
    let distinct = values.chunks(small.rows.max(1)).map(<[f32]>::to_vec).collect();
    let name = format!("{rows} rows of {k} {dtype}, {columns} columns");
    Ok(Work { name, wanted: Some(Repeated { distinct, rows, columns }), ..product_of(shape, columns)? })
}

fn product_of(shape: ProductShape, columns: usize) -> Result<Work> {
    let ProductShape { dtype, k, rows } = shape;
    let mut graph = Graph::new();
    let w = graph.leaf("w", dtype, [k, rows, 1, 1], Source::Weight)?;
    let x = graph.leaf("x", DType::F32, [k, columns, 1, 1], Source::Input)?;
    let node = graph.mul_mat(w, x)?;
    graph.output(node)?;
    let data = Contents::from([(w, repeated(dtype, k, rows, 1)?), (x, repeated(DType::F32, k, columns, 2)?)]);
    Ok(Work { name: String::new(), graph, data, node, exact: None, wanted: None })
}

/// Returns attention of a prompt behind a cache of F16: rows of `d` elements, `heads` heads.
pub(super) fn attention(d: usize, heads: usize, positions: usize, tokens: usize) -> Result<Work> {
    let mut graph = Graph::new();
    let q = graph.leaf("q", DType::F32, [d, tokens, heads, 1], Source::Input)?;
    let kv_heads = heads.div_ceil(2);
    let [k, v] =
        ["k", "v"].map(|name| graph.leaf(name, DType::F16, [d, positions, kv_heads, 1], Source::Input));
    let (k, v) = (k?, v?);
    let mask = graph.leaf("mask", DType::F16, [positions, tokens, 1, 1], Source::Input)?;
    let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
    let node = graph.flash_attn_ext(op, q, k, v, Some(mask))?;
    graph.output(node)?;
    let seen = |i: usize| (i % positions) + tokens <= i / positions + positions;
    let masks: Vec<f32> =
        (0..positions * tokens).map(|i| if seen(i) { 0.0 } else { f32::NEG_INFINITY }).collect();
    let data = Contents::from([
        (q, repeated(DType::F32, d, tokens * heads, 3)?),
        (k, repeated(DType::F16, d, positions * kv_heads, 4)?),
        (v, repeated(DType::F16, d, positions * kv_heads, 5)?),
        (mask, encode(DType::F16, positions, &masks)?),
    ]);
    let name = format!("attention of {tokens} tokens, {positions} positions, rows of {d}");
    Ok(Work { name, graph, data, node, exact: None, wanted: None })
}

/// Returns a chain of products and norms as in decoding: many launches, each of which reads the result before it.
pub(super) fn chain(n: usize, layers: usize) -> Result<Work> {
    let mut graph = Graph::new();
    let mut data = Contents::new();
    let x = graph.leaf("x", DType::F32, [n, 1, 1, 1], Source::Input)?;
    data.insert(x, chain_input(n, 0)?);
    let mut y = x;
    for layer in 0..layers {
        let w = graph.leaf(&format!("w_{layer}"), DType::Q8_0, [n, n, 1, 1], Source::Weight)?;
        data.insert(w, repeated(DType::Q8_0, n, n, layer as u64)?);
        let normed = graph.rms_norm(y, 1e-6)?;
        let product = graph.mul_mat(w, normed)?;
        // The input is read by every layer, so that a stale one shows.
        y = graph.add(product, x)?;
    }
    graph.output(y)?;
    Ok(Work { name: format!("{layers} layers of a step"), graph, data, node: y, exact: None, wanted: None })
}

/// Returns the input of a step of [`chain`].
pub(super) fn chain_input(n: usize, step: usize) -> Result<Vec<u8>> {
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 + step * 53) % 101) as f32 / 50.0 - 1.0).collect();
    encode(DType::F32, n, &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(work: &Work) -> Vec<f32> {
        let reference = ReferenceBackend::default();
        let all = evaluate(&reference, &work.graph, &work.data, Precision::Exact).unwrap();
        all[0].values().unwrap()
    }

    /// Whole numbers survive the types, and the reference computes the expected sums.
    #[test]
    fn whole_numbers_are_exact() {
        for dtype in [DType::F16, DType::Q8_0] {
            for columns in COUNTS {
                let work = whole_numbers(dtype, columns).unwrap();
                assert_eq!(result(&work), work.exact.clone().unwrap(), "{}", work.name);
            }
        }
        let special = result(&special_values(DType::F16).unwrap());
        let finite = |column: usize| special[column * ROWS..][..ROWS].iter().all(|x| x.is_finite());
        assert_eq!([1, 2, 3, 4, 5, 6].map(finite), [true, false, true, true, false, true]);
    }

    /// A few values of a large product are all of them.
    #[test]
    fn repeated_products_are_known() {
        for (rows, columns) in [(23, 16), (5, 1), (7, 7), (8, 2)] {
            let shape = ProductShape { dtype: DType::Q4_K, k: 512, rows };
            let work = product(shape, columns).unwrap();
            assert_eq!(result(&work), work.wanted.as_ref().unwrap().values(), "{}", work.name);
        }
    }

    #[test]
    fn other_works_have_finite_results() {
        let shape = ProductShape { dtype: DType::Q4_K, k: 512, rows: 9 };
        let works = [product(shape, 3), attention(32, 4, 40, 5), chain(64, 3)];
        for work in works.map(Result::unwrap) {
            let result = result(&work);
            assert!(
                result.iter().all(|x| x.is_finite()) && result.iter().any(|x| *x != 0.0),
                "{}",
                work.name
            );
        }
        assert_ne!(chain_input(64, 0).unwrap(), chain_input(64, 1).unwrap());
    }
}
