//! Graph files, for example to reproduce a failure on another machine.
//!
//! `NAME.json` holds the structure: tensors, operations, outputs. `NAME.bin` next to it holds the contents of
//! leaves where given, each at a 64-byte boundary. Reading rebuilds the graph through the same checks as any
//! other graph, so a damaged file gives an error and never an invalid graph.

use super::Graph;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::op::Op;
use crate::tensor::{Source, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const FORMAT: &str = "diptych-graph";
const VERSION: u32 = 1;
const ALIGNMENT: usize = 64;

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    tensors: Vec<Entry>,
    outputs: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    dtype: DType,
    ne: [usize; 4],
    #[serde(flatten)]
    origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<[usize; 2]>,
}

/// Source of a tensor's contents.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Origin {
    Weight,
    Input,
    State,
    Node { operation: Op, src: Vec<u32> },
}

/// A graph and the contents of some of its leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphFile {
    /// The graph.
    pub graph: Graph,
    /// Dense contents of leaves.
    pub data: HashMap<TensorId, Vec<u8>>,
}

/// Returns the path of the data file of a structure file.
fn data_path(path: &Path) -> PathBuf {
    path.with_extension("bin")
}

impl GraphFile {
    /// Writes `path` (JSON) and the data file next to it.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut blob = Vec::new();
        let mut tensors = Vec::new();
        for id in self.graph.ids() {
            let t = self.graph.tensor(id);
            let origin = match &t.source {
                Source::Weight => Origin::Weight,
                Source::Input => Origin::Input,
                Source::State => Origin::State,
                Source::Node { op, src } => {
                    Origin::Node { operation: op.clone(), src: src.iter().map(|s| s.0).collect() }
                }
            };
            let data = self.data.get(&id).map(|bytes| {
                blob.resize(blob.len().next_multiple_of(ALIGNMENT), 0);
                blob.extend_from_slice(bytes);
                [blob.len() - bytes.len(), bytes.len()]
            });
            tensors.push(Entry { name: t.name.clone(), dtype: t.dtype, ne: t.ne, origin, data });
        }
        let outputs = self.graph.outputs().iter().map(|o| o.0).collect();
        let file = File { format: FORMAT.into(), version: VERSION, tensors, outputs };
        let text = serde_json::to_string_pretty(&file).map_err(|e| Error::io(path, e))?;
        write_atomically(&data_path(path), &blob).map_err(|e| Error::io(data_path(path), e))?;
        write_atomically(path, text.as_bytes()).map_err(|e| Error::io(path, e))
    }

    /// Reads and checks a graph file.
    pub fn load(path: &Path) -> Result<GraphFile> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let file: File =
            serde_json::from_str(&text).map_err(|e| Error::model("graph file", e, "").with_path(path))?;
        if file.format != FORMAT || file.version != VERSION {
            let found = format!("'{}' version {}", file.format, file.version);
            let error = Error::model("graph file", found, format!("{FORMAT} version {VERSION}"));
            return Err(error.with_path(path));
        }
        let blob = if file.tensors.iter().any(|t| t.data.is_some()) {
            std::fs::read(data_path(path)).map_err(|e| Error::io(data_path(path), e))?
        } else {
            Vec::new()
        };
        rebuild(&file, &blob).map_err(|e| e.with_path(path))
    }
}

/// Builds the graph through the usual checks.
fn rebuild(file: &File, blob: &[u8]) -> Result<GraphFile> {
    let mut out = GraphFile::default();
    for entry in &file.tensors {
        let leaf = |source| (source, None);
        let (source, node) = match &entry.origin {
            Origin::Weight => leaf(Source::Weight),
            Origin::Input => leaf(Source::Input),
            Origin::State => leaf(Source::State),
            Origin::Node { operation, src } => (Source::Input, Some((operation, src))),
        };
        let id = match node {
            None => out.graph.leaf(&entry.name, entry.dtype, entry.ne, source)?,
            Some((operation, src)) => {
                let src: Vec<TensorId> = src.iter().map(|&s| TensorId(s)).collect();
                out.graph.named_node(operation.clone(), &src, &entry.name)?
            }
        };
        let t = out.graph.tensor(id);
        if t.ne != entry.ne || t.dtype != entry.dtype {
            let found = format!("{} {:?}", entry.dtype, entry.ne);
            return Err(Error::model(format!("node '{}'", t.name), found, t.describe()));
        }
        if let Some([offset, len]) = entry.data {
            let bytes = offset.checked_add(len).and_then(|end| blob.get(offset..end));
            let Some(bytes) = bytes.filter(|b| b.len() == t.dense_bytes() && t.op().is_none()) else {
                let (what, found) = (format!("data of '{}'", t.name), format!("{len} bytes at {offset}"));
                let expected = format!("the {} of a leaf, within {} bytes", t.dense_bytes(), blob.len());
                return Err(Error::model(what, found, expected));
            };
            out.data.insert(id, bytes.to_vec());
        }
    }
    for &output in &file.outputs {
        out.graph.output(TensorId(output))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Scale;

    #[test]
    fn every_case_travels() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("case.json");
        for case in crate::catalogue::cases() {
            let graph = case.graph.clone().unwrap();
            let data = case.leaves().unwrap().into_iter().collect();
            let file = GraphFile { graph, data };
            file.save(&path).unwrap();
            assert_eq!(GraphFile::load(&path).unwrap(), file, "{}", case.name);
        }
    }

    /// Every floating-point parameter of every operation survives a round trip, including NaN and infinities.
    #[test]
    fn parameters_that_are_no_number_travel() {
        let ops: Vec<Op> = crate::catalogue::cases()
            .iter()
            .flat_map(|case| {
                case.graph
                    .clone()
                    .unwrap()
                    .tensors()
                    .iter()
                    .filter_map(|t| t.op().cloned())
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut floats = std::collections::BTreeSet::new();
        for op in ops {
            for text in ["NaN", "inf", "-inf"] {
                let mut json = serde_json::to_value(&op).unwrap();
                replace(&mut json, text, &mut |name| floats.insert(format!("{} {name}", op.name())));
                let read: Op = serde_json::from_value(json.clone()).unwrap_or_else(|e| panic!("{json}: {e}"));
                assert_eq!(serde_json::to_value(&read).unwrap(), json);
            }
        }
        assert!(floats.len() >= 17, "{floats:?}");
        let bad = r#"{"op": "Scale", "scale": "many", "bias": 0.0}"#;
        let error = serde_json::from_str::<Op>(bad).unwrap_err().to_string();
        assert!(error.contains("'many' is not a number, NaN, inf or -inf"), "{error}");
    }

    /// Replaces every floating-point value by `text`.
    fn replace(json: &mut serde_json::Value, text: &str, found: &mut impl FnMut(&str) -> bool) {
        for (name, value) in json.as_object_mut().into_iter().flatten() {
            if value.is_f64() {
                found(name);
                *value = text.into();
            }
            replace(value, text, found);
        }
    }

    /// A graph with a NaN parameter, and with a leaf that has the default name of a node.
    #[test]
    fn a_graph_with_a_nan_travels() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.json");
        let mut file = GraphFile::default();
        let x = file.graph.leaf("scale-1", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
        let y = file.graph.named_node(Op::Scale(Scale { scale: f32::NAN, bias: -1e-45 }), &[x], "y").unwrap();
        file.graph.output(y).unwrap();
        file.save(&path).unwrap();
        let read = GraphFile::load(&path).unwrap().graph;
        assert!(matches!(read.tensor(y).op(), Some(Op::Scale(s)) if s.scale.is_nan() && s.bias == -1e-45));
        assert_eq!((read.outputs(), read.find("y")), (&[y][..], Some(y)));
    }

    /// Files that no builder could produce: the rules of operations, names and outputs are also checked on
    /// loading.
    #[test]
    fn broken_graphs_in_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.json");
        let case =
            crate::catalogue::cases().into_iter().find(|c| c.name.starts_with("ROPE(factors")).unwrap();
        GraphFile { graph: case.graph.unwrap(), data: HashMap::new() }.save(&path).unwrap();
        let good: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let load = |pointer: &str, value: serde_json::Value| {
            let mut json = good.clone();
            *json.pointer_mut(pointer).unwrap() = value;
            std::fs::write(&path, json.to_string()).unwrap();
            GraphFile::load(&path).unwrap_err().to_string()
        };
        assert!(load("/tensors/2/ne", vec![1, 16, 1, 1].into()).contains("factors must be a row"));
        assert!(
            load("/tensors/0/name", "n".repeat(100_000).into())
                .contains("100000 bytes; expected at most 255")
        );
        assert!(load("/outputs/0", 77.into()).contains("output: tensor 77"));
        assert!(load("/tensors/3/src/0", 3.into()).contains("operand: tensor 3"));
        assert!(load("/tensors/3/operation/n_dims", 0.into()).contains("n_dims = 0"));
    }

    #[test]
    fn damaged_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.json");
        assert!(matches!(GraphFile::load(&path), Err(Error::Io { .. })));
        let case = &crate::catalogue::cases()[0];
        let data = case.leaves().unwrap().into_iter().collect();
        GraphFile { graph: case.graph.clone().unwrap(), data }.save(&path).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        for (from, to) in
            [("diptych-graph", "x"), ("\"ADD\"", "\"SUB\""), ("\"src\"", "\"sources\""), ("4", "7")]
        {
            std::fs::write(&path, good.replace(from, to)).unwrap();
            if good.contains(from) {
                assert!(GraphFile::load(&path).is_err(), "{from} -> {to}");
            }
        }
        std::fs::write(&path, &good).unwrap();
        std::fs::write(data_path(&path), b"").unwrap();
        assert!(GraphFile::load(&path).is_err());
    }
}
