//! A report as a block of Markdown, to paste into an issue tracker. It contains what a reader who has not the machine
//! needs, and is redacted.

use super::report::{Record, Report, Status};
use ggml_core::Result;
use ggml_core::escape::escaped_line;
use std::fmt::Write;

/// The most bytes of a text that are quoted.
const LONGEST: usize = 2000;

/// The most findings that are listed.
const MAX_FINDINGS: usize = 20;

/// Formats a report as Markdown without names of users and machines, paths, prompts and generated tokens. It contains text
/// of drivers and of the kernel, so look through it before you send it all the same.
///
/// # Errors
/// As [`Report::redacted`].
pub fn text_report(report: &Report) -> Result<String> {
    let report = report.redacted()?;
    let mut text = format!("### {}\n\n{}\n\n", report.verdict.sentence(), code(&report.verdict.advice));
    text += &table(&report);
    let findings = &report.verdict.findings;
    if !findings.is_empty() {
        text += "\n**Findings**\n\n";
        findings.iter().take(MAX_FINDINGS).for_each(|finding| text += &format!("- {}\n", code(finding)));
        if findings.len() > MAX_FINDINGS {
            let _ = writeln!(text, "- and {} more", findings.len() - MAX_FINDINGS);
        }
    }
    let died = |r: &&Record| matches!(r.status, Status::Crash | Status::Hang | Status::Error | Status::Ended);
    report.records.iter().filter(died).for_each(|record| text += &details(record));
    text += &machine(&report);
    Ok(text)
}

/// Formats a text as code, which no tracker interprets: no mentions, links or tables.
fn code(text: &str) -> String {
    let line = escaped_line(text).replace('`', "'");
    let end = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST).last().unwrap_or(0);
    let cut = if line.len() > LONGEST { format!("{} ...", &line[..end]) } else { line };
    if cut.trim().is_empty() { "-".into() } else { format!("`{cut}`") }
}

fn table(report: &Report) -> String {
    let mut text =
        String::from("| backend | status | phase | t/s | device | driver |\n|---|---|---|---|---|---|\n");
    for (record, backend) in report.backend_records() {
        let speed = record.tokens_per_s.map_or("-".into(), |t| format!("{t:.1}"));
        let phase = record.phase.as_deref().unwrap_or("-");
        let cells = [
            &record.label(),
            record.status.to_string().as_str(),
            phase,
            &speed,
            &backend.device,
            &backend.driver,
        ]
        // No escape for the end of a cell holds within code.
        .map(|cell| code(cell).replace('|', "¦"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Formats what is known about a run that did not end well.
fn details(record: &Record) -> String {
    let case = record.case.as_ref().map(|case| format!(", case {}", code(case))).unwrap_or_default();
    let mut text = format!("\n**{}**{case}\n\n", code(&record.label()));
    let fault = record.fault.as_ref().map(|f| {
        let offset = f.offset.as_ref().map(|offset| format!(" + {offset}")).unwrap_or_default();
        format!("{}, pc {}, {}{offset}", f.signal, f.pc, f.module.as_deref().unwrap_or("no module"))
    });
    let facts = [
        ("phase", record.phase.clone()),
        ("step", record.step.clone()),
        ("node", record.node.clone()),
        ("last driver call", record.last_call.clone()),
        ("library", record.library.clone()),
        ("signal", fault.or(record.signal.clone())),
        ("seconds", Some(format!("{:.3}", record.elapsed_s))),
        ("message", record.message.clone()),
        ("kernel's log", record.kernel.unread.clone()),
    ];
    for (name, value) in facts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let _ = writeln!(text, "- {name}: {}", code(value));
    }
    record.warnings.iter().for_each(|warning| text += &format!("- advice: {}\n", code(warning)));
    if !record.kernel.lines.is_empty() {
        let lines: Vec<String> =
            record.kernel.lines.iter().map(|line| escaped_line(line).replace("```", "'''")).collect();
        let _ = writeln!(text, "\n```\n{}\n```", lines.join("\n"));
    }
    text
}

fn machine(report: &Report) -> String {
    let host = &report.host;
    let mut text = String::from("\n**Machine and work**\n\n");
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "- {name}: {}", code(value));
        }
    };
    let all = |pairs: &[(String, String)], between: &str| {
        pairs.iter().map(|(name, value)| format!("{name}{between}{value}")).collect::<Vec<_>>().join(", ")
    };
    fact("work", &report.work);
    fact("precision", &report.precision);
    fact("settings", &all(&report.settings, " "));
    fact("system", &format!("{}, kernel {}, {}", host.os, host.kernel, host.cpu));
    fact("diptych", &host.diptych);
    fact("variables", &all(&report.environment.overrides, "="));
    for backend in &report.backends {
        fact(&code(&backend.name), &all(&backend.versions, " "));
    }
    fact("command", &report.command.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use super::super::CompareOptions;
    use super::super::report::{BackendReport, Environment, Fault, KernelLog, Verdict};
    use super::*;

    #[test]
    fn a_crash_is_told_without_what_is_private() {
        let record = Record {
            backend: "hip".into(),
            offload: -1,
            status: Status::Crash,
            phase: Some("enumerate".into()),
            last_call: Some("hipInit".into()),
            library: Some("/home/anna/rocm/libamdhip64.so.7".into()),
            message: Some("died of SIGSEGV | @maintainer `x`".into()),
            fault: Some(Fault {
                signal: "SIGSEGV".into(),
                pc: "0x7f01".into(),
                module: Some("/opt/rocm/lib/libamdhip64.so.7".into()),
                offset: Some("0x1234".into()),
                ..Fault::default()
            }),
            kernel: KernelLog { lines: vec!["amdgpu: page fault".into()], unread: None },
            ..Record::default()
        };
        let backend = BackendReport {
            name: "hip".into(),
            device: "a card | a name".into(),
            versions: vec![("hip runtime".into(), "6.3".into())],
            ..BackendReport::default()
        };
        let report = Report {
            records: vec![record],
            backends: vec![backend],
            environment: Environment { overrides: vec![("HSA_XNACK".into(), "1".into())] },
            verdict: Verdict {
                advice: "hip crashed".into(),
                findings: vec!["one".into()],
                ..Verdict::default()
            },
            command: vec!["compare".into(), "--prompt".into(), "a secret wish".into()],
            ..Report::new(&CompareOptions::default())
        };
        let text = text_report(&report).unwrap();
        for part in [
            "### something differs\n\n`hip crashed`\n",
            "| `hip` | `crash` | `enumerate` | `-` | `a card ¦ a name` | - |\n",
            "- `hip`: `hip runtime 6.3`\n",
            "- signal: `SIGSEGV, pc 0x7f01, /opt/rocm/lib/libamdhip64.so.7 + 0x1234`\n",
            "- message: `died of SIGSEGV | @maintainer 'x'`\n",
            "- library: `[path]/libamdhip64.so.7`\n",
            "```\namdgpu: page fault\n```\n",
            "- variables: `HSA_XNACK=1`\n",
        ] {
            assert!(text.contains(part), "no '{part}' in:\n{text}");
        }
        assert!(!text.contains("anna") && !text.contains("secret"), "{text}");
        assert_eq!(code(&"é".repeat(5000)).chars().filter(|c| *c == 'é').count(), LONGEST / 2);
    }
}
