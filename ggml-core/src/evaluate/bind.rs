//! Binding of a graph's leaves on a backend.

use super::Contents;
use crate::backend::{Backend, Bindings, Limits, Program, Slice, Usage};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::{Source, TensorId};

/// Checks that `data` matches the graph's leaves: it has every weight and input with the right size,
/// optionally states, and nothing else.
///
/// # Errors
/// [`Error::InvalidArgument`] with the name of the leaf.
pub fn check(graph: &Graph, data: &Contents) -> Result<()> {
    for id in graph.ids() {
        let t = graph.tensor(id);
        let wrong = |found: String| {
            let expected = format!("{} bytes for {}", t.dense_bytes(), t.describe());
            Err(Error::argument(format!("contents of leaf '{}'", t.name), found, expected))
        };
        match (&t.source, data.get(&id)) {
            (Source::Node { .. } | Source::State, None) => {}
            (Source::Node { .. }, Some(_)) => {
                return Err(Error::argument("contents", format!("of node '{}'", t.name), "of leaves only"));
            }
            (_, Some(bytes)) if bytes.len() == t.dense_bytes() => {}
            (_, Some(bytes)) => return wrong(format!("{} bytes", bytes.len())),
            (_, None) => return wrong("missing".into()),
        }
    }
    match data.keys().find(|id| id.index() >= graph.tensors().len()) {
        Some(id) => Err(Error::argument("contents", format!("of tensor {}", id.0), "of leaves of the graph")),
        None => Ok(()),
    }
}

/// Allocates a graph's weights and state on a backend and uploads their contents. It uses as few allocations
/// as the backend's limits allow.
///
/// # Errors
/// Errors of [`check`]; allocation and upload errors of the backend.
pub fn bind(backend: &dyn Backend, graph: &Graph, data: &Contents) -> Result<Bindings> {
    check(graph, data)?;
    let limits = &backend.device().limits;
    let mut bindings = Bindings::default();
    for (source, usage) in [(Source::Weight, Usage::Weights), (Source::State, Usage::State)] {
        let mut block = Block::default();
        for id in graph.ids().filter(|&id| graph.tensor(id).source == source) {
            if !block.add(limits, id, graph.tensor(id).span_bytes()) {
                std::mem::take(&mut block).allocate(backend, usage, data, &mut bindings)?;
                block.add(limits, id, graph.tensor(id).span_bytes());
            }
        }
        block.allocate(backend, usage, data, &mut bindings)?;
    }
    Ok(bindings)
}

/// Leaves that share one allocation.
#[derive(Default)]
struct Block {
    leaves: Vec<(TensorId, usize)>,
    bytes: usize,
}

impl Block {
    /// Adds a leaf; returns false if the allocation would exceed the device's limit. The first leaf is always
    /// added: if it is too large by itself, the backend reports the error.
    fn add(&mut self, limits: &Limits, id: TensorId, bytes: usize) -> bool {
        let padded = bytes.checked_next_multiple_of(limits.alignment).unwrap_or(bytes);
        match self.bytes.checked_add(padded).filter(|&end| end as u64 <= limits.max_allocation) {
            Some(end) => {
                self.leaves.push((id, self.bytes));
                self.bytes = end;
            }
            None if self.leaves.is_empty() => (self.leaves, self.bytes) = (vec![(id, 0)], padded),
            None => return false,
        }
        true
    }

    fn allocate(
        self,
        backend: &dyn Backend,
        usage: Usage,
        data: &Contents,
        bindings: &mut Bindings,
    ) -> Result<()> {
        if self.leaves.is_empty() {
            return Ok(());
        }
        let buffer = backend.allocate(self.bytes, usage)?;
        for (id, offset) in self.leaves {
            if let Some(contents) = data.get(&id) {
                backend.upload(&buffer, offset, contents)?;
            }
            bindings.leaves.insert(id, Slice { buffer: buffer.clone(), offset });
        }
        Ok(())
    }
}

/// Writes the contents of a graph's inputs into its program.
///
/// # Errors
/// Errors of the program.
pub fn write_inputs(program: &mut dyn Program, graph: &Graph, data: &Contents) -> Result<()> {
    for (&id, contents) in data.iter().filter(|(id, _)| graph.tensor(**id).source == Source::Input) {
        program.write(id, contents)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_share_allocations_as_large_as_the_device_allows() {
        let limits = Limits { max_allocation: 256, max_binding: 256, alignment: 64 };
        let mut block = Block::default();
        assert!(block.add(&limits, TensorId(0), 10) && block.add(&limits, TensorId(1), 65));
        assert!(!block.add(&limits, TensorId(2), 65), "192 of 256 bytes are taken");
        assert!(block.add(&limits, TensorId(3), 64));
        assert_eq!(block.leaves, [(TensorId(0), 0), (TensorId(1), 64), (TensorId(3), 192)]);
        assert_eq!(block.bytes, 256);
        let mut alone = Block::default();
        assert!(alone.add(&limits, TensorId(0), 1000), "the backend says what is wrong with it");
        assert!(!alone.add(&limits, TensorId(1), 1));
        assert!(Block::default().add(&limits, TensorId(0), usize::MAX));
    }
}
