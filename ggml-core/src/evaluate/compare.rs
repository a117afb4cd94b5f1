//! Comparison of one graph on several backends.

use super::{Contents, read, run};
use crate::backend::Backend;
use crate::bound;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::metrics::{Bound, Distance, distance_in_rows};
use crate::precision::Precision;
use crate::tensor::TensorId;

/// Distance of one output on a backend from the same output on another backend.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputDistance {
    /// Name of the output.
    pub name: String,
    /// Distance between the two outputs.
    pub distance: Distance,
    /// Largest errors that count as agreement.
    pub bound: Bound,
}

impl OutputDistance {
    /// True if the distance is within the bound.
    pub fn agrees(&self) -> bool {
        self.bound.holds(&self.distance)
    }
}

/// Result of a graph on a backend, compared with another backend.
#[derive(Clone, Debug)]
pub struct BackendComparison {
    /// Name of the backend.
    pub backend: String,
    /// Distances of the outputs in their order, or the error that prevented them.
    pub outputs: Result<Vec<OutputDistance>>,
}

impl BackendComparison {
    /// True if the backend ran the graph and every output is within its bound.
    pub fn agrees(&self) -> bool {
        self.outputs.as_ref().is_ok_and(|outputs| outputs.iter().all(OutputDistance::agrees))
    }
}

/// Formats the verdict in one line.
impl std::fmt::Display for BackendComparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.backend)?;
        match &self.outputs {
            Err(error) => write!(f, "{error}"),
            Ok(outputs) => match outputs.iter().find(|o| !o.agrees()) {
                Some(o) => write!(f, "output '{}' has {}", o.name, o.bound.excess(&o.distance)),
                None => f.write_str("agrees"),
            },
        }
    }
}

/// Runs a graph on each backend and compares the outputs of all others with those of the first. For an output
/// that is a view, as the result of SET_ROWS is, the whole root tensor is compared, so that a wrong write
/// outside the view is detected. The bounds are those of [`bound::of_output`].
///
/// # Errors
/// [`Error::InvalidArgument`] if there is no backend; errors of [`evaluate`](super::evaluate) on the first
/// backend. Errors of the other backends are in their comparisons.
pub fn compare_backends(
    backends: &[&dyn Backend],
    graph: &Graph,
    data: &Contents,
    precision: Precision,
) -> Result<Vec<BackendComparison>> {
    let Some((first, others)) = backends.split_first() else {
        return Err(Error::argument("backends", 0, "at least one"));
    };
    let wanted = roots(*first, graph, data, precision)?;
    let row = |id| graph.tensor(graph.tensor(id).root).ne[0];
    let measure = |got: Vec<Vec<f32>>| {
        let results = graph.outputs().iter().zip(got.iter().zip(&wanted));
        let measured = results.map(|(&id, (got, want))| OutputDistance {
            name: graph.tensor(id).name.clone(),
            distance: distance_in_rows(got, want, row(id)),
            bound: bound::of_output(graph, id, precision),
        });
        measured.collect()
    };
    let compared = others.iter().map(|backend| BackendComparison {
        backend: backend.device().backend.clone(),
        outputs: roots(*backend, graph, data, precision).map(measure),
    });
    Ok(compared.collect())
}

/// Returns the values of each output's root tensor.
fn roots(
    backend: &dyn Backend,
    graph: &Graph,
    data: &Contents,
    precision: Precision,
) -> Result<Vec<Vec<f32>>> {
    let mut program = run(backend, graph, data, precision)?;
    let root = |id: &TensorId| read(program.as_mut(), graph, graph.tensor(*id).root)?.values();
    graph.outputs().iter().map(root).collect()
}
