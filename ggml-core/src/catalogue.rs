//! The operation catalogue: every operation's test cases, to be run on every backend.
//!
//! A [`Case`] is a graph of one operation (with the views that make its operands strided), or of several that a backend may
//! compute together ([`crate::fuse`]), and a rule for the contents of each leaf. The contents depend only on the case's and the leaf's name, so a case name reproduces itself.

use crate::backend::Backend;
use crate::bound::Bound;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::metrics::{Distance, distance_in_rows};
use crate::plan::{Plan, Precision, Step};
use crate::reference::{Operand, indices};
use crate::rng::Rng;
use crate::tensor::{Source, TensorId};
use crate::{bound, encode, evaluate, fuse, op};
use std::ops::Range;

/// What a leaf holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Uniform in an interval.
    Uniform(f32, f32),
    /// Integers in `0..n`.
    Ids(usize),
    /// Integers in `0..n`, none twice in a row of the tensor.
    Distinct(usize),
    /// A causal mask whose last row sees everything: 0 where `column + rows <= row + columns`, else minus infinity,
    /// with some values in between so that the sign and size of a bias matter.
    Causal,
    /// Zeros of both signs, subnormal, tiny and huge values.
    Edges,
    /// Given values.
    Values(Vec<f32>),
    /// Those of another rule but for some elements, each range of them with one value; see [`Fill::but`].
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
    /// The kind of group that the node should be computed in, where the case is one of several nodes.
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

    /// Contents of every leaf, encoded in its type.
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
}

impl Fill {
    /// These contents but for some elements, counted in the order of their indices.
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

/// All cases of all operations.
pub fn cases() -> Vec<Case> {
    [
        op::binary::cases(),
        op::cache_mask::cases(),
        op::copy::cases(),
        op::delta_net::cases(),
        op::flash_attn::cases(),
        op::glu::cases(),
        op::mul_mat::cases(),
        op::mul_mat_id::cases(),
        op::norm::cases(),
        op::rope::cases(),
        op::rows::cases(),
        op::soft_max::cases(),
        op::ssm_conv::cases(),
        op::ssm_scan::cases(),
        op::top_k::cases(),
        op::unary::cases(),
        op::view::cases(),
        fuse::cases::cases(),
    ]
    .concat()
}

/// What became of a case on a backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The result, as F32 (integers converted), and the driver's time.
    Values(Vec<f32>),
    /// The backend refused, with its reason.
    Unsupported(String),
}

/// Runs a case on a backend.
pub fn run(case: &Case, backend: &dyn Backend, precision: Precision) -> Result<Outcome> {
    let graph = case.graph.clone()?;
    if let Some((_, reason)) = evaluate::refusal(backend, &graph) {
        return Ok(Outcome::Unsupported(reason));
    }
    let data = case.leaves()?.into_iter().collect();
    let mut program = evaluate::run(backend, &graph, &data, precision)?;
    // An operation that writes into an operand is judged by the whole operand: what it must not touch counts too.
    let root = graph.tensor(case.node).root;
    let shown = graph.tensor(root);
    let mut bytes = vec![0u8; shown.dense_bytes()];
    program.read(root, &mut bytes)?;
    let values = Operand::new(shown, &bytes);
    Ok(Outcome::Values(indices(shown.ne).map(|i| values.at(i) as f32).collect()))
}

/// Runs a case on two backends; the distance of the first from the second. `Err` of the inner result is a refusal.
pub fn compare(
    case: &Case,
    backend: &dyn Backend,
    reference: &dyn Backend,
    precision: Precision,
) -> Result<std::result::Result<Distance, String>> {
    let got = match run(case, backend, precision)? {
        Outcome::Values(values) => values,
        Outcome::Unsupported(reason) => return Ok(Err(reason)),
    };
    match run(case, reference, precision)? {
        Outcome::Values(want) => Ok(Ok(distance(case, &got, &want))),
        Outcome::Unsupported(reason) => Ok(Err(reason)),
    }
}

/// What is wrong with a case on a backend, measured against the values that are wanted: it is refused, fails, or is
/// farther from them than its [`bound`](bound()). `None` if nothing is.
pub fn fault(case: &Case, backend: &dyn Backend, precision: Precision, wanted: &[f32]) -> Option<String> {
    let what = match run(case, backend, precision) {
        Ok(Outcome::Unsupported(reason)) => format!("unsupported: {reason}"),
        Ok(Outcome::Values(values)) => {
            let d = distance(case, &values, wanted);
            if bound(case, precision).holds(&d) {
                return None;
            }
            format!("{d:?}, got {}", values.get(d.worst).unwrap_or(&f32::NAN))
        }
        Err(error) => error.to_string(),
    };
    let device = backend.device();
    Some(format!("{} {} {}: {}: {what}", device.backend, device.arch, precision.name(), case.name))
}

/// How far values of a case's result are from those that are wanted.
pub fn distance(case: &Case, values: &[f32], wanted: &[f32]) -> Distance {
    let shown = case.graph.as_ref().map(|graph| graph.tensor(graph.tensor(case.node).root));
    distance_in_rows(values, wanted, shown.map_or(values.len(), |root| root.ne[0]))
}

/// The bound of a case on every backend: that of its node, the sum of those of all nodes of a case of several, 0 for
/// indices, of which a neighbour is as wrong as any other, and for a case that could not be built.
pub fn bound(case: &Case, precision: Precision) -> Bound {
    let Ok(graph) = &case.graph else { return Bound::default() };
    match case.group {
        _ if graph.tensor(case.node).dtype == DType::I32 => Bound::default(),
        None => bound::of_node(graph, case.node, precision),
        Some(_) => graph.computed().map(|node| bound::of_node(graph, node, precision)).sum(),
    }
}

/// Whether a backend computes a case of several nodes as it should: the tested node in a group of the case's kind. What it
/// does instead, if not.
pub fn apart(case: &Case, backend: &dyn Backend, precision: Precision) -> Option<String> {
    let (Ok(graph), Some(kind)) = (&case.graph, case.group) else { return None };
    let plan = match Plan::fused(graph, backend, precision) {
        Ok(plan) => plan,
        Err(error) => return Some(format!("{}: {error}", case.name)),
    };
    let joined = |step: &Step| step.group.name(graph) == kind && step.group.results().contains(&case.node);
    let steps: Vec<&str> = plan.steps.iter().map(|step| step.group.name(graph)).collect();
    // Attention, which the heads are made for, stands behind them.
    let others = steps.iter().filter(|name| **name != kind && **name != "FLASH_ATTN_EXT").count();
    let whole = plan.steps.iter().filter(|step| joined(step)).count() == 1 && others == 0;
    (!whole).then(|| format!("{} on {}: {}", case.name, backend.device().backend, steps.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A NaN that is wanted has to be there, and no other may be.
    #[test]
    fn a_nan_is_judged() {
        let reference = crate::reference::ReferenceBackend::default();
        let case = cases().into_iter().find(|c| c.name.starts_with("SOFT_MAX(rows with NaN")).unwrap();
        let Ok(Outcome::Values(wanted)) = run(&case, &reference, Precision::Exact) else { panic!("refused") };
        let nan: Vec<bool> = wanted.chunks_exact(70).map(|row| row.iter().all(|x| x.is_nan())).collect();
        assert_eq!(nan, [false, true, true, false, true, false]);
        let with = |i: usize, value: f32| {
            let mut changed = wanted.clone();
            changed[i] = value;
            fault(&case, &reference, Precision::Exact, &changed)
        };
        assert_eq!(fault(&case, &reference, Precision::Exact, &wanted), None);
        for (i, value) in [(75, 0.0), (75, f32::INFINITY), (5, f32::NAN), (5, f32::NEG_INFINITY)] {
            assert!(with(i, value).is_some_and(|text| text.contains("non_finite: 1")), "{value} for {i}");
        }
    }

    #[test]
    fn every_case_builds_and_names_are_unique() {
        let mut names = HashSet::new();
        let mut ops = HashSet::new();
        for case in cases() {
            let graph = case.graph.clone().unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(names.insert(case.name.clone()), "{} twice", case.name);
            ops.extend(graph.tensors().iter().filter_map(|t| t.op().map(|o| o.name())));
            assert!(!case.leaves().unwrap().is_empty());
        }
        for op in
            ["TOP_K", "CACHE_MASK", "MUL_MAT_ID", "SSM_CONV", "SSM_SCAN", "GATED_DELTA_NET", "SWIGLU_OAI"]
        {
            assert!(ops.contains(op), "{op}");
        }
        for op in
            ["GET_ROWS", "SET_ROWS", "MUL_MAT", "ADD", "MUL", "RMS_NORM", "ROPE", "SOFT_MAX", "SILU", "GELU"]
        {
            assert!(ops.contains(op), "{op}");
        }
        for op in ["SWIGLU", "GEGLU", "REGLU", "SCALE", "CPY", "CONT", "FLASH_ATTN_EXT", "VIEW", "PERMUTE"] {
            assert!(ops.contains(op), "{op}");
        }
    }
}
