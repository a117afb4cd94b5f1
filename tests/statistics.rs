//! Runs over many epochs and folders: statistics, interleaving, one report.

use crate::common;

use common::{compare, example, flat};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Rewrites a file with one JSON value or one per line.
fn edit(path: &Path, change: impl Fn(&mut Value) -> bool) {
    let text = std::fs::read_to_string(path).unwrap();
    let values = serde_json::Deserializer::from_str(text.trim_end_matches('\0')).into_iter::<Value>();
    let kept: Vec<String> = values
        .map(Result::unwrap)
        .filter_map(|mut value| change(&mut value).then(|| format!("{value}\n")))
        .collect();
    std::fs::write(path, kept.concat()).unwrap();
}

/// Returns mean, deviation, minimum and maximum, from the sums of values and squares.
fn summary(values: &[f64]) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    let n = values.len() as f64;
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    let variance = if n > 1.0 { (squares - sum * sum / n) / (n - 1.0) } else { 0.0 };
    let (mut sorted, mean) = (values.to_vec(), sum / n);
    sorted.sort_by(f64::total_cmp);
    json!({"n": values.len(), "mean": mean, "sd": variance.max(0.0).sqrt(), "min": sorted[0], "max": sorted.last()})
}

fn near(found: &Value, wanted: &Value) -> bool {
    let number = |v: &Value, key: &str| v[key].as_f64().unwrap();
    found == wanted
        || ["n", "mean", "sd", "min", "max"].iter().all(|key| {
            let (a, b) = (number(found, key), number(wanted, key));
            (a - b).abs() <= 1e-6 * b.abs().max(1.0)
        })
}

/// Fifteen folders with 119 records, some of them crashes: every value of the statistics is recomputed here
/// from the records.
#[test]
fn many_runs_are_one_report() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("0");
    let bad = "null=crash@first_compute:embedding";
    let list = format!("cpu,{bad}");
    let args = ["--epochs", "4", "--predict", "3", "--reference", "null", "--backends", &list];
    let (output, result) = compare(&first, &args);
    assert_eq!(output.status.code(), Some(1));
    // The reference in its first epoch, and in each epoch all three.
    let epochs: Vec<i64> =
        result["records"].as_array().unwrap().iter().map(|r| r["epoch"].as_i64().unwrap()).collect();
    assert_eq!(epochs, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    for s in result["statistics"].as_array().unwrap() {
        assert_eq!(s["runs"], 4, "{s}");
    }
    assert!(flat(&output).contains("sd: standard deviation"), "{}", flat(&output));

    // 14 folders of eight records and one of seven.
    let folders: Vec<_> = (0..15).map(|i| dir.path().join(format!("run {i}"))).collect();
    for (i, folder) in folders.iter().enumerate() {
        copy(&first, folder);
        let keep = if i == 3 { 7 } else { 8 };
        edit(&folder.join("run.json"), |header| {
            header["report"]["run_id"] = json!(format!("run-{i}"));
            header["runs"].as_array_mut().unwrap().truncate(keep);
            true
        });
        edit(&folder.join("run.events.jsonl"), |event| {
            if let Some(elapsed) = event["elapsed_s"].as_f64() {
                event["elapsed_s"] = json!(elapsed + 0.37 * i as f64);
            }
            true
        });
    }
    let out = dir.path().join("all.json");
    let output = Command::new(example("compare"))
        .arg("report")
        .args(&folders)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", flat(&output));
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    let records = all["records"].as_array().unwrap();
    assert_eq!((all["runs"].as_array().unwrap().len(), records.len()), (15, 119));

    let mut groups: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    records.iter().for_each(|r| groups.entry(r["backend"].as_str().unwrap()).or_default().push(r));
    let statistics = all["statistics"].as_array().unwrap();
    assert_eq!(statistics.len(), groups.len());
    for s in statistics {
        let own = &groups[s["backend"].as_str().unwrap()];
        let count = |status: &str| own.iter().filter(|r| r["status"] == status).count();
        assert_eq!(
            (s["runs"].as_u64(), s["ok"].as_u64()),
            (Some(own.len() as u64), Some(count("ok") as u64))
        );
        assert_eq!(s["crashes"].as_u64(), Some(count("crash") as u64));
        let of = |status: &str, key: &str| {
            let right = own.iter().filter(|r| r["status"] == status);
            summary(&right.filter_map(|r| r[key].as_f64()).collect::<Vec<f64>>())
        };
        for key in ["elapsed_s", "load_s", "prompt_s", "eval_s", "tokens_per_s"] {
            assert!(near(&s[key], &of("ok", key)), "{key}: {s} {}", of("ok", key));
        }
        assert!(near(&s["time_to_crash_s"], &of("crash", "elapsed_s")), "{s}");
    }
    let crashed = statistics.iter().find(|s| s["backend"] == bad).unwrap();
    assert!(crashed["time_to_crash_s"]["sd"].as_f64().unwrap() > 1.0, "the folders differ: {crashed}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().rev().skip(1).all(|l| l.chars().count() <= 100), "{text}");

    // The same run does not count twice.
    let twice =
        Command::new(example("compare")).arg("report").args([&folders[0], &folders[0]]).output().unwrap();
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).starts_with("error: "));
}
