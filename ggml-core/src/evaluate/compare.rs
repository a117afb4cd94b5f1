//! One graph on several backends.

use super::{Contents, read, run};
use crate::backend::Backend;
use crate::bound;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::metrics::{Bound, Distance, distance_in_rows};
use crate::precision::Precision;
use crate::tensor::TensorId;

/// How far one output of a graph on a backend is from the same on another.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputDistance {
    /// The output's name.
    pub name: String,
    /// How far it is.
    pub distance: Distance,
    /// The largest errors that count as agreement.
    pub bound: Bound,
}

impl OutputDistance {
    /// Whether it is near enough.
    pub fn agrees(&self) -> bool {
        self.bound.holds(&self.distance)
    }
}

/// What became of a graph on a backend, measured against another one.
#[derive(Clone, Debug)]
pub struct BackendComparison {
    /// The backend.
    pub backend: String,
    /// Distances of the outputs in their order, or why there are none.
    pub outputs: Result<Vec<OutputDistance>>,
}

impl BackendComparison {
    /// Whether the backend ran the graph and every output is near enough.
    pub fn agrees(&self) -> bool {
        self.outputs.as_ref().is_ok_and(|outputs| outputs.iter().all(OutputDistance::agrees))
    }
}

/// The verdict in a line.
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

/// Runs a graph on each backend and measures the outputs of all but the first against the first's. Of an output that
/// looks into another tensor, as that of SET_ROWS does, the whole of that tensor is measured: what must not be touched
/// counts too. The bounds are those of [`bound::of_output`].
///
/// # Errors
/// [`Error::InvalidArgument`] if there is no backend; those of [`evaluate`](super::evaluate) on the first one. Errors of the others are in
/// their comparisons.
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

/// For each output the values of the tensor in whose storage it lies.
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
