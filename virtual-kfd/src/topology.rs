//! The files that describe the machine, in memory: the kernel's topology of compute devices, the render nodes, the module.
//!
//! Source: `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` for names, and what libhsakmt and the runtimes of ROCm
//! 5.2 to 7.2 read of them.

use crate::card::Card;
use crate::options::Options;
use std::fs;

/// Number of the first render node.
pub const FIRST_MINOR: u32 = 128;
/// Folder of the topology.
const TOPOLOGY: &str = "sys/devices/virtual/kfd/kfd/topology";
/// `HSA_MEM_HEAP_TYPE_FRAME_BUFFER_PUBLIC`; the other is `..._PRIVATE`.
const PUBLIC: u32 = 1;
/// See [`PUBLIC`].
const PRIVATE: u32 = 2;

/// Returns the number by which the kernel knows a card.
pub fn gpu_id(index: usize) -> u32 {
    // Any numbers but 0, different ones.
    26273 + 4096 * index as u32
}

/// Returns the number of a card's render node.
pub fn render_minor(index: usize) -> u32 {
    FIRST_MINOR + index as u32
}

/// A file, a link, or a folder that may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder,
    /// A file and its text.
    File(String),
    /// A link and what it points to, relative to its folder.
    Link(String),
}

/// Returns all files by their paths.
pub(crate) fn entries(options: &Options) -> Vec<(String, Entry)> {
    let mut tree = Tree(Vec::new());
    tree.file(&format!("{TOPOLOGY}/generation_id"), "2\n");
    tree.file(&format!("{TOPOLOGY}/system_properties"), "platform_oem 0\nplatform_id 0\nplatform_rev 0\n");
    processor(&mut tree, options);
    for (i, card) in options.cards.iter().enumerate() {
        compute_device(&mut tree, i, card, options);
        render_node(&mut tree, i, card);
    }
    tree.link("sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd");
    tree.file("sys/bus/pci/drivers/amdgpu/module/version", "virtual\n");
    tree.file("sys/module/amdgpu/initstate", "live\n");
    tree.file("sys/module/amdgpu/version", "virtual\n");
    tree.0
}

struct Tree(Vec<(String, Entry)>);

impl Tree {
    fn file(&mut self, name: &str, text: &str) {
        self.0.push((name.into(), Entry::File(text.into())));
    }

    /// Adds the folders that the kernel has for each node, also if nothing is in them: AMD's SMI library ends the
    /// process if one is missing.
    fn empty_folders(&mut self, node: &str) {
        for name in ["mem_banks", "caches", "io_links", "p2p_links", "perf"] {
            self.0.push((format!("{node}/{name}"), Entry::Folder));
        }
    }

    fn link(&mut self, name: &str, to: &str) {
        self.0.push((name.into(), Entry::Link(to.into())));
    }
}

/// Writes values as the kernel does: a name and a number a line.
fn properties(values: &[(&str, u64)]) -> String {
    values.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

/// The processor is node 0. It has a link to each card whose memory it reaches.
fn processor(tree: &mut Tree, options: &Options) {
    let node = format!("{TOPOLOGY}/nodes/0");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let reached: Vec<usize> =
        (0..options.cards.len()).filter(|&i| options.cards[i].large_bar).map(|i| i + 1).collect();
    let values = [
        ("cpu_cores_count", cores),
        ("simd_count", 0),
        ("mem_banks_count", 1),
        ("caches_count", 0),
        ("io_links_count", reached.len() as u64),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", 0),
        ("max_waves_per_simd", 0),
        ("lds_size_in_kb", 0),
        ("gds_size_in_kb", 0),
        ("num_gws", 0),
        ("wave_front_size", 0),
        ("array_count", 0),
        ("simd_arrays_per_engine", 0),
        ("cu_per_simd_array", 0),
        ("simd_per_cu", 0),
        ("max_slots_scratch_cu", 0),
        ("gfx_target_version", 0),
        ("vendor_id", 0),
        ("device_id", 0),
        ("location_id", 0),
        ("domain", 0),
        ("drm_render_minor", 0),
        ("hive_id", 0),
        ("num_sdma_engines", 0),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", 0),
        ("num_cp_queues", 0),
        ("max_engine_clk_ccompute", 3000),
    ];
    tree.file(&format!("{node}/gpu_id"), "0\n");
    tree.file(&format!("{node}/name"), "\n");
    tree.file(&format!("{node}/properties"), &properties(&values));
    let memory = host_memory();
    let bank =
        [("heap_type", 0), ("size_in_bytes", memory), ("flags", 0), ("width", 64), ("mem_clk_max", 2400)];
    tree.file(&format!("{node}/mem_banks/0/properties"), &properties(&bank));
    for (n, to) in reached.into_iter().enumerate() {
        tree.file(&format!("{node}/io_links/{n}/properties"), &link(0, to as u64));
    }
    tree.empty_folders(&node);
}

/// Bytes of memory of this machine, or 16 GiB if it does not say.
fn host_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(16 << 30, |kib| kib << 10)
}

/// A link over PCI Express.
fn link(from: u64, to: u64) -> String {
    properties(&[
        ("type", 2),
        ("version_major", 0),
        ("version_minor", 0),
        ("node_from", from),
        ("node_to", to),
        ("weight", 20),
        ("min_latency", 0),
        ("max_latency", 0),
        ("min_bandwidth", 312),
        ("max_bandwidth", 15750),
        ("recommended_transfer_size", 0),
        ("recommended_sdma_engine_id_mask", 0),
        // Enabled; from the processor also: no atomics of 32 and 64 bits.
        ("flags", if from == 0 { 13 } else { 1 }),
    ])
}

fn compute_device(tree: &mut Tree, index: usize, card: &Card, options: &Options) {
    let node = format!("{TOPOLOGY}/nodes/{}", index + 1);
    // Doorbells of 64 bits, four watch points, error correction (SRAM), shared virtual memory.
    let features = u64::from(card.sram_ecc) << 26 | u64::from(options.has_svm()) << 27;
    let capability = 2 << 12 | 2 << 8 | 1 << 7 | features;
    let first_simd = 0x8000_1000 + 0x1000 * index as u64;
    let layout = &card.layout;
    let values = [
        ("cpu_cores_count", 0),
        ("simd_count", u64::from(card.compute_units * layout.simds)),
        ("mem_banks_count", 1),
        ("caches_count", 1),
        ("io_links_count", 1),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", first_simd),
        ("max_waves_per_simd", layout.waves.into()),
        ("lds_size_in_kb", 64),
        ("gds_size_in_kb", 0),
        ("num_gws", 64),
        ("wave_front_size", layout.lanes.into()),
        ("array_count", u64::from(layout.engines * layout.arrays)),
        ("simd_arrays_per_engine", layout.arrays.into()),
        ("cu_per_simd_array", layout.units.into()),
        ("simd_per_cu", layout.simds.into()),
        ("max_slots_scratch_cu", 32),
        ("gfx_target_version", card.target_version().into()),
        ("vendor_id", 0x1002),
        ("device_id", card.device.into()),
        ("location_id", location(index)),
        ("domain", 0),
        ("drm_render_minor", render_minor(index).into()),
        ("hive_id", 0),
        ("num_sdma_engines", card.copy_engines.into()),
        ("num_sdma_xgmi_engines", card.link_engines.into()),
        ("num_sdma_queues_per_engine", layout.copy_queues.into()),
        ("num_cp_queues", 24),
        ("max_engine_clk_fcompute", card.clock.into()),
        ("local_mem_size", card.memory),
        ("fw_version", 472),
        ("capability", capability),
        ("sdma_fw_version", 145),
        ("unique_id", 1 + index as u64),
        ("num_xcc", layout.dies.into()),
        ("max_engine_clk_ccompute", 3000),
    ];
    tree.file(&format!("{node}/gpu_id"), &format!("{}\n", gpu_id(index)));
    tree.file(&format!("{node}/name"), &format!("{}\n", card.chip));
    tree.file(&format!("{node}/properties"), &properties(&values));
    let bank = [
        ("heap_type", if card.large_bar { PUBLIC } else { PRIVATE }.into()),
        ("size_in_bytes", card.memory),
        ("flags", 0),
        ("width", card.memory_width.into()),
        ("mem_clk_max", card.memory_clock.into()),
    ];
    tree.file(&format!("{node}/mem_banks/0/properties"), &properties(&bank));
    let cache = [
        ("processor_id_low", first_simd),
        ("level", 1),
        ("size", 16),
        ("cache_line_size", 64),
        ("cache_lines_per_tag", 1),
        ("association", 1),
        ("latency", 1),
        ("type", 9),
        ("sibling_map", 1),
    ];
    tree.file(&format!("{node}/caches/0/properties"), &properties(&cache));
    tree.file(&format!("{node}/io_links/0/properties"), &link(index as u64 + 1, 0));
    tree.empty_folders(&node);
}

/// Returns the PCI address of a card.
pub fn address(index: usize) -> String {
    format!("0000:{:02x}:00.0", location(index) >> 8)
}

/// PCI bus of a card in the upper byte, as the topology has it.
fn location(index: usize) -> u64 {
    (3 + index as u64) << 8
}

/// The card and its render node, as `/sys/class/drm` and `/dev/dri` show them.
fn render_node(tree: &mut Tree, index: usize, card: &Card) {
    let address = address(index);
    let device = format!("sys/devices/pci0000:00/{address}");
    let minor = render_minor(index);
    for (name, text) in [
        ("vendor", "0x1002\n".to_string()),
        ("device", format!("{:#06x}\n", card.device)),
        ("revision", format!("{:#04x}\n", card.revision)),
        ("class", "0x038000\n".into()),
        ("mem_info_vram_total", format!("{}\n", card.memory)),
        ("mem_info_vis_vram_total", format!("{}\n", if card.large_bar { card.memory } else { 256 << 20 })),
        ("mem_info_vram_used", "0\n".into()),
        ("mem_info_gtt_total", format!("{}\n", host_memory() / 2)),
        ("uevent", format!("DRIVER=amdgpu\nPCI_ID=1002:{:04X}\nPCI_SLOT_NAME={address}\n", card.device)),
    ] {
        tree.file(&format!("{device}/{name}"), &text);
    }
    tree.link(&format!("{device}/driver"), "../../../bus/pci/drivers/amdgpu");
    for (name, numbers) in [
        (format!("card{index}"), format!("226:{index}")),
        (format!("renderD{minor}"), format!("226:{minor}")),
    ] {
        tree.file(&format!("{device}/drm/{name}/dev"), &format!("{numbers}\n"));
        tree.link(&format!("{device}/drm/{name}/device"), "../..");
        tree.link(
            &format!("sys/class/drm/{name}"),
            &format!("../../devices/pci0000:00/{address}/drm/{name}"),
        );
    }
    tree.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../devices/pci0000:00/{address}"));
    tree.file(&format!("dev/dri/renderD{minor}"), "");
}
