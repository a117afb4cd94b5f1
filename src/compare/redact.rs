//! Reports for others: without the names of users and machines, paths, prompts and generated tokens.

use super::host::machine;
use super::report::{PROMPT_HASH, Report};
use crate::shell::words;
use ggml_core::{Error, Result};
use serde_json::Value;

/// Beginnings of paths that name no user and are evidence: drivers, devices and the system's libraries.
const SYSTEM: &[&str] =
    &["/dev/", "/etc/", "/lib/", "/lib64/", "/opt/rocm", "/proc/", "/sys/", "/usr/lib", "/usr/share/vulkan"];

/// Folders that contain a folder for each user.
pub(crate) const HOMES: &[&str] = &["/home/", "/Users/", "\\Users\\", "/var/home/"];

/// Replacements of what is left out.
const PATH: &str = "[path]";
const PROMPT: &str = "[prompt]";
const USER: &str = "[user]";
const HOST: &str = "[host]";

/// Returns the replacement of the machine with a number, from 0 on.
fn numbered_host(number: usize) -> String {
    if number == 0 { HOST.into() } else { format!("[host {}]", number + 1) }
}

/// Options whose values are private.
const PRIVATE: &[&str] = &["--prompt", "--tokens"];

/// Minimum length of a name, so that no part of an ordinary word is replaced.
pub(crate) const SHORTEST: usize = 3;

impl Report {
    /// Returns the report without what identifies a user: names of users and machines, paths (their last
    /// component is kept; paths of the system's drivers are kept whole), the prompt and the generated tokens. A
    /// report contains text of drivers, so look through it before you send it all the same.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the report has no form as JSON.
    pub fn redacted(&self) -> Result<Report> {
        let wrong = |e: serde_json::Error| Error::model("report", e, "one of compare");
        let names = Names::of(self);
        let mut report: Report =
            serde_json::from_value(names.value(serde_json::to_value(self).map_err(wrong)?)).map_err(wrong)?;
        report.command = names.command(&self.command);
        // Whole, however short: a name of two letters is not looked for in other texts.
        let machines = machines(self);
        let hosts = report.runs.iter_mut().map(|run| &mut run.host).chain([&mut report.host]);
        for (host, original) in hosts.zip(self.runs.iter().map(|run| &run.host).chain([&self.host])) {
            if let Some(number) = machines.iter().position(|name| *name == original.name) {
                host.name = numbered_host(number);
            }
        }
        for (run, original) in report.runs.iter_mut().zip(&self.runs) {
            run.command = names.command(&original.command);
            run.folder = names.text(&names.path(&original.folder));
            run.work = names.work(&original.work);
        }
        report.work = names.work(&self.work);
        for (line, original) in report.statistics.iter_mut().zip(&self.statistics) {
            line.work = names.work_of_line(&original.work, self);
        }
        for (finding, original) in report.verdict.details.iter_mut().zip(&self.verdict.details) {
            finding.next = original.next.as_ref().map(|next| names.command(&words(next)).join(" "));
        }
        let again = self.cure_command.as_ref();
        report.cure_command = again.map(|command| names.command(&words(command)).join(" "));
        for record in &mut report.records {
            record.token_ids.clear();
            record.text = None;
        }
        Ok(report)
    }
}

/// Texts that are left out, with their replacements, the longest first.
struct Names(Vec<(String, String)>);

impl Names {
    fn of(report: &Report) -> Names {
        let mut names = Vec::new();
        let mut add = |name: &str, replacement: &str| {
            if name.chars().count() >= SHORTEST && name != "root" && !name.starts_with('[') {
                names.push((name.to_string(), replacement.to_string()));
            }
        };
        for name in ["USER", "LOGNAME", "USERNAME"] {
            add(&std::env::var(name).unwrap_or_default(), USER);
        }
        for (number, name) in machines(report).iter().enumerate() {
            add(name, &numbered_host(number));
        }
        add(&machine(), HOST);
        let settings = report.runs.iter().map(|run| &run.settings).chain([&report.settings]).flatten();
        settings.filter(|(name, _)| name == PROMPT_HASH).for_each(|(_, hash)| add(hash, PROMPT));
        let commands = report.runs.iter().map(|run| &run.command).chain([&report.command]);
        for command in commands {
            private_values(command).for_each(|value| add(value, PROMPT));
        }
        // Users of the machines of other runs, as far as a path names them.
        each_text(&serde_json::to_value(report).unwrap_or_default(), &mut |text| {
            users(text).for_each(|user| add(user, USER));
        });
        // The first replacement of a name counts.
        names.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        names.dedup_by(|(later, _), (first, _)| later == first);
        Names(names)
    }

    /// Replaces every text in a value.
    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(all) => all.into_iter().map(|v| self.value(v)).collect(),
            Value::Object(all) => all.into_iter().map(|(k, v)| (k, self.value(v))).collect(),
            other => other,
        }
    }

    /// Replaces the paths and names in a text.
    fn text(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((begin, end)) = absolute_path(rest, out.chars().next_back()) {
            out.push_str(&rest[..begin]);
            out.push_str(&self.path(&rest[begin..end]));
            rest = &rest[end..];
        }
        out.push_str(rest);
        self.0.iter().fold(out, |out, (name, replacement)| replace_word(&out, name, replacement))
    }

    /// Shortens a path to its last component.
    fn path(&self, path: &str) -> String {
        let is_system = SYSTEM.iter().any(|system| path.starts_with(system));
        if is_system || !path.contains(['/', '\\']) {
            return path.into();
        }
        let name = path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or_default();
        match HOMES.iter().any(|home| path.strip_suffix(name).is_some_and(|folder| folder.ends_with(home))) {
            true => PATH.into(),
            false => format!("{PATH}/{name}"),
        }
    }

    /// Shortens the path of "model FILE" and "graph FILE".
    fn work(&self, work: &str) -> String {
        match work.split_once(' ') {
            Some((kind @ ("model" | "graph"), path)) => format!("{kind} {}", self.text(&self.path(path))),
            _ => self.text(work),
        }
    }

    /// Shortens the path in the work of a line of statistics, which circumstances follow.
    fn work_of_line(&self, line: &str, report: &Report) -> String {
        let works = report.runs.iter().filter(|run| line.starts_with(&run.work)).map(|run| run.work.len());
        let (work, circumstances) = line.split_at(works.max().unwrap_or(line.len()));
        self.work(work) + &self.text(circumstances)
    }

    /// Replaces the private values of a command line, and the paths in it, relative ones too.
    fn command(&self, command: &[String]) -> Vec<String> {
        let mut after = "";
        let replaced = command.iter().map(|argument| {
            let argument = argument.as_str();
            let (option, value) = argument.split_once('=').unwrap_or((argument, ""));
            let known = std::mem::replace(&mut after, argument);
            if PRIVATE.contains(&known) {
                PROMPT.to_string()
            } else if PRIVATE.contains(&option) && !value.is_empty() {
                format!("{option}={PROMPT}")
            } else if option.starts_with("--") && !value.is_empty() {
                format!("{option}={}", self.text(&self.path(value)))
            } else {
                self.text(&self.path(argument))
            }
        });
        replaced.collect()
    }
}

/// Returns the names of the machines of a report, each once.
fn machines(report: &Report) -> Vec<&str> {
    let mut machines = Vec::new();
    for host in report.runs.iter().map(|run| &run.host).chain([&report.host]) {
        if !host.name.is_empty() && !machines.contains(&host.name.as_str()) {
            machines.push(&host.name);
        }
    }
    machines
}

/// Returns the values of the private options of a command line.
fn private_values(command: &[String]) -> impl Iterator<Item = &str> {
    let following = command.windows(2).filter(|pair| PRIVATE.contains(&pair[0].as_str()));
    let joined = command.iter().filter_map(|argument| argument.split_once('='));
    let joined = joined.filter(|(option, _)| PRIVATE.contains(option)).map(|(_, value)| value);
    following.map(|pair| pair[1].as_str()).chain(joined)
}

fn each_text(value: &Value, receive: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => receive(text),
        Value::Array(all) => all.iter().for_each(|v| each_text(v, receive)),
        Value::Object(all) => all.values().for_each(|v| each_text(v, receive)),
        _ => {}
    }
}

/// Returns the names of users in the paths of a text.
fn users(text: &str) -> impl Iterator<Item = &str> {
    HOMES.iter().flat_map(move |home| text.split(home).skip(1)).map(|rest| {
        let end = rest.find(|c: char| c.is_whitespace() || "/\\'\"`:;,()<>".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Returns the range of the first absolute path in a text that follows `before`. A path with spaces ends at the
/// first one, unless it is quoted.
fn absolute_path(text: &str, before: Option<char>) -> Option<(usize, usize)> {
    let starts = |at: usize| {
        let before = text[..at].chars().next_back().or(before);
        let is_start =
            before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '/' | '.' | '-' | '_' | ']' | '\\'));
        let path = &text[at..];
        let drive = path.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
            && (path[1..].starts_with(":\\") || path[1..].starts_with(":/"));
        let rooted = ["/", "~/", "\\\\"].iter().any(|root| path.strip_prefix(root).is_some_and(begins_name));
        is_start && (rooted || drive)
    };
    let begin = text.char_indices().map(|(at, _)| at).find(|&at| starts(at))?;
    let quote = text[..begin].chars().next_back().or(before).filter(|c| matches!(c, '\'' | '"' | '`'));
    let path = &text[begin..];
    let ends = |c: char| match quote {
        Some(quote) => c == quote,
        None => c.is_whitespace() || "'\"`;,()<>|".contains(c),
    };
    // A colon ends a path ("PATH: error", "PATH:PATH"), but not the name of a drive.
    let drive = if path.as_bytes().get(1) == Some(&b':') { 2 } else { 0 };
    let end = path[drive..].find(|c: char| ends(c) || c == ':').map_or(path.len(), |at| at + drive);
    Some((begin, begin + end))
}

fn begins_name(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// Replaces a name wherever it is not part of a longer word.
fn replace_word(text: &str, name: &str, replacement: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(name) {
        let end = at + name.len();
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_word = !inside(before) && !inside(rest[end..].chars().next());
        out.push_str(&rest[..at]);
        out.push_str(if is_word { replacement } else { name });
        rest = &rest[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::CompareOptions;
    use super::super::report::{BackendReport, Finding, Host, Record, Run, Statistics, Verdict};
    use super::*;

    /// Every text of a report that a user, a machine, a path or a prompt can be in.
    #[test]
    fn nothing_private_is_left() {
        let private = "/home/anna/my models/x.gguf";
        let text = format!("'{private}': no; /home/anna/lib:/opt/rocm/lib, and anna said 'a secret wish'");
        let command: Vec<String> =
            ["/home/anna/bin/compare", "--prompt", "a secret wish", "--tokens=999999917,18", "--model"]
                .into_iter()
                .chain([private, "--out", "anna/out", "--ops", "RELU"])
                .map(String::from)
                .collect();
        let record = Record {
            message: Some(text.clone()),
            library: Some("/opt/rocm-7/lib/libamdhip64.so.7".into()),
            token_ids: vec![1, 2],
            ..Record::default()
        };
        let run = |name: &str| Run {
            command: command.clone(),
            folder: "/srv/anna".into(),
            work: format!("model {private}"),
            host: Host { name: name.into(), ..Host::default() },
            settings: vec![(PROMPT_HASH.into(), "0123456789abcdef".into())],
            ..Run::default()
        };
        let line = |name: &str| Statistics {
            work: format!(
                "model {private}; prompt 0123456789abcdef; VK_ICD_FILENAMES=/home/anna/x.json; host {name}"
            ),
            ..Statistics::default()
        };
        let backend = BackendReport {
            overrides: vec![("LD_LIBRARY_PATH".into(), "/home/anna/lib:/usr/lib/x".into())],
            ..BackendReport::default()
        };
        let report = Report {
            command: command.clone(),
            work: format!("model {private}"),
            backends: vec![backend],
            records: vec![record],
            host: Host { name: "annas-desk".into(), ..Host::default() },
            runs: vec![run("annas-desk"), run("tower"), run("mi")],
            statistics: vec![line("annas-desk"), line("tower")],
            verdict: Verdict {
                findings: vec![text],
                details: vec![Finding {
                    next: Some("compare --model '/home/anna/Ursula models/x.gguf' --backends hip".into()),
                    ..Finding::default()
                }],
                ..Verdict::default()
            },
            cure_command: Some("compare --resume 'for mrs smith/out' --cure".into()),
            ..Report::new(&CompareOptions::default())
        };
        let redacted = report.redacted().unwrap();
        let json = serde_json::to_string(&redacted).unwrap();
        for word in [
            "anna",
            "secret",
            "wish",
            "999999917",
            "my models",
            "Ursula",
            "smith",
            "/home",
            "/srv",
            "tower",
            "\"mi\"",
            "0123456789",
        ] {
            assert!(!json.contains(word), "{word}: {json}");
        }
        assert_eq!(redacted.work, "model [path]/x.gguf");
        let next = redacted.verdict.details[0].next.as_deref();
        assert_eq!(next, Some("compare --model [path]/x.gguf --backends hip"));
        assert_eq!(redacted.cure_command.as_deref(), Some("compare --resume [path]/out --cure"));
        assert_eq!(
            redacted.verdict.findings[0],
            "'[path]/x.gguf': no; [path]/lib:/opt/rocm/lib, and [user] said '[prompt]'"
        );
        assert_eq!(redacted.backends[0].overrides[0].1, "[path]/lib:/usr/lib/x");
        let last = &redacted.command[redacted.command.len() - 4..];
        assert_eq!(last, ["--out", "[path]/out", "--ops", "RELU"]);
        assert_eq!(redacted.records[0].library.as_deref(), Some("/opt/rocm-7/lib/libamdhip64.so.7"));
        assert!(redacted.records[0].token_ids.is_empty());
        let host = |at: usize| redacted.runs[at].host.name.as_str();
        assert_eq!([host(0), host(1), host(2)], ["[host]", "[host 2]", "[host 3]"]);
        let circumstances = "prompt [prompt]; VK_ICD_FILENAMES=[path]/x.json";
        let line = |host: &str| format!("model [path]/x.gguf; {circumstances}; host {host}");
        let works: Vec<String> = redacted.statistics.iter().map(|s| s.work.clone()).collect();
        assert_eq!(works, [line("[host]"), line("[host 2]")]);
        // A second time nothing changes.
        assert_eq!(redacted.redacted().unwrap(), redacted);
    }

    #[test]
    fn words_and_rates_stay() {
        let names = Names(vec![("ann".into(), USER.into())]);
        for text in ["a/b of 3 t/s", "channel", "1/2; I/O", "MUL_MAT(a[1,2]/b)", "https://mesa3d.org"] {
            assert_eq!(names.text(text), text);
        }
        assert_eq!(names.text("C:\\Users\\ann\\x.dll"), "[path]/x.dll");
        assert_eq!(names.text("~/.cache/x: ann"), "[path]/x: [user]");
    }
}
