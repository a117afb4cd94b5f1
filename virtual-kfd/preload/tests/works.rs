//! Everything works, on each runtime and with each kind of card.

use crate::roots::{finish, kernels, program, roots, text};

/// Runs the program on all roots with some variables.
fn runs(target: &'static str, variables: &[(&str, &str)]) {
    runs_from("", target, variables);
}

/// As [`runs`], on those of a version and newer ones.
fn runs_from(oldest: &str, target: &'static str, variables: &[(&str, &str)]) {
    let Some(kernels) = kernels(target) else { return println!("SKIPPED: there is no clang-19") };
    let roots = roots();
    if roots.is_empty() {
        println!("SKIPPED: no libamdhip64 is installed, and scripts/rocm-roots.sh has unpacked none");
    }
    // What is installed may be of any version.
    let knows = |version: &str| version >= oldest && (version != "installed" || oldest.is_empty());
    for root in roots.into_iter().filter(|root| knows(&root.version)) {
        let counts = tempfile::NamedTempFile::new().unwrap();
        let mut command = root.command(&program());
        command.arg(&kernels).env("VIRTUAL_KFD_COUNTS", counts.path()).envs(variables.iter().copied());
        let output = finish(&mut command);
        let said = text(&output);
        assert!(output.status.success() && said.contains("\nend\n"), "{}: {said}", root.version);
        assert!(
            said.matches("right ").count() >= 20 && !said.contains("virtual-kfd"),
            "{}: {said}",
            root.version
        );
        let counts = std::fs::read_to_string(counts.path()).unwrap();
        assert!(counts.contains("wait\tlost wake-ups\t0\n"), "{}: {counts}", root.version);
        assert!(counts.contains("kernel\tthrough_scratch\t"), "{}: {counts}", root.version);
        // Packets and commands; ioctls of other drivers than Linux's own may be asked for.
        assert!(!counts.contains("\nunknown\t"), "{}: {counts}", root.version);
    }
}

#[test]
fn on_an_mi50() {
    runs("gfx906", &[]);
}

#[test]
fn on_a_vega_without_copy_engines() {
    runs("gfx900", &[("VIRTUAL_KFD_CARDS", "vega56"), ("HSA_ENABLE_SDMA", "0")]);
}

#[test]
fn with_a_large_bar() {
    runs("gfx906", &[("VIRTUAL_KFD_LARGE_BAR", "1"), ("VIRTUAL_KFD_CARDS", "radeon-vii")]);
}

#[test]
fn on_two_cards() {
    runs("gfx906", &[("VIRTUAL_KFD_CARDS", "mi50,mi50")]);
}

#[test]
fn on_an_mi210() {
    runs("gfx90a", &[("VIRTUAL_KFD_CARDS", "mi210")]);
}

#[test]
fn on_a_radeon_7900() {
    runs_from("5.7.1", "gfx1100", &[("VIRTUAL_KFD_CARDS", "rx7900xtx")]);
}

/// Kernels copy in place of the copy engines.
#[test]
fn on_a_radeon_7900_without_copy_engines() {
    runs_from("6.4.3", "gfx1100", &[("VIRTUAL_KFD_CARDS", "rx7900xtx"), ("HSA_ENABLE_SDMA", "0")]);
}

#[test]
fn on_a_strix_halo() {
    runs_from("6.4.3", "gfx1151", &[("VIRTUAL_KFD_CARDS", "strix-halo")]);
}

#[test]
fn on_an_mi300x() {
    runs_from("5.7.1", "gfx942", &[("VIRTUAL_KFD_CARDS", "mi300x")]);
}
