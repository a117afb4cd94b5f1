//! Compiler statistics of earlier audits, in a file: what was compiled once by the same driver is not compiled again.
//!
//! A line holds the key of a pipeline, its subgroup size and its statistics. The key is a hash of everything that the
//! statistics follow from, so a line is never wrong, only missing. Several processes may append at the same time.

use super::AuditRow;
use crate::pipeline::PipelineSpec;
use ggml_core::files;
use ggml_core::hash::Fnv1a;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Part of every key: to be changed when a statistic gets another meaning here.
const METHOD: &str = "audit 1";

/// Size in bytes beyond which a file is started anew.
const LIMIT: u64 = 8 << 20;

/// The statistics of one file.
pub(super) struct Known {
    path: PathBuf,
    device: String,
    lines: HashMap<u64, String>,
    added: String,
}

impl Known {
    /// Reads the statistics of a device by a driver, `device` naming both, from `folder`. Unreadable files count as empty.
    pub(super) fn open(folder: &Path, device: &str) -> Known {
        let path = folder.join(format!("{:016x}.tsv", Fnv1a::of(device.as_bytes())));
        let read = files::read_cached(&path, LIMIT);
        if read.is_err() {
            let _ = files::remove(&path);
        }
        let text = String::from_utf8(read.unwrap_or_default()).unwrap_or_default();
        let line = |line: &str| {
            let (key, rest) = line.split_once('\t')?;
            Some((u64::from_str_radix(key, 16).ok()?, rest.to_string()))
        };
        // The last line may be unfinished.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Known {
            path,
            device: device.into(),
            lines: whole.lines().filter_map(line).collect(),
            added: String::new(),
        }
    }

    fn key(&self, pipeline: &PipelineSpec) -> Option<u64> {
        let words = shaders::module(pipeline.shader, pipeline.variant)?;
        let module = shaders::manifest::module_digest(words);
        Some(Fnv1a::of(format!("{METHOD}\n{}\n{pipeline}\n{module}", self.device).as_bytes()))
    }

    /// Returns the statistics of a pipeline, if they are known.
    pub(super) fn get(&self, pipeline: &PipelineSpec) -> Option<AuditRow> {
        let line = self.lines.get(&self.key(pipeline)?)?;
        let (size, values) = line.split_once('\t')?;
        let value = |text: &str| {
            let (name, value) = text.rsplit_once('=')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        let statistics = values.split('\t').map(value).collect::<Option<Vec<_>>>()?;
        Some(AuditRow { pipeline: pipeline.clone(), subgroup_size: size.parse().ok(), statistics })
    }

    /// Adds the statistics of a pipeline.
    pub(super) fn add(&mut self, row: &AuditRow) {
        let Some(key) = self.key(&row.pipeline) else { return };
        if row.statistics.is_empty() || row.statistics.iter().any(|(name, _)| name.contains(['\t', '\n'])) {
            return;
        }
        let values: Vec<String> =
            row.statistics.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let size = row.subgroup_size.map_or("-".into(), |size| size.to_string());
        let _ = writeln!(self.added, "{key:016x}\t{size}\t{}", values.join("\t"));
    }

    /// Appends what was added to the file. If that fails it will be compiled again.
    pub(super) fn save(&self) {
        let append = || {
            files::create_folders(self.path.parent()?).ok()?;
            let mut file = files::open_to_append(&self.path).ok()?;
            file.write_all(self.added.as_bytes()).ok()
        };
        if !self.added.is_empty() {
            let _ = append();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn row(pipeline: &PipelineSpec) -> AuditRow {
        let statistics = vec![("VGPRs".into(), 24.0), ("Inverse Throughput".into(), 0.1)];
        AuditRow { pipeline: pipeline.clone(), subgroup_size: Some(64), statistics }
    }

    #[test]
    fn statistics_come_back_for_the_same_pipeline_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audits");
        let shader = shaders::ShaderId::all().next().expect("there are shaders");
        let spec = |constant| PipelineSpec {
            shader: shader.stem(),
            variant: shader.variant(),
            specialization: vec![constant],
            subgroup: None,
        };
        let mut known = Known::open(&path, "vega20 by RADV 1");
        assert_eq!(known.get(&spec(1)), None);
        known.add(&row(&spec(1)));
        known.save();
        assert_eq!(Known::open(&path, "vega20 by RADV 1").get(&spec(1)), Some(row(&spec(1))));
        assert_eq!(Known::open(&path, "vega20 by RADV 1").get(&spec(2)), None);
        assert_eq!(Known::open(&path, "vega20 by RADV 2").get(&spec(1)), None);
        let file = fs::read_dir(&path).unwrap().flatten().next().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        for broken in [&text[..text.len() - 3], "", "text\n", &text.replace('=', " ")] {
            fs::write(&file, broken).unwrap();
            assert_eq!(Known::open(&path, "vega20 by RADV 1").get(&spec(1)), None, "{broken:?}");
        }
    }
}
