//! Graphics cards on the PCI bus, and the facts about kernel and firmware on which known hangs depend.

use super::{entries, first_line, read_line};
use crate::options::HipOptions;
use std::fs;
use std::path::Path;

/// Graphics card that the kernel lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The kernel's name for the card ("card0").
    pub name: String,
    /// PCI domain, bus and device.
    pub pci: [u32; 3],
    /// Vendor and device ID.
    pub ids: (u32, u32),
    /// Kernel driver that is bound to the card.
    pub driver: Option<String>,
    /// Firmware names ("mec") with the versions as the kernel prints them.
    pub firmware: Vec<(String, String)>,
    /// Memory that the card may use.
    pub memory: Memory,
}

/// Sizes of the memory of a card, in bytes, as amdgpu reports them; `None` if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The card's own memory (`mem_info_vram_total`). On an APU it is the part of the host's memory that the
    /// firmware reserves, the carve-out.
    pub vram: Option<u64>,
    /// Host memory that the card may map (`mem_info_gtt_total`).
    pub gtt: Option<u64>,
}

/// Returns the graphics cards on the PCI bus, sorted by address.
pub fn cards(options: &HipOptions) -> Vec<Card> {
    let drm = Path::new("/sys/class/drm");
    let number = |name: &String| name.strip_prefix("card").is_some_and(|n| n.parse::<u32>().is_ok());
    let names = entries(&options.rooted(drm)).into_iter().filter(number);
    let mut cards: Vec<Card> = names.filter_map(|name| card(options, &drm.join(&name), name)).collect();
    cards.sort_by_key(|card| card.pci);
    cards
}

fn card(options: &HipOptions, path: &Path, name: String) -> Option<Card> {
    let device = options.rooted(path.join("device"));
    let uevent = fs::read_to_string(device.join("uevent")).ok()?;
    let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let id = |file: &str| hexadecimal(&first_line(&device.join(file))?);
    let folder = device.join("fw_version");
    let mut firmware: Vec<(String, String)> = entries(&folder)
        .into_iter()
        .filter_map(|file| Some((file.strip_suffix("_fw_version")?.into(), first_line(&folder.join(&file))?)))
        .collect();
    firmware.sort();
    let bytes = |file: &str| first_line(&device.join(file))?.parse().ok();
    let memory = Memory { vram: bytes("mem_info_vram_total"), gtt: bytes("mem_info_gtt_total") };
    Some(Card {
        pci: parse_pci(value("PCI_SLOT_NAME")?)?,
        ids: (id("vendor")?, id("device")?),
        driver: value("DRIVER").map(str::to_string),
        firmware,
        memory,
        name,
    })
}

/// Parses domain, bus and device of a PCI address ("0000:43:00.0", "0000:43:00").
pub fn parse_pci(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split('.').next()?.split(':').map(|n| u32::from_str_radix(n, 16));
    let address = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?];
    parts.next().is_none().then_some(address)
}

/// Formats a PCI address as in a device's features: "0000:43:00".
pub fn pci_text([domain, bus, device]: [u32; 3]) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}")
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// Facts about the kernel and a device on which known hangs depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Major and minor version of the kernel.
    pub release: Option<(u32, u32)>,
    /// `amdgpu.cwsr_enable`: true if waves are saved and restored to let others run.
    pub cwsr: Option<bool>,
    /// Version of the MES firmware, the scheduler on gfx11 and later.
    pub mes: Option<u32>,
    /// Major and minor version of the interface of the compute driver (KFD).
    pub kfd: Option<(u32, u32)>,
}

impl KernelFacts {
    /// Reads the facts for the device at a PCI address.
    pub fn read(options: &HipOptions, pci: [u32; 3]) -> KernelFacts {
        let release = read_line(options, "/proc/sys/kernel/osrelease").and_then(|text| {
            let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
        let cwsr = read_line(options, "/sys/module/amdgpu/parameters/cwsr_enable");
        let mes = mes_firmware(options, pci).and_then(|text| hexadecimal(&text));
        // Bits 12 and above are the version of the firmware's interface.
        KernelFacts {
            release,
            cwsr: cwsr.map(|text| text != "0"),
            mes: mes.map(|version| version & 0xfff),
            kfd: crate::sys::kfd::version(&options.rooted("/dev/kfd")),
        }
    }
}

/// Returns the version of the MES firmware: from the device's own files (kernels from 6.12 on), else from a
/// list that only root may read.
fn mes_firmware(options: &HipOptions, pci: [u32; 3]) -> Option<String> {
    let device = format!("/sys/bus/pci/devices/{}.0", pci_text(pci));
    let own = read_line(options, &format!("{device}/fw_version/mes_fw_version"));
    let card = || cards(options).into_iter().find(|card| card.pci == pci);
    own.or_else(|| Some(card()?.firmware.into_iter().find(|(name, _)| name == "mes")?.1)).or_else(|| {
        let number = card()?.name.strip_prefix("card")?.to_string();
        let list = options.rooted(format!("/sys/kernel/debug/dri/{number}/amdgpu_firmware_info"));
        let text = fs::read_to_string(list).ok()?;
        let line = text.lines().find(|line| line.starts_with("MES feature version"))?;
        Some(line.rsplit(' ').next()?.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{options, write};
    use super::*;

    /// On kernels without files for the firmware version, only a list for root has it.
    #[test]
    fn cards_and_their_firmware() {
        let root = tempfile::tempdir().unwrap();
        let card = "sys/class/drm/card1/device";
        write(root.path(), &format!("{card}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c5:00.0\n");
        write(root.path(), &format!("{card}/vendor"), "0x1002\n");
        write(root.path(), &format!("{card}/device"), "0x1586\n");
        write(root.path(), &format!("{card}/fw_version/mec_fw_version"), "0x0000001e\n");
        write(root.path(), &format!("{card}/mem_info_vram_total"), "536870912\n");
        write(root.path(), &format!("{card}/mem_info_gtt_total"), "unreadable\n");
        write(root.path(), "sys/class/drm/card1-HDMI-A-1/status", "connected\n");
        let list = "MEC feature version: 29, firmware version: 0x0000001e\n\
                    MES_KIQ feature version: 6, firmware version: 0x0000006c\n\
                    MES feature version: 1, firmware version: 0x00000083\n";
        write(root.path(), "sys/kernel/debug/dri/1/amdgpu_firmware_info", list);
        let options = options(root.path());
        let all = cards(&options);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].name.as_str(), all[0].ids, all[0].pci), ("card1", (0x1002, 0x1586), [0, 0xc5, 0]));
        assert_eq!(all[0].driver.as_deref(), Some("amdgpu"));
        assert_eq!(all[0].memory, Memory { vram: Some(512 << 20), gtt: None });
        assert_eq!(all[0].firmware, [("mec".to_string(), "0x0000001e".to_string())]);
        assert_eq!(KernelFacts::read(&options, [0, 0xc5, 0]).mes, Some(0x83));
        write(root.path(), &format!("{card}/fw_version/mes_fw_version"), "0x00000080\n");
        assert_eq!(KernelFacts::read(&options, [0, 0xc5, 0]).mes, Some(0x80));
        assert_eq!((parse_pci("0000:43:00"), parse_pci("43:00")), (Some([0, 0x43, 0]), None));
    }
}
