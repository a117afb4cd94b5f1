//! Helpers shared by several tests.
#![allow(dead_code, unreachable_pub)]

pub mod rocm;

use diptych::ggml::backend::Backend;
use diptych::ggml::gguf::GgufFile;
use diptych::model::ModelFile;
use diptych::synthesize::{self, Drafts, Shape};
use diptych::{DType, Error, Model, OpenOptions, open};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the shape of a tiny model: two layers, extents that are no multiples of tile sizes.
pub fn tiny(architecture: &str, dtype: DType) -> Shape {
    Shape {
        layers: 2,
        embedding: 96,
        feed_forward: 160,
        heads: 6,
        heads_kv: 2,
        head: 32,
        vocabulary: 203,
        context: 1024,
        tied: architecture != "llama",
        ..Shape::small(architecture).with_type(dtype)
    }
}

/// Returns the shape of a tiny qwen35 with a layer of each kind and a predictor.
pub fn tiny_predicting(drafts: Drafts) -> Shape {
    let mut shape = tiny("qwen35", DType::F16).with_predictor(drafts);
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    shape
}

/// Models that were made for [`file`], by shape. Drawing weights takes longer than running most of these models.
static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Returns a synthetic model file in memory.
pub fn file(shape: &Shape) -> ModelFile {
    let key = format!("{shape:?}");
    let known = MADE.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    let bytes = known.unwrap_or_else(|| {
        let bytes = synthesize::bytes(shape, 11).expect("a model");
        MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(key, bytes.clone());
        bytes
    });
    ModelFile::from_gguf(GgufFile::from_bytes(bytes).expect("a GGUF file")).expect("a known architecture")
}

/// Loads a synthetic model on a backend.
pub fn model(shape: &Shape, backend: &Arc<dyn Backend>) -> Model {
    Model::from_file(file(shape), backend.clone()).expect("a model that loads")
}

/// Opens a backend; `None` with a message if it is unavailable. Any other error fails the test.
pub fn backend(name: &str) -> Option<Arc<dyn Backend>> {
    match open(name, &OpenOptions::default()) {
        Ok(backend) => Some(backend),
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {name} is not available: {reason}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Backends that were opened for [`backends`]. They keep their compiled kernels.
static OPENED: Mutex<Vec<(&str, Arc<dyn Backend>)>> = Mutex::new(Vec::new());

/// Returns the computing backends that are available here. A test gets backends that no other test uses at the
/// time; those of earlier tests are used again, because a software driver compiles each kernel for seconds.
pub fn backends() -> Vec<(&'static str, Arc<dyn Backend>)> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut find = |name: &'static str| {
        let idle = opened.iter().find(|(of, backend)| *of == name && Arc::strong_count(backend) == 1);
        if let Some((_, idle)) = idle {
            return Some((name, idle.clone()));
        }
        let new = backend(name)?;
        opened.push((name, new.clone()));
        Some((name, new))
    };
    ["reference", "cpu", "vulkan", "hip-virtual:gfx906"].into_iter().filter_map(&mut find).collect()
}

/// Returns the path of an example program; `cargo test` builds all of them.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let path = test.parent().and_then(|p| p.parent()).expect("a target folder").join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --examples` or plain `cargo test`",
        path.display()
    );
    path
}

/// Runs `compare` with an output folder; returns its output and `result.json`, null if missing.
pub fn compare(out: &Path, args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(example("compare"));
    if !args.contains(&"--per-node") {
        command.args(["--per-node", "off"]);
    }
    let output = command.args(args).arg("--out").arg(out).output().expect("compare runs");
    (output, result(out))
}

/// Returns the report in an output folder of `compare`; null if missing.
pub fn result(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("result.json")).unwrap_or_else(|_| "null".into());
    serde_json::from_str(&text).expect("valid JSON")
}

/// Returns the backend-level record of a backend in a report.
pub fn record<'a>(result: &'a Value, backend: &str) -> &'a Value {
    let records = result["records"].as_array().expect("records");
    let mut own = records.iter().filter(|r| r["backend"] == backend && r["case"].is_null());
    let record = own.next().unwrap_or_else(|| panic!("no record of {backend}"));
    assert!(own.next().is_none(), "two records of {backend}");
    record
}

/// Returns the standard output of a program.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard output with every run of white space as one space, because full table lines are
/// wrapped.
pub fn flat(output: &Output) -> String {
    stdout(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Compiles a C file of the repository to a shared library. `None` without a C compiler.
pub fn shared_library(path: &Path, source: &str, defines: &[String]) -> Option<()> {
    let output = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-fPIC", "-include", "signal.h", "-include", "stdlib.h", "-include", "unistd.h"])
        .args(defines)
        .arg("-o")
        .arg(path)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: no C compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Builds a fake libamdhip64 that runs C code on load and in hipInit. `None` without a C compiler.
pub fn hip_library(dir: &Path, on_load: &str, init: &str) -> Option<PathBuf> {
    let path = dir.join("libamdhip64.so.6");
    let defines = ["-DCOUNT=0".into(), format!("-DON_LOAD={on_load}"), format!("-DINIT={init}")];
    shared_library(&path, "backend-hip/tests/c/amdhip64.c", &defines)?;
    Some(path)
}
