//! The drivers of prompts and of decode steps, for a card under two drivers: measured on the model's own shapes.
//!
//! The first session of a model measures both drivers with a session of its own: a prompt, and decode steps behind it.
//! The table is kept in the user's cache folder, by card, drivers and shapes of the weights, so the next program
//! only reads it.

use super::{Item, Session, SessionOptions, Want, greedy, no_best};
use crate::backends::cache_folder;
use crate::json;
use crate::model::{Model, PhaseSpeed, PhaseTable, Phases};
use ggml_core::backend::{DeviceInfo, Drivers};
use ggml_core::files::{read_cached, write_cached};
use ggml_core::hash::Fnv1a;
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// Tokens of the prompt that is measured, or as many as a batch has.
const PROMPT: usize = 512;

/// Decode steps before the measurement, and those that are measured.
const STEPS: [usize; 2] = [8, 24];

/// Entries of the file: models and cards that were measured last.
const KEPT: usize = 64;

/// Maximum bytes of the file.
const LARGEST: u64 = 1 << 20;

/// Entry of the file.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    table: PhaseTable,
}

/// Decides which driver runs which phase of a model, if it is on a card under two drivers and that was not decided.
///
/// Emulated cards have no speed: there the exporter runs decode steps and the importer prompts. A driver that goes on alone
/// runs both.
pub(super) fn decide(model: &Model, options: &SessionOptions) {
    let Some(drivers) = model.backend().drivers() else { return };
    model.decide_phases(|| decision(model, drivers, options));
}

/// Returns the drivers of the phases, and how they were measured.
fn decision(model: &Model, drivers: &dyn Drivers, options: &SessionOptions) -> (Phases, Option<PhaseTable>) {
    let infos = [0, 1].map(|index| drivers.driver(index).device().clone());
    let is_alone = infos[0].backend == infos[1].backend;
    let is_emulated = infos.iter().any(|info| info.backend.contains("virtual"));
    if is_alone || is_emulated || !model.hparams().causal {
        return (Phases::DEFAULT, None);
    }
    let file = cache_folder().map(|folder| folder.join("phases.json"));
    let key = key(model, &infos);
    let table = table(file.as_deref(), &key, &infos, &mut |index| measure(model, options, index));
    tracing::info!(target: "diptych::pair", "{table}");
    (table.phases, Some(table))
}

/// Returns the table that was kept for a key, or measures and keeps one.
fn table(
    file: Option<&Path>,
    key: &str,
    infos: &[DeviceInfo; 2],
    measure: &mut dyn FnMut(usize) -> Result<(f64, f64)>,
) -> PhaseTable {
    let read = |file: &Path| json::read::<Vec<Entry>>(read_cached(file, LARGEST).ok()?).ok();
    let mut entries = file.and_then(read).unwrap_or_default();
    if let Some(entry) = entries.iter().find(|entry| entry.key == key && entry.table.is_whole()) {
        return PhaseTable { kept: true, ..entry.table.clone() };
    }
    let mut speed = |index: usize| {
        let backend = infos[index].backend.clone();
        match measure(index) {
            Ok((prompt, steps)) => PhaseSpeed { backend, prompt: Some(prompt), steps: Some(steps) },
            Err(error) => {
                tracing::warn!(target: "diptych::pair", "{backend} was not measured: {error}");
                PhaseSpeed { backend, prompt: None, steps: None }
            }
        }
    };
    let table = PhaseTable::new([speed(0), speed(1)]);
    if let Some(file) = file.filter(|_| table.is_whole()) {
        entries.retain(|entry| entry.key != key);
        entries.push(Entry { key: key.into(), table: table.clone() });
        let first = entries.len().saturating_sub(KEPT);
        // If it cannot be kept, it is measured again next time.
        let _ = serde_json::to_vec_pretty(&entries[first..]).map(|text| write_cached(file, &text));
    }
    table
}

/// Returns a text that differs between cards, drivers, and models of other shapes.
fn key(model: &Model, infos: &[DeviceInfo; 2]) -> String {
    let mut hash = Fnv1a::default();
    let mut add = |text: &str| {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    };
    for info in infos {
        add(&info.backend);
        add(&info.name);
        info.identity.0.iter().chain(&info.versions).for_each(|(name, value)| {
            add(name);
            add(value);
        });
    }
    let file = model.file();
    add(&file.hparams().architecture);
    file.gguf().tensors().iter().for_each(|tensor| add(&format!("{:?} {:?}", tensor.dtype, tensor.ne)));
    format!("{:016x}", hash.finish())
}

/// Returns the speeds of a driver in tokens of a prompt and in decode steps per second.
fn measure(model: &Model, options: &SessionOptions, index: usize) -> Result<(f64, f64)> {
    model.set_phases(Phases { prompts: index, steps: index }, None);
    let [warm, timed] = STEPS;
    let room = options.room(model.hparams());
    let tokens = PROMPT.min(room.saturating_sub(warm + timed));
    if tokens == 0 {
        return Err(Error::argument("context", room, "room for a measurement"));
    }
    let small = SessionOptions::default()
        .with_context(tokens + warm + timed)
        .with_cache(options.cache)
        .with_precision(options.precision);
    let mut session = Session::undecided(model.clone(), &small)?;
    let vocabulary = model.hparams().vocabulary.max(1);
    let prompt: Vec<u32> = (0..tokens).map(|i| (i * 7919 % vocabulary) as u32).collect();
    session.prefill(&prompt)?;
    session.reset();
    let start = Instant::now();
    let mut token = greedy(&session.prefill(&prompt)?)?;
    let prompt_s = start.elapsed().as_secs_f64();
    let mut steps = |session: &mut Session, count: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let item = Item { sequence: 0, tokens: &[token] };
            let row = session.append(&[item], Want::Best(1))?.get(0);
            token = row.ok_or_else(no_best)?.greedy()?;
        }
        Ok(start.elapsed().as_secs_f64())
    };
    steps(&mut session, warm)?;
    Ok((tokens as f64 / prompt_s, timed as f64 / steps(&mut session, timed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelFile;
    use crate::synthesize::{self, Shape};
    use ggml_core::backend::Backend as _;
    use ggml_core::gguf::GgufFile;
    use ggml_core::null::{NullBackend, NullOptions};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// One of the threads that begin sessions at the same time decides; the others see nothing before that.
    #[test]
    fn one_thread_decides() {
        let shape = Shape::small("llama");
        let bytes = synthesize::bytes(&shape, 1).unwrap();
        let file = ModelFile::from_gguf(GgufFile::from_bytes(bytes).unwrap()).unwrap();
        let backend = Arc::new(NullBackend::open(NullOptions::default()).unwrap());
        let model = Model::from_file(file, backend).unwrap();
        let decisions = AtomicUsize::new(0);
        let [tried, decided] = [[1, 1], [1, 0]].map(|[prompts, steps]| Phases { prompts, steps });
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    model.decide_phases(|| {
                        decisions.fetch_add(1, Ordering::SeqCst);
                        model.set_phases(tried, None);
                        std::thread::sleep(Duration::from_millis(30));
                        (decided, None)
                    });
                    assert_eq!(model.decided(), Some(decided));
                });
            }
        });
        assert_eq!(decisions.into_inner(), 1);
    }

    /// Measured speeds are kept by key; a driver that failed is measured again next time.
    #[test]
    fn tables_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("diptych/phases.json");
        let device = NullBackend::open(NullOptions::default()).unwrap().device().clone();
        let infos = ["vulkan:0", "hip:0"].map(|name| DeviceInfo { backend: name.into(), ..device.clone() });
        let mut measured = 0;
        let mut table = |key: &str, speeds: [Result<(f64, f64)>; 2]| {
            let mut speeds = speeds.map(Some);
            let of = &mut |index: usize| {
                measured += 1;
                speeds[index].take().expect("measured once")
            };
            (table(Some(&file), key, &infos, of), measured)
        };
        let failed = || Err(Error::argument("memory", "full", "room"));
        let (first, count) = table("a", [Ok((5000.0, 348.0)), failed()]);
        assert_eq!((first.phases, count), (Phases { prompts: 0, steps: 0 }, 2));
        let sentence =
            "prompts on vulkan:0 (5000 t/s; hip:0 failed), decode on vulkan:0 (348 t/s; hip:0 failed)";
        assert_eq!(first.to_string(), sentence);
        let (second, count) = table("a", [Ok((5000.0, 348.0)), Ok((12284.0, 290.0))]);
        assert_eq!((second.phases, count), (Phases { prompts: 1, steps: 0 }, 4));
        let (kept, count) = table("a", [failed(), failed()]);
        assert_eq!((kept.phases, kept.kept, count), (second.phases, true, 4));
        assert!(kept.to_string().ends_with(", as measured before"), "{kept}");
        let (other, count) = table("b", [Ok((1.0, 1.0)), Ok((0.5, 2.0))]);
        assert_eq!((other.phases, count), (Phases { prompts: 0, steps: 1 }, 6));
        // A torn file counts as none.
        std::fs::write(&file, "[{").unwrap();
        assert_eq!(table("a", [Ok((1.0, 1.0)), Ok((0.5, 2.0))]).1, 8);
    }
}
