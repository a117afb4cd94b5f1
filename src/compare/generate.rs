//! The child's work on a model: load it, run the prompt, generate, look at nodes.

use super::nodes::{self, Nodes};
use super::options::PerNode;
use super::protocol::{Done, Message, ModelTask, Work};
use crate::backends::BackendName;
use crate::model::{BatchGraph, BatchShape, LoadOptions, Model, ModelFile, Offload, Want};
use crate::npy;
use crate::session::{KV_STEP, SessionOptions, debug_program, greedy, prompt_inputs};
use ggml_core::Result;
use ggml_core::backend::Backend;
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::evaluate::Contents;
use std::sync::Arc;
use std::time::Instant;

/// Does the work. A stepwise run has no results: it has announced the nodes.
pub(super) fn run(
    work: &Work,
    task: &ModelTask,
    backend: Arc<dyn Backend>,
    say: &mut dyn FnMut(Message),
) -> Result<Done> {
    let start = Instant::now();
    let model = load(work, task, backend, say)?;
    let load_s = start.elapsed().as_secs_f64();
    if work.stepwise {
        let (graph, inputs) = node_graph(&model, task)?;
        let program = debug_program(&model, &graph, work.precision, true)?;
        Nodes::new(&graph.graph, program, &inputs)?.locate(say)?;
        return Ok(Done::default());
    }
    let (mut done, logits) = generate(&model, work, task, say)?;
    npy::write(task.logits.as_ref(), task.tokens.len(), model.hparams().vocabulary, &logits)?;
    let what = format!("prompt of {} tokens in {:.3} s", task.tokens.len(), done.prompt_s);
    say(Message::Progress { what });
    for _ in 1..work.repeat {
        let (again, other) = generate(&model, work, task, say)?;
        done.unstable += differences(&logits, &other) + ids_differ(&done.token_ids, &again.token_ids);
    }
    if task.nodes.mode != PerNode::Off {
        say(Message::Progress { what: "node by node".into() });
        let (graph, inputs) = node_graph(&model, task)?;
        let program = |fused| debug_program(&model, &graph, work.precision, fused);
        nodes::look(&graph.graph, &task.nodes, &inputs, &program, say)?;
    }
    done.load_s = load_s;
    done.stats = model.backend().stats();
    Ok(done)
}

/// The model, all of it on the backend or a part; `cpu` computes the rest and what a device cannot.
fn load(
    work: &Work,
    task: &ModelTask,
    backend: Arc<dyn Backend>,
    say: &mut dyn FnMut(Message),
) -> Result<Model> {
    let on_host = work.backend.parse().is_ok_and(|name: BackendName| name.is_host());
    let offload = match usize::try_from(task.offload) {
        Ok(units) => Offload::Layers(units),
        // Nobody stands in for a backend of the host.
        Err(_) if on_host => return Model::load(&task.model, backend),
        Err(_) => Offload::All,
    };
    let host = CpuOptions::default().with_deadlines(backend.deadlines().clone());
    let options = LoadOptions {
        offload,
        host: Some(Arc::new(CpuBackend::open(host)?)),
        session: session_options(work, task),
        ..LoadOptions::default()
    };
    let file = ModelFile::open(&task.model)?;
    let model = Model::load_with(file, backend, &options, &mut |_, _| ())?;
    for fallback in model.fallbacks() {
        say(Message::Warning { what: format!("computed by cpu: {fallback}") });
    }
    Ok(model)
}

/// Elements that are not the same bits.
pub(super) fn differences(a: &[f32], b: &[f32]) -> usize {
    let pairs = a.iter().zip(b).filter(|(x, y)| x.to_bits() != y.to_bits()).count();
    pairs + a.len().abs_diff(b.len())
}

fn ids_differ(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(x, y)| x != y).count()
}

/// Room in the cache: models may depend on it, so node by node there is as much as in the run.
fn context(task: &ModelTask) -> usize {
    (task.tokens.len() + task.predict).max(1).next_multiple_of(KV_STEP)
}

fn session_options(work: &Work, task: &ModelTask) -> SessionOptions {
    SessionOptions {
        context: Some(context(task)),
        cache: Some(task.cache),
        precision: work.precision,
        ..SessionOptions::default()
    }
}

/// The prompt with logits of every token, then greedy generation.
fn generate(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    say: &mut dyn FnMut(Message),
) -> Result<(Done, Vec<f32>)> {
    let mut session = model.session(&session_options(work, task))?;
    say(Message::Step { what: "prompt".into() });
    let start = Instant::now();
    let logits = session.logits(&task.tokens)?;
    let prompt_s = start.elapsed().as_secs_f64();

    let mut row = logits[logits.len() - model.hparams().vocabulary..].to_vec();
    let (mut token_ids, mut margins) = (Vec::new(), Vec::new());
    if task.predict > 1 {
        session.prepare_decode(Want::Logits)?;
    }
    let start = Instant::now();
    for i in 0..task.predict {
        let token = greedy(&row);
        token_ids.push(token);
        margins.push(margin(&row));
        if i + 1 < task.predict {
            say(Message::Step { what: format!("decode step {}", i + 1) });
            row = session.decode(token)?;
        }
    }
    let eval_s = start.elapsed().as_secs_f64();
    Ok((Done { prompt_s, eval_s, token_ids, margins, ..Done::default() }, logits))
}

/// Distance between the two largest values.
fn margin(row: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &x in row {
        if x > first {
            (first, second) = (x, first);
        } else if x > second {
            second = x;
        }
    }
    first - second
}

/// The prompt's graph as one batch, with logits of every token, and its inputs.
fn node_graph(model: &Model, task: &ModelTask) -> Result<(BatchGraph, Contents)> {
    let n = task.tokens.len();
    let (context, cache) = (context(task), task.cache);
    let want = Want::Logits;
    let shape = BatchShape { tokens: n, kv: n, context, sequences: 1, outputs: n, cache, want };
    let graph = model.file().graph(&shape)?;
    let inputs = prompt_inputs(&graph, &task.tokens)?;
    Ok((graph, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{OpenOptions, open};
    use crate::compare::CompareOptions;
    use crate::compare::protocol::{NodesTask, Task};
    use crate::compare::report::EVERYTHING;
    use crate::synthesize::{self, Shape};
    use ggml_core::DType;

    /// Everything on a device means what it means in every program: the host stands by for what the device cannot do.
    #[test]
    fn the_host_stands_by_for_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        synthesize::write(&Shape::small("llama"), 1, &path).unwrap();
        for (name, backends) in [("null", 2), ("cpu", 1), ("reference", 1)] {
            let nodes = NodesTask { mode: PerNode::Off, out: "".into(), reference: None, alone: false };
            let task = ModelTask {
                model: (&path).into(),
                tokens: vec![1],
                predict: 1,
                cache: DType::F16,
                offload: EVERYTHING,
                logits: "".into(),
                nodes,
            };
            let options = CompareOptions::default();
            let work = Work::new(&options, &name.parse().unwrap(), Task::Model(task.clone()));
            let backend = open(name, &OpenOptions::default()).unwrap();
            let model = load(&work, &task, backend, &mut |_| ()).unwrap();
            assert_eq!(model.backends().len(), backends, "{name}");
        }
    }

    #[test]
    fn bits_are_compared() {
        assert_eq!(differences(&[1.0, f32::NAN, -0.0], &[1.0, f32::NAN, -0.0]), 0);
        assert_eq!(differences(&[1.0, 2.0, -0.0], &[1.0, 2.0f32.next_up(), 0.0]), 2);
        assert_eq!(differences(&[1.0, 2.0], &[1.0]), 1);
    }
}
