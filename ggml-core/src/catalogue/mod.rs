//! The operation catalogue: the test cases of every operation, run on every backend.
//!
//! A [`Case`] is a graph of one operation (with the views that make its operands strided), or of several
//! operations that a backend may compute together ([`crate::fuse`]), and a fill for each leaf. The contents
//! depend only on the names of the case and the leaf, so the name of a case reproduces it.

use crate::backend::{Backend, Program};
use crate::bound;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::evaluate::{self, Contents};
use crate::exact::{Operand, indices};
use crate::graph::Graph;
use crate::metrics::{Bound, Distance, distance_in_rows};
use crate::plan::{Plan, Step};
use crate::precision::Precision;

mod binary;
mod cache_mask;
mod case;
mod copy;
mod delta_net;
mod flash_attn;
mod glu;
pub(crate) mod groups;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod rope;
mod rows;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod top_k;
mod unary;
mod view;

pub use case::{Case, CaseBuilder, Fill};

/// Returns all cases of all operations.
pub fn cases() -> Vec<Case> {
    [
        binary::cases(),
        cache_mask::cases(),
        copy::cases(),
        delta_net::cases(),
        flash_attn::cases(),
        glu::cases(),
        mul_mat::cases(),
        mul_mat_id::cases(),
        norm::cases(),
        rope::cases(),
        rows::cases(),
        soft_max::cases(),
        ssm_conv::cases(),
        ssm_scan::cases(),
        top_k::cases(),
        unary::cases(),
        view::cases(),
        groups::cases(),
    ]
    .concat()
}

/// Outcome of a case on a backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The result, as F32 (integers converted), and the driver's time.
    Values(Vec<f32>),
    /// The backend does not support the case, for this reason.
    Unsupported(String),
}

/// Runs a case on a backend.
pub fn run(case: &Case, backend: &dyn Backend, precision: Precision) -> Result<Outcome> {
    run_with(case, &case.contents()?, backend, precision)
}

/// Runs a case on a backend, with the contents of its leaves: making them again for every run can take longer than
/// the run, because the encoders of few bits search.
pub fn run_with(
    case: &Case,
    contents: &Contents,
    backend: &dyn Backend,
    precision: Precision,
) -> Result<Outcome> {
    let graph = case.graph.clone()?;
    if let Some((_, reason)) = evaluate::refusal(backend, &graph) {
        return Ok(Outcome::Unsupported(reason));
    }
    let mut program = evaluate::prepare(backend, &graph, contents, precision)?;
    values(case, program.as_mut()).map(Outcome::Values)
}

/// Runs a program of a case, and reads the result.
fn values(case: &Case, program: &mut dyn Program) -> Result<Vec<f32>> {
    program.run()?;
    result(case, case.graph.as_ref().map_err(Error::clone)?, program)
}

/// A case with the contents of its leaves and the results of the reference, for any number of backends.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The case.
    pub case: Case,
    /// Contents of its leaves.
    pub contents: Contents,
    /// Results of the reference.
    pub wanted: Vec<f32>,
}

impl Judged {
    /// Makes the contents of the leaves, and computes the results on the reference.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the reference refuses the case; errors of building and running it.
    pub fn new(case: Case, reference: &dyn Backend) -> Result<Judged> {
        let contents = case.contents()?;
        match run_with(&case, &contents, reference, Precision::Exact)? {
            Outcome::Values(wanted) => Ok(Judged { case, contents, wanted }),
            Outcome::Unsupported(reason) => Err(Error::Unsupported {
                backend: reference.device().backend.clone(),
                op: "",
                node: case.name,
                reason,
            }),
        }
    }

    /// Runs the case on a backend.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, backend: &dyn Backend, precision: Precision) -> Result<Outcome> {
        run_with(&self.case, &self.contents, backend, precision)
    }

    /// Uploads the contents and prepares the case on a backend; `None` if that does not support it.
    ///
    /// # Errors
    /// As [`run`].
    pub fn prepare(&self, backend: &dyn Backend, precision: Precision) -> Result<Option<Box<dyn Program>>> {
        let graph = self.case.graph.as_ref().map_err(Error::clone)?;
        if evaluate::refusal(backend, graph).is_some() {
            return Ok(None);
        }
        evaluate::prepare(backend, graph, &self.contents, precision).map(Some)
    }

    /// Runs a program of the case, and returns the result.
    ///
    /// # Errors
    /// As [`run`].
    pub fn values(&self, program: &mut dyn Program) -> Result<Vec<f32>> {
        values(&self.case, program)
    }

    /// Describes a failure of the case on a backend; see [`fault`].
    pub fn fault(&self, backend: &dyn Backend, precision: Precision) -> Option<String> {
        describe_fault(&self.case, self.run(backend, precision), backend, precision, &self.wanted)
    }
}

/// Reads the result of a case. For an operation that writes into an operand, the entire operand is compared: the
/// other elements must not change.
fn result(case: &Case, graph: &Graph, program: &mut dyn Program) -> Result<Vec<f32>> {
    let root = graph.tensor(case.node).root;
    let shown = graph.tensor(root);
    let mut bytes = vec![0u8; shown.dense_bytes()];
    program.read(root, &mut bytes)?;
    let values = Operand::new(shown, 0, &bytes);
    Ok(indices(shown.ne).map(|i| values.at(i) as f32).collect())
}

/// Runs a case on two backends and returns the distance of the first from the second. An inner `Err` means
/// unsupported.
pub fn compare(
    case: &Case,
    backend: &dyn Backend,
    reference: &dyn Backend,
    precision: Precision,
) -> Result<std::result::Result<Distance, String>> {
    let contents = case.contents()?;
    let got = match run_with(case, &contents, backend, precision)? {
        Outcome::Values(values) => values,
        Outcome::Unsupported(reason) => return Ok(Err(reason)),
    };
    match run_with(case, &contents, reference, precision)? {
        Outcome::Values(want) => Ok(Ok(distance(case, &got, &want))),
        Outcome::Unsupported(reason) => Ok(Err(reason)),
    }
}

/// Describes a failure of a case on a backend: unsupported, an error, or a distance from `wanted` beyond the
/// case's [`bound`](bound()). `None` if the case passes.
pub fn fault(case: &Case, backend: &dyn Backend, precision: Precision, wanted: &[f32]) -> Option<String> {
    describe_fault(case, run(case, backend, precision), backend, precision, wanted)
}

/// Describes why an outcome of a case is a failure.
fn describe_fault(
    case: &Case,
    outcome: Result<Outcome>,
    backend: &dyn Backend,
    precision: Precision,
    wanted: &[f32],
) -> Option<String> {
    let what = match outcome {
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

/// Returns the distance of a case's values from those that are wanted.
pub fn distance(case: &Case, values: &[f32], wanted: &[f32]) -> Distance {
    let shown = case.graph.as_ref().map(|graph| graph.tensor(graph.tensor(case.node).root));
    distance_in_rows(values, wanted, shown.map_or(values.len(), |root| root.ne[0]))
}

/// Returns the bound of a case on every backend: that of its node, or the sum over the nodes that it depends
/// on. It is 0 for indices, because a wrong index is wrong by any distance, and for a case that could
/// not be built.
pub fn bound(case: &Case, precision: Precision) -> Bound {
    let Ok(graph) = &case.graph else { return Bound::default() };
    match case.group {
        _ if graph.tensor(case.node).dtype == DType::I32 => Bound::default(),
        None => bound::of_node(graph, case.node, precision),
        Some(_) => bound::of_group(graph, &graph.computed().collect::<Vec<_>>(), case.node, precision),
    }
}

/// Returns `None` if a backend computes a case of several nodes as expected: the tested node in a group of
/// the case's kind. Otherwise describes the steps.
pub fn ungrouped(case: &Case, backend: &dyn Backend, precision: Precision) -> Option<String> {
    let (Ok(graph), Some(kind)) = (&case.graph, case.group) else { return None };
    let plan = match Plan::fused(graph, backend, precision) {
        Ok(plan) => plan,
        Err(error) => return Some(format!("{}: {error}", case.name)),
    };
    let joined = |step: &Step| step.group.name(graph) == kind && step.group.results().contains(&case.node);
    let steps: Vec<&str> = plan.steps.iter().map(|step| step.group.name(graph)).collect();
    // Attention, the reason for a group of heads, is a step after it.
    let others = steps.iter().filter(|name| **name != kind && **name != "FLASH_ATTN_EXT").count();
    let whole = plan.steps.iter().filter(|step| joined(step)).count() == 1 && others == 0;
    (!whole).then(|| format!("{} on {}: {}", case.name, backend.device().backend, steps.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorId;
    use crate::{decode, encode};
    use std::collections::HashSet;

    /// A wanted NaN must occur, and no other NaN may.
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

    /// Cases that hide the rounding of their operands: what they compute of it is less than F32 rounds.
    const HIDDEN: &[&str] = &[
        // One element: its norm, soft-max and saturated functions are constants, and it may be exact in F16.
        "([1, 1, 1, 1]",
        "kv=1,",
        // The F32 operand is written only.
        "CPY(F16 -> F32)",
        "CPY(BF16 -> F32)",
        // Elements that are exact in F16 outweigh the others.
        "large arguments",
        "special numbers",
        "elements that are none",
        "infinities",
        // The errors of many elements cancel out in a sum.
        "BEST(sum",
        "BEST(element, n=140000",
    ];

    /// F16 is not exact: a case whose F32 operands are rounded to F16 exceeds its bound.
    #[test]
    fn operands_in_f16_exceed_the_bound_of_exact() {
        let reference = crate::reference::ReferenceBackend::default();
        let mut found = Vec::new();
        let mut count = 0;
        for case in cases() {
            let (graph, leaves) = (case.graph.clone().unwrap(), case.leaves().unwrap());
            let round = |(id, bytes): &(TensorId, Vec<u8>)| {
                if graph.tensor(*id).dtype != DType::F32 {
                    return (*id, bytes.clone());
                }
                let values: Vec<f32> = decode::decode(DType::F32, bytes).unwrap();
                let halves = encode::encode(DType::F16, values.len(), &values).unwrap();
                let values = decode::decode(DType::F16, &halves).unwrap();
                (*id, bytemuck::cast_slice(&values).to_vec())
            };
            let rounded: Vec<_> = leaves.iter().map(round).collect();
            let stored = graph.tensor(graph.tensor(case.node).root).dtype;
            let hidden = HIDDEN.iter().any(|part| case.name.contains(part)) || stored != DType::F32;
            if rounded == leaves {
                continue;
            }
            count += 1;
            let values = |data: Vec<(TensorId, Vec<u8>)>| {
                let data = data.into_iter().collect();
                let mut program = evaluate::run(&reference, &graph, &data, Precision::Exact).unwrap();
                result(&case, &graph, program.as_mut()).unwrap()
            };
            let d = distance(&case, &values(rounded), &values(leaves));
            if bound(&case, Precision::Exact).holds(&d) && !hidden {
                found.push(format!("{}: NMSE {:.1e}, row {:.1e}", case.name, d.nmse, d.row));
            }
        }
        assert!(count > 500, "{count}");
        assert!(found.is_empty(), "{} of {count}:\n{}", found.len(), found.join("\n"));
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
