//! Recording of a lowered graph into command buffers.

use super::bound::Bound;
use super::breadcrumb::Breadcrumb;
use super::hazard::Tracker;
use super::io::Staged;
use super::lower::{Lowered, Lowering};
use super::schedule::{Item, Portion, schedule};
use super::windows::Window;
use crate::context::DeviceContext;
use crate::device::cost::Estimate;
use crate::raw::buffer::Buffer;
use crate::raw::commands::{CommandPool, Commands, Recorder, Scope};
use crate::raw::descriptors::{self, DescriptorPool, DescriptorSet};
use crate::raw::pipeline::Pipeline;
use crate::raw::queries::Timestamps;
use ggml_core::{Phase, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Add, Range};
use std::sync::Arc;

/// A command buffer. A submission has one or more consecutive ones.
pub(crate) struct Segment {
    /// The recorded commands.
    pub(crate) commands: Commands,
    /// Steps that are at least partly in this segment.
    pub(crate) steps: Range<usize>,
    /// Estimated device time.
    pub(crate) estimate: Estimate,
}

/// Sizes of a prepared program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStats {
    /// Number of steps of the plan.
    pub steps: usize,
    /// Number of dispatches. Each portion of a divided one counts.
    pub dispatches: usize,
    /// Number of barriers, including those at the beginning and end of segments.
    pub barriers: u64,
    /// Number of segments: the maximum number of submissions of a run. A run has fewer once the device was
    /// measured to be fast.
    pub segments: usize,
    /// Number of distinct pipelines.
    pub pipelines: usize,
    /// Number of distinct descriptor sets.
    pub descriptor_sets: usize,
}

/// Staging memory of a program.
pub(crate) struct Staging {
    /// Inputs, copied to the device before the first step.
    pub(crate) inputs: Staged,
    /// Outputs, copied from the device after the last step.
    pub(crate) outputs: Staged,
}

/// The result of recording.
pub(crate) struct Recorded {
    /// Segments in order.
    pub(crate) segments: Vec<Segment>,
    /// Timestamps, two for each segment; `None` without segments, or if the queue has no timestamps.
    pub(crate) timestamps: Option<Arc<Timestamps>>,
    /// Sizes of the program.
    pub(crate) stats: ProgramStats,
}

/// The inputs of recording.
pub(crate) struct Recording<'a> {
    /// The dispatches.
    pub(crate) lowering: &'a Lowering,
    /// Distinct pipelines. [`Lowered::pipeline`] is an index into them.
    pub(crate) pipelines: &'a [Arc<Pipeline>],
    /// Buffers of the windows.
    pub(crate) bound: &'a Bound,
    /// Copies before and after the dispatches.
    pub(crate) staging: &'a Staging,
    /// Counter of completed steps, if breadcrumbs are on.
    pub(crate) breadcrumb: Option<&'a Breadcrumb>,
    /// True if every step begins a segment.
    pub(crate) stepwise: bool,
}

/// Records a lowered graph.
pub(crate) fn record(context: &DeviceContext, recording: &Recording<'_>) -> Result<Recorded> {
    let Recording { lowering, staging, stepwise, .. } = *recording;
    let item = |d: &Lowered| {
        let seconds = context.model.seconds(d.estimate);
        Item { step: d.step, grid: d.grid, seconds, divisible: d.divisible }
    };
    let items: Vec<Item> = lowering.dispatches.iter().map(item).collect();
    let mut scheduled = schedule(&items, context.budget(), stepwise);
    if scheduled.is_empty() && !stepwise {
        // A graph that computes nothing still copies its inputs and outputs.
        scheduled.push(Vec::new());
    }
    let (sets, distinct) = recording.sets(context)?;
    let timestamps = match scheduled.len() {
        0 => None,
        n => Timestamps::new(&context.device, 2 * n as u32)?,
    };
    let pool = CommandPool::new(&context.device, Phase::Prepare)?;
    let mut segments = Vec::with_capacity(scheduled.len());
    for (index, portions) in scheduled.iter().enumerate() {
        let mut recorder = pool.record(Phase::Prepare)?;
        begin_timing(&mut recorder, &timestamps, index);
        if index == 0 {
            copy_inputs(&mut recorder, &staging.inputs, recording.bound)?;
        }
        recording.portions(&mut recorder, portions, &sets)?;
        if index + 1 == scheduled.len() {
            copy_outputs(&mut recorder, &staging.outputs, recording.bound)?;
        }
        if let Some(timestamps) = &timestamps {
            recorder.timestamp(timestamps, 2 * index as u32 + 1);
        }
        segments.push(Segment {
            commands: recorder.finish()?,
            steps: recording.steps(portions),
            estimate: recording.estimate(portions),
        });
    }
    let stats = ProgramStats {
        steps: 0, // the caller sets it
        dispatches: scheduled.iter().map(Vec::len).sum(),
        barriers: segments.iter().map(|segment| segment.commands.barriers().len() as u64).sum(),
        segments: segments.len(),
        pipelines: recording.pipelines.len(),
        descriptor_sets: distinct,
    };
    Ok(Recorded { segments, timestamps, stats })
}

fn begin_timing(recorder: &mut Recorder<'_>, timestamps: &Option<Arc<Timestamps>>, index: usize) {
    if let Some(timestamps) = timestamps {
        recorder.reset(timestamps, 2 * index as u32);
        recorder.timestamp(timestamps, 2 * index as u32);
    }
}

fn copy_inputs(recorder: &mut Recorder<'_>, inputs: &Staged, bound: &Bound) -> Result<()> {
    let mut any = false;
    for (staging, at, place) in inputs.copies() {
        recorder.copy((staging, at), (bound.buffer(place.buffer), place.offset), place.bytes)?;
        any = true;
    }
    if any {
        recorder.barrier(Scope::Transfer, Scope::Device);
    }
    Ok(())
}

fn copy_outputs(recorder: &mut Recorder<'_>, outputs: &Staged, bound: &Bound) -> Result<()> {
    if outputs.buffer().is_some() {
        recorder.barrier(Scope::Compute, Scope::Transfer);
    }
    for (staging, at, place) in outputs.copies() {
        recorder.copy((bound.buffer(place.buffer), place.offset), (staging, at), place.bytes)?;
    }
    Ok(())
}

impl Recording<'_> {
    fn estimate(&self, portions: &[Portion]) -> Estimate {
        let of = |p: &Portion| self.lowering.dispatches[p.item].estimate.part(p.count);
        portions.iter().map(of).fold(Estimate::default(), Estimate::add)
    }

    fn steps(&self, portions: &[Portion]) -> Range<usize> {
        let step = |p: &Portion| self.lowering.dispatches[p.item].step;
        match (portions.first(), portions.last()) {
            (Some(first), Some(last)) => step(first)..step(last) + 1,
            _ => 0..0,
        }
    }

    fn portions(
        &self,
        recorder: &mut Recorder<'_>,
        portions: &[Portion],
        sets: &[Arc<DescriptorSet>],
    ) -> Result<()> {
        let mut tracker = Tracker::default();
        for portion in portions {
            let dispatch = &self.lowering.dispatches[portion.item];
            if tracker.must_wait(&dispatch.reads, &dispatch.writes) {
                recorder.barrier(Scope::Compute, Scope::Compute);
            }
            let (pipeline, set) = (&self.pipelines[dispatch.pipeline], &sets[portion.item]);
            recorder.dispatch(pipeline, set, &dispatch.params, portion.base, portion.grid)?;
            if let (true, Some(breadcrumb)) = (portion.last_of_step, self.breadcrumb) {
                breadcrumb.mark_completed(recorder, dispatch.step + 1)?;
            }
        }
        Ok(())
    }

    /// Returns a descriptor set for each dispatch, and the number of distinct sets. Dispatches with the same
    /// windows at the same bindings share a set.
    fn sets(&self, context: &DeviceContext) -> Result<(Vec<Arc<DescriptorSet>>, usize)> {
        let dispatches = &self.lowering.dispatches;
        let buffers: usize = dispatches.iter().map(|d| d.windows.len()).sum();
        let pool = DescriptorPool::new(&context.device, dispatches.len() as u32, buffers as u32)?;
        let mut known = HashMap::new();
        let mut sets = Vec::with_capacity(dispatches.len());
        for dispatch in dispatches {
            let layout = &self.pipelines[dispatch.pipeline].layout;
            let set: Arc<DescriptorSet> = match known.entry((&dispatch.windows, &layout.bindings)) {
                Entry::Occupied(found) => Arc::clone(found.get()),
                Entry::Vacant(empty) => {
                    let windows: Vec<_> = dispatch.windows.iter().map(|w| self.window(w)).collect();
                    empty.insert(pool.set(layout, &windows)?).clone()
                }
            };
            sets.push(set);
        }
        Ok((sets, known.len()))
    }

    fn window(&self, window: &Window) -> descriptors::Window<Arc<Buffer>> {
        let buffer = self.bound.buffer(window.buffer).clone();
        descriptors::Window { buffer, offset: window.offset, bytes: window.bytes }
    }
}
