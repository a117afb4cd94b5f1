//! Marks: everything that a choice depends on.

use crate::backends::OpenOptions;
use crate::backends::files::{self, Variables};
use ggml_core::environment::{HIP, OWN, VULKAN, recorded};
use ggml_core::files::Root;
use ggml_core::hash::Fnv1a;

/// Everything a choice depends on, as names and hashes of values. Any change triggers a new measurement.
pub(super) fn marks(options: &OpenOptions) -> Vec<(String, String)> {
    marks_on(&Root::default(), &files::variables(), options)
}

/// Returns the marks of a system with these environment variables.
fn marks_on(root: &Root, environment: &Variables, options: &OpenOptions) -> Vec<(String, String)> {
    let mut marks = vec![("diptych".to_string(), env!("CARGO_PKG_VERSION").to_string())];
    let mut add = |name: String, value: String| marks.push((name, value));
    add("kernel".into(), root.line("/proc/sys/kernel/osrelease").unwrap_or_default());
    add("NVIDIA's driver".into(), root.line("/proc/driver/nvidia/version").unwrap_or_default());
    for card in root.names("/sys/class/drm").into_iter().filter(|n| n.starts_with("card") && !n.contains('-'))
    {
        let id = |file: &str| root.line(format!("/sys/class/drm/{card}/device/{file}")).unwrap_or_default();
        add(card.clone(), format!("{} {}", id("vendor"), id("device")));
    }
    for driver in files::vulkan_drivers(root, environment) {
        let library = driver.library.as_deref().map(files::mark).unwrap_or_default();
        add(format!("Vulkan driver {}", driver.manifest.display()), library);
    }
    add("Vulkan's loader".into(), files::vulkan_loader(root).map_or(String::new(), |p| files::mark(&p)));
    #[cfg(feature = "hip")]
    for library in crate::backends::drivers::hip_libraries(options) {
        add(format!("HIP library {}", library.display()), files::mark(&library));
    }
    let variables = environment.iter().map(|(name, value)| (name.into(), value.into()));
    for (name, value) in recorded(variables, &[OWN, VULKAN, HIP]) {
        add(format!("variable {name}"), value);
    }
    add(
        "options".into(),
        format!("{:?} {:?} {:?}", options.threads, options.vulkan_arch, options.hip_library),
    );
    // The file of the choice needs no values: a change is enough, and a path may have the name of a user.
    marks.into_iter().map(|(name, value)| (name, format!("{:016x}", Fnv1a::of(value.as_bytes())))).collect()
}

/// Describes the first mark that changed.
pub(super) fn first_change(old: &[(String, String)], new: &[(String, String)]) -> Option<String> {
    let missing = |(name, value): &(String, String), among: &[(String, String)]| {
        !among.iter().any(|(n, v)| n == name && v == value)
    };
    let gone = old.iter().find(|mark| missing(mark, new));
    let come = new.iter().find(|mark| missing(mark, old));
    gone.or(come).map(|(name, _)| format!("{name} has changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that only a variable names is a mark, and no value of a variable is one: the marks are stored.
    #[test]
    fn variables_and_their_drivers_are_marks_without_values() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(root.below(path).parent().unwrap()).unwrap();
            std::fs::write(root.below(path), text).unwrap();
        };
        write("/home/me/one.json", r#"{"ICD": {"library_path": "/opt/one.so"}}"#);
        write("/opt/one.so", "Mesa 25.0.7");
        let of = |value: &str| {
            let variables = [("VK_DRIVER_FILES", value), ("RADV_DEBUG", "nocache")];
            let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
            marks_on(&root, &variables, &OpenOptions::default())
        };
        let marks = of("/home/me/one.json");
        let names: Vec<&str> = marks.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["Vulkan driver /home/me/one.json", "variable VK_DRIVER_FILES", "variable RADV_DEBUG"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let is_hash = |value: &str| value.len() == 16 && value.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(marks.iter().all(|(_, value)| is_hash(value)), "{marks:?}");
        assert_ne!(of("/home/me/other.json"), marks);
    }

    #[test]
    fn what_changed_is_named() {
        let mark = |name: &str, value: &str| (name.to_string(), value.to_string());
        let old = [mark("a", "1"), mark("b", "1")];
        assert_eq!(first_change(&old, &old), None);
        assert_eq!(first_change(&old, &[mark("a", "1")]).as_deref(), Some("b has changed"));
        assert_eq!(first_change(&old[..1], &old).as_deref(), Some("b has changed"));
        assert_eq!(first_change(&old, &[mark("a", "2"), mark("b", "1")]).as_deref(), Some("a has changed"));
    }
}
