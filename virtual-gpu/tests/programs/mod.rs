//! HIP programs unrelated to inference, compiled with and without optimisation, run on all targets and
//! compared with the same computation in Rust.

use crate::support;

mod arithmetic;
mod control;
mod known;
mod matrix;
mod parallel;

use support::{GFX11, Session, compile};
use virtual_gpu::Target;

/// A HIP source without the prelude, and the options that it needs where wavefronts may have 32 lanes.
#[derive(Clone, Copy)]
struct Source(&'static str, &'static str);

const PRELUDE: &str = include_str!("prelude.h");
const PARALLEL: Source = Source(include_str!("parallel.hip"), "-mwavefrontsize64");
const ARITHMETIC: Source = Source(include_str!("arithmetic.hip"), "");
const KNOWN: Source = Source(include_str!("known.hip"), "");
const CONTROL: Source = Source(include_str!("control.hip"), "");
const MATRIX: Source = Source(include_str!("matrix.hip"), "");

/// Returns targets with a source's options for them.
fn builds(targets: &[Target], source: Source, options: &'static str) -> Vec<(Target, String)> {
    let with = |target: &Target| {
        let more = if GFX11.contains(target) { source.1 } else { "" };
        (*target, format!("{options} {more}"))
    };
    targets.iter().map(with).collect()
}

/// Runs a check on all targets at three levels of optimisation.
fn everywhere(source: Source, check: impl Fn(&Session)) {
    on_targets(&Target::ALL, source, check);
}

/// Runs a check on some targets at three levels of optimisation.
fn on_targets(targets: &[Target], source: Source, check: impl Fn(&Session)) {
    for level in ["-O0", "-O1", "-O3"] {
        for (target, options) in builds(targets, source, level) {
            // Both encode instructions in the same way; optimised code has what one has beyond the other.
            if matches!(target, Target::Gfx1151 | Target::Gfx942) && level != "-O3" {
                continue;
            }
            let object = compile::hip(target, &options, &format!("{PRELUDE}\n{}", source.0));
            check(&Session::new(target, level, &object));
        }
    }
}

/// As [`everywhere`], and once more with so few registers that most values are spilled to scratch.
fn everywhere_spilling(source: Source, check: impl Fn(&Session)) {
    everywhere(source, &check);
    for (target, options) in builds(&Target::ALL, source, "-O3 -DFEW_REGISTERS") {
        let object = compile::hip(target, &options, &format!("{PRELUDE}\n{}", source.0));
        check(&Session::new(target, &options, &object));
    }
}

/// Objects compiled for a specific setting of a processor's features run as well.
#[test]
fn processors_with_features() {
    for features in ["gfx906:sramecc+:xnack-", "gfx906:sramecc-:xnack-"] {
        let options = format!("-O1 --no-offload-arch=gfx906 --offload-arch={features}");
        let target = virtual_gpu::Target::Gfx906;
        let object = compile::hip(target, &options, &format!("{PRELUDE}\n{}", CONTROL.0));
        let session = Session::new(target, features, &object);
        let (from, to) = (session.upload(&[27u32; 64]), session.allocate(256));
        session.run("collatz", [1; 3], [64, 1, 1], &support::Arguments::new().add(from).add(to).add(64u32));
        assert_eq!(session.download::<u32>(to, 64), [111; 64]);
    }
}

/// Returns the path of the device library of mathematical functions, if installed.
fn device_library() -> Option<std::path::PathBuf> {
    let roots = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/opt/rocm",
        "/usr/lib/llvm-19/lib/clang/19",
    ];
    let named = std::env::var("HIP_DEVICE_LIB_PATH").ok().map(std::path::PathBuf::from);
    let folders = roots.iter().map(|root| std::path::Path::new(root).join("amdgcn/bitcode"));
    named.into_iter().chain(folders).find(|path| path.join("ocml.bc").exists())
}

/// erf, sin and pow come from the device library; the test is skipped without it.
#[test]
fn device_library_functions() {
    let Some(library) = device_library() else {
        eprintln!("skipped: no AMD device library (ocml.bc) is installed");
        return;
    };
    let source = format!(
        "{PRELUDE}\nextern \"C\" DEVICE double __ocml_erf_f64(double);\nextern \"C\" DEVICE double \
         __ocml_sin_f64(double);\nextern \"C\" DEVICE double __ocml_pow_f64(double, double);\nGLOBAL void functions(\
         const double* in, double* out) {{ u32 i = local_x(); out[3 * i] = __ocml_erf_f64(in[i]); out[3 * i + 1] = \
         __ocml_sin_f64(in[i]); out[3 * i + 2] = __ocml_pow_f64(2.0, in[i]); }}"
    );
    let mut options = "-O1".to_owned();
    for file in
        ["ocml.bc", "oclc_isa_version_906.bc", "oclc_wavefrontsize64_on.bc", "oclc_unsafe_math_off.bc"]
    {
        options += &format!(" -Xclang -mlink-builtin-bitcode -Xclang {}", library.join(file).display());
    }
    let target = virtual_gpu::Target::Gfx906;
    let session = Session::new(target, "ocml", &compile::hip(target, &options, &source));
    let input: Vec<f64> = (0..64).map(|i| f64::from(i) * 0.37 - 11.0).collect();
    let from = session.upload(&input);
    let to = session.allocate(64 * 24);
    session.run("functions", [1; 3], [64, 1, 1], &support::Arguments::new().add(from).add(to));
    for (x, out) in input.iter().zip(session.download::<[f64; 3]>(to, 64)) {
        assert!((out[1] - x.sin()).abs() < 1e-15, "sin {x}: {}", out[1]);
        assert!((out[2] / x.exp2() - 1.0).abs() < 1e-15, "pow 2 {x}: {}", out[2]);
        assert!(x.abs() < 4.0 || (out[0] - x.signum()).abs() < 1e-7, "erf {x}: {}", out[0]);
    }
}
