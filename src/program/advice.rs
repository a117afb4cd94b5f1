//! Help after an error of a driver: what was waited for, the driver's advice, and the next command.

use super::doing::Wait;
use crate::backends::BackendName;
use crate::crash::situation;
use crate::remedy::remedy;
use crate::shell::quoted;
use ggml_core::sync::lock;
use ggml_core::{Error, Phase};
use std::sync::Mutex;

/// Seconds from which on a line about a wait says what can be done.
const PATIENCE: u64 = 10;

/// Width of lines of advice in characters.
const WIDTH: usize = 100;

/// The backend that the program opened last or is opening, as it is named.
static BACKEND: Mutex<String> = Mutex::new(String::new());

/// Remembers the backend that is about to be opened, also for the handler of fatal signals.
pub(super) fn set_backend(name: &str) {
    *lock(&BACKEND) = name.into();
    situation::BACKEND.set(name);
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    situation::NEXT.set(&short_command(name, &arguments).unwrap_or_default());
}

/// Returns the command of [`compare_command`], without the model if that cannot be stored for a handler of signals.
fn short_command(backend: &str, arguments: &[String]) -> Option<String> {
    let fits = |command: &String| command.is_ascii() && command.len() <= situation::COMMAND;
    command(backend, arguments).filter(fits).or_else(|| command(backend, &[]))
}

fn backend() -> String {
    lock(&BACKEND).clone()
}

/// Returns the command that runs the same work in processes of its own, and names the node of a fault.
fn compare_command(backend: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    command(backend, &arguments)
}

fn command(backend: &str, arguments: &[String]) -> Option<String> {
    let has_driver = backend.parse::<BackendName>().is_ok_and(|name| name.has_driver());
    has_driver.then(|| format!("compare{} --backends {backend},cpu", model(arguments)))
}

/// Returns the model of a command line as an argument, quoted for a shell where needed.
fn model(arguments: &[String]) -> String {
    let following = arguments.windows(2).find(|pair| pair[0] == "--model").map(|pair| pair[1].as_str());
    let joined = || arguments.iter().find_map(|argument| argument.strip_prefix("--model="));
    let Some(path) = following.or_else(joined) else { return String::new() };
    format!(" --model {}", quoted(path))
}

/// Formats a wait; if it is a long one, with what can be done.
pub(super) fn with_help(wait: &Wait) -> String {
    let help = || {
        let remedy =
            remedy(&backend(), &wait.phase).map(|text| format!("\n  try: {text}")).unwrap_or_default();
        let next = compare_command(&backend()).map(|text| format!("\n  next: {text}")).unwrap_or_default();
        format!("{remedy}{next}")
    };
    format!("{wait}{}", if (PATIENCE..2 * PATIENCE).contains(&wait.seconds) { help() } else { String::new() })
}

/// Returns the lines that follow an error.
pub(super) fn lines(error: &Error, wait: Option<&Wait>, warnings: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let phase = error.phase().map(Phase::name);
    let is_of_driver =
        matches!(error, Error::Timeout { .. } | Error::DeviceLost { .. } | Error::Driver { .. });
    if let Some(Wait { call: Some(call), phase: at, .. }) = wait.filter(|_| is_of_driver)
        && phase == Some(at.as_str())
        && !error.to_string().contains(call.as_str())
    {
        lines.push(format!("waited for: {call} in phase {at}"));
    }
    if is_of_driver {
        let remedy = phase.and_then(|phase| remedy(&backend(), phase));
        lines.extend(remedy.map(|text| format!("try: {text}")));
        lines.extend(compare_command(&backend()).map(|command| format!("next: {command}")));
    } else if matches!(error, Error::Unavailable { .. }) {
        lines.push("next: probe".into());
    }
    // A driver's advice repeats the error.
    let said = format!("{error}: ");
    lines.extend(warnings.iter().map(|text| format!("advice: {}", text.strip_prefix(&said).unwrap_or(text))));
    lines.into_iter().map(shown).collect()
}

/// Breaks a line that is too long, unless it is a command, which is pasted as it is.
fn shown(line: String) -> String {
    if line.starts_with("next: ") { line } else { wrapped(&line) }
}

/// Breaks a text into lines at spaces.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_named_as_a_shell_reads_it() {
        let words = |text: &str| text.split('|').map(String::from).collect::<Vec<_>>();
        assert_eq!(model(&words("generate|--model|/m/x.gguf|--prompt|a")), " --model /m/x.gguf");
        assert_eq!(model(&words("generate|--model=my model's.gguf")), " --model 'my model'\\''s.gguf'");
        assert_eq!(model(&words("generate|--prompt|--model")), "");
    }

    #[test]
    fn only_drivers_have_remedies() {
        assert!(remedy("hip", "upload").unwrap().contains("DIPTYCH_HIP_COPIES=kernel"));
        assert!(remedy("vulkan", "upload").unwrap().contains("--backend cpu"));
        assert_eq!((remedy("cpu", "compute"), compare_command("reference")), (None, None));
        assert!(compare_command("hip").unwrap().ends_with(" --backends hip,cpu"));
        assert!(remedy("hip", "enumerate").unwrap().contains("DIPTYCH_HIP_LIBRARY"));
        assert!(!remedy("hip-nvidia", "enumerate").unwrap().contains("libamdhip64"), "it loads libcuda");
    }

    /// A command is one line, and one that a handler of signals cannot store is without its model.
    #[test]
    fn commands_are_whole() {
        let path = format!("/m/{} x.gguf", "y".repeat(150));
        let arguments = ["generate".to_string(), "--model".into(), path.clone()];
        let expected = format!("compare --model '{path}' --backends hip,cpu");
        assert_eq!(short_command("hip", &arguments).as_deref(), Some(expected.as_str()));
        for path in ["/m/ü.gguf".to_string(), "y".repeat(2000)] {
            let arguments = ["generate".to_string(), "--model".into(), path];
            assert_eq!(short_command("hip", &arguments).as_deref(), Some("compare --backends hip,cpu"));
        }
        let line = format!("next: {expected}");
        assert_eq!(shown(line.clone()), line);
        assert!(shown(line.replace("next", "advice")).contains('\n'));
    }

    #[test]
    fn lines_end_at_spaces() {
        let text = wrapped(&format!("a: {}end", "DIPTYCH_HIP_COPIES=kernel ".repeat(20)));
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() > 4, "{text}");
        let words = |text: &str| text.split_whitespace().count();
        assert_eq!(words(&text), 22);
        assert_eq!(wrapped(&"x".repeat(300)), "x".repeat(300));
    }

    /// After an error: what was waited for, what can be tried, the next command, and the driver's advice without the error.
    #[test]
    fn an_error_is_followed_by_help() {
        set_backend("hip");
        let error = Error::Timeout {
            backend: "hip:0".into(),
            phase: Phase::Upload,
            node: None,
            after: std::time::Duration::from_secs(4),
        };
        let wait = Wait { call: Some("hipMemcpyAsync".into()), phase: "upload".into(), seconds: 4 };
        let warnings = [format!("{error}: uploads stall: set A=1"), "another".into()];
        let expected = [
            "waited for: hipMemcpyAsync in phase upload",
            "try: DIPTYCH_HIP_COPIES=kernel: a kernel copies, not the DMA engines",
            "next: compare --backends hip,cpu",
            "advice: uploads stall: set A=1",
            "advice: another",
        ];
        assert_eq!(lines(&error, Some(&wait), &warnings), expected);
        let elsewhere = Wait { phase: "close".into(), ..wait.clone() };
        assert_eq!(lines(&error, Some(&elsewhere), &[]), expected[1..3], "another phase");
        let absent = Error::Unavailable {
            backend: "hip:0".into(),
            missing: ggml_core::Missing::Device,
            phase: Phase::Enumerate,
            reason: "none".into(),
        };
        assert_eq!(lines(&absent, None, &[]), ["next: probe"]);
        assert_eq!(lines(&Error::argument("--prompt", "", "a text"), None, &[]), [""; 0]);
        // While it lasts, the help comes once.
        let help = |seconds| with_help(&Wait { seconds, ..wait.clone() });
        let short = "waiting for hipMemcpyAsync in phase upload, 2 s";
        assert_eq!((help(2).as_str(), help(60).lines().count()), (short, 1));
        let long = "waiting for hipMemcpyAsync in phase upload, 10 s\n  try: DIPTYCH_HIP_COPIES=kernel: a kernel copies, not \
                    the DMA engines\n  next: compare --backends hip,cpu";
        assert_eq!(help(10), long);
    }
}
