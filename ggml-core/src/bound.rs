//! Largest allowed errors against the reference.
//!
//! The bound of an operation is part of its definition ([`Operation::bound`](crate::op::Operation::bound));
//! this module has those of nodes, graphs and outputs. The operation tests, [`crate::evaluate`] and `compare`
//! use these bounds and no others.

use crate::graph::Graph;
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::tensor::TensorId;
use std::collections::HashSet;

/// Returns the bound of a node that is computed from the reference's operands.
pub fn of_node(graph: &Graph, node: TensorId, precision: Precision) -> Bound {
    let tensor = graph.tensor(node);
    let operand = graph.operands(node).first().map_or(tensor.dtype, |o| o.dtype);
    tensor.op().map_or(Bound::EQUAL, |op| op.definition().bound(operand, precision))
}

/// Returns the bound of the result of one of several nodes that are computed together from the reference's operands:
/// the sum over the nodes that it depends on. `nodes` are in the order of the graph.
pub fn of_group(graph: &Graph, nodes: &[TensorId], result: TensorId, precision: Precision) -> Bound {
    let mut needed = HashSet::from([graph.producer(result)]);
    let bounds = nodes.iter().rev().filter_map(|&node| {
        let is_needed = needed.contains(&node);
        needed.extend(graph.tensor(node).src().iter().filter(|_| is_needed).map(|&src| graph.producer(src)));
        is_needed.then(|| of_node(graph, node, precision))
    });
    bounds.sum()
}

/// Returns the bound of the results of an entire graph, such as the logits of a model. Exact: F32 rounding in
/// some tens of layers. Fast: activations rounded to F16 for float weights, or to 8 bits if weights are
/// `quantised`, for which published native code shows up to 1e-3 for llama-like models. A router that chooses
/// another of two nearly equal experts, or the norm of a head's small result, may amplify rounding beyond the
/// bound; the results of [`Precision::Exact`] then distinguish rounding from an error.
pub fn of_graph(precision: Precision, quantised: bool) -> Bound {
    match (precision, quantised) {
        (Precision::Exact, _) => Bound { nmse: 1e-7, row: 5e-7 },
        (Precision::Fast, false) => Bound { nmse: 1e-5, row: 1e-4 },
        (Precision::Fast, true) => Bound { nmse: 5e-3, row: 5e-2 },
    }
}

/// Returns the bound of an output of a graph that is computed from given leaves only: that of its operation
/// if it is the only one, otherwise that of a graph, or that of the operation if it is wider (rows written in
/// blocks).
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
    use crate::exact::Rounding;
    use Precision::{Exact, Fast};

    /// The bound of every case is that of its operations. It exceeds the bound of F32 only if rounding is
    /// part of an operation. Indices have the bound 0.
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
                    let nodes: Vec<TensorId> = graph.computed().collect();
                    let all: Bound = nodes.iter().map(|&node| of_node(graph, node, precision)).sum();
                    let own = of_node(graph, case.node, precision);
                    assert_eq!(bound, of_group(graph, &nodes, case.node, precision), "{}", case.name);
                    assert!(own.nmse <= bound.nmse && bound.nmse <= 1.000001 * all.nmse, "{}", case.name);
                    continue;
                }
                assert_eq!(bound, of_node(graph, case.node, precision), "{}", case.name);
                let is = |names: &[&str]| names.iter().any(|name| case.name.starts_with(name));
                let stores = is(&["SET_ROWS(Q", "SET_ROWS(F16"]);
                let rounds = is(&["MUL_MAT", "FLASH_ATTN_EXT"]) && precision == Fast;
                let copies =
                    is(&["CPY", "CONT", "SET_ROWS(F32", "GET_ROWS", "RESHAPE"]) && bound == Bound::EQUAL;
                let plain = bound == Bound::plain(precision);
                assert!(stores || rounds || copies || plain, "{}: {bound:?}", case.name);
            }
        }
    }

    #[test]
    fn products_round_activations_where_that_is_allowed() {
        use crate::op::{MulMat, MulMatId, Operation};
        for op in [&MulMat {} as &dyn Operation, &MulMatId {}] {
            assert_eq!(op.bound(DType::Q4_K, Exact), Bound::F32);
            assert!(op.rounds(DType::Q4_K, Exact).is_empty());
            let rounds = [DType::F32, DType::F16, DType::BF16, DType::Q4_K].map(|t| op.rounds(t, Fast));
            let expected = [Rounding::F16, Rounding::BF16, Rounding::Blocks8].map(|r| [(1, r)]);
            assert_eq!(rounds, [&[], &expected[0][..], &expected[1], &expected[2]]);
            let fast = [DType::F32, DType::F16, DType::BF16, DType::Q4_K].map(|t| op.bound(t, Fast).nmse);
            assert_eq!(fast, [1e-7, 5e-7, 1e-5, 5e-4]);
        }
    }
}
