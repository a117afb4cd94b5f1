//! How far from the reference a result may be: the largest NMSE ([`crate::metrics`]) that counts as agreement.
//!
//! The operation tests, [`crate::evaluate`] and `compare` hold results to these numbers and to no others.

use crate::dtype::DType;
use crate::graph::Graph;
use crate::plan::Precision;
use crate::tensor::TensorId;

/// The bound of one operation that gets the reference's operands; `operand` is the type of the first of them: of the
/// weights of a product, of the rows that SET_ROWS writes into.
///
/// 1e-7 is three orders above what F32 rounding in any order of summation gives at the sizes of the tests. Products
/// under [`Precision::Fast`] may round activations to F16 (2^-11, NMSE about 1e-7) or 8 bits (about 1e-5 to 1e-4), but
/// not those with F32 weights: 5e-4. Rows written in blocks: an element that lies between two steps may be rounded to
/// either; one in a thousand such elements has an NMSE of 1e-7 (Q8_0) or 3e-5 (Q4_0).
pub fn of_operation(op: &str, operand: DType, precision: Precision) -> f64 {
    match (op, operand, precision) {
        ("MUL_MAT" | "MUL_MAT_ID", DType::F32, Precision::Fast) => 1e-7,
        ("MUL_MAT" | "MUL_MAT_ID", _, Precision::Fast) => 5e-4,
        ("SET_ROWS", DType::Q8_0, _) => 1e-6,
        ("SET_ROWS", DType::Q4_0, _) => 1e-4,
        _ => 1e-7,
    }
}

/// The bound of a node that gets the reference's operands.
pub fn of_node(graph: &Graph, node: TensorId, precision: Precision) -> f64 {
    let tensor = graph.tensor(node);
    let operand = graph.operands(node).first().map_or(tensor.dtype, |o| o.dtype);
    of_operation(tensor.op().map_or("", |op| op.name()), operand, precision)
}

/// The bound of the results of a whole graph, such as the logits of a model. Exact: what F32 rounding makes of some
/// tens of layers. Fast: activations rounded to F16 for float weights; to 8 bits where weights are `quantised`, where
/// published native paths show up to 1e-3 for llama-like models. `steep` models are those whose router may choose
/// another expert where two are nearly equal, and those with a delta net, where the norm of a head's small result
/// doubles its error or flips its sign: there rounding alone is seen to give 2e-2, and only exact results tell it from
/// an error.
pub fn of_graph(precision: Precision, quantised: bool, steep: bool) -> f64 {
    match (precision, quantised) {
        (Precision::Exact, _) => 1e-6,
        (Precision::Fast, false) if steep => 1e-3,
        (Precision::Fast, true) if steep => 0.1,
        (Precision::Fast, false) => 1e-5,
        (Precision::Fast, true) => 5e-3,
    }
}

/// The bound of an output of a graph whose leaves alone are given: that of its operation where nothing else is computed,
/// else that of a graph, or of the operation where that is wider (rows written in blocks).
pub fn of_output(graph: &Graph, output: TensorId, precision: Precision) -> f64 {
    let operation = of_node(graph, graph.producer(output), precision);
    if graph.computed().nth(1).is_none() {
        return operation;
    }
    let quantised = graph.tensors().iter().any(|t| t.dtype.is_quantized());
    of_graph(precision, quantised, false).max(operation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Precision::{Exact, Fast};

    #[test]
    fn products_round_activations_where_that_is_allowed() {
        for op in ["MUL_MAT", "MUL_MAT_ID"] {
            assert_eq!(of_operation(op, DType::Q4_K, Exact), 1e-7);
            assert_eq!(of_operation(op, DType::Q4_K, Fast), 5e-4);
            assert_eq!(of_operation(op, DType::F16, Fast), 5e-4);
            assert_eq!(of_operation(op, DType::F32, Fast), 1e-7);
        }
        assert_eq!(of_operation("GET_ROWS", DType::Q4_0, Fast), 1e-7);
        assert_eq!(of_operation("SET_ROWS", DType::Q8_0, Exact), 1e-6);
        assert_eq!(of_operation("SET_ROWS", DType::Q4_0, Fast), 1e-4);
        assert_eq!(of_operation("SET_ROWS", DType::F16, Exact), 1e-7);
    }

    /// The cases of an operation are held to the bound of that operation, whatever else is in their graphs.
    #[test]
    fn a_case_has_the_bound_of_its_node() {
        for case in crate::catalogue::cases().into_iter().filter(|case| case.group.is_none()) {
            let graph = case.graph.as_ref().unwrap();
            for precision in [Exact, Fast] {
                let bound = of_node(graph, case.node, precision);
                assert_eq!(crate::catalogue::bound(&case, precision), bound, "{}", case.name);
                let loose = ["MUL_MAT", "SET_ROWS(Q"].iter().any(|name| case.name.starts_with(name));
                assert!(loose || bound == 1e-7, "{}: {bound}", case.name);
            }
        }
    }
}
