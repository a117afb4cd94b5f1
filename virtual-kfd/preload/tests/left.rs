//! Programs leave nothing behind, however they end.

use crate::roots::{compiled, preload, text};
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Needs no ROCm: a plain program that reads the files of the machine, then ends, aborts or is killed.
#[test]
fn no_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    for end in ["end", "abort", "kill"] {
        let mut command = Command::new(compiled("files"));
        command.arg(end).env("LD_PRELOAD", preload()).env("TMPDIR", folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.success(), end == "end", "{end}: {said}");
        assert!(said.ends_with("end\n") && !said.contains("wrong"), "{said}");
        assert_eq!(said.matches("right ").count(), 14, "{said}");
        assert_eq!(names(folder.path()), [""; 0], "{end}");
    }
}

/// Programs of the system see the machine's folders as any others.
#[test]
fn programs_of_the_system_list_the_files() {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("LD_PRELOAD", preload()).env("VIRTUAL_KFD_CARDS", "mi50,vega56");
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.success(), text(&output))
    };
    assert_eq!(run("ls", &["/sys/class/kfd/kfd/topology/nodes"]), (true, "0\n1\n2\n".into()));
    assert_eq!(run("cat", &["/sys/class/drm/renderD129/device/vendor"]), (true, "0x1002\n".into()));
    assert_eq!(run("readlink", &["/sys/class/kfd/kfd"]), (true, "../../devices/virtual/kfd/kfd\n".into()));
    let (_, listed) = run("ls", &["-l", "/dev/dri"]);
    assert!(listed.contains("crw") && listed.contains("renderD129"), "{listed}");
    assert!(!run("cat", &["/sys/class/drm/card7"]).0);
}
