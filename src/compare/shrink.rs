//! Reduction of a failing graph to a smaller one.

use ggml_core::graph::file::GraphFile;
use ggml_core::{Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// The most smaller graphs that are tried; each is a run of two processes.
const MOST_TRIALS: usize = 32;

/// Writes a graph file and reduces it as long as `fails` returns true for it. Returns false if the given
/// graph does not fail.
///
/// A dimension is halved as often as possible: in one leaf, in two, or in all leaves that have this extent in
/// some dimension. Extents that the operations' rules reject give no graph and are not tried.
pub(super) fn shrink(
    mut file: GraphFile,
    path: &Path,
    fails: &mut dyn FnMut(&Path) -> Result<bool>,
) -> Result<bool> {
    file.save(path)?;
    if !fails(path)? {
        return Ok(false);
    }
    let mut trials = 0;
    while let Some(smaller) = next(&file, path, fails, &mut trials)? {
        file = smaller;
    }
    file.save(path)?;
    Ok(true)
}

/// Returns the first smaller graph that still fails.
fn next(
    file: &GraphFile,
    path: &Path,
    fails: &mut dyn FnMut(&Path) -> Result<bool>,
    trials: &mut usize,
) -> Result<Option<GraphFile>> {
    for (dimensions, extent) in dimensions(&file.graph) {
        for range in [0..extent.div_ceil(2), extent / 2..extent] {
            let Some(smaller) = cut(file, &dimensions, &range) else { continue };
            if *trials == MOST_TRIALS {
                return Ok(None);
            }
            *trials += 1;
            smaller.save(path)?;
            if fails(path)? {
                return Ok(Some(smaller));
            }
        }
    }
    Ok(None)
}

/// A leaf and one of its dimensions.
type Dimension = (TensorId, usize);

/// Lists the possible cuts, the largest extent first: rows and planes of one leaf, pairs of dimensions of two
/// leaves, then all dimensions with the same extent.
fn dimensions(graph: &Graph) -> Vec<(Vec<Dimension>, usize)> {
    let leaves = graph.ids().filter(|&id| !matches!(graph.tensor(id).source, Source::Node { .. }));
    let all: Vec<(Dimension, usize)> = leaves
        .flat_map(|id| (0..4).map(move |d| (id, d)))
        .map(|(id, d)| ((id, d), graph.tensor(id).ne[d]))
        .filter(|&((id, d), extent)| extent > 1 && (d > 0 || graph.tensor(id).dtype.block() == 1))
        .collect();
    let mut dimensions: Vec<(Vec<Dimension>, usize)> = all
        .iter()
        .filter(|((_, d), _)| *d > 0)
        .map(|&(dimension, extent)| (vec![dimension], extent))
        .collect();
    // Two leaves, for the case that others have the same extent by coincidence.
    for (i, &(first, extent)) in all.iter().enumerate() {
        let same = all[i + 1..].iter().filter(|((leaf, _), e)| *leaf != first.0 && *e == extent);
        dimensions.extend(same.map(|&(second, _)| (vec![first, second], extent)));
    }
    let mut extents: Vec<usize> = all.iter().map(|&(_, extent)| extent).collect();
    extents.sort_unstable();
    extents.dedup();
    dimensions.extend(extents.into_iter().map(|extent| {
        (
            all.iter().filter(|(_, e)| *e == extent).map(|&(dimension, _)| dimension).collect::<Vec<_>>(),
            extent,
        )
    }));
    dimensions.sort_by_key(|(dimensions, extent)| (std::cmp::Reverse(*extent), dimensions.len()));
    dimensions.retain(|(dimensions, _)| !dimensions.is_empty());
    dimensions.dedup();
    dimensions
}

/// Returns the graph with only a range of these dimensions; `None` if the operations reject it.
fn cut(file: &GraphFile, dimensions: &[Dimension], range: &Range<usize>) -> Option<GraphFile> {
    let graph = &file.graph;
    let (mut smaller, mut ids) = (GraphFile::default(), HashMap::new());
    for id in graph.ids() {
        let t = graph.tensor(id);
        let copy = match &t.source {
            Source::Node { op, src } => {
                let src: Vec<TensorId> = src.iter().map(|operand| ids[operand]).collect();
                let copy = smaller.graph.node(op.clone(), &src).ok()?;
                smaller.graph.name(copy, &t.name).ok()?;
                copy
            }
            source => {
                let (mut ne, mut bytes) = (t.ne, file.data.get(&id).cloned());
                for &(_, d) in dimensions.iter().filter(|(leaf, _)| *leaf == id) {
                    let row = t.dtype.row_bytes(ne[0])?;
                    let (inner, count) = match d {
                        0 => (t.dtype.block_bytes(), ne[0]),
                        _ => (row * ne[1..d].iter().product::<usize>(), ne[d]),
                    };
                    bytes = bytes.map(|bytes| slice(&bytes, inner, count, range));
                    ne[d] = range.len();
                }
                let copy = smaller.graph.leaf(&t.name, t.dtype, ne, source.clone()).ok()?;
                smaller.data.extend(bytes.map(|bytes| (copy, bytes)));
                copy
            }
        };
        ids.insert(id, copy);
    }
    graph.outputs().iter().try_for_each(|output| smaller.graph.output(ids[output])).ok()?;
    Some(smaller)
}

/// Copies the elements of `range` from each group of `count` elements of `size` bytes.
fn slice(bytes: &[u8], size: usize, count: usize, range: &Range<usize>) -> Vec<u8> {
    let wanted = range.start * size..range.end * size;
    bytes.chunks_exact(size * count).flat_map(|group| &group[wanted.clone()]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::DType;

    fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
        values.flat_map(f32::to_le_bytes).collect()
    }

    /// A product of eight rows and three columns followed by a sum: the reduced graph has one row and one
    /// column, the failing ones.
    #[test]
    fn what_fails_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.json");
        let mut graph = Graph::new();
        let a = graph.leaf("a", DType::F32, [4, 8, 1, 1], Source::Weight).unwrap();
        let b = graph.leaf("b", DType::F32, [4, 3, 1, 1], Source::Input).unwrap();
        let c = graph.leaf("c", DType::F32, [8, 3, 1, 1], Source::Input).unwrap();
        let product = graph.mul_mat(a, b).unwrap();
        let sum = graph.add(product, c).unwrap();
        graph.output(sum).unwrap();
        let mut data = HashMap::new();
        for (leaf, count) in [(a, 32), (b, 12), (c, 24)] {
            data.insert(leaf, floats((0..count).map(|i| i as f32)));
        }
        let file = GraphFile { graph, data };
        // The failure needs element 1 of row 5 of a, and row 2 of b.
        let holds = |path: &Path, leaf: &str, value: f32| {
            let file = GraphFile::load(path).unwrap();
            let id = file.graph.find(leaf).unwrap();
            file.data[&id].chunks_exact(4).any(|x| x == value.to_le_bytes())
        };
        let mut fails = |path: &Path| Ok(holds(path, "a", 21.0) && holds(path, "b", 8.0));
        assert!(shrink(file.clone(), &path, &mut fails).unwrap());
        let small = GraphFile::load(&path).unwrap();
        let ne = |leaf: &str| small.graph.tensor(small.graph.find(leaf).unwrap()).ne;
        assert_eq!((ne("a")[1], ne("b")[1], ne("c")), (1, 1, [1, 1, 1, 1]));
        assert_eq!(small.graph.outputs().len(), 1);

        assert!(!shrink(file.clone(), &path, &mut |_| Ok(false)).unwrap());
        assert_eq!(GraphFile::load(&path).unwrap(), file, "as it was");
        let mut trials = 0;
        let mut all = |_: &Path| {
            trials += 1;
            Ok(trials == 1)
        };
        shrink(file, &path, &mut all).unwrap();
        assert!(trials <= MOST_TRIALS + 1, "{trials}");
    }
}
