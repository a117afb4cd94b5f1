//! The outcome of a comparison in one sentence, with a recommendation. It needs no knowledge of drivers.

mod choice;
mod sweep;

use super::report::{Record, Report, Status};
pub(super) use choice::{exclusion, recommended};
pub(super) use sweep::patterns;

/// Returns the recommendation after a comparison.
pub(super) fn advice(report: &Report) -> String {
    let good = choice::agreeing(report);
    let agree = match good.as_slice() {
        [] => None,
        [one] => Some(format!("{one} agrees with {}", report.reference)),
        [all @ .., last] => Some(format!("{} and {last} agree", all.join(", "))),
    };
    let trouble = trouble(report);
    if trouble.is_none() && agree.is_none() {
        return "nothing was compared: name a backend that can run here".into();
    }
    let none = || trouble.as_ref().map(|_| format!("no other backend agrees with {}", report.reference));
    let outcome: Vec<String> = trouble.clone().into_iter().chain(agree.or_else(none)).collect();
    let outcome = outcome.join("; ");
    match recommended(report) {
        Some(recommended) => format!("{outcome}: {recommended}"),
        None => outcome,
    }
}

/// Describes the first problem.
fn trouble(report: &Report) -> Option<String> {
    let failed =
        |r: &&Record| matches!(r.status, Status::Crash | Status::Hang | Status::Ended | Status::Error);
    if let Some(r) = report.records.iter().find(failed) {
        if let Some(sentence) = sweep::of_record(report, r) {
            return Some(sentence);
        }
        let verb = match r.status {
            Status::Hang => "hung",
            Status::Crash => "crashed",
            Status::Ended => "was ended from outside",
            _ => "failed",
        };
        // The call may have returned: our own code that followed it may have failed.
        let location = match (&r.last_call, &r.phase) {
            (Some(_), _) if r.status != Status::Error && r.waits_for.is_some() => {
                r.waits_for.iter().map(|call| format!(" waiting for {call}")).collect()
            }
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
    use super::super::report::{BackendReport, Comparison, Host, Run};
    use super::*;

    fn ok(name: &str) -> Record {
        Record { backend: name.into(), offload: -1, status: Status::Ok, ..Record::default() }
    }

    fn report(agreeing: &[&str], mut others: Vec<Record>) -> Report {
        let mut report = Report::new(&CompareOptions::default());
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

    fn hung() -> Record {
        Record {
            status: Status::Hang,
            phase: Some("compute".into()),
            last_call: Some("hipModuleLaunchKernel".into()),
            node: Some("embedding".into()),
            ..ok("hip")
        }
    }

    #[test]
    fn one_sentence_says_what_to_do() {
        let place = "hip hung after the call of hipModuleLaunchKernel at node 'embedding'";
        assert_eq!(
            advice(&report(&["cpu", "vulkan"], vec![hung()])),
            format!("{place}; cpu and vulkan agree: use --backend vulkan")
        );
        let waits = Record {
            last_call: Some("hipEventQuery".into()),
            waits_for: Some("hipMemcpyAsync".into()),
            ..hung()
        };
        let text = advice(&report(&["cpu"], vec![waits]));
        assert!(text.starts_with("hip hung waiting for hipMemcpyAsync at node 'embedding'; cpu"), "{text}");
        let nothing_faster = "use --backend cpu (nothing faster agrees)";
        assert_eq!(advice(&report(&["cpu"], vec![])), format!("cpu agrees with reference: {nothing_faster}"));
        let mut differs = report(&["cpu", "vulkan"], vec![]);
        differs.comparisons[1].disagreement = Some("it does".into());
        assert_eq!(
            advice(&differs),
            format!("vulkan diverges from reference; cpu agrees with reference: {nothing_faster}")
        );
        let absent = Record { status: Status::Unsupported, ..ok("hip") };
        let mut named = report(&["cpu"], vec![absent]);
        assert_eq!(advice(&named), format!("cpu agrees with reference: {nothing_faster}"));
        named.require_all = true;
        assert_eq!(
            advice(&named),
            format!("hip cannot run here; cpu agrees with reference: {nothing_faster}")
        );
    }

    /// A processor does better what it stands in for, whatever the clock of the emulated card says.
    #[test]
    fn emulated_cards_and_views_of_the_processor_are_not_recommended() {
        let mut software = report(&["vulkan", "vulkan-virtual", "cpu"], vec![]);
        let agree = "vulkan, vulkan-virtual and cpu agree: use --backend ";
        assert_eq!(advice(&software), format!("{agree}vulkan"));
        for (record, seconds) in software.records.iter_mut().zip([1.0, 0.1, 2.0]) {
            record.prompt_s = Some(seconds);
        }
        assert_eq!(advice(&software), format!("{agree}vulkan (2.0 x cpu; 1.0 s a request)"));
        let device = |device: &str| BackendReport {
            name: "vulkan".into(),
            device: device.into(),
            ..BackendReport::default()
        };
        software.backends = vec![device("llvmpipe (LLVM 19.1.7, 256 bits)")];
        let why = "nothing faster agrees: vulkan is llvmpipe, which runs on the processor, vulkan-virtual is emulated";
        assert_eq!(advice(&software), format!("{agree}cpu ({why}; 2.0 s a request)"));
    }

    /// The fastest in median counts, with its best offload and without loading, not the first that was named.
    #[test]
    fn the_fastest_is_recommended_with_its_measure() {
        let mut measured = report(&["cpu", "vulkan", "hip"], vec![]);
        let record = |name: &str, offload, load_s, prompt_s, eval_s| Record {
            offload,
            load_s: Some(load_s),
            prompt_s: Some(prompt_s),
            eval_s: Some(eval_s),
            ..ok(name)
        };
        measured.records = vec![
            ok("reference"),
            record("cpu", -1, 0.1, 0.142, 2.0),
            record("vulkan", -1, 0.1, 0.104, 0.4),
            record("hip", 0, 9.0, 1.0, 1.0),
            record("hip", -1, 9.0, 0.02, 0.4),
            record("hip", -1, 9.0, 5.0, 0.4),
            record("hip", -1, 9.0, 0.01, 0.4),
        ];
        assert_eq!(
            advice(&measured),
            "cpu, vulkan and hip agree: use --backend hip (1.2 x vulkan, 5.1 x cpu; 0.42 s a request)"
        );
        // The processor can be the fastest of all.
        measured.records[1] = record("cpu", -1, 0.1, 0.01, 0.2);
        let text = advice(&measured);
        assert!(text.ends_with("use --backend cpu (2.0 x hip, 2.4 x vulkan; 0.21 s a request)"), "{text}");
    }

    /// Times of two machines are not compared, and a backend whose results change is not recommended, however fast it is.
    #[test]
    fn times_are_of_one_machine_and_of_sound_results() {
        let mut two = report(&["vulkan", "cpu", "hip"], vec![]);
        let run = |id: &str, host: &str| Run {
            run_id: id.into(),
            host: Host { name: host.into(), ..Host::default() },
            ..Run::default()
        };
        two.runs = vec![run("a", "desk"), run("b", "tower")];
        for (record, (id, seconds)) in two.records.iter_mut().zip([("a", 1.0), ("a", 2.0), ("b", 0.1)]) {
            (record.run_id, record.prompt_s) = (id.into(), Some(seconds));
        }
        let text = advice(&two);
        assert!(text.ends_with("use --backend vulkan (2.0 x cpu; 1.0 s a request)"), "{text}");
        let mut unstable = report(&["vulkan", "cpu"], vec![]);
        unstable.records[0].unstable = 3;
        assert_eq!(
            advice(&unstable),
            "vulkan gives different results when repeated; cpu agrees with reference: use --backend cpu (nothing faster \
             agrees)"
        );
    }

    /// The processor is recommended if nothing is known against it, and the sentence says what is known.
    #[test]
    fn without_a_card_the_processor_is_left() {
        let none = "hip hung after the call of hipModuleLaunchKernel at node 'embedding'; no other backend agrees with ";
        assert_eq!(
            advice(&report(&[], vec![hung()])),
            format!("{none}reference"),
            "the reference did not run"
        );
        let mut with_reference = report(&[], vec![ok("reference"), hung()]);
        let not_compared = "use --backend cpu (nothing faster agrees; cpu was not compared)";
        assert_eq!(advice(&with_reference), format!("{none}reference: {not_compared}"));
        let emulated = report(&["hip-virtual:gfx906"], vec![ok("reference")]);
        assert_eq!(
            advice(&emulated),
            "hip-virtual:gfx906 agrees with reference: use --backend cpu (nothing faster agrees: hip-virtual:gfx906 is \
             emulated; cpu was not compared)"
        );
        with_reference.records[0].invalid_logits = 1;
        assert!(!advice(&with_reference).contains("use --backend"), "{}", advice(&with_reference));
        let mut differs = report(&["cpu"], vec![ok("reference")]);
        differs.comparisons[0].disagreement = Some("it does".into());
        assert!(!advice(&differs).contains("use --backend"), "{}", advice(&differs));
        let cpu = Report { reference: "cpu".into(), ..report(&[], vec![ok("cpu"), hung()]) };
        assert_eq!(advice(&cpu), format!("{none}cpu: use --backend cpu (nothing faster agrees)"));
    }

    /// The runs with several numbers of units on the device are one sentence.
    #[test]
    fn a_sweep_says_where_it_dies() {
        let run = |offload, epoch, status, elapsed_s| Record {
            offload,
            epoch,
            status,
            elapsed_s,
            phase: Some("compute".into()),
            ..ok("vulkan")
        };
        let mut records = vec![ok("reference")];
        for (epoch, seconds) in [2.59, 2.65, 2.71].into_iter().enumerate() {
            records.push(run(0, epoch, Status::Ok, 40.0));
            records.push(run(1, epoch, Status::Crash, seconds));
        }
        let mut swept = report(&["cpu"], records);
        let sentence = "vulkan works at offload 0, dies from 1 on: 3 of 3 runs, 2.65 +- 0.06 s after the start, in phase \
                        compute";
        let text = advice(&swept);
        assert!(text.starts_with(&format!("{sentence}; cpu agrees")), "{text}");
        assert_eq!(patterns(&swept), [sentence]);
        swept.records.push(run(1, 3, Status::Ended, 0.5));
        assert_eq!(patterns(&swept), [sentence], "somebody ended it, which says nothing about the backend");
        swept.records.extend([run(2, 0, Status::Crash, 7.0), run(-1, 0, Status::Ok, 9.0)]);
        let mixed = "vulkan works at offload 0 and -1, dies at 1 and 2: 4 of 4 runs, 2.65 +- 0.06 s at 1, 7.00 s at 2 after \
                     the start, in phase compute";
        assert_eq!(patterns(&swept), [mixed]);
        swept.records.push(run(2, 1, Status::Ok, 9.0));
        assert!(patterns(&swept)[0].contains(", sometimes dies at 2: 4 of 5 runs"), "{:?}", patterns(&swept));
        // One number of units is no sweep.
        swept.records.retain(|r| r.offload == 1);
        assert!(patterns(&swept).is_empty());
    }
}
