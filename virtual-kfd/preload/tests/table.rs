//! A plain HIP program under each fault and of each version of the kernel's interface: the tables of the README.

use crate::roots::{Root, compiled, finish, kernels, roots, text};
use std::path::Path;
use std::sync::Mutex;

/// Seconds that a function may take, and those after which one that is expected to hang does.
const SECONDS: [&str; 2] = ["60", "10"];
/// Programs at the same time.
const PROGRAMS: usize = 4;

/// Words of the program, or of the runtime before it aborts.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// A right result.
    Nothing,
    Wrong,
    /// An error of a function.
    Error(&'static str),
    /// A function does not return.
    Hangs(&'static str),
    /// The runtime ends the process and says this.
    Aborts(&'static str),
}
use Sees::{Aborts, Error, Hangs, Nothing, Wrong};

const FAULT: &str = "Memory access fault by GPU node-1";
const ILLEGAL: &str = "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION";
const HANG: &str = "HW Exception by GPU node-1";
const NO_EVENT: &str = "Failed on creating VM fault signal";
const NO_CODE: &str = "Code buffer allocation failed";
const NO_AVAILABLE: &str = "hsaKmtAvailableMemory failed";

/// By fault: versions 5.2.3 and 6.4.3. Most dispatches before the twelfth are the runtime's own.
const FAULTS: [(&str, Sees, Sees); 16] = [
    ("dispatch:12:stall", Hangs("hipStreamSynchronize"), Hangs("hipStreamSynchronize")),
    ("dispatch:12:page-fault", Aborts(FAULT), Aborts(FAULT)),
    ("dispatch:12:illegal", Aborts(ILLEGAL), Aborts(ILLEGAL)),
    ("dispatch:12:reset", Hangs("hipStreamSynchronize"), Aborts(HANG)),
    ("dispatch:12:skip", Wrong, Wrong),
    ("dispatch:12:late=50", Nothing, Nothing),
    ("dispatch:12:lost", Nothing, Nothing),
    ("copy:2:stall", Hangs("hipMemcpy"), Hangs("hipMemcpy")),
    ("copy:2:skip", Wrong, Wrong),
    ("copy:2+:late=20", Nothing, Nothing),
    ("CREATE_QUEUE:1+:errno=12", Error("hipModuleLoad = 303"), Error("hipModuleLoad = 209")),
    ("CREATE_EVENT:1+:errno=12", Aborts(NO_EVENT), Aborts(NO_EVENT)),
    ("ALLOC_MEMORY_OF_GPU:20+:errno=12", Aborts(NO_CODE), Aborts(NO_CODE)),
    ("ACQUIRE_VM:1+:errno=16", Error("hipInit = 101"), Error("hipInit = 100")),
    ("WAIT_EVENTS:3:errno=5", Nothing, Nothing),
    ("WAIT_EVENTS:3+:errno=5", Nothing, Nothing),
];

/// By minor version of the interface, up to and with it.
const VERSIONS: [(u32, Sees, Sees); 4] = [
    (3, Aborts("Incompatible kernel and userspace"), Error("hipInit = 100")),
    (4, Nothing, Aborts(NO_AVAILABLE)),
    (8, Nothing, Aborts(NO_AVAILABLE)),
    (18, Nothing, Nothing),
];

/// Runs the program with a variable, and returns what is not as expected.
fn differs(root: &Root, kernels: &Path, variable: (&str, &str), sees: Sees) -> Option<String> {
    let mut command = root.command(&compiled("watch"));
    let seconds = SECONDS[usize::from(matches!(sees, Hangs(_)))];
    command.arg(kernels).arg(seconds).env(variable.0, variable.1);
    let output = finish(&mut command);
    let said = text(&output);
    let line = |words: &str| said.lines().any(|line| line == words);
    let is_right = match sees {
        Nothing => line("end"),
        Wrong => line("wrong result"),
        Error(what) => line(&format!("error {what}")),
        Hangs(function) => line(&format!("hang in {function}")),
        Aborts(words) => output.status.code().is_none_or(|code| code > 128) && said.contains(words),
    };
    (!is_right)
        .then(|| format!("{} {variable:?}: not {sees:?}, but {:?}\n{said}", root.version, output.status))
}

/// Runs all rows on the runtimes that the table has.
fn all(rows: &[(&str, String, [Sees; 2])]) {
    let Some(kernels) = kernels("gfx906") else { return println!("SKIPPED: there is no clang-19") };
    compiled("watch");
    let roots = roots();
    let index = |root: &Root| ["5.2.3", "6.4.3"].iter().position(|version| root.version == *version);
    let columns = roots.iter().filter_map(|root| Some((root, index(root)?)));
    let runs = columns.flat_map(|(root, i)| rows.iter().map(move |row| (root, row, row.2[i])));
    let runs = Mutex::new(runs.collect::<Vec<_>>());
    let wrong = Mutex::new(Vec::new());
    let next = || runs.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            scope.spawn(|| {
                while let Some((root, (variable, value, _), sees)) = next() {
                    let found = differs(root, &kernels, (variable, value), sees);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_are_seen_as_the_table_says() {
    let rows = FAULTS.map(|(fault, a, b)| ("VIRTUAL_KFD_FAULT", fault.to_string(), [a, b]));
    all(&rows);
}

#[test]
fn versions_of_the_interface() {
    let rows = VERSIONS.map(|(minor, a, b)| ("VIRTUAL_KFD_ABI", format!("1.{minor}"), [a, b]));
    all(&rows);
}

/// The README has a row for each fault.
#[test]
fn the_readme_has_the_table() {
    let readme = include_str!("../../README.md");
    for (fault, ..) in FAULTS {
        assert!(readme.contains(&format!("| `{fault}` |")), "{fault}");
    }
}
