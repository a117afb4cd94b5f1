//! Measurement of the time of each step of a batch.

use super::append::Item;
use super::prepared::{NamedStep, timed_program};
use super::{Session, Want};
use crate::model::BatchGraph;
use ggml_core::backend::{Program, Timing};
use ggml_core::cost::Work;
use ggml_core::{Error, Result, TensorId};
use serde::Serialize;
use std::collections::HashMap;

/// Step of a program and its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfiledStep {
    /// Operation, or kind of group.
    pub kind: &'static str,
    /// Node that names the step.
    pub node: String,
    /// Unit: "embedding", "layer 0", "output".
    pub unit: String,
    /// Seconds: median of all passes.
    pub seconds: f64,
    /// Floating-point operations.
    pub flops: f64,
    /// Minimum bytes read and written: each operand and result once.
    pub bytes: f64,
}

/// Time of a batch, as a whole and step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Number of tokens of the batch.
    pub tokens: usize,
    /// Positions that attention reads.
    pub positions: usize,
    /// True if the seconds are the device's; otherwise they are the host's, waiting included.
    pub on_device: bool,
    /// Seconds of a run of all steps in normal operation: median of all passes.
    pub whole: f64,
    /// Steps in execution order. Each is submitted and waited for individually, so their sum is larger than
    /// the whole: steps do not overlap, and each has its own start and end overhead.
    pub steps: Vec<ProfiledStep>,
}

/// Returns the seconds of one run: the device's if it measures them.
fn seconds(timing: Timing) -> f64 {
    timing.device.unwrap_or(timing.host).as_secs_f64()
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

impl Session {
    /// Measures the steps of the batch that would append `tokens` to sequence 0: `passes` times step by step,
    /// and as many times the whole batch as in normal operation. Sequence 0 is left unchanged, see
    /// [`Session::truncate`] for recurrent state.
    ///
    /// # Errors
    /// Errors of [`Session::batch`]; [`Error::InvalidArgument`] for more tokens than a batch has
    /// ([`SessionOptions::batch`](super::SessionOptions::batch)), and for no passes.
    pub fn profile(&mut self, tokens: &[u32], want: Want, passes: usize) -> Result<Profile> {
        if tokens.len() > self.batch || passes == 0 {
            let found = format!("{passes} passes of {} tokens", tokens.len());
            return Err(Error::argument(
                "profile",
                found,
                format!("at most {} tokens, and at least one pass", self.batch),
            ));
        }
        let items = [Item { sequence: 0, tokens }];
        self.check(&items)?;
        self.catch_up(0)?;
        self.keep_checkpoint(0)?;
        let position = self.position();
        self.placed.clear();
        self.cells.append(0, tokens, &mut self.placed);
        self.outputs.clear();
        self.outputs.push(tokens.len() - 1);
        let profile = self.profile_placed(want, passes);
        let back = self.truncate(0, position);
        profile.and_then(|profile| back.map(|()| profile))
    }

    /// Returns the logits after each of these tokens, appended to sequence 0. The program is the one of
    /// normal operation, but each step is submitted and waited for individually. Sequence 0 is left as
    /// [`Session::profile`] leaves it.
    #[cfg(feature = "compare")]
    pub(crate) fn rows_step_by_step(&mut self, tokens: &[u32], want: Want) -> Result<Vec<f32>> {
        let items = [Item { sequence: 0, tokens }];
        self.check(&items)?;
        self.catch_up(0)?;
        self.keep_checkpoint(0)?;
        let (model, position) = (self.model.clone(), self.position());
        self.results.begin(want, model.hparams());
        self.cells.extend(0, tokens);
        while self.cells.owed(0) > 0 {
            self.place_batch(&items, true);
            let shape = self.shape(self.placed.len(), self.outputs.len(), want);
            let graph = model.file().graph(&shape)?;
            let (mut program, steps) =
                timed_program(&model, &graph, &self.state, &mut self.compute, self.precision)?;
            self.write_inputs(&graph, program.as_mut())?;
            (0..steps.len()).try_for_each(|step| program.run_step(step).map(|_| ()))?;
            self.results.read(&graph, &self.outputs, &mut |id, out| program.read(id, out))?;
        }
        self.truncate(0, position)?;
        Ok(self.rows().values().to_vec())
    }

    fn profile_placed(&mut self, want: Want, passes: usize) -> Result<Profile> {
        let (tokens, outputs) = (self.placed.len(), self.outputs.len().max(1));
        let index = self.program(tokens, outputs, want)?;
        let graph = self.programs[index].graph().clone();
        let mut whole = Vec::with_capacity(passes);
        for pass in 0..=passes {
            let timing = self.run_program(index)?;
            if pass > 0 {
                whole.push(seconds(timing));
            }
        }
        let (mut program, steps) =
            timed_program(&self.model, &graph, &self.state, &mut self.compute, self.precision)?;
        let mut on_device = true;
        let mut samples = vec![Vec::with_capacity(passes); steps.len()];
        for pass in 0..=passes {
            self.write_inputs(&graph, program.as_mut())?;
            for (step, samples) in samples.iter_mut().enumerate() {
                let timing = program.run_step(step)?;
                if pass > 0 {
                    on_device &= timing.device.is_some() || timing == Timing::default();
                    samples.push(seconds(timing));
                }
            }
        }
        let names: HashMap<&str, TensorId> =
            graph.graph.ids().map(|id| (graph.graph.tensor(id).name.as_str(), id)).collect();
        let profiled = steps.into_iter().zip(&mut samples);
        let steps = profiled.map(|(step, samples)| ProfiledStep::new(&graph, &names, step, median(samples)));
        let positions = graph.shape.kv;
        Ok(Profile { tokens, positions, on_device, whole: median(&mut whole), steps: steps.collect() })
    }

    fn write_inputs(&mut self, graph: &BatchGraph, program: &mut dyn Program) -> Result<()> {
        let mut write = |id, bytes: &[u8]| program.write(id, bytes);
        self.inputs.write(graph, &self.placed, &self.outputs, &self.cells, &mut write)
    }
}

impl ProfiledStep {
    fn new(
        graph: &BatchGraph,
        names: &HashMap<&str, TensorId>,
        step: NamedStep,
        seconds: f64,
    ) -> ProfiledStep {
        let NamedStep { kind, mut nodes, work: Work { flops, bytes }, .. } = step;
        let node = nodes.pop().unwrap_or_default();
        let unit = names.get(node.as_str()).map_or(0, |&id| graph.unit_of(id));
        ProfiledStep { kind, node, unit: graph.unit_name(unit), seconds, flops, bytes }
    }
}
