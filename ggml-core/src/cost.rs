//! Lower bounds of the cost of a computation: arithmetic, and bytes that must be read and written.

use crate::fuse::Group;
use crate::graph::Graph;
use crate::op::Op;
use crate::tensor::TensorId;

/// Work of a node or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written: each operand once, each result once.
    pub bytes: f64,
}

/// Returns the work of a node.
pub fn work(graph: &Graph, node: TensorId) -> Work {
    let reads = (0..graph.tensor(node).src().len()).map(|i| read(graph, node, i)).sum::<usize>();
    Work { flops: flops(graph, node), bytes: (reads + written(graph, node)) as f64 }
}

/// Returns the work of a group. Tensors that stay inside the group count as neither read nor written.
pub fn group_work(graph: &Graph, group: &Group) -> Work {
    let (nodes, results) = (group.nodes(), group.results());
    let mut read_already = Vec::new();
    let mut all = Work::default();
    for &node in &nodes {
        all.flops += flops(graph, node);
        for (i, &operand) in graph.tensor(node).src().iter().enumerate() {
            if !nodes.contains(&graph.producer(operand)) && !read_already.contains(&operand) {
                read_already.push(operand);
                all.bytes += read(graph, node, i) as f64;
            }
        }
    }
    all.bytes += results.iter().map(|&result| written(graph, result) as f64).sum::<f64>();
    all
}

fn flops(graph: &Graph, node: TensorId) -> f64 {
    let result = graph.tensor(node);
    let elements = result.elements() as f64;
    match (result.op(), graph.operands(node).as_slice()) {
        (Some(Op::MulMat(_) | Op::MulMatId(_)), [a, ..]) => 2.0 * elements * a.ne[0] as f64,
        // Each token makes three passes over the state of its heads.
        (Some(Op::GatedDeltaNet(_)), [q, _, v, ..]) => 8.0 * v.elements() as f64 * q.ne[0] as f64,
        (Some(Op::SsmScan(_)), [x, _, _, b, ..]) => 6.0 * x.elements() as f64 * b.ne[0] as f64,
        (Some(Op::TopK(op)), [x, ..]) => 4.0 * x.elements() as f64 * op.k as f64,
        (Some(Op::FlashAttnExt(_)), [q, k, v, ..]) => {
            2.0 * (q.ne[1] * q.ne[2] * q.ne[3]) as f64 * k.ne[1] as f64 * (k.ne[0] + v.ne[0]) as f64
        }
        _ => 8.0 * elements,
    }
}

/// Returns the bytes of an operand that a node reads.
fn read(graph: &Graph, node: TensorId, operand: usize) -> usize {
    let operands = graph.operands(node);
    let all = operands[operand].span_bytes();
    match (graph.tensor(node).op(), operand) {
        // Only the rows that the indices select.
        (Some(Op::GetRows(_)), 0) => {
            all.min(operands[0].span_bytes() / operands[0].rows().max(1) * operands[1].elements())
        }
        // The destination is written, not read.
        (Some(Op::SetRows(_)), 0) => 0,
        // Only matrices that a token has chosen are read.
        (Some(Op::MulMatId(_)), 0) => {
            let matrices = operands[0].ne[2].max(1);
            all / matrices * operands[2].elements().min(matrices)
        }
        _ => all,
    }
}

/// Returns the bytes that a node writes.
fn written(graph: &Graph, node: TensorId) -> usize {
    match (graph.tensor(node).op(), graph.operands(node).as_slice()) {
        // Only the given rows, in the type of the destination.
        (Some(Op::SetRows(_)), [target, values, ..]) => {
            target.span_bytes() / target.rows().max(1) * values.rows()
        }
        _ => graph.tensor(node).span_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::tensor::Source;

    #[test]
    fn products_cost_what_they_should() {
        let mut g = Graph::new();
        let a = g.leaf("a", DType::Q8_0, [1024, 2048, 1, 1], Source::Weight).unwrap();
        let b = g.leaf("b", DType::F32, [1024, 3, 1, 1], Source::Input).unwrap();
        let d = g.mul_mat(a, b).unwrap();
        let w = work(&g, d);
        assert_eq!(w.flops, 2.0 * 1024.0 * 2048.0 * 3.0);
        assert_eq!(w.bytes, (2048 * 32 * 34 + 1024 * 3 * 4 + 2048 * 3 * 4) as f64);
    }
}
