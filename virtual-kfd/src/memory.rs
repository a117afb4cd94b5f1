//! Memory: allocations of the process, and which cards know them.

#![allow(unsafe_code)]

use crate::abi::{self, AllocateMemory, MapMemory, memory};
use crate::driver::{Answer, Shared, State};
use crate::process;
use crate::space::{DOORBELL_BYTES, Space};
use std::ptr::NonNull;

const PAGE: u64 = 4096;

/// Bytes behind an allocation.
#[derive(Clone, Copy, Debug)]
enum Backing {
    /// Offset in the space.
    Space(u64),
    /// Address in the process.
    Process(u64),
}

/// An allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Address for cards.
    address: u64,
    bytes: u64,
    /// One of the kinds of [`memory`].
    kind: u32,
    backing: Backing,
    /// Card that it belongs to.
    card: usize,
    /// Cards that know it.
    mapped: Vec<usize>,
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
        if kind == memory::VRAM {
            let used = state.used[card].checked_add(bytes);
            let fits = used.filter(|&used| used <= self.devices[card].card.memory);
            state.used[card] = fits.ok_or(libc::ENOMEM)?;
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
        a.handle = state.next_handle;
        state.next_handle += 1;
        let allocation = Allocation { address: a.address, bytes, kind, backing, card, mapped: Vec::new() };
        self.log(|| format!("  handle {}: {allocation:x?}", a.handle));
        state.allocations.insert(a.handle, allocation);
        Ok(())
    }

    /// Makes memory known to cards.
    pub(crate) fn map(&self, a: &mut MapMemory) -> Answer {
        let cards = self.cards_of(a)?;
        let mut state = self.state();
        let State { allocations, shared, .. } = &mut *state;
        let allocation = allocations.get_mut(&a.handle).ok_or(libc::EINVAL)?;
        for card in cards {
            if !allocation.mapped.contains(&card) {
                self.replace_shared(&mut shared[card], card, allocation.address, allocation.bytes);
                let at = match allocation.backing {
                    Backing::Space(offset) => self.space.at(offset),
                    Backing::Process(address) => NonNull::new(address as *mut u8).ok_or(libc::EINVAL)?,
                };
                // SAFETY: the space is mapped as long as the devices live. Memory of the process is valid until the
                // runtime unmaps it, which waits for the launches that began before (`unmap_from`).
                let result =
                    unsafe { self.devices[card].gpu.map(allocation.address, at, allocation.bytes as usize) };
                result.map_err(|fault| {
                    self.log(|| format!("  not mapped: {fault}"));
                    libc::EINVAL
                })?;
                allocation.mapped.push(card);
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
        self.unmap_from(handle, |_| true)?;
        let mut state = self.state();
        let allocation = state.allocations.remove(&handle).ok_or(libc::EINVAL)?;
        if allocation.kind == memory::VRAM {
            state.used[allocation.card] -= allocation.bytes;
        }
        match allocation.backing {
            Backing::Space(offset) if allocation.kind != memory::DOORBELL => {
                self.space.release(offset, allocation.bytes);
            }
            _ => {}
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
            matches!(allocation.backing, Backing::Process(_))
        };
        // The process may unmap its own memory when this call returns.
        if is_users {
            removed.into_iter().for_each(|card| self.devices[card].in_flight.wait());
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
        a.available = self.devices[card].card.memory - self.state().used[card];
        Ok(())
    }
}
