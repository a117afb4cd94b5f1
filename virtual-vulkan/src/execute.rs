//! Executes submitted command buffers on the virtual GPU.

use crate::device::Device;
use crate::list::{Command, Dispatch, Grid, List, Span};
use crate::order::{Segment, segments};
use crate::semaphores::Semaphore;
use crate::visible::{Unseen, unseen};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtual_gpu::{BareLaunch, Counters, Footprint};

/// A submission.
#[derive(Default)]
pub(crate) struct Submission {
    pub(crate) waits: Vec<(Arc<Semaphore>, u64)>,
    pub(crate) lists: Vec<Arc<List>>,
    pub(crate) signals: Vec<(Arc<Semaphore>, u64)>,
}

impl Submission {
    pub(crate) fn run(&self, device: &Device) -> Result<(), String> {
        for (semaphore, value) in &self.waits {
            device.queue.hold(|| semaphore.passes(*value));
        }
        for list in &self.lists {
            run_list(device, list)?;
        }
        for (semaphore, value) in &self.signals {
            semaphore.signal(*value);
        }
        Ok(())
    }
}

/// Runs a command buffer in recorded order, or in another order that its barriers allow.
fn run_list(device: &Device, list: &List) -> Result<(), String> {
    let options = &device.card.options;
    if options.order.is_none() && !options.hazards {
        return list.commands.iter().try_for_each(|command| run(device, command, None));
    }
    let mut seed = options.order.map(|seed| seed ^ device.lists.fetch_add(1, Ordering::Relaxed));
    let roles: Vec<_> = list.commands.iter().map(Command::role).collect();
    let mut sight = Sight::new(list);
    for segment in segments(&roles) {
        let order = match &mut seed {
            Some(seed) => segment.shuffled(seed),
            None => (0..segment.items.len()).collect(),
        };
        run_segment(device, list, &segment, &order, &mut sight)?;
    }
    Ok(())
}

/// Runs commands in an order, and checks that unordered commands do not conflict.
fn run_segment(
    device: &Device,
    list: &List,
    segment: &Segment,
    order: &[usize],
    sight: &mut Sight,
) -> Result<(), String> {
    let mut traces: BTreeMap<usize, Footprint> = BTreeMap::new();
    for &index in order {
        let command = &list.commands[segment.items[index].0];
        let mut trace = device.card.options.hazards.then(Footprint::default);
        run(device, command, trace.as_mut())?;
        let Some(trace) = trace else { continue };
        sight.check(list, segment.items[index].0, &trace)?;
        // Marks are ordered after everything before them and have no ordering effect; they record no spans.
        for (&other, earlier) in traces.iter().filter(|(other, _)| !segment.waits(index, **other)) {
            if let Some(address) = trace.conflict(earlier) {
                let other = list.commands[segment.items[other].0].name();
                return Err(format!(
                    "missing pipeline barrier: {} and {other} conflict at {address:#x}",
                    command.name()
                ));
            }
        }
        traces.insert(index, trace);
    }
    Ok(())
}

/// Accesses of commands, and the earlier commands that others wait for without seeing their accesses.
struct Sight {
    unseen: Vec<Vec<Unseen>>,
    traces: BTreeMap<usize, Footprint>,
}

impl Sight {
    fn new(list: &List) -> Sight {
        let roles: Vec<_> = list.commands.iter().map(|command| (command.role(), command.masks())).collect();
        Sight { unseen: unseen(&roles), traces: BTreeMap::new() }
    }

    /// Checks the accesses of a command, and keeps them if a later one does not see them.
    fn check(&mut self, list: &List, index: usize, trace: &Footprint) -> Result<(), String> {
        for missing in self.unseen.get(index).into_iter().flatten() {
            let Some(earlier) = self.traces.get(&missing.earlier) else { continue };
            let read = missing.reads.then(|| trace.reads_from(earlier)).flatten();
            let written = missing.writes.then(|| trace.overwrites(earlier)).flatten();
            let (use_of, at) = match (read, written) {
                (Some(at), _) => ("reads", at),
                (None, Some(at)) => ("overwrites", at),
                (None, None) => continue,
            };
            let (name, other) = (list.commands[index].name(), list.commands[missing.earlier].name());
            return Err(format!(
                "missing access mask of a pipeline barrier: {name} {use_of} at {at:#x} what {other} wrote there, which no \
                 barrier makes visible"
            ));
        }
        if self.unseen.iter().skip(index).flatten().any(|missing| missing.earlier == index) {
            self.traces.insert(index, trace.clone());
        }
        Ok(())
    }
}

/// Runs a command and adds its accesses to `trace`.
fn run(device: &Device, command: &Command, trace: Option<&mut Footprint>) -> Result<(), String> {
    let gpu = &device.gpu;
    let done = match command {
        Command::Dispatch(dispatch) => return run_dispatch(device, dispatch, trace),
        Command::Copy { from, to } => gpu.copy(to.address, from.address, from.bytes as usize),
        Command::Fill { to, word } => fill(device, to, *word),
        Command::Update { to, data } => gpu.write(to.address, data),
        Command::Marker { to, word } => gpu.write(to.address, &word.to_le_bytes()),
        Command::ResetQueries { pool, first, count } => {
            pool.reset(*first, *count);
            Ok(())
        }
        Command::Timestamp { pool, index } => {
            pool.set(*index, device.clock.load(Ordering::Relaxed));
            Ok(())
        }
        Command::Barrier(..) => Ok(()),
    };
    if let Command::Copy { to, .. } | Command::Fill { to, .. } = command {
        let (_, _, bandwidth) = device.card.options.model.rates();
        pass_time(device, 2.0 * to.bytes as f64 / bandwidth);
    }
    if let Some(trace) = trace {
        for (span, access) in command.spans() {
            trace.add(span.address, span.bytes, access);
        }
    }
    done.map_err(|fault| fault.to_string())
}

fn fill(device: &Device, to: &Span, word: u32) -> virtual_gpu::Result<()> {
    const CHUNK: u64 = 1 << 16;
    let pattern = word.to_le_bytes();
    if pattern.iter().all(|&b| b == pattern[0]) {
        return device.gpu.fill(to.address, pattern[0], to.bytes as usize);
    }
    let chunk = pattern.repeat((CHUNK / 4) as usize);
    (0..to.bytes).step_by(CHUNK as usize).try_for_each(|at| {
        let bytes = (to.bytes - at).min(CHUNK) as usize;
        device.gpu.write(to.address + at, &chunk[..bytes])
    })
}

fn run_dispatch(device: &Device, dispatch: &Dispatch, trace: Option<&mut Footprint>) -> Result<(), String> {
    let groups = match &dispatch.grid {
        Grid::Direct(groups) => *groups,
        Grid::Indirect(span) => {
            let mut bytes = [0; 12];
            device.gpu.read(span.address, &mut bytes).map_err(|fault| fault.to_string())?;
            bytemuck::cast(bytes)
        }
    };
    if groups.contains(&0) {
        return Ok(());
    }
    let name = dispatch.pipeline.name();
    let counted = dispatch.pipeline.kernel(&device.gpu, device.card.options.rewrite).and_then(|kernel| {
        let registers = dispatch.registers(groups);
        let launch = BareLaunch { groups, first_group: dispatch.first, user_sgprs: &registers };
        let wrong = device.card.options.faults.wrong_of(&name);
        if trace.is_none() && wrong.is_none() {
            return device.gpu.launch_bare(&kernel, &launch);
        }
        let (counters, footprint) = device.gpu.trace_bare(&kernel, &launch)?;
        if let Some(wrong) = wrong {
            device.gpu.spoil(&footprint, wrong)?;
        }
        if let Some(trace) = trace {
            *trace = footprint;
        }
        Ok(counters)
    });
    let counters = counted.map_err(|fault| fault.to_string())?;
    device.card.count(&name, counters);
    pass_time(device, seconds(device, &counters, dispatch.pipeline.binary.wave32));
    Ok(())
}

/// Advances the simulated clock.
fn pass_time(device: &Device, seconds: f64) {
    device.clock.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
}

/// Returns the simulated duration of a dispatch in seconds: the larger of its vector instructions (a wavefront of 64
/// lanes counts twice) and its bytes at memory bandwidth, plus 2 µs to start. It is deterministic and no
/// estimate for a real card.
fn seconds(device: &Device, c: &Counters, wave32: bool) -> f64 {
    let (rate, clock, bandwidth) = device.card.options.model.rates();
    let halves = if wave32 { 1.0 } else { 2.0 };
    let cycles = halves * (c.valu + 3 * c.valu_quarter) as f64 / rate;
    let bytes = (c.global_read + c.global_written) as f64;
    2e-6 + (cycles / clock).max(bytes / bandwidth)
}
