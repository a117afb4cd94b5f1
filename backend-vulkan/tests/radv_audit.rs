//! Compiles every pipeline with RADV's compiler, for GPUs that need not be present.
//!
//! The tables are used to judge changes of kernels; spilled registers and scratch memory are failures.

use crate::radv;

use backend_vulkan::audit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// GPU families of each class: GCN without and with 4x8-bit dot products, RDNA1 to RDNA4, the APU, CDNA.
const FAMILIES: [&str; 9] =
    ["polaris10", "vega10", "vega20", "navi10", "navi21", "navi31", "gfx1151", "gfx1201", "mi100"];

const CHILD: &str = "DIPTYCH_AUDIT_CHILD";

/// Runs in a child process only.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let audit = audit::compile_all(radv::options(), radv::known()).expect("RADV opens a null device");
    println!("{}", audit.table());
    let bad: Vec<String> =
        audit.rows.iter().filter(|r| r.spills() > 0.0).map(|r| r.pipeline.to_string()).collect();
    assert!(audit.failures.is_empty(), "{:?}", audit.failures);
    assert!(!audit.rows.is_empty(), "no pipeline is listed");
    assert!(audit.rows.iter().all(|r| r.statistic("VGPRs").is_some()), "RADV reports registers");
    assert!(bad.is_empty(), "registers spill: {bad:#?}");
}

#[test]
fn no_pipeline_spills_on_any_family() {
    let Some(manifest) = radv::manifest() else { return };
    // Families in parallel: each child compiles on one thread.
    let (next, outputs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(family) = FAMILIES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let output = radv::child(&manifest, family, "radv_audit::child", (CHILD, "1"));
            outputs.lock().expect("no thread panics").push((*family, output));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| {
            scope.spawn(work);
        });
    });
    let mut failed = Vec::new();
    for (family, output) in outputs.into_inner().expect("no thread panics") {
        let text = String::from_utf8_lossy(&output.stdout);
        println!("== {family}\n{text}");
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{family}: {}\n{error}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
