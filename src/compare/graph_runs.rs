//! The parent's part of work on one graph: a model or a graph file.

use super::header::{Header, Planned};
use super::judge::{self, Measure};
use super::options::{CompareOptions, Event, PerNode, Progress};
use super::report::{EVERYTHING, PROMPT_HASH, Report, Status, label};
use super::{doubt, files, nodes};
use crate::backends::BackendName;
use crate::isolate::json::JsonPath;
use crate::isolate::parent::Children;
use crate::isolate::protocol::{Doubtful, GraphTask, Message, ModelTask, NodesTask, Task, TextTask, Work};
use crate::isolate::recorder::ChildOutcome;
use crate::model::{ModelFile, Offload};
use crate::perplexity::{PerplexityOptions, chunks};
use crate::session::default_cache;
use crate::synthesize::{self, Shape};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use ggml_core::graph::file::GraphFile;
use ggml_core::hash::Fnv1a;
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Result, evaluate};
use std::path::{Path, PathBuf};

/// Checks the work on a model and builds the header of the run.
pub(super) fn plan_model(path: Option<&Path>, options: &CompareOptions) -> Result<Header> {
    let model = prepare_model(path, options)?;
    let file = ModelFile::open(&model)?;
    let text = text(options, &file)?;
    let tokens = prompt(options, text.as_ref().and_then(|text| text.chunks.first()), &file)?;
    let (quantised, output) = (nodes::has_quantised_weights(file.gguf()), file.hparams().output);
    let cache = options.cache.unwrap_or_else(|| default_cache(options.precision));
    let mut report = Report::new(options);
    report.settings.extend(settings(&file, &tokens, text.as_ref(), predict(options, &file), cache)?);
    Ok(Header {
        report: Report {
            cache: Some(cache.name().into()),
            text: text.as_ref().map(|text| describe(text, options)),
            left_out: file.left_out().to_vec(),
            ..report
        },
        options: options.clone(),
        measure: Some(Measure::of_model(options.precision, quantised, output)),
        task: Task::Model(ModelTask {
            model: model.into(),
            tokens,
            predict: predict(options, &file),
            given: Vec::new(),
            cache,
            offload: EVERYTHING,
            logits: "".into(),
            nodes: NodesTask::default(),
            text,
        }),
        runs: runs(options, &options.offload),
        resumed_by: Vec::new(),
    })
}

/// Checks the work on a graph file and builds the header of the run.
pub(super) fn plan_graph(path: &Path, options: &CompareOptions) -> Result<Header> {
    let file = GraphFile::load(path)?;
    evaluate::check(&file.graph, &file.data)?;
    if file.graph.outputs().is_empty() {
        return Err(Error::model("outputs", 0, "at least one").with_path(path));
    }
    Ok(Header {
        report: Report::new(options),
        options: options.clone(),
        measure: Some(Measure::outputs(options.precision, &file.graph)),
        task: Task::Graph(GraphTask { graph: path.into(), nodes: NodesTask::default() }),
        runs: runs(options, &[Offload::All]),
        resumed_by: Vec::new(),
    })
}

/// Runs one child for each planned run, one after the other, then judges the results.
pub(super) fn run(header: &Header, children: &mut Children, progress: Progress<'_>) -> Result<Report> {
    let options = &header.options;
    let mut report = header.report.clone();
    for run in header.runs.iter().filter(|run| children.starts(&run.stem())) {
        remove_results(header, run)?;
    }
    if children.starts(doubt::STEM) {
        let rounding = doubt::path(&options.out);
        files::remove(&rounding)?;
        files::remove(&files::of_step(&rounding))?;
    }
    for run in &header.runs {
        let backend = run.backend.parse()?;
        let work = Work { epoch: run.epoch, ..options.child_work(&backend, task(header, run, &report)) };
        let starts = children.starts(&run.stem());
        let name = label(&run.backend, run.offload);
        let mut report_progress = |what: &dyn std::fmt::Display| {
            if starts {
                progress(&Event::new(&name, what));
            }
        };
        report_progress(&match options.epochs {
            1 => "running".to_string(),
            n => format!("running, epoch {} of {n}", run.epoch + 1),
        });
        let Some(outcome) = run_child(&work, &run.stem(), children, &mut report_progress)? else {
            report.missing += 1;
            continue;
        };
        report_progress(&outcome.record.status);
        report.add_backend(outcome.backend);
        report.records.push(outcome.record);
    }
    if let Some(measure) = &header.measure {
        judge::judge(&mut report, options, measure, None);
        let doubtful = judge::doubtful(&report, options);
        if !doubtful.is_empty() {
            let missing = estimate(header, doubtful, &report, children, progress)?;
            judge::judge(&mut report, options, measure, missing.as_deref());
        }
    }
    Ok(report)
}

/// Removes the results of an earlier run, so that existing files are from this run's children.
pub(super) fn remove_results(header: &Header, run: &Planned) -> Result<()> {
    let options = &header.options;
    files::remove(&files::logits(&options.out, &run.stem()))?;
    for path in text_logits(header, run) {
        files::remove(path.as_ref())?;
    }
    let nodes = files::nodes(&options.out, &run.stem());
    files::remove(&nodes)?;
    files::remove(&files::of_step(&nodes))?;
    files::remove(&files::failing(&options.out, &run.stem()))
}

/// Estimates the errors that rounding makes in results that are in doubt. Returns the reason if the estimates are
/// missing: without them these results are out of their bounds.
fn estimate(
    header: &Header,
    doubtful: Vec<Doubtful>,
    report: &Report,
    children: &mut Children,
    progress: Progress<'_>,
) -> Result<Option<String>> {
    let (options, backend) = (&header.options, BackendName::Reference);
    let reference = Planned::new(&options.reference, EVERYTHING, 0);
    let path = doubt::path(&options.out);
    if children.starts(doubt::STEM) {
        progress(&Event::new(&backend, format!("estimating the rounding of {} results", doubtful.len())));
    }
    let mut task = task(header, &reference, report);
    let nodes = NodesTask {
        mode: PerNode::Isolated,
        out: path.into(),
        reference: Some(files::nodes(&options.out, &reference.stem()).into()),
        alone: true,
        doubtful,
    };
    match &mut task {
        Task::Model(task) => task.nodes = nodes,
        Task::Graph(task) => task.nodes = nodes,
        Task::Ops(_) | Task::Trial(_) | Task::Routes(_) | Task::List => {
            return Ok(Some("the work has no graph".into()));
        }
    }
    let outcome = children.run(&options.child_work(&backend, task), doubt::STEM, &mut |_| {})?;
    Ok(match outcome {
        Some(ChildOutcome { record, .. }) if record.status == Status::Ok => None,
        Some(ChildOutcome { record, .. }) => {
            Some(judge::failure(&record).unwrap_or_else(|| record.headline().into()))
        }
        None => Some("the run ended before (--resume continues it)".into()),
    })
}

/// Runs a child and returns its outcome. If the child dies or hangs while it computes and the node is
/// unknown, a second child runs the same graph node by node to find it, unless the first may have stopped the
/// machine.
fn run_child(
    work: &Work,
    stem: &str,
    children: &mut Children,
    report_progress: &mut dyn FnMut(&dyn std::fmt::Display),
) -> Result<Option<ChildOutcome>> {
    let mut receive = |message: &Message| {
        if let Message::Progress { what } = message {
            report_progress(what);
        }
    };
    let Some(mut outcome) = children.run(work, stem, &mut receive)? else { return Ok(None) };
    let record = &mut outcome.record;
    let computing = record.phase.as_deref().is_some_and(|p| p.ends_with("compute"));
    let died = matches!(record.status, Status::Crash | Status::Hang) && outcome.ended;
    if died && computing && record.node.is_none() && record.stuck.is_none() {
        let stem = format!("{stem}.stepwise");
        if children.starts(&stem) {
            report_progress(&"searching for the node");
        }
        let stepwise = Work { stepwise: true, ..work.clone() };
        record.node = children.run(&stepwise, &stem, &mut |_| {})?.and_then(|found| found.record.node);
    }
    Ok(Some(outcome))
}

/// Builds the task of a run. All runs continue with the tokens of the first run, the reference's.
pub(super) fn task(header: &Header, run: &Planned, report: &Report) -> Task {
    let (options, stem) = (&header.options, run.stem());
    let nodes = nodes_task(options, run);
    match &header.task {
        Task::Model(task) => Task::Model(ModelTask {
            offload: run.offload,
            logits: files::logits(&options.out, &stem).into(),
            nodes,
            given: report.records.first().map_or_else(Vec::new, |reference| reference.token_ids.clone()),
            text: task.text.clone().map(|text| TextTask { logits: text_logits(header, run), ..text }),
            ..task.clone()
        }),
        Task::Graph(task) => Task::Graph(GraphTask { nodes, ..task.clone() }),
        Task::Ops(_) | Task::Trial(_) | Task::Routes(_) | Task::List => header.task.clone(),
    }
}

/// Returns the paths of a run's logits of each chunk of the text; none without a text.
fn text_logits(header: &Header, run: &Planned) -> Vec<JsonPath> {
    let chunks = match &header.task {
        Task::Model(task) => task.text.as_ref().map_or(0, |text| text.chunks.len()),
        _ => 0,
    };
    (0..chunks).map(|i| files::text(&header.options.out, &run.stem(), i).into()).collect()
}

/// Lists the runs in their order. The reference with the whole model is first. The `reference` backend runs
/// in the first epoch only, because its results do not vary. Backends of the host run once per epoch, because
/// their model cannot be divided.
fn runs(options: &CompareOptions, offload: &[Offload]) -> Vec<Planned> {
    let mut runs = vec![Planned::new(&options.reference, EVERYTHING, 0)];
    for epoch in 0..options.epochs {
        for backend in options.order() {
            for offload in offload {
                let number = match offload {
                    Offload::Layers(n) if !backend.is_host() => i64::try_from(*n).unwrap_or(EVERYTHING),
                    Offload::None if !backend.is_host() => 0,
                    _ => EVERYTHING,
                };
                let run = Planned::new(&backend, number, epoch);
                if !runs.contains(&run) && (epoch == 0 || backend != BackendName::Reference) {
                    runs.push(run);
                }
            }
        }
    }
    runs
}

/// Builds the request for node results: the reference computes its nodes one after the other; in isolated
/// mode the others get its results.
fn nodes_task(options: &CompareOptions, run: &Planned) -> NodesTask {
    let reference = Planned::new(&options.reference, EVERYTHING, 0);
    let isolated = options.per_node == PerNode::Isolated && *run != reference;
    NodesTask {
        mode: match options.per_node {
            PerNode::Isolated if !isolated => PerNode::Chained,
            mode => mode,
        },
        out: files::nodes(&options.out, &run.stem()).into(),
        reference: isolated.then(|| files::nodes(&options.out, &reference.stem()).into()),
        alone: *run == reference,
        doubtful: Vec::new(),
    }
}

/// Returns the model's path; without one, writes the default model and returns its path.
fn prepare_model(path: Option<&Path>, options: &CompareOptions) -> Result<PathBuf> {
    let path = match path {
        Some(path) => path.into(),
        None => {
            let path = files::model(&options.out);
            // The writer replaces what a link names.
            files::remove(&path)?;
            synthesize::write(&Shape::small("qwen3"), options.seed, &path)?;
            path
        }
    };
    Ok(path)
}

/// Reads the text and cuts it into chunks; `None` if there is none.
fn text(options: &CompareOptions, file: &ModelFile) -> Result<Option<TextTask>> {
    let chunks = match (&options.text_chunks, &options.text) {
        (Some(chunks), _) => chunks.clone(),
        (None, Some(path)) => {
            let text = std::fs::read(path).map_err(|e| Error::io(path, e))?;
            let cut = PerplexityOptions::default().with_chunk(options.chunk).with_chunks(options.chunks);
            chunks(file, &text, &cut)?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(TextTask { chunks, logits: Vec::new() }))
}

/// Describes the scored part of a text.
fn describe(text: &TextTask, options: &CompareOptions) -> String {
    let path = options.text.as_ref().map_or("text".into(), |path| path.display().to_string());
    let length = text.chunks.first().map_or(0, Vec::len);
    match text.chunks.len() {
        1 => format!("{path}: the second half of its first chunk of {length} tokens"),
        n => format!("{path}: the second halves of its first {n} chunks of {length} tokens"),
    }
}

/// Returns the types of a model's weights with their shares of the bytes, the largest first: "Q4_K 81 %, Q6_K 19 %".
fn types(file: &ModelFile) -> String {
    let mut types: Vec<(&str, u64)> = Vec::new();
    for tensor in file.gguf().tensors() {
        let name = tensor.dtype.name();
        match types.iter_mut().find(|(known, _)| *known == name) {
            Some((_, bytes)) => *bytes += tensor.bytes as u64,
            None => types.push((name, tensor.bytes as u64)),
        }
    }
    types.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
    let all = types.iter().map(|(_, bytes)| bytes).sum::<u64>().max(1);
    let shares =
        types.iter().map(|(name, bytes)| format!("{name} {:.0} %", 100.0 * *bytes as f64 / all as f64));
    shares.collect::<Vec<_>>().join(", ")
}

/// Returns what the work on a model depends on, by name.
fn settings(
    file: &ModelFile,
    tokens: &[u32],
    text: Option<&TextTask>,
    predict: usize,
    cache: DType,
) -> Result<impl Iterator<Item = (String, String)>> {
    let mut prompt = Fnv1a::default();
    let chunks = text.map_or(&[][..], |text| &text.chunks);
    tokens.iter().chain(chunks.iter().flatten()).for_each(|token| prompt.update(&token.to_le_bytes()));
    let settings = [
        ("model", format!("{:016x}", file.identity()?)),
        ("architecture", file.hparams().architecture.to_string()),
        ("types", types(file)),
        ("bytes", file.gguf().tensors().iter().map(|t| t.bytes as u64).sum::<u64>().to_string()),
        (PROMPT_HASH, format!("{:016x}", prompt.finish())),
        ("prompt tokens", tokens.len().to_string()),
        ("chunks", chunks.len().to_string()),
        ("predict", predict.to_string()),
        ("cache", cache.name().into()),
    ];
    Ok(settings.into_iter().map(|(name, value)| (name.to_string(), value)))
}

/// Returns the number of tokens to generate: none without an output layer.
fn predict(options: &CompareOptions, file: &ModelFile) -> usize {
    if file.hparams().output { options.predict } else { 0 }
}

/// Returns the tokens of the prompt: the first chunk of the text, or those of the options.
fn prompt(options: &CompareOptions, chunk: Option<&Vec<u32>>, file: &ModelFile) -> Result<Vec<u32>> {
    let hparams = file.hparams();
    let vocabulary = hparams.vocabulary;
    let tokens = match (chunk.or(options.tokens.as_ref()), &options.prompt) {
        (_, Some(text)) => Tokenizer::from_gguf(file.gguf())?.encode(text, &EncodeOptions::default()),
        (Some(tokens), None) => tokens.clone(),
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
    let needed = tokens.len().saturating_add(predict(options, file));
    if needed > hparams.context {
        let found = format!("{needed} positions are needed");
        return Err(Error::argument("context", found, format!("at most the model's {}", hparams.context)));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(epochs: usize) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|n| n.parse().unwrap()).collect::<Vec<BackendName>>();
        let backends = names(&["vulkan", "cpu", "null"]);
        let options = CompareOptions { backends, epochs, ..CompareOptions::default() };
        let offload = [Offload::None, Offload::Layers(2), Offload::All, Offload::Layers(2)];
        runs(&options, &offload).iter().map(|r| format!("{} {} {}", r.backend, r.offload, r.epoch)).collect()
    }

    #[test]
    fn the_reference_runs_first_and_the_host_once() {
        let wanted = [
            "reference -1 0",
            "vulkan 0 0",
            "vulkan 2 0",
            "vulkan -1 0",
            "cpu -1 0",
            "null 0 0",
            "null 2 0",
            "null -1 0",
        ];
        assert_eq!(plan(1), wanted);
    }

    /// All runs of an epoch precede those of the next.
    #[test]
    fn epochs_are_interleaved() {
        let (once, thrice) = (plan(1), plan(3));
        assert_eq!(thrice.len(), once.len() + 2 * (once.len() - 1));
        let epoch = |run: &String| run.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
        assert!(thrice.is_sorted_by_key(epoch));
        assert_eq!(thrice.iter().filter(|run| run.starts_with("reference")).count(), 1);
    }
}
