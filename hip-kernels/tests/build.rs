//! The build script: the compilations for each target, their number, and the storage of their results. A
//! shell script replaces clang.
#![cfg(unix)]

#[allow(dead_code)]
#[path = "../build.rs"]
pub(crate) mod script;

use script::Makers;
use script::compiler::{Compiler, options};
use script::prebuilt::Prebuilt;
use script::sources::{Sources, code};
use script::store::{Store, user_cache};
use script::targets::{Targets, generation};
use script::twins::{TWINS, are_known, renamed};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A user's cache, a target directory, kernel sources, and a compiler that records its invocations.
pub(crate) struct Workspace {
    root: TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Workspace {
        let workspace = Workspace { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(workspace.path("src")).unwrap();
        fs::create_dir_all(workspace.path("target")).unwrap();
        workspace.source("norm.hip", "#include \"wide.h\"\n");
        workspace.source("rope.hip", "#include \"device.h\"\n");
        workspace.source("wide.h", "#include \"device.h\"\n");
        workspace.source("device.h", "first\n");
        // Source and object are the third-last and the last argument.
        let clang = format!(
            "#!/bin/sh\nfor a; do source=$before object=$a; before=$middle middle=$a; done\n\
             case \"$*\" in *gfx9999*) echo 'error: unknown target' >&2; exit 1;; esac\n\
             echo \"$*\" | sed 's/.*--offload-arch=\\([^ ]*\\) .*src.\\([a-z]*\\).hip.*/\\1 \\2/' >> {}\n\
             cat \"$source\" > \"$object\"\n",
            workspace.path("calls").display()
        );
        fs::write(workspace.path("clang"), clang).unwrap();
        fs::set_permissions(workspace.path("clang"), fs::Permissions::from_mode(0o755)).unwrap();
        workspace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn source(&self, name: &str, text: &str) {
        fs::write(self.path("src").join(name), text).unwrap();
    }

    /// Returns the store of a build in the user's cache.
    pub(crate) fn store(&self, out: &Path) -> Store {
        fs::create_dir_all(out).unwrap();
        Store::open(Some(&self.path("cache")), out)
    }

    /// Returns the compiler, and nothing prebuilt.
    pub(crate) fn makers(&self, version: &str) -> Makers {
        let compiler = Compiler { path: self.path("clang"), version: version.into() };
        Makers { compiler: Some(compiler), prebuilt: Prebuilt::default() }
    }

    /// Runs the build script's work in the folder of a profile. Returns what was compiled.
    fn build(&self, profile: &str, version: &str, targets: &str) -> BTreeSet<String> {
        let out = self.path(&format!("target/{profile}/build/hip-kernels/out"));
        let store = self.store(&out);
        let makers = self.makers(version);
        let targets = Targets::parse(targets, Path::new("/nowhere")).unwrap();
        script::build(&makers, &targets, &Sources::read(&self.path("src")), &store, &out);
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("calls"));
        calls.lines().map(String::from).collect()
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Compiles once for all profiles and feature sets; again for another compiler and for changed sources only.
#[test]
fn compiled_once() {
    let workspace = Workspace::new();
    let all = set(&["gfx906 norm", "gfx906 rope"]);
    assert_eq!(workspace.build("release", "clang version 19", "gfx906"), all);
    assert_eq!(workspace.build("debug", "clang version 19", "gfx906"), set(&[]));
    let archive = |profile: &str| {
        fs::read(workspace.path(&format!("target/{profile}/build/hip-kernels/out/gfx9.lzma")))
    };
    assert_eq!(archive("release").unwrap(), archive("debug").unwrap());
    assert_eq!(
        workspace.build("debug", "clang version 19", "gfx906,gfx900"),
        set(&["gfx900 norm", "gfx900 rope"])
    );
    assert_eq!(workspace.build("debug", "clang version 20", "gfx906"), all);
    workspace.source("wide.h", "#include \"device.h\"\nchanged\n");
    assert_eq!(workspace.build("debug", "clang version 19", "gfx906"), set(&["gfx906 norm"]));
    workspace.source("wide.h", "// A comment.\n#include \"device.h\"\n\nchanged // and another\n");
    assert_eq!(workspace.build("debug", "clang version 19", "gfx906"), set(&[]));
    workspace.source("device.h", "second\n");
    assert_eq!(workspace.build("debug", "clang version 19", "gfx906"), all);
    workspace.source("device.h", "first\n");
    assert_eq!(workspace.build("debug", "clang version 19", "gfx906"), set(&[]));
}

/// Takes away comments and blank lines, and nothing else.
#[test]
fn comments_are_no_code() {
    for (text, left) in [
        ("a // b\n\n  c\n", "a\n  c\n"),
        ("a/* b\n c */d / e\n", "a d / e\n"),
        (
            "\"// no comment\" '\\'' // \"a comment\n'/' \"\\\"//\"\n",
            "\"// no comment\" '\\''\n'/' \"\\\"//\"\n",
        ),
        ("ends /* never", "ends\n"),
        ("ends // too", "ends\n"),
    ] {
        assert_eq!(code(text), left, "{text}");
    }
}

/// One of two builds that want the same entry at the same time makes it; other entries do not wait for it.
#[test]
fn an_entry_is_made_once() {
    let workspace = Workspace::new();
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for profile in ["debug", "release"] {
            let (workspace, made) = (&workspace, &made);
            scope.spawn(move || {
                let store = workspace.store(&workspace.path(&format!("target/{profile}/out")));
                let entry = store.get_or_make("entry", || {
                    assert_eq!(store.get_or_make(profile, || Ok(b"other".into())).unwrap(), b"other");
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    made.fetch_add(1, Ordering::SeqCst);
                    Ok(b"work".into())
                });
                assert_eq!(entry.unwrap(), b"work");
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
    let store = workspace.store(&workspace.path("target/debug/out"));
    assert_eq!(store.get_or_make("fails", || Err("no memory".into())), Err("no memory".into()));
    assert_eq!(store.get_or_make("fails", || Ok(b"now".into())).unwrap(), b"now");
    let files = fs::read_dir(store.folder()).unwrap().flatten();
    assert!(files.into_iter().all(|file| file.path().extension().is_none()), "no lock is left");
}

#[test]
fn damaged_and_old_entries() {
    let workspace = Workspace::new();
    let store = workspace.store(&workspace.path("target/debug/out"));
    let folder = store.folder();
    store.put("a", &[1; 100]);
    assert_eq!(store.get("a").unwrap(), [1; 100]);
    let entry = folder.join("a");
    let entry_bytes = fs::read(&entry).unwrap();
    for broken in [&entry_bytes[..50], &[], &[&entry_bytes[1..], &[0]].concat()] {
        fs::write(&entry, broken).unwrap();
        assert_eq!(store.get("a"), None);
    }
    for (name, age) in [("a", 3), ("b", 2), ("c", 1)] {
        store.put(name, &[1; 100]);
        let file = fs::File::options().append(true).open(folder.join(name)).unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(3600 * age);
        file.set_modified(time).unwrap();
    }
    // The oldest entry was used since.
    store.get("a").unwrap();
    store.trim(250);
    let present = ["a", "b", "c"].map(|name| store.get(name).is_some());
    assert_eq!(present, [true, false, true]);
}

/// The store is in the user's cache, in the target directory if the cache cannot be written, in the build
/// script's own folder if the target directory is not found either. A target directory that existed before
/// cargo has no CACHEDIR.TAG.
#[test]
fn the_first_place_that_can_be_written() {
    let workspace = Workspace::new();
    let out = workspace.path("target/debug/out");
    let own = out.join("hip-objects");
    let shared = workspace.path("target/hip-objects");
    let folder = |user: Option<&Path>| Store::open(user, &out).folder().to_path_buf();
    assert_eq!(workspace.store(&out).folder(), workspace.path("cache/diptych/hip-objects"));
    assert_eq!(folder(None), own);
    for mark in ["CACHEDIR.TAG", ".rustc_info.json"] {
        let mark = workspace.path("target").join(mark);
        fs::write(&mark, "").unwrap();
        assert_eq!(folder(None), shared, "{}", mark.display());
        fs::remove_file(mark).unwrap();
    }
    fs::write(workspace.path("target/CACHEDIR.TAG"), "").unwrap();
    fs::write(workspace.path("no-folder"), "").unwrap();
    assert_eq!(folder(Some(&workspace.path("no-folder"))), shared);
    fs::remove_dir_all(&shared).unwrap();
    fs::write(&shared, "no folder").unwrap();
    assert_eq!(folder(None), own);
    let store = Store::open(None, &out);
    store.put("a", b"kept");
    assert_eq!(store.get("a").unwrap(), b"kept");
}

#[test]
fn targets_by_name_and_by_card() {
    let workspace = Workspace::new();
    let parse = |text: &str| Targets::parse(text, workspace.root.path());
    let list = |text: &str| parse(text).unwrap().list;
    assert_eq!(list("gfx906, gfx90a:xnack+,gfx906"), ["gfx906", "gfx90a:xnack+"]);
    assert_eq!((list("none"), list("local")), (vec![], vec!["gfx900".into(), "gfx906".into()]));
    assert!(list("").len() >= 28 && list("") == list("all"));
    assert_eq!(parse("gfx906,vega"), Err("vega".into()));

    for (node, text) in
        [("0", "cpu_cores_count 16\ngfx_target_version 0\n"), ("1", "gfx_target_version 110501\n")]
    {
        let node = workspace.path("sys/class/kfd/kfd/topology/nodes").join(node);
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("properties"), text).unwrap();
    }
    fs::create_dir_all(workspace.path("dev")).unwrap();
    fs::write(workspace.path("dev/nvidiactl"), "").unwrap();
    let local = parse("local").unwrap();
    assert_eq!(local.list, ["gfx1151", "gfx900", "gfx906", "sm_70", "sm_80"]);
    // A card that the compiler does not support yet is no reason to fail; a target requested by name is.
    assert!(!local.by_name && parse("local,gfx1100").unwrap().by_name);
}

#[test]
fn an_unknown_target_is_left_out_unless_it_was_asked_for() {
    let workspace = Workspace::new();
    let out = workspace.path("target/out");
    fs::create_dir_all(&out).unwrap();
    let makers = workspace.makers("clang version 19");
    let sources = Sources::read(&workspace.path("src"));
    let mut targets = Targets { list: vec!["gfx906".into(), "gfx9999".into()], by_name: false };
    let store = workspace.store(&out);
    let built = script::build(&makers, &targets, &sources, &store, &out);
    assert!(built.refused["gfx9999"].contains("unknown target") && built.targets.len() == 1);
    targets.by_name = true;
    std::panic::catch_unwind(|| script::build(&makers, &targets, &sources, &store, &out))
        .err()
        .expect("it fails");
}

#[test]
fn generations() {
    let rows = [
        ("gfx803", "gfx9"),
        ("gfx90a", "gfx9"),
        ("gfx942", "gfx9"),
        ("gfx1036", "gfx10"),
        ("gfx1153", "gfx11"),
    ];
    for (target, wanted) in rows.into_iter().chain([("gfx1201", "gfx11"), ("sm_70", "ptx"), ("sm_80", "ptx")])
    {
        assert_eq!(generation(target), wanted, "{target}");
    }
}

/// Targets that differ in name only: what is made from the original is what the compiler makes, byte for byte. Compiling
/// every kernel for every twin takes minutes; `DIPTYCH_CHECK_TWINS=all` does.
#[test]
fn twins_are_what_the_compiler_makes() {
    let Some(compiler) = Compiler::find() else {
        println!("no clang 19 or later: nothing to compare");
        return;
    };
    let workspace = Workspace::new();
    let source = |stem: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(stem);
    let sources = Sources::read(&source(""));
    let all = std::env::var("DIPTYCH_CHECK_TWINS").is_ok_and(|value| value == "all");
    // As in a build, what neither source nor compiler changed is not compiled again.
    let store = Store::open(user_cache().as_deref(), &workspace.path("target"));
    let object = |target: &str, source: &Path| {
        let stem = source.file_stem().unwrap().to_str().unwrap();
        let needed = sources.stems().any(|known| known == stem).then(|| sources.needed_by(stem));
        let made_from = (&compiler.version, options(target), needed);
        let compile = || {
            let object = workspace.path(&format!("{target}-{stem}"));
            compiler.run(target, source, &object)?;
            fs::read(object).map_err(|error| error.to_string())
        };
        let name = Store::name(&format!("{target}-{stem}-compiled"), &made_from);
        // All of them would take the place of what builds need.
        if all { compile() } else { store.get_or_make(&name, compile) }.unwrap()
    };
    fs::write(workspace.path("empty.hip"), "").unwrap();
    let stems: Vec<&str> =
        sources.stems().filter(|stem| all || ["norm", "glu", "mul_mat_id_low"].contains(stem)).collect();
    assert!(stems.len() >= 3);
    let compare = |original: &str, twins: &[&str]| {
        let samples: Vec<Vec<u8>> =
            twins.iter().map(|twin| object(twin, &workspace.path("empty.hip"))).collect();
        for stem in &stems {
            let file = source(&format!("{stem}.hip"));
            let image = object(original, &file);
            for (twin, sample) in twins.iter().zip(&samples) {
                let made = renamed(&image, original, twin, sample).expect("both are ELF files");
                assert!(made == object(twin, &file), "{stem}.hip for {twin} is not that for {original}");
            }
        }
    };
    std::thread::scope(|scope| {
        for &(original, twins) in TWINS {
            let compare = &compare;
            scope.spawn(move || compare(original, twins));
        }
    });
    assert_eq!(renamed(b"text", "gfx900", "gfx902", b"text"), None);
    let known = [
        "Debian clang version 19.1.7 (3+b1)",
        "clang version 19",
        "clang version 20.1.0",
        "AMD clang version 19.0.0git",
    ];
    assert_eq!(known.map(are_known), [true, true, false, false]);
}
