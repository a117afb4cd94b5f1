//! One card under two drivers: its memory once, each phase on one of them.
//!
//! The first driver allocates and exports, the second imports ([`Backend::allocate_exported`], [`Backend::adopt`]). So
//! weights and state lie on the card once, and a batch may run on either driver ([`Drivers::driver`]): the fastest for
//! prompts need not be the fastest for decode.
//!
//! Work of one driver is complete before the other uses the memory. Nothing waits while one driver is used alone.

mod order;
mod program;

use crate::backend::{
    Backend, Bindings, Buffer, DeviceInfo, DeviceMemory, Drivers, KernelCounts, Limits, PrepareOptions,
    Program, Slice, Stats, StepOutline, Support, Usage,
};
use crate::dtype::DType;
use crate::error::{Error, Missing, Phase, Result};
use crate::fuse::Group;
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::Deadlines;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::tensor::TensorId;
use order::Order;
use program::PairProgram;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that each driver writes and the other reads when a pair is opened.
const PROOF: usize = 64 << 10;

/// The card behind a pair and its drivers.
struct Card {
    /// The exporter and the importer.
    drivers: [Arc<dyn Backend>; 2],
    order: Order,
    /// True after the second driver refused memory: from then on the first one runs everything.
    alone: AtomicBool,
    /// True if refused memory is an error.
    needs_both: AtomicBool,
}

/// Memory of both drivers. Fields are dropped in their order: the importer's first.
#[derive(Debug)]
struct PairMemory {
    imported: Option<Buffer>,
    own: Buffer,
}

impl DeviceMemory for PairMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A card under two drivers, or one of the two ([`Drivers::driver`]): backends with the same buffers. The card computes on
/// its first driver.
pub struct Pair {
    card: Arc<Card>,
    /// The driver that computes.
    index: usize,
    info: DeviceInfo,
    /// Both drivers; none if it is one of them.
    halves: Vec<Pair>,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("backend", &self.info.backend).finish_non_exhaustive()
    }
}

impl Pair {
    /// Joins two drivers of one card: `exporter` allocates the memory, `importer` imports it. Each writes a pattern
    /// that the other one reads.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if memory cannot be exported or imported, or reads differently; errors of the drivers.
    pub fn new(exporter: Arc<dyn Backend>, importer: Arc<dyn Backend>) -> Result<Pair> {
        let infos = [exporter.device().clone(), importer.device().clone()];
        let limits = common(&infos[0].limits, &infos[1].limits);
        let info = joined(&infos, &limits);
        let card = Arc::new(Card {
            drivers: [exporter, importer],
            order: Order::default(),
            alone: AtomicBool::new(false),
            needs_both: AtomicBool::new(false),
        });
        let half = |index: usize| {
            let info = DeviceInfo { limits: limits.clone(), ..infos[index].clone() };
            Pair { card: card.clone(), index, info, halves: Vec::new() }
        };
        let halves = vec![half(0), half(1)];
        let pair = Pair { card, index: 0, info, halves };
        pair.prove()?;
        Ok(pair)
    }

    /// Makes it an error if the second driver refuses memory later, instead of going on with the first one.
    pub fn require_both(&self) {
        self.card.needs_both.store(true, Ordering::Release);
    }

    /// Checks that both drivers see one memory.
    fn prove(&self) -> Result<()> {
        let buffer = self.card.shared(2 * PROOF, Usage::State)?;
        for (writer, at) in [(0, 0), (1, PROOF)] {
            let (writer, reader) = (&self.halves[writer], &self.halves[1 - writer]);
            let pattern: Vec<u8> = (0..PROOF)
                .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ at as u8)
                .collect();
            writer.upload(&buffer, at, &pattern)?;
            let mut read = vec![0; PROOF];
            reader.download(&buffer, at, &mut read)?;
            if let Some(wrong) = (0..PROOF).find(|&i| read[i] != pattern[i]) {
                let (writer, reader) = (&writer.info.backend, &reader.info.backend);
                return Err(Error::Unavailable {
                    backend: self.info.backend.clone(),
                    phase: Phase::OpenDevice,
                    missing: Missing::Feature,
                    reason: format!(
                        "{reader} does not read what {writer} wrote into shared memory: {:#04x} at byte {wrong} in place of {:#04x}",
                        read[wrong], pattern[wrong]
                    ),
                });
            }
        }
        Ok(())
    }

    fn computing(&self) -> &dyn Backend {
        self.card.drivers[self.index].as_ref()
    }

    /// Returns the drivers whose counters are its own.
    fn counted(&self) -> &[Arc<dyn Backend>] {
        if self.halves.is_empty() { &self.card.drivers[self.index..=self.index] } else { &self.card.drivers }
    }

    /// Returns the number of times that work changed from one driver to the other.
    pub fn changes(&self) -> u64 {
        self.card.order.changes()
    }
}

/// Returns limits that hold for both drivers.
fn common(a: &Limits, b: &Limits) -> Limits {
    Limits {
        max_allocation: a.max_allocation.min(b.max_allocation),
        max_binding: a.max_binding.min(b.max_binding),
        alignment: a.alignment.max(b.alignment),
    }
}

/// Describes the card under both drivers.
fn joined(infos: &[DeviceInfo; 2], limits: &Limits) -> DeviceInfo {
    let [first, second] = infos;
    let both = |of: fn(&DeviceInfo) -> &Vec<(String, String)>| -> Vec<(String, String)> {
        let named = |info: &DeviceInfo| -> Vec<(String, String)> {
            let name = |(name, value): &(String, String)| (format!("{} {name}", info.backend), value.clone());
            of(info).iter().map(name).collect()
        };
        infos.iter().flat_map(named).collect()
    };
    DeviceInfo {
        backend: format!("{}+{}", first.backend, second.backend),
        name: first.name.clone(),
        driver: format!("{} + {}", first.driver, second.driver),
        versions: both(|info| &info.versions),
        features: both(|info| &info.features),
        overrides: both(|info| &info.overrides),
        limits: limits.clone(),
        routes: infos.iter().flat_map(|info| info.routes.clone()).collect(),
        ..first.clone()
    }
}

impl Card {
    /// Allocates memory of both drivers.
    fn shared(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let [exporter, importer] = &self.drivers;
        // The exporter may still be clearing the memory when this returns.
        let _turn = self.order.enter(&self.drivers, 0)?;
        let (own, exported) = exporter.allocate_exported(bytes, usage)?;
        let imported = Some(importer.adopt(exported, bytes, usage)?);
        Ok(Buffer::new(Arc::new(PairMemory { imported, own }), bytes, usage))
    }

    /// Allocates memory of the first driver only.
    fn own(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let own = self.drivers[0].allocate(bytes, usage)?;
        Ok(Buffer::new(Arc::new(PairMemory { imported: None, own }), bytes, usage))
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        if usage == Usage::Staging || self.alone.load(Ordering::Acquire) {
            return self.own(bytes, usage);
        }
        match self.shared(bytes, usage) {
            Err(
                error @ (Error::Driver { .. } | Error::Unavailable { .. } | Error::InvalidArgument { .. }),
            ) if !self.needs_both.load(Ordering::Acquire) => {
                let [first, second] = [0, 1].map(|i| &self.drivers[i].device().backend);
                tracing::warn!(target: "diptych::pair", "{first} goes on alone, since {second} does not share its memory: {error}");
                self.alone.store(true, Ordering::Release);
                self.own(bytes, usage)
            }
            other => other,
        }
    }

    /// Returns a driver's part of a buffer.
    fn part<'a>(&self, index: usize, buffer: &'a Buffer) -> Result<&'a Buffer> {
        let memory = buffer.downcast::<PairMemory>();
        let part =
            memory.and_then(|memory| if index == 0 { Some(&memory.own) } else { memory.imported.as_ref() });
        part.ok_or_else(|| {
            Error::argument(
                "buffer",
                "of another backend",
                format!("one of {}", self.drivers[index].device().backend),
            )
        })
    }

    fn slice(&self, index: usize, slice: &Slice) -> Result<Slice> {
        Ok(Slice { buffer: self.part(index, &slice.buffer)?.clone(), offset: slice.offset })
    }

    /// Returns a driver's part of everything that is bound.
    fn bindings(&self, index: usize, bindings: &Bindings) -> Result<Bindings> {
        let leaves = bindings.leaves.iter().map(|(&id, slice)| Ok((id, self.slice(index, slice)?)));
        let compute = bindings.compute.iter().map(|buffer| self.part(index, buffer).cloned());
        Ok(Bindings { leaves: leaves.collect::<Result<_>>()?, compute: compute.collect::<Result<_>>()? })
    }
}

impl Backend for Pair {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn deadlines(&self) -> &Deadlines {
        self.computing().deadlines()
    }

    fn free_memory(&self) -> Option<u64> {
        self.card.drivers[0].free_memory()
    }

    /// A node is computed by the pair if both drivers compute it: the division of a model between the card and the host
    /// must not depend on the phase.
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        let refusal = self.card.drivers.iter().map(|driver| driver.supports(graph, node));
        refusal.into_iter().find(|support| *support != Support::Native).unwrap_or(Support::Native)
    }

    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        self.computing().joins(graph, group, precision)
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        self.card.drivers.iter().all(|driver| driver.supports_weights(dtype))
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        self.card.allocate(bytes, usage)
    }

    /// Always returns `None`: a map is memory of one driver.
    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let part = self.card.part(self.index, buffer)?;
        let _turn = self.card.order.enter(&self.card.drivers, self.index)?;
        self.computing().upload(part, offset, data)
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let part = self.card.part(self.index, buffer)?;
        let _turn = self.card.order.enter(&self.card.drivers, self.index)?;
        self.computing().download(part, offset, out)
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let (from, to) = (self.card.slice(self.index, from)?, self.card.slice(self.index, to)?);
        let _turn = self.card.order.enter(&self.card.drivers, self.index)?;
        self.computing().copy(&from, &to, bytes)
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let bindings = self.card.bindings(self.index, bindings)?;
        let program = self.computing().prepare(graph, plan, &bindings, options)?;
        Ok(Box::new(PairProgram { card: self.card.clone(), index: self.index, program }))
    }

    fn begins(&self) -> bool {
        self.counted().iter().all(|driver| driver.begins())
    }

    fn outline(&self, graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
        self.computing().outline(graph, plan)
    }

    fn kernels(&self, graph: &Graph, plan: &Plan) -> Result<Vec<String>> {
        self.computing().kernels(graph, plan)
    }

    fn drivers(&self) -> Option<&dyn Drivers> {
        (!self.halves.is_empty()).then_some(self as &dyn Drivers)
    }

    /// Imported memory is counted where it was allocated.
    fn stats(&self) -> Stats {
        let add = |a: Stats, b: Stats| Stats {
            driver_allocations: a.driver_allocations + b.driver_allocations,
            allocated_bytes: a.allocated_bytes + b.allocated_bytes,
            pipelines: a.pipelines + b.pipelines,
            compile_time: a.compile_time + b.compile_time,
            programs: a.programs + b.programs,
            recordings: a.recordings + b.recordings,
            submissions: a.submissions + b.submissions,
            uploaded_bytes: a.uploaded_bytes + b.uploaded_bytes,
        };
        self.counted().iter().map(|driver| driver.stats()).fold(Stats::default(), add)
    }

    fn counts(&self) -> Result<Vec<KernelCounts>> {
        let all: Vec<_> = self.counted().iter().map(|driver| driver.counts()).collect::<Result<_>>()?;
        Ok(all.into_iter().flatten().collect())
    }
}

impl Drivers for Pair {
    fn driver(&self, index: usize) -> &dyn Backend {
        let alone = self.card.alone.load(Ordering::Acquire);
        self.halves.get(if alone { 0 } else { index.min(1) }).unwrap_or(self)
    }
}

#[cfg(all(test, unix))]
mod tests;
