//! Checks that a driver which reports subgroups but computes them wrongly is not trusted.
//!
//! Lavapipe can be made to run with any vector width. At 64 lanes it reports a subgroup size of 64 and
//! computes different sums. The lane probe has to detect that, and the kernels that reduce through
//! workgroup-shared memory have to be correct nevertheless. Each width runs in a separate process, because
//! the driver reads the variable once.

use crate::common;

use backend_vulkan::{DeviceKind, VulkanOptions, enumerate};
use common::{open, options, user_cache};
use ggml_core::backend::Backend;
use ggml_core::catalogue;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::process::Command;

const CHILD: &str = "DIPTYCH_LANES_CHILD";

/// Cases of families that reduce over subgroups where allowed.
const REDUCING: [&str; 4] = ["RMS_NORM(", "SOFT_MAX(", "MUL_MAT(Q8_0, k=32", "MUL_MAT(F32, k=255"];

fn feature(backend: &dyn Backend, name: &str) -> String {
    let features = &backend.device().features;
    features.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default()
}

/// Returns the index of the CPU among the devices, if there is one.
fn processor() -> Option<usize> {
    let all = enumerate(&options()).unwrap_or_default();
    all.iter().find(|d| d.kind == DeviceKind::Cpu).map(|d| d.index)
}

/// Runs in a child process only: prints the findings, and fails if a result is wrong.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let backend =
        open(VulkanOptions { device: processor(), ..options() }).expect("the parent has seen a processor");
    let reference = ReferenceBackend::default();
    println!("class: {}", backend.device().arch);
    println!("probe: {}", feature(&backend, "lane_probe"));
    println!("size: {}", feature(&backend, "subgroup_size"));
    println!("ops: {}", feature(&backend, "subgroup_ops"));
    let overrides = &backend.device().overrides;
    assert!(overrides.iter().any(|(name, _)| name == "LP_NATIVE_VECTOR_WIDTH"), "{overrides:?}");
    let cases = catalogue::cases();
    let some = cases.iter().filter(|c| REDUCING.iter().any(|prefix| c.name.starts_with(prefix)));
    for case in some {
        let d = catalogue::compare(case, &backend, &reference, Precision::Exact).expect(&case.name);
        let d = d.unwrap_or_else(|reason| panic!("{}: {reason}", case.name));
        assert!(catalogue::bound(case, Precision::Exact).holds(&d), "{}: {d:?}", case.name);
    }
}

#[test]
fn subgroups_are_used_only_where_the_probe_agrees() {
    if processor().is_none() {
        eprintln!("skipped: no Vulkan driver for the processor");
        return;
    }
    for (width, class) in [("128", "CPU"), ("256", "CPU"), ("2048", "CPU"), ("2048", "AMD_GCN")] {
        let mut child = Command::new(std::env::current_exe().expect("a test has a path"));
        child.args(["--exact", "lanes::child", "--nocapture", "--test-threads=1"]);
        child.env(CHILD, "1").env("LP_NATIVE_VECTOR_WIDTH", width).env("DIPTYCH_VULKAN_ARCH", class);
        // The driver's cache on disk does not distinguish widths, so each width has its own.
        match user_cache("lanes").map(|folder| folder.join(width)) {
            Some(folder) if std::fs::create_dir_all(&folder).is_ok() => {
                child.env_remove("MESA_SHADER_CACHE_DISABLE").env("MESA_SHADER_CACHE_DIR", folder)
            }
            _ => child.env("MESA_SHADER_CACHE_DISABLE", "true"),
        };
        let output = child.output().expect("the test can start itself");
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("== {width} bits as {class}\n{out}");
        assert!(out.contains(&format!("class: {class}")), "{out}");
        assert!(output.status.success(), "{width} bits: {}\n{out}\n{error}", output.status);
        if width == "2048" {
            assert!(out.contains("size: 64") && out.contains("probe: disagrees"), "{out}");
            assert!(!out.contains("ops: arithmetic"), "{out}");
        } else {
            assert!(
                out.contains("probe: agrees") && out.contains("ops: arithmetic, shuffle, ballot"),
                "{out}"
            );
        }
    }
}
