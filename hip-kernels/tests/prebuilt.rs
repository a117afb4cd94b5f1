//! Code objects in the repository.

use crate::build::Workspace;
use crate::build::script::compiler::{Compiler, options};
use crate::build::script::prebuilt::{ARCHIVE, MANIFEST, Prebuilt, TARGETS, inputs, write};
use crate::build::script::sources::Sources;
use crate::build::script::targets::Targets;
use crate::build::script::{Built, Makers, build, compile};
use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Every source has code objects, made from it as it is now.
#[test]
fn they_fit_the_sources() {
    let sources = Sources::read(&folder("src"));
    let prebuilt = Prebuilt::read(&folder("objects"), &sources);
    for target in TARGETS {
        let changed: Vec<&str> =
            sources.stems().filter(|stem| prebuilt.get(target, stem).is_none()).collect();
        assert!(changed.is_empty(), "{target}: run `make kernels`, these changed: {changed:?}");
        assert!(prebuilt.is_complete(target, &sources));
    }
}

/// The compiler that the manifest names makes the same bytes. Other releases make others.
#[test]
fn they_are_what_the_compiler_makes() {
    let Some(compiler) = Compiler::find() else {
        println!("no clang 19 or later: nothing to compare");
        return;
    };
    let sources = Sources::read(&folder("src"));
    let prebuilt = Prebuilt::read(&folder("objects"), &sources);
    if compiler.version != prebuilt.version {
        println!("{} is not {}: nothing to compare", compiler.version, prebuilt.version);
        return;
    }
    let out = tempfile::tempdir().unwrap();
    for target in TARGETS {
        for stem in ["norm", "glu"] {
            let made = compile(&compiler, target, &sources.path(stem), out.path()).unwrap();
            let (_, kept) = prebuilt.get(target, stem).unwrap();
            assert!(made == *kept, "{stem}.hip for {target}");
        }
    }
}

/// Files that were written are read, and their code objects need no compiler. A changed source is compiled; without a
/// compiler its target is left out, with a reason.
#[test]
fn a_build_takes_them() {
    let workspace = Workspace::new();
    let (objects, out) = (workspace.path("objects"), workspace.path("target/out"));
    let sources = || Sources::read(&workspace.path("src"));
    let object = |target: &str, stem: &str| Ok(format!("{target} {stem}").repeat(100).into_bytes());
    write(&objects, "clang version 19", &sources(), object).unwrap();
    let makers = |compiler| Makers { compiler, prebuilt: Prebuilt::read(&objects, &sources()) };
    let compiler = || Some(Compiler { path: workspace.path("clang"), version: "clang version 20".into() });
    let run = |makers: &Makers| {
        let _ = fs::remove_file(workspace.path("calls"));
        let targets =
            Targets { list: vec!["gfx900".into(), "gfx906".into(), "gfx1100".into()], by_name: false };
        let built = build(makers, &targets, &sources(), &workspace.store(&out), &out);
        let calls = fs::read_to_string(workspace.path("calls")).unwrap_or_default();
        let mut calls: Vec<String> = calls.lines().map(String::from).collect();
        calls.sort();
        (built, calls)
    };
    let (built, calls) = run(&makers(None));
    assert!(calls.is_empty() && built.targets.len() == 2);
    assert_eq!(built.refused.keys().collect::<Vec<_>>(), ["gfx1100"]);
    assert!(built.refused["gfx1100"].contains("no clang"), "{:?}", built.refused);
    // Nothing else is in this archive, so it is not compressed again.
    assert_eq!(fs::read(out.join(ARCHIVE)).unwrap(), fs::read(objects.join(ARCHIVE)).unwrap());
    // Another compiler made other bytes from the same sources.
    write(&objects, "clang version 19", &sources(), |target, stem| {
        Ok(format!("{stem} {target}").repeat(90).into_bytes())
    })
    .unwrap();
    run(&makers(None));
    assert_eq!(fs::read(out.join(ARCHIVE)).unwrap(), fs::read(objects.join(ARCHIVE)).unwrap());
    // Each target has the compilers of its own code objects.
    let made_by = |built: &Built| built.targets.iter().map(|t| t.compiler.clone()).collect::<Vec<_>>();
    assert_eq!(made_by(&built), ["clang version 19"; 2]);
    let (built, calls) = run(&makers(compiler()));
    assert_eq!(calls, ["gfx1100 norm", "gfx1100 rope"]);
    assert_eq!(made_by(&built), ["clang version 20", "clang version 19", "clang version 19"]);

    workspace.source("wide.h", "#include \"device.h\"\nchanged\n");
    let (built, calls) = run(&makers(None));
    assert!(calls.is_empty() && built.targets.is_empty() && built.refused.len() == 3);
    let (built, calls) = run(&makers(compiler()));
    assert_eq!(calls, ["gfx1100 norm", "gfx900 norm", "gfx906 norm"]);
    assert_eq!(made_by(&built)[1], "clang version 19 and clang version 20");
}

/// A damaged archive or manifest is not used.
#[test]
fn damaged() {
    let workspace = Workspace::new();
    let objects = workspace.path("objects");
    let sources = Sources::read(&workspace.path("src"));
    let missing = write(&objects, "clang", &sources, |_, stem| Err(format!("no {stem}")));
    assert_eq!(missing, Err("no norm".into()));
    write(&objects, "clang", &sources, |target, stem| Ok(format!("{target} {stem}").into_bytes())).unwrap();
    let is_there = || Prebuilt::read(&objects, &sources).is_complete("gfx906", &sources);
    assert!(is_there());
    for (file, change) in [(ARCHIVE, 40), (MANIFEST, 300)] {
        let path = objects.join(file);
        let intact = fs::read(&path).unwrap();
        let mut changed = intact.clone();
        changed[change] ^= 1;
        for damaged in [&changed[..], &intact[..intact.len() / 2]] {
            fs::write(&path, damaged).unwrap();
            assert!(!is_there(), "{file}");
        }
        fs::remove_file(&path).unwrap();
        assert!(!is_there(), "{file} is missing");
        fs::write(&path, intact).unwrap();
    }
    assert!(is_there());
    // An archive that is whole and holds others of the same lengths.
    let others = workspace.path("others");
    write(&others, "clang", &sources, |target, stem| Ok(format!("{target}-{stem}").into_bytes())).unwrap();
    fs::copy(others.join(ARCHIVE), objects.join(ARCHIVE)).unwrap();
    assert!(!is_there(), "they are not what the manifest says");
}

/// Options and the target are inputs, not only the texts.
#[test]
fn inputs_differ_by_target() {
    let workspace = Workspace::new();
    let sources = Sources::read(&workspace.path("src"));
    let of = |target| inputs(target, "norm", &sources);
    assert_ne!(of("gfx900"), of("gfx906"));
    assert_ne!(options("gfx900"), options("gfx906"));
    assert_eq!(of("gfx906").len(), 32);
}
