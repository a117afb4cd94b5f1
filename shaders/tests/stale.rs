//! Checks that the committed SPIR-V matches the sources, the table and the compiler of this checkout. Needs
//! no compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use shaders::container::{Container, words};
use shaders::manifest::{Manifest, digest, module_digest};
use shaders::source::{COMPILER, Inputs};
use shaders::{Entry, ShaderId, entries, reflect};

const REMEDY: &str = "run `make shaders` and commit the changes below shaders/spirv";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn committed_manifest() -> Manifest {
    let text =
        std::fs::read_to_string(root().join("spirv/manifest.json")).expect("spirv/manifest.json is there");
    Manifest::parse(&text).expect("spirv/manifest.json is well-formed")
}

/// Panics with one line for each problem.
fn expect_none(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problem(s); {REMEDY}\n  {}", problems.len(), problems.join("\n  "));
}

/// Checks each entry; problems are prefixed with its key.
fn check_entries(check: impl Fn(&Entry) -> Vec<String>) {
    let problems = entries().iter().flat_map(|entry| {
        check(entry).into_iter().map(move |problem| format!("{}: {problem}", entry.source.key()))
    });
    expect_none(problems.collect());
}

#[test]
fn the_manifest_is_of_the_pinned_compiler() {
    assert_eq!(committed_manifest().compiler, COMPILER, "{REMEDY}");
    let cargo = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let line = cargo.lines().find(|line| line.starts_with("shaderc = ")).expect("shaderc is a dependency");
    let version = line.split("version = \"=").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("shaderc is pinned to one exact version (`version = \"=x.y.z\"`)");
    assert!(
        COMPILER.starts_with(&format!("shaderc {version} ")) && line.contains("\"build-from-source\""),
        "source::COMPILER is {COMPILER:?}, but Cargo.toml has {line}"
    );
}

#[test]
fn every_module_was_made_from_these_inputs() {
    let manifest = committed_manifest();
    check_entries(|entry| {
        let inputs = match Inputs::read(root(), &entry.source.path()) {
            Ok(inputs) => inputs,
            Err(error) => return vec![error.to_string()],
        };
        let Some(record) = manifest.shaders.get(&entry.source.key()) else {
            return vec!["in the table, but not in the manifest".to_owned()];
        };
        let mut problems = Vec::new();
        let files = inputs.file_digests();
        let changed = files.iter().filter(|(path, hash)| record.files.get(*path) != Some(hash));
        problems.extend(changed.map(|(path, _)| format!("{path} has changed since the SPIR-V was made")));
        let gone = record.files.keys().filter(|path| !files.contains_key(*path));
        problems.extend(gone.map(|path| format!("{path} is not included any more")));
        for variant in &entry.variants {
            let Some(compiled) = record.variants.get(&variant.name) else {
                problems.push(format!("variant {} is not in the manifest", variant.name));
                continue;
            };
            let defines: BTreeMap<String, String> = variant
                .defines
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            if compiled.defines != defines {
                problems.push(format!("the definitions of variant {} have changed", variant.name));
            } else if (compiled.target.as_str(), compiled.optimize.as_str())
                != (variant.target.name(), variant.optimize.name())
            {
                problems.push(format!("the target or optimiser of variant {} has changed", variant.name));
            } else if problems.is_empty() && compiled.inputs != inputs.digest(variant) {
                problems.push(format!("the inputs of variant {} have changed", variant.name));
            }
        }
        let names: BTreeSet<&str> = entry.variants.iter().map(|v| v.name.as_str()).collect();
        let extra = record.variants.keys().filter(|name| !names.contains(name.as_str()));
        problems.extend(extra.map(|name| format!("variant {name} is in the manifest, but not in the table")));
        problems
    });
}

#[test]
fn containers_are_what_the_manifest_says() {
    let manifest = committed_manifest();
    assert_eq!(manifest.set, manifest.set_digest(), "the hash of the set is wrong; {REMEDY}");
    assert_eq!(shaders::manifest(), &manifest, "another manifest is embedded than the one on the disk");
    check_entries(|entry| {
        let path = entry.source.container_path();
        let Ok(bytes) = std::fs::read(root().join(&path)) else { return vec![format!("{path} is missing")] };
        let Some(record) = manifest.shaders.get(&entry.source.key()) else {
            return vec!["in the table, but not in the manifest".to_owned()];
        };
        let mut problems = Vec::new();
        if record.container != digest(&bytes) {
            problems.push(format!("{path} is not the file that the manifest describes"));
        }
        let file = words(&bytes).unwrap_or_default();
        let container = match Container::parse(&file) {
            Ok(container) => container,
            Err(error) => return vec![format!("{path}: {error}")],
        };
        let in_table: Vec<&str> = entry.variants.iter().map(|v| v.name.as_str()).collect();
        let in_file: Vec<&str> = container.iter().map(|(name, _)| name).collect();
        if in_table != in_file {
            problems.push(format!("{path} holds the variants {in_file:?}; the table has {in_table:?}"));
        }
        for (name, module) in container.iter() {
            let compiled = record.variants.get(name);
            let good = compiled.is_some_and(|c| c.words == module.len() && c.module == module_digest(module));
            if !good {
                problems
                    .push(format!("the module of variant {name} is not the one that the manifest describes"));
            }
            if shaders::module(entry.source.stem(), name) != Some(module) {
                problems.push(format!("variant {name}: another module is embedded than the one on the disk"));
            }
        }
        problems
    });
}

#[test]
fn nothing_is_left_over() {
    let manifest = committed_manifest();
    let keys: BTreeSet<String> = entries().iter().map(|entry| entry.source.key()).collect();
    let mut problems: Vec<String> = manifest
        .shaders
        .keys()
        .filter(|key| !keys.contains(*key))
        .map(|key| format!("{key} is in the manifest, but not in the table"))
        .collect();
    let expected: BTreeSet<PathBuf> =
        entries().iter().map(|entry| root().join(entry.source.container_path())).collect();
    let sources: BTreeSet<PathBuf> = entries().iter().map(|entry| root().join(entry.source.path())).collect();
    for file in files(&root().join("spirv")) {
        if !expected.contains(&file) && !file.ends_with("manifest.json") {
            problems.push(format!("{} belongs to no entry of the table", file.display()));
        }
    }
    for file in files(&root().join("src")) {
        if file.extension().is_some_and(|extension| extension == "comp") && !sources.contains(&file) {
            problems.push(format!("{} has no entry in the table (src/variants.rs)", file.display()));
        }
    }
    expect_none(problems);
}

#[test]
fn every_module_is_sound_and_keeps_the_conventions() {
    let mut problems = Vec::new();
    for id in ShaderId::all() {
        let Some(words) = id.words() else {
            problems.push(format!("{id} has no SPIR-V"));
            continue;
        };
        let target = shaders::entry(id.stem())
            .unwrap()
            .variants
            .iter()
            .find(|v| v.name == id.variant())
            .unwrap()
            .target;
        match reflect::reflect(words) {
            Err(error) => problems.push(format!("{id}: {error}")),
            Ok(interface) => {
                if interface.version != target.spirv_version() {
                    problems.push(format!("{id}: SPIR-V {:?}", interface.version));
                }
                problems.extend(
                    reflect::check_conventions(&interface).iter().map(|broken| format!("{id}: {broken}")),
                );
                if let Err(error) = interface.shared_bytes(&[]) {
                    problems.push(format!("{id}: {error}"));
                }
            }
        }
    }
    expect_none(problems);
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
