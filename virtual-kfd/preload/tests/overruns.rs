//! Accesses behind what a program asked for, of which the kernel driver sees whole pages.

use crate::roots::{compiled, finish, kernels, program, roots, text};

/// Words of the memory.
const WORDS: u32 = 250;

#[test]
fn an_access_behind_the_memory_is_reported_if_asked_for() {
    let Some(kernels) = kernels("gfx906") else { return println!("SKIPPED: there is no clang-19") };
    for root in roots() {
        for memory in ["device", "host"] {
            let run = |words: u32, checks: &str| {
                let mut command = root.command(&compiled("overrun"));
                command.arg(&kernels).args([memory, &words.to_string()]).env("VIRTUAL_KFD_OVERRUNS", checks);
                let output = finish(&mut command);
                let said = text(&output);
                (
                    output.status.success() && said.ends_with("end\n"),
                    format!("{} {memory}: {said}", root.version),
                )
            };
            for (words, checks) in [(WORDS, "1"), (WORDS + 1, "0")] {
                let (ends, said) = run(words, checks);
                assert!(ends && !said.contains("virtual-kfd"), "{words} words, {checks}: {said}");
            }
            let (ends, said) = run(WORDS + 1, "1");
            assert!(!ends && said.contains("out of bounds (kernel fill, "), "{said}");
            assert!(!said.contains("killed after"), "{said}");
        }
    }
}

/// Runtimes and programs that stay inside their memory are not disturbed.
#[test]
fn everything_else_works_as_without_it() {
    let Some(kernels) = kernels("gfx906") else { return println!("SKIPPED: there is no clang-19") };
    for root in roots() {
        let mut command = root.command(&program());
        let output = finish(command.arg(&kernels).env("VIRTUAL_KFD_OVERRUNS", "1"));
        let said = text(&output);
        assert!(output.status.success() && said.contains("\nend\n"), "{}: {said}", root.version);
        assert!(!said.contains("virtual-kfd"), "{}: {said}", root.version);
    }
}
