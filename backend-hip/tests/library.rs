//! The runtime of this machine, if there is one. A test program of its own, because a library stays loaded.

use backend_hip::{HipBackend, HipOptions, devices};
use ggml_core::backend::{Backend, Usage};
use ggml_core::{Error, Missing, Phase};

/// Returns the options of a user's program; `None` with a message if the test is skipped.
fn options() -> Option<HipOptions> {
    let options = HipOptions::from_env().unwrap();
    match devices(&options) {
        Err(Error::Unavailable { missing: Missing::Library, reason, .. }) => {
            eprintln!("skipped: {reason}");
            None
        }
        _ => Some(options),
    }
}

/// With a device, bytes are transferred there and back; without one, the error is distinguished from a
/// missing library.
#[test]
fn the_runtime_of_this_machine() {
    let Some(options) = options() else { return };
    match HipBackend::open(options) {
        Ok(backend) => {
            eprintln!("{:#?}", backend.device());
            let buffer = backend.allocate(100_000, Usage::Weights).unwrap();
            let data: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
            backend.upload(&buffer, 0, &data).unwrap();
            let mut back = vec![0; data.len()];
            backend.download(&buffer, 0, &mut back).unwrap();
            assert!(back == data);
        }
        Err(Error::Unavailable { missing: Missing::Feature, reason, .. }) => eprintln!("skipped: {reason}"),
        Err(error @ Error::Unavailable { .. }) => {
            let text = error.to_string();
            eprintln!("{text}");
            assert_eq!(error.phase(), Some(Phase::Enumerate), "{text}");
            assert!(!text.contains("no library"), "{text}");
            for part in ["hipInit: hip", "hipGetDeviceCount: ", "/dev/kfd: ", "library: /", "hip runtime: "] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        Err(error) => panic!("{error}"),
    }
}

/// The loaded library is found again, and a different one is refused.
#[cfg(unix)]
#[test]
fn one_runtime_in_a_process() {
    let Some(options) = options() else { return };
    let again = match devices(&options) {
        Ok(devices) => devices[0].versions.iter().map(|(n, v)| format!("{n}: {v}; ")).collect(),
        Err(error) => error.to_string(),
    };
    if options.library.is_none() {
        assert!(again.contains("library found: already in this process"), "{again}");
    }
    let path = again.split("library: ").nth(1).and_then(|t| t.split(';').next()).unwrap();
    // Its own path names the same library.
    let named = HipOptions { library: Some(path.into()), ..options.clone() };
    let text = devices(&named).map_or_else(|e| e.to_string(), |_| String::new());
    assert!(!text.contains("no library"), "{text}");
    // A copy is a different library.
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libamdhip64.so.6");
    std::fs::copy(path, &copy).unwrap();
    let error = devices(&HipOptions { library: Some(copy), ..options }).unwrap_err();
    assert!(matches!(error, Error::Unavailable { missing: Missing::Library, .. }), "{error}");
    assert!(error.to_string().contains("two HIP runtimes in one process conflict"), "{error}");
}
