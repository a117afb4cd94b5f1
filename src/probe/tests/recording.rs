//! Recordings.

use super::*;

/// The recording of a system gives the report of the system, with other names of users, and little of its libraries.
#[cfg(unix)]
#[test]
fn a_recording_gives_the_same_report() {
    let own = "home/anna/rocm/lib/libamdhip64.so.6.4.60404";
    let library = format!("{}\0roc-6.4.4 25103\0", "x".repeat(200_000));
    let environment = "LD_LIBRARY_PATH=/home/anna/rocm/lib\0AMD_API_KEY=secret\0HSA_XNACK=1\0";
    let nodes = "sys/class/kfd/kfd/topology/nodes/1";
    for card in [&MI50, &VEGA56, &RX7900XT, &STRIX_HALO] {
        let bundled = [
            ("usr/lib/ollama/rocm/libamdhip64.so.6.3.60303", ""),
            (own, library.as_str()),
            ("proc/self/environ", environment),
            ("sys/module/amdgpu/parameters/cwsr_enable", "1\n"),
        ];
        let root = system(Some(card), "6.12.1-generic\n", &bundled, &rocm("7.2.0"));
        let properties = root.path().join(nodes).join("properties");
        let serial = fs::read_to_string(&properties).unwrap() + "unique_id 1234567890123\n";
        fs::write(&properties, serial).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let live = crate::probe::record(&options(&root), folder.path()).unwrap();
        assert!(crate::probe::record(&options(&root), folder.path()).is_err(), "it is not empty");
        let recorded = probe(&options(&folder)).unwrap();
        let text = |report: &Report| serde_json::to_string_pretty(report).unwrap();
        let name = |path: &Path| path.display().to_string();
        let expected = text(&live).replace(&name(root.path()), &name(folder.path()));
        assert!(expected.contains("/home/anna/rocm/lib"), "{expected}");
        assert_eq!(text(&recorded), expected.replace("/home/anna/", "/home/user/"));
        let all = files_below(folder.path());
        for (path, bytes) in &all {
            let text = format!("{} {}", path.display(), String::from_utf8_lossy(bytes));
            assert!(!["anna", "secret", "1234567890123"].iter().any(|word| text.contains(word)), "{text}");
        }
        assert!(all.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 20_000);
    }
}

/// Links of the system are recorded as links, and nothing is written through one that leads out of the recording.
#[cfg(unix)]
#[test]
fn a_recording_stays_in_its_folder() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let environment = "ROCM_PATH=/opt/rocm-6.4.4\0LD_LIBRARY_PATH=/home/anna/lib:/home/bob/lib\0";
    // Two homes of one name there: one of them is a link.
    let files = [
        ("link opt/rocm-6.4.4", target),
        ("link home/anna", target),
        ("home/bob/lib/libamdhip64.so.6.3.60303", ""),
        ("proc/self/environ", environment),
    ];
    let root = system(Some(&MI50), "6.12.1\n", &files, &rocm("7.2.0"));
    // In the recorded system the same path is a folder.
    write(root.path(), &format!("{}/lib/libamdhip64.so.6.4.60404", &target[1..]), "\0roc-6.4.4 25103\0");
    let folder = tempfile::tempdir().unwrap();
    crate::probe::record(&options(&root), folder.path()).unwrap();
    assert_eq!(fs::read_link(folder.path().join("opt/rocm")).unwrap(), Path::new("rocm-7.2.0"));
    assert_eq!(fs::read_link(folder.path().join("opt/rocm-6.4.4")).unwrap(), outside.path());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let text = probe_one(&folder).1;
    says(&text, &["mixed versions: ROCm 6.4.4 and 7.2.0 are installed"]);
}

/// Returns the files below a folder with their contents, and links with their targets.
#[cfg(unix)]
fn files_below(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt;
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match fs::read_link(&path) {
            Ok(target) => all.push((path, target.as_os_str().as_bytes().to_vec())),
            Err(_) if path.is_dir() => all.extend(files_below(&path)),
            Err(_) => all.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    all
}
