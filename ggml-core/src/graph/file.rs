//! Graph files: a graph that failed somewhere can travel.
//!
//! `NAME.json` holds the structure: tensors, operations, outputs. `NAME.bin` beside it holds the contents of leaves
//! that were given, each at a 64-byte boundary. Reading builds the graph anew through the same checks as any other
//! graph, so a damaged file is an error and never a broken graph.

use super::Graph;
use crate::dtype::DType;
use crate::error::{Error, Result};
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
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<[usize; 2]>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Kind {
    Weight,
    Input,
    State,
    Node { operation: Op, src: Vec<u32> },
}

/// A graph with the contents of some of its leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphFile {
    /// The graph.
    pub graph: Graph,
    /// Dense contents by leaf.
    pub data: HashMap<TensorId, Vec<u8>>,
}

/// The data file that belongs to a structure file.
fn data_path(path: &Path) -> PathBuf {
    path.with_extension("bin")
}

impl GraphFile {
    /// Writes `path` (JSON) and the data file beside it.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut blob = Vec::new();
        let mut tensors = Vec::new();
        for id in self.graph.ids() {
            let t = self.graph.tensor(id);
            let kind = match &t.source {
                Source::Weight => Kind::Weight,
                Source::Input => Kind::Input,
                Source::State => Kind::State,
                Source::Node { op, src } => {
                    Kind::Node { operation: op.clone(), src: src.iter().map(|s| s.0).collect() }
                }
            };
            let data = self.data.get(&id).map(|bytes| {
                blob.resize(blob.len().next_multiple_of(ALIGNMENT), 0);
                blob.extend_from_slice(bytes);
                [blob.len() - bytes.len(), bytes.len()]
            });
            tensors.push(Entry { name: t.name.clone(), dtype: t.dtype, ne: t.ne, kind, data });
        }
        let outputs = self.graph.outputs().iter().map(|o| o.0).collect();
        let file = File { format: FORMAT.into(), version: VERSION, tensors, outputs };
        let text = serde_json::to_string_pretty(&file).map_err(|e| Error::io(path, e))?;
        std::fs::write(data_path(path), blob).map_err(|e| Error::io(data_path(path), e))?;
        std::fs::write(path, text).map_err(|e| Error::io(path, e))
    }

    /// Reads and checks a graph file.
    pub fn load(path: &Path) -> Result<GraphFile> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let file: File =
            serde_json::from_str(&text).map_err(|e| Error::model_said(e.to_string()).with_path(path))?;
        if file.format != FORMAT || file.version != VERSION {
            let what =
                format!("is '{}' version {}, not {FORMAT} version {VERSION}", file.format, file.version);
            return Err(Error::model_said(what).with_path(path));
        }
        let blob = if file.tensors.iter().any(|t| t.data.is_some()) {
            std::fs::read(data_path(path)).map_err(|e| Error::io(data_path(path), e))?
        } else {
            Vec::new()
        };
        rebuild(&file, &blob).map_err(|e| e.with_path(path))
    }
}

/// Builds the graph through its ordinary checks.
fn rebuild(file: &File, blob: &[u8]) -> Result<GraphFile> {
    let mut out = GraphFile::default();
    for entry in &file.tensors {
        let leaf = |source| (source, None);
        let (source, node) = match &entry.kind {
            Kind::Weight => leaf(Source::Weight),
            Kind::Input => leaf(Source::Input),
            Kind::State => leaf(Source::State),
            Kind::Node { operation, src } => (Source::Input, Some((operation, src))),
        };
        let id = match node {
            None => out.graph.leaf(&entry.name, entry.dtype, entry.ne, source)?,
            Some((operation, src)) => {
                let src: Vec<TensorId> = src.iter().map(|&s| TensorId(s)).collect();
                let id = out.graph.node(operation.clone(), &src)?;
                out.graph.name(id, &entry.name)?;
                id
            }
        };
        let t = out.graph.tensor(id);
        if t.ne != entry.ne || t.dtype != entry.dtype {
            let what = format!(
                "node '{}' is {}, the file says {} {:?}",
                t.name,
                t.describe(),
                entry.dtype,
                entry.ne
            );
            return Err(Error::model_said(what));
        }
        if let Some([offset, len]) = entry.data {
            let bytes = offset.checked_add(len).and_then(|end| blob.get(offset..end));
            let Some(bytes) = bytes.filter(|b| b.len() == t.dense_bytes() && t.op().is_none()) else {
                return Err(Error::model_said(format!("data of '{}' does not fit", t.name)));
            };
            out.data.insert(id, bytes.to_vec());
        }
    }
    for &output in &file.outputs {
        if output as usize >= out.graph.tensors().len() {
            return Err(Error::model_said(format!("output {output} is no tensor")));
        }
        out.graph.output(TensorId(output));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

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
