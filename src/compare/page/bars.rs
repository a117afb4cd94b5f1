//! Rows with a name, something drawn to a common scale, and a number.

use super::super::report::{NodeReport, Report, Status, label};
use super::text::Escaped;
use super::{name, section, with_nodes};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Operations that a backend's plot has, the slowest first.
const MAX_OPERATIONS: usize = 12;

/// Per cent of the width that the largest value takes, so that a mark at its end is within.
const FULL: f64 = 97.0;

fn row(name: &str, drawn: &str, number: &str) -> String {
    format!(
        "<div class=\"row\"><span class=\"name\">{}</span><svg height=\"18\">{drawn}</svg><span class=\"number\">{}</span></div>\n",
        Escaped(name),
        Escaped(number)
    )
}

fn bar(share: f64, data: &str) -> String {
    format!("<rect y=\"3\" height=\"12\" rx=\"2\" width=\"{:.2}%\" {data}/>", FULL * share)
}

/// Where nodes have their own time, as cases of operation tests do.
pub(super) fn times_by_operation(report: &Report) -> String {
    let timed: Vec<_> = with_nodes(report)
        .map(|c| (name(report, c), by_operation(&c.nodes)))
        .filter(|(_, times)| !times.is_empty())
        .collect();
    let longest = timed.iter().filter_map(|(_, times)| Some(times.first()?.1)).fold(0.0, f64::max);
    let mut plots = String::new();
    for (name, times) in timed {
        let _ = writeln!(plots, "<figure>\n<figcaption><b>{}</b></figcaption>", Escaped(&name));
        for (op, seconds) in times.iter().take(MAX_OPERATIONS) {
            let drawn = bar(seconds / longest, &format!("data-op-s=\"{seconds:e}\""));
            plots.push_str(&row(op, &drawn, &format!("{seconds:.3} s")));
        }
        let rest: f64 = times.iter().skip(MAX_OPERATIONS).map(|(_, seconds)| seconds).sum();
        if let Some(more @ 1..) = times.len().checked_sub(MAX_OPERATIONS) {
            plots.push_str(&row(&format!("{more} others"), "", &format!("{rest:.3} s")));
        }
        plots.push_str("</figure>\n");
    }
    let plots = if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") };
    section("Time by operation", "Seconds of preparing and running all cases of an operation.", &plots)
}

fn by_operation(nodes: &[NodeReport]) -> Vec<(&str, f64)> {
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    for node in nodes.iter().filter(|n| n.elapsed_s > 0.0) {
        *times.entry(&node.op).or_default() += node.elapsed_s;
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    times
}

pub(super) fn tokens_per_s(report: &Report) -> String {
    let speeds: Vec<_> = report.statistics.iter().filter_map(|s| Some((s, s.tokens_per_s?))).collect();
    let top = speeds.iter().map(|(_, t)| t.mean + t.sd).fold(0.0, f64::max);
    let rows = speeds.iter().map(|(s, t)| {
        let end = |value: f64| FULL * (value / top).max(0.0);
        let data = format!("data-mean=\"{:e}\" data-sd=\"{:e}\"", t.mean, t.sd);
        let deviation = format!(
            "<line class=\"deviation\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"9\" y2=\"9\"/>",
            end(t.mean - t.sd),
            end(t.mean + t.sd)
        );
        let drawn = bar(t.mean / top, &data) + if t.n > 1 { &deviation } else { "" };
        row(&label(&s.backend, s.offload), &drawn, &format!("{:.2} ± {:.2} (n = {})", t.mean, t.sd, t.n))
    });
    section(
        "Tokens per second",
        "Mean over all runs; the line is one standard deviation to each side.",
        &rows.collect::<String>(),
    )
}

/// A mark for each run that crashed or hung, a row for each backend and offload.
pub(super) fn times_to_death(report: &Report) -> String {
    let died = |r: &&super::super::report::Record| matches!(r.status, Status::Crash | Status::Hang);
    let records: Vec<_> = report.records.iter().filter(|r| r.case.is_none()).filter(died).collect();
    let last = records.iter().map(|r| r.elapsed_s).fold(0.0, f64::max);
    let mut rows: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for r in &records {
        let x = 1.0 + (FULL - 1.0) * r.elapsed_s / last;
        let said = format!("{} epoch {}: {} after {:.3} s", r.label(), r.epoch + 1, r.status, r.elapsed_s);
        let shape =
            if r.status == Status::Hang { "<circle r=\"5\"/>" } else { "<path d=\"M-5-5L5 5M-5 5L5-5\"/>" };
        let (drawn, n) = rows.entry(r.label()).or_default();
        let _ = write!(
            drawn,
            "<svg class=\"death {}\" x=\"{x:.2}%\" y=\"9\" overflow=\"visible\" data-death-s=\"{:e}\">{shape}<title>{}</title></svg>",
            r.status,
            r.elapsed_s,
            Escaped(&said)
        );
        *n += 1;
    }
    let rows = rows.iter().map(|(label, (drawn, n))| {
        let axis = "<line class=\"grid\" x1=\"1%\" x2=\"97%\" y1=\"9\" y2=\"9\"/>";
        row(label, &format!("{axis}{drawn}"), &format!("{n} died"))
    });
    let rows: String = rows.collect();
    let explanation =
        format!("Crashes (×) and hangs (○), from the start of the process (left) to {last:.2} s (right).");
    section("Time to a crash or hang", &explanation, &rows)
}
