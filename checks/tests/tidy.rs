//! Source rules that no compiler checks.

mod imports;

use imports::{Floors, Source, faults};
use std::fs;
use std::path::{Path, PathBuf};

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
    "backend-hip/src/provider/ffi.rs",
    "backend-hip/src/provider/nvidia/",
    "backend-hip/src/provider/virtual_gpu/driver.rs",
    "backend-hip/src/runtime/session/",
    "backend-hip/src/sys/",
    "backend-hip/src/tests/fake.rs",
    "src/leave.rs",
    "virtual-gpu/src/exec/simd.rs",
    "virtual-gpu/src/memory/region.rs",
    "virtual-vulkan/icd/",
    "virtual-vulkan/src/calls/",
    "virtual-vulkan/src/radv.rs",
];

/// Floors of the crates that have some, see [`Floors`]. Import cycles between files of a crate are errors as
/// well.
const FLOORS: &[Floors] = &[
    Floors {
        folder: "ggml-core/src",
        module: "",
        floors: &[
            &["catalogue"],
            &["evaluate"],
            &["cpu", "decode", "null", "reference", "repeat", "schedule"],
            &["backend"],
            &["cost", "kernel", "plan"],
            &["bound", "fuse"],
            &["graph"],
            &["tensor"],
            &["gguf", "op"],
            &["encode", "exact"],
            &["grids", "shape"],
            &["mapped", "metrics", "options", "phase", "precision", "rng"],
            &["deadline", "dtype"],
            &["error", "hash"],
        ],
    },
    Floors {
        folder: "src",
        module: "compare",
        floors: &[
            &["child", "counts", "failing", "merge", "page", "table"],
            &["again", "shrink"],
            &["ops", "trial", "whole"],
            &["header", "parent"],
            &["generate", "graph", "judge", "recorder"],
            &["invariance"],
            &["advice", "loaded", "nodes", "system", "text"],
            &["cards", "files", "protocol"],
            &["report"],
            &["comparison"],
            &["options"],
            &["host", "json"],
        ],
    },
    Floors {
        folder: "src",
        module: "model",
        floors: &[
            &["estimate"],
            &["division", "identity", "outline"],
            &["file"],
            &["nearest"],
            &[
                "bert",
                "deepseek2",
                "gemma2",
                "gemma3",
                "gemma4",
                "glm4moe",
                "gpt_oss",
                "granite",
                "lfm2",
                "llama",
                "llama4",
                "mistral3",
                "nemotron",
                "olmo2",
                "phi3",
                "qwen2",
                "qwen3",
                "qwen35",
                "qwen3moe",
            ],
            &["architecture"],
            &["attention", "latent", "mamba", "moe", "output", "recurrent"],
            &["branch", "feed_forward"],
            &["builder", "load_options"],
            &["batch", "session_options", "weights"],
            &["best", "hparams", "memory", "offload"],
        ],
    },
    Floors {
        folder: "src",
        module: "session",
        floors: &[
            &["embed", "profile"],
            &["append", "saved"],
            &["ahead", "programs"],
            &["inputs", "prepared", "results"],
            &["cells", "layout", "memory"],
        ],
    },
    Floors {
        folder: "src",
        module: "chat",
        floors: &[
            &["engine"],
            &["compile", "methods"],
            &["guard", "input"],
            &["args", "error", "text"],
            &["budget", "source"],
        ],
    },
    Floors {
        folder: "src",
        module: "tokenizer",
        floors: &[
            &["bpe", "detokenizer"],
            &["pre", "special", "spm", "wordpiece"],
            &["vocabulary"],
            &["alphabet", "patterns"],
        ],
    },
    Floors {
        folder: "src",
        module: "quantize",
        floors: &[&["convert"], &["scale"], &["importance", "mix", "progress"]],
    },
    Floors {
        folder: "virtual-vulkan/src",
        module: "",
        floors: &[
            &["calls"],
            &["execute", "instance"],
            &["device"],
            &["descriptors", "environment", "list", "queue", "semaphores"],
            &["memory", "order", "pipeline", "queries"],
            &["card"],
            &["counted", "heaps", "radv", "record"],
            &["reply", "table"],
        ],
    },
    Floors {
        folder: "backend-vulkan/src",
        module: "",
        floors: &[
            &["audit", "backend"],
            &["program"],
            &["op"],
            &["pipeline"],
            &["memory"],
            &["context"],
            &["device"],
            &["raw"],
            &["options"],
            &["deadline", "environment"],
            &["arch", "error", "sync"],
        ],
    },
    Floors {
        folder: "backend-hip/src",
        module: "",
        floors: &[
            &["nvidia", "virtual_gpu"],
            &["backend"],
            &["program"],
            &["runtime"],
            &["code"],
            &["op"],
            &["installed"],
            &["provider"],
            &["advice"],
            &["driver"],
            &["tuning"],
            &["system"],
            &["sys"],
            &["arch", "options"],
            &["sync"],
        ],
    },
    Floors {
        folder: "backend-hip/src",
        module: "runtime",
        floors: &[
            &["device", "transfer"],
            &["memory"],
            &["shared"],
            &["copies"],
            &["thread"],
            &["events", "staging"],
            &["session"],
            &["monitor"],
        ],
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Returns the source files of the project, relative to its root.
fn sources() -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") && name != "out" {
                walk(&path, out);
            } else if ["rs", "comp", "glsl", "hip", "h"]
                .iter()
                .any(|e| path.extension().is_some_and(|x| x == *e))
            {
                out.push(path);
            }
        }
    }
    let mut out = Vec::new();
    walk(&root(), &mut out);
    out.into_iter().map(|p| p.strip_prefix(root()).unwrap().to_path_buf()).collect()
}

#[test]
fn every_family_has_its_files() {
    for family in FAMILIES {
        for place in
            ["ggml-core/src/op", "ggml-core/src/cpu/op", "backend-vulkan/src/op", "backend-hip/src/op"]
        {
            let path = root().join(place).join(format!("{family}.rs"));
            assert!(path.exists() || path.with_extension("").is_dir(), "{place}/{family}.rs is missing");
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

#[test]
fn imports_go_down() {
    for floors in FLOORS {
        let files = sources().into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs"));
        let sources: Vec<Source> = files
            .filter_map(|path| {
                let file = path.strip_prefix(floors.folder).ok()?.to_string_lossy().into_owned();
                Some(Source { file, text: fs::read_to_string(root().join(&path)).unwrap() })
            })
            .collect();
        let faults = faults(&sources, floors);
        assert!(faults.is_empty(), "{}/{}:\n{}", floors.folder, floors.module, faults.join("\n"));
    }
}

/// A synthetic crate with three floors, with and without an error.
#[test]
fn a_planted_import_is_found() {
    let floors =
        Floors { folder: "", module: "", floors: &[&["top"], &["middle", "beside"], &["low"], &["ground"]] };
    let house = [
        ("lib.rs", "mod top; mod middle; mod beside; mod low; mod ground; pub use top::Roof;"),
        ("top.rs", "use crate::{middle::Stairs, low::{self, deep::Cellar}}; pub struct Roof;"),
        ("middle.rs", "use crate::low::deep::*; pub struct Stairs;"),
        ("beside.rs", "use crate::middle::Stairs;"),
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
        faults(&house.iter().map(source).collect::<Vec<_>>(), &floors)
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
        faults_with("middle.rs", "fn f() { crate::beside::g() }"),
        ["a circle: beside.rs -> middle.rs -> beside.rs"]
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
