//! HIP programs unrelated to inference, compiled at several levels of optimisation, run on all targets and
//! compared with the same computation in Rust.

use crate::support;

mod algorithms;
mod arithmetic;
mod atomics;
mod control;
mod conversions;
mod exact;
mod flow;
mod known;
mod lanes;
mod matrices;
mod memory;
mod numbers;
mod parallel;
mod variants;

use support::{Random, Session, compile};

/// A HIP source without the prelude.
#[derive(Clone, Copy)]
struct Source {
    name: &'static str,
    text: &'static str,
    /// Options of the compiler for this source.
    options: &'static str,
}

const PRELUDE: &str = include_str!("prelude.h");

macro_rules! sources {
    ($($constant:ident $name:literal $options:literal)*) => {
        $(const $constant: Source =
            Source { name: $name, text: include_str!(concat!($name, ".hip")), options: $options };)*
        /// All sources.
        const SOURCES: &[Source] = &[$($constant),*];
    };
}

sources! {
    ALGORITHMS "algorithms" ""
    ARITHMETIC "arithmetic" ""
    ATOMICS "atomics" "-munsafe-fp-atomics"
    CONTROL "control" ""
    CONVERSIONS "conversions" ""
    FLOW "flow" ""
    KNOWN "known" ""
    LANES "lanes" ""
    MATRICES "matrices" ""
    MEMORY "memory" ""
    NUMBERS "numbers" ""
    PARALLEL "parallel" ""
}

/// Returns random words.
fn numbers(seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.u32()).collect()
}

/// Returns bits of small floats, half or bfloat: special ones, then random ones.
fn special_bits(seed: u64, count: usize) -> Vec<u16> {
    let mut bits =
        vec![0x0000, 0x8000, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x0001, 0x83ff, 0x0400, 0x7c00, 0xfc00];
    bits.extend([
        0x7e00, 0x7c01, 0x3555, 0x3f80, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0x0080, 0x4300, 0x4780, 0x5bff,
    ]);
    let mut random = Random::new(seed);
    bits.resize_with(count, || random.u32() as u16);
    bits
}

/// Objects compiled for a specific setting of a processor's features run as well.
#[test]
fn processors_with_features() {
    for features in ["gfx906:sramecc+:xnack-", "gfx906:sramecc-:xnack-"] {
        let options = format!("-O1 --no-offload-arch=gfx906 --offload-arch={features}");
        let target = virtual_gpu::Target::Gfx906;
        let object = compile::hip(target, &options, &format!("{PRELUDE}\n{}", CONTROL.text));
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
