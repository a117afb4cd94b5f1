//! AMD's own runtime on the emulated card (backend `hip-kfd`): the same bits as our emulated driver, for each user space
//! that is there.
//! `DIPTYCH_TEST_ROCM=all` runs every combination of settings instead of two.

use crate::common;
use crate::common::rocm::{preload, roots};
use std::process::{Command, Output};

/// Settings of one run.
#[derive(Clone, Copy, Debug)]
struct Settings {
    target: &'static str,
    copy_engines: bool,
    large_bar: bool,
    graphs: bool,
}

/// Returns all combinations and the newer processors that a release knows, or two combinations that differ in everything.
fn settings(release: &str) -> Vec<Settings> {
    let all = (0..16).map(|n| Settings {
        target: if n & 1 == 0 { "gfx906" } else { "gfx900" },
        copy_engines: n & 2 == 0,
        large_bar: n & 4 != 0,
        graphs: n & 8 != 0,
    });
    let is_all = std::env::var_os("DIPTYCH_TEST_ROCM").is_some_and(|value| value == "all");
    let newer: &[&'static str] = match release {
        _ if !is_all => &[],
        "5.2.3" => &["gfx90a"],
        "5.7.1" => &["gfx90a", "gfx942", "gfx1100"],
        _ => &["gfx90a", "gfx942", "gfx1100", "gfx1151"],
    };
    let newer =
        newer.iter().map(|target| Settings { target, copy_engines: true, large_bar: false, graphs: true });
    all.enumerate()
        .filter(|(n, _)| is_all || [8, 7].contains(n))
        .map(|(_, settings)| settings)
        .chain(newer)
        .collect()
}

#[test]
fn logits_have_the_bits_of_the_emulated_driver() {
    for root in roots() {
        for of in settings(&root.version) {
            let dir = tempfile::tempdir().unwrap();
            let text = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
            let (driver, runtime) = (format!("hip-virtual:{}", of.target), format!("hip-kfd:{}", of.target));
            let output = root
                .command("compare")
                .args(["--reference", &driver, "--backends", &runtime, "--predict", "2", "--per-node", "off"])
                .arg("--out")
                .arg(dir.path())
                .env("HSA_ENABLE_SDMA", text(of.copy_engines, "1", "0"))
                .env("VIRTUAL_KFD_LARGE_BAR", text(of.large_bar, "1", "0"))
                .env("DIPTYCH_HIP_GRAPHS", text(of.graphs, "on", "off"))
                .output()
                .unwrap();
            let place = format!("{} {of:?}: {}", root.version, said(&output));
            assert!(output.status.success(), "{place}");
            let logits = |name: &str| {
                let file = format!("{}.logits.npy", name.replace(':', "-"));
                std::fs::read(dir.path().join(file)).unwrap()
            };
            assert!(logits(&driver) == logits(&runtime), "{place}");
            let report = common::result(dir.path()).to_string();
            assert!(report.contains(" (virtual)"), "{report}: it could be taken for a card");
        }
    }
}

/// A part of the catalogue, with products of several types, agrees with the reference.
#[test]
fn operations_agree_with_the_reference() {
    for root in roots() {
        let dir = tempfile::tempdir().unwrap();
        let output = root
            .command("compare")
            .args(["--ops", "RMS_NORM,SOFT_MAX,GET_ROWS,MUL_MAT_ID", "--backends", "hip-kfd"])
            .arg("--out")
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", root.version, said(&output));
    }
}

/// `probe` finds the runtime and the card, and the smoke test succeeds.
#[test]
fn probe_tells_the_truth() {
    for root in roots() {
        let mut probe = root.command("probe");
        let output = probe.env("VIRTUAL_KFD_LIBRARY", preload()).env("COLUMNS", "200").output().unwrap();
        // Lines are wrapped.
        let said = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "AMD Instinct MI50 (virtual) (gfx906, 1002:66a1, 0000:03:00)",
            "VRAM 16.0 GiB",
            "KFD, a part of amdgpu, lists it as node 1",
            "every phase succeeded and the results agree with the reference",
            "hip works: use --backend hip:0",
        ] {
            assert!(said.contains(words), "{}: no {words:?} in {said}", root.version);
        }
    }
}

/// A plain comparison includes the backend where a libamdhip64 is there. `hip` in a process with the library computes on the
/// same card, and is recommended no more than it.
#[test]
fn an_emulated_card_is_no_card() {
    for root in roots() {
        let dir = tempfile::tempdir().unwrap();
        let mut compare = root.command("compare");
        let output = compare.args(["--ops", "RELU", "--out"]).arg(dir.path()).output().unwrap();
        assert!(output.status.success(), "{}: {}", root.version, said(&output));
        let report = common::result(dir.path());
        let of = |name: &str| report["records"].as_array().unwrap().iter().any(|r| r["backend"] == name);
        assert!(of("hip-kfd:gfx906") && of("hip-virtual:gfx906"), "{}: {}", root.version, said(&output));

        let mut compare = root.command("compare");
        compare.args(["--backends", "cpu,hip", "--reference", "cpu", "--predict", "1", "--per-node", "off"]);
        compare.arg("--out").arg(dir.path().join("hip")).env("VIRTUAL_KFD_LIBRARY", preload());
        let output = compare.env("COLUMNS", "240").output().unwrap();
        let said = said(&output);
        assert!(
            said.contains("hip is emulated") && !said.contains("use --backend hip"),
            "{}: {said}",
            root.version
        );
    }
}

/// Without the library, the backend says what is missing.
#[test]
fn a_process_without_the_library_says_so() {
    let output = Command::new(common::example("bench"))
        .args(["--backend", "hip-kfd", "--model", "none.gguf"])
        .env("DIPTYCH_VIRTUAL_KFD", preload())
        .output()
        .unwrap();
    let said = said(&output);
    assert!(said.contains("was not started with LD_PRELOAD=") && !output.status.success(), "{said}");
    let output = Command::new(common::example("bench"))
        .args(["--backend", "hip-kfd", "--model", "none.gguf"])
        .env("DIPTYCH_VIRTUAL_KFD", "/nowhere.so")
        .output()
        .unwrap();
    assert!(
        self::said(&output).contains("cargo build --release -p virtual-kfd-preload"),
        "{}",
        self::said(&output)
    );
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
