//! Information of the operating system about the processor and memory.

use crate::error::Error;

/// Returns the processor's name, where available.
pub(super) fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    // x86 has "model name"; Arm boards often have "Model" or "Hardware" only.
    ["model name", "Model", "Hardware"].into_iter().find_map(|key| field(&text, key)).map(str::to_string)
}

/// Returns the machine's memory in bytes.
pub(super) fn total_memory() -> Option<u64> {
    memory("MemTotal")
}

/// Returns the memory in bytes that programs can get without swapping.
pub(super) fn available_memory() -> Option<u64> {
    memory("MemAvailable")
}

/// Returns the error of a failed allocation.
pub(super) fn out_of_memory(asked: usize) -> Error {
    let heap = "host memory".into();
    Error::OutOfMemory {
        backend: super::NAME.into(),
        asked: asked as u64,
        free: available_memory(),
        heap,
        driver: None,
    }
}

/// Returns the memory in bytes that programs can get if others are swapped out.
pub(super) fn obtainable_memory() -> Option<u64> {
    Some(available_memory()?.saturating_add(memory("SwapFree").unwrap_or(0)))
}

fn memory(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, key)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the value of the first "key : value" line with this key.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, value) = text.lines().filter_map(|l| l.split_once(':')).find(|(k, _)| k.trim() == key)?;
    Some(value.trim()).filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.80GHz\nempty :\nMemTotal:       24 kB\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2.80GHz"));
        assert_eq!(field(text, "MemTotal"), Some("24 kB"));
        assert_eq!((field(text, "empty"), field(text, "model")), (None, None));
    }
}
