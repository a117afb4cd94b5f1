//! Opening: the reports, and the distinction of everything that may be missing.

use super::fake::{Fake, Fault};
use super::fake_kernels::FakeKernels;
use super::{SHORT, SOON, open, options, pair, short};
use crate::HipBackend;
use crate::driver::Driver;
use crate::driver::codes::Call;
use crate::options::{Environment, Graphs, HipOptions, StreamMode};
use ggml_core::backend::{Backend, Usage};
use ggml_core::sync::lock;
use ggml_core::{Error, Missing, Phase};
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

fn missing(error: &Error) -> (Missing, Phase, &str) {
    match error {
        Error::Unavailable { missing, phase, reason, .. } => (*missing, *phase, reason),
        other => panic!("{other}"),
    }
}

#[test]
fn the_device_is_described() {
    let environment = Environment::new([("HSA_OVERRIDE_GFX_VERSION".into(), "9.0.6".into())]);
    let (_, backend) = pair(HipOptions { environment, stream: StreamMode::Null, ..options() });
    let info = backend.device();
    assert_eq!(
        (info.backend.as_str(), info.arch.as_str(), info.driver.as_str()),
        ("hip:0", "gfx906", "fake")
    );
    assert_eq!(info.uuid.as_deref(), Some("GPU-0123456789abcdef"));
    assert_eq!((info.memory, info.limits.max_allocation), (Some(1 << 30), 1 << 30));
    let has = |list: &[(String, String)], name: &str, value: &str| {
        assert!(list.contains(&(name.into(), value.into())), "{name}={value}: {list:?}");
    };
    has(&info.versions, "library", "/fake/libamdhip64.so.6");
    has(&info.versions, "code objects", "gfx906");
    has(&info.features, "target", "gfx906:sramecc+:xnack-");
    has(&info.features, "dot4", "Sdot4");
    has(&info.overrides, "HSA_OVERRIDE_GFX_VERSION", "9.0.6");
    has(&info.overrides, "stream", "null");
    assert_eq!(backend.profile().compute_units, 60);
}

#[test]
fn an_override_shows_beside_the_real_processor() {
    let root = tempfile::tempdir().unwrap();
    let node = root.path().join("sys/class/kfd/kfd/topology/nodes/1");
    fs::create_dir_all(&node).unwrap();
    fs::write(node.join("properties"), "gfx_target_version 90000\nlocation_id 768\n").unwrap();
    let (_, backend) = pair(HipOptions { system_root: root.path().into(), ..options() });
    let real = ("kernel driver's target".to_string(), "gfx900".to_string());
    assert!(backend.device().features.contains(&real), "{:?}", backend.device().features);
}

#[test]
fn no_library() {
    let error = HipBackend::open(options()).unwrap_err();
    let (what, phase, reason) = missing(&error);
    assert_eq!((what, phase), (Missing::Library, Phase::LoadRuntime));
    for place in ["/nonexistent/opt/rocm/lib", "/nonexistent/opt/rocm/core/lib", "search path was left out"] {
        assert!(reason.contains(place), "{place}: {reason}");
    }
    let library = Some("/nowhere/libamdhip64.so.9".into());
    let error = HipBackend::open(HipOptions { library, ..options() }).unwrap_err();
    let (what, _, reason) = missing(&error);
    assert_eq!(what, Missing::Library);
    assert!(reason.contains("/nowhere/libamdhip64.so.9 (named by the user): "), "{reason}");
}

#[test]
fn no_device() {
    let fake = Arc::new(Fake::default());
    fake.fault(Call::Init, 0, Fault::Fail(101));
    fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
    let environment = Environment::new([("HIP_VISIBLE_DEVICES".into(), "7".into())]);
    let error = open(&fake, HipOptions { environment, ..options() }).unwrap_err();
    let (what, phase, reason) = missing(&error);
    assert_eq!((what, phase), (Missing::Device, Phase::Enumerate));
    for part in [
        "hipInit: hipErrorInvalidDevice (101)",
        "hipGetDeviceCount: hipErrorNoDevice (100)",
        "/dev/kfd: does not exist",
        "library: /fake/libamdhip64.so.6",
        "HIP_VISIBLE_DEVICES=7 may hide devices",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let error = open(&Arc::new(Fake::default()), options().with_device(3)).unwrap_err();
    let (what, _, reason) = missing(&error);
    assert_eq!(what, Missing::Device);
    assert!(reason.contains("device 3 was requested, but the runtime lists 1"), "{reason}");
}

/// A variable is named where it excludes the card, and then it comes first.
#[test]
fn a_variable_that_hides_the_card() {
    let root = tempfile::tempdir().unwrap();
    card(root.path(), 90006);
    let refused = |value: &str| {
        let fake = Arc::new(Fake::default());
        fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
        let environment = Environment::new([("HIP_VISIBLE_DEVICES".into(), value.into())]);
        let error = open(&fake, HipOptions { environment, system_root: root.path().into(), ..options() })
            .unwrap_err();
        missing(&error).2.to_string()
    };
    let hidden = refused("1");
    assert!(hidden.starts_with("HIP_VISIBLE_DEVICES=1 hides every device; the runtime lists no"), "{hidden}");
    let other = refused("0");
    assert!(other.starts_with("the runtime lists no device (hipInit: hipSuccess (0)"), "{other}");
    assert!(!other.contains("HIP_VISIBLE_DEVICES"), "{other}");
    // The runtime lists a device, and another one is requested.
    let environment = Environment::new([("HIP_VISIBLE_DEVICES".into(), "1".into())]);
    let third = HipOptions { environment, system_root: root.path().into(), device: 3, ..options() };
    let error = open(&Arc::new(Fake::default()), third).unwrap_err();
    let expected = "device 3 was requested, but the runtime lists 1; HIP_VISIBLE_DEVICES=1 hides the gfx906 at 0000:03:00";
    assert_eq!(missing(&error).2, expected);
}

/// NVIDIA's variable is named where it leaves no device of those that have a node.
#[test]
fn a_variable_that_hides_nvidias_cards() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("dev")).unwrap();
    fs::write(root.path().join("dev/nvidia0"), "").unwrap();
    let refused = |value: &str| {
        let mut fake = Fake::default();
        fake.name = crate::provider::nvidia::NAME;
        let fake = Arc::new(fake);
        fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
        let environment = Environment::new([("CUDA_VISIBLE_DEVICES".into(), value.into())]);
        let options = HipOptions { environment, system_root: root.path().into(), ..options() };
        missing(&open(&fake, options).unwrap_err()).2.to_string()
    };
    let hidden = refused("1");
    assert!(
        hidden.contains("CUDA_VISIBLE_DEVICES=1 may hide every device; the runtime lists no"),
        "{hidden}"
    );
    assert!(!refused("0").contains("CUDA_VISIBLE_DEVICES"), "{}", refused("0"));
}

/// Field case E: the library that contradicts its name is the first thing that is said.
#[test]
fn a_wrong_library_comes_first() {
    let mut fake = Fake::default();
    fake.wrong = Some("its file name is that of HIP 7, but it reports HIP 6");
    let fake = Arc::new(fake);
    fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
    let error = open(&fake, options()).unwrap_err();
    let reason = missing(&error).2;
    assert!(
        reason.starts_with("wrong library: its file name is that of HIP 7, but it reports HIP 6; "),
        "{reason}"
    );
}

/// Writes a card into the kernel's topology below a root, at the fake's PCI address.
fn card(root: &std::path::Path, version: u32) {
    let node = root.join("sys/class/kfd/kfd/topology/nodes/1");
    fs::create_dir_all(&node).unwrap();
    fs::write(node.join("properties"), format!("gfx_target_version {version}\nlocation_id 768\n")).unwrap();
}

/// Field case C: with HSA_OVERRIDE_GFX_VERSION=11.0.0 the runtime reports a gfx1100, and the known block of the
/// gfx1151 is among the features of the open device.
#[test]
fn an_override_does_not_hide_what_is_known_of_the_chip() {
    let advice = |chip, arch: &str| {
        let root = tempfile::tempdir().unwrap();
        card(root.path(), chip);
        let parameters = root.path().join("sys/module/amdgpu/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("cwsr_enable"), "1\n").unwrap();
        let mut fake = Fake::default();
        fake.version = Some("7.1.52802");
        {
            let mut properties = lock(&fake.properties);
            properties.arch = arch.into();
            properties.wave = 32;
        }
        let driver: Arc<dyn Driver> = Arc::new(fake);
        let kernels = FakeKernels { targets: vec!["gfx1100", "gfx1151"], ..FakeKernels::default() };
        let options = HipOptions { system_root: root.path().into(), ..options() };
        let backend =
            HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(kernels)).unwrap();
        let features = &backend.device().features;
        features
            .iter()
            .any(|(name, text)| name == "advice" && text.contains("boot with amdgpu.cwsr_enable=0"))
    };
    assert!(advice(110501, "gfx1151"));
    assert!(advice(110501, "gfx1100"), "the chip stays a gfx1151");
    assert!(!advice(110000, "gfx1151"), "the chip is no gfx1151");
}

/// Root is never denied access, so the denial is injected.
#[test]
fn no_permission() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("dev")).unwrap();
    fs::write(root.path().join("dev/kfd"), "").unwrap();
    let fake = Arc::new(Fake::default());
    fake.fault(Call::Init, 0, Fault::Fail(101));
    fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
    let denied = HipOptions {
        system_root: root.path().into(),
        open_node: |_| Err(io::Error::from(ErrorKind::PermissionDenied)),
        ..options()
    };
    let error = open(&fake, denied).unwrap_err();
    let (what, _, reason) = missing(&error);
    assert_eq!(what, Missing::Permission);
    for part in ["/dev/kfd", "owner ", "group ", "mode 0", "render", "hipErrorNoDevice (100)"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

#[test]
fn no_kernels_for_the_target() {
    let fake: Arc<Fake> = Arc::default();
    let driver: Arc<dyn Driver> = fake.clone();
    let set = Arc::new(FakeKernels { targets: vec!["gfx900", "gfx1100"], ..FakeKernels::default() });
    let error = HipBackend::open_with("hip", options(), Box::new(move |_| Ok(driver)), set).unwrap_err();
    let (what, phase, reason) = missing(&error);
    assert_eq!((what, phase), (Missing::Feature, Phase::OpenDevice));
    assert!(reason.contains("gfx906") && reason.contains("built in: gfx900, gfx1100"), "{reason}");
    assert_eq!(fake.count(Call::CreateStream), 0, "nothing was made on the device");
}

#[test]
fn properties_that_make_no_sense() {
    let implausible = |change: fn(&mut crate::driver::Properties), part: &str| {
        let fake = Arc::new(Fake::default());
        change(&mut lock(&fake.properties));
        let error = open(&fake, options()).unwrap_err();
        let (what, _, reason) = missing(&error);
        assert_eq!(what, Missing::Feature);
        assert!(reason.contains(part), "{part}: {reason}");
    };
    implausible(|p| p.wave = 7, "wavefronts of 7 threads");
    implausible(|p| p.wave = 32, "on gfx906");
    implausible(|p| p.arch = "\u{1}\u{2}".into(), "target's name");
    implausible(|p| p.arch = "gfx1399".into(), "no known family");
    implausible(|p| p.memory = 12, "12 bytes of memory");
}

#[test]
fn a_hang_while_opening() {
    for (call, phase) in [
        (Call::Init, Phase::Enumerate),
        (Call::Properties, Phase::OpenDevice),
        (Call::Attach, Phase::OpenDevice),
        (Call::AllocateHost, Phase::OpenDevice),
    ] {
        let fake = Arc::new(Fake::default());
        fake.fault(call, 0, Fault::Hang);
        let start = Instant::now();
        let error = open(&fake, short()).unwrap_err();
        assert!(
            matches!(error, Error::Timeout { phase: p, after, .. } if p == phase && after == SHORT),
            "{error}"
        );
        assert!(start.elapsed() < SOON);
        fake.release();
    }
}

/// Everything that was created is freed when a later step fails.
#[test]
fn a_failure_while_opening_leaves_nothing() {
    for call in [Call::AllocateHost, Call::CreateEvent, Call::CreateStream] {
        let fake = Arc::new(Fake::default());
        fake.fault(call, 0, Fault::Fail(999));
        let error = open(&fake, options()).unwrap_err();
        assert!(
            matches!(&error, Error::Driver { code: 999, name, .. } if name == "hipErrorUnknown"),
            "{error}"
        );
        // The thread frees before it replies or soon after.
        let start = Instant::now();
        while fake.held() != [0; 5] && start.elapsed() < SOON {
            std::thread::yield_now();
        }
        assert_eq!(fake.held(), [0; 5], "{call:?}");
    }
}

#[test]
fn everything_is_given_back() {
    let (fake, backend) = pair(options());
    let kept = backend.allocate(1000, Usage::Weights).unwrap();
    let staging = backend.allocate(1000, Usage::Staging).unwrap();
    drop(backend);
    assert!(fake.held()[0] >= 1, "a buffer keeps the device open");
    drop(staging);
    drop(kept);
    assert_eq!(fake.held(), [0; 5]);
}

#[test]
fn a_hang_while_closing() {
    let (fake, backend) = pair(short());
    let buffer = backend.allocate(1000, Usage::Weights).unwrap();
    fake.fault(Call::Free, 0, Fault::Hang);
    let start = Instant::now();
    drop(buffer);
    drop(backend);
    assert!(start.elapsed() < SOON);
    fake.release();
}

#[test]
fn the_null_stream_is_used_only_when_asked_for() {
    for (stream, null) in [(StreamMode::Own, false), (StreamMode::Null, true)] {
        let (fake, backend) = pair(HipOptions { stream, ..options() });
        let buffer = backend.allocate(64, Usage::State).unwrap();
        backend.upload(&buffer, 0, &[1; 64]).unwrap();
        assert_eq!((fake.used_null_stream(), fake.count(Call::CreateStream)), (null, 1 - usize::from(null)));
    }
}

/// Graphs are left out with a version that is reported to compute wrong results with them, and reports say so.
#[test]
fn graphs_of_a_runtime_that_is_known_to_fail() {
    let graphs = |version, graphs| {
        let mut fake = Fake::default();
        fake.version = Some(version);
        lock(&fake.properties).arch = "gfx942:sramecc+:xnack-".into();
        let fake = Arc::new(fake);
        let driver: Arc<dyn Driver> = fake.clone();
        let kernels = FakeKernels { targets: vec!["gfx942"], ..FakeKernels::default() };
        let options = HipOptions { graphs, ..options() };
        let backend =
            HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(kernels)).unwrap();
        let has = |name: &str, part: &str| {
            backend.device().features.iter().any(|(n, text)| n == name && text.contains(part))
        };
        (has("graphs", "off: "), has("advice", "graphs"))
    };
    assert_eq!(graphs("7.2.53211", Graphs::Auto), (true, false));
    assert_eq!(graphs("7.2.53211", Graphs::On), (false, true));
    assert_eq!(graphs("7.2.53211", Graphs::Off), (false, false));
    assert_eq!(graphs("7.1.52802", Graphs::Auto), (false, false));
}
