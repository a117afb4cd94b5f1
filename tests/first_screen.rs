//! The first screen of `compare` for the incidents that users reported: 40 lines of 100 columns hold the cause, the place
//! and the cure. `probe` on recorded machines is tested in `src/probe/tests.rs`, `generate` and `bench` in `evidence.rs`.

use crate::common;

use common::{example, hip_library, stdout};
use std::path::Path;
use std::process::Command;

/// Runs `compare` on a terminal of 100 columns, and returns its screen.
fn screen(out: &Path, args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = Command::new(example("compare"))
        .args(["--predict", "3", "--timeout-s", "2", "--out"])
        .arg(out)
        .args(args)
        .env("COLUMNS", "100")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 40, "{} lines: {text}", lines.len());
    // The last line is a sentence to copy.
    let is_command = |line: &str| line.contains("what may help is tried by: ") || line.contains("next: ");
    let is_wide = |line: &&&str| line.chars().count() > 100 && line.trim().contains(' ') && !is_command(line);
    let wide = lines.iter().rev().skip(1).find(is_wide);
    assert!(wide.is_none(), "{wide:?}: {text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn says(screen: &str, parts: &[&str]) {
    for part in parts {
        assert!(screen.contains(part), "no '{part}' on the screen: {screen}");
    }
}

/// MI50: the runtime's library kills the process that discovers devices.
#[cfg(unix)]
#[test]
fn discovery_dies() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "*(volatile int *)16") else { return };
    let library = library.to_str().unwrap();
    let out = dir.path().join("out");
    let text = screen(&out, &["--backends", "reference,cpu,hip", "--hip-library", library], &[]);
    says(
        &text,
        &[
            "hip: crash in phase enumerate after the call of hipInit (",
            "libamdhip64.so.6): died of SIGSEGV",
            "cure: DIPTYCH_HIP_LIBRARY=PATH loads another copy of libamdhip64; probe lists the copies",
            "next: probe",
            "verdict: a backend failed",
            "hip crashed after the call of hipInit; cpu agrees with reference: use --backend cpu",
        ],
    );
    #[cfg(all(
        target_os = "linux",
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))]
    says(&text, &["died of SIGSEGV at 0x10 in libamdhip64.so.6+0x"]);
}

/// Vega 56: everything on the processor works, and a card that computes any layer dies in its first steps.
#[test]
fn a_sweep_over_offload() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--backends", "reference,cpu,null=crash@compute", "--offload", "0,1,-1", "--epochs", "3"];
    let text = screen(dir.path(), &[&args[..], &["--per-node", "off"]].concat(), &[]);
    says(
        &text,
        &[
            "null=crash@compute offload 1: crash in phase compute in decode step 2: died of SIGSEGV",
            "(3 times)",
            "null=crash@compute works at offload 0, dies from 1 on: 6 of 6 runs, ",
            "after the start, in phase compute; cpu agrees with reference: use --backend cpu",
        ],
    );
}

/// Strix Halo: uploads hang in the copy engines, or else the first graph does.
#[test]
fn uploads_hang_and_the_first_graph() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--backends", "reference,cpu,hip-virtual:gfx906"];
    let fault = ("DIPTYCH_VIRTUAL_FAULTS", "stall@hipMemcpyAsync");
    says(
        &screen(&dir.path().join("upload"), &args, &[fault]),
        &[
            "cure: DIPTYCH_HIP_COPIES=kernel: a kernel copies, not the DMA engines",
            "hip-virtual:gfx906: hang in phase upload waiting for hipMemcpyAsync",
            "next: DIPTYCH_HIP_COPIES=kernel compare --backends hip-virtual:gfx906 --reference reference",
            "what may help is tried by: ",
            "hip-virtual:gfx906 hung waiting for hipMemcpyAsync; cpu agrees with reference: use --backend cpu",
            "nodes: all within their bounds",
        ],
    );
    let fault = ("DIPTYCH_VIRTUAL_FAULTS", "stall@hipModuleLaunchKernel");
    says(
        &screen(&dir.path().join("compute"), &args, &[fault]),
        &[
            "cure: DIPTYCH_HIP_GRAPHS=off and DIPTYCH_HIP_STREAM=null start kernels in other ways",
            "hip-virtual:gfx906: hang in phase first_compute at node ",
            " waiting for hipModuleLaunchKernel: ",
        ],
    );
}

/// RX 7900 XT: an allocation never returns.
#[test]
fn an_allocation_never_returns() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--backends", "reference,cpu,hip-virtual:gfx906"];
    says(
        &screen(dir.path(), &args, &[("DIPTYCH_VIRTUAL_FAULTS", "hang@hipMalloc")]),
        &[
            "hip-virtual:gfx906: hang in phase allocate after the call of hipMalloc",
            "next: probe",
            "hip-virtual:gfx906 hung after the call of hipMalloc; cpu agrees with reference: use --backend cpu",
        ],
    );
}

/// Two releases of ROCm: the library's file name and its version are not of one release.
#[cfg(unix)]
#[test]
fn the_wrong_library() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "0") else { return };
    let seven = dir.path().join("libamdhip64.so.7");
    std::fs::rename(library, &seven).unwrap();
    let seven = seven.to_str().unwrap();
    let out = dir.path().join("out");
    let text = screen(&out, &["--backends", "reference,cpu,hip", "--hip-library", seven], &[]);
    says(
        &text,
        &[
            "hip cannot run here: hip:0: not available (no device): wrong library: its file name is that of HIP 7, but \
             it reports HIP 6: files of two releases of ROCm are mixed",
            "verdict: a backend cannot run here",
            "select the right one with DIPTYCH_HIP_LIBRARY",
            "hip cannot run here; cpu agrees with reference: use --backend cpu",
        ],
    );
}

/// Lines are as long as the terminal is wide.
#[test]
fn the_width_is_that_of_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--backends", "cpu,null=crash@first_compute", "--predict", "1"];
    assert_eq!(common::compare(dir.path(), &args).0.status.code(), Some(1));
    let longest = |columns: &str| {
        let mut command = Command::new(example("compare"));
        let output = command.arg("report").arg(dir.path()).env("COLUMNS", columns).output().unwrap();
        let text = stdout(&output);
        let lines = text.lines().rev().skip(1).filter(|line| line.trim().contains(' '));
        lines.map(|line| line.chars().count()).max().unwrap()
    };
    assert!(longest("70") <= 70, "{}", longest("70"));
    assert!((71..=100).contains(&longest("100")) && longest("200") > 100, "{}", longest("200"));
}
