//! Charts of rows: a name, a drawing to a common scale, and a value.

use super::super::report::{NodeReport, Report, Status};
use super::super::text::statistics_labels;
use super::text::Escaped;
use super::{name, section, with_nodes};
use crate::backends::BackendName;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most operations in a backend's plot, the slowest first.
const MAX_OPERATIONS: usize = 12;

/// Width of the largest value in per cent, so that a mark at its end is still inside.
const FULL: f64 = 97.0;

fn row(name: &str, drawn: &str, number: &str) -> String {
    format!(
        "<div class=\"row\"><span class=\"name\">{}</span><svg height=\"18\">{drawn}</svg><span class=\"number\">{}</span></div>\n",
        Escaped(name),
        Escaped(number)
    )
}

fn bar(fraction: f64, data: &str) -> String {
    format!("<rect y=\"3\" height=\"12\" rx=\"2\" width=\"{:.2}%\" {data}/>", FULL * fraction)
}

/// Data of a plot of times: its name, and seconds by operation, the slowest first.
type Timed<'a> = (String, Vec<(&'a str, f64)>);

/// Plots the times of operation tests, where each case has its own time.
pub(super) fn times_of_cases(report: &Report) -> String {
    let timed = with_nodes(report).map(|c| (name(report, c), by_operation(&c.nodes)));
    section(
        "Time by operation",
        "Seconds of preparing and running all cases of an operation; every backend has its own scale.",
        &plots(timed.collect(), 1.0, "s"),
    )
}

/// Plots the times of a model's decode step, if it was measured step by step. Those of emulated cards, which
/// earlier versions measured, are left out.
pub(super) fn times_of_steps(report: &Report) -> String {
    let has_clock = |backend: &str| !backend.parse().is_ok_and(|name: BackendName| name.is_emulated());
    let records = report.records.iter().filter(|r| r.case.is_none() && has_clock(&r.backend));
    let timed =
        records.map(|r| (r.label(), r.times.iter().map(|t| (t.op.as_str(), t.seconds)).collect::<Vec<_>>()));
    section(
        "Time by operation",
        "Milliseconds of a decode step. Each step of the program is run and waited for separately, so that the sum is longer \
         than a decode step; every backend has its own scale. Emulated cards have no clock.",
        &plots(timed.collect(), 1e3, "ms"),
    )
}

/// Draws a plot for each entry that has times. A value is seconds times `scale`, in `unit`.
fn plots(timed: Vec<Timed<'_>>, scale: f64, unit: &str) -> String {
    let mut plots = String::new();
    for (name, times) in timed.iter().filter(|(_, times)| !times.is_empty()) {
        let longest = times[0].1.max(f64::MIN_POSITIVE);
        let number = |seconds: f64| format!("{} {unit}", digits(seconds * scale));
        let _ = writeln!(plots, "<figure>\n<figcaption><b>{}</b></figcaption>", Escaped(name));
        for (op, seconds) in times.iter().take(MAX_OPERATIONS) {
            let drawn = bar(seconds / longest, &format!("data-op-s=\"{seconds:e}\""));
            plots.push_str(&row(op, &drawn, &number(*seconds)));
        }
        let rest: f64 = times.iter().skip(MAX_OPERATIONS).map(|(_, seconds)| seconds).sum();
        if let Some(more @ 1..) = times.len().checked_sub(MAX_OPERATIONS) {
            plots.push_str(&row(&format!("{more} others"), "", &number(rest)));
        }
        plots.push_str("</figure>\n");
    }
    if plots.is_empty() { plots } else { format!("<div class=\"plots\">\n{plots}</div>\n") }
}

/// Formats a value with three significant digits.
fn digits(x: f64) -> String {
    let integer_digits = if x >= 1.0 { x.log10() as usize + 1 } else { 1 };
    format!("{x:.*}", 3usize.saturating_sub(integer_digits))
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
    let (labels, legend) = statistics_labels(&speeds.iter().map(|(s, _)| *s).collect::<Vec<_>>());
    let rows = speeds.iter().zip(&labels).map(|((_, t), label)| {
        let end = |value: f64| FULL * (value / top).max(0.0);
        let data = format!("data-mean=\"{:e}\" data-sd=\"{:e}\"", t.mean, t.sd);
        let deviation = format!(
            "<line class=\"deviation\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"9\" y2=\"9\"/>",
            end(t.mean - t.sd),
            end(t.mean + t.sd)
        );
        let (drawn, number) = match t.n {
            0 | 1 => (bar(t.mean / top, &data), digits(t.mean)),
            n => (
                bar(t.mean / top, &data) + &deviation,
                format!("{} ± {}, {n} runs", digits(t.mean), digits(t.sd)),
            ),
        };
        row(label, &drawn, &number)
    });
    let legend = legend.iter().map(|line| format!("<p>{}</p>\n", Escaped(line)));
    section(
        "Tokens per second",
        "Mean over all runs; the line is one standard deviation to each side.",
        &rows.chain(legend).collect::<String>(),
    )
}

/// Draws a mark for each run that crashed or hung, in a row for each backend and offload.
pub(super) fn times_to_death(report: &Report) -> String {
    let died = |r: &&super::super::report::Record| matches!(r.status, Status::Crash | Status::Hang);
    let records: Vec<_> = report.records.iter().filter(|r| r.case.is_none()).filter(died).collect();
    let last = records.iter().map(|r| r.elapsed_s).fold(0.0, f64::max);
    let mut rows: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for r in &records {
        let x = 1.0 + (FULL - 1.0) * r.elapsed_s / last;
        let title = format!("{} epoch {}: {} after {:.3} s", r.label(), r.epoch + 1, r.status, r.elapsed_s);
        let shape =
            if r.status == Status::Hang { "<circle r=\"5\"/>" } else { "<path d=\"M-5-5L5 5M-5 5L5-5\"/>" };
        let (drawn, n) = rows.entry(r.label()).or_default();
        let _ = write!(
            drawn,
            "<svg class=\"death {}\" x=\"{x:.2}%\" y=\"9\" overflow=\"visible\" data-death-s=\"{:e}\">{shape}<title>{}</title></svg>",
            r.status,
            r.elapsed_s,
            Escaped(&title)
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
