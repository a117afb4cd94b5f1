//! Variants of a run: rows with other variables, libraries or options, and the search for one that cures a hang.

use crate::common;

use common::{compare, example, flat, record, result, stdout};
use diptych::DType;
use diptych::ggml::graph::file::GraphFile;
use diptych::ggml::{Graph, Source};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const CARD: &str = "hip-virtual:gfx906";

/// Runs `compare` on the emulated card with faults, against `cpu`.
fn with_faults(out: &Path, faults: &str, args: &[&str]) -> (Output, Value) {
    let output = Command::new(example("compare"))
        .args([
            "--predict",
            "3",
            "--per-node",
            "off",
            "--timeout-s",
            "2",
            "--reference",
            "cpu",
            "--backends",
            CARD,
        ])
        .args(args)
        .arg("--out")
        .arg(out)
        .env("DIPTYCH_VIRTUAL_FAULTS", faults)
        .output()
        .unwrap();
    (output, result(out))
}

/// Returns the record of a variant; an empty name is the plain run.
fn row<'a>(result: &'a Value, variant: &str) -> &'a Value {
    let records = result["records"].as_array().expect("records");
    let is = |r: &&Value| r["backend"] != "cpu" && r["variant"].as_str().unwrap_or_default() == variant;
    records.iter().find(is).unwrap_or_else(|| panic!("no record of {variant}: {records:?}"))
}

/// An APU whose uploads hang, and whose first graph then hangs too (Strix Halo): one command makes the table of
/// strategies, and says which of them gets past which hang.
#[test]
fn a_table_of_strategies() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "HSA_ENABLE_SDMA=0,copies=kernel,HSA_OVERRIDE_GFX_VERSION=11.0.0";
    let (output, result) = with_faults(dir.path(), "stall@hipMemcpyAsync", &["--variants", rows]);
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (variant, status) in [("", "hang"), ("HSA_ENABLE_SDMA=0", "hang"), ("copies=kernel", "ok")] {
        let r = row(&result, variant);
        assert_eq!(r["status"], status, "{variant}: {r}");
        if status == "hang" {
            assert_eq!((&r["phase"], &r["furthest"]), (&"upload".into(), &"upload".into()), "{r}");
        }
    }
    let r = row(&result, "copies=kernel");
    assert_eq!(r["environment"], serde_json::json!([["DIPTYCH_HIP_COPIES", "kernel"]]));
    assert!(r["tokens_per_s"].as_f64().is_some_and(|t| t > 0.0), "{r}");
    assert!(dir.path().join(format!("{}.events.jsonl", r["stem"].as_str().unwrap())).exists());
    let variant = |c: &Value| c["variant"] == "copies=kernel" && c["disagreement"].is_null();
    assert!(result["comparisons"].as_array().unwrap().iter().any(variant), "{}", result["comparisons"]);
    for part in [
        format!("copies=kernel helps {CARD}: 1 of 1, default 0 of 1"),
        format!("default {CARD} hang in upload upload"),
        format!("copies=kernel {CARD} ok end"),
        format!("{CARD} [HSA_ENABLE_SDMA=0]: hang in phase upload"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(
        !text.contains("HSA_ENABLE_SDMA=0 helps") && !text.contains("HSA_OVERRIDE_GFX_VERSION=11.0.0 helps")
    );
    let last = stdout(&output).lines().last().unwrap().to_string();
    assert!(!last.contains(&format!("--backend {CARD}")), "an emulated card is not recommended: {last}");
    // The same table from the folder alone.
    let again = Command::new(example("compare")).arg("report").arg(dir.path()).output().unwrap();
    assert_eq!(flat(&again), text);

    // The kernels of the copies run; the launch after them never completes.
    let dir = tempfile::tempdir().unwrap();
    let faults = "stall@hipMemcpyAsync,stall@hipModuleLaunchKernel:60";
    let (output, result) = with_faults(dir.path(), faults, &["--variants", "copies=kernel"]);
    let text = flat(&output);
    let r = row(&result, "copies=kernel");
    assert_eq!((&r["status"], &r["phase"]), (&"hang".into(), &"first_compute".into()), "{r}");
    let part = format!("copies=kernel gets {CARD} past upload; the hang in first_compute remains");
    assert!(text.contains(&part), "{text}");
}

/// After a hang the screen has the command that looks for a cure. It continues the run: the plain runs are not repeated.
/// Where two things hang, the cure of the first is combined with others.
#[cfg(unix)]
#[test]
fn a_cure_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let faults = "stall@hipMemcpyAsync,hang@hipGraphLaunch";
    let (output, before) = with_faults(dir.path(), faults, &[]);
    let text = stdout(&output);
    let offer =
        text.lines().find_map(|line| line.strip_prefix("what may help is tried by: ")).expect("an offer");
    assert!(offer.ends_with(" --cure") && offer.contains(" --resume "), "{offer}");
    let output =
        Command::new("sh").args(["-c", offer]).env("DIPTYCH_VIRTUAL_FAULTS", faults).output().unwrap();
    let (text, result) = (flat(&output), result(dir.path()));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(row(&before, "")["pid"], row(&result, "")["pid"], "the plain run was repeated");
    for (variant, status) in [
        ("HSA_ENABLE_SDMA=0", "hang"),
        ("copies=kernel", "hang"),
        ("graphs=off", "hang"),
        ("null-stream", "hang"),
        ("copies=kernel+graphs=off", "ok"),
        ("copies=kernel+null-stream", "ok"),
    ] {
        assert_eq!(row(&result, variant)["status"], status, "{variant}: {text}");
    }
    for part in [
        format!("copies=kernel gets {CARD} past upload; the hang in compute remains"),
        format!("copies=kernel+graphs=off helps {CARD}: 1 of 1, default 0 of 1"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains("what may help is tried by"), "{text}");
}

/// Two copies of AMD's runtime in one run: each row has its own library in its own process.
#[cfg(unix)]
#[test]
fn two_libraries_in_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let [six, seven] = ["six", "seven"].map(|name| dir.path().join(name));
    for folder in [&six, &seven] {
        std::fs::create_dir(folder).unwrap();
    }
    let Some(six) = common::hip_library(&six, "", "0") else { return };
    let Some(seven) = common::hip_library(&seven, "exit(0)", "0") else { return };
    let rows = format!("bundled: library={}", seven.display());
    let args = [
        "--backends",
        "cpu,hip",
        "--predict",
        "1",
        "--hip-library",
        six.to_str().unwrap(),
        "--variants",
        &rows,
    ];
    let out = dir.path().join("out");
    let (output, result) = compare(&out, &args);
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let [plain, bundled] = ["", "bundled"].map(|variant| {
        let is = |r: &&Value| r["backend"] == "hip" && r["variant"].as_str().unwrap_or_default() == variant;
        result["records"].as_array().unwrap().iter().find(is).expect("a record").clone()
    });
    assert_eq!(
        (&plain["status"], &plain["library"]),
        (&"unsupported".into(), &six.to_str().into()),
        "{plain}"
    );
    assert_eq!(
        (&bundled["status"], &bundled["library"]),
        (&"crash".into(), &seven.to_str().into()),
        "{bundled}"
    );
    assert!(
        text.contains("default hip cannot run") && text.contains("bundled hip crash in load_runtime"),
        "{text}"
    );
    // A folder is not trusted with a library.
    let resume = |more: &[&str]| {
        let command = &mut Command::new(example("compare"));
        command.arg("--resume").arg(&out).args(more).output().unwrap()
    };
    let refused = resume(&["--hip-library", six.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the folder has 'bundled'"));
    let more = format!("{rows},old: HSA_ENABLE_SDMA=0");
    let resumed = resume(&["--hip-library", six.to_str().unwrap(), "--variants", &more]);
    let text = flat(&resumed);
    assert!(
        text.contains("old hip cannot run") && text.contains("bundled hip crash in load_runtime"),
        "{text}"
    );
    assert_eq!(common::result(&out)["records"].as_array().unwrap().len(), 1 + 1 + 1 + 1 + 1);
}

/// A variant stores the outputs of a graph only, the plain runs every node.
#[test]
fn a_variant_of_a_graph_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.json");
    let mut graph = Graph::new();
    let x = graph.leaf("x", DType::F32, [64, 4, 1, 1], Source::Input).unwrap();
    let square = graph.mul(x, x).unwrap();
    // No backend fuses these two.
    let norm = graph.rms_norm(square, 1e-5).unwrap();
    graph.output(norm).unwrap();
    let values: Vec<u8> = (0..256).flat_map(|i| (i as f32 / 7.0).to_le_bytes()).collect();
    GraphFile { graph, data: [(x, values)].into() }.save(&path).unwrap();
    let args = ["--graph", path.to_str().unwrap(), "--backends", CARD, "--variants", "graphs=off"];
    let every_node = ["--per-node", "isolated"];
    let (output, result) = compare(&dir.path().join("out"), &[&args[..], &every_node].concat());
    assert_eq!(output.status.code(), Some(0), "{}", flat(&output));
    assert_eq!(row(&result, "graphs=off")["status"], "ok");
    let compared = result["comparisons"].as_array().unwrap();
    let nodes = |variant: bool| {
        let own = compared.iter().find(|c| c["variant"].is_null() != variant).expect("a comparison");
        own["nodes"].as_array().unwrap().len()
    };
    assert!(nodes(true) == 1 && nodes(false) >= 2, "{compared:?}");
}

/// A variable for one backend leaves the others as they are.
#[test]
fn variables_of_one_backend() {
    let dir = tempfile::tempdir().unwrap();
    let fault = format!("{CARD}:DIPTYCH_VIRTUAL_FAULTS=fail=2@hipMalloc");
    let args =
        ["--predict", "1", "--reference", "cpu", "--backends", "hip-virtual:gfx900,hip-virtual:gfx906"];
    let (output, result) = compare(dir.path(), &[&args[..], &["--env", &fault]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", flat(&output));
    assert_eq!(record(&result, "hip-virtual:gfx900")["status"], "ok");
    let failed = record(&result, CARD);
    assert_eq!(failed["status"], "error", "{failed}");
    assert_eq!(failed["environment"], serde_json::json!([["DIPTYCH_VIRTUAL_FAULTS", "fail=2@hipMalloc"]]));
    // A folder is not trusted with a variable.
    let refused = Command::new(example("compare")).arg("--resume").arg(dir.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains(&format!("other than those of the folder ({fault})")), "{text}");
}

/// Wrong variants and variables are wrong use, and nothing runs.
#[test]
fn wrong_variants_run_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (option, value, words) in [
        ("--variants", "LD_PRELOAD=/tmp/evil.so", "loads no other code"),
        ("--variants", "copies=fast", "kernel or dma or auto"),
        ("--variants", "flash-attention=off", "attention is one operation"),
        ("--variants", "library=/nowhere/libamdhip64.so", "a library that exists"),
        ("--variants", "RADV_DEBUG=llvm", "changes none of the backends of this run (reference, cpu)"),
        ("--variants", "[gpu] graphs=off", "one of reference"),
        ("--env", "hip:LD_PRELOAD=/tmp/evil.so", "loads no other code"),
        ("--env", "hip:HSA_ENABLE_SDMA=0", "is for none of the backends of this run (reference, cpu)"),
    ] {
        let out = dir.path().join("out");
        let (output, _) = compare(&out, &["--backends", "cpu", option, value]);
        let text = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{value}: {text}");
        assert!(text.contains(words), "{value}: {text}");
        assert!(!out.exists(), "{value}: a folder was made");
    }
    let (output, _) = compare(&dir.path().join("out"), &["--ops", "RELU", "--backends", "cpu", "--cure"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A row that fails alone is a finding, and so is one whose value is refused: the others run all the same. The rows of an
/// earlier run in the folder are gone.
#[test]
fn a_row_that_breaks_a_backend() {
    let dir = tempfile::tempdir().unwrap();
    let rows =
        "hangs: DIPTYCH_VIRTUAL_FAULTS=hang@hipMalloc,refused: DIPTYCH_VIRTUAL_FAULTS=nonsense,copies=kernel";
    let args = ["--predict", "1", "--timeout-s", "5", "--reference", "cpu", "--backends", CARD];
    let (output, result) = compare(dir.path(), &[&args[..], &["--variants", rows]].concat());
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (variant, status) in [("", "ok"), ("hangs", "hang"), ("refused", "error"), ("copies=kernel", "ok")] {
        assert_eq!(row(&result, variant)["status"], status, "{variant}: {text}");
    }
    for part in [
        format!("hangs breaks {CARD}: the hang in allocate; 0 of 1, default 1 of 1"),
        format!("{CARD} [hangs]: hang in phase allocate"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let probed = std::fs::read_to_string(dir.path().join("probe.json")).unwrap();
    let probed: Value = serde_json::from_str(&probed).unwrap();
    assert!(probed["devices"].is_array() && probed["root"] == "/", "{probed}");
    std::fs::write(dir.path().join("probe.json"), "old").unwrap();
    assert!(dir.path().join("variants").exists());
    let (output, result) = compare(dir.path(), &["--predict", "1", "--backends", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", flat(&output));
    assert!(!dir.path().join("variants").exists(), "the rows of the earlier run");
    assert_ne!(std::fs::read_to_string(dir.path().join("probe.json")).unwrap(), "old");
    // What is written about the machine is from files: a library that no backend of the run needs is not loaded.
    let marker = dir.path().join("loaded");
    let load = format!("system(\"touch {}\")", marker.display());
    if let Some(library) = common::hip_library(dir.path(), &load, "0") {
        let library = ["--hip-library", library.to_str().unwrap()];
        let args = [&["--predict", "1", "--backends", "cpu"], &library[..]].concat();
        assert_eq!(compare(&dir.path().join("other"), &args).0.status.code(), Some(0));
        assert!(dir.path().join("other/probe.json").exists() && !marker.exists());
    }
    // The model's identity, for reports over several runs.
    let settings = &result["settings"];
    let value = |name: &str| {
        let pair = settings.as_array().unwrap().iter().find(|pair| pair[0] == name);
        pair.unwrap_or_else(|| panic!("no {name}: {settings}"))[1].as_str().unwrap().to_string()
    };
    assert!(value("types").contains(" %") && value("bytes").parse::<u64>().unwrap() > 1000, "{settings}");
    assert!(!value("architecture").is_empty() && value("model").len() == 16, "{settings}");
}
