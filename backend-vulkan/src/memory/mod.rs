//! Memory of an open device: allocation of buffers, and transfers to and from them.

mod constants;
mod handle;
mod transfer;

pub(crate) use handle::VulkanMemory;

use crate::context::DeviceContext;
use crate::deadline::guarded;
use crate::raw::buffer::Buffer;
use crate::raw::commands::Holder;
use crate::raw::export::export;
use crate::raw::heaps::Side;
use crate::raw::import;
use crate::raw::memory::MemoryPool;
use constants::Constants;
use ggml_core::backend::Usage;
use ggml_core::exported::ExportedMemory;
use ggml_core::mapped::MappedBytes;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Phase, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use transfer::Transfers;

/// The memory of an open device.
pub(crate) struct Memory {
    constants: Constants,
    transfers: Transfers,
    /// Buffers that the card's other driver uses too, each with its holder.
    exported: Mutex<Vec<(Weak<Buffer>, Holder)>>,
    pool: Arc<MemoryPool>,
    context: Arc<DeviceContext>,
}

impl Memory {
    /// Creates the memory of a device from a pool of that device.
    pub(crate) fn new(context: &Arc<DeviceContext>, pool: Arc<MemoryPool>) -> Memory {
        let transfers = Transfers::new(&context.device, &pool);
        let (constants, exported) = (Constants::default(), Mutex::default());
        Memory { constants, transfers, exported, pool, context: context.clone() }
    }

    /// Returns the device's context.
    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the pool that buffers are allocated from.
    pub(crate) fn pool(&self) -> &MemoryPool {
        &self.pool
    }

    /// Returns the transfers: copies through staging memory, and on the device.
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Returns true if the host should write a buffer without staging.
    pub(crate) fn writes_directly(&self, buffer: &Buffer) -> bool {
        buffer.is_mapped() && !self.context.options.force_staging
    }

    /// Returns true if the host should read a buffer without staging.
    pub(crate) fn reads_directly(&self, buffer: &Buffer) -> bool {
        buffer.reads_fast() && !self.context.options.force_staging
    }

    /// Allocates a new buffer; returns by the deadline.
    pub(crate) fn buffer(
        &self,
        bytes: usize,
        side: Side,
        name: &'static str,
        deadline: &Deadline,
    ) -> Result<Arc<Buffer>> {
        self.transfers.release();
        let pool = self.pool.clone();
        guarded(self.context.name(), deadline.as_phase(Phase::Allocate), move || {
            Buffer::new(&pool, bytes as u64, side, name)
        })
    }

    /// Allocates memory for a usage, with its initial contents.
    pub(crate) fn arena(&self, bytes: usize, usage: Usage, deadline: &Deadline) -> Result<Arc<Buffer>> {
        let (side, name) = match usage {
            Usage::Weights => (Side::Device, "weights"),
            Usage::Compute => (Side::Device, "compute"),
            Usage::State => (Side::Device, "state"),
            Usage::Staging => (Side::Host, "staging"),
        };
        let buffer = self.buffer(bytes, side, name, deadline)?;
        self.begin(&buffer, usage, deadline)?;
        Ok(buffer)
    }

    /// Gives new memory its initial contents.
    fn begin(&self, buffer: &Arc<Buffer>, usage: Usage, deadline: &Deadline) -> Result<()> {
        match usage {
            Usage::State => self.fill(buffer, 0, deadline),
            // All bits set is a NaN in every float type.
            Usage::Compute if self.context.options.poison => self.fill(buffer, 0xff, deadline),
            _ => Ok(()),
        }
    }

    /// Allocates memory of the device that the card's other driver can import, with its initial contents.
    pub(crate) fn exported(
        &self,
        bytes: usize,
        usage: Usage,
        deadline: &Deadline,
    ) -> Result<(Arc<Buffer>, ExportedMemory)> {
        self.transfers.release();
        let pool = self.pool.clone();
        let made = guarded(self.context.name(), *deadline, move || export(&pool, bytes as u64))?;
        self.begin(&made.0, usage, deadline)?;
        let mut exported = lock(&self.exported);
        exported.retain(|(buffer, _)| buffer.strong_count() > 0);
        exported.push((Arc::downgrade(&made.0), Holder::Device));
        Ok(made)
    }

    /// Waits for everything submitted, and passes the exported buffers to the card's other driver.
    pub(crate) fn hand_over(&self, deadline: &Deadline) -> Result<()> {
        let value = self.pass(Holder::OtherDriver, deadline)?;
        self.context.device.wait(value, deadline)
    }

    /// Takes the exported buffers back.
    pub(crate) fn take_over(&self, deadline: &Deadline) -> Result<()> {
        self.pass(Holder::Device, deadline).map(|_| ())
    }

    /// Passes the exported buffers that `to` does not hold. Returns the timeline's value after it.
    fn pass(&self, to: Holder, deadline: &Deadline) -> Result<u64> {
        let mut exported = lock(&self.exported);
        let passed = exported.iter_mut().filter(|(_, holder)| *holder != to);
        let buffers: Vec<_> = passed.filter_map(|(buffer, _)| buffer.upgrade()).collect();
        let value = self.transfers.pass(&buffers, to, deadline)?;
        exported.iter_mut().for_each(|(_, holder)| *holder = to);
        Ok(value)
    }

    /// Creates a read-only buffer over mapped bytes and returns it with the offset at which they begin;
    /// `None` if the device cannot read them in place.
    pub(crate) fn import(
        &self,
        bytes: MappedBytes,
        deadline: Deadline,
    ) -> Result<Option<(Arc<Buffer>, u64)>> {
        if self.context.options.force_staging {
            return Ok(None);
        }
        let pool = self.pool.clone();
        guarded(self.context.name(), deadline, move || Ok(import::import(&pool, &bytes)))
    }

    /// Returns a buffer with this content.
    pub(crate) fn constant(&self, data: &[u32], deadline: &Deadline) -> Result<Arc<Buffer>> {
        self.constants.get_or_create(data, || {
            let bytes: &[u8] = bytemuck::cast_slice(data);
            let buffer = self.buffer(bytes.len(), Side::Device, "constants", deadline)?;
            self.upload(&buffer, 0, bytes, deadline)?;
            Ok(buffer)
        })
    }

    /// Copies data from the host to the device.
    pub(crate) fn upload(
        &self,
        to: &Arc<Buffer>,
        offset: u64,
        data: &[u8],
        deadline: &Deadline,
    ) -> Result<()> {
        self.context.counters.uploaded.fetch_add(data.len() as u64, Ordering::Relaxed);
        if self.writes_directly(to) {
            to.wait(deadline)?;
            to.write(offset, data)
        } else {
            self.transfers.upload(to, offset, data, deadline)
        }
    }

    /// Copies data from the device to the host.
    pub(crate) fn download(
        &self,
        from: &Arc<Buffer>,
        offset: u64,
        out: &mut [u8],
        deadline: &Deadline,
    ) -> Result<()> {
        if self.reads_directly(from) {
            from.wait(deadline)?;
            from.read(offset, out)
        } else {
            self.transfers.download(from, offset, out, deadline)
        }
    }

    /// Fills a buffer that no submission uses with a byte.
    pub(crate) fn fill(&self, buffer: &Arc<Buffer>, byte: u8, deadline: &Deadline) -> Result<()> {
        if self.writes_directly(buffer) {
            buffer.fill(byte)
        } else {
            self.transfers.fill(buffer, u32::from_ne_bytes([byte; 4]), deadline)
        }
    }
}
