/// Returns the name of the AMD processor that the kernel driver's `gfx_target_version` (major * 10000 + minor
/// * 100 + stepping) denotes.
pub fn processor_of_kfd(version: u32) -> String {
    let (major, minor, stepping) = (version / 10000, version / 100 % 100, version % 100);
    format!("gfx{major}{minor:x}{stepping:x}")
}
