//! System facts about AMD devices, read without a runtime: device nodes, permissions, the kernel driver's
//! topology.
//!
//! The runtime reports "no device" both if there is none and if this user may not open it. This module
//! therefore checks the nodes itself, under a root that tests replace.

mod cards;
mod filters;

pub use cards::{Card, KernelFacts, Memory, cards, parse_pci, pci_text};
pub use filters::{any_set, hiding, hiding_all};

use crate::arch::Target;
use crate::options::HipOptions;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Result of opening a device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The node does not exist.
    Absent,
    /// The node can be opened for reading and writing.
    Open,
    /// This user may not open the node. The text contains owner, group and mode.
    Denied(String),
    /// The node cannot be opened for another reason.
    Broken(String),
}

/// Device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Path on the system ("/dev/kfd").
    pub path: PathBuf,
    /// Result of opening the node.
    pub state: NodeState,
}

/// GPU in the topology of the kernel's compute driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdGpu {
    /// Number of the topology node, as used by `HSA_OVERRIDE_GFX_VERSION_<node>`.
    pub node: u32,
    /// Processor that the kernel reports, regardless of overrides.
    pub target: Target,
    /// The driver's name for the GPU ("vega20"), empty if it has none.
    pub name: String,
    /// PCI domain, bus and device.
    pub pci: [u32; 3],
    /// `unique_id`, 0 if there is none.
    pub unique_id: u64,
    /// Number of the render node (128 for renderD128).
    pub render_minor: Option<u32>,
}

/// Everything that is checked if no device is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemReport {
    /// `/dev/kfd`.
    pub kfd: Node,
    /// `/dev/dri/renderD*` of AMD devices and of devices of unknown vendor.
    pub render: Vec<Node>,
    /// GPUs in the kernel driver's topology.
    pub gpus: Vec<KfdGpu>,
}

impl SystemReport {
    /// Reads the report. Opens each node once.
    pub fn read(options: &HipOptions) -> SystemReport {
        SystemReport {
            kfd: node(options, Path::new("/dev/kfd")),
            render: render_nodes(options),
            gpus: kfd_gpus(options),
        }
    }

    /// Returns the nodes that exist but may not be opened.
    pub fn denied(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.kfd).chain(&self.render).filter(|n| matches!(n.state, NodeState::Denied(_)))
    }

    /// Returns the report as text.
    pub fn describe(&self) -> String {
        let mut parts: Vec<String> =
            std::iter::once(&self.kfd).chain(&self.render).map(Node::describe).collect();
        if self.render.is_empty() {
            parts.push("/dev/dri: no render node of an AMD device".into());
        }
        parts.push(match self.gpus.as_slice() {
            [] => "the kernel's compute driver (KFD) lists no GPU".into(),
            gpus => {
                let names: Vec<String> =
                    gpus.iter().map(|g| format!("{} (node {})", g.target, g.node)).collect();
                format!("the kernel's compute driver (KFD) lists {}", names.join(", "))
            }
        });
        parts.join("; ")
    }
}

impl Node {
    /// Returns "path: result".
    pub fn describe(&self) -> String {
        let path = self.path.display();
        match &self.state {
            NodeState::Absent => format!("{path}: does not exist"),
            NodeState::Open => format!("{path}: can be opened"),
            NodeState::Denied(text) | NodeState::Broken(text) => format!("{path}: {text}"),
        }
    }
}

/// Everything that is checked if libcuda finds no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaReport {
    /// `/dev/nvidiactl`, `/dev/nvidia-uvm` and `/dev/nvidia<N>`.
    pub nodes: Vec<Node>,
    /// First line of `/proc/driver/nvidia/version`, if the kernel driver is loaded.
    pub kernel_driver: Option<String>,
}

impl NvidiaReport {
    /// Reads the report. Opens each node once.
    pub fn read(options: &HipOptions) -> NvidiaReport {
        let numbered = |name: &String| {
            name.strip_prefix("nvidia")
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let mut names: Vec<String> =
            entries(&options.rooted("/dev")).into_iter().filter(|name| numbered(name)).collect();
        names.sort();
        names.splice(..0, ["nvidiactl".into(), "nvidia-uvm".into()]);
        let version = read_line(options, "/proc/driver/nvidia/version");
        NvidiaReport {
            nodes: names.iter().map(|n| node(options, &Path::new("/dev").join(n))).collect(),
            kernel_driver: version,
        }
    }

    /// Returns the number of devices that have a node.
    pub fn devices(&self) -> usize {
        let is_device = |n: &&Node| !n.path.ends_with("nvidiactl") && !n.path.ends_with("nvidia-uvm");
        self.nodes.iter().filter(is_device).count()
    }

    /// Returns the nodes that exist but may not be opened.
    pub fn denied(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| matches!(n.state, NodeState::Denied(_)))
    }

    /// Returns the report as text.
    pub fn describe(&self) -> String {
        let driver = match &self.kernel_driver {
            Some(version) => format!("kernel driver: {version}"),
            None => "/proc/driver/nvidia/version: NVIDIA's kernel driver is not loaded".into(),
        };
        self.nodes.iter().map(Node::describe).chain([driver]).collect::<Vec<_>>().join("; ")
    }
}

/// Returns the bytes of host memory that are available without swapping.
pub(crate) fn available_memory(options: &HipOptions) -> Option<u64> {
    let text = fs::read_to_string(options.rooted("/proc/meminfo")).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kilobytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the first line of a small file, if it can be read.
pub fn read_line(options: &HipOptions, path: &str) -> Option<String> {
    first_line(&options.rooted(path))
}

fn first_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_string())
}

/// Returns the processor that the kernel reports at a PCI address.
pub fn kfd_gpu_at(options: &HipOptions, pci: [u32; 3]) -> Option<KfdGpu> {
    kfd_gpus(options).into_iter().find(|g| g.pci == pci)
}

fn node(options: &HipOptions, path: &Path) -> Node {
    let real = options.rooted(path);
    let state = match fs::metadata(&real) {
        Err(e) if e.kind() == ErrorKind::NotFound => NodeState::Absent,
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            NodeState::Denied(format!("this user has no permission to inspect it ({e})"))
        }
        Err(e) => NodeState::Broken(e.to_string()),
        Ok(metadata) => match (options.open_node)(&real) {
            Ok(()) => NodeState::Open,
            // EACCES: denied by owner and mode. EPERM: denied by a container's list of devices.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                NodeState::Denied(format!("{e}; {}", ownership(options, &metadata)))
            }
            Err(e) => NodeState::Broken(e.to_string()),
        },
    };
    Node { path: path.into(), state }
}

#[cfg(unix)]
fn ownership(options: &HipOptions, metadata: &fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let name = |file: &str, id: u32| {
        let text = fs::read_to_string(options.rooted(file)).unwrap_or_default();
        let found = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_string())
        });
        found.unwrap_or_else(|| id.to_string())
    };
    let group = name("/etc/group", metadata.gid());
    let owner = name("/etc/passwd", metadata.uid());
    let mode = metadata.mode() & 0o7777;
    let advice = if mode & 0o060 == 0o060 {
        format!("add the user to group {group} and log in again")
    } else {
        "its group has no access either: see the udev rules for render nodes".to_string()
    };
    format!(
        "owner {owner}, group {group}, mode {mode:04o}: {advice} (usual group: render); in a container pass the node \
         (--device) and its group"
    )
}

#[cfg(not(unix))]
fn ownership(_options: &HipOptions, _metadata: &fs::Metadata) -> String {
    "see the owner of the device".into()
}

fn render_nodes(options: &HipOptions) -> Vec<Node> {
    let vendor_of =
        |name: &str| fs::read_to_string(options.rooted(format!("/sys/class/drm/{name}/device/vendor"))).ok();
    let mut names: Vec<String> = entries(&options.rooted("/dev/dri"))
        .into_iter()
        .filter(|n| n.starts_with("renderD"))
        .filter(|n| vendor_of(n).is_none_or(|v| v.trim() == "0x1002"))
        .collect();
    names.sort();
    names.iter().map(|n| node(options, &Path::new("/dev/dri").join(n))).collect()
}

fn kfd_gpus(options: &HipOptions) -> Vec<KfdGpu> {
    let nodes = options.rooted("/sys/class/kfd/kfd/topology/nodes");
    let mut gpus: Vec<KfdGpu> = entries(&nodes)
        .into_iter()
        .filter_map(|name| {
            let text = fs::read_to_string(nodes.join(&name).join("properties")).ok()?;
            let values: HashMap<&str, u64> = text
                .lines()
                .filter_map(|line| line.split_once(' '))
                .filter_map(|(key, value)| Some((key, value.trim().parse().ok()?)))
                .collect();
            let value = |key: &str| values.get(key).copied().unwrap_or(0);
            let version = u32::try_from(value("gfx_target_version")).ok().filter(|&v| v != 0)?;
            // Bus in bits 8 to 15, device in bits 3 to 7, function in bits 0 to 2.
            let location = value("location_id") as u32;
            Some(KfdGpu {
                node: name.parse().ok()?,
                target: Target::from_kfd(version),
                name: first_line(&nodes.join(&name).join("name")).unwrap_or_default(),
                pci: [value("domain") as u32, location >> 8 & 0xff, location >> 3 & 0x1f],
                unique_id: value("unique_id"),
                render_minor: u32::try_from(value("drm_render_minor")).ok().filter(|&m| m != 0),
            })
        })
        .collect();
    gpus.sort_by_key(|g| g.node);
    gpus
}

/// Returns the names in a directory; empty if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    pub(super) fn options(root: &Path) -> HipOptions {
        HipOptions { system_root: root.into(), ..HipOptions::default() }
    }

    pub(super) fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn an_empty_system() {
        let root = tempfile::tempdir().unwrap();
        let report = SystemReport::read(&options(root.path()));
        assert_eq!(report.kfd.state, NodeState::Absent);
        assert_eq!(report.denied().count(), 0);
        let text = report.describe();
        assert!(text.contains("/dev/kfd: does not exist") && text.contains("lists no GPU"), "{text}");
    }

    /// Tests may run as root, to whom access is never denied, so the denial is injected.
    #[test]
    fn denied_nodes_name_owner_group_mode_and_advice() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "dev/kfd", "");
        write(root.path(), "dev/dri/renderD128", "");
        write(root.path(), "dev/dri/renderD129", "");
        write(root.path(), "sys/class/drm/renderD129/device/vendor", "0x8086\n");
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, PermissionsExt};
            let kfd = root.path().join("dev/kfd");
            fs::set_permissions(&kfd, fs::Permissions::from_mode(0o660)).unwrap();
            let gid = fs::metadata(&kfd).unwrap().gid();
            write(root.path(), "etc/group", &format!("video:x:99999:\nrender:x:{gid}:\n"));
        }
        let mut options = options(root.path());
        options.open_node = |path| {
            if path.ends_with("kfd") { Err(io::Error::from(ErrorKind::PermissionDenied)) } else { Ok(()) }
        };
        let report = SystemReport::read(&options);
        let denied: Vec<String> = report.denied().map(Node::describe).collect();
        assert_eq!(denied.len(), 1);
        for part in ["/dev/kfd", "group render", "mode 0660", "add the user to group render"] {
            assert!(denied[0].contains(part), "{part}: {}", denied[0]);
        }
        assert_eq!(report.render.len(), 1, "another vendor's node does not matter");
        assert!(report.describe().contains("renderD128: can be opened"));
    }

    #[test]
    fn nvidia_nodes_and_kernel_facts() {
        let root = tempfile::tempdir().unwrap();
        let mut options = options(root.path());
        let report = NvidiaReport::read(&options);
        assert!(
            report.describe().contains("/dev/nvidiactl: does not exist; /dev/nvidia-uvm: does not exist")
        );
        assert!(report.describe().contains("kernel driver is not loaded"));
        assert_eq!(KernelFacts::read(&options, [0; 3]), KernelFacts::default());
        for name in ["nvidiactl", "nvidia0", "nvidia-modeset"] {
            write(root.path(), &format!("dev/{name}"), "");
        }
        write(root.path(), "proc/driver/nvidia/version", "NVRM version: 570.1\nGCC\n");
        options.open_node = |path| {
            if path.ends_with("nvidia0") { Err(io::Error::from(ErrorKind::PermissionDenied)) } else { Ok(()) }
        };
        let report = NvidiaReport::read(&options);
        assert_eq!((report.nodes.len(), report.devices()), (3, 1), "{report:?}");
        assert_eq!(
            report.denied().map(|n| n.path.as_path()).collect::<Vec<_>>(),
            [Path::new("/dev/nvidia0")]
        );
        assert!(report.describe().ends_with("kernel driver: NVRM version: 570.1"));
        write(root.path(), "proc/sys/kernel/osrelease", "6.14.0-37-generic\n");
        write(root.path(), "sys/module/amdgpu/parameters/cwsr_enable", "1\n");
        write(root.path(), "sys/bus/pci/devices/0000:c5:00.0/fw_version/mes_fw_version", "0x00000083\n");
        let facts = KernelFacts::read(&options, [0, 0xc5, 0]);
        assert_eq!((facts.release, facts.cwsr, facts.mes), (Some((6, 14)), Some(true), Some(0x83)));
    }

    #[test]
    fn topology_is_read() {
        let root = tempfile::tempdir().unwrap();
        let nodes = "sys/class/kfd/kfd/topology/nodes";
        write(
            root.path(),
            &format!("{nodes}/0/properties"),
            "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n",
        );
        write(
            root.path(),
            &format!("{nodes}/1/properties"),
            "simd_count 240\ngfx_target_version 90006\nlocation_id 17152\ndomain 0\ndrm_render_minor 128\n\
             unique_id 15183212345678901234\nnonsense\n",
        );
        let gpu = kfd_gpu_at(&options(root.path()), [0, 0x43, 0]).unwrap();
        assert_eq!((gpu.node, gpu.target.processor.as_str(), gpu.render_minor), (1, "gfx906", Some(128)));
        assert_eq!(gpu.unique_id, 15_183_212_345_678_901_234);
        assert!(kfd_gpu_at(&options(root.path()), [0, 0x44, 0]).is_none());
    }
}
