//! Derives comparisons and a verdict from results.

mod cure;
mod disagreement;
mod measure;
mod results;
mod verdict;

pub(super) use disagreement::{differing_node, unjudged_node};
pub(super) use measure::Measure;
pub(super) use verdict::{conclude, failure, finding, instability, set_verdict, variance};

use super::options::{CompareOptions, PerNode};
use super::report::{Comparison, Record, Report, Status};
use crate::isolate::protocol::Doubtful;
use std::collections::HashSet;

/// Compares the results of a report's backends and sets the verdict. Nothing is compared with a reference whose own
/// logits are invalid. `unestimated` is the reason if the rounding of results in doubt was to be estimated and was
/// not.
pub(super) fn judge(
    report: &mut Report,
    options: &CompareOptions,
    measure: &Measure,
    unestimated: Option<&str>,
) {
    let reference = report.records.iter().position(|r| report.is_reference(r) && r.status == Status::Ok);
    if let (Some(at), Measure::Logits(_) | Measure::Hidden(_)) = (reference, measure) {
        report.records[at].invalid_logits = results::invalid_logits(&report.records[at], options);
    }
    let reference = reference.map(|at| &report.records[at]).filter(|r| r.invalid_logits == 0);
    let others = report.records.iter().filter(|r| r.status == Status::Ok && !report.is_reference(r));
    let comparisons = match reference {
        Some(reference) => {
            others.map(|record| compare(record, reference, options, measure, unestimated)).collect()
        }
        None => Vec::new(),
    };
    report.comparisons = comparisons;
    set_verdict(report);
}

/// Lists the results that differ by more than the types of their operands let expect, and may be rounding.
pub(super) fn doubtful(report: &Report, options: &CompareOptions) -> Vec<Doubtful> {
    let mut seen = HashSet::new();
    let all = report.comparisons.iter().flat_map(|c| &c.nodes).filter(|node| node.is_doubtful());
    let doubtful = all.map(|node| Doubtful {
        step: node.step,
        name: node.node.clone(),
        members: node.members.clone(),
        whole: options.per_node == PerNode::Off,
    });
    doubtful.filter(|d| options.per_node != PerNode::Chained && seen.insert(d.clone())).collect()
}

/// Compares the results of a run with those of the reference.
pub(super) fn compare(
    record: &Record,
    reference: &Record,
    options: &CompareOptions,
    measure: &Measure,
    unestimated: Option<&str>,
) -> Comparison {
    let mut comparison = Comparison {
        lhs: record.backend.clone(),
        rhs: reference.backend.clone(),
        offload: record.offload,
        epoch: record.epoch,
        variant: record.variant.clone(),
        bound: measure.bound(),
        ..Comparison::default()
    };
    let compared = results::compare_results(&mut comparison, record, reference, options, measure);
    for node in comparison.nodes.iter_mut().filter(|node| node.is_doubtful()) {
        node.message = unestimated.map(|why| format!("whether this is rounding was not estimated: {why}"));
    }
    comparison.disagreement = match compared {
        Ok(rms) => {
            disagreement::disagreement(&comparison, options.per_node, measure, (record, reference), rms)
        }
        Err(error) => Some(format!("the results cannot be judged: {error}")),
    };
    comparison
}

#[cfg(test)]
mod tests {
    use super::super::files;
    use super::super::report::{EVERYTHING, TextScore};
    use super::*;
    use crate::npy;
    use ggml_core::metrics::Bound;
    use ggml_core::op::unary::Activation;
    use ggml_core::precision::Precision;
    use ggml_core::{DType, Graph, Source};
    use serde_json::json;
    use std::path::Path;

    /// Judges a report in which the reference and the CPU have both succeeded.
    fn judged(out: &Path, measure: &Measure) -> Report {
        let options = CompareOptions { out: out.into(), ..CompareOptions::default() };
        let done = |name: &str| Record {
            backend: name.into(),
            stem: name.into(),
            offload: EVERYTHING,
            status: Status::Ok,
            ..Record::default()
        };
        let mut report = Report::new(&options);
        report.records = vec![done("reference"), done("cpu")];
        judge(&mut report, &options, measure, None);
        assert_eq!(report.verdict.agree, report.verdict.findings.is_empty());
        report
    }

    fn finding(out: &Path, measure: &Measure) -> String {
        judged(out, measure).verdict.findings.join("; ")
    }

    #[test]
    fn logits_that_are_not_there_are_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let measure = Measure::of_model(Precision::Fast, false, true);
        let text = finding(dir.path(), &measure);
        assert!(text.starts_with("cpu differs from reference: the results cannot be judged: "), "{text}");
        for backend in ["reference", "cpu"] {
            npy::write(&files::logits(dir.path(), backend), 0, 0, &[]).unwrap();
        }
        assert!(finding(dir.path(), &measure).contains("expected at least one"));
        for backend in ["reference", "cpu"] {
            npy::write(&files::logits(dir.path(), backend), 1, 2, &[1.0, 2.0]).unwrap();
        }
        assert_eq!(finding(dir.path(), &measure), "");
    }

    /// Scores are judged, and the logits of every chunk of the text.
    #[test]
    fn a_text_that_differs_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let options = CompareOptions { out: dir.path().into(), ..CompareOptions::default() };
        let score = |nll: f64| {
            Some(TextScore { chunks: 2, tokens: 2, nll, perplexity: nll.exp(), ..TextScore::default() })
        };
        let write = |backend: &str, last: f32| {
            npy::write(&files::logits(dir.path(), backend), 1, 2, &[1.0, 2.0]).unwrap();
            npy::write(&files::text(dir.path(), backend, 0), 1, 2, &[1.0, 2.0]).unwrap();
            npy::write(&files::text(dir.path(), backend, 1), 1, 2, &[1.0, last]).unwrap();
        };
        write("reference", 3.0);
        let finding = |last: f32, got: Option<TextScore>, want: Option<TextScore>| {
            write("cpu", last);
            let mut report = judged(dir.path(), &Measure::of_model(Precision::Fast, false, true));
            (report.records[0].score, report.records[1].score) = (want, got);
            judge(&mut report, &options, &Measure::of_model(Precision::Fast, false, true), None);
            report.verdict.findings.join("; ")
        };
        assert_eq!(finding(3.0, score(2.0), score(2.0)), "");
        assert_eq!(finding(3.0, None, None), "");
        for (last, got, words) in [
            (4.0, score(2.0), "cpu differs from reference: the logits of the text have NMSE"),
            (f32::NAN, score(2.0), "cpu differs from reference: the logits of the text have NMSE"),
            (
                3.0,
                score(2.6),
                "cpu differs from reference: the perplexity of the text is 13.4637 +- 0.0000, the reference's 7.3891",
            ),
            (3.0, score(f64::INFINITY), "cpu: the text has no perplexity"),
            (3.0, None, "cpu differs from reference: the results cannot be judged: "),
        ] {
            let text = finding(last, got, score(2.0));
            assert!(text.contains(words), "{text}");
        }
        let text = finding(3.0, score(f64::NAN), score(f64::NAN));
        assert!(
            text.contains("cpu: the text has no") && text.contains("reference: the text has no"),
            "{text}"
        );
    }

    /// Drafts of the predictor are judged if there are enough of them.
    #[test]
    fn drafts_that_differ_are_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        for backend in ["reference", "cpu"] {
            npy::write(&files::logits(dir.path(), backend), 1, 2, &[1.0, 2.0]).unwrap();
        }
        let options = CompareOptions { out: dir.path().into(), ..CompareOptions::default() };
        let finding = |count: usize, wrong: usize| {
            let mut report = judged(dir.path(), &Measure::of_model(Precision::Fast, false, true));
            let tokens: Vec<u32> = (0..=count as u32).collect();
            for record in &mut report.records {
                (record.drafts, record.token_ids) = (tokens[1..].to_vec(), tokens.clone());
            }
            report.records[1].drafts[..wrong].fill(99);
            judge(&mut report, &options, &Measure::of_model(Precision::Fast, false, true), None);
            report.verdict.findings.join("; ")
        };
        assert_eq!([finding(16, 0), finding(16, 4), finding(7, 7)], ["", "", ""]);
        let words =
            "of 16 drafts of the predictor 11 are the reference's; 11 are accepted, 16 on the reference";
        assert_eq!(finding(16, 5), format!("cpu differs from reference: {words}"));
    }

    /// Logits that are NaN on both sides are no agreement, and the verdict says once whose they are.
    #[test]
    fn a_reference_without_valid_logits_agrees_with_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let measure = Measure::of_model(Precision::Fast, false, true);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (logits, invalid) in [([1.0, nan, inf, nan], 3), ([1.0, 2.0, -inf, 4.0], 0)] {
            for backend in ["reference", "cpu"] {
                npy::write(&files::logits(dir.path(), backend), 2, 2, &logits).unwrap();
            }
            let report = judged(dir.path(), &measure);
            assert_eq!(report.records[0].invalid_logits, invalid);
            let verdict = report.verdict;
            if invalid == 0 {
                assert!(verdict.agree, "{verdict:?}");
                continue;
            }
            let finding = "reference: 3 of its own logits are NaN or infinite: nothing can agree with them";
            assert_eq!(verdict.findings, [finding]);
            let advice =
                "reference computes logits that are NaN or infinite; no other backend agrees with reference";
            assert_eq!(verdict.advice, advice);
        }
    }

    /// The finding says where the NaN of a backend begin.
    #[test]
    fn the_beginning_of_nan_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let options = CompareOptions { out: dir.path().into(), ..CompareOptions::default() };
        let measure = Measure::of_model(Precision::Fast, false, true);
        npy::write(&files::logits(dir.path(), "reference"), 1, 2, &[1.0, 2.0]).unwrap();
        npy::write(&files::logits(dir.path(), "cpu"), 1, 2, &[1.0, f32::NAN]).unwrap();
        let mut report = judged(dir.path(), &measure);
        for (node, end) in
            [(None, ": 1 are NaN or infinite"), (Some("node 'x' (MUL_MAT)"), ", from node 'x' (MUL_MAT) on")]
        {
            report.records[1].invalid_from = node.map(str::to_string);
            judge(&mut report, &options, &measure, None);
            let finding = &report.verdict.findings[0];
            assert!(finding.ends_with(end), "{finding}");
        }
    }

    /// A result in doubt says why its rounding was not estimated.
    #[test]
    fn a_missing_estimate_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut graph = Graph::new();
        let x = graph.leaf("x", DType::F32, [2, 1, 1, 1], Source::Input).unwrap();
        let y = graph.unary(Activation::Relu, x).unwrap();
        graph.output(y).unwrap();
        let entry = json!([{"name": graph.tensor(y).name, "op": "RELU", "operand_type": "F32", "dtype": "F32",
            "ne": [2, 1, 1, 1], "bound": Bound::F32, "offset": 0, "bytes": 8}]);
        for (backend, value) in [("reference", 2.0f32), ("cpu", 3.0)] {
            let bytes = [value.to_le_bytes(), value.to_le_bytes()].concat();
            let file = [format!("{entry}\n").into_bytes(), bytes].concat();
            std::fs::write(files::nodes(dir.path(), backend), file).unwrap();
        }
        let measure = Measure::outputs(Precision::Fast, &graph);
        let mut report = judged(dir.path(), &measure);
        assert!(!report.verdict.findings[0].contains("estimated"), "{:?}", report.verdict);
        let options = CompareOptions { out: dir.path().into(), ..CompareOptions::default() };
        judge(&mut report, &options, &measure, Some("reference: hang in phase compute"));
        let words = "; whether this is rounding was not estimated: reference: hang in phase compute";
        assert!(report.verdict.findings[0].contains(words), "{:?}", report.verdict);
        assert!(report.comparisons[0].nodes[0].message.is_some());
    }

    #[test]
    fn a_node_that_cannot_be_judged_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let mut graph = Graph::new();
        let x = graph.leaf("x", DType::F32, [2, 1, 1, 1], Source::Input).unwrap();
        let y = graph.unary(Activation::Relu, x).unwrap();
        graph.output(y).unwrap();
        let measure = Measure::outputs(Precision::Fast, &graph);
        let entry = |name: &str, dtype: &str, bytes: usize| {
            json!({"name": name, "op": "RELU", "operand_type": "F32", "dtype": dtype, "ne": [2, 1, 1, 1],
                "bound": Bound::F32,
                "offset": 0, "bytes": bytes})
        };
        let write = |backend: &str, entries: &[serde_json::Value]| {
            let text = format!("{}\n12345678", json!(entries));
            std::fs::write(files::nodes(dir.path(), backend), text).unwrap();
        };
        let name = graph.tensor(y).name.as_str();
        write("reference", &[entry(name, "F32", 8)]);
        for (entries, expected) in [
            (vec![entry(name, "F32", 8)], ""),
            (vec![], "cannot be judged: it has no result"),
            (vec![entry(name, "F32", 4)], "cannot be judged: "),
            (vec![entry(name, "Q8_0", 8)], "cannot be judged: "),
            (vec![entry(name, "I64", 8)], "one that has a decoder"),
        ] {
            write("cpu", &entries);
            let text = finding(dir.path(), &measure);
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{entries:?}: {text}");
        }
        // A group whose last node the reference has no result of.
        let mut group = entry("elsewhere", "F32", 8);
        group["members"] = json!([name, "elsewhere"]);
        write("cpu", &[entry(name, "F32", 8), group]);
        assert!(finding(dir.path(), &measure).contains("the reference has no result of it"));
        write("cpu", &[entry(name, "F32", 8)]);
        write("reference", &[]);
        assert!(finding(dir.path(), &measure).contains("there is no result to compare"));
    }
}
