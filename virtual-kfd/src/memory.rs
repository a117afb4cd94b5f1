//! Memory: allocates it, makes it known to cards, frees it.

#![allow(unsafe_code)]

use crate::abi::{self, AllocateMemory, MapMemory, memory};
use crate::allocation::{Allocation, Backing, Orphan};
use crate::process;
use crate::shared::{Answer, Shared, State};
use crate::space::{DOORBELL_BYTES, PAGE, Space};

impl State {
    /// Adds an allocation and returns its handle.
    pub(crate) fn add(&mut self, allocation: Allocation) -> u64 {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.allocations.insert(handle, allocation);
        handle
    }
}

impl Shared {
    /// Allocates memory at an address that the runtime chose.
    pub(crate) fn allocate(&self, a: &mut AllocateMemory) -> Answer {
        let card = self.card(a.gpu_id)?;
        let bytes = a.bytes.checked_next_multiple_of(PAGE).filter(|&n| n > 0).ok_or(libc::EINVAL)?;
        if a.address % PAGE != 0 || a.address.checked_add(bytes).is_none() {
            return Err(libc::EINVAL);
        }
        let kind = a.flags & memory::KINDS;
        let mut state = self.state();
        self.release_orphans(&mut state);
        if kind == memory::VRAM {
            let used = state.used[card].checked_add(bytes);
            used.filter(|&used| used <= self.devices[card].card.memory).ok_or(libc::ENOMEM)?;
        }
        let backing = match kind {
            memory::USERPTR => Backing::Process(a.offset),
            memory::DOORBELL if bytes <= DOORBELL_BYTES => Backing::Space(Space::doorbells(card)),
            memory::VRAM | memory::GTT | memory::REMAPPED_REGISTERS => {
                Backing::Space(self.space.reserve(bytes).ok_or(libc::ENOMEM)?)
            }
            _ => return Err(libc::EINVAL),
        };
        if let Backing::Space(offset) = backing {
            a.offset = offset;
        }
        if kind == memory::VRAM {
            state.used[card] += bytes;
        }
        let allocation = Allocation::new(a.address, bytes, a.flags, backing, card);
        self.log(|| format!("  {allocation:x?}"));
        a.handle = state.add(allocation);
        Ok(())
    }

    /// Makes memory known to cards.
    pub(crate) fn map(&self, a: &mut MapMemory) -> Answer {
        let cards = self.cards_of(a)?;
        let mut state = self.state();
        let State { allocations, shared, asked, .. } = &mut *state;
        let allocation = allocations.get_mut(&a.handle).ok_or(libc::EINVAL)?;
        for card in cards {
            if !allocation.mapped.contains(&card) {
                self.replace_shared(&mut shared[card], card, allocation.address, allocation.bytes);
                let at = allocation.at(&self.space)?;
                let gpu = &self.devices[card].gpu;
                // SAFETY: the space is mapped as long as the devices live. Memory of the process is valid until the
                // runtime unmaps it, which waits for the launches that began before (`unmap_from`); that of another
                // process as long as the allocation, which ends after such a wait.
                let result = unsafe { gpu.map(allocation.address, at, allocation.bytes as usize) };
                result.map_err(|fault| {
                    self.log(|| format!("  not mapped: {fault}"));
                    libc::EINVAL
                })?;
                allocation.mapped.push(card);
                if let Some(&bytes) = asked.get(&allocation.address) {
                    self.bound(allocation, card, bytes);
                }
            }
            a.done += 1;
        }
        Ok(())
    }

    /// Removes memory from cards.
    pub(crate) fn unmap(&self, a: &mut MapMemory) -> Answer {
        let cards = self.cards_of(a)?;
        self.unmap_from(a.handle, |card| cards.contains(&card))?;
        a.done = a.count;
        Ok(())
    }

    /// Frees memory, and removes it from all cards.
    pub(crate) fn free(&self, handle: u64) -> Answer {
        if self.state().slots.is_some_and(|slots| slots.handle == handle) {
            return Err(libc::EPERM);
        }
        self.unmap_from(handle, |_| true)?;
        let mut state = self.state();
        let allocation = state.allocations.remove(&handle).ok_or(libc::EINVAL)?;
        let (bytes, card) = (allocation.bytes, allocation.card);
        if let Backing::Space(offset) = &allocation.backing
            && allocation.kind() != memory::DOORBELL
        {
            let used = if allocation.kind() == memory::VRAM { bytes } else { 0 };
            state.exported.push(Orphan { offset: *offset, bytes, card, used });
        }
        self.release_orphans(&mut state);
        drop(state);
        if let Backing::Foreign(foreign) = allocation.backing
            && !self.devices.iter().all(|device| device.in_flight.wait())
        {
            // A kernel that hangs may still access it.
            std::mem::forget(foreign);
        }
        Ok(())
    }

    fn unmap_from(&self, handle: u64, is_from: impl Fn(usize) -> bool) -> Answer {
        let mut removed = Vec::new();
        let is_users = {
            let mut state = self.state();
            let allocation = state.allocations.get_mut(&handle).ok_or(libc::EINVAL)?;
            allocation.mapped.retain(|&card| {
                let remove = is_from(card);
                if remove {
                    removed.push(card);
                    self.devices[card].code.invalidate(Some(allocation.address));
                    // It was mapped by `map`, once.
                    let _ = self.devices[card].gpu.free(allocation.address);
                }
                !remove
            });
            allocation.windows.retain(|&(card, address)| {
                let remove = is_from(card);
                if remove {
                    removed.push(card);
                    self.devices[card].code.invalidate(Some(address));
                    // It was mapped by `Buffer::map`, once.
                    let _ = self.devices[card].gpu.free(address);
                }
                !remove
            });
            matches!(allocation.backing, Backing::Process(_) | Backing::Foreign(_))
        };
        // The process may unmap its own memory when this call returns.
        if is_users {
            for card in removed {
                self.devices[card].in_flight.wait();
            }
        }
        Ok(())
    }

    /// Reads the array of cards of a request.
    fn cards_of(&self, a: &MapMemory) -> Result<Vec<usize>, i32> {
        if a.count as usize > crate::options::MOST_CARDS {
            return Err(libc::EINVAL);
        }
        // SAFETY: the interface's promise: the address of `count` numbers.
        let ids: Vec<u32> = unsafe { process::read_array(a.gpu_ids, a.count as usize) };
        ids.into_iter().map(|id| self.card(id)).collect()
    }

    /// Answers how much memory of a card is free.
    pub(crate) fn available(&self, a: &mut abi::AvailableMemory) -> Answer {
        let card = self.card(a.gpu_id)?;
        let mut state = self.state();
        self.release_orphans(&mut state);
        a.available = self.devices[card].card.memory.saturating_sub(state.used[card]);
        Ok(())
    }

    /// Gives freed memory back of which no descriptor is left.
    fn release_orphans(&self, state: &mut State) {
        let State { exported, used, .. } = state;
        exported.retain(|orphan| {
            let is_held = self.space.is_exported(orphan.offset);
            if !is_held {
                self.space.release(orphan.offset, orphan.bytes);
                used[orphan.card] = used[orphan.card].saturating_sub(orphan.used);
            }
            is_held
        });
    }
}
