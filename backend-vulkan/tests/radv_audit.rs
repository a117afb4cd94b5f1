//! Compiles every pipeline with RADV's compiler, for GPUs that need not be present.
//!
//! The tables are used to judge changes of kernels; spilled registers and scratch memory are failures.
//!
//! `radv/clean.tsv` records the modules none of whose pipelines spills with one version of Mesa, each with a hash of its
//! SPIR-V and its pipelines, and the families. With that version they are not compiled again, but for a sample of one
//! in 32. `DIPTYCH_AUDIT=new` compiles everything, `DIPTYCH_WRITE_AUDIT=1` what is not in the user's cache, and rewrites
//! the record.

use crate::radv;

use backend_vulkan::audit;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// GPU families of each class: GCN without and with 4x8-bit dot products, RDNA1 to RDNA4, the APU, CDNA.
const FAMILIES: [&str; 9] =
    ["polaris10", "vega10", "vega20", "navi10", "navi21", "navi31", "gfx1151", "gfx1201", "mi100"];

/// Names the family, in a child process.
const CHILD: &str = "DIPTYCH_AUDIT_CHILD";

const WRITE: &str = "DIPTYCH_WRITE_AUDIT";

/// The record: the version of Mesa, then a line of module, hash and families for each module.
const RECORD: &str = include_str!("radv/clean.tsv");

/// One of this many recorded modules is compiled all the same.
const SAMPLE: u64 = 32;

/// Returns the upstream version of Mesa in a driver's description: "25.0.7" of "radv Mesa 25.0.7-2~bpo12+1".
fn version(driver: &str) -> &str {
    let rest = driver.split_once("Mesa ").map_or("", |(_, rest)| rest);
    rest.split(['-', ' ', '+', '~']).next().unwrap_or_default()
}

/// Returns the hashes of the recorded modules of a family, if the record is of this driver's version.
fn recorded(driver: &str, family: &str) -> HashSet<u64> {
    let (made_by, lines) = RECORD.split_once('\n').unwrap_or_default();
    let line = |line: &str| {
        let [_, hash, families] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        families.split(',').any(|name| name == family).then(|| u64::from_str_radix(hash, 16).ok())?
    };
    let all = lines.lines().filter_map(line);
    if made_by == format!("Mesa {}", version(driver)) { all.collect() } else { HashSet::new() }
}

/// Runs in a child process only.
#[test]
fn child() {
    let Ok(family) = std::env::var(CHILD) else { return };
    let (driver, modules) = audit::list(radv::options()).expect("RADV opens a null device");
    let everything = ["DIPTYCH_AUDIT", WRITE].iter().any(|name| std::env::var_os(name).is_some());
    let recorded = if everything { HashSet::new() } else { recorded(&driver, &family) };
    let compiles = |digest: u64| !recorded.contains(&digest) || digest % SAMPLE == 0;
    let chosen = modules.iter().filter(|m| compiles(m.digest)).map(|m| m.module);
    let chosen: HashSet<(&str, &str)> = chosen.collect();
    println!("\n{} of {} modules are compiled", chosen.len(), modules.len());
    let audit = audit::compile(radv::options(), radv::known(), move |pipeline| {
        chosen.contains(&(pipeline.shader, pipeline.variant))
    });
    let audit = audit.expect("RADV opens a null device");
    println!("{}", audit.table());
    let bad: Vec<String> =
        audit.rows.iter().filter(|r| r.spills() > 0.0).map(|r| r.pipeline.to_string()).collect();
    assert!(audit.failures.is_empty(), "{:?}", audit.failures);
    assert!(!audit.rows.is_empty(), "no pipeline is listed");
    assert!(audit.rows.iter().all(|r| r.statistic("VGPRs").is_some()), "RADV reports registers");
    assert!(bad.is_empty(), "registers spill: {bad:#?}");
    if everything {
        println!("driver\t{driver}");
        modules.iter().for_each(|m| println!("clean\t{}.{}\t{:016x}", m.module.0, m.module.1, m.digest));
    }
}

/// Runs the child for every family, families in parallel: each compiles on one thread. Returns the families with their
/// outputs.
fn run_all(manifest: &Path) -> Vec<(&'static str, std::process::Output)> {
    let (next, outputs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(family) = FAMILIES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let output = radv::child(manifest, family, "radv_audit::child", (CHILD, family));
            outputs.lock().expect("no thread panics").push((*family, output));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| {
            scope.spawn(work);
        });
    });
    outputs.into_inner().expect("no thread panics")
}

#[test]
fn no_pipeline_spills_on_any_family() {
    let Some(manifest) = radv::manifest() else { return };
    let mut failed = Vec::new();
    let mut record: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    let mut made_by = String::new();
    for (family, output) in run_all(&manifest) {
        let text = String::from_utf8_lossy(&output.stdout);
        println!("== {family}\n{text}");
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{family}: {}\n{error}", output.status));
            continue;
        }
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["driver", driver] => made_by = format!("Mesa {}\n", version(driver)),
                ["clean", module, digest] => {
                    record.entry((module.into(), digest.into())).or_default().push(family);
                }
                _ => {}
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    if std::env::var_os(WRITE).is_some() {
        let line = |((module, digest), mut families): ((String, String), Vec<&str>)| {
            families.sort_by_key(|name| FAMILIES.iter().position(|family| family == name));
            format!("{module}\t{digest}\t{}\n", families.join(","))
        };
        let lines: String = record.into_iter().map(line).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/radv/clean.tsv");
        std::fs::write(path, made_by + &lines).expect("the record is written");
    }
}

/// A record holds for its version of Mesa, its families and unchanged modules only.
#[test]
fn the_record_is_of_one_version() {
    assert_eq!(version("radv Mesa 25.0.7-2~bpo12+1"), "25.0.7");
    assert_eq!(version("llvmpipe"), "");
    let made_by = RECORD.lines().next().expect("a version");
    let all = recorded(made_by, "vega20");
    assert!(all.len() > 100, "{} modules of vega20", all.len());
    assert_ne!(all, recorded(made_by, "navi31"));
    assert!(recorded("Mesa 25.0.6", "vega20").is_empty());
    assert!(recorded(made_by, "vega21").is_empty());
    let (driver, module) = (made_by.to_owned(), RECORD.lines().nth(1).expect("a module"));
    assert_eq!(module.split('\t').count(), 3, "{driver}: {module}");
}
