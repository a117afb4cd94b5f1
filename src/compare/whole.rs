//! The parent's part in work that is one graph: a model or a graph file.

use super::judge::{self, Measure};
use super::options::{CompareOptions, Event, PerNode, Progress};
use super::protocol::{GraphTask, ModelTask, NodesTask, Task, Work};
use super::report::{EVERYTHING, Report, label};
use super::{again, failing, files, nodes, parent};
use crate::backends::BackendName;
use crate::model::{ModelFile, Offload};
use crate::session::default_cache;
use crate::synthesize::{self, Shape};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use ggml_core::graph::file::GraphFile;
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Result, evaluate};
use std::path::{Path, PathBuf};

pub(super) fn compare_model(
    path: Option<&Path>,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let model = prepare_model(path, options)?;
    run_model(&model, options, report, progress)?;
    again::look(&model, options, report, progress)?;
    failing::of_model(&model, options, report, progress)
}

/// Runs a model on all backends and compares them.
pub(super) fn run_model(
    model: &Path,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let file = ModelFile::open(model)?;
    let tokens = prompt(options, &file)?;
    let quantised = nodes::has_quantised_weights(file.gguf());
    drop(file);
    let cache = cache(options);
    report.cache = Some(cache.name().into());
    run_all(options, report, progress, &options.offload, &|backend, offload, given| {
        Task::Model(ModelTask {
            model: model.into(),
            tokens: tokens.clone(),
            predict: options.predict,
            given: given.into(),
            cache,
            offload,
            logits: files::logits(&options.out, backend, offload).into(),
            nodes: nodes_task(options, backend, offload),
        })
    })?;
    judge::judge(report, options, &Measure::logits(options.precision, quantised));
    Ok(())
}

/// Type of the cache on every backend.
pub(super) fn cache(options: &CompareOptions) -> DType {
    options.cache.unwrap_or_else(|| default_cache(options.precision))
}

pub(super) fn compare_graph(
    path: &Path,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let file = GraphFile::load(path)?;
    evaluate::check(&file.graph, &file.data)?;
    if file.graph.outputs().is_empty() {
        return Err(Error::model("outputs", 0, "at least one").with_path(path));
    }
    run_all(options, report, progress, &[Offload::All], &|backend, offload, _| {
        Task::Graph(GraphTask { graph: path.into(), nodes: nodes_task(options, backend, offload) })
    })?;
    judge::judge(report, options, &Measure::outputs(options.precision, &file.graph));
    Ok(())
}

/// One child for each backend and each part of the model on it, one after the other, into an empty place: what a child
/// leaves there is its own. The others' tasks are given the reference's tokens.
fn run_all(
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
    offload: &[Offload],
    task: &dyn Fn(&str, i64, &[u32]) -> Task,
) -> Result<()> {
    let runs = runs(options, offload);
    for (backend, offload) in &runs {
        let name = backend.to_string();
        files::remove(&files::logits(&options.out, &name, *offload))?;
        let nodes = files::nodes(&options.out, &name, *offload);
        files::remove(&nodes)?;
        files::remove(&files::of_step(&nodes))?;
    }
    for (backend, offload) in &runs {
        let given = report.records.first().map_or(&[][..], |reference| &reference.token_ids);
        let work = Work::new(options, backend, task(&backend.to_string(), *offload, given));
        let name = label(&work.backend, *offload);
        progress(&Event::new(&name, "running"));
        let outcome = parent::run_child(&work, &options.out, progress)?;
        progress(&Event::new(&name, outcome.record.status));
        report.add_backend(outcome.backend);
        report.records.push(outcome.record);
    }
    Ok(())
}

/// The runs in their order: the reference with the whole model first. Backends of the host have nothing to divide.
fn runs(options: &CompareOptions, offload: &[Offload]) -> Vec<(BackendName, i64)> {
    let mut runs = vec![(options.reference.clone(), EVERYTHING)];
    for backend in options.order() {
        for offload in offload {
            let number = match offload {
                Offload::Layers(n) if !backend.is_host() => i64::try_from(*n).unwrap_or(EVERYTHING),
                Offload::None if !backend.is_host() => 0,
                _ => EVERYTHING,
            };
            if !runs.contains(&(backend.clone(), number)) {
                runs.push((backend.clone(), number));
            }
        }
    }
    runs
}

/// The reference runs its nodes one after the other; the others may be given its results.
pub(super) fn nodes_task(options: &CompareOptions, backend: &str, offload: i64) -> NodesTask {
    let reference = options.reference.to_string();
    let is_reference = backend == reference && offload == EVERYTHING;
    let isolated = options.per_node == PerNode::Isolated && !is_reference;
    NodesTask {
        mode: match options.per_node {
            PerNode::Isolated if !isolated => PerNode::Chained,
            mode => mode,
        },
        out: files::nodes(&options.out, backend, offload).into(),
        reference: isolated.then(|| files::nodes(&options.out, &reference, EVERYTHING).into()),
        alone: is_reference,
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

pub(super) fn prompt(options: &CompareOptions, file: &ModelFile) -> Result<Vec<u32>> {
    let hparams = file.hparams();
    let vocabulary = hparams.vocabulary;
    let tokens = match (&options.prompt, &options.tokens) {
        (Some(text), _) => Tokenizer::from_gguf(file.gguf())?.encode(text, &EncodeOptions::default()),
        (None, Some(tokens)) => tokens.clone(),
        (None, None) => {
            let mut rng = Rng::named("prompt", options.seed);
            (0..32).map(|_| rng.below(vocabulary) as u32).collect()
        }
    };
    if tokens.is_empty() {
        return Err(Error::argument("tokens", 0, "at least one"));
    }
    if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
        return Err(Error::argument("token id", bad, format!("one of a vocabulary of {vocabulary}")));
    }
    let needed = tokens.len().saturating_add(options.predict);
    if needed > hparams.context {
        let found = format!("{needed} positions are needed");
        return Err(Error::argument("context", found, format!("at most the model's {}", hparams.context)));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_runs_first_and_the_host_once() {
        let names = |names: &[&str]| names.iter().map(|n| n.parse().unwrap()).collect::<Vec<BackendName>>();
        let options =
            CompareOptions { backends: names(&["vulkan", "cpu", "null"]), ..CompareOptions::default() };
        let offload = [Offload::None, Offload::Layers(2), Offload::All, Offload::Layers(2)];
        let runs: Vec<String> =
            runs(&options, &offload).iter().map(|(b, offload)| format!("{b} {offload}")).collect();
        let wanted =
            ["reference -1", "vulkan 0", "vulkan 2", "vulkan -1", "cpu -1", "null 0", "null 2", "null -1"];
        assert_eq!(runs, wanted);
    }
}
