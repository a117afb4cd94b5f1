//! Kernels of `kernels/` for a virtual gfx906, compiled with the shipped headers. They are kept in the store of
//! compiled kernels, because most of their tests' time is the compiler's.

#[path = "../../../hip-kernels/build/store.rs"]
#[allow(dead_code)]
mod store;

use std::path::Path;
use std::process::Command;
use store::Store;

/// Compiles a source with definitions (`NAME=value`) to a code object; `None` if there is no compiler.
pub(crate) fn compile(source: &str, definitions: &[&str]) -> Option<Vec<u8>> {
    let Some((clang, version)) = compiler() else {
        eprintln!("skipped: no clang-19 or later");
        return None;
    };
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    let own = ["written.h", source].map(|name| std::fs::read_to_string(kernels.join(name)).unwrap());
    let options = options(definitions);
    let store = Store::open(store::user_cache().as_deref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let name = Store::name("test-kernels", &(version, &own, hip_kernels::sources(), &options));
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in hip_kernels::sources() {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let object = folder.path().join("object");
        let mut command = Command::new(&clang);
        command.args(&options).arg("-I").arg(folder.path()).arg(kernels.join(source)).arg("-o").arg(&object);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{clang}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(std::fs::read(object).unwrap())
    };
    Some(store.get_or_make(&name, make).expect("it compiles, or panics"))
}

/// Returns the first compiler that runs, and its version.
fn compiler() -> Option<(String, Vec<u8>)> {
    let named = std::env::var("DIPTYCH_HIP_CLANG").ok();
    let names = (19..=22).map(|v| format!("clang-{v}"));
    named.into_iter().chain(names).find_map(|clang| {
        let output = Command::new(&clang).arg("--version").output().ok()?;
        output.status.success().then_some((clang, output.stdout))
    })
}

fn options(definitions: &[&str]) -> Vec<String> {
    let output =
        ["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-c"];
    let target = ["-mcode-object-version=5", "--offload-arch=gfx906", "-w"];
    let definitions = definitions.iter().map(|d| format!("-D{d}"));
    let named = output.into_iter().chain(target).chain(hip_kernels::OPTIONS.iter().copied());
    named.map(String::from).chain(definitions).collect()
}
