//! Compiles the GLSL sources of the table to the committed SPIR-V.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use rayon::prelude::*;
use shaders::container::{Container, encode, words};
use shaders::manifest::{self, Manifest};
use shaders::source::{COMPILER, Inputs};
use shaders::{Entry, Variant, entries, entry};

mod compile;
mod options;
mod rewrite;

use options::Options;

/// Default path of the crate: its location when this program was built.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("shaders: {message}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("shaders: {message}");
            ExitCode::FAILURE
        }
    }
}

/// One entry of the table during processing.
struct Job {
    entry: &'static Entry,
    inputs: Result<Inputs, String>,
    /// Words of the container on the disk.
    old: Option<Vec<u32>>,
}

/// The module of one variant.
struct Module {
    variant: &'static Variant,
    inputs: String,
    words: Vec<u32>,
    compiled: bool,
}

/// Runs the command; returns false if a shader is broken.
fn run(options: &Options) -> Result<bool, String> {
    let started = Instant::now();
    let root = options.root.clone().unwrap_or_else(|| PathBuf::from(CRATE));
    let selected = select(&options.only)?;
    let manifest_path = root.join("spirv/manifest.json");
    let old_manifest = read_manifest(&manifest_path);

    let jobs: Vec<Job> = selected.iter().map(|entry| Job::open(&root, entry)).collect();
    if options.list {
        list(&jobs, &old_manifest);
        return Ok(true);
    }

    // The unit of parallel work is the variant, not the source: a few sources have most of the variants.
    let work: Vec<(&Job, &'static Variant)> =
        jobs.iter().flat_map(|job| job.entry.variants.iter().map(move |variant| (job, variant))).collect();
    let compiler = compile::Compiler::new(&root, options.validate)?;
    let mut results: Vec<Result<Module, String>> = work
        .par_iter()
        .map(|(job, variant)| {
            job.module(&compiler, variant, if options.force { None } else { Some(&old_manifest) })
        })
        .collect();

    let mut broken = 0;
    let mut finished = Vec::new();
    for job in &jobs {
        let modules: Vec<_> = results.drain(..job.entry.variants.len()).collect();
        let named = job.entry.variants.iter().map(|variant| variant.name.as_str()).zip(modules.iter());
        let errors: Vec<(&str, &str)> =
            named.filter_map(|(name, module)| Some((name, module.as_ref().err()?.trim_end()))).collect();
        if errors.is_empty() {
            finished.push((job, modules.into_iter().flatten().collect::<Vec<Module>>()));
        } else {
            broken += errors.len();
            report(job, &errors);
        }
    }

    // Read the manifest again: another run may have finished other sources in the meantime.
    let mut manifest = read_manifest(&manifest_path);
    manifest.compiler = COMPILER.to_owned();
    let (mut total, mut compiled) = (0, 0);
    for (job, modules) in &finished {
        total += modules.len();
        compiled += modules.iter().filter(|module| module.compiled).count();
        let record = job.write(&root, modules)?;
        manifest.shaders.insert(job.entry.source.key(), record);
    }
    let removed = remove_stale(&root, &mut manifest)?;
    manifest.set = manifest.set_digest();
    let json = manifest.to_json().map_err(|error| error.to_string())?;
    write_if_changed(&manifest_path, json.as_bytes())?;

    println!(
        "{compiled} of {total} variants compiled, {} up to date, {broken} broken, {removed} stale files removed, \
         {:.1} s; set {}",
        total - compiled,
        started.elapsed().as_secs_f64(),
        &manifest.set[..16]
    );
    Ok(broken == 0)
}

/// Prints the errors of a source's variants, each message once with the variants it applies to.
fn report(job: &Job, errors: &[(&str, &str)]) {
    let mut grouped: Vec<(&str, Vec<&str>)> = Vec::new();
    for (variant, message) in errors {
        match grouped.iter_mut().find(|(known, _)| known == message) {
            Some((_, variants)) => variants.push(variant),
            None => grouped.push((message, vec![variant])),
        }
    }
    for (message, variants) in grouped {
        let of = job.entry.variants.len();
        eprintln!(
            "{} ({} of {of} variants: {})\n{message}\n",
            job.entry.source.key(),
            variants.len(),
            variants.join(", ")
        );
    }
}

/// Returns the entries with these stems, or all.
fn select(only: &[String]) -> Result<Vec<&'static Entry>, String> {
    if only.is_empty() {
        return Ok(entries().iter().collect());
    }
    let find = |stem: &String| {
        entry(stem).ok_or_else(|| format!("no shader {stem:?} in the table; --list shows all"))
    };
    only.iter().map(find).collect()
}

/// Reads the manifest on the disk. It is empty if the file is missing or damaged, so that everything is
/// compiled.
fn read_manifest(path: &Path) -> Manifest {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Manifest::parse(&text).unwrap_or_default()
}

fn list(jobs: &[Job], manifest: &Manifest) {
    for job in jobs {
        for variant in &job.entry.variants {
            let state = match &job.inputs {
                Err(_) => "no source",
                Ok(inputs) if job.reuse(manifest, variant, &inputs.digest(variant)).is_some() => "current",
                Ok(_) => "stale",
            };
            let defines: Vec<String> =
                variant.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
            println!(
                "{state:9} {}/{} [{}] {}",
                job.entry.source.key(),
                variant.name,
                variant.target.name(),
                defines.join(" ")
            );
        }
    }
}

impl Job {
    fn open(root: &Path, entry: &'static Entry) -> Self {
        let inputs = Inputs::read(root, &entry.source.path()).map_err(|error| error.to_string());
        let old =
            std::fs::read(root.join(entry.source.container_path())).ok().and_then(|bytes| words(&bytes));
        Self { entry, inputs, old }
    }

    /// Returns the module on the disk, if it was compiled from exactly these inputs.
    fn reuse(&self, manifest: &Manifest, variant: &Variant, inputs: &str) -> Option<Vec<u32>> {
        let record = manifest.shaders.get(&self.entry.source.key())?.variants.get(&variant.name)?;
        let words = Container::parse(self.old.as_deref()?).ok()?.module(&variant.name)?;
        (record.inputs == inputs && record.module == manifest::module_digest(words)).then(|| words.to_vec())
    }

    /// Returns the module of a variant: the old one if it is current according to `manifest`, or else a new
    /// one.
    fn module(
        &self,
        compiler: &compile::Compiler,
        variant: &'static Variant,
        manifest: Option<&Manifest>,
    ) -> Result<Module, String> {
        let files = self.inputs.as_ref().map_err(Clone::clone)?;
        let inputs = files.digest(variant);
        if let Some(words) = manifest.and_then(|manifest| self.reuse(manifest, variant, &inputs)) {
            return Ok(Module { variant, inputs, words, compiled: false });
        }
        let words = compiler.compile(self.entry.source, variant, files)?;
        Ok(Module { variant, inputs, words, compiled: true })
    }

    /// Writes the container and returns its record.
    fn write(&self, root: &Path, modules: &[Module]) -> Result<manifest::Shader, String> {
        let named: Vec<(String, &[u32])> =
            modules.iter().map(|module| (module.variant.name.clone(), module.words.as_slice())).collect();
        let bytes = encode(&named);
        write_if_changed(&root.join(self.entry.source.container_path()), &bytes)?;
        let record = |module: &Module| manifest::Compiled {
            defines: module.variant.defines.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            target: module.variant.target.name().to_owned(),
            optimize: module.variant.optimize.name().to_owned(),
            inputs: module.inputs.clone(),
            module: manifest::module_digest(&module.words),
            words: module.words.len(),
        };
        Ok(manifest::Shader {
            files: self.inputs.as_ref().map_err(Clone::clone)?.file_digests(),
            container: manifest::digest(&bytes),
            variants: modules.iter().map(|module| (module.variant.name.clone(), record(module))).collect(),
        })
    }
}

/// Writes a file through a temporary one, unless it already has this content.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(&temporary, bytes)?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))
}

/// Removes containers and records without an entry in the table; returns the number of removed files.
fn remove_stale(root: &Path, manifest: &mut Manifest) -> Result<usize, String> {
    manifest.shaders.retain(|key, _| entries().iter().any(|entry| entry.source.key() == *key));
    let expected: Vec<PathBuf> =
        entries().iter().map(|entry| root.join(entry.source.container_path())).collect();
    let mut removed = 0;
    for family in directory(&root.join("spirv")).into_iter().filter(|path| path.is_dir()) {
        for file in directory(&family) {
            if !expected.contains(&file) {
                std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                removed += 1;
            }
        }
        if directory(&family).is_empty() {
            std::fs::remove_dir(&family).map_err(|error| format!("{}: {error}", family.display()))?;
        }
    }
    Ok(removed)
}

fn directory(path: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}
