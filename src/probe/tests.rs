//! Recorded systems, generated from small tables. Each test reproduces a problem that was observed on a real
//! system.

mod files;
mod foreign;
mod recording;

use super::report::{AccessPath, DeviceReport, Report, State};
use super::{ProbeOptions, probe, table};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use tempfile::TempDir;

/// A card, as the kernel describes it.
struct Card {
    pci: &'static str,
    device: &'static str,
    /// `gfx_target_version`, and the node's name.
    processor: (&'static str, &'static str),
    location: &'static str,
    firmware: &'static [(&'static str, &'static str)],
}

const MI50: Card = Card {
    pci: "0000:43:00.0",
    device: "0x66a1",
    processor: ("90006", "vega20"),
    location: "17152",
    firmware: &[("mec", "0x000001d1")],
};

const VEGA56: Card = Card {
    pci: "0000:03:00.0",
    device: "0x687f",
    processor: ("90000", "vega10"),
    location: "768",
    firmware: &[("mec", "0x000001d1")],
};

const RX7900XT: Card = Card {
    pci: "0000:2d:00.0",
    device: "0x744c",
    processor: ("110000", "navi31"),
    location: "11520",
    firmware: &[("mes", "0x0000406e")],
};

const STRIX_HALO: Card = Card {
    pci: "0000:c5:00.0",
    device: "0x1586",
    processor: ("110501", "gfx1151"),
    location: "50432",
    firmware: &[("mes", "0x00006080")],
};

/// Mesa's driver and Vulkan's loader.
const MESA: &[(&str, &str)] = &[
    ("usr/lib/x86_64-linux-gnu/libvulkan.so.1", ""),
    ("usr/lib/x86_64-linux-gnu/libvulkan_radeon.so", "\0Mesa 25.0.7\0"),
    ("usr/share/vulkan/icd.d/radeon_icd.x86_64.json", r#"{"ICD": {"library_path": "libvulkan_radeon.so"}}"#),
];

/// Files of a ROCm release in its usual folder.
fn rocm(release: &str) -> Vec<(String, String)> {
    let numbers: Vec<u32> = release.split('.').map(|n| n.parse().unwrap()).collect();
    let encoded = numbers[0] * 10_000 + numbers[1] * 100 + numbers[2];
    let library = format!("libamdhip64.so.{}.{}.{encoded}", numbers[0], numbers[1]);
    vec![
        (format!("opt/rocm-{release}/lib/{library}"), format!("\0roc-{release} 25103\0")),
        (format!("opt/rocm-{release}/.info/version"), format!("{release}-43\n")),
        (format!("link opt/rocm-{release}/lib/libamdhip64.so.{}", numbers[0]), library),
        ("link opt/rocm".into(), format!("rocm-{release}")),
    ]
}

fn write(root: &Path, path: &str, text: &str) {
    let link = path.strip_prefix("link ");
    let path = root.join(link.unwrap_or(path));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match link {
        #[cfg(unix)]
        Some(_) => std::os::unix::fs::symlink(text, path).unwrap(),
        _ => fs::write(path, text).unwrap(),
    }
}

/// Creates a system with a card, Mesa, these files and a release of ROCm. `kernel` is the kernel's release.
fn system(card: Option<&Card>, kernel: &str, files: &[(&str, &str)], rocm: &[(String, String)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write_file = |path: &str, text: &str| write(root.path(), path, text);
    write_file("proc/sys/kernel/osrelease", kernel);
    if let Some(card) = card {
        let device = "sys/class/drm/card0/device";
        write_file(&format!("{device}/vendor"), "0x1002\n");
        write_file(&format!("{device}/device"), card.device);
        write_file(&format!("{device}/uevent"), &format!("DRIVER=amdgpu\nPCI_SLOT_NAME={}\n", card.pci));
        for (name, version) in card.firmware {
            write_file(&format!("{device}/fw_version/{name}_fw_version"), version);
        }
        let nodes = "sys/class/kfd/kfd/topology/nodes";
        write_file(
            &format!("{nodes}/0/properties"),
            "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n",
        );
        let (version, name) = card.processor;
        let (location, render) = (card.location, "drm_render_minor 128");
        let properties =
            format!("simd_count 240\ngfx_target_version {version}\nlocation_id {location}\n{render}\n");
        write_file(&format!("{nodes}/1/properties"), &properties);
        write_file(&format!("{nodes}/1/name"), name);
        write_file("dev/kfd", "");
        write_file("dev/dri/renderD128", "");
    }
    MESA.iter().chain(files).for_each(|(path, text)| write_file(path, text));
    rocm.iter().for_each(|(path, text)| write_file(path, text));
    root
}

fn options(root: &TempDir) -> ProbeOptions {
    let built_in = ["gfx900", "gfx906", "gfx1100", "gfx1151"].map(String::from).to_vec();
    ProbeOptions { built_in: Some(built_in), ..ProbeOptions::default().with_root(root.path()) }
}

/// Probes a system with one device: its report, and the printed table joined into one line.
fn probe_one(root: &TempDir) -> (DeviceReport, String) {
    probe_with(&options(root))
}

fn probe_with(options: &ProbeOptions) -> (DeviceReport, String) {
    let report = probe(options).unwrap();
    let text = table(&report);
    for line in text.lines().filter(|line| !line.contains("system paths below")) {
        // A single long word, such as a path, may exceed the width.
        let words = line.split_whitespace().count();
        assert!(line.chars().count() <= 100 || words <= 6, "{line}");
    }
    let reread: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(reread, report);
    assert!(report.machine.is_empty() && report.devices.len() == 1, "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (report.devices.into_iter().next().unwrap(), text)
}

/// Formats path, gate and state of every line.
fn states(device: &DeviceReport) -> Vec<String> {
    let line = |l: &super::Line| format!("{} {} {}", l.way.name(), l.gate.name(), l.state.name());
    device.lines.iter().map(line).collect()
}

/// Returns the expected states of a card that nothing blocks and on which nothing was run; `but` replaces
/// some of them.
fn expected(but: &[&str]) -> Vec<String> {
    let all = [
        "card hardware allows",
        "card kernel driver allows",
        "hip kernel driver allows",
        "hip device nodes allows",
        "vulkan device nodes allows",
        "hip firmware allows",
        "card firmware unknown",
        "hip runtime allows",
        "vulkan runtime allows",
        "hip AMD's files unknown",
        "hip support allows",
        "vulkan support allows",
        "hip code allows",
        "vulkan code allows",
        "hip recognition allows",
        "hip features allows",
        "hip smoke test unknown",
        "vulkan smoke test unknown",
    ];
    let name = |line: &str| line.rsplit_once(' ').unwrap().0.to_string();
    let replaced = |line: &&str| but.iter().find(|b| name(b) == name(line)).unwrap_or(line).to_string();
    all.iter().map(replaced).collect()
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

fn executes(device: &DeviceReport, way: AccessPath) -> (Option<bool>, &str) {
    let verdict = device.verdicts.iter().find(|verdict| verdict.way == way).unwrap();
    (verdict.executes.answer, &verdict.executes.why)
}

/// MI50 with ROCm 7.2, and an application that bundles libraries of 6.3: the kernel lists the card although
/// no module is called kfd, AMD does not list it as supported, and there are two runtimes.
#[test]
fn mi50_with_rocm_7_2_and_an_application_with_6_3() {
    let bundled = [("usr/lib/ollama/rocm/libamdhip64.so.6.3.60303", "")];
    let root = system(Some(&MI50), "6.8.0-45-generic\n", &bundled, &rocm("7.2.0"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support blocks"]));
    says(
        &text,
        &[
            "gfx906 (vega20) (gfx906, 1002:66a1, 0000:43:00)",
            "amdgpu is bound to it, kernel 6.8",
            "the compute driver KFD, a part of amdgpu, lists it as node 1",
            "/dev/kfd: can be opened; /dev/dri/renderD128: can be opened",
            "/opt/rocm-7.2.0/lib/libamdhip64.so.7.2.70200, found as /opt/rocm/lib/libamdhip64.so.7, ROCm 7.2.0",
            "mixed versions: ROCm 6.3.3 and 7.2.0 are installed",
            "/usr/lib/ollama/rocm/libamdhip64.so.6.3.60303 is 6.3.3",
            "ROCm 7.2.0 does not list gfx906",
            "an unsupported card may still execute",
            "code objects for gfx906 are built in (of gfx900, gfx906, gfx1100, gfx1151)",
            "the kernel reports gfx906; no override is set",
            "Gcn, waves of 64, dot product of bytes Sdot4",
            "radeon_icd.x86_64.json (Mesa 25.0.7)",
            "hip officially supported no:",
            "hip has code for the card yes:",
        ],
    );
    assert_eq!(
        executes(&device, AccessPath::Hip),
        (None, "nothing was run; no gate blocks without an override")
    );
    assert_eq!(executes(&device, AccessPath::Vulkan), (None, "nothing was run; no gate blocks"));
}

/// Vega 56 with the override that HIP needs there: all gates allow except official support, and the override
/// matches the card.
#[test]
fn vega_56_with_an_override() {
    let environment = [("proc/self/environ", "HOME=/root\0HSA_OVERRIDE_GFX_VERSION=9.0.0\0SECRET=x\0")];
    let root = system(Some(&VEGA56), "6.12.9\n", &environment, &rocm("6.4.4"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support blocks"]));
    says(
        &text,
        &[
            "set: HSA_OVERRIDE_GFX_VERSION=9.0.0",
            "HSA_OVERRIDE_GFX_VERSION=9.0.0 sets gfx900, the real processor",
            "ROCm 6.4.4 does not list gfx900",
            "code objects for gfx900 are built in",
            "dot product of bytes Software",
            "nothing was run; no gate blocks with HSA_OVERRIDE_GFX_VERSION=9.0.0",
        ],
    );
    assert!(!text.contains("SECRET"), "{text}");
    // An override for the node only takes precedence: the runtime would report a processor with instructions
    // that the card lacks.
    let environment = "HSA_OVERRIDE_GFX_VERSION=9.0.0\0HSA_OVERRIDE_GFX_VERSION_1=9.0.6\0";
    write(root.path(), "proc/self/environ", environment);
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support blocks", "hip recognition unknown"]));
    says(
        &text,
        &[
            "HSA_OVERRIDE_GFX_VERSION_1=9.0.6 makes the runtime report gfx906",
            "treat this processor as another one",
        ],
    );
    write(root.path(), "proc/self/environ", "HSA_OVERRIDE_GFX_VERSION=9.0\0");
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support blocks", "hip recognition blocks"]));
    says(
        &text,
        &["HSA_OVERRIDE_GFX_VERSION=9.0 is not a version that the runtime accepts", "three decimal numbers"],
    );
    assert_eq!(executes(&device, AccessPath::Hip).0, Some(false));
}

/// RX 7900 XT with ROCm 7.1: every gate allows and the card is supported, yet small allocations hang.
#[test]
fn rx_7900_xt_with_rocm_7_1() {
    let root = system(Some(&RX7900XT), "6.14.0\n", &[], &rocm("7.1.0"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&[]));
    says(
        &text,
        &[
            "gfx1100 (navi31)",
            "MES 0x6e",
            "many small allocations of a few thousand bytes are reported to hang",
            "for other programs, amdgpu.cwsr_enable=0 or ROCm 6.4.4 helped",
            "ROCm 7.1.0 lists gfx1100",
            "hip officially supported yes:",
        ],
    );
    // What is set is not advised again.
    write(root.path(), "sys/module/amdgpu/parameters/cwsr_enable", "0\n");
    let text = probe_one(&root).1;
    says(&text, &["amdgpu.cwsr_enable=0", "for other programs, ROCm 6.4.4 helped"]);
    assert!(!text.contains("amdgpu.cwsr_enable=0 or"), "{text}");
    // A thread that polls comes with a release; what is seen on any card when idle is not listed here.
    let root = system(Some(&RX7900XT), "6.18.0\n", &[], &rocm("7.14.0"));
    let text = probe_one(&root).1;
    says(&text, &["keeps a core busy while nothing runs"]);
    assert!(!text.contains("GPU_MAX_HW_QUEUES"), "{text}");
    // With the release that fixes the hang there is no advice.
    let root = system(Some(&RX7900XT), "6.14.0\n", &[], &rocm("6.4.4"));
    assert!(!probe_one(&root).1.contains("small allocations"));
}

/// Strix Halo with ROCm 7.1.1 and MES firmware 0x80: the save area of waves is too small, unless saving is
/// disabled.
#[test]
fn strix_halo_with_mes_80() {
    let saved = [("sys/module/amdgpu/parameters/cwsr_enable", "1\n")];
    let root = system(Some(&STRIX_HALO), "6.14.0-37-generic\n", &saved, &rocm("7.1.1"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip firmware blocks", "hip support unknown"]));
    says(
        &text,
        &[
            "hip firmware BLOCKS MES 0x80, amdgpu.cwsr_enable=1",
            "boot with amdgpu.cwsr_enable=0, or use a kernel from 6.18 and ROCm from 7.2.1 on (ROCm issues 5590, 5151",
            "ROCm 7.1.1 lists gfx1151 only on its track for Ryzen processors",
            "hip executes here no: firmware blocks: MES 0x80",
            "vulkan executes here unknown: nothing was run; no gate blocks",
        ],
    );
    assert!(!text.contains("0x83"), "{text}");
    says(&text, &["`probe --of ITS_FOLDER` lists the targets in it (ROCm issue 5534"]);
    let sentence = "hip is blocked by firmware: MES 0x80 with CWSR on; boot with amdgpu.cwsr_enable=0; vulkan is free: \
                    use --backend vulkan";
    assert!(text.ends_with(sentence), "{text}");
    assert_eq!(device.summary, sentence);
    // The override that its owner tried changes nothing of the chip.
    write(root.path(), "proc/self/environ", "HSA_OVERRIDE_GFX_VERSION=11.0.0\0");
    let (device, text) = probe_one(&root);
    let states_then = expected(&["hip firmware blocks", "hip support unknown", "hip recognition unknown"]);
    assert_eq!(states(&device), states_then);
    says(
        &text,
        &[
            "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes the runtime report gfx1100",
            "boot with amdgpu.cwsr_enable=0",
        ],
    );
    assert!(text.ends_with(sentence), "{text}");
    assert!(!text.contains("small allocations"), "known of the gfx1100, which this chip is not: {text}");
    fs::remove_file(root.path().join("proc/self/environ")).unwrap();
    write(root.path(), "sys/module/amdgpu/parameters/cwsr_enable", "0\n");
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip support unknown"]));
    assert!(!text.contains("boot with amdgpu.cwsr_enable=0"), "it is set: {text}");
    assert_eq!(device.summary, "hip is free: use --backend hip; vulkan is free: use --backend vulkan");
    // Kernel and ROCm are both new enough.
    let root = system(Some(&STRIX_HALO), "6.18.3\n", &saved, &rocm("7.2.1"));
    assert_eq!(states(&probe_one(&root).0), expected(&["hip support unknown"]));
}

/// Strix Halo with the broken MES firmware 0x83; the parameter does not help.
#[test]
fn strix_halo_with_mes_83() {
    let broken = [
        ("sys/module/amdgpu/parameters/cwsr_enable", "0\n"),
        ("sys/class/drm/card0/device/fw_version/mes_fw_version", "0x00006083\n"),
    ];
    let root = system(Some(&STRIX_HALO), "6.18.3\n", &broken, &rocm("7.2.1"));
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip firmware blocks", "hip support unknown"]));
    says(
        &text,
        &[
            "MES 0x83, amdgpu.cwsr_enable=0",
            "MES firmware 0x83 is broken: install a linux-firmware that has 0x80, or 0x84 and later",
            "(ROCm issues 5724, 5991)",
        ],
    );
    assert!(!text.contains("boot with"), "{text}");
    // A kernel that has no file for the firmware version: the state is unknown.
    fs::remove_dir_all(root.path().join("sys/class/drm/card0/device/fw_version")).unwrap();
    let (device, text) = probe_one(&root);
    assert_eq!(states(&device), expected(&["hip firmware unknown", "hip support unknown"]));
    says(&text, &["the version of the MES firmware is unknown", "amdgpu_firmware_info"]);
}

/// A machine without a card: the missing parts, and sources for them.
#[test]
fn no_card() {
    let root = system(None, "6.8.0\n", &[], &[]);
    fs::remove_dir_all(root.path().join("usr")).unwrap();
    let report = probe(&options(&root)).unwrap();
    assert!(report.devices.is_empty() && !report.works());
    assert!(report.machine.iter().all(|line| line.state == State::Blocks));
    let text = table(&report).split_whitespace().collect::<Vec<_>>().join(" ");
    says(
        &text,
        &[
            "no usable graphics card",
            "neither /sys/class/drm nor KFD lists a graphics card",
            "amdgpu is not loaded",
            "/dev/kfd: does not exist",
            "no libamdhip64 was found -> install ROCm's HIP runtime (https://rocm.docs.amd.com)",
            "no libvulkan.so.1 -> install Vulkan's loader and Mesa's drivers (Debian, Ubuntu: apt install libvulkan1",
        ],
    );
    let nowhere = probe(&ProbeOptions::default().with_root("/nowhere/at/all")).unwrap_err();
    assert_eq!(nowhere.to_string(), "root: /nowhere/at/all; expected a folder");
}

/// A user without permission to open /dev/kfd: HIP reports "no device", the matrix gives the reason; Vulkan
/// does not need that node.
#[test]
fn no_permission_on_kfd() {
    let root = system(Some(&MI50), "6.8.0\n", &[], &rocm("6.3.3"));
    let denied = ProbeOptions {
        open_node: Some(|path| match path.ends_with("kfd") {
            true => Err(IoError::from(ErrorKind::PermissionDenied)),
            false => Ok(()),
        }),
        ..options(&root)
    };
    let (device, text) = probe_with(&denied);
    assert_eq!(states(&device), expected(&["hip device nodes blocks", "hip support blocks"]));
    says(
        &text,
        &[
            "/dev/kfd: permission denied; owner",
            "/dev/dri/renderD128: can be opened",
            "sudo usermod -aG render,video $USER, then log in again",
            "hip executes here no: device nodes blocks: /dev/kfd:",
        ],
    );
    assert_eq!(executes(&device, AccessPath::Vulkan).0, None);
    let sentence = "hip is blocked by device nodes: this user may not open /dev/kfd; sudo usermod -aG render,video $USER, \
                    and log in again; vulkan is free: use --backend vulkan";
    assert!(text.ends_with(sentence), "{text}");
}

/// HIP_VISIBLE_DEVICES=0 on a machine with one card hides nothing. Another value hides the card, and is the answer.
#[test]
fn variables_that_hide_the_card() {
    let root = system(Some(&MI50), "6.8.0\n", &[], &rocm("5.7.1"));
    let set = |value: &str| {
        write(root.path(), "proc/self/environ", &format!("HIP_VISIBLE_DEVICES={value}\0"));
        probe_one(&root)
    };
    let (device, text) = set("0");
    assert_eq!(states(&device), expected(&[]));
    assert!(!text.contains("hides"), "{text}");
    let (device, text) = set("1");
    assert_eq!(states(&device), expected(&["hip recognition blocks"]));
    let sentence = "hip is blocked by recognition: HIP_VISIBLE_DEVICES=1 hides the card; unset HIP_VISIBLE_DEVICES; vulkan \
                    is free: use --backend vulkan";
    assert!(text.ends_with(sentence), "{text}");
}

/// Missing code for the card, as in a build for the wrong targets; a run-time compiler next to the runtime
/// compiles it.
#[test]
fn a_card_without_code() {
    let root = system(Some(&STRIX_HALO), "6.18.3\n", &[], &rocm("7.2.1"));
    let built_in = Some(vec!["gfx906".to_string()]);
    let options = ProbeOptions { built_in, ..options(&root) };
    let (device, text) = probe_with(&options);
    assert_eq!(states(&device), expected(&["hip support unknown", "hip code blocks"]));
    says(
        &text,
        &["no code object for gfx1151 is built in (built in: gfx906)", "DIPTYCH_HIP_TARGETS=gfx1151"],
    );
    write(root.path(), "opt/rocm-7.2.1/lib/libhiprtc.so.7", "");
    let (device, text) = probe_with(&options);
    assert_eq!(states(&device), expected(&["hip support unknown"]));
    says(&text, &["/opt/rocm-7.2.1/lib/libhiprtc.so.7 compiles the kernels at run time"]);
}

/// A card that the compute driver does not list, a card bound to another driver, and missing Vulkan drivers.
#[test]
fn the_kernel_and_the_drivers() {
    let root = system(Some(&VEGA56), "6.12.9\n", &[], &rocm("5.7.1"));
    fs::remove_dir_all(root.path().join("sys/class/kfd")).unwrap();
    write(root.path(), "sys/class/drm/card0/device/uevent", "DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:03:00.0\n");
    fs::remove_file(root.path().join("usr/lib/x86_64-linux-gnu/libvulkan_radeon.so")).unwrap();
    let (device, text) = probe_one(&root);
    let blocked = device.lines.iter().filter(|line| line.state == State::Blocks).count();
    assert!(blocked >= 3, "{text}");
    says(
        &text,
        &[
            "vfio-pci is bound to it, not amdgpu, kernel 6.12",
            "the kernel's compute driver (KFD) does not list it",
            "radeon_icd.x86_64.json: its library was not found",
            "vulkan executes here no: kernel driver blocks",
            "hip is blocked by kernel driver: vfio-pci is bound to the card, not amdgpu; bind the card to amdgpu; vulkan is \
             blocked by kernel driver: vfio-pci is bound to the card",
        ],
    );
}
