//! Kernels of `kernels/` for a virtual gfx906, compiled with the shipped headers.

use std::path::Path;
use std::process::Command;

/// Compiles a source with definitions (`NAME=value`) to a code object; `None` if there is no compiler.
pub(crate) fn compile(source: &str, definitions: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in hip_kernels::sources() {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(source);
    let object = folder.path().join("object");
    let named = std::env::var("DIPTYCH_HIP_CLANG").ok();
    let names = (19..=22).map(|v| format!("clang-{v}"));
    for clang in named.into_iter().chain(names) {
        let mut command = Command::new(&clang);
        command.args([
            "-x",
            "hip",
            "--cuda-device-only",
            "-nogpuinc",
            "-nogpulib",
            "--no-gpu-bundle-output",
            "-c",
        ]);
        command.args(["-mcode-object-version=5", "--offload-arch=gfx906", "-w"]).args(hip_kernels::OPTIONS);
        command.args(definitions.iter().map(|d| format!("-D{d}")));
        command.arg("-I").arg(folder.path()).arg(&source).arg("-o").arg(&object);
        let Ok(output) = command.output() else { continue };
        assert!(output.status.success(), "{clang}: {}", String::from_utf8_lossy(&output.stderr));
        return Some(std::fs::read(object).unwrap());
    }
    eprintln!("skipped: no clang-19 or later");
    None
}
