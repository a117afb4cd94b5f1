//! Memory that goes through descriptors, and what a fork leaves.

use crate::roots::{Root, compiled, finish, preload, roots, text};
use std::process::{Command, Stdio};

/// Runs a mode of the program on a root.
fn shared(root: &Root, mode: &str) -> String {
    let mut command = root.command(&compiled("share"));
    // Version 6.4 uses an ioctl that Linux does not have, unless it is told not to.
    let output = finish(command.arg(mode).env("HSA_ENABLE_IPC_MODE_LEGACY", "0"));
    format!("{} {mode}: {:?}\n{}", root.version, output.status.code(), text(&output))
}

/// Runtimes with virtual memory management map one memory at several addresses, and import it from a descriptor.
#[test]
fn virtual_memory_management() {
    for root in roots() {
        let said = shared(&root, "vmm");
        match root.version.as_str() {
            // Version 5 has the functions, and refuses them by itself.
            "5.2.3" | "5.7.1" => assert!(!said.contains("wrong"), "{said}"),
            "6.4.3" | "7.2.4" => assert!(said.contains("\nend\n"), "{said}"),
            _ => assert!(!said.contains("wrong"), "{said}"),
        }
    }
}

/// Two processes share memory of a card.
#[test]
fn memory_of_another_process() {
    for root in roots() {
        let said = shared(&root, "ipc");
        match root.version.as_str() {
            "6.4.3" | "7.2.4" => assert!(said.contains("\nend\n"), "{said}"),
            _ => assert!(!said.contains("wrong what"), "{said}"),
        }
    }
}

/// Children of a program that has used the card end, run others, or get an error: none hangs, and the parent goes on.
#[test]
fn children_of_a_program() {
    for root in roots() {
        let said = shared(&root, "children");
        assert!(said.contains("error hipMalloc = 2\nthe child: exit 2\n"), "{said}");
        assert!(said.matches("right ").count() == 4 && said.contains("\nend\n"), "{said}");
    }
}

/// Needs no ROCm: a plain program that opens the devices, forks, duplicates and closes.
#[test]
fn descriptors_and_forks() {
    let mut command = Command::new(compiled("share"));
    command.args(["none", "fork"]).env("LD_PRELOAD", preload());
    let output = finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&output);
    assert!(output.status.success() && said.ends_with("end\n"), "{said}");
    assert_eq!(said.matches("right ").count(), 8, "{said}");
}
