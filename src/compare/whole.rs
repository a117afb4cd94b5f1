//! The parent's part in work that is one graph: a model or a graph file.

use super::judge::{self, Measure};
use super::protocol::{GraphTask, ModelTask, NodesTask, PerNode, Task};
use super::report::Report;
use super::{CompareOptions, Event, Progress, graph, logits_path, nodes, nodes_path, order, parent, work};
use crate::backends::BackendName;
use crate::model::ModelFile;
use crate::synthesize::{self, Shape};
use ggml_core::graph::file::GraphFile;
use ggml_core::rng::Rng;
use ggml_core::{Error, Result};
use std::path::{Path, PathBuf};

pub(super) fn compare_model(
    path: Option<&Path>,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let model = prepare_model(path, options)?;
    let file = ModelFile::open(&model)?;
    let tokens = prompt(options, &file)?;
    let quantised = nodes::has_quantised_weights(file.gguf());
    drop(file);
    run_all(options, report, progress, &|backend| {
        Task::Model(ModelTask {
            model: model.clone(),
            tokens: tokens.clone(),
            predict: options.predict,
            logits: logits_path(&options.out, backend),
            nodes: nodes_task(options, backend),
        })
    })?;
    judge::judge(report, options, &Measure::logits(options.precision, quantised))
}

pub(super) fn compare_graph(
    path: &Path,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let file = GraphFile::load(path)?;
    if let Some(name) = graph::missing_leaf(&file) {
        return Err(Error::model(format!("leaf '{name}' has no contents")).with_path(path));
    }
    if file.graph.outputs().is_empty() {
        return Err(Error::model("has no output").with_path(path));
    }
    run_all(options, report, progress, &|backend| {
        Task::Graph(GraphTask { graph: path.into(), nodes: nodes_task(options, backend) })
    })?;
    judge::judge(report, options, &Measure::outputs(options.precision, &file.graph))
}

/// One child for each backend, one after the other.
fn run_all(
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
    task: &dyn Fn(&BackendName) -> Task,
) -> Result<()> {
    for backend in &order(options) {
        progress(&Event::new(backend, "running"));
        let work = work(options, backend, task(backend));
        let outcome = parent::run_child(&work, &options.out, progress)?;
        progress(&Event::new(backend, outcome.record.status));
        report.backends.push(outcome.backend);
        report.records.push(outcome.record);
    }
    Ok(())
}

/// The reference runs its nodes one after the other; the others may be given its results.
fn nodes_task(options: &CompareOptions, backend: &BackendName) -> NodesTask {
    let isolated = options.per_node == PerNode::Isolated && *backend != options.reference;
    NodesTask {
        mode: match options.per_node {
            PerNode::Isolated if !isolated => PerNode::Chained,
            mode => mode,
        },
        out: nodes_path(&options.out, backend),
        reference: isolated.then(|| nodes_path(&options.out, &options.reference)),
    }
}

/// The model's path, after the file has been checked, or that of the default model, after it has been written.
fn prepare_model(path: Option<&Path>, options: &CompareOptions) -> Result<PathBuf> {
    let path = match path {
        Some(path) => path.into(),
        None => {
            let path = options.out.join("model.gguf");
            synthesize::write(&Shape::small("qwen3"), options.seed, &path)?;
            path
        }
    };
    Ok(path)
}

fn prompt(options: &CompareOptions, file: &ModelFile) -> Result<Vec<u32>> {
    let hparams = file.hparams();
    let vocabulary = hparams.vocabulary;
    let tokens = match &options.tokens {
        Some(tokens) => tokens.clone(),
        None => {
            let mut rng = Rng::named("prompt", options.seed);
            (0..32).map(|_| rng.below(vocabulary) as u32).collect()
        }
    };
    if tokens.is_empty() {
        return Err(Error::argument("tokens", "there must be at least one"));
    }
    if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
        return Err(Error::argument("token id", format!("{bad} is outside the vocabulary of {vocabulary}")));
    }
    let needed = tokens.len() + options.predict;
    if needed > hparams.context {
        let why = format!("{needed} positions are needed, the model's context has {}", hparams.context);
        return Err(Error::argument("context", why));
    }
    Ok(tokens)
}
