//! How far from the reference a result may be.
//!
//! The bound of an operation stands beside its definition ([`Operation::bound`](crate::op::Operation::bound)); here are those of what is made of
//! operations. The operation tests, [`crate::evaluate`] and `compare` hold results to these and to no others.

use crate::graph::Graph;
use crate::metrics::Distance;
use crate::plan::Precision;
use crate::tensor::TensorId;
use serde::{Deserialize, Serialize};

/// The largest errors that count as agreement ([`crate::metrics`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Of [`Distance::nmse`].
    pub nmse: f64,
    /// Of [`Distance::row`].
    pub row: f64,
}

impl Bound {
    /// What F32 rounding in any order of summation gives, and three orders of magnitude more. An error of a thousandth
    /// of the scale in a single element, 1e-6, is beyond that of several nodes.
    pub const F32: Bound = Bound { nmse: 1e-7, row: 1e-7 };

    /// Whether a result is near enough; a NaN is not.
    pub fn holds(&self, d: &Distance) -> bool {
        d.nmse <= self.nmse && d.row <= self.row
    }

    /// What is too large about a result, in words: its NMSE, or if that is within the bound its worst row.
    pub fn excess(&self, d: &Distance) -> String {
        match d.nmse <= self.nmse {
            false => format!("NMSE {:.1e}, the bound {:.0e}", d.nmse, self.nmse),
            true => format!("an error of {:.1e} in its worst row, the bound {:.0e}", d.row, self.row),
        }
    }
}

/// Of nodes that are computed together.
impl std::iter::Sum for Bound {
    fn sum<I: Iterator<Item = Bound>>(bounds: I) -> Bound {
        bounds.fold(Bound::default(), |a, b| Bound { nmse: a.nmse + b.nmse, row: a.row + b.row })
    }
}

/// The bound of a node that gets the reference's operands.
pub fn of_node(graph: &Graph, node: TensorId, precision: Precision) -> Bound {
    let tensor = graph.tensor(node);
    let operand = graph.operands(node).first().map_or(tensor.dtype, |o| o.dtype);
    tensor.op().map_or(Bound::F32, |op| op.definition().bound(operand, precision))
}

/// The bound of the results of a whole graph, such as the logits of a model. Exact: what F32 rounding makes of some
/// tens of layers. Fast: activations rounded to F16 for float weights; to 8 bits where weights are `quantised`, where
/// published native paths show up to 1e-3 for llama-like models. A router that chooses another expert where two are
/// nearly equal, or the norm of a head's small result, may make more of rounding than that: then the results of
/// [`Precision::Exact`] tell it from an error.
pub fn of_graph(precision: Precision, quantised: bool) -> Bound {
    match (precision, quantised) {
        (Precision::Exact, _) => Bound { nmse: 1e-7, row: 5e-7 },
        (Precision::Fast, false) => Bound { nmse: 1e-5, row: 1e-4 },
        (Precision::Fast, true) => Bound { nmse: 5e-3, row: 5e-2 },
    }
}

/// The bound of an output of a graph whose leaves alone are given: that of its operation where nothing else is computed,
/// else that of a graph, or of the operation where that is wider (rows written in blocks).
pub fn of_output(graph: &Graph, output: TensorId, precision: Precision) -> Bound {
    let operation = of_node(graph, graph.producer(output), precision);
    if graph.computed().nth(1).is_none() {
        return operation;
    }
    let quantised = graph.tensors().iter().any(|t| t.dtype.is_quantized());
    let whole = of_graph(precision, quantised);
    Bound { nmse: whole.nmse.max(operation.nmse), row: whole.row.max(operation.row) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use Precision::{Exact, Fast};

    /// Every case is held to what its operations say, and only where rounding belongs to an operation is it more than
    /// that of F32. Indices are right or wrong.
    #[test]
    fn a_case_has_the_bound_of_its_nodes() {
        for case in crate::catalogue::cases() {
            let graph = case.graph.as_ref().unwrap();
            for precision in [Exact, Fast] {
                let bound = crate::catalogue::bound(&case, precision);
                if graph.tensor(case.node).dtype == DType::I32 {
                    assert_eq!(bound, Bound::default(), "{}", case.name);
                    continue;
                }
                if case.group.is_some() {
                    let parts: Bound = graph.computed().map(|node| of_node(graph, node, precision)).sum();
                    assert_eq!(bound, parts, "{}", case.name);
                    continue;
                }
                assert_eq!(bound, of_node(graph, case.node, precision), "{}", case.name);
                let stores = ["SET_ROWS(Q", "SET_ROWS(F16"].iter().any(|name| case.name.starts_with(name));
                let rounds = case.name.starts_with("MUL_MAT") && precision == Fast;
                assert!(stores || rounds || bound == Bound::F32, "{}: {bound:?}", case.name);
            }
        }
    }

    #[test]
    fn products_round_activations_where_that_is_allowed() {
        use crate::op::{MulMat, MulMatId, Operation};
        for op in [&MulMat {} as &dyn Operation, &MulMatId {}] {
            assert_eq!(op.bound(DType::Q4_K, Exact), Bound::F32);
            let fast = [DType::F32, DType::F16, DType::BF16, DType::Q4_K].map(|t| op.bound(t, Fast).nmse);
            assert_eq!(fast, [1e-7, 5e-7, 1e-5, 5e-4]);
        }
    }

    #[test]
    fn both_parts_hold_or_the_bound_does_not() {
        let d = |nmse, row| Distance { nmse, row, ..Distance::default() };
        assert!(Bound::F32.holds(&d(1e-8, 5e-8)));
        for (nmse, row) in [(1e-6, 0.0), (0.0, 1e-6), (f64::NAN, 0.0), (0.0, f64::NAN), (f64::INFINITY, 0.0)]
        {
            assert!(!Bound::F32.holds(&d(nmse, row)), "{nmse} {row}");
        }
    }
}
