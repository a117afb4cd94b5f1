//! Sessions: the same tokens give the same logits however they are split; programs are prepared once; misuse
//! is a typed error.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::ggml::gguf::{GgufFile, GgufWriter};
use diptych::ggml::metrics::distance;
use diptych::model::ModelFile;
use diptych::synthesize::{ARCHITECTURES, Shape};
use diptych::{DType, Error, Precision, SessionOptions};
use tracing_subscriber::layer::SubscriberExt;

fn exact(context: usize) -> SessionOptions {
    SessionOptions::default().with_context(context).with_precision(Precision::Exact)
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5) % 203).collect()
}

#[test]
fn batches_do_not_change_logits() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::Q8_0), &backend);
        let tokens = prompt(23);
        let whole = model.session(&exact(64)).unwrap().logits(&tokens).unwrap();
        let sevens = model.session(&exact(64).with_batch(7)).unwrap().logits(&tokens).unwrap();
        assert!(distance(&sevens, &whole).nmse < 1e-10, "{name}: batches of 7");
        let mut session = model.session(&exact(64)).unwrap();
        let singles: Vec<f32> = tokens.iter().flat_map(|&t| session.decode(t).unwrap()).collect();
        assert!(distance(&singles, &whole).nmse < 1e-10, "{name}: one by one");
        let last = model.session(&exact(64)).unwrap().prefill(&tokens).unwrap();
        assert!(distance(&last, &whole[whole.len() - last.len()..]).nmse < 1e-10, "{name}: last row only");
    }
}

#[test]
fn a_reset_session_starts_anew_and_sessions_do_not_mix() {
    for (name, backend) in backends() {
        let model = model(&tiny("llama", DType::F16), &backend);
        let (mut a, mut b) = (model.session(&exact(64)).unwrap(), model.session(&exact(64)).unwrap());
        let first = a.prefill(&prompt(9)).unwrap();
        b.prefill(&prompt(20)).unwrap();
        let continued = a.decode(7).unwrap();
        a.reset();
        assert_eq!(a.prefill(&prompt(9)).unwrap(), first, "{name}");
        assert_eq!(a.decode(7).unwrap(), continued, "{name}");
    }
}

/// Layers of every kind with a quantised cache: restored state continues like the session, and close to the
/// F32 result.
#[test]
fn every_architecture_goes_on_with_a_quantised_cache() {
    let cpu = backend("cpu").unwrap();
    for architecture in ARCHITECTURES {
        let model = model(&Shape { layers: 4, ..tiny(architecture, DType::F16) }, &cpu);
        let options = exact(64).with_cache(DType::Q8_0);
        let mut session = model.session(&options).unwrap();
        session.prefill(&prompt(19)).unwrap();
        let saved = session.save().unwrap();
        let wanted = session.decode(7).unwrap();
        let mut other = model.session(&options).unwrap();
        other.restore(&saved).unwrap();
        assert_eq!(other.decode(7).unwrap(), wanted, "{architecture}");
        let mut full = model.session(&exact(64)).unwrap();
        full.prefill(&prompt(19)).unwrap();
        let nmse = distance(&wanted, &full.decode(7).unwrap()).nmse;
        assert!(nmse < 1e-2, "{architecture}: {nmse:.1e}");
    }
}

/// F16 if activations may be rounded, otherwise F32, unless a type is requested. All programs of a session
/// use that type, so that half the type's size halves the state.
#[test]
fn the_cache_has_the_type_that_the_precision_allows() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let cache = |options: SessionOptions| {
            let mut session = model.session(&options.with_context(64)).unwrap();
            session.prefill(&prompt(10)).unwrap();
            session.decode(1).unwrap();
            (session.cache(), session.save().unwrap().len())
        };
        let (full, bytes) = cache(exact(64));
        assert_eq!(full, DType::F32, "{name}");
        let default = cache(SessionOptions::default());
        if name == "reference" {
            assert_eq!(default, (DType::F32, bytes));
        } else {
            assert!(default.0 == DType::F16 && default.1 < bytes * 6 / 10, "{name}: {default:?}");
        }
        assert_eq!(cache(SessionOptions::default().with_cache(DType::Q8_0)).0, DType::Q8_0, "{name}");
        assert_eq!(cache(exact(64).with_cache(DType::F16)).0, DType::F16, "{name}");
    }
}

/// The cache's rounding is visible, but within the bound of its type.
#[test]
fn the_cache_may_be_smaller() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let full = model.session(&exact(64)).unwrap().prefill(&prompt(30)).unwrap();
        for (cache, bound) in [(DType::F16, 1e-5), (DType::Q8_0, 1e-3), (DType::Q4_0, 0.1)] {
            let mut session = model.session(&exact(64).with_cache(cache)).unwrap();
            let whole = session.prefill(&prompt(30)).unwrap();
            let nmse = distance(&whole, &full).nmse;
            assert!(nmse > 0.0 && nmse < bound, "{name} {cache}: {nmse:.1e}");
            session.reset();
            session.prefill(&prompt(30)[..29]).unwrap();
            let nmse = distance(&session.decode(prompt(30)[29]).unwrap(), &whole).nmse;
            assert!(nmse < bound / 1e3, "{name} {cache}, decoded: {nmse:.1e}");
        }
    }
}

/// Within one growth unit of the context, a decode step runs prepared programs only.
#[test]
fn decoding_prepares_nothing() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::Q8_0), &backend);
        let mut session = model.session(&exact(600)).unwrap();
        session.prefill(&prompt(11)).unwrap();
        session.decode(1).unwrap();
        let before = backend.stats();
        for token in 0..20 {
            session.decode(token).unwrap();
        }
        let after = backend.stats();
        assert_eq!(after.driver_allocations, before.driver_allocations, "{name}");
        assert_eq!(after.allocated_bytes, before.allocated_bytes, "{name}");
        assert_eq!(after.pipelines, before.pipelines, "{name}");
        assert_eq!(after.recordings, before.recordings, "{name}");
        assert_eq!(after.programs, before.programs, "{name}");
        assert!(after.submissions >= before.submissions + 20, "{name}");
    }
}

/// The context may exceed a growth unit: another program, the same logits.
#[test]
fn decoding_goes_on_beyond_a_step() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::F16), &backend);
        let tokens = prompt(259);
        let mut session = model.session(&exact(300)).unwrap();
        session.prefill(&tokens[..254]).unwrap();
        let mut last = Vec::new();
        for &token in &tokens[254..] {
            last = session.decode(token).unwrap();
        }
        let whole = model.session(&exact(300)).unwrap().prefill(&tokens).unwrap();
        assert!(distance(&last, &whole).nmse < 1e-10, "{name}");
    }
}

/// A load makes few allocations, whatever the number of tensors.
#[test]
fn a_load_makes_few_allocations() {
    for (name, backend) in backends() {
        let shape = diptych::synthesize::Shape { layers: 40, ..tiny("qwen3", DType::Q8_0) };
        let before = backend.stats().driver_allocations;
        let model = model(&shape, &backend);
        let mut session = model.session(&exact(64)).unwrap();
        session.prefill(&prompt(4)).unwrap();
        session.decode(1).unwrap();
        let made = backend.stats().driver_allocations - before;
        assert!(model.file().gguf().tensors().len() > 400);
        assert!(made <= 8, "{name}: {made} allocations");
    }
}

#[test]
fn misuse_is_a_typed_error() {
    let backend = backend("cpu").unwrap();
    let model = model(&tiny("llama", DType::F32), &backend);
    let mut session = model.session(&exact(8)).unwrap();
    let argument = |r: diptych::Result<Vec<f32>>| match r {
        Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        argument(session.prefill(&[203])),
        "token id: 203; expected below 203, the size of the vocabulary"
    );
    assert!(argument(session.prefill(&[])).contains("at least one"));
    assert!(argument(session.prefill(&prompt(9))).contains("9 positions in sequence 0"));
    assert_eq!(session.position(), 0, "a refused call changes nothing");
    session.prefill(&prompt(8)).unwrap();
    assert!(argument(session.decode(1)).contains("at most 8, the context"));
    assert!(model.session(&exact(0)).is_err());
    let refused = |model: &diptych::Model, cache, part: &str| {
        let error = model.session(&exact(8).with_cache(cache)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&model, DType::Q6_K, "Q6_K; expected one of F32, F16, Q8_0, Q4_0");
    let heads = diptych::synthesize::Shape { head: 40, ..tiny("llama", DType::F32) };
    let model = common::model(&heads, &backend);
    refused(
        &model,
        DType::Q8_0,
        "Q8_0, with heads of 40 elements; expected heads of a multiple of 32 elements",
    );
}

#[test]
fn models_are_shared_between_threads() {
    let backend = backend("cpu").unwrap();
    let model = model(&tiny("qwen2", DType::Q8_0), &backend);
    let alone = model.session(&exact(64)).unwrap().prefill(&prompt(12)).unwrap();
    let results: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| model.session(&exact(64)).unwrap().prefill(&prompt(12)).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(results.iter().all(|r| *r == alone));
}

/// Restored state gives equal logits, also in a session with another context; unsuitable state is rejected
/// and changes nothing.
#[test]
fn a_saved_session_goes_on() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::Q8_0), &backend);
        let mut session = model.session(&exact(64)).unwrap();
        assert!(session.restore(&session.save().unwrap()).is_ok(), "{name}: an empty one");
        session.prefill(&prompt(19)).unwrap();
        let saved = session.save().unwrap();
        let wanted: Vec<Vec<f32>> = [7, 8, 9].iter().map(|&t| session.decode(t).unwrap()).collect();
        for context in [64, 100] {
            let mut other = model.session(&exact(context)).unwrap();
            other.prefill(&prompt(3)).unwrap();
            other.restore(&saved).unwrap();
            assert_eq!(other.position(), 19, "{name}");
            let got: Vec<Vec<f32>> = [7, 8, 9].iter().map(|&t| other.decode(t).unwrap()).collect();
            if context == 64 {
                assert_eq!(got, wanted, "{name}");
            } else {
                assert!(distance(&got.concat(), &wanted.concat()).nmse < 1e-12, "{name}");
            }
        }
    }
}

#[test]
fn a_saved_session_that_does_not_fit_is_refused() {
    let backend = backend("cpu").unwrap();
    let model_a = model(&tiny("qwen2", DType::F16), &backend);
    let mut a = model_a.session(&exact(64)).unwrap();
    a.prefill(&prompt(20)).unwrap();
    let saved = a.save().unwrap();
    let refused = |session: &mut diptych::Session, bytes: &[u8], part: &str| {
        let before = session.position();
        let error = session.restore(bytes).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(session.position(), before);
    };
    let other = model(&tiny("llama", DType::F16), &backend);
    refused(&mut other.session(&exact(64)).unwrap(), &saved, "another model");
    refused(&mut model_a.session(&exact(16)).unwrap(), &saved, "at most 16, the context");
    let half = exact(64).with_cache(DType::F16);
    refused(&mut model_a.session(&half).unwrap(), &saved, "F32");
    let mut old = saved.clone();
    old[8] = 1;
    refused(&mut a, &old, "version 1; expected 4");
    for end in [0, 4, 8, 12, 20, saved.len() - 1] {
        assert!(a.restore(&saved[..end]).is_err(), "{end}");
    }
    let longer = [&saved[..], &[0]].concat();
    refused(&mut a, &longer, "truncated");
    // The tokens precede the state.
    let mut foreign = saved.clone();
    let header = u32::from_le_bytes(saved[12..16].try_into().unwrap()) as usize;
    foreign[16 + header..][..4].copy_from_slice(&203u32.to_le_bytes());
    refused(&mut a, &foreign, "token id 203");
    // State of the same model, as another version divides it.
    let text = std::str::from_utf8(&saved[16..16 + header]).unwrap();
    let other = format!("{}[]}}", &text[..text.find("\"parts\":").unwrap() + 8]);
    let length = (other.len() as u32).to_le_bytes();
    let other = [&saved[..12], &length, other.as_bytes(), &saved[16 + header..]].concat();
    refused(&mut a, &other, "state in other parts than here");
    a.restore(&saved).unwrap();
}

/// Rewrites a model file with other padding between its tensors and another name.
fn repadded(gguf: &GgufFile) -> ModelFile {
    let mut writer = GgufWriter::new();
    writer.set_all(gguf.metadata()).unwrap();
    writer.set("general.name", "another name").unwrap().alignment(4096).unwrap();
    for t in gguf.tensors().iter().rev() {
        writer.tensor(t.name.clone(), t.dtype, t.shape(), gguf.data(t).unwrap().to_vec()).unwrap();
    }
    ModelFile::from_gguf(GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

/// State belongs to a model, defined by its hyperparameters and weights, not to a file.
#[test]
fn saved_state_is_of_a_model() {
    let backend = backend("cpu").unwrap();
    let shape = tiny("qwen2", DType::F16);
    let model = model(&shape, &backend);
    let mut session = model.session(&exact(64)).unwrap();
    session.prefill(&prompt(19)).unwrap();
    let saved = session.save().unwrap();
    let wanted = session.decode(7).unwrap();
    let copy = diptych::Model::from_file(repadded(model.file().gguf()), backend.clone()).unwrap();
    let mut other = copy.session(&exact(64)).unwrap();
    other.restore(&saved).unwrap();
    assert_eq!(other.tokens(0).unwrap(), prompt(19));
    assert_eq!(other.decode(7).unwrap(), wanted);
    // The same shape with other weights, also in only one tensor; and another hyperparameter.
    let refused = |file: ModelFile| {
        let other = diptych::Model::from_file(file, backend.clone()).unwrap();
        let error = other.session(&exact(64)).unwrap().restore(&saved).unwrap_err().to_string();
        assert!(error.contains("another model"), "{error}");
    };
    let opened = |bytes: Vec<u8>| ModelFile::from_gguf(GgufFile::from_bytes(bytes).unwrap()).unwrap();
    refused(opened(diptych::synthesize::bytes(&shape, 12).unwrap()));
    let mut bytes = diptych::synthesize::bytes(&shape, 11).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    refused(opened(bytes));
    let other_base = diptych::synthesize::Shape { freq_base: 5000.0, ..shape };
    refused(opened(diptych::synthesize::bytes(&other_base, 11).unwrap()));
}

/// Counter of the library's warnings about contexts.
#[derive(Default)]
struct Warnings(std::sync::atomic::AtomicUsize);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for &'static Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let about = event.metadata().fields().field("trained").is_some();
        self.0.fetch_add(usize::from(about), std::sync::atomic::Ordering::Relaxed);
    }
}

/// A context beyond the training context is allowed and reported once.
#[test]
fn a_context_beyond_the_training_is_said_once() {
    static WARNINGS: Warnings = Warnings(std::sync::atomic::AtomicUsize::new(0));
    let said = || WARNINGS.0.load(std::sync::atomic::Ordering::Relaxed);
    let model = model(&tiny("qwen2", DType::F16), &backend("cpu").unwrap());
    let trained = model.hparams().context;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(&WARNINGS), || {
        assert!(!model.session(&exact(trained)).unwrap().is_beyond_training());
        assert_eq!(said(), 0);
        for _ in 0..2 {
            assert!(model.session(&exact(trained + 1)).unwrap().is_beyond_training());
            assert_eq!(said(), 1);
        }
    });
}

#[test]
fn loading_tells_how_far_it_is() {
    for (name, backend) in backends() {
        let file = common::file(&tiny("llama", DType::F16));
        let bytes: u64 = file.gguf().tensors().iter().map(|t| t.bytes as u64).sum();
        let mut seen = Vec::new();
        diptych::Model::from_file_with(file, backend, &mut |done, total| seen.push((done, total))).unwrap();
        assert_eq!((seen[0], seen[seen.len() - 1]), ((0, bytes), (bytes, bytes)), "{name}");
        assert!(seen.windows(2).all(|w| w[0].0 <= w[1].0 && w[1].1 == bytes), "{name}");
    }
}
