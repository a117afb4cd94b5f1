//! Measure of agreement: bounds of logits or of a graph's outputs.

use ggml_core::bound;
use ggml_core::metrics::Bound;
use ggml_core::precision::Precision;
use ggml_core::{Graph, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Measure of agreement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::compare) enum Measure {
    /// Logits, with their bound.
    Logits(Bound),
    /// Hidden states of a model without an output layer, with their bound.
    Hidden(Bound),
    /// Outputs of a graph by name, each with its bound.
    Outputs(HashMap<String, Bound>),
}

impl Measure {
    /// Builds the measure of a model's logits, or of its hidden states if it has no output layer, with the bounds
    /// of [`bound`].
    pub(in crate::compare) fn of_model(precision: Precision, quantised: bool, output: bool) -> Measure {
        let bound = bound::of_graph(precision, quantised);
        if output { Measure::Logits(bound) } else { Measure::Hidden(bound) }
    }

    pub(in crate::compare) fn outputs(precision: Precision, graph: &Graph) -> Measure {
        let named = |&output: &TensorId| {
            // Results of nodes exist for computing nodes only: for a view, add the node that it views.
            let names = [output, graph.producer(output)].map(|id| graph.tensor(id).name.clone());
            names.map(|name| (name, bound::of_output(graph, output, precision)))
        };
        Measure::Outputs(graph.outputs().iter().flat_map(named).collect())
    }

    /// Returns the largest of its NMSE bounds.
    pub(super) fn bound(&self) -> Option<f64> {
        match self {
            Measure::Logits(bound) | Measure::Hidden(bound) => Some(bound.nmse),
            Measure::Outputs(bounds) => bounds.values().map(|bound| bound.nmse).max_by(f64::total_cmp),
        }
    }
}
