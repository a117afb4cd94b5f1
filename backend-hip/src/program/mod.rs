//! Prepared graphs: all kernels are found and all arguments laid out, so that a run only launches.
//!
//! A run is one job of the driver thread, or two if it begins ahead ([`Program::begin`]): see [`execution`].

use crate::options::Breadcrumbs;
use crate::runtime::events::MARKS;
use crate::runtime::memory::Memory;
use crate::runtime::session::{GraphId, Location};
use crate::runtime::shared::Shared;
use ggml_core::backend::{Buffer, Program, Timing};
use ggml_core::sync::lock;
use ggml_core::{Error, Graph, Phase, Result, Source, TensorId, phase};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

mod execution;
mod inputs;
pub(crate) mod load;
pub(crate) mod prepare;
mod results;

use execution::Execution;
use inputs::Inputs;
use load::{Launches, Loaded};
use prepare::{Storage, no_storage};
use results::Results;

/// A prepared graph.
pub(crate) struct HipProgram {
    shared: Arc<Shared>,
    graph: Graph,
    storage: Storage,
    /// Constants, counters and scratch that launches point at.
    _own: Option<Buffer>,
    launches: Arc<Launches>,
    inputs: Inputs,
    results: Option<Results>,
    ran: bool,
    begun: Option<Begun>,
}

/// A run that was begun and not yet waited for.
enum Begun {
    /// The run is complete: runs that start launch after launch do not begin ahead.
    Ended(Timing),
    /// The run was started.
    Started(Arc<Execution>),
}

impl HipProgram {
    /// Creates a program from loaded parts.
    pub(crate) fn new(shared: &Arc<Shared>, graph: &Graph, loaded: Loaded) -> HipProgram {
        let Loaded { storage, own, launches, inputs, results } = loaded;
        HipProgram {
            shared: shared.clone(),
            graph: graph.clone(),
            storage,
            _own: own,
            launches: Arc::new(launches),
            inputs,
            results,
            ran: false,
            begun: None,
        }
    }

    /// Returns the memory of a whole contiguous tensor of `bytes` bytes, and its offset there.
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

    /// Returns the copies of the written inputs. `by_launches`: true to leave out those that launches read.
    fn input_copies(&self, by_launches: bool) -> Result<Vec<(Location, Location, usize)>> {
        let copy = |(id, from, bytes)| {
            let (memory, to) = self.window(id, bytes)?;
            Ok((memory.location(to), from, bytes))
        };
        self.inputs.copied(by_launches).into_iter().map(copy).collect()
    }

    fn phase(&self) -> Phase {
        if self.ran { Phase::Compute } else { Phase::FirstCompute }
    }

    /// Sets the flag that the results in pinned memory equal those on the device.
    fn set_results_fresh(&mut self, fresh: bool) {
        if let Some(results) = &mut self.results {
            results.fresh = fresh;
        }
    }

    /// Returns true if a run starts graphs. The first run starts launch after launch, to identify one that
    /// fails.
    fn has_graphs(&self) -> bool {
        self.ran && !self.launches.graphs.is_empty()
    }

    fn execute(&mut self, range: Range<usize>) -> Result<Timing> {
        self.set_results_fresh(false);
        let phase = self.phase();
        let _span = phase::enter(phase, self.shared.backend());
        let start = Instant::now();
        let every = match self.shared.options.breadcrumbs {
            Breadcrumbs::EveryLaunch => 1,
            // First runs hang most often.
            Breadcrumbs::Auto if !self.ran => 1,
            Breadcrumbs::Auto => range.len().div_ceil(MARKS).max(1),
        };
        let graphs = self.has_graphs() && range.len() == self.launches.ready.len();
        let (launches, events) = (self.launches.clone(), self.shared.events.clone());
        let copies = self.input_copies(true)?;
        let run = Execution { launches, events, copies, graphs, range, every };
        let device =
            self.shared.thread.call(phase, self.shared.deadlines().compute, move |s| run.execute(s))?;
        self.inputs.mark_copied();
        lock(&self.shared.stats).submissions += 1;
        Ok(Timing { host: start.elapsed(), device })
    }
}

impl Program for HipProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.shared.backend());
        self.shared.thread.monitor().check(Phase::Upload)?;
        // The device may still be copying the inputs of the run, and reads states until it ends.
        if self.begun.is_some() {
            return Err(Error::argument("write", "a program that has begun", "one that has ended"));
        }
        self.window(tensor, data.len())?;
        let root = self.graph.tensor(tensor).root;
        if self.graph.tensor(root).source == Source::Weight {
            let what = format!("tensor '{}'", self.graph.tensor(tensor).name);
            return Err(Error::argument(what, "a weight", "an input or a state"));
        }
        if !self.inputs.store(root, self.graph.tensor(tensor).offset, data) {
            self.set_results_fresh(false);
            // A whole input that was written earlier must not overwrite a later partial write.
            self.flush(root)?;
            self.inputs.forget(root);
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
        self.set_results_fresh(true);
        self.ran = true;
        Ok(timing)
    }

    fn begin(&mut self) -> Result<()> {
        if self.begun.is_some() {
            return Err(Error::argument("begin", "a program that has begun", "one that has ended"));
        }
        let events = if self.has_graphs() { self.shared.acquire_events() } else { None };
        let Some(events) = events else {
            self.begun = Some(Begun::Ended(self.run()?));
            return Ok(());
        };
        self.set_results_fresh(false);
        let _span = phase::enter(Phase::Compute, self.shared.backend());
        let (launches, range) = (self.launches.clone(), 0..self.launches.ready.len());
        let copies = self.input_copies(true)?;
        let run = Arc::new(Execution { launches, events, copies, range, every: 1, graphs: true });
        let of_thread = run.clone();
        let limit = self.shared.deadlines().compute;
        let started = self.shared.thread.call(Phase::Compute, limit, move |s| of_thread.begin(s));
        if started.is_err() {
            self.shared.release_events(&run.events);
        }
        started?;
        self.inputs.mark_copied();
        lock(&self.shared.stats).submissions += 1;
        self.begun = Some(Begun::Started(run));
        Ok(())
    }

    fn finish(&mut self) -> Result<Timing> {
        let missing = || Error::argument("finish", "a program that has not begun", "one that has");
        let run = match self.begun.take().ok_or_else(missing)? {
            Begun::Ended(timing) => return Ok(timing),
            Begun::Started(run) => run,
        };
        let _span = phase::enter(Phase::Compute, self.shared.backend());
        let start = Instant::now();
        let (of_thread, limit) = (run.clone(), self.shared.deadlines().compute);
        let ended = self.shared.thread.call(Phase::Compute, limit, move |s| of_thread.finish(s));
        self.shared.release_events(&run.events);
        let device = ended?;
        self.set_results_fresh(true);
        Ok(Timing { host: start.elapsed(), device })
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        if !self.launches.alone {
            return Err(Error::argument(
                "run_step",
                "a program that was not prepared stepwise",
                "one that was",
            ));
        }
        let range = self.launches.of_step.get(step).cloned();
        let steps = self.launches.of_step.len();
        let range = range.ok_or_else(|| Error::argument("step", step, format!("less than {steps}")))?;
        let timing = self.execute(range)?;
        self.ran |= step + 1 == self.launches.of_step.len();
        Ok(timing)
    }
}

impl HipProgram {
    /// Copies the inputs immediately, if this one is waiting for the next run.
    fn flush(&mut self, root: TensorId) -> Result<()> {
        if !self.inputs.waits(root) {
            return Ok(());
        }
        let (copies, events) = (self.input_copies(false)?, self.shared.events.clone());
        self.shared.thread.call(Phase::Upload, self.shared.deadlines().transfer, move |session| {
            for (to, from, bytes) in &copies {
                session.upload(to, from, *bytes)?;
            }
            events.drain(session)
        })?;
        self.inputs.mark_copied();
        Ok(())
    }
}

impl Drop for HipProgram {
    fn drop(&mut self) {
        // Memory that a run uses is not freed before the run has ended.
        if self.begun.is_some()
            && !self.shared.thread.monitor().is_given_up()
            && let Err(error) = self.finish()
        {
            tracing::warn!(target: "diptych::hip", "a run did not end: {error}");
        }
        let graphs: Vec<GraphId> = self.launches.graphs.iter().map(|&(_, graph)| graph).collect();
        if graphs.is_empty() {
            return;
        }
        let limit = self.shared.deadlines().allocate;
        self.shared.thread.post(Phase::Close, limit, move |session| {
            for graph in graphs {
                if let Err(error) = session.free_graph(graph) {
                    tracing::warn!(target: "diptych::hip", "a graph was not freed: {error}");
                }
            }
        });
    }
}
