//! What was built in: every launch of every operation's cases against the code objects of every target.

use crate::arch::{Profile, Target};
use crate::kernels::{Embedded, KernelSet, Kernels};
use crate::op::{Context, Refusal};
use ggml_core::catalogue::cases;
use ggml_core::plan::{Plan, Precision};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Kernels exist, take the arguments that are passed, and their work-groups and LDS fit; on every target, for every
/// case, under both precisions. No device is needed for that.
#[test]
fn launches_fit_the_code_objects() {
    let targets = Embedded.targets();
    if targets.is_empty() {
        eprintln!("skipped: no code object was built in");
        return;
    }
    let (mut wrong, mut launches, mut kernels_used) = (BTreeSet::new(), 0, BTreeSet::new());
    for name in targets {
        let target = Target::parse(name).unwrap();
        let profile = Profile::of(&target).unwrap_or_else(|| panic!("{name} is of no known family"));
        let kernels = Kernels::new(Arc::new(Embedded), &target);
        assert_eq!(kernels.target(), Some(name));
        for case in cases() {
            let graph = case.graph.clone().unwrap();
            for precision in [Precision::Exact, Precision::Fast] {
                for node in Plan::new(&graph, 256, precision).unwrap().steps {
                    match kernels.plan(&Context { graph: &graph, node, profile: &profile, precision }) {
                        Ok(planned) => {
                            launches += planned.len();
                            kernels_used.extend(planned.iter().map(|(l, _)| (l.module, l.kernel)));
                        }
                        Err(Refusal(why)) => _ = wrong.insert(format!("{name} {}: {why}", case.name)),
                    }
                }
            }
        }
    }
    eprintln!("{launches} launches of {} kernels", kernels_used.len());
    let some: Vec<&String> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} refusals, among them {some:#?}", wrong.len());
}
