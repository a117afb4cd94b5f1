//! Loading of a task's model, and its graphs.

use crate::backends::BackendName;
use crate::isolate::protocol::{Message, ModelTask, Work};
use crate::model::{
    BatchGraph, BatchShape, Hparams, LoadOptions, Model, ModelFile, Offload, Predictor, Want,
};
use crate::session::{KV_STEP, Session, SessionOptions, inputs_after};
use ggml_core::Result;
use ggml_core::backend::Backend;
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::evaluate::Contents;
use std::sync::Arc;

/// Loads the model, all of it or a part on the backend; `cpu` computes the rest and everything that the
/// device does not support.
pub(super) fn load(
    work: &Work,
    task: &ModelTask,
    backend: Arc<dyn Backend>,
    send: &mut dyn FnMut(Message),
) -> Result<Model> {
    let on_host = work.backend.parse().is_ok_and(|name: BackendName| name.is_host());
    let offload = match usize::try_from(task.offload) {
        Ok(units) => Offload::Layers(units),
        // A backend of the host has no fallback.
        Err(_) if on_host => return Model::load(&task.model, backend),
        Err(_) => Offload::All,
    };
    let host = CpuOptions::default().with_deadlines(backend.deadlines().clone());
    let file = ModelFile::open(&task.model)?;
    let options = LoadOptions {
        offload,
        host: Some(Arc::new(CpuBackend::open(host)?)),
        session: session_options(work, task).with_predictor(file.has_predictor()),
        ..LoadOptions::default()
    };
    let model = Model::load_with(file, backend, &options, &mut |_, _| ())?;
    for fallback in model.fallbacks() {
        send(Message::Warning { what: format!("computed by cpu: {fallback}") });
    }
    Ok(model)
}

/// Returns the number of cells of the cache. Results may depend on it, so node-by-node examination uses the
/// same number as the run.
fn context(task: &ModelTask) -> usize {
    (task.tokens.len() + task.predict).max(1).next_multiple_of(KV_STEP)
}

pub(super) fn session_options(work: &Work, task: &ModelTask) -> SessionOptions {
    SessionOptions {
        context: Some(context(task)),
        cache: Some(task.cache),
        precision: work.precision,
        ..SessionOptions::default()
    }
}

/// Returns the rows that are compared: logits, or hidden states if the model has no output layer.
pub(super) fn wanted(hparams: &Hparams) -> Want {
    if hparams.output { Want::Logits } else { Want::Hidden(hparams.layers) }
}

/// Appends tokens and returns the wanted rows of all of them.
pub(super) fn rows(session: &mut Session, tokens: &[u32]) -> Result<Vec<f32>> {
    match session.model().hparams().output {
        true => session.logits(tokens),
        false => session.hidden(tokens, None),
    }
}

/// Builds the graph of the prompt as one batch, with logits of every token, and its inputs.
pub(super) fn prompt_graph(model: &ModelFile, task: &ModelTask) -> Result<(BatchGraph, Contents)> {
    graph_after(model, task, &[], &task.tokens)
}

/// Builds the graph of the first decode step after the prompt, and its inputs.
pub(super) fn step_graph(model: &ModelFile, task: &ModelTask, token: u32) -> Result<(BatchGraph, Contents)> {
    graph_after(model, task, &task.tokens, &[token])
}

fn graph_after(
    model: &ModelFile,
    task: &ModelTask,
    before: &[u32],
    tokens: &[u32],
) -> Result<(BatchGraph, Contents)> {
    let (context, n) = (context(task), tokens.len());
    let kv = match before.len() {
        0 => n,
        // As many cells as a session attends to.
        before => (before + n).next_multiple_of(KV_STEP).min(context),
    };
    let shape = BatchShape {
        tokens: n,
        kv,
        context,
        sequences: 1,
        outputs: n,
        cache: task.cache,
        want: wanted(model.hparams()),
        drafts: false,
        predictor: Predictor::Unused,
    };
    let graph = model.graph(&shape)?;
    let inputs = inputs_after(&graph, before, tokens)?;
    Ok((graph, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{OpenOptions, open};
    use crate::compare::CompareOptions;
    use crate::compare::options::PerNode;
    use crate::compare::report::EVERYTHING;
    use crate::isolate::protocol::{NodesTask, Task};
    use crate::synthesize::{self, Shape};
    use ggml_core::DType;

    /// With everything on a device, the host stays available as a fallback, as in every program; a backend of
    /// the host has none.
    #[test]
    fn the_host_stands_by_for_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        synthesize::write(&Shape::small("llama"), 1, &path).unwrap();
        for (name, backends) in [("null", 2), ("cpu", 1), ("reference", 1)] {
            let nodes = NodesTask { mode: PerNode::Off, out: "".into(), ..NodesTask::default() };
            let task = ModelTask {
                model: (&path).into(),
                tokens: vec![1],
                predict: 1,
                given: Vec::new(),
                cache: DType::F16,
                offload: EVERYTHING,
                logits: "".into(),
                nodes,
                text: None,
            };
            let options = CompareOptions::default();
            let work = options.child_work(&name.parse().unwrap(), Task::Model(task.clone()));
            let backend = open(name, &OpenOptions::default()).unwrap();
            let model = load(&work, &task, backend, &mut |_| ()).unwrap();
            assert_eq!(model.backends().len(), backends, "{name}");
        }
    }
}
