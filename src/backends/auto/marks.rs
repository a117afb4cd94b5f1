//! Marks: everything that a choice depends on.

use crate::backends::OpenOptions;
use crate::backends::files;
use ggml_core::environment::{HIP, OWN, VULKAN, recorded};
use ggml_core::files::Root;
use ggml_core::hash::Fnv1a;

/// Everything a choice depends on, as names and hashes of values. Any change triggers a new measurement.
pub(super) fn marks(options: &OpenOptions) -> Vec<(String, String)> {
    let root = Root::default();
    let environment = files::variables();
    let mut marks = vec![("diptych".to_string(), env!("CARGO_PKG_VERSION").to_string())];
    let mut add = |name: String, value: String| marks.push((name, value));
    add("kernel".into(), root.line("/proc/sys/kernel/osrelease").unwrap_or_default());
    add("NVIDIA's driver".into(), root.line("/proc/driver/nvidia/version").unwrap_or_default());
    for card in root.names("/sys/class/drm").into_iter().filter(|n| n.starts_with("card") && !n.contains('-'))
    {
        let id = |file: &str| root.line(format!("/sys/class/drm/{card}/device/{file}")).unwrap_or_default();
        add(card.clone(), format!("{} {}", id("vendor"), id("device")));
    }
    for driver in files::vulkan_drivers(&root, &environment) {
        let library = driver.library.as_deref().map(files::mark).unwrap_or_default();
        add(format!("Vulkan driver {}", driver.manifest.display()), library);
    }
    add("Vulkan's loader".into(), files::vulkan_loader(&root).map_or(String::new(), |p| files::mark(&p)));
    #[cfg(feature = "hip")]
    for library in crate::backends::drivers::hip_libraries(options) {
        add(format!("HIP library {}", library.display()), files::mark(&library));
    }
    for (name, value) in recorded(std::env::vars_os(), &[OWN, VULKAN, HIP]) {
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
