//! Verdicts on routes that a failure takes back.

use super::Session;
use crate::model::MAIN;
use ggml_core::Error;
use ggml_core::plan::Plan;

impl Session {
    /// Takes back the verdicts on routes that the failing step took, if the error names a node: the next process does
    /// without these routes.
    pub(super) fn demote(&self, error: &Error) {
        let Some(node) = error.node() else { return };
        // The most recently used program is last.
        for batch in self.programs.iter().rev().map(|program| program.graph()) {
            let named = |&id: &_| batch.graph.tensor(id).name == node;
            let Some(id) = batch.graph.ids().find(named) else { continue };
            let backend = self.model.backend_of(MAIN, batch.shape.tokens);
            let Ok(plan) = Plan::fused(&batch.graph, backend, self.precision) else { return };
            let routes = backend.demote(&batch.graph, &plan, id, error);
            if !routes.is_empty() {
                let routes = routes.join(", ");
                tracing::warn!(node, "routes of the failed step, which are not used from now on: {routes}");
            }
            return;
        }
    }
}
