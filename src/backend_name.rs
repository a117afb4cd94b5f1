//! Names of backends.

use ggml_core::null::Fault;
use ggml_core::{Error, Result};
use std::str::FromStr;

/// Names that [`open`](crate::open) accepts, for messages.
pub const NAMES: &str = "reference, cpu, vulkan[:N], hip[:N], hip-nvidia[:N], vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151], hip-virtual[:gfx906|:gfx900|:gfx90a|:gfx942|:gfx1100|:gfx1151], hip-kfd[:gfx906|:gfx900|:gfx90a|:gfx942|:gfx1100|:gfx1151], auto, or two drivers of one card (vulkan+hip, vulkan+hip-nvidia)";

/// Processors that the emulated AMD GPU can emulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VirtualTarget {
    /// Vega 10: RX Vega 56 and 64, MI25.
    Gfx900,
    /// Vega 20: Radeon VII, MI50, MI60.
    #[default]
    Gfx906,
    /// Aldebaran: MI210, MI250. Under HIP only.
    Gfx90a,
    /// Aqua Vanjaram: MI300. Under HIP only.
    Gfx942,
    /// Navi 31: RX 7900.
    Gfx1100,
    /// Strix Halo: Ryzen AI Max.
    Gfx1151,
}

impl VirtualTarget {
    const ALL: [VirtualTarget; 6] = [
        VirtualTarget::Gfx900,
        VirtualTarget::Gfx906,
        VirtualTarget::Gfx90a,
        VirtualTarget::Gfx942,
        VirtualTarget::Gfx1100,
        VirtualTarget::Gfx1151,
    ];

    /// Returns LLVM's name of the processor.
    pub fn name(self) -> &'static str {
        match self {
            VirtualTarget::Gfx900 => "gfx900",
            VirtualTarget::Gfx906 => "gfx906",
            VirtualTarget::Gfx90a => "gfx90a",
            VirtualTarget::Gfx942 => "gfx942",
            VirtualTarget::Gfx1100 => "gfx1100",
            VirtualTarget::Gfx1151 => "gfx1151",
        }
    }

    /// Returns Mesa's name of the card, which is another one for some.
    pub fn card(self) -> &'static str {
        match self {
            VirtualTarget::Gfx900 => "vega10",
            VirtualTarget::Gfx906 => "vega20",
            VirtualTarget::Gfx1100 => "navi31",
            other => other.name(),
        }
    }

    /// Returns true if the card is emulated under Vulkan, too.
    pub fn has_vulkan(self) -> bool {
        !matches!(self, VirtualTarget::Gfx90a | VirtualTarget::Gfx942)
    }

    /// Parses either name of a card; `None` gives the default.
    fn parse(name: Option<&str>) -> Option<VirtualTarget> {
        match name {
            None => Some(VirtualTarget::default()),
            Some(name) => VirtualTarget::ALL.into_iter().find(|t| t.name() == name || t.card() == name),
        }
    }
}

/// Parsed name of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendName {
    /// f64 on one thread.
    Reference,
    /// SIMD and threads.
    Cpu,
    /// A Vulkan device by index; `None` is the preferred one.
    Vulkan(Option<usize>),
    /// A HIP device by index; `None` is the first.
    Hip(Option<usize>),
    /// HIP kernels on an NVIDIA device by index; `None` is the first.
    HipNvidia(Option<usize>),
    /// RADV's machine code on an emulated GPU.
    VulkanVirtual(VirtualTarget),
    /// AMD code objects on an emulated GPU.
    HipVirtual(VirtualTarget),
    /// AMD's own runtime on an emulated GPU, over an emulated kernel driver (`virtual-kfd`).
    HipKfd(VirtualTarget),
    /// One card under two drivers: the first allocates its memory, the second uses it too, and each phase runs on one
    /// of them.
    Pair(Box<[BackendName; 2]>),
    /// The fastest backend that works on this machine, see [`choose`](crate::backends::choose).
    Auto,
    /// Computes nothing, for tests; may simulate a fault, see [`Fault::parse`].
    Null(Option<String>),
}

impl BackendName {
    /// True if it computes on the host. A model cannot be divided between it and the host.
    #[cfg(feature = "compare")]
    pub(crate) fn is_host(&self) -> bool {
        matches!(self, BackendName::Reference | BackendName::Cpu)
    }

    /// True if it runs on a driver, which may hang or crash, be its card emulated or not.
    pub(crate) fn has_driver(&self) -> bool {
        !matches!(self, BackendName::Reference | BackendName::Cpu | BackendName::Null(_))
    }

    /// True if it loads AMD's libamdhip64.
    pub(crate) fn loads_libamdhip64(&self) -> bool {
        match self {
            BackendName::Pair(both) => both.iter().any(BackendName::loads_libamdhip64),
            _ => matches!(self, BackendName::Hip(_) | BackendName::HipKfd(_)),
        }
    }

    /// Returns the card that AMD's own runtime needs an emulated kernel driver for.
    #[cfg(feature = "compare")]
    pub(crate) fn kfd(&self) -> Option<VirtualTarget> {
        match self {
            BackendName::HipKfd(target) => Some(*target),
            BackendName::Pair(both) => both.iter().find_map(BackendName::kfd),
            _ => None,
        }
    }

    /// True if its card is emulated. Such a card has no time of its own: under HIP the clock is the host's, under
    /// Vulkan it is made up.
    pub fn is_emulated(&self) -> bool {
        use BackendName::{HipKfd, HipVirtual, Pair, VulkanVirtual};
        match self {
            Pair(both) => both.iter().any(BackendName::is_emulated),
            _ => matches!(self, VulkanVirtual(_) | HipVirtual(_) | HipKfd(_)),
        }
    }

    /// True if its memory can be exported to another driver of its card.
    fn exports(&self) -> bool {
        matches!(self, BackendName::Vulkan(_) | BackendName::VulkanVirtual(_))
    }

    /// True if it can import memory of another driver of its card.
    fn imports(&self) -> bool {
        use BackendName::{Hip, HipKfd, HipNvidia, HipVirtual};
        matches!(self, Hip(_) | HipNvidia(_) | HipVirtual(_) | HipKfd(_))
    }
}

impl FromStr for BackendName {
    type Err = Error;

    fn from_str(text: &str) -> Result<BackendName> {
        let unknown = || Error::argument("backend", format!("'{text}'"), format!("one of {NAMES}"));
        let index = |rest: Option<&str>| match rest {
            None => Ok(None),
            Some(n) => n.parse::<usize>().map(Some).map_err(|_| unknown()),
        };
        if let Some(fault) = text.strip_prefix("null=") {
            Fault::parse(fault)?;
            return Ok(BackendName::Null(Some(fault.into())));
        }
        if let Some((first, second)) = text.split_once('+') {
            let both: [BackendName; 2] = [first.parse()?, second.parse()?];
            if !both[0].exports() || !both[1].imports() {
                let expected = "a Vulkan backend, '+' and a HIP backend: vulkan+hip, vulkan:1+hip-nvidia:0";
                return Err(Error::argument("backend", format!("'{text}'"), expected));
            }
            return Ok(BackendName::Pair(Box::new(both)));
        }
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("reference", None) => Ok(BackendName::Reference),
            ("cpu", None) => Ok(BackendName::Cpu),
            ("null", None) => Ok(BackendName::Null(None)),
            ("auto", None) => Ok(BackendName::Auto),
            ("vulkan", rest) => Ok(BackendName::Vulkan(index(rest)?)),
            ("hip", rest) => Ok(BackendName::Hip(index(rest)?)),
            ("hip-nvidia", rest) => Ok(BackendName::HipNvidia(index(rest)?)),
            ("vulkan-virtual", card) => {
                let target = VirtualTarget::parse(card).filter(|target| target.has_vulkan());
                target.map(BackendName::VulkanVirtual).ok_or_else(unknown)
            }
            ("hip-virtual", target) => {
                VirtualTarget::parse(target).map(BackendName::HipVirtual).ok_or_else(unknown)
            }
            ("hip-kfd", target) => VirtualTarget::parse(target).map(BackendName::HipKfd).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

impl std::fmt::Display for BackendName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let indexed = |f: &mut std::fmt::Formatter<'_>, kind: &str, n: &Option<usize>| match n {
            Some(n) => write!(f, "{kind}:{n}"),
            None => f.write_str(kind),
        };
        match self {
            BackendName::Reference => f.write_str("reference"),
            BackendName::Cpu => f.write_str("cpu"),
            BackendName::Vulkan(n) => indexed(f, "vulkan", n),
            BackendName::Hip(n) => indexed(f, "hip", n),
            BackendName::HipNvidia(n) => indexed(f, "hip-nvidia", n),
            BackendName::VulkanVirtual(target) => write!(f, "vulkan-virtual:{}", target.card()),
            BackendName::HipVirtual(target) => write!(f, "hip-virtual:{}", target.name()),
            BackendName::HipKfd(target) => write!(f, "hip-kfd:{}", target.name()),
            BackendName::Pair(both) => write!(f, "{}+{}", both[0], both[1]),
            BackendName::Auto => f.write_str("auto"),
            BackendName::Null(None) => f.write_str("null"),
            BackendName::Null(Some(fault)) => write!(f, "null={fault}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let names = ["reference", "cpu", "vulkan", "vulkan:3", "hip", "hip:0", "hip-nvidia", "hip-nvidia:1"];
        let more = [
            "auto",
            "hip-virtual:gfx900",
            "hip-virtual:gfx906",
            "hip-virtual:gfx90a",
            "hip-virtual:gfx942",
            "hip-virtual:gfx1100",
            "hip-virtual:gfx1151",
            "null",
            "vulkan-virtual:navi31",
            "vulkan-virtual:gfx1151",
            "null=hang@compute:x",
            "hip-kfd:gfx900",
            "hip-kfd:gfx90a",
            "hip-kfd:gfx942",
            "hip-kfd:gfx1100",
            "hip-kfd:gfx1151",
            "vulkan+hip",
            "vulkan:1+hip-nvidia:0",
            "vulkan-virtual:vega20+hip-virtual:gfx906",
            "vulkan-virtual:vega20+hip-kfd:gfx906",
        ];
        for name in names.into_iter().chain(more) {
            assert_eq!(name.parse::<BackendName>().unwrap().to_string(), name);
        }
        let default = "hip-virtual".parse::<BackendName>().unwrap();
        assert_eq!(default.to_string(), "hip-virtual:gfx906");
        let wrong = ["", "gpu", "cpu:1", "vulkan:x", "vulkan:-1", "null=bang", "reference:0", "auto:0"];
        let more = [
            "hip-virtual:gfx803",
            "hip-virtual:0",
            "hip-nvidia:gfx906",
            "vulkan-virtual:gfx90a",
            "vulkan-virtual:navi10",
            "hip-kfd:gfx908",
            "vulkan+",
            "+hip",
            "hip+vulkan",
            "vulkan+vulkan",
            "vulkan+cpu",
            "vulkan+hip+hip",
        ];
        for name in wrong.into_iter().chain(more) {
            let error = name.parse::<BackendName>().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{name}");
        }
    }
}
