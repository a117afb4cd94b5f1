//! Environment variables that hide devices, and whether one of them hides a device.
//!
//! AMD's runtime applies `ROCR_VISIBLE_DEVICES` first, even if it is empty. `HIP_VISIBLE_DEVICES`, or
//! `CUDA_VISIBLE_DEVICES` if that is empty, counts the devices that are left. A value is a list of indexes and of
//! UUIDs, and ends at the first entry that names no device. `ROCR_VISIBLE_DEVICES` puts the devices in its order and ends
//! at a repeated one, too. `GPU_DEVICE_ORDINAL` is read for OpenCL only.
//! Source: ROCclr, `Device::init`; ROCR-Runtime, `amd_filter_device.h`.

use super::KfdGpu;
use crate::options::Environment;

/// Returns the variable that hides the device at a PCI address from AMD's runtime, as "NAME=VALUE"; `None` if no
/// variable does or the device is not among `gpus`.
pub fn hiding(environment: &Environment, gpus: &[KfdGpu], pci: [u32; 3]) -> Option<String> {
    let own = gpus.iter().position(|gpu| gpu.pci == pci)?;
    first(environment, gpus, |visible| !visible.contains(&own))
}

/// Returns the variable that hides every device from AMD's runtime.
pub fn hiding_all(environment: &Environment, gpus: &[KfdGpu]) -> Option<String> {
    first(environment, gpus, |visible| visible.is_empty() && !gpus.is_empty())
}

/// Returns a variable that AMD's runtime reads and that is set, whatever it hides.
pub fn any_set(environment: &Environment) -> Option<String> {
    settings(environment).into_iter().next().map(|(name, value)| format!("{name}={value}"))
}

/// Returns the first variable after which `holds` of the indexes of the visible devices.
fn first(environment: &Environment, gpus: &[KfdGpu], holds: impl Fn(&[usize]) -> bool) -> Option<String> {
    let mut visible: Vec<usize> = (0..gpus.len()).collect();
    for (name, value) in settings(environment) {
        visible = select(value, &visible, gpus);
        if holds(&visible) {
            return Some(format!("{name}={value}"));
        }
    }
    None
}

/// Returns the variables that are in effect, in the order in which the runtime applies them.
fn settings(environment: &Environment) -> Vec<(&'static str, &str)> {
    let raw = environment.variables().iter().find(|(name, _)| name == "ROCR_VISIBLE_DEVICES");
    let hip = ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];
    let hip = hip.into_iter().find_map(|name| Some((name, environment.get(name)?)));
    raw.map(|(_, value)| ("ROCR_VISIBLE_DEVICES", value.as_str())).into_iter().chain(hip).collect()
}

/// Returns the devices of `visible` that a value selects.
fn select(value: &str, visible: &[usize], gpus: &[KfdGpu]) -> Vec<usize> {
    let named = |token: &str| match token.strip_prefix("GPU-") {
        Some(uuid) => {
            let id = u64::from_str_radix(uuid, 16).ok().filter(|&id| id != 0)?;
            visible.iter().copied().find(|&index| gpus[index].unique_id == id)
        }
        None => visible.get(token.parse::<usize>().ok()?).copied(),
    };
    let mut selected = Vec::new();
    for index in value.split(',').map_while(named) {
        if selected.contains(&index) {
            break;
        }
        selected.push(index);
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Target;

    fn gpus(count: u32) -> Vec<KfdGpu> {
        let gpu = |index: u32| KfdGpu {
            node: index + 1,
            target: Target::from_kfd(90006),
            name: String::new(),
            pci: [0, index, 0],
            unique_id: 0x1234_5678_9abc_0000 + u64::from(index),
            render_minor: None,
        };
        (0..count).map(gpu).collect()
    }

    fn hidden(count: u32, card: u32, variables: &[(&str, &str)]) -> Option<String> {
        let environment =
            Environment::new(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        hiding(&environment, &gpus(count), [0, card, 0])
    }

    /// The value 0 on a machine with one card hides nothing.
    #[test]
    fn a_variable_counts_only_where_it_excludes_the_card() {
        let hip = "HIP_VISIBLE_DEVICES";
        assert_eq!(hidden(1, 0, &[(hip, "0")]), None);
        assert_eq!(hidden(1, 0, &[(hip, "1")]).as_deref(), Some("HIP_VISIBLE_DEVICES=1"));
        assert_eq!(hidden(2, 0, &[(hip, "1")]).as_deref(), Some("HIP_VISIBLE_DEVICES=1"));
        assert_eq!(hidden(2, 1, &[(hip, "1")]), None);
        assert_eq!(hidden(2, 1, &[(hip, "0,5,1")]).as_deref(), Some("HIP_VISIBLE_DEVICES=0,5,1"));
        assert_eq!(hidden(2, 1, &[(hip, "GPU-123456789abc0001")]), None);
        assert_eq!(hidden(2, 0, &[(hip, "GPU-123456789abc0001")]).as_deref().map(|s| &s[..3]), Some("HIP"));
        assert_eq!(hidden(1, 0, &[(hip, "-1")]).as_deref(), Some("HIP_VISIBLE_DEVICES=-1"));
        assert_eq!(hidden(1, 0, &[("GPU_DEVICE_ORDINAL", "7")]), None, "for OpenCL");
        assert_eq!(hidden(1, 4, &[(hip, "1")]), None, "the kernel does not list such a card");
    }

    #[test]
    fn the_second_variable_counts_what_the_first_left() {
        let both = |hip| [("ROCR_VISIBLE_DEVICES", "1,2"), ("HIP_VISIBLE_DEVICES", hip)];
        assert_eq!(hidden(3, 1, &both("0")), None);
        assert_eq!(hidden(3, 2, &both("0")).as_deref(), Some("HIP_VISIBLE_DEVICES=0"));
        assert_eq!(hidden(3, 0, &both("0")).as_deref(), Some("ROCR_VISIBLE_DEVICES=1,2"));
        let reversed = [("ROCR_VISIBLE_DEVICES", "2,1"), ("HIP_VISIBLE_DEVICES", "0")];
        assert_eq!(hidden(3, 2, &reversed), None);
        assert_eq!(hidden(3, 1, &reversed).as_deref(), Some("HIP_VISIBLE_DEVICES=0"));
        assert_eq!(
            hidden(3, 2, &[("ROCR_VISIBLE_DEVICES", "1,1,2")]).as_deref(),
            Some("ROCR_VISIBLE_DEVICES=1,1,2")
        );
        assert_eq!(hidden(1, 0, &[("ROCR_VISIBLE_DEVICES", "")]).as_deref(), Some("ROCR_VISIBLE_DEVICES="));
        assert_eq!(hidden(1, 0, &[("HIP_VISIBLE_DEVICES", "")]), None);
        let twins = [("CUDA_VISIBLE_DEVICES", "1"), ("HIP_VISIBLE_DEVICES", "0")];
        assert_eq!(hidden(2, 0, &twins), None, "CUDA's name counts only without HIP's");
        assert_eq!(hidden(2, 0, &twins[..1]).as_deref(), Some("CUDA_VISIBLE_DEVICES=1"));
        let none = Environment::new([("HIP_VISIBLE_DEVICES".into(), "7".into())]);
        assert_eq!(hiding_all(&none, &gpus(2)).as_deref(), Some("HIP_VISIBLE_DEVICES=7"));
        assert_eq!(hiding_all(&none, &[]), None);
        assert_eq!(any_set(&none).as_deref(), Some("HIP_VISIBLE_DEVICES=7"));
    }
}
