//! Binding of a graph's leaves on a backend.

use super::Contents;
use crate::backend::{Backend, Bindings, Program, Slice, Usage};
use crate::buffers::Buffers;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::Source;

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
    let mut bindings = Bindings::default();
    for (source, usage) in [(Source::Weight, Usage::Weights), (Source::State, Usage::State)] {
        let leaves = || graph.ids().filter(|&id| graph.tensor(id).source == source);
        let mut layout = Buffers::new(&backend.device().limits);
        let places = leaves().map(|id| layout.place(graph.tensor(id).span_bytes()));
        let too_large = || Error::argument("graph", "too large", "a size that can be addressed");
        let places = places.collect::<Option<Vec<_>>>().ok_or_else(too_large)?;
        let allocate = |&bytes: &usize| backend.allocate(bytes, usage);
        let buffers = layout.lengths().iter().map(allocate).collect::<Result<Vec<_>>>()?;
        for (id, place) in leaves().zip(places) {
            let slice = Slice { buffer: buffers[place.buffer].clone(), offset: place.offset };
            if let Some(contents) = data.get(&id) {
                backend.upload(&slice.buffer, slice.offset, contents)?;
            }
            bindings.leaves.insert(id, slice);
        }
    }
    Ok(bindings)
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
