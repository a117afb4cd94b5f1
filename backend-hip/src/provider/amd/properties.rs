//! The two layouts of `hipDeviceProp_t`.
//!
//! HIP 5 exports `hipGetDeviceProperties`, which fills the layout R0000 (792 bytes). From 6.0 on there is
//! also `hipGetDevicePropertiesR0600` (1,472 bytes). The plain name still fills the old layout, although
//! headers redirect it to the new function. So the layout is determined by the function that was called,
//! never by the version. Offsets were taken from the headers of 5.2, 5.7, 6.0, 6.4 and 7.1.

use crate::driver::Properties;

/// Size of the buffer for the runtime's structure in bytes: more than any known layout.
pub(crate) const BUFFER_BYTES: usize = 4096;

/// Offsets of the fields that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Function that fills this layout.
    pub(crate) name: &'static str,
    /// Size of the structure in bytes.
    pub(crate) bytes: usize,
    /// `char[16]`.
    pub(crate) uuid: Option<usize>,
    /// `size_t`.
    pub(crate) total_global_mem: usize,
    /// `size_t`.
    pub(crate) shared_mem_per_block: usize,
    /// `int`.
    pub(crate) warp_size: usize,
    /// `int`.
    pub(crate) max_threads_per_block: usize,
    /// `int`, kHz.
    pub(crate) clock_rate: usize,
    /// `int`, kHz.
    pub(crate) memory_clock_rate: usize,
    /// `int`, bits.
    pub(crate) memory_bus_width: usize,
    /// `int`.
    pub(crate) multi_processor_count: usize,
    /// `int`.
    pub(crate) l2_cache_size: usize,
    /// `int`s: domain, bus, device.
    pub(crate) pci: [usize; 3],
    /// `char[256]`.
    pub(crate) gcn_arch_name: usize,
    /// `int`.
    pub(crate) integrated: usize,
    /// `int`.
    pub(crate) is_large_bar: usize,
}

/// Layout of HIP 5.
pub(crate) const R0000: Layout = Layout {
    name: "hipGetDeviceProperties",
    bytes: 792,
    uuid: None,
    total_global_mem: 256,
    shared_mem_per_block: 264,
    warp_size: 276,
    max_threads_per_block: 280,
    clock_rate: 308,
    memory_clock_rate: 312,
    memory_bus_width: 316,
    multi_processor_count: 336,
    l2_cache_size: 340,
    pci: [364, 368, 372],
    gcn_arch_name: 396,
    integrated: 652,
    is_large_bar: 764,
};

/// Layout of HIP 6 and 7.
pub(crate) const R0600: Layout = Layout {
    name: "hipGetDevicePropertiesR0600",
    bytes: 1472,
    uuid: Some(256),
    total_global_mem: 288,
    shared_mem_per_block: 296,
    warp_size: 308,
    max_threads_per_block: 320,
    clock_rate: 348,
    memory_clock_rate: 608,
    memory_bus_width: 612,
    multi_processor_count: 388,
    l2_cache_size: 616,
    pci: [592, 584, 588],
    gcn_arch_name: 1160,
    integrated: 396,
    is_large_bar: 1464,
};

impl Layout {
    /// Reads a structure that the runtime has filled.
    pub(crate) fn read(&self, data: &[u8; BUFFER_BYTES]) -> Properties {
        let int = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| data[at + i]));
        let size = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| data[at + i]));
        Properties {
            name: text(&data[..256]),
            arch: text(&data[self.gcn_arch_name..self.gcn_arch_name + 256]),
            uuid: self.uuid.map(|at| std::array::from_fn(|i| data[at + i])).filter(|u| *u != [0; 16]),
            memory: size(self.total_global_mem),
            wave: int(self.warp_size),
            lds_bytes: u32::try_from(size(self.shared_mem_per_block)).unwrap_or(u32::MAX),
            max_threads: int(self.max_threads_per_block),
            compute_units: int(self.multi_processor_count),
            clock_khz: int(self.clock_rate),
            memory_clock_khz: int(self.memory_clock_rate),
            memory_bus_bits: int(self.memory_bus_width),
            l2_bytes: int(self.l2_cache_size),
            integrated: int(self.integrated) != 0,
            large_bar: Some(int(self.is_large_bar) != 0),
            pci: self.pci.map(int),
            layout: self.name,
        }
    }
}

/// Returns the text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a structure field by field at the offsets of the header and reads it back.
    #[test]
    fn both_layouts() {
        for (layout, uuid, mem, warp, arch, bus) in
            [(R0000, None, 256, 276, 396, 368), (R0600, Some(256), 288, 308, 1160, 584)]
        {
            let mut data = [0u8; BUFFER_BYTES];
            data[..7].copy_from_slice(b"Vega 20");
            if let Some(at) = uuid {
                data[at..at + 16].copy_from_slice(b"abcdefabcdef0123");
            }
            data[mem..mem + 8].copy_from_slice(&(16u64 << 30).to_le_bytes());
            data[warp] = 64;
            data[arch..arch + 22].copy_from_slice(b"gfx906:sramecc+:xnack-");
            data[bus] = 0x43;
            let p = layout.read(&data);
            assert_eq!((p.name.as_str(), p.arch.as_str()), ("Vega 20", "gfx906:sramecc+:xnack-"));
            assert_eq!((p.memory, p.wave, p.pci, p.layout), (16 << 30, 64, [0, 0x43, 0], layout.name));
            assert_eq!(p.uuid.is_some(), uuid.is_some());
        }
    }

    /// Fields are within their structure and do not overlap.
    #[test]
    fn tables_are_consistent() {
        for l in [R0000, R0600] {
            let mut fields = vec![
                (0, 256),
                (l.total_global_mem, 8),
                (l.shared_mem_per_block, 8),
                (l.warp_size, 4),
                (l.max_threads_per_block, 4),
                (l.clock_rate, 4),
                (l.memory_clock_rate, 4),
                (l.memory_bus_width, 4),
                (l.multi_processor_count, 4),
                (l.l2_cache_size, 4),
                (l.pci[0], 4),
                (l.pci[1], 4),
                (l.pci[2], 4),
                (l.gcn_arch_name, 256),
                (l.integrated, 4),
                (l.is_large_bar, 4),
            ];
            fields.extend(l.uuid.map(|at| (at, 16)));
            fields.sort_unstable();
            assert!(fields.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0), "{fields:?}");
            assert!(fields.iter().all(|(at, bytes)| at + bytes <= l.bytes && at % 4.min(*bytes) == 0));
            assert!(l.bytes < BUFFER_BYTES);
        }
    }
}
