//! Compiles every kernel source for every target and writes the table that the library includes.
//!
//! A code object is compiled again only if its source, a header, the options or the compiler changed. Without a
//! compiler the table is empty; a default target that fails is left out and its reason recorded, one that was asked
//! for by name fails the build.

#[path = "build/compiler.rs"]
mod compiler;

use compiler::Compiler;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

/// What is compiled unless `DIPTYCH_HIP_TARGETS` says otherwise. PTX for sm_70 runs on every later NVIDIA processor.
const DEFAULT_TARGETS: &[&str] = &[
    "gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1151",
    "gfx1200", "gfx1201", "sm_70",
];

fn main() {
    for name in ["DIPTYCH_HIP_TARGETS", "DIPTYCH_HIP_CLANG", "ROCM_PATH", "PATH", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let sources = Sources::read(&root.join("src"));
    let asked = Targets::from_environment();
    let compiler = if asked.list.is_empty() { None } else { Compiler::find() };
    match &compiler {
        Some(found) => println!("kernels are compiled with {} ({})", found.path.display(), found.version),
        None => println!("no kernels are compiled: no targets, or no clang 19 or later"),
    }
    let results = match &compiler {
        Some(compiler) => compile_all(compiler, &asked.list, &sources, &out),
        None => Vec::new(),
    };
    let mut refused = BTreeMap::new();
    for (target, stem, result) in &results {
        if let Err(reason) = result {
            assert!(!asked.by_name, "{stem}.hip does not compile for {target}:\n{reason}");
            refused.entry(target.clone()).or_insert_with(|| format!("{stem}.hip: {reason}"));
        }
    }
    let objects: Vec<(&str, &str)> = results
        .iter()
        .filter(|(target, _, _)| !refused.contains_key(target))
        .map(|(target, stem, _)| (target.as_str(), stem.as_str()))
        .collect();
    let version = compiler.as_ref().map(|c| c.version.as_str()).filter(|_| !objects.is_empty());
    fs::write(out.join("embedded.rs"), table(&sources, objects, &refused, version))
        .expect("OUT_DIR is writable");
}

/// The targets to compile for.
struct Targets {
    list: Vec<String>,
    by_name: bool,
}

impl Targets {
    fn from_environment() -> Targets {
        let text = env::var("DIPTYCH_HIP_TARGETS").unwrap_or_default();
        let default = || DEFAULT_TARGETS.iter().map(|t| t.to_string()).collect();
        match text.trim() {
            _ if env::var_os("DOCS_RS").is_some() => Targets { list: Vec::new(), by_name: false },
            "none" => Targets { list: Vec::new(), by_name: false },
            "" | "all" => Targets { list: default(), by_name: false },
            names => {
                let mut list: Vec<String> = names.split(',').map(|t| t.trim().to_string()).collect();
                let wrong = list.iter().find(|t| !compiler::is_target(t));
                assert!(
                    wrong.is_none(),
                    "DIPTYCH_HIP_TARGETS: '{}' is no target",
                    wrong.unwrap_or(&String::new())
                );
                list.sort();
                list.dedup();
                Targets { list, by_name: true }
            }
        }
    }
}

/// Kernel sources and headers, sorted by name.
struct Sources {
    directory: PathBuf,
    files: Vec<(String, String)>,
}

impl Sources {
    fn read(directory: &Path) -> Sources {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).expect("the sources are there").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".hip") || name.ends_with(".h") {
                files.push((name, fs::read_to_string(entry.path()).expect("sources are readable")));
            }
        }
        files.sort();
        Sources { directory: directory.into(), files }
    }

    fn stems(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter_map(|(name, _)| name.strip_suffix(".hip"))
    }

    /// What decides whether a code object has to be compiled again. Any header may be included by any source.
    fn key(&self, stem: &str, compiler: &Compiler, target: &str) -> String {
        let mut text = format!("{}\n{:?}\n", compiler.version, compiler::options(target));
        for (name, body) in &self.files {
            if name.ends_with(".h") || name.strip_suffix(".hip") == Some(stem) {
                let _ = write!(text, "{name}\n{body}");
            }
        }
        text
    }
}

/// Name of a code object in `OUT_DIR`; `:` of a target's modes is no character for file names everywhere.
fn object_name(target: &str, stem: &str) -> String {
    format!("{}-{stem}.co", target.replace(':', "_"))
}

type Compiled = (String, String, Result<(), String>);

/// Every source for every target, on as many threads as cargo grants; sorted by target and stem.
fn compile_all(compiler: &Compiler, targets: &[String], sources: &Sources, out: &Path) -> Vec<Compiled> {
    // The longest first, so that the last thread does not work alone for long.
    let mut stems: Vec<&str> = sources.stems().collect();
    stems.sort_by_key(|stem| !(stem.starts_with("mul_mat") || *stem == "flash_attn"));
    let jobs: Vec<(&String, &str)> =
        stems.iter().flat_map(|&s| targets.iter().map(move |t| (t, s))).collect();
    let granted = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(granted);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(target, stem)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = compile(compiler, target, stem, sources, out);
                    results.lock().expect("no holder panics").push((
                        target.clone(),
                        stem.to_string(),
                        result,
                    ));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no holder panics");
    results.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    results
}

fn compile(
    compiler: &Compiler,
    target: &str,
    stem: &str,
    sources: &Sources,
    out: &Path,
) -> Result<(), String> {
    let object = out.join(object_name(target, stem));
    let key_file = object.with_extension("key");
    let key = sources.key(stem, compiler, target);
    if object.exists() && fs::read_to_string(&key_file).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let _ = fs::remove_file(&key_file);
    compiler.run(target, &sources.directory.join(format!("{stem}.hip")), &object)?;
    fs::write(&key_file, key).map_err(|e| format!("{}: {e}", key_file.display()))
}

/// The text of the table.
fn table(
    sources: &Sources,
    objects: Vec<(&str, &str)>,
    refused: &BTreeMap<String, String>,
    version: Option<&str>,
) -> String {
    let mut targets: Vec<&str> = objects.iter().map(|&(target, _)| target).collect();
    targets.dedup();
    let stems: Vec<&str> = sources.stems().collect();
    let mut text = format!(
        "pub(super) const COMPILER: Option<&str> = {version:?};\n\
         pub(super) const TARGETS: &[&str] = &{targets:?};\n\
         pub(super) const STEMS: &[&str] = &{stems:?};\n\
         pub(super) const REFUSED: &[Refused] = &[\n"
    );
    for (target, reason) in refused {
        let _ = writeln!(text, "    Refused {{ target: {target:?}, reason: {reason:?} }},");
    }
    text += "];\npub(super) const SOURCES: &[(&str, &str)] = &[\n";
    for (name, _) in &sources.files {
        let _ = writeln!(
            text,
            "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/src/{name}\"))),"
        );
    }
    text += "];\npub(super) static OBJECTS: &[(&str, &str, &[u8])] = &[\n";
    for (target, stem) in objects {
        let file = object_name(target, stem);
        let _ = writeln!(
            text,
            "    ({target:?}, {stem:?}, {{ static OBJECT: &super::Aligned<[u8]> = \
             &super::Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\"))); &OBJECT.0 }}),"
        );
    }
    text + "];\n"
}
