//! Faults reach the runtime as those of a card do.

use crate::roots::{finish, kernels, program, roots, text};

/// A kernel that the processor stops is reported with its place, and the runtime ends the program or returns an error:
/// nobody waits for good.
#[test]
fn bugs_of_kernels_are_reported() {
    let Some(kernels) = kernels("gfx906") else { return println!("SKIPPED: there is no clang-19") };
    for root in roots() {
        for (kernel, words) in [("illegal", "is not an instruction"), ("out_of_bounds", "out of bounds")] {
            let mut command = root.command(program());
            let output = finish(command.arg(&kernels).args(["fault", kernel]));
            let said = text(&output);
            let place = format!("{words} (kernel {kernel}, ");
            assert!(
                said.contains("virtual-kfd: queue") && said.contains(&place),
                "{} {kernel}: {said}",
                root.version
            );
            let aborted = !output.status.success() && !said.contains("killed after");
            let reported = said.contains("after the fault: ") && !said.contains("after the fault: 0");
            assert!(aborted || reported, "{} {kernel}: {:?} {said}", root.version, output.status);
        }
    }
}
