//! Faults reach the runtime as those of a card do.

use crate::roots::{finish, kernels, program, roots, text};

/// Kernels that the processor stops are reported, and the program ends.
#[test]
fn bugs_of_kernels_are_reported() {
    let Some(kernels) = kernels("gfx906") else { return println!("SKIPPED: there is no clang-19") };
    for root in roots() {
        // 5.2.3 has no thread that waits for page faults: it would wait for good.
        let faults: &[(&str, &str)] = match root.version.starts_with("5.2") || root.version == "installed" {
            true => &[("illegal", "illegal")],
            false => &[("illegal", "illegal"), ("out_of_bounds", "outside")],
        };
        for (kernel, words) in faults {
            let mut command = root.command(program());
            let output = finish(command.arg(&kernels).args(["fault", kernel]));
            let said = text(&output);
            assert!(
                said.contains("virtual-kfd: queue") && said.contains(words),
                "{} {kernel}: {said}",
                root.version
            );
            assert!(!said.contains("after the fault: 0"), "{} {kernel}: {said}", root.version);
        }
    }
}
