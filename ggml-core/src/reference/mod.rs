//! The reference backend: every operation exactly as its definition says, in f64, on one thread.
//!
//! It is written to be correct and readable, not fast. It shares no code that computes with any other
//! backend, not even a dequantiser. Each tensor has its own memory (views use that of their root), so a plan
//! that reuses memory too early gives different results on other backends. Results are rounded to the type of
//! their tensor once, when a node is finished.

mod backend;

pub use backend::ReferenceBackend;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Returns the sources of a folder of the crate, without their tests and comments.
    fn sources(folder: &str) -> Vec<(String, String)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                all.append(&mut sources(&name));
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            all.push((name, lines.collect::<Vec<_>>().join("\n")));
        }
        assert!(!all.is_empty());
        all
    }

    /// Returns the paths that begin with `prefix`, without it; the paths of a braced group one by one.
    fn paths(code: &str, prefix: &str) -> Vec<String> {
        let mut all = Vec::new();
        for rest in code.split(prefix).skip(1) {
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
            match rest[end..].strip_prefix('{') {
                Some(group) => {
                    let items = group.split('}').next().unwrap_or_default().split(',').map(str::trim);
                    let items = items.filter(|item| !item.is_empty());
                    all.extend(items.map(|item| format!("{}{item}", &rest[..end])));
                }
                None => all.push(rest[..end].to_string()),
            }
        }
        all
    }

    /// Agreement of two backends that share code proves nothing. The reference and the definitions therefore
    /// use only modules that describe tensors and graphs or define errors and bounds, and the tables of
    /// formats; no code that computes.
    #[test]
    fn the_reference_shares_no_computation() {
        let of_reference = [
            "backend", "dtype", "error", "exact", "graph", "mapped", "op", "phase", "plan", "rng", "shape",
            "tensor",
        ];
        let of_definitions = ["dtype", "exact", "metrics", "precision", "shape"];
        let of_operands = ["dtype", "grids", "precision", "rng", "shape"];
        for (folder, allowed) in
            [("reference", &of_reference[..]), ("op", &of_definitions), ("exact", &of_operands)]
        {
            for (name, code) in sources(folder) {
                for path in paths(&code, "crate::") {
                    let module = path.split(':').next().unwrap_or_default();
                    assert!(allowed.contains(&module), "{name} uses crate::{path}");
                }
            }
        }
    }

    /// Conversely, other backends use the parameters of an operation (types, capitalised) but none of its
    /// functions.
    #[test]
    fn nobody_else_uses_a_definition() {
        for (name, code) in sources("cpu").into_iter().chain(sources("kernel")) {
            for path in paths(&code, "crate::op::") {
                let last = path.split("::").last().unwrap_or_default();
                assert!(last.starts_with(char::is_uppercase), "{name} uses crate::op::{path}");
            }
            assert!(!code.contains("crate::reference"), "{name} uses the reference");
            assert!(!code.contains("crate::exact"), "{name} uses decoders of the reference");
        }
    }
}
