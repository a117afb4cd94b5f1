//! The backend on virtual cards: RADV's machine code, executed with all checks on.
//!
//! Without RADV, or with a version other than 25.0, these tests are skipped with a message; where Mesa 25.0
//! is installed, skipping is a failure.

#[path = "common/catalogue.rs"]
mod agreement;
mod common;

use agreement::{failures, judged};
use backend_vulkan::{Matrices, VulkanBackend, VulkanOptions, enumerate};
use common::{CACHE, Layer, close};
use ggml_core::backend::{Backend, Bindings, PrepareOptions};
use ggml_core::catalogue::{self, Case};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Missing, Op, Phase, Source};
use std::time::{Duration, Instant};
use virtual_vulkan::{Faults, Injection, Model, Options};

/// Opens a backend on a card; `None` with a message if there is no usable RADV.
fn open(card: Options, change: impl FnOnce(&mut VulkanOptions)) -> Option<VulkanBackend> {
    let mut options = VulkanOptions::for_name("vulkan-virtual").expect("a name");
    options.card = Some(card);
    change(&mut options);
    match VulkanBackend::open(options) {
        Ok(backend) => Some(backend),
        Err(Error::Unavailable { reason, .. }) => {
            assert!(!has_mesa_25(), "Mesa 25.0 is installed, but: {reason}");
            eprintln!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn vega20() -> Options {
    Options::new(Model::Vega20)
}

/// Returns true if RADV is installed and another Mesa driver reports version 25.0.
fn has_mesa_25() -> bool {
    let manifests = std::fs::read_dir("/usr/share/vulkan/icd.d").into_iter().flatten().flatten();
    let radv = manifests.filter(|m| m.file_name().to_string_lossy().starts_with("radeon_icd")).count() > 0;
    let devices = enumerate(&VulkanOptions::default()).unwrap_or_default();
    radv && devices.iter().any(|d| d.driver.contains("Mesa 25.0"))
}

fn check(backend: &VulkanBackend, cases: Vec<Case>) {
    let cases = judged(cases);
    let start = Instant::now();
    let found = failures(backend, &cases.iter().collect::<Vec<_>>());
    println!("{} cases in {:.1} s, {:?}", 2 * cases.len(), start.elapsed().as_secs_f64(), backend.stats());
    assert!(found.is_empty(), "{} failures:\n{}", found.len(), found.join("\n"));
}

#[test]
fn catalogue_agrees_with_the_reference() {
    let Some(backend) = open(vega20(), |_| {}) else { return };
    assert_eq!(backend.device().backend, "vulkan-virtual:vega20");
    check(&backend, agreement::cases());
}

/// Cases of the catalogue for each one that runs on RDNA 3 in every test run.
const SAMPLE: usize = 16;
/// Part of the names of cases that always run, too: rows so long that a work-group could have an incomplete wavefront.
const LONG_ROWS: &str = "latent: d=576, dv=512, tokens=1";

/// Runs a sample of the catalogue on an RDNA 3 card with matrix units. `DIPTYCH_TEST_CARDS` lists cards, separated by
/// commas: then all cases run on each of them, or those in `DIPTYCH_TEST_CASES`, without units and with them. The
/// emulated device has seed 1 in the test of the whole catalogue, 2 in that of small grids, and 3 here, or that of
/// `DIPTYCH_VIRTUAL_SEED` for the cards of the list.
#[test]
fn rdna3_agrees_with_the_reference() {
    let named = std::env::var("DIPTYCH_TEST_CARDS").unwrap_or_default();
    let all = agreement::cases();
    let runs: Vec<(&str, Matrices)> = match named.is_empty() {
        true => vec![("navi31", Matrices::Units)],
        false => {
            named.split(',').flat_map(|card| [Matrices::Off, Matrices::Units].map(|m| (card, m))).collect()
        }
    };
    for (name, matrices) in runs {
        let model = Model::parse(name).expect("DIPTYCH_TEST_CARDS names cards");
        let mut card = Options::from_environment(model).expect("variables of the emulated card");
        if named.is_empty() {
            card.seed = 3;
        }
        let Some(backend) = open(card, |options| options.matrices = Some(matrices)) else { return };
        let info = backend.device();
        assert_eq!(
            (info.backend.as_str(), info.arch.as_str()),
            (&*format!("vulkan-virtual:{name}"), "AMD_RDNA3")
        );
        assert_eq!(backend.profile().matrix_shape().is_some(), matrices == Matrices::Units, "{name}");
        println!("{name}, {}", matrices.name());
        let runs = |(i, case): &(usize, &Case)| {
            !named.is_empty() || i % SAMPLE == 0 || case.name.contains(LONG_ROWS)
        };
        check(&backend, all.iter().enumerate().filter(runs).map(|(_, case)| case.clone()).collect());
    }
}

/// Checks a grid that never covers everything, so that kernels read the number of work-groups and loop.
/// Commands without an order between them run in a different order.
#[test]
fn small_grids_and_another_order_change_nothing() {
    let mut card = Options::new(Model::Vega10);
    (card.order, card.seed) = (Some(5), 2);
    let Some(backend) = open(card, |options| options.max_workgroups = Some(3)) else { return };
    // Kernels of products, attention and recurrent states do not loop: skip all cases with these operations,
    // including groups that contain them.
    let whole = |op: &Op| {
        use Op::{FlashAttnExt, GatedDeltaNet, MulMat, MulMatId, SsmScan};
        matches!(op, MulMat(_) | MulMatId(_) | FlashAttnExt(_) | GatedDeltaNet(_) | SsmScan(_))
    };
    let loops = |case: &Case| {
        let graph = case.graph.as_ref().expect("a valid case");
        !graph.computed().any(|id| graph.tensor(id).op().is_some_and(whole))
    };
    let cases: Vec<Case> = catalogue::cases().into_iter().filter(loops).collect();
    assert!(cases.len() > 200);
    check(&backend, cases);
}

/// Returns the output of a decoder layer on a backend.
fn run_layer(backend: &dyn Backend) -> Result<Vec<f32>, Error> {
    let layer = Layer::new(4);
    let bindings = layer.bind(backend);
    let plan = layer.plan(backend);
    let mut program = backend.prepare(&layer.graph, &plan, &bindings, PrepareOptions::default())?;
    layer.write(&mut *program, CACHE / 2);
    program.run()?;
    Ok(layer.output(&mut *program))
}

#[test]
fn a_layer_agrees_in_any_order() {
    let want = run_layer(&ReferenceBackend::default()).expect("the reference runs");
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut card = vega20();
        card.order = seed;
        let Some(backend) = open(card, |_| {}) else { return };
        close(&format!("{seed:?}"), &run_layer(&backend).expect("a run"), &want);
    }
}

/// Runs a norm of rows long enough for several wavefronts per work-group.
fn run_norm(backend: &dyn Backend) -> Result<Vec<f32>, Error> {
    let mut graph = Graph::new();
    let x = graph.leaf("x", DType::F32, [4096, 3, 1, 1], Source::Input)?;
    let norm = graph.rms_norm(x, 1e-5)?;
    graph.output(norm)?;
    let plan = Plan::fused(&graph, backend, Precision::Exact)?;
    let mut program = backend.prepare(&graph, &plan, &Bindings::default(), PrepareOptions::default())?;
    let values: Vec<u8> = (0..3 * 4096).flat_map(|i| (i as f32).sin().to_le_bytes()).collect();
    program.write(x, &values)?;
    program.run()?;
    Ok(Vec::new())
}

/// Returns the node and the driver's description from the error of a lost device.
fn loss(card: Options) -> Option<(String, String)> {
    loss_in(card, run_layer)
}

fn loss_in(card: Options, run: fn(&dyn Backend) -> Result<Vec<f32>, Error>) -> Option<(String, String)> {
    let backend = open(card, |_| {})?;
    match run(&backend) {
        Err(Error::DeviceLost { node, reason, .. }) => {
            println!("{node:?}: {reason}");
            Some((node.expect("a node is named"), reason))
        }
        other => panic!("the mistake was not found: {other:?}"),
    }
}

/// Encodings of the instructions that are inserted or removed (AMD, "Vega Instruction Set Architecture",
/// SOPP).
const NOP: u32 = 0xbf80_0000;

fn is_wait(word: u32) -> bool {
    word >> 16 == 0xbf8c
}

fn is_barrier(word: u32) -> bool {
    word == 0xbf8a_0000
}

#[test]
fn a_missing_wait_is_found() {
    let mut card = vega20();
    card.rewrite = Some(|name, code| {
        if name.starts_with("rms_norm") {
            code.iter_mut().filter(|word| is_wait(**word)).for_each(|word| *word = NOP);
        }
    });
    let Some((node, reason)) = loss(card) else { return };
    assert!(node.contains("RMS_NORM") || node.contains("rms"), "{node}");
    assert!(reason.contains("missing s_waitcnt") && reason.contains("kernel rms_norm/"), "{reason}");
}

/// The same on RDNA 3, whose encodings differ, and whose stores have a counter of their own.
#[test]
fn missing_waits_and_barriers_are_found_on_rdna3() {
    fn remove(name: &str, code: &mut [u32], is: fn(u32) -> bool) {
        if name.starts_with("rms_norm") {
            code.iter_mut().filter(|word| is(**word)).for_each(|word| *word = NOP);
        }
    }
    let mut card = Options::new(Model::Navi31);
    card.rewrite = Some(|name, code| remove(name, code, |word| word >> 16 == 0xbf89));
    let Some((node, reason)) = loss(card) else { return };
    assert!(node.contains("RMS_NORM") || node.contains("rms"), "{node}");
    assert!(reason.contains("missing s_waitcnt") && reason.contains("kernel rms_norm/"), "{reason}");
    let mut card = Options::new(Model::Navi31);
    card.rewrite = Some(|name, code| remove(name, code, |word| word == 0xbfbd_0000));
    let Some((_, reason)) = loss_in(card, run_norm) else { return };
    let found = reason.contains("race with wavefront") || reason.contains("uninitialised");
    assert!(found && reason.contains("kernel rms_norm/"), "{reason}");
}

#[test]
fn a_missing_barrier_in_a_shader_is_found() {
    let mut card = vega20();
    card.rewrite = Some(|name, code| {
        if name.starts_with("rms_norm") {
            code.iter_mut().filter(|word| is_barrier(**word)).for_each(|word| *word = NOP);
        }
    });
    let Some((node, reason)) = loss_in(card, run_norm) else { return };
    assert!(node.contains("RMS_NORM") || node.contains("rms"), "{node}");
    let found = reason.contains("race with wavefront") || reason.contains("uninitialised");
    assert!(found && reason.contains("kernel rms_norm/"), "{reason}");
}

#[test]
fn a_write_beyond_its_window_is_found() {
    let mut card = vega20();
    card.rewrite = Some(|name, code| {
        // Set the offset of buffer stores, the lowest 12 bits, to its maximum.
        if name.starts_with("rms_norm") {
            let store = |word: u32| word >> 26 == 0b11_1000 && (0x18..=0x1f).contains(&(word >> 18 & 0x7f));
            code.iter_mut().filter(|word| store(**word)).for_each(|word| *word |= 0xfff);
        }
    });
    let Some((node, reason)) = loss(card) else { return };
    assert!(node.contains("RMS_NORM") || node.contains("rms"), "{node}");
    assert!(reason.contains("write") && reason.contains("beyond its buffer"), "{reason}");
    assert!(reason.contains("kernel rms_norm/") && reason.contains("buffer_store"), "{reason}");
}

/// Checks that omitting each barrier of a decoder layer's program in turn is detected, with the node.
#[test]
fn a_missing_pipeline_barrier_is_found() {
    let mut card = vega20();
    let faults = Faults::default();
    card.faults = faults.clone();
    let Some(backend) = open(card.clone(), |_| {}) else { return };
    run_layer(&backend).expect("no barrier is missing");
    let barriers = faults.count("vkCmdPipelineBarrier");
    drop(backend);
    let mut found = Vec::new();
    for n in barriers.saturating_sub(24)..barriers {
        card.faults = Faults::default().at("vkCmdPipelineBarrier", n, Injection::Stall);
        let Some(backend) = open(card.clone(), |_| {}) else { return };
        match run_layer(&backend) {
            Ok(_) => {}
            Err(Error::DeviceLost { node, reason, .. }) => {
                assert!(
                    reason.starts_with("missing pipeline barrier: ") && reason.contains(" conflict at 0x"),
                    "{reason}"
                );
                // Copies of inputs and outputs belong to no node.
                assert!(node.is_some() || reason.contains("a copy"), "{reason}");
                found.push(format!("{}: {reason}", node.unwrap_or_default()));
            }
            Err(other) => panic!("{other}"),
        }
    }
    println!("{} of 24:\n{}", found.len(), found.join("\n"));
    assert!(found.len() >= 12, "{found:#?}");
}

/// Checks that barriers whose access masks lack a kind of access are detected, although they order the commands.
#[test]
fn missing_access_masks_of_barriers_are_found() {
    use ash::vk::AccessFlags2 as A;
    type Plant = fn(&mut [A; 2]);
    let plants: [(&str, Plant); 3] = [
        ("the source names no writes", |[from, _]| *from &= !(A::SHADER_WRITE | A::MEMORY_WRITE)),
        ("the destination names no reads", |[_, to]| *to &= !(A::SHADER_READ | A::MEMORY_READ)),
        ("nothing is named", |masks| *masks = [A::empty(); 2]),
    ];
    for (name, plant) in plants {
        let mut card = vega20();
        card.change_masks = Some(plant);
        let Some((node, reason)) = loss(card) else { return };
        assert!(
            reason.starts_with("missing access mask of a pipeline barrier: "),
            "{name}: {node}: {reason}"
        );
        assert!(reason.contains(" wrote there, which no barrier makes visible"), "{name}: {reason}");
    }
    // What is named beside the accesses changes nothing.
    let mut card = vega20();
    card.change_masks = Some(|masks| masks.iter_mut().for_each(|mask| *mask |= A::HOST_READ));
    let Some(backend) = open(card, |_| {}) else { return };
    run_layer(&backend).expect("all is visible");
}

/// Checks that faults in driver calls become typed errors.
#[test]
fn calls_that_fail_end_in_errors() {
    let attempt = |faults: Faults| -> Option<Error> {
        let mut card = vega20();
        card.faults = faults;
        let mut options = VulkanOptions::for_name("vulkan-virtual").expect("a name");
        options.card = Some(card);
        match VulkanBackend::open(options) {
            Ok(backend) => run_layer(&backend).err(),
            Err(error) => Some(error),
        }
    };
    match attempt(Faults::default()) {
        None => {}
        Some(Error::Unavailable { reason, .. }) => {
            assert!(!has_mesa_25(), "{reason}");
            return;
        }
        Some(error) => panic!("{error}"),
    }
    for (call, code, name) in [
        ("vkCreateInstance", -1, "VK_ERROR_OUT_OF_HOST_MEMORY"),
        ("vkCreateDevice", -3, "VK_ERROR_INITIALIZATION_FAILED"),
        ("vkCreateComputePipelines", -1, "VK_ERROR_OUT_OF_HOST_MEMORY"),
        ("vkAllocateMemory", -2, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        ("vkQueueSubmit", -4, "device lost"),
    ] {
        let error = attempt(Faults::default().at(call, 0, Injection::Fail(code))).expect("it failed");
        assert!(error.phase().is_some() && error.to_string().contains(name), "{call}: {error}");
    }
}

/// Checks that a submission which never completes is a timeout, and that the device is abandoned.
#[test]
fn a_submission_that_stalls_is_a_timeout() {
    let mut card = vega20();
    let faults = Faults::default();
    card.faults = faults.clone();
    let deadlines = Deadlines { compute: Duration::from_secs(1), ..Deadlines::default() };
    let Some(backend) = open(card, |options| options.deadlines = deadlines) else { return };
    let layer = Layer::new(1);
    let bindings = layer.bind(&backend);
    let mut program = layer.program(&backend, &bindings);
    layer.write(&mut *program, 0);
    let start = Instant::now();
    let _ = faults.clone().at("vkQueueSubmit", faults.count("vkQueueSubmit"), Injection::Stall);
    let error = program.run().map(|_| ()).expect_err("it stalled");
    assert!(matches!(error, Error::Timeout { phase: Phase::FirstCompute, .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
    faults.release();
}

#[test]
fn other_libraries_are_refused_with_a_reason() {
    let open = |library: &str| {
        let mut card = vega20();
        card.library = Some(library.into());
        let mut options = VulkanOptions::for_name("vulkan-virtual:gfx900").expect("a name");
        options.card = Some(card);
        VulkanBackend::open(options).map(|_| ()).expect_err("no RADV")
    };
    let error = open("/nonexistent/libvulkan_radeon.so");
    let text = error.to_string();
    assert!(matches!(error, Error::Unavailable { missing: Missing::Library, .. }), "{text}");
    assert!(
        text.contains("/nonexistent/libvulkan_radeon.so") && text.contains("mesa-vulkan-drivers"),
        "{text}"
    );
    let other = std::path::Path::new("/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so");
    if other.exists() {
        let text = open(&other.to_string_lossy()).to_string();
        assert!(text.contains("llvmpipe") && text.contains("needs RADV of Mesa 25.0"), "{text}");
    }
    assert!(VulkanOptions::for_name("vulkan-virtual:navi10").is_err());
}
