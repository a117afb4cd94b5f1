//! Models split between a device and the host: the split does not change the tokens, and memory needs are
//! known before allocation.

use crate::common;

use common::{backend, file, model, tiny};
use diptych::ggml::backend::{
    Backend, Bindings, Buffer, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Usage,
};
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::null::{NullBackend, NullOptions};
use diptych::ggml::phase::Deadlines;
use diptych::ggml::plan::Plan;
use diptych::ggml::{Graph, MemoryNeed, TensorId};
use diptych::model::{LoadOptions, ModelFile, Offload};
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, Precision, Session, SessionOptions, greedy};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::Arc;

const PROMPT: [u32; 9] = [3, 141, 59, 26, 5, 35, 89, 79, 32];

/// Returns a model of every architecture.
fn shapes() -> Vec<Shape> {
    let dtype = DType::F32;
    let mut shapes: Vec<Shape> =
        ["llama", "qwen2", "qwen3", "granite", "qwen3moe"].iter().map(|name| tiny(name, dtype)).collect();
    shapes.push(Shape { original_context: None, ..tiny("phi3", dtype) });
    shapes.push(Shape { window: Some(5), ..tiny("gemma2", dtype) });
    shapes.push(Shape { layers: 3, window: Some(5), ..tiny("gemma3", dtype) });
    shapes.push(Shape { layers: 3, window: Some(5), ..tiny("gpt-oss", dtype) });
    let of_four = ["qwen35", "qwen35moe", "qwen3next", "llama4", "granitehybrid", "nemotron_h_moe"];
    shapes.extend(of_four.iter().map(|name| Shape { layers: 4, ..tiny(name, dtype) }));
    let of_two = ["glm4moe", "olmo2", "mistral3", "lfm2", "lfm2moe", "deepseek2"];
    shapes.extend(of_two.iter().map(|name| tiny(name, dtype)));
    shapes.push(Shape { layers: 4, window: Some(5), shared_caches: 0, ..tiny("gemma4", dtype) });
    shapes
}

fn session_options() -> SessionOptions {
    SessionOptions::default().with_context(64).with_batch(16).with_precision(Precision::Exact)
}

fn options(offload: Offload, host: &Arc<dyn Backend>) -> LoadOptions {
    LoadOptions::default().with_offload(offload).with_host(host.clone()).with_session(session_options())
}

fn load(file: ModelFile, device: &Arc<dyn Backend>, options: &LoadOptions) -> Model {
    Model::load_with(file, device.clone(), options, &mut |_, _| ()).expect("a model that loads")
}

/// Returns four greedy tokens after the prompt.
fn tokens(session: &mut Session) -> Vec<u32> {
    let mut logits = session.prefill(&PROMPT).expect("a prompt");
    let mut tokens = Vec::new();
    for _ in 0..4 {
        let token = greedy(&logits).unwrap();
        tokens.push(token);
        logits = session.decode(token).expect("a token");
    }
    tokens
}

fn tokens_of(model: &Model) -> Vec<u32> {
    tokens(&mut model.session(&session_options()).expect("a session"))
}

fn the_split_does_not_matter(device: &str) {
    let Some(device) = backend(device) else { return };
    let host = backend("cpu").expect("a processor");
    for shape in shapes() {
        let want = tokens_of(&model(&shape, &host));
        for offload in [Offload::None, Offload::Layers(1), Offload::Layers(2), Offload::All] {
            let model = load(file(&shape), &device, &options(offload, &host));
            assert_eq!(tokens_of(&model), want, "{} offload {offload}", shape.architecture);
            assert_eq!(model.fallbacks(), [], "{} offload {offload}", shape.architecture);
        }
    }
}

/// Layers that share the keys and values of an earlier layer run on the device that holds them.
#[test]
fn shared_keys_stay_together() {
    let Some(device) = backend("vulkan") else { return };
    let host = backend("cpu").expect("a processor");
    let shape = Shape { layers: 5, window: Some(5), ..tiny("gemma4", DType::F32) };
    let want = tokens_of(&model(&shape, &host));
    for (offload, apart) in [(Offload::None, false), (Offload::Layers(2), true), (Offload::All, false)] {
        let model = load(file(&shape), &device, &options(offload, &host));
        assert_eq!(tokens_of(&model), want, "{offload}");
        assert_eq!(!model.fallbacks().is_empty(), apart, "{offload}");
    }
}

#[test]
fn offloaded_to_vulkan() {
    the_split_does_not_matter("vulkan");
}

#[test]
fn offloaded_to_the_emulated_gpu() {
    the_split_does_not_matter("hip-virtual:gfx906");
}

/// Returns a device that computes nothing and reports `memory` bytes.
fn null(memory: Option<u64>) -> Arc<dyn Backend> {
    Arc::new(NullBackend::open(NullOptions::default().with_memory(memory)).expect("the null backend"))
}

fn three_layers() -> ModelFile {
    file(&Shape { layers: 3, ..tiny("qwen3", DType::F32) })
}

#[test]
fn each_device_gets_the_weights_that_it_uses() {
    let (device, host) = (null(None), backend("cpu").expect("a processor"));
    for (units, layers_from, whole) in
        [(0, 9, false), (1, 9, false), (2, 2, false), (3, 1, false), (4, 0, true), (99, 0, true)]
    {
        let file = three_layers();
        let used = |name: &str| match name.strip_prefix("blk.") {
            Some(rest) => rest[..1].parse::<usize>().is_ok_and(|layer| layer >= layers_from),
            // The embedding is also the output layer.
            None => units > 0,
        };
        let tensors = file.gguf().tensors().iter().filter(|t| whole || used(&t.name));
        let bytes: usize = tensors.map(|t| t.bytes).sum();
        let before = device.stats().uploaded_bytes;
        let mut seen = Vec::new();
        let options = options(Offload::Layers(units), &host);
        let model = Model::load_with(file, device.clone(), &options, &mut |done, all| seen.push((done, all)))
            .unwrap();
        assert_eq!(device.stats().uploaded_bytes - before, bytes as u64, "{units} units");
        assert_eq!(seen.last(), Some(&(bytes as u64, bytes as u64)));
        assert_eq!(model.units(), units.min(4));
    }
    // The host reads the file's own bytes.
    assert_eq!(host.stats().uploaded_bytes, 0);
}

#[test]
fn what_is_estimated_is_what_is_allocated() {
    let host = backend("cpu").expect("a processor");
    for cache in [DType::F32, DType::F16] {
        for offload in [Offload::None, Offload::Layers(1), Offload::Layers(2), Offload::All] {
            let device = null(None);
            let mut options = options(offload, &host);
            options.session.cache = Some(cache);
            let estimate = three_layers().estimate(device.as_ref(), &options).unwrap();
            assert_eq!(device.stats(), Stats::default(), "an estimate allocates nothing");
            let held = host.stats().allocated_bytes;
            let model = load(three_layers(), &device, &options);
            let mut session = model.session(&options.session).unwrap();
            session.prefill(&[1; 40]).unwrap();
            session.decode(2).unwrap();
            let [on_device, on_host] = [0, 1].map(|i| estimate.devices[i].total());
            assert_eq!(device.stats().allocated_bytes, on_device, "{offload}");
            assert_eq!(host.stats().allocated_bytes - held, on_host, "{offload}");
            assert_eq!((on_device == 0, on_host == 0), (offload == Offload::None, offload == Offload::All));
        }
    }
}

#[test]
fn as_much_as_fits_is_chosen() {
    let host = backend("cpu").expect("a processor");
    let of =
        |offload, memory| three_layers().estimate(null(memory).as_ref(), &options(offload, &host)).unwrap();
    assert_eq!(of(Offload::Auto, None).units, 4, "memory that is not known is enough");
    let needs: Vec<u64> = (0..=4).map(|n| of(Offload::Layers(n), None).devices[0].total()).collect();
    assert!(needs.is_sorted(), "{needs:?}");
    for (units, &need) in needs.iter().enumerate() {
        // A sixteenth of the memory is left free.
        let memory = need * 16 / 15 + 16;
        let estimate = of(Offload::Auto, Some(memory));
        assert_eq!((estimate.units, estimate.fits()), (units, true), "{memory} bytes");
        if units > 0 {
            assert_eq!(of(Offload::Auto, Some(need)).units, units - 1);
        }
    }
    let model = load(three_layers(), &null(Some(needs[2] * 2)), &options(Offload::Auto, &host));
    assert!((2..4).contains(&model.units()));
}

/// The default context of a program is the model's, halved until it fits into memory that is known to be free.
#[test]
fn the_context_is_as_long_as_fits() {
    let host = backend("cpu").expect("a processor");
    let long = || file(&Shape { context: 20_000, ..tiny("llama", DType::F32) });
    let of = |context: usize| {
        let options = options(Offload::All, &host).with_session(session_options().with_context(context));
        let need = long().estimate(null(None).as_ref(), &options).unwrap().devices.remove(0);
        need.weights + 2 * (need.state + need.compute)
    };
    let fitting = |file: ModelFile, offload, memory| {
        file.fitting_context(null(memory).as_ref(), &options(offload, &host)).unwrap()
    };
    for (memory, context) in [
        (Some(of(20_000)), 20_000),
        (Some(of(20_000) - 1), 10_000),
        (Some(of(5_000)), 5_000),
        (Some(1), 4096),
        (None, 4096),
    ] {
        assert_eq!(fitting(long(), Offload::All, memory), context, "{memory:?}");
    }
    assert_eq!(fitting(three_layers(), Offload::Auto, Some(1)), three_layers().hparams().context);
    // What the processor computes needs its memory.
    assert_eq!(fitting(long(), Offload::None, Some(1)), 20_000);
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let host = backend("cpu").expect("a processor");
    let need = three_layers().estimate(null(None).as_ref(), &options(Offload::All, &host)).unwrap();
    let device = null(Some(need.devices[0].total() - 1));
    let options_of = |session| options(Offload::All, &host).with_session(session);
    let refused = |device: &Arc<dyn Backend>, options: &LoadOptions| {
        Model::load_with(three_layers(), device.clone(), options, &mut |_, _| panic!("something is loaded"))
            .unwrap_err()
    };
    let error = refused(&device, &options_of(session_options()));
    let Error::DoesNotFit { needs } = &error else { panic!("{error}") };
    assert_eq!(needs[0], MemoryNeed { free: device.free_memory(), ..need.devices[0].clone() });
    assert_eq!(device.stats(), Stats::default());
    let text = error.to_string();
    assert!(
        ["null needs", "weights", "state", "compute", "free are", "cpu needs"]
            .iter()
            .all(|w| text.contains(w)),
        "{text}"
    );
    // More state on the host than this machine has memory.
    let huge = session_options().with_context(1 << 20).with_sequences(1 << 10).with_batch(1);
    let error = refused(&null(None), &options_of(huge).with_offload(Offload::None));
    assert!(matches!(&error, Error::DoesNotFit { needs } if needs[0].fits() && !needs[1].fits()), "{error}");
}

/// Loads without a host, and sessions, also check memory first; the check can be disabled for both.
#[test]
fn loads_and_sessions_that_do_not_fit_are_refused() {
    let weights: u64 =
        three_layers().gguf().tensors().iter().map(|t| t.bytes.next_multiple_of(64) as u64).sum();
    let device = null(Some(weights - 1));
    let error = Model::from_file(three_layers(), device.clone()).unwrap_err();
    let Error::DoesNotFit { needs } = &error else { panic!("{error}") };
    assert!(needs.len() == 1 && needs[0].weights > weights - 1 && needs[0].state == 0, "{error}");
    assert_eq!(device.stats(), Stats::default(), "nothing is loaded");
    let unchecked = LoadOptions::default().with_check_memory(false);
    Model::load_with(three_layers(), device, &unchecked, &mut |_, _| ())
        .expect("the device gives it all the same");

    let device = null(Some(weights + weights / 2));
    let model = Model::from_file(three_layers(), device.clone()).expect("there is room for the weights");
    let loaded = device.stats();
    let large = session_options().with_context(1 << 16);
    let error = model.session(&large).unwrap_err();
    assert!(matches!(&error, Error::DoesNotFit { needs } if needs[0].state > weights / 2), "{error}");
    assert_eq!(device.stats(), loaded, "nothing is allocated");
    model.session(&large.with_check_memory(false)).expect("the device gives it all the same");
    model.session(&session_options()).expect("a small one fits");
}

/// The CPU backend without kernels for one operation on certain numbers of tokens.
struct Without {
    inner: Arc<dyn Backend>,
    op: &'static str,
    tokens: RangeInclusive<usize>,
    device: DeviceInfo,
}

impl Backend for Without {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }
    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        let tensor = graph.tensor(node);
        match tensor.op().is_some_and(|op| op.name() == self.op) && self.tokens.contains(&tensor.ne[1]) {
            true => Support::no(format!("no kernel for {}", self.op)),
            false => self.inner.supports(graph, node),
        }
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: Usage) -> diptych::Result<Buffer> {
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
        for node in graph.computed() {
            assert_eq!(
                self.supports(graph, node),
                Support::Native,
                "a node that was refused came all the same"
            );
        }
        self.inner.prepare(graph, plan, bindings, options)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[test]
fn what_a_device_cannot_compute_falls_back_and_is_reported() {
    let host = backend("cpu").expect("a processor");
    let shape = tiny("qwen3", DType::F32);
    let want = tokens_of(&model(&shape, &host));
    for op in ["RMS_NORM", "FLASH_ATTN_EXT", "SET_ROWS", "SWIGLU", "MUL_MAT"] {
        let inner = backend("cpu").expect("a processor");
        let device = DeviceInfo { backend: "lacking".into(), ..inner.device().clone() };
        let lacking: Arc<dyn Backend> = Arc::new(Without { inner, op, tokens: 0..=usize::MAX, device });
        for offload in [Offload::Layers(2), Offload::All] {
            let model = load(file(&shape), &lacking, &options(offload, &host));
            let fallbacks = model.fallbacks();
            assert!(
                fallbacks.iter().any(|f| f.op == op && f.reason.contains("no kernel")),
                "{op} {fallbacks:?}"
            );
            // Operations on the same state fall back too, and no others.
            let cached = ["FLASH_ATTN_EXT", "SET_ROWS"];
            let along = |f: &&str| *f == op || cached.contains(&op) && cached.contains(f);
            assert!(fallbacks.iter().all(|f| along(&f.op)), "{op} {fallbacks:?}");
            let mut session = model.session(&session_options()).unwrap();
            assert_eq!(tokens(&mut session), want, "{op} offload {offload}");
            // Saved state does not depend on devices.
            let saved = session.save().unwrap();
            let mut whole = common::model(&shape, &host).session(&session_options()).unwrap();
            whole.restore(&saved).unwrap();
            assert_eq!(
                greedy(&whole.decode(want[3]).unwrap()).unwrap(),
                greedy(&session.decode(want[3]).unwrap()).unwrap()
            );
        }
    }
}

/// A batch whose shape no estimate covered: its fallbacks are reported too, once.
#[test]
fn what_falls_back_later_is_reported() {
    let host = backend("cpu").expect("a processor");
    let shape = tiny("qwen3", DType::F32);
    let inner = backend("cpu").expect("a processor");
    let device = DeviceInfo { backend: "lacking".into(), ..inner.device().clone() };
    let lacking: Arc<dyn Backend> = Arc::new(Without { inner, op: "SWIGLU", tokens: 2..=9, device });
    let model = load(file(&shape), &lacking, &options(Offload::All, &host));
    assert_eq!(model.fallbacks(), [], "neither one token nor a whole batch falls back");
    let mut session = model.session(&session_options()).unwrap();
    session.prefill(&[1, 2, 3, 4, 5]).unwrap();
    let found = model.fallbacks();
    assert!(!found.is_empty() && found.iter().all(|f| f.op == "SWIGLU"), "{found:?}");
    assert!(found.iter().all(|f| f.reason == "no kernel for SWIGLU"), "{found:?}");
    session.prefill(&[6, 7, 8, 9]).unwrap();
    session.decode(10).unwrap();
    assert_eq!(model.fallbacks(), found, "once");
    assert_eq!(model.later_fallbacks(), found);
}

#[test]
fn a_device_that_shares_the_memory_of_the_host_keeps_no_copy() {
    let Some(device) = backend("vulkan") else { return };
    if device.device().arch != "CPU" {
        eprintln!("skipped: {} has memory of its own", device.device().name);
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.gguf");
    synthesize::write(&tiny("llama", DType::F32), 3, &path).expect("a model file");
    let host = backend("cpu").expect("a processor");
    for offload in [Offload::Layers(2), Offload::All] {
        let options = options(offload, &host);
        let estimate = ModelFile::open(&path).unwrap().estimate(device.as_ref(), &options).unwrap();
        assert_eq!([estimate.devices[0].weights, estimate.devices[1].weights], [0, 0]);
        let before = device.stats();
        let model = load(ModelFile::open(&path).unwrap(), &device, &options);
        assert_eq!(device.stats().uploaded_bytes, before.uploaded_bytes);
        assert_eq!(tokens_of(&model), tokens_of(&load(ModelFile::open(&path).unwrap(), &host, &options)));
    }
}

/// Runs `compare`; returns its exit status and its report.
fn compare(args: &[&str]) -> (Option<i32>, Value) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(common::example("compare"));
    let output = command.args(args).arg("--out").arg(dir.path()).output().expect("compare runs");
    let text = std::fs::read_to_string(dir.path().join("result.json")).unwrap_or_else(|_| "null".into());
    (output.status.code(), serde_json::from_str(&text).expect("valid JSON"))
}

#[test]
fn compare_runs_every_split() {
    let work = ["--reference", "cpu", "--backends", "vulkan", "--precision", "exact", "--predict", "6"];
    let (status, result) =
        compare(&[&work[..], &["--offload", "0,1,3,-1", "--per-node", "isolated"]].concat());
    let records = result["records"].as_array().expect("records");
    let offload: Vec<i64> = records.iter().map(|r| r["offload"].as_i64().expect("a number")).collect();
    assert_eq!((status, offload), (Some(0), vec![-1, 0, 1, 3, -1]), "{result:#}");
    for record in records.iter().filter(|r| r["status"] == "ok") {
        assert_eq!(record["token_ids"], records[0]["token_ids"]);
    }
    for comparison in result["comparisons"].as_array().expect("comparisons") {
        assert!(comparison["nodes"].as_array().is_some_and(|nodes| nodes.len() > 90), "{comparison}");
    }
    assert_eq!(result["backends"].as_array().map(Vec::len), Some(2));

    // A crash in the device's part is attributed to its node.
    let backend = "null=crash@first_compute:blk.3.ffn_down";
    let (status, result) =
        compare(&["--reference", "cpu", "--backends", backend, "--offload", "1,2", "--predict", "1"]);
    let records = result["records"].as_array().expect("records");
    let of = |key: &str| records.iter().map(|r| r[key].as_str().unwrap_or("-")).collect::<Vec<_>>();
    assert_eq!(status, Some(1));
    assert_eq!(of("status"), ["ok", "ok", "crash"]);
    assert_eq!(of("node"), ["-", "-", "blk.3.ffn_down"]);
    assert_eq!(compare(&["--offload", "auto"]).0, Some(2));
}
