//! Compiles every kernel source for every target, packs the code objects and writes the table that the
//! library includes.
//!
//! A code object is compiled once for all clones, profiles and feature sets of a user (`build/store.rs`). It
//! is compiled again only if its source, a header that it includes, the options or the compiler changed. Those
//! in the repository need no compiler (`build/prebuilt.rs`); one that `DIPTYCH_HIP_CLANG` names compiles all.
//! A target without a compiler is left out and its reason recorded, like one that fails; a target that fails
//! and was requested by name fails the build.

#[path = "build/archive.rs"]
pub(crate) mod archive;
#[path = "build/compiler.rs"]
pub(crate) mod compiler;
#[path = "src/page.rs"]
mod page;
#[path = "build/prebuilt.rs"]
pub(crate) mod prebuilt;
#[path = "src/registers.rs"]
mod registers;
#[path = "build/sources.rs"]
pub(crate) mod sources;
#[path = "build/store.rs"]
pub(crate) mod store;
#[path = "build/targets.rs"]
pub(crate) mod targets;
#[path = "build/twins.rs"]
pub(crate) mod twins;

use compiler::Compiler;
use prebuilt::Prebuilt;
use sources::Sources;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process, thread};
use store::Store;
use targets::Targets;

fn main() {
    for name in ["DIPTYCH_HIP_TARGETS", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=objects");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let sources = Sources::read(&root.join("src"));
    let docs = env::var_os("DOCS_RS").map(|_| "none".into());
    let asked = docs.unwrap_or_else(|| env::var("DIPTYCH_HIP_TARGETS").unwrap_or_default());
    let asked = Targets::parse(&asked, Path::new("/"))
        .unwrap_or_else(|name| panic!("DIPTYCH_HIP_TARGETS: '{name}' is no target"));
    let makers = Makers::find(&asked, &sources, &root.join("objects"));
    let store = Store::open(store::user_cache().as_deref(), &out);
    let built = build(&makers, &asked, &sources, &store, &out);
    let texts = archive::text(sources.texts().as_bytes()).expect("a Vec takes everything");
    fs::write(out.join("sources.lzma"), texts).expect("OUT_DIR is writable");
    fs::write(out.join("embedded.rs"), table(&sources, &built)).expect("OUT_DIR is writable");
}

/// Where code objects come from.
pub(crate) struct Makers {
    /// `None` if there is none, or no need for it.
    pub(crate) compiler: Option<Compiler>,
    pub(crate) prebuilt: Prebuilt,
}

impl Makers {
    fn find(asked: &Targets, sources: &Sources, objects: &Path) -> Makers {
        println!("cargo:rerun-if-env-changed=DIPTYCH_HIP_CLANG");
        let is_named = env::var_os("DIPTYCH_HIP_CLANG").is_some();
        let prebuilt = if is_named { Prebuilt::default() } else { Prebuilt::read(objects, sources) };
        let is_needed = asked.list.iter().any(|target| !prebuilt.is_complete(target, sources));
        Makers { compiler: is_needed.then(Compiler::find).flatten(), prebuilt }
    }
}

/// Contents of the table.
#[derive(Default)]
pub(crate) struct Built {
    pub(crate) targets: Vec<Packed>,
    /// Targets that were requested and are not there, with reasons.
    pub(crate) refused: BTreeMap<String, String>,
}

/// Target in an archive: its name, the compilers of its code objects, the archive's name, its offset there, the
/// sizes of its code objects by stem.
pub(crate) struct Packed {
    target: String,
    pub(crate) compiler: String,
    generation: String,
    begin: usize,
    packed: usize,
    sizes: Vec<usize>,
}

/// Compiles the code objects that the repository and `store` lack, and writes the archives to `out`.
pub(crate) fn build(makers: &Makers, asked: &Targets, sources: &Sources, store: &Store, out: &Path) -> Built {
    let mut built = Built::default();
    let is_there =
        |target: &&String| makers.compiler.is_some() || makers.prebuilt.is_complete(target, sources);
    let (targets, missing): (Vec<_>, Vec<_>) = asked.list.iter().partition(is_there);
    built.refused.extend(missing.into_iter().map(|target| (target.clone(), NO_COMPILER.into())));
    let objects = compile_all(makers, &targets, sources, store, out);
    for ((target, stem), object) in &objects {
        if let Err(reason) = &object.image {
            assert!(!asked.by_name, "{stem}.hip does not compile for {target}:\n{reason}");
            built
                .refused
                .entry(target.to_string())
                .or_insert_with(|| format!("the compiler rejected {stem}.hip: {reason}"));
        }
    }
    let mut generations: BTreeMap<&str, (Vec<u8>, Vec<&str>)> = BTreeMap::new();
    // The newest PTX first: it is what most devices unpack, and unpacking ends with the target that is wanted.
    let (ptx, code): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| targets::is_ptx(target));
    let order = code.into_iter().chain(ptx.into_iter().rev());
    for target in order.filter(|target| !built.refused.contains_key(*target)) {
        let generation = targets::generation(target);
        let (archive, names) = generations.entry(generation).or_default();
        let of_target = || sources.stems().map(|stem| &objects[&(target.as_str(), stem)]);
        let images: Vec<&[u8]> = of_target().filter_map(|object| object.image.as_deref().ok()).collect();
        let (begin, sizes) = (archive.len(), images.iter().map(|image| image.len()).collect());
        if targets::is_ptx(target) {
            archive::append_ptx(archive, &images).expect("PTX is ASCII text");
        } else {
            archive::append(archive, &images);
        }
        let packed = archive.len() - begin;
        names.extend(of_target().map(|object| object.name.as_str()));
        let mut compilers: Vec<&str> = of_target().map(|object| object.compiler.as_str()).collect();
        compilers.sort();
        compilers.dedup();
        built.targets.push(Packed {
            target: target.clone(),
            compiler: compilers.join(" and "),
            generation: generation.into(),
            begin,
            packed,
            sizes,
        });
    }
    built.targets.sort_by(|a, b| a.target.cmp(&b.target));
    thread::scope(|scope| {
        for (generation, (archive, names)) in &generations {
            scope.spawn(move || {
                let name = Store::name(generation, &(archive::METHOD, names));
                let packed = store.get_or_make(&name, || {
                    if let Some(packed) = makers.prebuilt.compressed(archive) {
                        return Ok(packed);
                    }
                    let compress = if *generation == targets::PTX { archive::text } else { archive::code };
                    Ok(compress(archive).expect("a Vec takes everything"))
                });
                let packed = packed.expect("packing does not fail");
                fs::write(out.join(format!("{generation}.lzma")), packed).expect("OUT_DIR is writable");
            });
        }
    });
    store.trim(store::LIMIT);
    built
}

/// Code object, or the compiler's messages, and its name in the store.
struct Object {
    name: String,
    /// Version of the compiler.
    compiler: String,
    image: Result<Vec<u8>, String>,
}

/// Reason of a target that is left out.
const NO_COMPILER: &str = "the build found no clang 19 or later";

/// Compiles every source for every target, on as many threads as cargo grants, unless it is prebuilt. Returns
/// the objects by target and stem.
fn compile_all<'a>(
    makers: &Makers,
    targets: &[&'a String],
    sources: &'a Sources,
    store: &Store,
    out: &Path,
) -> BTreeMap<(&'a str, &'a str), Object> {
    // Longest jobs first, so that the last thread does not run alone for long.
    let mut stems: Vec<&str> = sources.stems().collect();
    stems.sort_by_key(|stem| !(stem.starts_with("mul_mat") || *stem == "flash_attn"));
    let compiler = makers.compiler.as_ref();
    let known = compiler.is_some_and(|compiler| twins::are_known(&compiler.version));
    let is_twin =
        |target: &str| known && twins::original(target).is_some_and(|o| targets.iter().any(|t| *t == o));
    let jobs = |twins: bool| -> Vec<(&'a str, &'a str)> {
        let of = |stem| targets.iter().map(move |&target| (target.as_str(), stem));
        stems.iter().flat_map(|&stem| of(stem)).filter(|(target, _)| is_twin(target) == twins).collect()
    };
    let samples = samples(compiler, targets.iter().copied().filter(|target| is_twin(target)), out);
    let compiled = AtomicUsize::new(0);
    let object = |target: &str, stem: &str, original: Option<(&'static str, &Object)>| {
        let entry = format!("{target}-{stem}");
        if let Some((made_from, image)) = makers.prebuilt.get(target, stem) {
            let compiler = makers.prebuilt.version.clone();
            // Its contents, since another compiler may make others from the same inputs.
            let name = Store::name(&entry, &(made_from, image));
            return Object { name, compiler, image: Ok(image.clone()) };
        }
        let Some(compiler) = compiler else {
            return Object { name: entry, compiler: String::new(), image: Err(NO_COMPILER.into()) };
        };
        let all = (&compiler.version, compiler::options(target), sources.needed_by(stem));
        // An object that is made from another one has a name of its own, and the compiler of the other.
        let made = |(original, object): (&str, &Object)| {
            twins::renamed(object.image.as_ref().ok()?, original, target, samples.get(target)?)
        };
        let twin = original.and_then(|original| Some((original.1, made(original)?)));
        let (name, version) = match &twin {
            Some((object, _)) => (Store::name(&entry, &(all, &object.name)), &object.compiler),
            None => (Store::name(&entry, &all), &compiler.version),
        };
        let image = store.get_or_make(&name, || match &twin {
            Some((_, image)) => Ok(image.clone()),
            None => {
                compiled.fetch_add(1, Ordering::Relaxed);
                compile(compiler, target, &sources.path(stem), out)
            }
        });
        Object { name, compiler: version.clone(), image }
    };
    let mut objects: BTreeMap<(&'a str, &'a str), Object> =
        in_parallel(&jobs(false), |&(target, stem)| ((target, stem), object(target, stem, None)));
    let twins = in_parallel(&jobs(true), |&(target, stem)| {
        let original = twins::original(target).map(|original| (original, &objects[&(original, stem)]));
        ((target, stem), object(target, stem, original))
    });
    objects.extend(twins);
    println!(
        "{} of {} code objects compiled with {}, the others from the repository or kept in {}; targets: {targets:?}",
        compiled.into_inner(),
        objects.len(),
        compiler.map_or("no compiler".into(), |c| format!("{} ({})", c.path.display(), c.version)),
        store.folder().display(),
    );
    objects
}

/// An empty code object for each target that the compiler knows.
fn samples<'a>(
    compiler: Option<&Compiler>,
    targets: impl Iterator<Item = &'a String>,
    out: &Path,
) -> BTreeMap<&'a str, Vec<u8>> {
    let source = out.join("empty.hip");
    fs::write(&source, "").expect("OUT_DIR is writable");
    targets
        .filter_map(|target| Some((target.as_str(), compile(compiler?, target, &source, out).ok()?)))
        .collect()
}

/// Calls `f` for all jobs on as many threads as cargo grants.
fn in_parallel<J: Sync, K: Ord + Send, V: Send>(
    jobs: &[J],
    f: impl Fn(&J) -> (K, V) + Sync,
) -> BTreeMap<K, V> {
    let granted = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(granted);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (key, value) = f(job);
                    results.lock().expect("no holder panics").insert(key, value);
                }
            });
        }
    });
    results.into_inner().expect("no holder panics")
}

pub(crate) fn compile(
    compiler: &Compiler,
    target: &str,
    source: &Path,
    out: &Path,
) -> Result<Vec<u8>, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let object = out.join(format!("unfinished-{}-{number}", process::id()));
    let image = compiler
        .run(target, source, &object)
        .and_then(|()| fs::read(&object).map_err(|e| format!("{}: {e}", object.display())));
    let _ = fs::remove_file(object);
    image
}

/// Returns the text of the table.
fn table(sources: &Sources, built: &Built) -> String {
    let targets: Vec<&str> = built.targets.iter().map(|packed| packed.target.as_str()).collect();
    let compilers: Vec<&str> = built.targets.iter().map(|packed| packed.compiler.as_str()).collect();
    let stems: Vec<&str> = sources.stems().collect();
    let digest = prebuilt::digest(&stems, &compilers, sources);
    let mut text = format!(
        "pub(super) const TARGETS: &[&str] = &{targets:?};\n\
         /// Compiler of each target.\n\
         pub(super) const COMPILERS: &[&str] = &{compilers:?};\n\
         pub(super) const STEMS: &[&str] = &{stems:?};\n\
         /// Digest of sources, options and compilers.\n\
         pub(super) const DIGEST: &str = \"{digest}\";\n\
         pub(super) const REFUSED: &[Refused] = &[\n"
    );
    for (target, reason) in &built.refused {
        let _ = writeln!(text, "    Refused {{ target: {target:?}, reason: {reason:?} }},");
    }
    text += "];\n/// Names, and lengths of texts.\npub(super) const SOURCES: &[(&str, usize)] = &[\n";
    for (name, len) in sources.lengths() {
        let _ = writeln!(text, "    ({name:?}, {len}),");
    }
    text += "];\n/// The texts, one after the other, packed.\n\
             pub(super) static TEXTS: &[u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/sources.lzma\"));\n";
    let mut generations: Vec<&str> = built.targets.iter().map(|packed| packed.generation.as_str()).collect();
    generations.sort();
    generations.dedup();
    for generation in generations {
        let name = generation.to_uppercase();
        let _ = writeln!(
            text,
            "static {name}: &[u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{generation}.lzma\"));"
        );
    }
    let _ = writeln!(text, "/// Of each target.\npub(super) static IMAGES: [Image; {}] = [", targets.len());
    for Packed { generation, begin, packed, sizes, .. } in &built.targets {
        let (name, is_ptx) = (generation.to_uppercase(), generation == targets::PTX);
        let (kind, place) =
            if is_ptx { ("ptx", format!("{begin}, {packed}")) } else { ("code", begin.to_string()) };
        let _ = writeln!(text, "    Image::{kind}({name}, {place}, &{sizes:?}),");
    }
    text + "];\n"
}
