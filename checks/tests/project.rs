//! Files of the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Returns the source files of the project, relative to its root.
pub(crate) fn sources() -> Vec<PathBuf> {
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

/// The page of cards shows the reports.
#[test]
fn docs_show_the_reports_of_cards() {
    let page = fs::read_to_string(root().join("docs/cards.md")).unwrap();
    let tables = diptych::ggml::routes::cards::tables();
    let shown = page.split_once("## Reports\n").map(|(_, shown)| shown.trim());
    assert!(shown == Some(tables.trim()), "docs/cards.md has to end with:\n\n{tables}");
}

/// The HIP targets of a clone are set in one place, so that `cargo run` after `make` compiles no other kernels. Only
/// checks of the whole project and the fuzzer set others.
#[test]
fn targets_are_set_in_one_place() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    assert!(read(".cargo/config.toml").contains("[env]\nDIPTYCH_HIP_TARGETS = \"local\"\n"));
    let sets = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("DIPTYCH_HIP_TARGETS="))
    };
    let scripts = fs::read_dir(root().join("scripts")).unwrap().map(|entry| entry.unwrap().path());
    let setting: Vec<PathBuf> =
        scripts.chain(["Makefile"].map(|name| root().join(name))).filter(|path| sets(path)).collect();
    assert_eq!(setting, [root().join("scripts/fuzz.sh")]);
}

/// Returns the Rust files of the project, relative to its root, with their text.
pub(crate) fn rust_sources() -> impl Iterator<Item = (PathBuf, String)> {
    static READ: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
        let files = sources().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
        let read = |path: PathBuf| {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            (path, text)
        };
        files.map(read).collect()
    });
    READ.iter().cloned()
}
