//! Signs of a card on a machine whose loader lists processors only.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// PCI vendors of cards that compute: AMD, NVIDIA, Intel. Servers also have simple display adapters.
const VENDORS: [(&str, &str); 3] = [("0x1002", "AMD"), ("0x10de", "NVIDIA"), ("0x8086", "Intel")];

/// Returns the render nodes below a root folder that this user may not open.
pub(super) fn denied_nodes(root: &Path) -> Vec<String> {
    let denied = |path: &PathBuf| {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    render_nodes(root).into_iter().filter(denied).map(|p| p.display().to_string()).collect()
}

/// Returns the reason why the loader does not list a card that the system knows; `None` if there is no sign of
/// one. `manifests` names the installed drivers.
pub(super) fn missing_card(root: &Path, denied: &[String], manifests: &str) -> Option<String> {
    let card = card(root)?;
    Some(match (denied, render_nodes(root).is_empty()) {
        ([], true) => format!("{card}, but no /dev/dri/renderD*: in a container pass --device /dev/dri"),
        ([], false) => format!("{card}, but none of the installed drivers lists it ({manifests})"),
        (nodes, _) => format!("{card}, but this user has no permission to open {}", nodes.join(", ")),
    })
}

fn render_nodes(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("dev/dri")).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.to_string_lossy().contains("renderD")).collect()
}

/// Returns a sign that there is a card. A container sees the system's list of cards, even without their nodes.
fn card(root: &Path) -> Option<String> {
    let entries = std::fs::read_dir(root.join("sys/class/drm")).into_iter().flatten().flatten();
    let vendor = |path: PathBuf| {
        let id = std::fs::read_to_string(path.join("device/vendor")).ok()?;
        VENDORS.iter().find(|(known, _)| *known == id.trim()).map(|(_, name)| *name)
    };
    let found = entries.map(|e| e.path()).filter_map(vendor).min();
    let kfd = root.join("dev/kfd").exists().then_some("AMD");
    let denied = (!render_nodes(root).is_empty()).then_some("unknown");
    found.or(kfd).or(denied).map(|vendor| format!("there is a card (vendor: {vendor})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(root: &Path, denied: &[String]) -> Option<String> {
        missing_card(root, denied, "driver manifests: lvp_icd.json")
    }

    #[test]
    fn a_card_without_node_or_driver_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(missing(root, &[]), None);
        let vendor = |id: &str| {
            std::fs::create_dir_all(root.join("sys/class/drm/card0/device")).unwrap();
            std::fs::write(root.join("sys/class/drm/card0/device/vendor"), id).unwrap();
        };
        vendor("0x1a03\n");
        assert_eq!(missing(root, &[]), None, "a server's display adapter");
        vendor("0x1002\n");
        let says = |denied: &[String], parts: [&str; 2]| {
            let text = missing(root, denied).expect("a sign");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        says(&[], ["AMD", "--device /dev/dri"]);
        std::fs::create_dir_all(root.join("dev/dri")).unwrap();
        std::fs::write(root.join("dev/dri/renderD128"), "").unwrap();
        says(&[], ["AMD", "lvp_icd.json"]);
        says(&["/dev/dri/renderD128".into()], ["permission", "renderD128"]);
        vendor("0x1a03\n");
        says(&[], ["unknown", "lvp_icd.json"]);
    }
}
