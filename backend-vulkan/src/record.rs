//! Recording of a lowered graph into command buffers.

use crate::backend::Shared;
use crate::breadcrumb::Breadcrumb;
use crate::hazard::Tracker;
use crate::io::Staged;
use crate::lower::{Lowered, Lowering};
use crate::program::{Chunk, ProgramShape};
use crate::raw::commands::{CommandPool, Recorder, Work};
use crate::raw::descriptors::{DescriptorPool, DescriptorSet};
use crate::raw::pipeline::Pipeline;
use crate::raw::queries::Timestamps;
use crate::schedule::{Item, Piece, schedule};
use ggml_core::{Phase, Result};
use std::sync::Arc;

/// Staging memory of a program.
pub(crate) struct Staging {
    /// Copied to the device before the first step.
    pub(crate) inputs: Staged,
    /// Copied from the device after the last step.
    pub(crate) outputs: Staged,
}

/// What was recorded.
pub(crate) struct Recorded {
    /// Submissions in order.
    pub(crate) chunks: Vec<Chunk>,
    /// Two for each submission.
    pub(crate) timestamps: Option<Arc<Timestamps>>,
    /// How it is made up.
    pub(crate) shape: ProgramShape,
}

/// Everything that recording needs.
struct Context<'a> {
    lowering: &'a Lowering,
    pipelines: &'a [Arc<Pipeline>],
    sets: Vec<Arc<DescriptorSet>>,
    breadcrumb: Option<&'a Breadcrumb>,
}

/// Records a lowered graph.
pub(crate) fn record(
    shared: &Shared,
    lowering: &Lowering,
    pipelines: &[Arc<Pipeline>],
    staging: &Staging,
    breadcrumb: Option<&Breadcrumb>,
    stepwise: bool,
) -> Result<Recorded> {
    let item = |d: &Lowered| Item { step: d.step, grid: d.grid, seconds: d.seconds, divisible: d.divisible };
    let items: Vec<Item> = lowering.dispatches.iter().map(item).collect();
    let budget = shared.options.submission_budget.as_secs_f64() / shared.model.factor();
    let mut submissions = schedule(&items, budget, stepwise);
    if submissions.is_empty() && !stepwise {
        // A graph that computes nothing still copies its inputs and outputs.
        submissions.push(Vec::new());
    }
    let (sets, distinct) = sets(shared, lowering, pipelines)?;
    let context = Context { lowering, pipelines, sets, breadcrumb };
    let timestamps = match submissions.len() {
        0 => None,
        n => Timestamps::new(&shared.device, 2 * n as u32)?,
    };
    let pool = CommandPool::new(&shared.device, Phase::Prepare)?;
    let (mut chunks, mut barriers) = (Vec::with_capacity(submissions.len()), 0);
    for (index, pieces) in submissions.iter().enumerate() {
        let mut recorder = pool.record(Phase::Prepare)?;
        begin(&mut recorder, &timestamps, index);
        if index == 0 {
            copy_inputs(&mut recorder, &staging.inputs)?;
        }
        context.pieces(&mut recorder, pieces)?;
        if index + 1 == submissions.len() {
            copy_outputs(&mut recorder, &staging.outputs)?;
        }
        recorder.barrier(Work::Device, Work::Host);
        if let Some(timestamps) = &timestamps {
            recorder.timestamp(timestamps, 2 * index as u32 + 1, false);
        }
        barriers += recorder.barriers;
        chunks.push(Chunk {
            commands: recorder.finish()?,
            steps: context.steps(pieces),
            seconds: total(pieces),
        });
    }
    let shape = ProgramShape {
        steps: 0,
        dispatches: submissions.iter().map(Vec::len).sum(),
        barriers,
        submissions: chunks.len(),
        pipelines: pipelines.len(),
        descriptor_sets: distinct,
    };
    Ok(Recorded { chunks, timestamps, shape })
}

fn total(pieces: &[Piece]) -> f64 {
    pieces.iter().map(|p| p.seconds).sum()
}

fn begin(recorder: &mut Recorder<'_>, timestamps: &Option<Arc<Timestamps>>, index: usize) {
    if let Some(timestamps) = timestamps {
        recorder.reset(timestamps, 2 * index as u32);
        recorder.timestamp(timestamps, 2 * index as u32, true);
    }
}

fn copy_inputs(recorder: &mut Recorder<'_>, inputs: &Staged) -> Result<()> {
    let mut any = false;
    for (staging, at, place) in inputs.copies() {
        recorder.copy((staging, at), (&place.buffer, place.offset), place.bytes)?;
        any = true;
    }
    if any {
        recorder.barrier(Work::Transfer, Work::Device);
    }
    Ok(())
}

fn copy_outputs(recorder: &mut Recorder<'_>, outputs: &Staged) -> Result<()> {
    if outputs.buffer().is_some() {
        recorder.barrier(Work::Compute, Work::Transfer);
    }
    for (staging, at, place) in outputs.copies() {
        recorder.copy((&place.buffer, place.offset), (staging, at), place.bytes)?;
    }
    Ok(())
}

impl Context<'_> {
    fn steps(&self, pieces: &[Piece]) -> std::ops::Range<usize> {
        let step = |p: &Piece| self.lowering.dispatches[p.item].step;
        match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => step(first)..step(last) + 1,
            _ => 0..0,
        }
    }

    fn pieces(&self, recorder: &mut Recorder<'_>, pieces: &[Piece]) -> Result<()> {
        let mut tracker = Tracker::default();
        for piece in pieces {
            let dispatch = &self.lowering.dispatches[piece.item];
            if tracker.must_wait(&dispatch.reads, &dispatch.writes) {
                recorder.barrier(Work::Compute, Work::Compute);
            }
            let (pipeline, set) = (&self.pipelines[dispatch.pipeline], &self.sets[piece.item]);
            recorder.dispatch(pipeline, set, &dispatch.params, piece.base, piece.grid)?;
            if let (true, Some(breadcrumb)) = (piece.last_of_step, self.breadcrumb) {
                breadcrumb.drop_at(recorder, dispatch.step + 1)?;
            }
        }
        Ok(())
    }
}

/// A descriptor set for each dispatch; dispatches with the same windows share one. And how many there are.
fn sets(
    shared: &Shared,
    lowering: &Lowering,
    pipelines: &[Arc<Pipeline>],
) -> Result<(Vec<Arc<DescriptorSet>>, usize)> {
    use std::collections::HashMap;
    use std::collections::hash_map::Entry;
    let count = lowering.dispatches.len() as u32;
    let buffers: usize = lowering.dispatches.iter().map(|d| d.windows.len()).sum();
    let pool = DescriptorPool::new(&shared.device, count, buffers as u32)?;
    let mut known: HashMap<Vec<(usize, u64, u64)>, Arc<DescriptorSet>> = HashMap::new();
    let mut sets = Vec::with_capacity(lowering.dispatches.len());
    for dispatch in &lowering.dispatches {
        let windows = dispatch.windows.iter();
        let key = windows.map(|w| (Arc::as_ptr(&w.buffer).addr(), w.offset, w.bytes)).collect();
        let set = match known.entry(key) {
            Entry::Occupied(found) => found.get().clone(),
            Entry::Vacant(empty) => {
                empty.insert(pool.set(&pipelines[dispatch.pipeline].layout, &dispatch.windows)?).clone()
            }
        };
        sets.push(set);
    }
    Ok((sets, known.len()))
}
