//! Initial scalar registers of a kernel, with those into which parts of its arguments are preloaded.
//!
//! Source: LLVM, "User Guide for AMDGPU Backend", "Preloaded Kernel Arguments".

use crate::code::Descriptor;
use crate::fault::FaultKind;
use crate::memory::Memory;

/// Returns the user SGPRs of a kernel. `packet`, `queue` and `arguments` are addresses.
///
/// # Errors [`FaultKind::InvalidLaunch`] if arguments that are preloaded are not in memory.
pub(crate) fn user_sgprs(
    memory: &Memory,
    descriptor: &Descriptor,
    packet: u64,
    queue: u64,
    arguments: u64,
    scratch_bytes: u32,
) -> Result<Vec<u32>, FaultKind> {
    let mut words = descriptor.user_sgprs(packet, queue, arguments, scratch_bytes);
    let preload = descriptor.preload;
    if preload.words > 0 {
        let missing = || {
            FaultKind::InvalidLaunch(format!(
                "has its arguments at {arguments:#x}, of which some that are preloaded are not in memory"
            ))
        };
        let first = arguments.checked_add(4 * u64::from(preload.first)).ok_or_else(missing)?;
        let (region, offset) = memory.whole(first, 4 * u64::from(preload.words)).ok_or_else(missing)?;
        let from = words.len();
        words.resize(from + preload.words as usize, 0);
        region.load_into(offset, &mut words[from..]);
    }
    Ok(words)
}
