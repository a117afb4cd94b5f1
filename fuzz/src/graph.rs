//! Graph files: a file that parses is a graph that the reference and the CPU backend either run or reject.
//!
//! The input is the JSON text, a zero byte, then the contents of the leaves.
#![no_main]

use ggml_core::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::graph::file::GraphFile;
use ggml_core::precision::Precision;
use ggml_core::plan::Plan;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{Result, Source};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Maximum elements of a graph to compute; larger ones are only parsed.
const SMALL: usize = 1 << 14;

static BACKENDS: LazyLock<Vec<Box<dyn Backend>>> = LazyLock::new(|| {
    let cpu = CpuBackend::open(CpuOptions::default().with_threads(1));
    vec![Box::new(ReferenceBackend::default()), Box::new(cpu.expect("this machine has a processor"))]
});

fn run(backend: &dyn Backend, GraphFile { graph, data }: &GraphFile) -> Result<()> {
    let plan = Plan::fused(graph, backend, Precision::Exact)?;
    let mut bindings = Bindings::default();
    for id in graph.ids() {
        let tensor = graph.tensor(id);
        let usage = match tensor.source {
            Source::Weight => Usage::Weights,
            Source::State => Usage::State,
            _ => continue,
        };
        let buffer = backend.allocate(tensor.span_bytes(), usage)?;
        if let Some(data) = data.get(&id) {
            backend.upload(&buffer, 0, data)?;
        }
        bindings.leaves.insert(id, Slice { buffer, offset: 0 });
    }
    let mut program = backend.prepare(graph, &plan, &bindings, PrepareOptions::default())?;
    for id in graph.ids().filter(|&id| graph.tensor(id).source == Source::Input) {
        match data.get(&id) {
            Some(data) => program.write(id, data)?,
            None => program.write(id, &vec![0; graph.tensor(id).span_bytes()])?,
        }
    }
    program.run()?;
    for &output in graph.outputs() {
        program.read(output, &mut vec![0; graph.tensor(output).span_bytes()])?;
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let (json, data) = match bytes.iter().position(|b| *b == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    let folder = std::env::temp_dir();
    let path = folder.join(format!("diptych-fuzz-{}.json", std::process::id()));
    if std::fs::write(&path, json).and_then(|()| std::fs::write(path.with_extension("bin"), data)).is_err() {
        return;
    }
    let Ok(file) = GraphFile::load(&path) else { return };
    let elements = |id| file.graph.tensor(id).ne.iter().fold(1usize, |n, e| n.saturating_mul(*e));
    let total = file.graph.ids().fold(0usize, |n, id| n.saturating_add(elements(id)));
    if total <= SMALL {
        for backend in BACKENDS.iter() {
            let _ = run(backend.as_ref(), &file);
        }
    }
});
