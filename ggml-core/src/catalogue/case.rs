//! A test case: a graph and the contents of its leaves.

use crate::dtype::DType;
use crate::encode;
use crate::error::{Error, Result};
use crate::evaluate::Contents;
use crate::graph::Graph;
use crate::rng::Rng;
use crate::tensor::{Source, TensorId};
use std::ops::Range;

/// Contents of a leaf.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Uniform in an interval.
    Uniform(f32, f32),
    /// Integers in `0..n`.
    Ids(usize),
    /// Distinct integers in `0..n` in each row of the tensor.
    Distinct(usize),
    /// A causal mask whose last row sees everything: 0 where `column + rows <= row + columns`, otherwise
    /// minus infinity, with some values in between so that the sign and size of a bias matter.
    Causal,
    /// Zeros of both signs, subnormal, tiny and huge values.
    Edges,
    /// Given values.
    Values(Vec<f32>),
    /// Another fill with some ranges of elements replaced, each by one value; see [`Fill::but`].
    Patched(Box<Fill>, Vec<(Range<usize>, f32)>),
}

/// One test of one operation.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name: operation, extents, types, parameters.
    pub name: String,
    /// The graph; its only output is [`Case::node`].
    pub graph: std::result::Result<Graph, Error>,
    /// The tested node.
    pub node: TensorId,
    /// Kind of group in which the node should be computed, if the case has several nodes.
    pub group: Option<&'static str>,
    fills: Vec<(TensorId, Fill)>,
}

/// Collects the leaves of a case.
#[derive(Debug, Default)]
pub struct CaseBuilder {
    fills: Vec<(TensorId, Fill)>,
}

impl CaseBuilder {
    /// Adds a leaf. Block-quantised leaves and the first operand of a product are weights, the others inputs.
    pub fn leaf(
        &mut self,
        g: &mut Graph,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        fill: Fill,
    ) -> Result<TensorId> {
        let source = if dtype.is_quantized() { Source::Weight } else { Source::Input };
        let id = g.leaf(name, dtype, ne, source)?;
        self.fills.push((id, fill));
        Ok(id)
    }

    /// Adds a leaf that the case writes: an input of any type.
    pub fn state(
        &mut self,
        g: &mut Graph,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        fill: Fill,
    ) -> Result<TensorId> {
        let id = g.leaf(name, dtype, ne, Source::Input)?;
        self.fills.push((id, fill));
        Ok(id)
    }
}

impl Case {
    /// Builds a case.
    pub fn new(
        name: impl Into<String>,
        build: impl FnOnce(&mut Graph, &mut CaseBuilder) -> Result<TensorId>,
    ) -> Case {
        let (mut graph, mut builder) = (Graph::new(), CaseBuilder::default());
        let built = build(&mut graph, &mut builder);
        let node = *built.as_ref().unwrap_or(&TensorId(0));
        let graph = built.and_then(|node| graph.output(node).map(|()| graph));
        Case { name: name.into(), graph, node, group: None, fills: builder.fills }
    }

    /// Returns the contents of every leaf, encoded in its type.
    pub fn leaves(&self) -> Result<Vec<(TensorId, Vec<u8>)>> {
        let graph = self.graph.clone()?;
        self.fills
            .iter()
            .map(|(id, fill)| {
                let t = graph.tensor(*id);
                let values = fill.values(t.ne, &mut Rng::named(&format!("{}/{}", self.name, t.name), 1));
                Ok((*id, encode::encode(t.dtype, t.ne[0], &values)?))
            })
            .collect()
    }

    /// Returns the contents of every leaf, by its number.
    ///
    /// # Errors
    /// As [`Case::leaves`].
    pub fn contents(&self) -> Result<Contents> {
        Ok(self.leaves()?.into_iter().collect())
    }
}

impl Fill {
    /// Returns this fill with some ranges of elements replaced, counted in the order of their indices.
    pub fn but(self, patches: impl IntoIterator<Item = (Range<usize>, f32)>) -> Fill {
        Fill::Patched(Box::new(self), patches.into_iter().collect())
    }

    fn values(&self, ne: [usize; 4], rng: &mut Rng) -> Vec<f32> {
        let count: usize = ne.iter().product();
        match self {
            Fill::Uniform(lo, hi) => (0..count).map(|_| rng.uniform(*lo, *hi)).collect(),
            Fill::Ids(n) => (0..count).map(|_| rng.below(*n) as f32).collect(),
            Fill::Distinct(n) => (0..count / ne[0]).flat_map(|_| distinct(*n, ne[0], rng)).collect(),
            Fill::Causal => causal(ne, rng),
            Fill::Edges => {
                let edges = [0.0, -0.0, 1e-42, -1e-40, 1.2e-38, 1e-30, -1.0, 1.0, 3.0e38, -2.5e37, 0.1];
                (0..count).map(|i| edges[i % edges.len()]).collect()
            }
            Fill::Values(values) => values.iter().copied().cycle().take(count).collect(),
            Fill::Patched(rest, patches) => {
                let mut values = rest.values(ne, rng);
                for (range, value) in patches {
                    let part = values.get_mut(range.clone());
                    part.into_iter().flatten().for_each(|x| *x = *value);
                }
                values
            }
        }
    }
}

fn distinct(n: usize, count: usize, rng: &mut Rng) -> Vec<f32> {
    let mut all: Vec<usize> = (0..n).collect();
    for i in 0..count.min(n) {
        let j = i + rng.below(n - i);
        all.swap(i, j);
    }
    all.iter().cycle().take(count).map(|&i| i as f32).collect()
}

fn causal(ne: [usize; 4], rng: &mut Rng) -> Vec<f32> {
    let mut out = Vec::new();
    for _ in 0..ne[2] * ne[3] {
        for row in 0..ne[1] {
            for column in 0..ne[0] {
                let seen = column + ne[1] <= row + ne[0].max(ne[1]);
                let bias = if rng.below(4) == 0 { -rng.uniform(0.0, 2.0) } else { 0.0 };
                // Multiples of 1/64 are exact in F16.
                out.push(if seen { (bias * 64.0).round() / 64.0 } else { f32::NEG_INFINITY });
            }
        }
    }
    out
}
