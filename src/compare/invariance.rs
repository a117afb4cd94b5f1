//! Invariance: the same prompt computed by other methods on one backend. The logits must not change, except
//! for the rounding of kernels that are selected by the number of tokens, or that compute the members of a
//! group one by one.

use super::loaded::{load, prompt_graph, rows, session_options, wanted};
use super::nodes::has_quantised_weights;
use super::report::{EVERYTHING, Variant};
use crate::backends::BackendName;
use crate::isolate::protocol::{Message, ModelTask, Work};
use crate::model::Model;
use crate::session::{Item, debug_program};
use ggml_core::backend::{Backend, Usage};
use ggml_core::bound;
use ggml_core::evaluate::write_inputs;
use ggml_core::metrics::Bound;
use ggml_core::metrics::distance_in_rows;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Tokens of a batch; not a multiple of the number that kernels process together.
const ODD: usize = 7;

/// Bytes allocated before a model is loaded again, so that all of its memory has other addresses.
const BALLAST: usize = (1 << 20) + 4096;

/// Computes the prompt by every method. `logits` are the logits of its tokens in one batch.
pub(super) fn variants(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    logits: &[f32],
    send: &mut dyn FnMut(Message),
) -> Result<Vec<Variant>> {
    let h = model.hparams();
    let n = wanted(h).width(h);
    let rounds = bound::of_graph(work.precision, has_quantised_weights(model.file().gguf()));
    // These variants run the same kernels with the same operands.
    let same = Bound::default();
    let methods = Methods { model, work, task };
    let mut variants = Vec::new();
    let mut add = |name: &str, bound: Bound, got: Result<Vec<f32>>| -> Result<()> {
        send(Message::Progress { what: name.into() });
        let got = got?;
        // Some methods return the logits after the last token only.
        let wanted = logits.get(logits.len().saturating_sub(got.len())..).unwrap_or(&[]);
        let d = distance_in_rows(&got, wanted, n);
        variants.push(Variant {
            name: name.into(),
            nmse: d.nmse,
            row: d.row,
            bound,
            changed: !bound.holds(&d),
        });
        Ok(())
    };
    let in_other_memory = || {
        let _ballast = model.backend().allocate(BALLAST, Usage::State)?;
        methods.batches(&methods.reload(task.offload)?, task.tokens.len())
    };
    add("memory elsewhere", same, in_other_memory())?;
    add("each step alone", same, methods.each_step_separately())?;
    if !work.invariance {
        return Ok(variants);
    }
    // All tokens of a text are computed together unless the attention is causal, and hidden states are of one text.
    if h.output {
        add("batches of 7 tokens", rounds, methods.batches(model, ODD))?;
        add("one token at a time", rounds, methods.batches(model, 1))?;
        add("two sequences", rounds, methods.two_sequences())?;
    }
    add("node by node", rounds, methods.step_by_step(false))?;
    add("step by step", rounds, methods.step_by_step(true))?;
    if !work.backend.parse().is_ok_and(|name: BackendName| name.is_host()) {
        for offload in [0, 1, EVERYTHING].into_iter().filter(|offload| *offload != task.offload) {
            let name = format!("offload {offload}");
            let divided = || methods.batches(&methods.reload(offload)?, task.tokens.len());
            add(&name, rounds, divided())?;
        }
    }
    Ok(variants)
}

/// The inputs that all methods share.
struct Methods<'a> {
    model: &'a Model,
    work: &'a Work,
    task: &'a ModelTask,
}

impl Methods<'_> {
    /// Loads the model once more.
    fn reload(&self, offload: i64) -> Result<Model> {
        let backend: Arc<dyn Backend> = self.model.backend().clone();
        load(self.work, &ModelTask { offload, ..self.task.clone() }, backend, &mut |_| ())
    }

    fn batches(&self, model: &Model, size: usize) -> Result<Vec<f32>> {
        let mut session = model.session(&session_options(self.work, self.task))?;
        let mut logits = Vec::new();
        for tokens in self.task.tokens.chunks(size) {
            logits.extend(rows(&mut session, tokens)?);
        }
        Ok(logits)
    }

    /// Computes another prompt in the same batch.
    fn two_sequences(&self) -> Result<Vec<f32>> {
        let options = session_options(self.work, self.task).with_sequences(2);
        let mut session = self.model.session(&options)?;
        let tokens = &self.task.tokens;
        let other: Vec<u32> = tokens.iter().rev().copied().collect();
        let items = [Item { sequence: 0, tokens: &other }, Item { sequence: 1, tokens }];
        let missing = || Error::argument("batch", "no logits of a sequence", "a row of each");
        session.batch(&items)?.pop().ok_or_else(missing)
    }

    /// Runs the program as it ships, but submits and waits for each of its steps separately.
    fn each_step_separately(&self) -> Result<Vec<f32>> {
        let mut session = self.model.session(&session_options(self.work, self.task))?;
        session.rows_step_by_step(&self.task.tokens, wanted(self.model.hparams()))
    }

    /// Submits and waits for each step separately, with fused groups or node by node, and retains every
    /// result.
    fn step_by_step(&self, fused: bool) -> Result<Vec<f32>> {
        let (graph, inputs) = prompt_graph(self.model.file(), self.task)?;
        let (mut program, steps) = debug_program(self.model, &graph, self.work.precision, fused)?;
        write_inputs(program.as_mut(), &graph.graph, &inputs)?;
        for step in 0..steps.len() {
            program.run_step(step)?;
        }
        let mut logits = vec![0f32; graph.graph.tensor(graph.logits).elements()];
        program.read(graph.logits, bytemuck::cast_slice_mut(&mut logits))?;
        Ok(logits)
    }
}
