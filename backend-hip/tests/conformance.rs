//! The operation catalogue on the HIP devices of the machine, through every provider with a device.
//!
//! `gfx906`, `gfx900`, `gfx90a`, `gfx942`, `gfx1100` and `gfx1151` are the emulated devices, with all their checks.
//! `DIPTYCH_TEST_HIP` lists providers, separated by commas (`amd`, `nvidia`, `gfx906` ...): then only these are used, and
//! they must find a device, and all cases run on them. Without it, a provider without a device is skipped with a message,
//! and `gfx1151`, whose code is much like `gfx1100`'s; all cases run on `gfx906`, and each on one of the other emulated
//! devices. `DIPTYCH_TEST_CASES` selects cases by a part of their names. No case may be refused or fail.

use backend_hip::{HipBackend, HipOptions, nvidia, virtual_gpu};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use ggml_core::catalogue::{self, Case, Judged};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Source};
use std::time::{Duration, Instant};

/// Constructor of a provider's backend.
type Constructor = fn(HipOptions) -> Result<HipBackend, Error>;
const PROVIDERS: [(&str, Constructor); 8] = [
    ("amd", HipBackend::open),
    ("nvidia", nvidia::open),
    ("gfx906", |options| seeded("gfx906", 1, options)),
    ("gfx900", |options| seeded("gfx900", 2, options)),
    ("gfx90a", |options| seeded("gfx90a", 3, options)),
    ("gfx942", |options| seeded("gfx942", 1, options)),
    ("gfx1100", |options| seeded("gfx1100", 2, options)),
    ("gfx1151", |options| seeded("gfx1151", 3, options)),
];

/// Emulated devices that divide the cases between them, unless `DIPTYCH_TEST_HIP` names providers.
const DIVIDING: [&str; 4] = ["gfx900", "gfx90a", "gfx942", "gfx1100"];

/// Returns true if a provider runs the case with this index.
fn runs(provider: &str, case: usize) -> bool {
    let place = DIVIDING.iter().position(|name| *name == provider);
    std::env::var_os("DIPTYCH_TEST_HIP").is_some() || place.is_none_or(|place| case % DIVIDING.len() == place)
}

/// Opens an emulated device with a seed, unless the environment has one.
fn seeded(target: &str, seed: u64, options: HipOptions) -> Result<HipBackend, Error> {
    let mut device = virtual_gpu::from_environment(target)?;
    if std::env::var_os(virtual_gpu::SEED_VARIABLE).is_none() {
        device.seed = seed;
    }
    virtual_gpu::open_with(device, options)
}

/// Returns the backends of this machine, by provider.
fn backends() -> Vec<(&'static str, HipBackend)> {
    let named = std::env::var("DIPTYCH_TEST_HIP").unwrap_or_default();
    let is_named = |provider: &str| named.split(',').any(|name| name.trim() == provider);
    let mut backends = Vec::new();
    for (provider, open) in PROVIDERS {
        if !is_named(provider) && (!named.is_empty() || provider == "gfx1151") {
            continue;
        }
        match open(HipOptions::from_env().expect("a valid environment")) {
            Ok(backend) => backends.push((provider, backend)),
            // An emulated device exists whenever its code was built in.
            Err(Error::Unavailable { reason, .. })
                if !is_named(provider) && !hip_kernels::targets().contains(&provider) =>
            {
                eprintln!("{provider} skipped: {reason}");
            }
            Err(error) => panic!("{provider}: {error}"),
        }
    }
    backends
}

/// Groups of the catalogue are computed in one launch.
#[test]
fn groups_are_one_step() {
    let cases = catalogue::cases();
    let joined: Vec<&Case> = cases.iter().filter(|case| case.group.is_some()).collect();
    assert!(joined.len() > 40);
    for (provider, backend) in backends() {
        let apart = |case: &&Case| catalogue::ungrouped(case, &backend, Precision::Exact);
        let apart: Vec<String> = joined.iter().filter_map(apart).collect();
        assert!(apart.is_empty(), "{provider}:\n{}", apart.join("\n"));
    }
}

#[test]
fn catalogue_agrees_with_the_reference() {
    let backends = backends();
    if backends.is_empty() {
        return;
    }
    let part = std::env::var("DIPTYCH_TEST_CASES").unwrap_or_default();
    let cases: Vec<Case> = catalogue::cases().into_iter().filter(|case| case.name.contains(&part)).collect();
    let reference = ReferenceBackend::default();
    let mut wrong = vec![Vec::new(); backends.len()];
    let (mut taken, mut run) = (vec![Duration::ZERO; backends.len()], vec![0; backends.len()]);
    for (index, case) in cases.iter().enumerate() {
        let judged = Judged::new(case.clone(), &reference).expect(&case.name);
        for (i, (provider, backend)) in backends.iter().enumerate() {
            if !runs(provider, index) {
                continue;
            }
            run[i] += 2;
            let start = Instant::now();
            for precision in [Precision::Exact, Precision::Fast] {
                wrong[i].extend(judged.fault(backend, precision));
            }
            taken[i] += start.elapsed();
        }
    }
    for (i, (provider, backend)) in backends.iter().enumerate() {
        println!(
            "{provider} {}: {} cases, {} failures, {:.1} s, {:?}",
            backend.device().name,
            run[i],
            wrong[i].len(),
            taken[i].as_secs_f64(),
            backend.stats()
        );
    }
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

/// Cases of all families under a third seed: other contents of registers and memory, other orders, and approximations that
/// are off by one unit in the last place.
#[test]
fn seeds_and_approximations_change_nothing() {
    if !hip_kernels::targets().contains(&"gfx906") {
        return;
    }
    let mut device = virtual_gpu::from_environment("gfx906").expect("a valid environment");
    (device.seed, device.random) = (3, virtual_gpu::Random::ALL);
    let backend = virtual_gpu::open_with(device, HipOptions::default()).expect("an emulated device");
    let cases: Vec<Case> = catalogue::cases().into_iter().skip(5).step_by(12).collect();
    assert!(cases.len() > 50);
    let reference = ReferenceBackend::default();
    let fault = |case: &Case| {
        let judged = Judged::new(case.clone(), &reference).expect(&case.name);
        [Precision::Exact, Precision::Fast]
            .into_iter()
            .filter_map(|p| judged.fault(&backend, p))
            .collect::<Vec<_>>()
    };
    let wrong: Vec<_> = cases.iter().flat_map(fault).collect();
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}

/// The path of a program step by step: memory, transfers of all sizes, copies, replays, times. Opening, use
/// and closing can be repeated.
#[test]
fn the_path_of_a_program() {
    for (provider, backend) in backends() {
        println!("{provider}: {:#?}", backend.device());
        for round in 0..2 {
            // More than the ring of pinned memory, at odd offsets.
            let bytes = (40 << 20) + 13;
            let data: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251 + round) as u8).collect();
            let (a, b) = (
                backend.allocate(bytes + 7, Usage::Weights).expect("memory"),
                backend.allocate(bytes, Usage::State).expect("memory"),
            );
            let mut back = vec![1; bytes];
            backend.download(&b, 0, &mut back).expect("a download");
            assert!(back.iter().all(|&byte| byte == 0), "{provider}: state begins as zeros");
            backend.upload(&a, 7, &data).expect("an upload");
            let (from, to) = (Slice { buffer: a, offset: 7 }, Slice { buffer: b.clone(), offset: 0 });
            backend.copy(&from, &to, bytes).expect("a copy");
            backend.download(&b, 0, &mut back).expect("a download");
            assert!(back == data, "{provider}: what comes back is what went there");
        }
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [1000, 1, 1, 1], Source::Input).expect("a leaf");
        let mut y = x;
        for _ in 0..100 {
            y = g.scale(y, 1.0, 1.0).expect("a node");
        }
        g.output(y).unwrap();
        let alignment = backend.device().limits.alignment;
        let plan = Plan::new(&g, alignment, Precision::Exact).expect("a plan");
        let mut program =
            backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).expect("a program");
        let before = backend.stats();
        for round in 0..20 {
            let input: Vec<f32> = (0..1000).map(|i| (i + round) as f32).collect();
            let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
            program.write(x, &bytes).expect("a write");
            let timing = program.run().expect("a run");
            let mut out = vec![0; 4000];
            program.read(y, &mut out).expect("a read");
            let values = out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            assert!(values.zip(&input).all(|(got, x)| got == x + 100.0), "{provider}: round {round}");
            let device = timing.device.expect("the device's time");
            assert!(device <= timing.host && device > Duration::ZERO, "{timing:?}");
        }
        let after = backend.stats();
        assert_eq!(
            (after.driver_allocations, after.pipelines),
            (before.driver_allocations, before.pipelines)
        );
        assert_eq!(after.submissions - before.submissions, 20);
        drop((program, backend));
        let open = PROVIDERS.iter().find(|(name, _)| *name == provider).expect("it was opened before").1;
        let again = open(HipOptions::from_env().expect("a valid environment")).expect("it opens again");
        assert!(again.allocate(1 << 20, Usage::Weights).is_ok());
    }
}
