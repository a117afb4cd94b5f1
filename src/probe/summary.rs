//! The report in one sentence for a person: on each path to a card, on a card, on a machine.

use super::outcome::Smoke;
use super::report::{AccessPath, DeviceReport, Gate, Line, State, Verdict};

/// Returns the line that stops a path. Missing official support stops no card, and AMD's own files are for other
/// programs.
pub(super) fn block(way: AccessPath, lines: &[Line]) -> Option<&Line> {
    let stops = |line: &&Line| {
        line.state == State::Blocks
            && (line.way == way || line.way == AccessPath::Card)
            && !matches!(line.gate, Gate::Support | Gate::VendorFiles | Gate::Smoke)
    };
    // A cause that is named in few words explains more than the symptoms of the layers above it.
    lines.iter().find(|line| stops(line) && line.cause.is_some()).or_else(|| lines.iter().find(stops))
}

/// Returns the sentence of a path. `backend` is its name on the command line.
pub(super) fn of_path(way: AccessPath, lines: &[Line], smoke: &Smoke, backend: &str) -> String {
    let name = way.name();
    let works = smoke.runs > 0 && smoke.good == smoke.runs;
    match block(way, lines) {
        _ if works => format!("{name} works: use --backend {backend}"),
        _ if smoke.good > 0 => {
            format!("{name} is unstable: {} of {} runs succeeded", smoke.good, smoke.runs)
        }
        Some(line) => {
            with_cure(format!("{name} is blocked by {}: {}", line.gate.name(), cause(line)), cure(line))
        }
        None => match (&smoke.failure, doubt(way, lines)) {
            (Some((cause, cure)), _) => with_cure(format!("{name} fails: {cause}"), Some(cure.clone())),
            (None, Some(line)) => {
                with_cure(format!("{name} is in doubt by {}: {}", line.gate.name(), cause(line)), cure(line))
            }
            (None, None) => format!("{name} is free: use --backend {backend}"),
        },
    }
}

/// Returns the sentence of a card.
pub(super) fn of_card(verdicts: &[Verdict]) -> String {
    let sentences: Vec<&str> = verdicts.iter().map(|verdict| verdict.sentence.as_str()).collect();
    sentences.join("; ")
}

/// Returns one sentence for each card, with its name if there are several; for a machine without a card, one that
/// says what is missing. Views of the host's processor are no cards.
pub(super) fn of_machine(machine: &[Line], devices: &[DeviceReport]) -> Vec<String> {
    let cards: Vec<&DeviceReport> =
        devices.iter().filter(|device| !device.views.iter().any(|view| view.is_processor)).collect();
    match cards.as_slice() {
        [] => {
            // The first line is about the card; a refusal of the runtime explains a library that is broken.
            let refused = |line: &&Line| line.gate == Gate::Recognition;
            let shown: Vec<&Line> = machine.iter().take(1).chain(machine.iter().find(refused)).collect();
            let of = |line: &Line| match line.gate {
                Gate::Recognition => with_cure(format!("hip: {}", cause(line)), cure(line)),
                _ => cause(line),
            };
            let missing = match shown.as_slice() {
                [] => "none is listed".into(),
                lines => lines.iter().map(|line| of(line)).collect::<Vec<_>>().join("; "),
            };
            vec![format!("no graphics card can be used: {missing}; use --backend cpu")]
        }
        [card] => vec![card.summary.clone()],
        cards => cards.iter().map(|card| format!("{}: {}", label(card), card.summary)).collect(),
    }
}

fn label(card: &DeviceReport) -> String {
    card.pci.as_ref().map_or_else(|| card.name.clone(), |pci| format!("{} at {pci}", card.name))
}

/// Returns a line on which it depends whether a path is usable, but that could not be judged.
fn doubt(way: AccessPath, lines: &[Line]) -> Option<&Line> {
    let counts = |gate| matches!(gate, Gate::Recognition | Gate::Firmware | Gate::Runtime | Gate::Code);
    lines.iter().find(|line| line.state == State::Unknown && line.way == way && counts(line.gate))
}

fn with_cure(text: String, cure: Option<String>) -> String {
    cure.map_or(text.clone(), |cure| format!("{text}; {cure}"))
}

/// Returns the cause of a block: its words, or the first clause of the evidence.
fn cause(line: &Line) -> String {
    line.cause.clone().unwrap_or_else(|| line.evidence.split("; ").next().unwrap_or_default().to_string())
}

/// Returns the remedy: its words, or the first advice without its source.
fn cure(line: &Line) -> Option<String> {
    let first = || line.advice.first().map(|text| text.split(" (").next().unwrap_or(text).to_string());
    line.cure.clone().or_else(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::View;

    fn line(gate: Gate, way: AccessPath, state: State) -> Line {
        Line::new(gate, way, state, "/dev/kfd: permission denied; owner root")
    }

    fn smoke(runs: usize, good: usize, failure: Option<(&str, &str)>) -> Smoke {
        let failure = failure.map(|(cause, cure)| (cause.into(), cure.into()));
        Smoke { lines: Vec::new(), runs, good, routes: Vec::new(), card: None, failure }
    }

    #[test]
    fn sentences_of_a_path() {
        let of = |lines: &[Line], smoke: &Smoke| of_path(AccessPath::Hip, lines, smoke, "hip:1");
        let none = smoke(0, 0, None);
        assert_eq!(of(&[], &none), "hip is free: use --backend hip:1");
        assert_eq!(of(&[], &smoke(2, 2, None)), "hip works: use --backend hip:1");
        assert_eq!(of(&[], &smoke(3, 1, None)), "hip is unstable: 1 of 3 runs succeeded");
        let failed = smoke(1, 0, Some(("it hangs in phase upload", "try another copy")));
        assert_eq!(of(&[], &failed), "hip fails: it hangs in phase upload; try another copy");
        let nodes = line(Gate::DeviceNodes, AccessPath::Hip, State::Blocks);
        let with = |advice: &str| nodes.clone().with([advice.to_string()]);
        assert_eq!(
            of(&[with("log in again (as a member)")], &none),
            "hip is blocked by device nodes: /dev/kfd: permission denied; log in again"
        );
        // A layer that names its cause is the reason, not the one that suffers from it.
        let named =
            line(Gate::Recognition, AccessPath::Hip, State::Blocks).because("A=1 hides it", "unset A");
        assert_eq!(of(&[nodes, named], &none), "hip is blocked by recognition: A=1 hides it; unset A");
        let of_vulkan = line(Gate::Runtime, AccessPath::Vulkan, State::Blocks);
        let unsupported = line(Gate::Support, AccessPath::Hip, State::Blocks);
        let vendor = line(Gate::VendorFiles, AccessPath::Hip, State::Blocks);
        assert_eq!(of(&[of_vulkan, unsupported, vendor], &none), "hip is free: use --backend hip:1");
        let unsure =
            line(Gate::Recognition, AccessPath::Hip, State::Unknown).because("A pretends", "unset A");
        assert_eq!(of(&[unsure], &none), "hip is in doubt by recognition: A pretends; unset A");
    }

    /// Each of several cards has its name; a driver's view of the processor is no card.
    #[test]
    fn sentences_of_a_machine() {
        let device = |name: &str, pci: &str, is_processor: bool| DeviceReport {
            name: name.into(),
            ids: None,
            pci: Some(pci.into()),
            target: None,
            views: vec![View { is_processor, ..View::default() }],
            lines: Vec::new(),
            verdicts: Vec::new(),
            routes: Vec::new(),
            cards: Vec::new(),
            summary: format!("{name} is free"),
        };
        let (first, second) = (device("one", "0000:03:00", false), device("two", "0000:43:00", false));
        let llvmpipe = device("llvmpipe", "", true);
        assert_eq!(of_machine(&[], &[first.clone(), llvmpipe.clone()]), ["one is free"]);
        assert_eq!(
            of_machine(&[], &[first, second]),
            ["one at 0000:03:00: one is free", "two at 0000:43:00: two is free"]
        );
        let none = Line::new(Gate::Hardware, AccessPath::Card, State::Blocks, "x")
            .because("the kernel lists none", "y");
        assert_eq!(
            of_machine(&[none], &[llvmpipe]),
            ["no graphics card can be used: the kernel lists none; use --backend cpu"]
        );
    }
}
