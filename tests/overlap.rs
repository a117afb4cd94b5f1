//! Batches of a prompt that begin before the previous one has ended: their order, their results, and the
//! state after a failure or a stop by the application.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::ggml::backend::{
    Backend, Bindings, Buffer, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Timing, Usage,
};
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::phase::Deadlines;
use diptych::ggml::plan::Plan;
use diptych::ggml::{Graph, TensorId};
use diptych::session::KV_STEP;
use diptych::{DType, Error, Model, Result, Session, SessionOptions};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// Events of a backend's programs, which are numbered.
#[derive(Default)]
struct Seen {
    programs: usize,
    events: Vec<String>,
    /// The program that fails, once.
    failing: Option<usize>,
}

/// The CPU backend as a device that supports overlapping programs; records all calls.
struct Watched {
    inner: Arc<dyn Backend>,
    seen: Arc<Mutex<Seen>>,
}

/// A program whose inputs are buffered until it begins.
struct WatchedProgram {
    inner: Box<dyn Program>,
    number: usize,
    overlaps: bool,
    waiting: Vec<(TensorId, Vec<u8>)>,
    begun: Option<Timing>,
    seen: Arc<Mutex<Seen>>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("nobody panicked")
}

impl WatchedProgram {
    fn note(&self, what: &str) {
        let event = format!("{what} {}", self.number);
        let mut seen = lock(&self.seen);
        if seen.events.last() != Some(&event) {
            seen.events.push(event);
        }
    }
}

impl Program for WatchedProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.note("write");
        assert!(self.begun.is_none(), "the inputs of a program that is under way");
        self.waiting.push((tensor, data.to_vec()));
        Ok(())
    }
    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        self.note("read");
        self.inner.read(tensor, out)
    }
    fn run(&mut self) -> Result<Timing> {
        self.begin()?;
        self.finish()
    }
    fn begin(&mut self) -> Result<()> {
        self.note("begin");
        for (tensor, data) in self.waiting.drain(..) {
            self.inner.write(tensor, &data)?;
        }
        self.begun = Some(self.inner.run()?);
        Ok(())
    }
    fn finish(&mut self) -> Result<Timing> {
        self.note("end");
        let timing = self.begun.take().expect("a program that has begun");
        let mut seen = lock(&self.seen);
        if seen.failing.take_if(|failing| *failing == self.number).is_some() {
            return Err(Error::argument("a batch", "a failure", "none"));
        }
        Ok(timing)
    }
    fn run_step(&mut self, step: usize) -> Result<Timing> {
        self.inner.run_step(step)
    }
}

impl Backend for Watched {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.inner.supports(graph, node)
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        self.inner.allocate(bytes, usage)
    }
    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.inner.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(buffer, offset, out)
    }
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        self.inner.copy(from, to, bytes)
    }
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let inner = self.inner.prepare(graph, plan, bindings, options)?;
        let number = lock(&self.seen).programs;
        lock(&self.seen).programs += 1;
        let (overlaps, seen) = (options.overlaps, self.seen.clone());
        Ok(Box::new(WatchedProgram { inner, number, overlaps, waiting: Vec::new(), begun: None, seen }))
    }
    fn begins(&self) -> bool {
        true
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Drop for WatchedProgram {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.begun.is_none(), "program {} was left under way", self.number);
            assert!(self.overlaps || self.waiting.is_empty());
        }
    }
}

fn watched() -> (Session, Arc<Mutex<Seen>>) {
    let (inner, seen) = (backend("cpu").expect("a processor"), Arc::new(Mutex::new(Seen::default())));
    let device: Arc<dyn Backend> = Arc::new(Watched { inner, seen: seen.clone() });
    (session(&model(&tiny("llama", DType::F16), &device)), seen)
}

/// Batches as long as the programs' growth unit, so that each has its own program.
fn session(model: &Model) -> Session {
    let options = SessionOptions::default().with_context(1024).with_batch(KV_STEP);
    model.session(&options).expect("a session")
}

/// Two batches and a part of a third.
fn prompt() -> Vec<u32> {
    (0..2 * KV_STEP as u32 + 90).map(|i| (i * 37 + 5) % 203).collect()
}

#[test]
fn a_batch_begins_while_the_one_before_it_is_under_way() {
    let (mut session, seen) = watched();
    let first = session.prefill(&prompt()).expect("logits");
    let order = [
        "write 0", "begin 0", "write 1", "begin 1", "end 0", "write 2", "begin 2", "end 1", "end 2", "read 2",
    ];
    assert_eq!(lock(&seen).events, order);
    lock(&seen).events.clear();
    session.reset();
    assert_eq!(session.prefill(&prompt()).expect("logits"), first, "the same programs again");
    assert_eq!(lock(&seen).events, order);
    // Batches of one shape have two programs, which take turns.
    lock(&seen).events.clear();
    session.reset();
    let options = SessionOptions::default().with_context(1024).with_batch(16);
    let mut short = session.model().session(&options).expect("a session");
    let wanted = short.prefill(&prompt()[..56]).expect("logits");
    let order = [
        "write 3", "begin 3", "write 4", "begin 4", "end 3", "write 3", "begin 3", "end 4", "write 5",
        "begin 5", "end 3", "end 5", "read 5",
    ];
    assert_eq!(lock(&seen).events, order);
    let mut alone = Vec::new();
    short.reset();
    prompt()[..56].chunks(16).for_each(|batch| alone = short.prefill(batch).expect("a batch"));
    assert_eq!(alone, wanted, "the same as one after the other");
}

#[test]
fn a_failure_leaves_nothing_under_way() {
    let (mut session, seen) = watched();
    let wanted = session.prefill(&prompt()).expect("logits");
    for failing in 0..3 {
        session.reset();
        session.prefill(&[1, 2, 3]).expect("three tokens");
        session.truncate(0, 0).expect("none");
        lock(&seen).failing = Some(failing);
        session.prefill(&prompt()).expect_err("a batch that fails");
        assert_eq!(session.position(), 0, "as before the call");
        assert_eq!(session.prefill(&prompt()).expect("logits"), wanted, "after batch {failing} failed");
    }
}

#[test]
fn an_application_stops_while_a_batch_is_under_way() {
    let (mut session, seen) = watched();
    let wanted = session.prefill(&prompt()).expect("logits");
    session.reset();
    lock(&seen).events.clear();
    let stop = &mut |done: usize, _: usize| match done {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    assert_eq!(session.prefill_with(&prompt(), stop).expect("no failure"), None);
    assert_eq!(lock(&seen).events, ["write 0", "begin 0", "end 0"]);
    assert_eq!(session.position(), KV_STEP);
    assert_eq!(session.continue_with(&prompt()).expect("the rest"), wanted);
}

/// On every backend: the same bits as with batches that are awaited one by one.
#[test]
fn what_comes_out_is_the_same() {
    for (name, backend) in backends() {
        for architecture in ["llama", "qwen35"] {
            let model = model(&tiny(architecture, DType::Q8_0), &backend);
            let (mut session, prompt) = (session(&model), prompt());
            let mut alone = Vec::new();
            for batch in prompt.chunks(KV_STEP) {
                alone = session.prefill(batch).expect("a batch");
            }
            // The second time, programs are graphs on HIP.
            for time in 0..2 {
                session.reset();
                let together = session.prefill(&prompt).expect("a prompt");
                assert!(together == alone, "{name} {architecture}, time {time}");
            }
            // A step whose token the device chooses, as the last batch of a prompt.
            session.reset();
            let longer = &prompt[..2 * KV_STEP + 1];
            let together = session.prefill(longer).expect("a prompt");
            session.reset();
            longer.chunks(KV_STEP).for_each(|batch| alone = session.prefill(batch).expect("a batch"));
            assert!(together == alone, "{name} {architecture}: one token is left");
        }
    }
}
