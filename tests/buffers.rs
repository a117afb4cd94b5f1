//! Devices whose largest buffer is smaller than what a model needs: state and intermediates lie in several, a
//! tensor that fits none is on the host, and the results are the same.

use crate::common::{backend, file, model, tiny};
use diptych::ggml::backend::{
    Backend, Bindings, Buffer, DeviceInfo, Limits, PrepareOptions, Program, Slice, Stats, Support, Usage,
};
use diptych::ggml::fuse::Group;
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::null::{NullBackend, NullOptions};
use diptych::ggml::phase::Deadlines;
use diptych::ggml::plan::Plan;
use diptych::ggml::{Graph, TensorId};
use diptych::model::{LoadOptions, Offload};
use diptych::synthesize::Shape;
use diptych::{DType, Error, Model, Precision, SessionOptions};
use std::sync::{Arc, Mutex};

/// A backend with a smaller largest buffer. It notes its allocations.
struct Limited {
    inner: Arc<dyn Backend>,
    device: DeviceInfo,
    allocated: Mutex<Vec<(Usage, usize)>>,
}

impl Limited {
    fn new(inner: &Arc<dyn Backend>, max_allocation: u64) -> Arc<Limited> {
        let device = inner.device().clone();
        let limits = Limits { max_allocation, ..device.limits };
        let device = DeviceInfo { limits, ..device };
        Arc::new(Limited { inner: inner.clone(), device, allocated: Mutex::default() })
    }

    /// Returns the lengths of the buffers that were allocated for a usage.
    fn allocated(&self, usage: Usage) -> Vec<usize> {
        self.allocated
            .lock()
            .unwrap()
            .iter()
            .filter(|(of, _)| *of == usage)
            .map(|&(_, bytes)| bytes)
            .collect()
    }
}

impl Backend for Limited {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }
    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.inner.supports(graph, node)
    }
    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        self.inner.joins(graph, group, precision)
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: Usage) -> diptych::Result<Buffer> {
        assert!(bytes as u64 <= self.device.limits.max_allocation, "{bytes} bytes for {usage:?}");
        self.allocated.lock().unwrap().push((usage, bytes));
        self.inner.allocate(bytes, usage)
    }
    fn import(&self, _bytes: MappedBytes) -> diptych::Result<Option<Buffer>> {
        Ok(None)
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> diptych::Result<()> {
        self.inner.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> diptych::Result<()> {
        self.inner.download(buffer, offset, out)
    }
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> diptych::Result<()> {
        self.inner.copy(from, to, bytes)
    }
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> diptych::Result<Box<dyn Program>> {
        self.inner.prepare(graph, plan, bindings, options)
    }
    fn begins(&self) -> bool {
        self.inner.begins()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// Batches of 64 tokens; caches of 160 KiB, two in each layer.
fn options() -> LoadOptions {
    let session = SessionOptions::default().with_context(640).with_batch(64).with_cache(DType::F32);
    LoadOptions::default().with_session(session)
}

/// Logits of a prompt of two batches, of two tokens after it, and after the state was saved and restored.
fn logits(model: &Model) -> Vec<f32> {
    let prompt: Vec<u32> = (0..100).map(|i| i * 7 % 200).collect();
    let mut session = model.session(&options().session).expect("a session");
    let mut logits = session.prefill(&prompt).expect("a prompt");
    logits.extend(session.decode(5).expect("a token"));
    let saved = session.save().expect("saved");
    let mut other = model.session(&options().session).expect("a session");
    other.restore(&saved).expect("restored");
    logits.extend(other.decode(9).expect("a token"));
    logits
}

fn load(shape: &Shape, device: &Arc<Limited>) -> Model {
    Model::load_with(file(shape), device.clone(), &options(), &mut |_, _| ()).expect("a model that loads")
}

fn several_buffers_change_nothing(name: &str, architectures: &[&str]) {
    let Some(inner) = backend(name) else { return };
    for &architecture in architectures {
        let layers = if architecture == "qwen3" { 2 } else { 4 };
        let shape = Shape { layers, ..tiny(architecture, DType::F32) };
        let want = logits(&load(&shape, &Limited::new(&inner, inner.device().limits.max_allocation)));
        let device = Limited::new(&inner, 192 << 10);
        let model = load(&shape, &device);
        assert_eq!(model.fallbacks(), [], "{architecture}");
        assert!(logits(&model) == want, "{name} {architecture}: other logits");
        for (usage, least) in [(Usage::Weights, 2), (Usage::State, 4), (Usage::Compute, 2)] {
            let found = device.allocated(usage);
            assert!(found.len() >= least, "{name} {architecture}: {usage:?} in {found:?}");
        }
    }
}

/// llama.cpp 15009 and 11598: caches beyond 4 GiB on RADV, 2 GiB on AMD's own driver.
#[test]
fn several_buffers_change_nothing_on_the_host() {
    several_buffers_change_nothing("cpu", &["qwen3", "qwen35"]);
}

#[test]
fn several_buffers_change_nothing_on_vulkan() {
    several_buffers_change_nothing("vulkan", &["qwen3", "qwen35"]);
}

#[test]
#[cfg(feature = "virtual")]
fn several_buffers_change_nothing_on_the_emulated_gpu() {
    several_buffers_change_nothing("vulkan-virtual", &["qwen3"]);
    several_buffers_change_nothing("hip-virtual:gfx906", &["qwen3"]);
}

/// The estimate has the buffers that are allocated, and `auto` does not give up layers for the limit.
#[test]
fn estimates_know_the_largest_buffer() {
    let host = backend("cpu").expect("a processor");
    let device: Arc<dyn Backend> = Arc::new(
        NullBackend::open(NullOptions::default().with_memory(64 << 20).with_largest_buffer(200 << 10))
            .unwrap(),
    );
    let options = options().with_offload(Offload::Auto).with_host(host);
    let shape = tiny("qwen3", DType::F32);
    let estimate = file(&shape).estimate(device.as_ref(), &options).unwrap();
    assert_eq!((estimate.units, estimate.is_partial()), (3, false), "{estimate}");
    let model = Model::load_with(file(&shape), device.clone(), &options, &mut |_, _| ()).unwrap();
    let mut session = model.session(&options.session).unwrap();
    session.prefill(&[1; 64]).unwrap();
    assert_eq!(device.stats().allocated_bytes, estimate.devices[0].total());
}

/// llama.cpp 14698 and 13024: a table of tokens that is larger than any buffer is on the host, by name.
#[test]
fn a_tensor_beyond_the_largest_buffer_is_on_the_host() {
    let host = backend("cpu").expect("a processor");
    let shape = Shape { tied: false, vocabulary: 1000, ..tiny("llama", DType::F32) };
    let want = logits(&model(&shape, &host));
    for (limit, large) in [(200 << 10, "the weight 'token_embd.weight'"), (100 << 10, "the state '")] {
        let device = Limited::new(&host, limit);
        let model = load(&shape, &device);
        let reasons: Vec<String> = model.fallbacks().iter().map(ToString::to_string).collect();
        assert!(reasons.iter().any(|r| r.contains(large) && r.contains("largest buffer")), "{reasons:?}");
        assert!(logits(&model) == want, "{limit}");
        assert!(model.estimate().is_some_and(|e| e.fits() && e.is_partial()));
    }
}

/// Without a host, the error says which tensor it is and what helps.
#[test]
fn without_a_host_a_tensor_beyond_the_largest_buffer_is_refused() {
    let host = backend("cpu").expect("a processor");
    let shape = tiny("llama", DType::F32);
    let refused = |result: diptych::Result<()>, name: &str| match result {
        Err(error @ Error::InvalidArgument { .. }) => {
            let text = error.to_string();
            assert!(
                text.contains(name) && text.contains("largest buffer") && text.contains("host"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    };
    refused(Model::from_file(file(&shape), Limited::new(&host, 70 << 10)).map(|_| ()), "token_embd.weight");
    let model = Model::from_file(file(&shape), Limited::new(&host, 150 << 10)).expect("the weights fit");
    refused(model.session(&options().session).map(|_| ()), "the state");
}
