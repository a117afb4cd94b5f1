//! Libraries of other programs.

use super::*;

/// The library of another program and a made Ollama folder: targets, libraries, and the gate that blocks a Vega 56.
#[test]
fn another_program() {
    use crate::probe::foreign::tests::{code, library};
    let root = system(Some(&VEGA56), "6.12.9\n", &[], &rocm("7.2.0"));
    let put = |path: &str, bytes: &[u8]| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let hip = ["libamdhip64.so.6", "librocblas.so.4"];
    put(
        "opt/ollama/lib/ollama/rocm/libggml-hip.so",
        &library(&hip, "$ORIGIN", "", &code(&["gfx906:xnack-", "gfx1100"])),
    );
    put("opt/ollama/lib/ollama/rocm/libamdhip64.so.6.3.60303", b"");
    std::os::unix::fs::symlink(
        "libamdhip64.so.6.3.60303",
        root.path().join("opt/ollama/lib/ollama/rocm/libamdhip64.so.6"),
    )
    .unwrap();
    // AMD's own libraries have code objects too; they are not the program's.
    put(
        "opt/ollama/lib/ollama/rocm/librocblas.so.4",
        &library(&["libamdhip64.so.6"], "", "", &code(&["gfx942"])),
    );
    put("opt/ollama/lib/ollama/rocm/rocblas/library/TensileLibrary_gfx906.dat", b"");
    let of = |path: &str, targets: &[&str]| {
        let targets: Vec<String> = targets.iter().map(|target| target.to_string()).collect();
        let report = crate::probe::probe_program(&options(&root), Path::new(path), &targets)?;
        let text = crate::probe::program_table(&report).split_whitespace().collect::<Vec<_>>().join(" ");
        let reread = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(report, reread);
        Ok::<_, ggml_core::Error>((report, text))
    };
    let (report, text) = of("/opt/ollama", &[]).unwrap();
    assert!(report.libraries.len() == 1 && !report.is_free(), "{report:?}");
    says(
        &text,
        &[
            "/opt/ollama/lib/ollama/rocm/libggml-hip.so code objects for gfx1100, gfx906:xnack- (2 bundles)",
            "libraries from runpath /opt/ollama/lib/ollama/rocm, then the system's directories",
            "libamdhip64.so.6 /opt/ollama/lib/ollama/rocm/libamdhip64.so.6.3.60303 (runpath)",
            "/opt/ollama/lib/ollama/rocm/libamdhip64.so.6.3.60303 is 6.3.3",
            "BLOCKS for gfx900, rocBLAS: 0 of 1 files in /opt/ollama/lib/ollama/rocm/rocblas/library",
        ],
    );
    let sentence = "libggml-hip.so: gfx900 is blocked by AMD's files (rocBLAS has no files for gfx900), and by code (no code \
                    for gfx900 among its targets: gfx1100, gfx906:xnack-)";
    says(&text, &[sentence]);
    // A processor that no card of the machine has.
    let (report, text) = of("/opt/ollama/lib/ollama/rocm/libggml-hip.so", &["gfx906"]).unwrap();
    assert!(report.is_free(), "{text}");
    says(&text, &["its code objects for gfx906:xnack- fit", "no gate that files show blocks gfx906"]);
    // With an override the runtime asks for the other processor's code.
    write(root.path(), "proc/self/environ", "HSA_OVERRIDE_GFX_VERSION=9.0.6\0");
    says(
        &of("/opt/ollama", &[]).unwrap().1,
        &["no gate that files show blocks gfx906 with HSA_OVERRIDE_GFX_VERSION=9.0.6"],
    );
    fs::remove_file(root.path().join("opt/ollama/lib/ollama/rocm/libamdhip64.so.6")).unwrap();
    let text = of("/opt/ollama", &["gfx906"]).unwrap().1;
    says(
        &text,
        &["libamdhip64.so.6 NOT FOUND", "gfx906 is blocked by runtime (libamdhip64.so.6 is not found)"],
    );
    // The application's link leads to the system's library.
    std::os::unix::fs::symlink(
        "/opt/rocm-7.2.0/lib/libamdhip64.so.7",
        root.path().join("opt/ollama/lib/ollama/rocm/libamdhip64.so.6"),
    )
    .unwrap();
    let (report, text) = of("/opt/ollama", &["gfx906"]).unwrap();
    assert!(!report.is_free(), "{text}");
    says(
        &text,
        &[
            "gfx906 is blocked by runtime (/opt/ollama/lib/ollama/rocm/libamdhip64.so.6 leads to another major version than \
           its name says)",
        ],
    );
    assert!(of("/opt/ollama", &["gfx906:xnack-"]).is_err(), "which mode a process has is the card's matter");
    for (path, why) in [
        ("/opt/gone", "expected a file or a folder that exists"),
        ("/opt/rocm", "expected a folder with a library that has HIP code objects"),
        ("/dev/kfd", "expected a library (64-bit ELF)"),
    ] {
        let error = of(path, &[]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(
        of("/opt/ollama", &["vega"])
            .unwrap_err()
            .to_string()
            .contains("a processor of AMD without modes, such as gfx900")
    );
}

/// A common workaround: the application's link of version 6 points to the system's library of version 7. The
/// runtime that would be loaded contradicts its name.
#[cfg(unix)]
#[test]
fn libraries_of_two_releases_and_a_bent_link() {
    let files = [
        ("link usr/lib/ollama/rocm/libamdhip64.so.6", "/opt/rocm-7.2.0/lib/libamdhip64.so.7"),
        ("usr/lib/ollama/rocm/libamdhip64.so.6.3.60303", ""),
        ("proc/self/environ", "ROCM_PATH=/opt/rocm-7.2.0\0LD_LIBRARY_PATH=/usr/lib/ollama/rocm\0"),
    ];
    let root = system(Some(&MI50), "6.8.0\n", &files, &rocm("7.2.0"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support blocks"]), "what is loaded is named rightly");
    let bent = "/usr/lib/ollama/rocm/libamdhip64.so.6 leads to /opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200: another \
                major version than its name says";
    says(&text, &["mixed versions: ROCm 6.3.3 and 7.2.0", bent]);
    let named = options(&root).with_hip_library(Some("/usr/lib/ollama/rocm/libamdhip64.so.6".into()));
    let (device, text) = probe_with(&named);
    assert_eq!(states(&device), expected(&["hip runtime blocks", "hip support blocks"]));
    says(&text, &[bent, "hip executes here no: runtime blocks:"]);
    let sentence = "hip is blocked by runtime: /usr/lib/ollama/rocm/libamdhip64.so.6 leads to another major version than \
                    its name says; select the right library: DIPTYCH_HIP_LIBRARY=FILE; ";
    assert!(device.summary.starts_with(sentence), "{}", device.summary);
    // A library of one release in the folder of another.
    write(root.path(), "opt/rocm-7.2.0/.info/version", "7.1.0-20\n");
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip runtime unknown", "hip support blocks"]));
    says(&text, &["but 7.1.0 by .info/version next to it: files of two releases are mixed"]);
    let sentence = "hip is in doubt by runtime: /opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200 has files of two releases around it";
    assert!(device.summary.starts_with(sentence), "{}", device.summary);
    let gone = options(&root).with_hip_library(Some("/opt/gone/libamdhip64.so".into()));
    says(&probe_with(&gone).1, &["/opt/gone/libamdhip64.so is configured but does not exist"]);
}

/// Code for other processors that fits, or may fit: generic targets, modes, SPIR-V, bundles that cannot be read.
#[cfg(unix)]
#[test]
fn code_that_fits() {
    use crate::probe::foreign::tests::{code, library};
    let root = system(None, "6.12.9\n", &[], &rocm("7.2.0"));
    let judged = |needed: &str, code: &[u8], target: &str| {
        let folder = root.path().join("opt/app");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("libggml-hip.so"), library(&[needed], "/opt/rocm/lib", "", code)).unwrap();
        let path = Path::new("/opt/app/libggml-hip.so");
        let report = crate::probe::probe_program(&options(&root), path, &[target.into()]).unwrap();
        let card = &report.libraries[0].cards[0];
        let line = card.lines.iter().find(|line| line.gate == super::super::report::Gate::Code).unwrap();
        (line.state, line.evidence.clone(), report)
    };
    let seven = "libamdhip64.so.7";
    let of = |names: &[&str], target: &str| judged(seven, &code(names), target).0;
    assert_eq!(of(&["gfx906"], "gfx906"), State::Allows);
    assert_eq!(of(&["gfx906:xnack-"], "gfx906"), State::Allows);
    assert_eq!(of(&["gfx906:xnack+"], "gfx906"), State::Blocks, "consumer cards do not retry page faults");
    assert_eq!(of(&["gfx11-generic"], "gfx1151"), State::Allows);
    assert_eq!(of(&["gfx11-generic"], "gfx1201"), State::Blocks);
    assert_eq!(of(&["gfx906", "amdgcnspirv"], "gfx1201"), State::Unknown);
    // Generic code needs a runtime that knows it.
    for (path, text) in rocm("6.3.4") {
        if path != "link opt/rocm" {
            write(root.path(), &path, &text);
        }
    }
    let six = root.path().join("opt/rocm/lib/libamdhip64.so.6");
    std::os::unix::fs::symlink("/opt/rocm-6.3.4/lib/libamdhip64.so.6", six).unwrap();
    assert_eq!(judged("libamdhip64.so.6", &code(&["gfx11-generic"]), "gfx1151").0, State::Blocks);
    let mut packed = b"CCOB\x02\0\x01\0".to_vec();
    packed.extend(4096u32.to_le_bytes());
    packed.resize(4096, 0xaa);
    let (state, evidence, report) = judged(seven, &[packed, code(&["gfx906"])].concat(), "gfx1201");
    assert!(
        state == State::Unknown && evidence.contains("not all of its code objects can be read"),
        "{evidence}"
    );
    assert!(report.is_free(), "nothing that can be seen blocks it");
    // A runtime whose files are of two releases, and one that is not found by the loader's rules alone.
    write(root.path(), "opt/rocm-7.2.0/.info/version", "7.1.0-20\n");
    let runtime = |report: &crate::probe::ProgramReport| {
        let lines = &report.libraries[0].cards[0].lines;
        let line = lines.iter().find(|line| line.gate == super::super::report::Gate::Runtime).unwrap();
        (line.state, line.evidence.clone())
    };
    let (state, evidence) = runtime(&judged(seven, &code(&["gfx906"]), "gfx906").2);
    assert!(state == State::Unknown && evidence.contains("files of two releases are mixed"), "{evidence}");
    write(root.path(), "opt/app/libown.so.1", "");
    let (state, evidence) = runtime(&judged("libown.so.1", &code(&["gfx906"]), "gfx906").2);
    let own = "libown.so.1 lies in the program's own folder, found only if it sets LD_LIBRARY_PATH";
    assert!(state == State::Unknown && evidence.contains(own), "{evidence}");
    // A program that loads its library by name, and a folder behind a link.
    fs::write(root.path().join("opt/app/program"), library(&[seven], "", "", b"")).unwrap();
    let refused =
        crate::probe::probe_program(&options(&root), Path::new("/opt/app/program"), &[]).unwrap_err();
    assert!(refused.to_string().contains("name its libggml-hip.so, or its folder"), "{refused}");
    fs::create_dir_all(root.path().join("opt/links")).unwrap();
    std::os::unix::fs::symlink("/opt/app", root.path().join("opt/links/app")).unwrap();
    let behind = crate::probe::probe_program(&options(&root), Path::new("/opt/links"), &[]);
    assert!(behind.is_err(), "links to folders are not followed: {behind:?}");
}
