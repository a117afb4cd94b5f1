//! The outcome of a comparison in one sentence, with a recommendation. It needs no knowledge of drivers.

use super::report::{Record, Report, Status};
use crate::backends::BackendName;

/// Returns the recommendation after a comparison.
pub(super) fn advice(report: &Report) -> String {
    let good = good(report);
    let trouble = trouble(report);
    let use_it = |name: &String| format!("use --backend {name}");
    // Of several equally fast kinds, the first that was requested.
    let best = good.iter().min_by_key(|name| kind(report, name));
    let others = match good.as_slice() {
        [] => None,
        [one] => Some(format!("{one} agrees with {}", report.reference)),
        [all @ .., last] => Some(format!("{} and {last} agree", all.join(", "))),
    };
    match (trouble, others.zip(best)) {
        (Some(trouble), Some((others, best))) => format!("{trouble}; {others}: {}", use_it(best)),
        (Some(trouble), None) => {
            format!("{trouble}; no other backend agrees with {}", report.reference)
        }
        (None, Some((others, best))) => format!("{others}: {}", use_it(best)),
        (None, None) => "nothing was compared: name a backend that can run here".into(),
    }
}

/// Kinds of backends, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Device,
    Host,
    /// A device that the processor stands in for, slower than the processor's own backend.
    Software,
}

/// Names of Vulkan devices that are programs on the processor (Mesa's llvmpipe, Google's SwiftShader).
const SOFTWARE: [&str; 2] = ["llvmpipe", "SwiftShader"];

fn kind(report: &Report, name: &str) -> Kind {
    let device = report.backends.iter().find(|backend| backend.name == name).map_or("", |b| &b.device);
    match name.parse() {
        Ok(BackendName::Reference | BackendName::Cpu) => Kind::Host,
        Ok(name) if name.is_emulated() => Kind::Software,
        _ if SOFTWARE.iter().any(|software| device.contains(software)) => Kind::Software,
        _ => Kind::Device,
    }
}

/// Returns the backends of which every run succeeded and agrees, without the reference.
fn good(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for c in &report.comparisons {
        if !names.contains(&c.lhs) {
            names.push(c.lhs.clone());
        }
    }
    let agrees =
        |name: &String| {
            report.comparisons.iter().filter(|c| c.lhs == *name).all(|c| c.disagreement.is_none())
                && report.records.iter().filter(|r| r.backend == *name).all(|r| {
                    r.status == Status::Ok && r.unstable == 0 && !r.variants.iter().any(|v| v.changed)
                })
        };
    names.retain(agrees);
    names
}

/// Describes the first problem.
fn trouble(report: &Report) -> Option<String> {
    let died = |r: &&Record| matches!(r.status, Status::Crash | Status::Hang | Status::Ended | Status::Error);
    if let Some(r) = report.records.iter().find(died) {
        let verb = match r.status {
            Status::Hang => "hung",
            Status::Crash => "crashed",
            Status::Ended => "was ended from outside",
            _ => "failed",
        };
        // The call may have returned: our own code that followed it may have failed.
        let location = match (&r.last_call, &r.phase) {
            (Some(call), _) if r.status != Status::Error => format!(" after the call of {call}"),
            (_, Some(phase)) => format!(" in phase {phase}"),
            _ => String::new(),
        };
        let node = r.node.as_ref().map_or(String::new(), |node| format!(" at node '{node}'"));
        return Some(format!("{} {verb}{location}{node}", r.label()));
    }
    if let Some(r) = report.records.iter().find(|r| r.invalid_logits > 0) {
        return Some(format!("{} computes logits that are NaN or infinite", r.label()));
    }
    if let Some(c) = report.comparisons.iter().find(|c| c.disagreement.is_some()) {
        let node = c.first_divergence.as_ref().map_or(String::new(), |d| format!(" at '{}'", d.node));
        // Cases without a result that can be judged.
        let is_open = c.logits.is_none() && !c.nodes.is_empty() && c.first_divergence.is_none();
        return Some(match is_open {
            true => format!("{} was not compared with {} in full", c.lhs, c.rhs),
            false => format!("{} diverges from {}{node}", c.lhs, c.rhs),
        });
    }
    if let Some(r) = report.records.iter().find(|r| r.unstable > 0) {
        return Some(format!("{} gives different results when repeated", r.label()));
    }
    let absent = |r: &&Record| report.require_all && r.status == Status::Unsupported;
    if let Some(r) = report.records.iter().find(absent) {
        return Some(format!("{} cannot run here", r.label()));
    }
    (report.missing > 0).then(|| "the run was not finished (--resume continues it)".into())
}

#[cfg(test)]
mod tests {
    use super::super::CompareOptions;
    use super::super::report::{BackendReport, Comparison};
    use super::*;

    fn report(agreeing: &[&str], mut others: Vec<Record>) -> Report {
        let mut report = Report::new(&CompareOptions::default());
        let ok = |name: &str| Record {
            backend: name.into(),
            offload: -1,
            status: Status::Ok,
            ..Record::default()
        };
        report.records = agreeing.iter().map(|name| ok(name)).collect();
        report.records.append(&mut others);
        let comparison = |name: &&str| Comparison {
            lhs: (*name).into(),
            rhs: "reference".into(),
            ..Comparison::default()
        };
        report.comparisons = agreeing.iter().map(comparison).collect();
        report
    }

    #[test]
    fn one_sentence_says_what_to_do() {
        let hung = Record {
            backend: "hip".into(),
            offload: -1,
            status: Status::Hang,
            phase: Some("compute".into()),
            last_call: Some("hipModuleLaunchKernel".into()),
            node: Some("embedding".into()),
            ..Record::default()
        };
        assert_eq!(
            advice(&report(&["cpu", "vulkan"], vec![hung.clone()])),
            "hip hung after the call of hipModuleLaunchKernel at node 'embedding'; cpu and vulkan agree: use --backend vulkan"
        );
        assert_eq!(
            advice(&report(&[], vec![hung])),
            "hip hung after the call of hipModuleLaunchKernel at node 'embedding'; no other backend agrees with reference"
        );
        assert_eq!(advice(&report(&["cpu"], vec![])), "cpu agrees with reference: use --backend cpu");
        let mut differs = report(&["cpu", "vulkan"], vec![]);
        differs.comparisons[1].disagreement = Some("it does".into());
        assert_eq!(
            advice(&differs),
            "vulkan diverges from reference; cpu agrees with reference: use --backend cpu"
        );
        let absent =
            Record { backend: "hip".into(), offload: -1, status: Status::Unsupported, ..Record::default() };
        let mut named = report(&["cpu"], vec![absent]);
        assert_eq!(advice(&named), "cpu agrees with reference: use --backend cpu");
        // A processor does better what it stands in for.
        let mut software = report(&["vulkan", "vulkan-virtual", "cpu"], vec![]);
        let best = "vulkan, vulkan-virtual and cpu agree: use --backend ";
        assert_eq!(advice(&software), format!("{best}vulkan"));
        let device = |device: &str| BackendReport {
            name: "vulkan".into(),
            device: device.into(),
            ..BackendReport::default()
        };
        software.backends = vec![device("llvmpipe (LLVM 19.1.7, 256 bits)")];
        assert_eq!(advice(&software), format!("{best}cpu"));
        named.require_all = true;
        assert_eq!(advice(&named), "hip cannot run here; cpu agrees with reference: use --backend cpu");
    }
}
