//! The reference backend: memory and programs around the definitions.

use crate::backend::{
    Backend, Bindings, Buffer, DeviceInfo, DeviceMemory, Limits, PrepareOptions, Program, Slice, Stats,
    Support, Timing, Usage,
};
use crate::dtype::DType;
use crate::error::{Error, Phase, Result};
use crate::exact::{NoMemory, Operand, OperandMut, Rounding, Sample, Stored};
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::{self, Deadlines};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::{Source, TensorId};
use std::any::Any;
use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const NAME: &str = "reference";

/// The reference backend.
#[derive(Debug)]
pub struct ReferenceBackend {
    device: DeviceInfo,
    deadlines: Deadlines,
    stats: Arc<Mutex<Stats>>,
}

/// Memory: owned bytes, or a memory map. Owned bytes are shared with the operands of a node while it is computed;
/// writing to shared bytes copies them.
#[derive(Debug)]
enum Memory {
    Own(Mutex<Arc<Vec<u8>>>),
    Mapped(MappedBytes),
}

/// Bytes of a tensor's storage.
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl DeviceMemory for Memory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Locks a mutex. Poisoning is ignored, because a holder cannot leave inconsistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error for a tensor of another graph (given by the caller, or in a plan).
fn foreign_tensor(id: TensorId) -> Error {
    Error::argument("tensor", format!("number {}", id.0), "one of the program's graph")
}

fn foreign() -> Error {
    Error::argument("buffer", "one of another backend", "one that this backend allocated or imported")
}

impl From<NoMemory> for Error {
    fn from(NoMemory { asked }: NoMemory) -> Error {
        Error::OutOfMemory {
            backend: NAME.into(),
            asked: asked as u64,
            free: None,
            heap: "host memory".into(),
            driver: None,
        }
    }
}

/// Allocates zeroed bytes.
fn zeros(count: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).map_err(|_| NoMemory { asked: count })?;
    bytes.resize(count, 0);
    Ok(bytes)
}

/// Copies bytes.
fn copied(from: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(from.len()).map_err(|_| NoMemory { asked: from.len() })?;
    bytes.extend_from_slice(from);
    Ok(bytes)
}

impl Memory {
    fn of(buffer: &Buffer) -> Result<&Memory> {
        buffer.downcast::<Memory>().ok_or_else(foreign)
    }

    fn read(&self, offset: usize, len: usize) -> Bytes<'_> {
        match self {
            Memory::Own(bytes) => Bytes::Shared(lock(bytes).clone(), offset..offset + len),
            Memory::Mapped(bytes) => Bytes::Borrowed(&bytes[offset..offset + len]),
        }
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        match self {
            Memory::Own(bytes) => {
                let mut own = lock(bytes);
                if Arc::get_mut(&mut own).is_none() {
                    *own = Arc::new(copied(&own)?);
                }
                if let Some(bytes) = Arc::get_mut(&mut own) {
                    bytes[offset..offset + data.len()].copy_from_slice(data);
                }
                Ok(())
            }
            Memory::Mapped(_) => Err(Error::argument("buffer", "a memory map", "memory that can be written")),
        }
    }
}

impl ReferenceBackend {
    /// Opens the backend.
    pub fn new(deadlines: Deadlines) -> ReferenceBackend {
        let device = DeviceInfo {
            backend: NAME.into(),
            name: "f64 reference".into(),
            driver: "diptych".into(),
            versions: vec![("diptych".into(), env!("CARGO_PKG_VERSION").into())],
            arch: "CPU".into(),
            uuid: None,
            memory: None,
            unified: true,
            features: vec![("accumulation".into(), "f64".into())],
            overrides: Vec::new(),
            limits: Limits {
                max_allocation: isize::MAX as u64,
                max_binding: isize::MAX as u64,
                alignment: 64,
            },
            routes: Vec::new(),
            candidates: Vec::new(),
            identity: Default::default(),
        };
        ReferenceBackend { device, deadlines, stats: Arc::default() }
    }
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        ReferenceBackend::new(Deadlines::default())
    }
}

impl Backend for ReferenceBackend {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        for t in graph.operands(node).into_iter().chain([graph.tensor(node)]) {
            if !t.dtype.info().computable {
                return Support::no(format!("type {} has no decoder", t.dtype));
            }
        }
        Support::Native
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        crate::op::mul_mat::WEIGHT_TYPES.contains(&dtype)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, NAME);
        let memory = zeros(bytes)?;
        let mut stats = lock(&self.stats);
        stats.driver_allocations += 1;
        stats.allocated_bytes += bytes as u64;
        Ok(Buffer::new(Arc::new(Memory::Own(Mutex::new(Arc::new(memory)))), bytes, usage))
    }

    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>> {
        let len = bytes.len();
        Ok(Some(Buffer::new(Arc::new(Memory::Mapped(bytes)), len, Usage::Weights)))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        buffer.check_range(offset, data.len())?;
        lock(&self.stats).uploaded_bytes += data.len() as u64;
        Memory::of(buffer)?.write(offset, data)
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        buffer.check_range(offset, out.len())?;
        out.copy_from_slice(&Memory::of(buffer)?.read(offset, out.len()));
        Ok(())
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        from.buffer.check_range(from.offset, bytes)?;
        to.buffer.check_range(to.offset, bytes)?;
        // A copy, because both may be in one buffer.
        let bytes = copied(&Memory::of(&from.buffer)?.read(from.offset, bytes))?;
        Memory::of(&to.buffer)?.write(to.offset, &bytes)
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        _options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let _span = phase::enter(Phase::Prepare, NAME);
        let steps: Vec<Vec<TensorId>> = plan.steps.iter().map(|step| step.group.nodes()).collect();
        if let Some(&node) = steps.iter().flatten().find(|node| graph.get(**node).is_none()) {
            return Err(foreign_tensor(node));
        }
        let mut storage = HashMap::new();
        for id in graph.ids() {
            let t = graph.tensor(id);
            if let Support::Unsupported { reason } = self.supports(graph, id) {
                let op = t.op().map_or("LEAF", |o| o.name());
                return Err(Error::Unsupported { backend: NAME.into(), op, node: t.name.clone(), reason });
            }
            if t.root != id {
                continue;
            }
            let place = match t.source {
                Source::Weight | Source::State => {
                    let slice = bindings.leaves.get(&id).ok_or_else(|| {
                        Error::argument(
                            "bindings",
                            format!("nothing for '{}'", t.name),
                            "storage of every weight and state",
                        )
                    })?;
                    slice.buffer.check_range(slice.offset, t.span_bytes())?;
                    Memory::of(&slice.buffer)?;
                    Storage::Bound(slice.clone())
                }
                Source::Input | Source::Node { .. } => Storage::Own(zeros(t.span_bytes())?),
            };
            storage.insert(id, place);
        }
        let mut stats = lock(&self.stats);
        stats.programs += 1;
        stats.recordings += 1;
        Ok(Box::new(ReferenceProgram {
            graph: graph.clone(),
            steps,
            storage,
            deadlines: self.deadlines.clone(),
            rounding: None,
            ran: false,
            stats: self.stats.clone(),
        }))
    }

    fn stats(&self) -> Stats {
        lock(&self.stats).clone()
    }
}

/// Storage of a root tensor.
#[derive(Debug)]
enum Storage {
    Own(Vec<u8>),
    Bound(Slice),
}

struct ReferenceProgram {
    graph: Graph,
    /// Nodes of each step.
    steps: Vec<Vec<TensorId>>,
    storage: HashMap<TensorId, Storage>,
    deadlines: Deadlines,
    rounding: Option<Sample>,
    ran: bool,
    stats: Arc<Mutex<Stats>>,
}

impl ReferenceProgram {
    /// Returns the storage of a tensor.
    fn bytes(&self, id: TensorId) -> Result<Bytes<'_>> {
        let root = self.graph.tensor(id).root;
        match self.storage.get(&root) {
            Some(Storage::Own(bytes)) => Ok(Bytes::Borrowed(bytes)),
            Some(Storage::Bound(slice)) => {
                Ok(Memory::of(&slice.buffer)?.read(slice.offset, self.graph.tensor(root).span_bytes()))
            }
            None => Err(foreign_tensor(id)),
        }
    }

    fn put(&mut self, id: TensorId, data: Vec<u8>) -> Result<()> {
        match self.storage.get_mut(&self.graph.tensor(id).root) {
            Some(Storage::Own(bytes)) => {
                *bytes = data;
                Ok(())
            }
            Some(Storage::Bound(slice)) => Memory::of(&slice.buffer)?.write(slice.offset, &data),
            None => Err(foreign_tensor(id)),
        }
    }

    /// Computes the members of a step's group in order.
    fn compute_step(&mut self, step: usize) -> Result<()> {
        for i in 0..self.steps[step].len() {
            self.compute(self.steps[step][i])?;
        }
        Ok(())
    }

    fn compute(&mut self, id: TensorId) -> Result<()> {
        let tensor = self.graph.tensor(id);
        let Source::Node { op, src } = &tensor.source else { return Ok(()) };
        // A copy, because a result may use the storage of an operand.
        let mut result = copied(&self.bytes(id)?)?;
        let mut out = OperandMut::new(tensor, tensor.offset, &mut result);
        if let Some(sample) = self.rounding {
            let inputs = self.rounded(id, sample, src)?;
            let operands: Vec<Operand<'_>> = inputs.iter().map(Stored::operand).collect();
            op.definition().reference(&operands, &mut out)?;
        } else {
            let inputs: Vec<Bytes<'_>> = src.iter().map(|&s| self.bytes(s)).collect::<Result<_>>()?;
            let tensors = src.iter().map(|&s| self.graph.tensor(s)).zip(&inputs);
            let operands: Vec<Operand<'_>> =
                tensors.map(|(tensor, bytes)| Operand::new(tensor, tensor.offset, bytes)).collect();
            op.definition().reference(&operands, &mut out)?;
        }
        self.put(id, result)
    }

    /// Returns copies of the operands of a node with the errors of a sample.
    fn rounded(&self, id: TensorId, sample: Sample, src: &[TensorId]) -> Result<Vec<Stored>> {
        let input = |&s: &TensorId| {
            let (tensor, bytes) = (self.graph.tensor(s), copied(&self.bytes(s)?)?);
            Ok(Stored { shape: Shape::clone(tensor), offset: tensor.offset, bytes })
        };
        let mut inputs: Vec<Stored> = src.iter().map(input).collect::<Result<_>>()?;
        let (tensor, Some(first)) = (self.graph.tensor(id), inputs.first()) else { return Ok(inputs) };
        let weights = first.shape.dtype;
        let rounds = tensor.op().map_or(&[][..], |op| op.definition().rounds(weights, sample.precision));
        let mut rng = Rng::named(&tensor.name, sample.seed);
        for (i, input) in inputs.iter_mut().enumerate() {
            let own = rounds.iter().find(|(index, _)| *index == i);
            own.map_or(Rounding::F32, |(_, rounding)| *rounding).apply(input, &mut rng)?;
        }
        Ok(inputs)
    }

    /// Returns the byte range of a contiguous tensor of `len` bytes in its root.
    fn range(&self, id: TensorId, len: usize) -> Result<(usize, usize)> {
        let t = self.graph.tensor(id);
        if !t.is_contiguous() || t.dense_bytes() != len {
            return Err(Error::argument(
                format!("bytes of '{}'", t.name),
                len,
                format!("the {} of the contiguous {}", t.dense_bytes(), t.describe()),
            ));
        }
        Ok((t.offset, t.offset + len))
    }
}

impl Program for ReferenceProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let (from, to) = self.range(tensor, data.len())?;
        let mut bytes = copied(&self.bytes(tensor)?)?;
        bytes[from..to].copy_from_slice(data);
        self.put(tensor, bytes)
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let (from, to) = self.range(tensor, out.len())?;
        out.copy_from_slice(&self.bytes(tensor)?[from..to]);
        Ok(())
    }

    fn run(&mut self) -> Result<Timing> {
        let phase = if self.ran { Phase::Compute } else { Phase::FirstCompute };
        let _span = phase::enter(phase, NAME);
        let start = Instant::now();
        for i in 0..self.steps.len() {
            self.compute_step(i)?;
            if start.elapsed() > self.deadlines.compute {
                return Err(Error::Timeout {
                    backend: NAME.into(),
                    phase,
                    node: self.steps[i].last().map(|&node| self.graph.tensor(node).name.clone()),
                    after: self.deadlines.compute,
                });
            }
        }
        self.ran = true;
        lock(&self.stats).submissions += 1;
        Ok(Timing { host: start.elapsed(), device: None })
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        let start = Instant::now();
        if step >= self.steps.len() {
            return Err(Error::argument("step", step, format!("less than {}", self.steps.len())));
        }
        self.compute_step(step)?;
        Ok(Timing { host: start.elapsed(), device: None })
    }

    fn set_rounding(&mut self, sample: Option<Sample>) -> Result<()> {
        self.rounding = sample;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::list;
    use crate::fuse::Group;
    use crate::plan::Step;
    use crate::precision::Precision;

    /// Computes a small product through the complete interface; the expected values are computed by hand.
    #[test]
    fn product_by_hand() {
        let mut g = Graph::new();
        let a = g.leaf("a", DType::F32, [2, 3, 1, 1], Source::Weight).unwrap();
        let b = g.leaf("b", DType::F32, [2, 2, 1, 1], Source::Input).unwrap();
        let d = g.mul_mat(a, b).unwrap();
        g.output(d).unwrap();
        let backend = ReferenceBackend::default();
        let plan = Plan::new(&g, 64, Precision::Exact).unwrap();
        let buffer = backend.allocate(24, Usage::Weights).unwrap();
        backend.upload(&buffer, 0, bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        let mut bindings = Bindings::default();
        assert!(
            backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).is_err(),
            "a weight without storage"
        );
        bindings.leaves.insert(a, Slice { buffer, offset: 0 });
        let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).unwrap();
        program.write(b, bytemuck::cast_slice(&[1.0f32, 10.0, 0.5, -1.0])).unwrap();
        assert!(program.write(b, &[0; 3]).is_err());
        program.run().unwrap();
        let mut out = [0.0f32; 6];
        program.read(d, bytemuck::cast_slice_mut(&mut out)).unwrap();
        assert_eq!(out, [21.0, 43.0, 65.0, -1.5, -2.5, -3.5]);
        assert!(program.run_step(1).is_err());
        // Tensors of another graph, one of them with as many bytes as the placeholder for unknown tensors.
        for (id, bytes) in [(TensorId(99), 4), (TensorId(3), 24)] {
            assert!(matches!(program.write(id, &[0; 24][..bytes]), Err(Error::InvalidArgument { .. })));
            assert!(matches!(program.read(id, &mut [0; 24][..bytes]), Err(Error::InvalidArgument { .. })));
        }
        let mut foreign = plan.clone();
        foreign.steps.push(Step { group: Group::Node(TensorId(7)), level: 2 });
        let prepared = backend.prepare(&g, &foreign, &bindings, PrepareOptions::default());
        assert!(matches!(prepared.err(), Some(Error::InvalidArgument { .. })), "a plan of another graph");
    }

    /// A result larger than any address space, from a view that repeats a row.
    #[test]
    fn memory_that_there_is_not_is_an_error() {
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [1024, 1, 1, 1], Source::Input).unwrap();
        let many = g.view(x, [1024, 1 << 50, 1, 1], [4, 0, 0, 0], 0).unwrap();
        let y = g.scale(many, 2.0, 0.0).unwrap();
        g.output(y).unwrap();
        let plan = Plan::new(&g, 64, Precision::Exact).unwrap();
        let backend = ReferenceBackend::default();
        let prepared = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default());
        let error = prepared.err().unwrap();
        assert!(matches!(error, Error::OutOfMemory { asked: 0x4000_0000_0000_0000, .. }), "{error}");
        assert_eq!(list(0..1u64 << 59), Err(NoMemory { asked: 1 << 62 }));
    }
}
