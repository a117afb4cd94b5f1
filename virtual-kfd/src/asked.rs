//! Bytes that a program asked for, where a runtime allocates whole pages: kernels are kept inside them.

use crate::allocation::Allocation;
use crate::driver::Driver;
use crate::shared::Shared;

impl Driver {
    /// Tells how many bytes the program asked for of the memory at an address, until [`Driver::gives_back`]: kernels that
    /// access more of it fault. Without effect for memory that does not begin there, or is smaller.
    pub fn asked_for(&self, address: u64, bytes: u64) {
        let shared = &self.shared;
        let mut state = shared.state();
        state.asked.insert(address, bytes);
        let allocation = state.allocations.values().find(|a| a.address == address);
        if let Some(allocation) = allocation {
            allocation.mapped.iter().for_each(|&card| shared.bound(allocation, card, bytes));
        }
    }

    /// Ends what [`Driver::asked_for`] told. The runtime unmaps the memory, or uses it for itself.
    pub fn gives_back(&self, address: u64) {
        let shared = &self.shared;
        let mut state = shared.state();
        if state.asked.remove(&address).is_none() {
            return;
        }
        let allocation = state.allocations.values().find(|a| a.address == address);
        if let Some(allocation) = allocation {
            for &card in &allocation.mapped {
                // Mapped there, by `map`.
                let _ = shared.devices[card].gpu.set_windows(address, None);
            }
        }
    }
}

impl Shared {
    /// Keeps the kernels of a card inside the first bytes of an allocation that it knows.
    pub(crate) fn bound(&self, allocation: &Allocation, card: usize, bytes: u64) {
        if bytes > 0 && bytes < allocation.bytes {
            let (address, all) = (allocation.address, allocation.bytes);
            let windows = self.devices[card].gpu.set_windows(address, Some(vec![(0, bytes)]));
            self.log(|| format!("  {address:#x}: {bytes} of {all} bytes: {windows:?}"));
        }
    }
}
