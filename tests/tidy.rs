//! Rules about the sources that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

/// Families of operations: the same stem in every crate that has a part of them.
const FAMILIES: &[&str] = &[
    "binary",
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
    "top_k",
    "unary",
];

/// Lines of code that a source file may have.
const MAX_LINES: usize = 560;

/// Where `unsafe` may stand: foreign functions, SIMD, mapped memory.
const UNSAFE: &[&str] = &[
    "ggml-core/src/mapped.rs",
    "ggml-core/src/cpu/",
    "ggml-core/tests/gguf_memory.rs",
    "ggml-core/tests/cpu/interface.rs",
    "backend-vulkan/src/raw/",
    "backend-hip/src/amd/",
    "backend-hip/src/driver/",
    "backend-hip/src/nvidia/",
    "backend-hip/src/rtc/",
    "backend-hip/src/session/",
    "backend-hip/src/virtual_gpu/driver.rs",
    "src/leave.rs",
    "virtual-gpu/src/exec/simd.rs",
    "virtual-gpu/src/memory.rs",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Source files of the project, relative to its root.
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
    for path in sources().iter().filter(|p| p.starts_with("ggml-core/src")) {
        let text = fs::read_to_string(root().join(path)).unwrap();
        for name in ["backend_vulkan", "backend_hip", "ash::", "libloading"] {
            assert!(!text.contains(name), "{} knows {name}", path.display());
        }
    }
    let vulkan = fs::read_to_string(root().join("backend-vulkan/Cargo.toml")).unwrap();
    let hip = fs::read_to_string(root().join("backend-hip/Cargo.toml")).unwrap();
    assert!(!vulkan.contains("backend-hip") && !hip.contains("backend-vulkan"));
}
