//! Source rules that no compiler checks.

use crate::floors::FLOORS;
use crate::imports::{Floors, Source, faults};
use crate::project::{root, rust_sources, sources};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Families of operations: each has files of the same stem in every crate that implements a part of it.
const FAMILIES: &[&str] = &[
    "binary",
    "cache_mask",
    "copy",
    "delta_net",
    "flash_attn",
    "glu",
    "mul_mat",
    "mul_mat_id",
    "norm",
    "rope",
    "rows",
    "soft_max",
    "ssm_conv",
    "ssm_scan",
    "top_k",
    "unary",
];

/// Maximum lines of code of a source file.
const MAX_LINES: usize = 560;

/// Files in which `unsafe` is allowed: foreign functions, SIMD, mapped memory.
const UNSAFE: &[&str] = &[
    "ggml-core/src/mapped.rs",
    "ggml-core/src/cpu/",
    "ggml-core/tests/gguf_memory.rs",
    "ggml-core/tests/cpu/interface.rs",
    "backend-vulkan/src/raw/",
    "backend-hip/src/code/rtc/",
    "backend-hip/src/driver/",
    "backend-hip/src/provider/amd/",
    "backend-hip/src/provider/external.rs",
    "backend-hip/src/provider/ffi.rs",
    "backend-hip/src/provider/nvidia/",
    "backend-hip/src/provider/virtual_gpu/driver.rs",
    "backend-hip/src/runtime/session/",
    "backend-hip/src/sys/",
    "backend-hip/src/tests/fake.rs",
    // The handler of fatal signals: system calls, and what the kernel passes to a handler.
    "src/crash/handler.rs",
    "src/leave.rs",
    "virtual-gpu/src/exec/simd.rs",
    "virtual-gpu/src/foreign.rs",
    // Pointers to functions that are compiled for some processors only.
    "virtual-gpu/src/isa/op/run.rs",
    "virtual-gpu/src/memory/",
    "virtual-gpu/tests/packets/",
    // It plays a kernel: memory of the process, mappings, rings.
    "virtual-kfd/preload/",
    "virtual-kfd/src/dmabuf.rs",
    "virtual-kfd/src/driver.rs",
    "virtual-kfd/src/interrupts.rs",
    "virtual-kfd/src/memory.rs",
    "virtual-kfd/src/exported.rs",
    "virtual-kfd/src/process.rs",
    "virtual-kfd/src/queue/",
    "virtual-kfd/src/ranges.rs",
    "virtual-kfd/src/slots.rs",
    "virtual-kfd/src/smi.rs",
    "virtual-kfd/src/space.rs",
    "virtual-kfd/src/waits.rs",
    "virtual-kfd/tests/",
    "virtual-vulkan/icd/",
    "virtual-vulkan/src/calls/",
    "virtual-vulkan/src/radv.rs",
];

#[test]
fn every_family_has_its_files() {
    for family in FAMILIES {
        for folder in [
            "ggml-core/src/op",
            "ggml-core/src/catalogue",
            "ggml-core/src/cpu/op",
            "backend-vulkan/src/op",
            "backend-hip/src/op",
        ] {
            let path = root().join(folder).join(format!("{family}.rs"));
            assert!(path.exists() || path.with_extension("").is_dir(), "{folder}/{family}.rs is missing");
        }
        assert!(root().join(format!("shaders/src/{family}")).is_dir(), "shaders/src/{family} is missing");
        assert!(
            root().join(format!("hip-kernels/src/{family}.hip")).exists(),
            "hip-kernels/src/{family}.hip"
        );
    }
}

#[test]
fn files_can_be_read_in_one_sitting() {
    for path in sources() {
        let lines = fs::read_to_string(root().join(&path)).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

#[test]
fn unsafe_stays_where_it_belongs() {
    let word = ["uns", "afe"].concat();
    for path in sources().iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        let name = path.to_string_lossy();
        let text = fs::read_to_string(root().join(path)).unwrap();
        let used = text.lines().any(|l| {
            let code = l.split("//").next().unwrap_or_default();
            code.contains(&format!("{word} {{"))
                || code.contains(&format!("{word} fn"))
                || code.contains(&format!("{word} impl"))
        });
        assert!(!used || UNSAFE.iter().any(|p| name.starts_with(p)), "{name} has {word} code");
    }
}

#[test]
fn the_core_knows_no_backend() {
    let core = fs::read_to_string(root().join("ggml-core/Cargo.toml")).unwrap();
    for name in ["backend-vulkan", "backend-hip", "ash", "libloading"] {
        assert!(!core.lines().any(|line| line.starts_with(name)), "ggml-core depends on {name}");
    }
    let vulkan = fs::read_to_string(root().join("backend-vulkan/Cargo.toml")).unwrap();
    let hip = fs::read_to_string(root().join("backend-hip/Cargo.toml")).unwrap();
    assert!(!vulkan.contains("backend-hip") && !hip.contains("backend-vulkan"));
}

/// Returns the Rust sources of a crate below a folder. Files below `bin` are other crates.
fn crate_sources(folder: &str) -> Vec<Source> {
    let below = |(path, text): (PathBuf, String)| {
        let file = path.strip_prefix(folder).ok()?.to_string_lossy().into_owned();
        (!file.starts_with("bin/")).then_some(Source { file, text })
    };
    rust_sources().filter_map(below).collect()
}

#[test]
fn imports_go_down() {
    for floors in FLOORS {
        let faults = faults(&crate_sources(floors.folder), floors);
        assert!(faults.is_empty(), "{}/{}:\n{}", floors.folder, floors.module, faults.join("\n"));
    }
}

#[test]
fn every_crate_has_floors() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("the members");
    let members = members.split('"').skip(1).step_by(2).map(|member| format!("{member}/src"));
    for folder in members.chain(["src".to_string()]) {
        let units: BTreeSet<String> = crate_sources(&folder)
            .iter()
            .filter_map(|source| {
                source.file.split('/').next().map(|unit| unit.trim_end_matches(".rs").to_string())
            })
            .filter(|unit| !["lib", "main", "tests"].contains(&unit.as_str()))
            .collect();
        // The library has floors inside its modules.
        let found = FLOORS.iter().any(|f| f.folder == folder && (f.module.is_empty() || folder == "src"));
        assert!(found || units.len() < 2, "{folder} has no floors: {units:?}");
    }
}

/// Plants errors in the sources of every crate with floors: each unit imports every unit of the next higher floor, and
/// two units import each other.
#[test]
fn every_floor_is_checked() {
    for floors in FLOORS {
        let sources = crate_sources(floors.folder);
        let name = format!("{}/{}", floors.folder, floors.module);
        let module = |unit: &str| -> String {
            floors.module.split('/').filter(|s| !s.is_empty()).chain([unit]).collect::<Vec<_>>().join("::")
        };
        let file = |unit: &str| -> String {
            let stem = module(unit).replace("::", "/");
            let files = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
            let found = files.into_iter().find(|file| sources.iter().any(|source| source.file == *file));
            found.unwrap_or_else(|| panic!("{name}: {unit} has no file"))
        };
        // Errors with imports from the first unit of each pair to the second.
        let planted = |pairs: &[(&str, &str)]| -> Vec<String> {
            let mut sources = sources.clone();
            for &(from, to) in pairs {
                let from = file(from);
                let source = sources.iter_mut().find(|source| source.file == from).unwrap();
                source.text += &format!("\nuse crate::{};\n", module(to));
            }
            faults(&sources, floors)
        };
        let neighbours = || floors.floors.windows(2).map(|pair| (pair[0], pair[1]));
        let upward: Vec<(&str, &str)> = neighbours()
            .flat_map(|(upper, lower)| lower.iter().flat_map(|&from| upper.iter().map(move |&to| (from, to))))
            .collect();
        assert!(!upward.is_empty(), "{name} has one floor only");
        let found = planted(&upward);
        for &(from, to) in &upward {
            let wanted = format!("{} imports {}, which is above it", file(from), file(to));
            assert!(found.contains(&wanted), "{name}: not found: {wanted}");
        }
        let shared = floors.floors.iter().find(|floor| floor.len() > 1);
        let (a, b) = shared.map_or((floors.floors[0][0], floors.floors[1][0]), |floor| (floor[0], floor[1]));
        let found = planted(&[(a, b), (b, a)]);
        let circle = |line: &String| line.starts_with("a circle") && line.contains(&file(a));
        assert!(found.iter().any(circle), "{name}: no circle of {a} and {b}: {found:?}");
    }
}

/// A synthetic crate with three floors, with and without an error.
#[test]
fn a_planted_import_is_found() {
    let floors =
        Floors { folder: "", module: "", floors: &[&["top"], &["middle", "side"], &["low"], &["ground"]] };
    let files = [
        ("lib.rs", "mod top; mod middle; mod side; mod low; mod ground; pub use top::Roof;"),
        ("top.rs", "use crate::{middle::Stairs, low::{self, deep::Cellar}}; pub struct Roof;"),
        ("middle.rs", "use crate::low::deep::*; pub struct Stairs;"),
        ("side.rs", "use crate::middle::Stairs;"),
        ("low/mod.rs", "pub mod deep; mod flat; use deep::Cellar; pub(super) fn f() { flat::g() }"),
        ("low/deep.rs", "use super::f; use super::super::ground; pub struct Cellar;"),
        ("low/flat.rs", "pub(in crate::low) fn g() { let _ = super::deep::Cellar; }"),
        ("ground.rs", "// use crate::top::Roof;\nconst A: &str = \"crate::top::Roof\"; use std::fmt::top;"),
    ];
    let faults_with = |file: &str, text: &str| {
        let source = |&(name, old): &(&str, &str)| {
            let text = if name == file { format!("{old}\n{text}") } else { old.into() };
            Source { file: name.into(), text }
        };
        faults(&files.iter().map(source).collect::<Vec<_>>(), &floors)
    };
    assert_eq!(faults_with("", ""), [""; 0]);
    // Tests may import anything.
    for harmless in [
        "#[cfg(test)] mod tests { use crate::top::Roof; }",
        "#[cfg(all(test, unix))] use crate::top::Roof;",
        "mod inner { use super::A; }",
    ] {
        assert_eq!(faults_with("ground.rs", harmless), [""; 0], "{harmless}");
    }
    for upward in [
        "use crate::top::Roof;",
        "use crate::{\n    low::deep,\n    top::{\n        Roof as R,\n    },\n};",
        "use super::{top};",
        "use crate::Roof;",
        "fn f() -> crate::top::Roof { todo!() }",
        "fn f() { let x = vec![format!(\"{}\", super::top::Roof)]; }",
        "mod inner { use super::super::top::Roof; }",
        "impl From<crate::top::Roof> for u8 {}",
        "#[cfg(not(test))] use crate::top::Roof;",
    ] {
        let found = faults_with("ground.rs", upward);
        assert!(found.contains(&"ground.rs imports top.rs, which is above it".into()), "{upward}: {found:?}");
    }
    assert_eq!(
        faults_with("middle.rs", "fn f() { crate::side::g() }"),
        ["a circle: middle.rs -> side.rs -> middle.rs"]
    );
    assert_eq!(
        faults_with("low/deep.rs", "use super::flat::g;"),
        ["a circle: low/deep.rs -> low/flat.rs -> low/deep.rs"]
    );
    let small = Floors { floors: &[&["top", "roof"]], ..floors };
    let top = Source { file: "top/mod.rs".into(), text: "mod a;".into() };
    let ground = Source { file: "ground.rs".into(), text: String::new() };
    let lib = Source { file: "lib.rs".into(), text: String::new() };
    assert_eq!(faults(&[lib, top, ground], &small), ["roof has a floor and no file", "ground has no floor"]);
}
