//! A report over the runs of a published deck: one Radeon RX Vega 56, two backends, four numbers of units on the
//! device, five epochs, an override set and unset, two numbers of tokens, two models.

use crate::compare::report::{BackendReport, Environment, Host, Record, Report, Status};
use crate::compare::{CompareOptions, Style, html, report, table};
use std::path::{Path, PathBuf};

/// Mean and standard deviation of the seconds to a crash, by the number of units on the device.
const DEATHS: [(i64, f64, f64); 3] = [(1, 2.653, 0.059), (2, 7.630, 0.014), (-1, 9.819, 0.016)];

const OVERRIDE: &str = "HSA_OVERRIDE_GFX_VERSION";
const HYBRID: (&str, &str) = ("qwen3.5-2B.Q8_0.gguf", "1111");
const OTHER: (&str, &str) = ("phi4-mini.Q8_0.gguf", "2222");

/// Returns five values with a mean and a deviation.
fn five(mean: f64, sd: f64) -> [f64; 5] {
    [mean - sd, mean + sd, mean, mean + sd, mean - sd]
}

/// Returns the records of a backend: with one number of units on the device, in five epochs.
fn records(backend: &str, offload: i64, works: bool, phase: &str) -> Vec<Record> {
    let death = DEATHS.iter().find(|death| death.0 == offload).map_or((0.5, 0.01), |d| (d.1, d.2));
    let seconds = if works { five(46.0, 1.5) } else { five(death.0, death.1) };
    let record = |(epoch, elapsed_s): (usize, f64)| Record {
        backend: backend.into(),
        offload,
        epoch,
        elapsed_s,
        status: if works { Status::Ok } else { Status::Crash },
        phase: (!works).then(|| phase.into()),
        signal: (!works).then(|| "SIGSEGV".into()),
        tokens_per_s: works.then_some(11.0 + epoch as f64 / 100.0),
        ..Record::default()
    };
    seconds.into_iter().enumerate().map(record).collect()
}

/// Writes the folder of a run with a report only.
fn write(folder: &Path, model: (&str, &str), set: bool, predict: usize, records: Vec<Record>) -> PathBuf {
    let mut report = Report::new(&CompareOptions::default());
    report.run_id = folder.file_name().unwrap().to_string_lossy().into();
    report.work = format!("model /models/{}", model.0);
    report
        .settings
        .extend([("model", model.1.into()), ("predict", predict.to_string())].map(|(n, v)| (n.into(), v)));
    let overrides = set.then(|| (OVERRIDE.to_string(), "9.0.0".to_string()));
    report.environment = Environment { overrides: overrides.into_iter().collect() };
    report.host = Host { name: "desk".into(), kernel: "6.12".into(), ..Host::default() };
    for (name, device) in [("vulkan", "AMD Radeon RX Vega (RADV VEGA10)"), ("hip", "Radeon RX Vega (gfx900)")]
    {
        // Without the override the runtime lists no device.
        let device = if name == "hip" && !set { "" } else { device };
        let backend = BackendReport { name: name.into(), device: device.into(), ..BackendReport::default() };
        report.backends.extend(records.iter().any(|r| r.backend == name).then_some(backend));
    }
    report.records = records;
    super::complete(&mut report, folder);
    std::fs::create_dir_all(folder).unwrap();
    report.write(&folder.join("result.json")).unwrap();
    folder.into()
}

/// Writes all runs: 16 matched rows (backend, units, override), the same with fewer tokens under Vulkan, and the
/// other model.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let vulkan = |offload| records("vulkan", offload, offload == 0, "compute");
    let rows = |set: bool| {
        let hip = |offload| records("hip", offload, set, "enumerate");
        [0, 1, 2, -1].into_iter().flat_map(|offload| [vulkan(offload), hip(offload)].concat()).collect()
    };
    let few = [0, 1, 2, -1].into_iter().flat_map(vulkan).collect();
    vec![
        write(&dir.join("set"), HYBRID, true, 512, rows(true)),
        write(&dir.join("unset"), HYBRID, false, 512, rows(false)),
        write(&dir.join("few"), HYBRID, true, 64, few),
        write(&dir.join("other"), OTHER, true, 512, records("vulkan", 1, true, "")),
    ]
}

/// The statistics are the deck's figures, and keep apart override, tokens and model.
#[test]
fn figures_are_those_of_the_deck() {
    let dir = tempfile::tempdir().unwrap();
    let all = report(&folders(dir.path())).unwrap();
    assert_eq!(all.records.len(), 5 * (16 + 4 + 1));
    assert_eq!(all.statistics.len(), 16 + 4 + 1);
    for s in &all.statistics {
        assert_eq!(s.runs, 5, "{s:?}");
        let works = match s.backend.as_str() {
            "hip" => s.work.contains(&format!("{OVERRIDE}=9.0.0")),
            _ => s.offload == 0 || s.work.contains(OTHER.0),
        };
        assert_eq!((s.ok, s.crashes), if works { (5, 0) } else { (0, 5) }, "{s:?}");
        if s.backend == "vulkan" && !works {
            let (_, mean, sd) = DEATHS.into_iter().find(|death| death.0 == s.offload).unwrap();
            let found = s.time_to_crash_s.unwrap();
            assert!((found.mean - mean).abs() < 1e-9 && (found.sd - sd).abs() < 1e-9, "{found:?}");
        }
    }
}

/// The report says what the failure depends on, and what not.
#[test]
fn what_the_failure_depends_on_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let all = report(&folders(dir.path())).unwrap();
    let patterns = &all.verdict.patterns;
    let has = |words: &str| assert!(patterns.iter().any(|p| p.contains(words)), "{words}: {patterns:#?}");
    // Four sweeps, and the pairs that differ in one thing only.
    assert_eq!(patterns.len(), 4 + 6, "{patterns:#?}");
    has(
        "vulkan (model qwen3.5-2B.Q8_0.gguf; model 1111; predict 512; HSA_OVERRIDE_GFX_VERSION=9.0.0): conditional on \
         offload >= 1: works at offload 0, dies from 1 on: 15 of 15 runs, 2.65 +- 0.06 s at 1, 7.63 +- 0.01 s at 2, \
         9.82 +- 0.02 s at -1 after the start, in phase compute",
    );
    has(
        "hip: HSA_OVERRIDE_GFX_VERSION is the only difference (9.0.0 | unset): 5 of 5 against 0 of 5 complete at offload \
         0, 1, 2 and -1",
    );
    has(
        "vulkan: HSA_OVERRIDE_GFX_VERSION is the only difference (9.0.0 | unset): 0 of 5 against 0 of 5 complete",
    );
    has(
        "vulkan: predict is the only difference (512 | 64): 0 of 5 against 0 of 5 complete at offload 1, 2 and -1",
    );
    has(
        "vulkan: model-dependent: qwen3.5-2B.Q8_0.gguf dies (5 of 5 runs), phi4-mini.Q8_0.gguf completes (5 of 5 runs) at \
         offload 1",
    );
    let text = table(&all, Style::Plain);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for run in [
        "run set: model /models/qwen3.5-2B.Q8_0.gguf; model 1111; predict 512; HSA_OVERRIDE_GFX_VERSION=9.0.0",
        "run unset: model /models/qwen3.5-2B.Q8_0.gguf; model 1111; predict 512; HSA_OVERRIDE_GFX_VERSION not set",
    ] {
        assert!(flat.contains(run), "{run}: {text}");
        assert!(html(&all).matches(run).count() >= 2, "above the runs of the matrix, and with the evidence");
    }
    let of_override =
        "hip: HSA_OVERRIDE_GFX_VERSION is the only difference (9.0.0 | unset): 5 of 5 against 0 of 5";
    assert!(flat.contains(&format!("pattern: {of_override}")) && html(&all).contains(of_override), "{text}");
    assert!(text.lines().rev().skip(1).all(|line| line.chars().count() <= 100), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("vulkan works at offload 0, dies from 1 on: 15 of 15 runs"), "{last}");
    // The sentences are kept in the report as JSON and in one for others.
    assert_eq!(all.redacted().unwrap().verdict.patterns.len(), patterns.len());
}
