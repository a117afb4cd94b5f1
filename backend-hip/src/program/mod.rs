//! Prepared graphs: every kernel found, every argument laid out, so that a run only launches.
//!
//! A run is one job of the driver thread: it copies the inputs that were written, starts every launch, and polls events
//! until all are complete or the deadline passes. The events are marks of progress ([`RunEvents`]): the first that is
//! not complete tells which node was running.

use crate::driver::codes::is_fatal;
use crate::options::Breadcrumbs;
use crate::runtime::events::{MARKS, RunEvents};
use crate::runtime::memory::Memory;
use crate::runtime::session::{EventId, GraphId, Place, Session};
use crate::runtime::shared::{PinnedRange, Shared};
use crate::runtime::staging::ALIGNMENT;
use crate::sync::lock;
use ggml_core::backend::{Buffer, Program, Timing};
use ggml_core::{Error, Graph, Phase, Result, Source, TensorId, phase};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) mod load;
pub(crate) mod prepare;
mod results;

use load::{Launches, Loaded};
use prepare::{Storage, no_storage};
use results::Results;

/// A prepared graph.
pub(crate) struct HipProgram {
    shared: Arc<Shared>,
    graph: Graph,
    storage: Storage,
    /// Constants, counters and scratch, which launches point at.
    _own: Option<Buffer>,
    launches: Arc<Launches>,
    inputs: Inputs,
    results: Option<Results>,
    ran: bool,
}

/// Inputs that were written and are copied to the device by the next run.
#[derive(Debug, Default)]
struct Inputs {
    pinned: Option<PinnedRange>,
    places: HashMap<TensorId, (usize, usize)>,
    written: Vec<TensorId>,
    /// Whether another program may have used the arena since the last run, so that all inputs are copied again.
    shared_arena: bool,
}

impl Inputs {
    fn new(shared: &Arc<Shared>, graph: &Graph, shared_arena: bool) -> Inputs {
        let mut inputs = Inputs { shared_arena, ..Inputs::default() };
        let mut bytes = 0;
        for id in graph.ids() {
            let tensor = graph.tensor(id);
            if tensor.source == Source::Input && tensor.root == id {
                inputs.places.insert(id, (bytes, tensor.dense_bytes()));
                bytes += tensor.dense_bytes().next_multiple_of(ALIGNMENT);
            }
        }
        inputs.pinned = shared.take_pinned(bytes);
        inputs
    }

    /// Keeps an input for the next run; `false` if there is no room for it.
    fn keep(&mut self, id: TensorId, data: &[u8]) -> bool {
        let (Some(pinned), Some(&(at, bytes))) = (&self.pinned, self.places.get(&id)) else { return false };
        if bytes != data.len() || !pinned.write(at, data) {
            return false;
        }
        if !self.written.contains(&id) {
            self.written.push(id);
        }
        true
    }
}

impl HipProgram {
    /// A program of what was loaded. `shared_arena`: its arena is the caller's.
    pub(crate) fn new(shared: &Arc<Shared>, graph: &Graph, loaded: Loaded, shared_arena: bool) -> HipProgram {
        let Loaded { storage, own, launches, results } = loaded;
        HipProgram {
            shared: shared.clone(),
            graph: graph.clone(),
            storage,
            _own: own,
            launches: Arc::new(launches),
            inputs: Inputs::new(shared, graph, shared_arena),
            results,
            ran: false,
        }
    }

    /// The memory of a whole contiguous tensor of a length, and where in it.
    fn window(&self, id: TensorId, bytes: usize) -> Result<(&Memory, usize)> {
        let tensor = self.graph.tensor(id);
        if id.index() >= self.graph.tensors().len()
            || !tensor.is_contiguous()
            || tensor.dense_bytes() != bytes
        {
            let dense = format!("{}, of {} dense bytes", tensor.describe(), tensor.dense_bytes());
            return Err(Error::argument("tensor", dense, format!("a contiguous one of {bytes} bytes")));
        }
        let place = self.storage.get(&tensor.root).ok_or_else(|| no_storage(tensor))?;
        let at = place.offset + tensor.offset;
        place.buffer.check_range(at, bytes)?;
        Ok((Memory::of(&place.buffer, &self.shared)?, at))
    }

    /// The copies of inputs that were written.
    fn input_copies(&self) -> Result<Vec<(Place, Place, usize)>> {
        let Some(pinned) = &self.inputs.pinned else { return Ok(Vec::new()) };
        let copy = |id: &TensorId| {
            let (at, bytes) = self.inputs.places.get(id).copied().unwrap_or_default();
            let (memory, to) = self.window(*id, bytes)?;
            Ok((memory.place(to), pinned.place(at), bytes))
        };
        self.inputs.written.iter().map(copy).collect()
    }

    fn inputs_copied(&mut self) {
        if !self.inputs.shared_arena {
            self.inputs.written.clear();
        }
    }

    fn phase(&self) -> Phase {
        if self.ran { Phase::Compute } else { Phase::FirstCompute }
    }

    /// Whether the results in pinned memory are what the device has.
    fn results_are(&mut self, fresh: bool) {
        if let Some(results) = &mut self.results {
            results.fresh = fresh;
        }
    }

    fn execute(&mut self, range: Range<usize>) -> Result<Timing> {
        self.results_are(false);
        let phase = self.phase();
        let _span = phase::enter(phase, self.shared.backend());
        let start = Instant::now();
        let every = match self.shared.options.breadcrumbs {
            Breadcrumbs::EveryLaunch => 1,
            // Nothing hangs as often as a first run.
            Breadcrumbs::Auto if !self.ran => 1,
            Breadcrumbs::Auto => range.len().div_ceil(MARKS).max(1),
        };
        let run = Run {
            launches: self.launches.clone(),
            events: self.shared.events.clone(),
            copies: self.input_copies()?,
            graphs: self.ran && range.len() == self.launches.ready.len() && !self.launches.graphs.is_empty(),
            range,
            every,
        };
        let device =
            self.shared.thread.call(phase, self.shared.deadlines().compute, move |s| run.execute(s))?;
        self.inputs_copied();
        lock(&self.shared.stats).submissions += 1;
        Ok(Timing { host: start.elapsed(), device })
    }
}

impl Program for HipProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.shared.backend());
        self.shared.thread.monitor().check(Phase::Upload)?;
        self.window(tensor, data.len())?;
        let root = self.graph.tensor(tensor).root;
        if self.graph.tensor(root).source == Source::Weight {
            let what = format!("tensor '{}'", self.graph.tensor(tensor).name);
            return Err(Error::argument(what, "a weight", "an input or a state"));
        }
        if !self.inputs.keep(tensor, data) {
            self.results_are(false);
            // A part of an input must not be overtaken by the whole that was written before.
            self.flush(root)?;
            self.inputs.written.retain(|&written| written != root);
            let (memory, at) = self.window(tensor, data.len())?;
            return self.shared.upload(Phase::Upload, memory, at, data);
        }
        lock(&self.shared.stats).uploaded_bytes += data.len() as u64;
        Ok(())
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, self.shared.backend());
        self.window(tensor, out.len())?;
        self.shared.thread.monitor().check(Phase::Readback)?;
        if self.results.as_ref().is_some_and(|results| results.read(tensor, out)) {
            return Ok(());
        }
        self.flush(self.graph.tensor(tensor).root)?;
        let (memory, at) = self.window(tensor, out.len())?;
        self.shared.download(Phase::Readback, memory, at, out)
    }

    fn run(&mut self) -> Result<Timing> {
        let timing = self.execute(0..self.launches.ready.len())?;
        self.results_are(true);
        self.ran = true;
        Ok(timing)
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        let range = self.launches.of_step.get(step).cloned();
        let steps = self.launches.of_step.len();
        let range = range.ok_or_else(|| Error::argument("step", step, format!("less than {steps}")))?;
        let timing = self.execute(range)?;
        self.ran |= step + 1 == self.launches.of_step.len();
        Ok(timing)
    }
}

impl HipProgram {
    /// Copies the inputs now, if this one is among those that wait for the next run.
    fn flush(&mut self, root: TensorId) -> Result<()> {
        if !self.inputs.written.contains(&root) {
            return Ok(());
        }
        let (copies, events) = (self.input_copies()?, self.shared.events.clone());
        self.shared.thread.call(Phase::Upload, self.shared.deadlines().transfer, move |session| {
            for (to, from, bytes) in &copies {
                session.upload(to, from, *bytes)?;
            }
            events.drain(session)
        })?;
        self.inputs_copied();
        Ok(())
    }
}

/// One run, as the driver thread does it.
struct Run {
    launches: Arc<Launches>,
    events: Arc<RunEvents>,
    copies: Vec<(Place, Place, usize)>,
    range: Range<usize>,
    /// Launches from mark to mark.
    every: usize,
    /// Whether the launches are started as graphs, with a mark behind each.
    graphs: bool,
}

impl Drop for HipProgram {
    fn drop(&mut self) {
        let graphs: Vec<GraphId> = self.launches.graphs.iter().map(|&(_, graph)| graph).collect();
        if graphs.is_empty() {
            return;
        }
        let limit = self.shared.deadlines().allocate;
        self.shared.thread.post(Phase::Close, limit, move |session| {
            for graph in graphs {
                if let Err(error) = session.free_graph(graph) {
                    tracing::warn!(target: "diptych::hip", "a graph was not given back: {error}");
                }
            }
        });
    }
}

impl Run {
    fn execute(&self, session: &mut Session) -> Result<Option<Duration>> {
        session.monitor().run(Some(self.launches.names.clone()));
        self.reached(session, self.range.start);
        let result = self.launch_all(session);
        if let Err(error) = &result
            && !is_fatal(error)
        {
            // What was started before the failure ends before anybody frees or writes memory.
            self.events.drain(session)?;
        }
        session.monitor().run(None);
        result
    }

    fn launch_all(&self, session: &mut Session) -> Result<Option<Duration>> {
        for (to, from, bytes) in &self.copies {
            session.upload(to, from, *bytes)?;
        }
        if let Some((begin, _)) = self.events.timing {
            session.record(begin)?;
        }
        let deadline = session.monitor().deadline();
        let mut marks = VecDeque::new();
        let mut next_mark = self.events.marks.iter().cycle();
        let graphs = if self.graphs { &self.launches.graphs[..] } else { &[] };
        for (launches, graph) in graphs {
            let first = &self.launches.names[self.launches.step[launches.start]];
            session.launch_graph(*graph).map_err(|e| e.with_node(first))?;
            if let Some(&mark) = next_mark.next() {
                session.record(mark)?;
                marks.push_back((mark, launches.end - 1));
            }
        }
        let one_by_one = if self.graphs { 0..0 } else { self.range.clone() };
        for i in one_by_one {
            let launched = session.launch(&self.launches.ready[i]);
            launched.map_err(|e| e.with_node(&self.launches.names[self.launches.step[i]]))?;
            let last = i + 1 == self.range.end;
            if !last && !(i + 1 - self.range.start).is_multiple_of(self.every) {
                continue;
            }
            if marks.len() == self.events.marks.len() {
                self.pass(session, &mut marks, true)?;
            }
            if let Some(&mark) = next_mark.next() {
                session.record(mark)?;
                marks.push_back((mark, i));
            }
            while self.pass(session, &mut marks, false)? {}
            if deadline.passed() {
                return Err(session.monitor().timeout());
            }
        }
        if let Some((_, end)) = self.events.timing {
            session.record(end)?;
        }
        while self.pass(session, &mut marks, true)? {}
        let Some((begin, end)) = self.events.timing else {
            // Without launches there is no mark after the copies.
            return if self.range.is_empty() { self.events.drain(session).map(|()| None) } else { Ok(None) };
        };
        session.wait(end)?;
        Ok(session.elapsed(begin, end))
    }

    /// Takes the oldest mark off if it is complete, or after waiting for it. `false` if there was none to take.
    fn pass(
        &self,
        session: &mut Session,
        marks: &mut VecDeque<(EventId, usize)>,
        wait: bool,
    ) -> Result<bool> {
        let Some(&(mark, launch)) = marks.front() else { return Ok(false) };
        if wait {
            session.wait(mark)?;
        } else if !session.complete(mark)? {
            return Ok(false);
        }
        marks.pop_front();
        self.reached(session, launch + 1);
        Ok(true)
    }

    /// Notes that everything before a launch is complete.
    fn reached(&self, session: &Session, launch: usize) {
        if let Some(&step) = self.launches.step.get(launch) {
            session.monitor().reached(step);
        }
    }
}
