//! `report.html`: self-contained, with the report's values, and with drivers' texts escaped.

use diptych::compare::{Report, Style, html, table};
use serde_json::{Value, json};

/// Returns a report with content for every part of the page, in which every text is `text`.
fn full(text: &str) -> Value {
    let record = |epoch: usize, status: &str| {
        json!({
            "run_id": "r", "backend": text, "offload": -1, "epoch": epoch, "status": status, "case": null,
            "phase": text, "node": text, "signal": null, "message": text, "warnings": [text], "pid": 1,
            "elapsed_s": 0.1 + epoch as f64 / 3.0, "load_s": null, "prompt_s": null, "eval_s": null, "tokens": 0,
            "tokens_per_s": null, "token_ids": [], "margins": [], "text": text, "unstable": 0,
            "driver_allocations": null, "times": if epoch == 0 { json!([{"op": text, "seconds": 0.5}]) } else { json!([]) },
        })
    };
    let node = |nmse: f64| {
        json!({
            "node": text, "op": text, "type": "f32", "operand_type": "f32", "shape": [1, 2, 3, 4], "status": "ok",
            "message": null, "nmse": nmse, "row": 0.0, "max_abs": 0.0, "ulp": 0, "non_finite": 0, "bound": 1e-6,
            "row_bound": 1e-3, "elapsed_s": 0.25, "unstable": 0,
        })
    };
    let score = json!({"chunks": 1, "tokens": 2, "nll": 3.0, "perplexity": 20.085, "error": null});
    let logits = json!({"nmse": 1e-4, "max_abs": 0.1, "kl": 0.0625, "top1_agreement": 0.5, "non_finite": 0});
    let scored = |mut record: Value| {
        record["score"] = score.clone();
        record
    };
    let speed = json!({"n": 3, "mean": 12.345, "sd": 0.678, "min": 11.0, "max": 13.0});
    json!({
        "run_id": "r", "started_at": text, "command": [text], "environment": {"overrides": [[text, text]]},
        "host": {"os": text, "kernel": text, "cpu": text, "threads": 1, "diptych": text},
        "reference": text, "work": text, "precision": text, "cache": null, "text": text,
        "backends": [{
            "run_id": "r", "name": text, "device": text, "driver": text, "versions": [[text, text]],
            "features": [[text, text]], "arch": text, "uuid": text, "overrides": [[text, text]],
        }],
        "records": [scored(record(0, "ok")), record(1, "crash"), record(2, "hang")],
        "comparisons": [{
            "run_id": "r", "lhs": text, "rhs": text, "offload": -1, "logits": null, "bound": null,
            "first_divergence": null, "nodes": [node(0.0), node(1.2345e-9), node(0.5)],
            "greedy_divergence_at": null, "disagreement": text,
            "text": {"score": score, "reference": score, "logits": logits, "kl_max": 0.5},
        }],
        "statistics": [{
            "backend": text, "device": text, "work": text, "offload": -1, "runs": 3, "ok": 1, "errors": 0,
            "crashes": 1, "hangs": 1, "unsupported": 0, "elapsed_s": null, "load_s": null, "prompt_s": null,
            "eval_s": null, "tokens_per_s": speed, "time_to_crash_s": null,
        }],
        "verdict": {
            "agree": false, "findings": [text], "patterns": [text], "advice": text,
            "details": [{
                "text": text, "run_id": "r", "backend": text, "cause": text, "evidence": [text], "cure": [text],
                "location": {"phase": text, "node": text, "call": text, "waits_for": text}, "next": text,
            }],
        },
    })
}

fn page(report: &Value) -> String {
    html(&serde_json::from_value::<Report>(report.clone()).unwrap())
}

/// Returns the values of an attribute, sorted.
fn numbers(page: &str, attribute: &str) -> Vec<f64> {
    let begin = format!("{attribute}=\"");
    let values = page.split(begin.as_str()).skip(1);
    let mut values: Vec<f64> = values.map(|v| v.split('"').next().unwrap().parse().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the elements' names in order; checks that each one is closed correctly.
fn elements(page: &str) -> Vec<String> {
    let body = page.split_once("</style>").unwrap();
    let mut open = vec!["html".to_string(), "head".to_string()];
    let mut all = Vec::new();
    for tag in body.1.split('<').skip(1) {
        let (inner, _) = tag.split_once('>').expect("a tag that ends");
        match inner.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None => {
                let name = inner.split([' ', '/']).next().unwrap().to_string();
                all.push(name.clone());
                if !inner.ends_with('/') {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

#[test]
fn the_page_stands_alone() {
    let page = page(&full("a backend"));
    for reference in ["http:", "https:", "src=", "href", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(reference), "{reference}");
    }
    let names = elements(&page);
    for name in ["svg", "circle", "rect", "table", "details"] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
}

#[test]
fn its_numbers_are_those_of_the_report() {
    let page = page(&full("a backend"));
    assert_eq!(numbers(&page, "data-nmse"), [0.0, 1.2345e-9, 0.5]);
    assert_eq!(numbers(&page, "data-op-s"), [0.5, 0.75]);
    assert_eq!((numbers(&page, "data-mean"), numbers(&page, "data-sd")), (vec![12.345], vec![0.678]));
    assert_eq!(numbers(&page, "data-death-s"), [0.1 + 1.0 / 3.0, 0.1 + 2.0 / 3.0]);
    assert_eq!(numbers(&page, "data-elapsed-s").len(), 3);
    for status in ["ok", "crash", "hang"] {
        assert_eq!(page.matches(&format!("data-status=\"{status}\"")).count(), 1);
    }
}

/// The clock of an emulated card is made up, so its times stand beside no others.
#[test]
fn times_of_emulated_cards_are_left_out() {
    for (backend, cases_only) in
        [("vulkan-virtual:vega20", true), ("hip-virtual:gfx906", true), ("hip:1", false)]
    {
        let times = numbers(&page(&full(backend)), "data-op-s");
        assert_eq!(times, if cases_only { vec![0.75] } else { vec![0.5, 0.75] }, "{backend}");
    }
}

#[test]
fn hostile_text_stays_text() {
    let plain = elements(&page(&full("a backend")));
    let page = page(&full("<script>'\"]]>&\u{1b}[31m\u{202e}\0</title></svg>"));
    assert_eq!(elements(&page), plain);
    assert!(page.contains("&lt;script&gt;&#39;&quot;]]&gt;&amp;\\u{1b}[31m\\u{202e}\\u{0}"));
    assert!(!page.contains(['\u{1b}', '\u{202e}', '\0']));
}

/// No field of a report that somebody sent can control the terminal or the page that shows it.
#[test]
fn no_field_controls_a_terminal() {
    for kind in ["ops", "model"] {
        let mut report = full("\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\r\nverdict: fine");
        report["work"] = json!(format!("{kind} \u{1b}[2J"));
        report["records"][0]["warnings"] = json!(["\u{1b}a", "\u{1b}b", "\u{1b}c", "\u{1b}d"]);
        let report: Report = serde_json::from_value(report).unwrap();
        for text in [table(&report, Style::Plain), html(&report)] {
            let controls = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
            assert_eq!(text.chars().find(controls), None, "{text:?}");
            assert!(text.contains("\\u{1b}"), "{text}");
        }
        let table = table(&report, Style::Plain);
        assert_eq!(table.lines().filter(|line| line.starts_with("verdict:")).count(), 1, "{table}");
    }
}

/// The cure of a finding comes before it, and what to do next after it, on the screen and on the page. A report of an
/// earlier version has findings without fields.
#[test]
fn the_cure_comes_first() {
    let mut report = full("a backend");
    let verdict = &mut report["verdict"];
    verdict["findings"] = json!(["hip: hang in phase upload waiting for hipMemcpyAsync"]);
    verdict["details"][0]["text"] = verdict["findings"][0].clone();
    verdict["details"][0]["cure"] = json!(["set DIPTYCH_HIP_COPIES=kernel"]);
    verdict["details"][0]["next"] = json!("DIPTYCH_HIP_COPIES=kernel compare --backends hip");
    report["records"][0]["warnings"] =
        json!(["no answer: set DIPTYCH_HIP_COPIES=kernel; the log shows more"]);
    let read = |report: &Value| serde_json::from_value::<Report>(report.clone()).unwrap();
    let text = table(&read(&report), Style::Plain);
    let block = "  cure: set DIPTYCH_HIP_COPIES=kernel\n  hip: hang in phase upload waiting for hipMemcpyAsync\n    next: \
                 DIPTYCH_HIP_COPIES=kernel compare --backends hip\n";
    assert!(text.contains(block), "{text}");
    assert!(!text.contains("the log shows more"), "the cure is no warning: {text}");
    let page = html(&read(&report));
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}"));
    let order = [at("Cure: set DIPTYCH"), at("hip: hang in phase upload"), at("<dt>waiting for</dt>")];
    assert!(order.is_sorted() && order[2] < at("<dt>next command</dt>"), "{order:?}");
    // The last line has it already.
    report["verdict"]["advice"] = json!("hip hung: set DIPTYCH_HIP_COPIES=kernel");
    let said = table(&read(&report), Style::Plain);
    assert!(!said.contains("  cure: "), "{said}");
    report["verdict"]["details"] = json!([]);
    let old = table(&read(&report), Style::Plain);
    assert!(old.contains("\n  hip: hang in phase upload waiting for hipMemcpyAsync\n"), "{old}");
}

#[test]
fn a_report_without_records() {
    let mut empty = full("nothing");
    for part in ["records", "comparisons", "statistics", "backends"] {
        empty[part] = json!([]);
    }
    let page = page(&empty);
    assert!(elements(&page).iter().all(|name| name != "svg"));
    assert!(page.contains("No run was recorded."));
}
