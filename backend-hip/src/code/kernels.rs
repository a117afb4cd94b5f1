//! Kernels: lookup of their code objects, and checks of launches against their metadata.
//!
//! `supports` and `prepare` share the checks that need no device: a code object exists for the target, it
//! contains the kernel, the kernel declares the arguments that a launch passes, and the work-group fits.

use crate::arch::{Family, Profile, Target};
use crate::code::elf::{self, CodeObject, KernelInfo};
use crate::code::excerpt::Excerpt;
use crate::code::ptx;
use crate::driver::Module;
use crate::op::{self, Context, Launch, Refusal};
use ggml_core::fuse::Group;
use ggml_core::sync::lock;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Source of code objects, and planner of launches.
pub(crate) trait KernelSet: Send + Sync {
    /// Returns the targets with code.
    fn targets(&self) -> Vec<&'static str>;

    /// Returns the code object of a source stem for one of [`KernelSet::targets`].
    fn code_object(&self, target: &str, stem: &str) -> Option<&'static [u8]>;

    /// Plans the launches of a group.
    fn plan(&self, context: &Context<'_>, group: &Group) -> Result<Vec<Launch>, Refusal>;

    /// Returns the reason why there is no code for a processor, if known.
    fn missing_reason(&self, _processor: &str) -> Option<String> {
        None
    }
}

/// Code objects embedded when the crate was built.
pub(crate) struct Embedded;

impl KernelSet for Embedded {
    fn targets(&self) -> Vec<&'static str> {
        hip_kernels::targets().to_vec()
    }

    fn code_object(&self, target: &str, stem: &str) -> Option<&'static [u8]> {
        hip_kernels::code_object(target, stem)
    }

    fn plan(&self, context: &Context<'_>, group: &Group) -> Result<Vec<Launch>, Refusal> {
        op::plan_group(context, group)
    }

    fn missing_reason(&self, processor: &str) -> Option<String> {
        let refused = hip_kernels::refused().iter().find(|r| r.target == processor);
        match refused {
            Some(refused) => Some(refused.reason.into()),
            None if hip_kernels::targets().is_empty() => Some("the build requested no targets".into()),
            None => None,
        }
    }
}

/// Kernel in a code object.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Stem of the source.
    pub(crate) module: &'static str,
    /// Symbol.
    pub(crate) name: &'static str,
    /// Code that is loaded for it.
    pub(crate) code: Code,
    /// The kernel's metadata; `None` for code of an unknown format.
    pub(crate) info: Option<KernelInfo>,
}

/// Code that is loaded for a kernel.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    /// A code object with all kernels of a stem.
    Object(&'static [u8]),
    /// One kernel of a text.
    Excerpt(Arc<Excerpt>),
}

/// Contents of a stem's code.
#[derive(Debug)]
struct Read {
    object: CodeObject,
    /// Each kernel's excerpt, if the code is text.
    excerpts: Vec<Arc<Excerpt>>,
}

/// Result of reading a stem's code object: the object, `None` if its format has no metadata, or the reason
/// why it is unusable.
type Reading = Result<Option<Arc<Read>>, String>;

/// Kernels of one device.
pub(crate) struct Kernels {
    set: Arc<dyn KernelSet>,
    /// Embedded target that fits the device.
    target: Option<&'static str>,
    read: Mutex<HashMap<&'static str, Reading>>,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Kernels {
    /// Creates the kernels for a device.
    pub(crate) fn new(set: Arc<dyn KernelSet>, device: &Target) -> Kernels {
        let target = device.choose(set.targets());
        Kernels { set, target, read: Mutex::default() }
    }

    /// Returns the target whose code is used.
    pub(crate) fn target(&self) -> Option<&'static str> {
        self.target
    }

    /// Returns the reason why a device cannot be used, if nothing was compiled for it.
    pub(crate) fn missing(&self, device: &Target) -> Option<String> {
        if self.target.is_some() {
            return None;
        }
        let targets = self.set.targets();
        let embedded = if targets.is_empty() { "none".to_string() } else { targets.join(", ") };
        let why =
            self.set.missing_reason(&device.processor).map(|why| format!("; {why}")).unwrap_or_default();
        Some(format!(
            "no code object for {device} was built in (built in: {embedded}{why}); build again with clang 19 or later, \
             or ROCm's, and DIPTYCH_HIP_TARGETS={} (DIPTYCH_HIP_CLANG names the compiler)",
            device.processor
        ))
    }

    /// Returns the checked launches of a node.
    pub(crate) fn plan(&self, context: &Context<'_>) -> Result<Vec<(Launch, Kernel)>, Refusal> {
        self.plan_group(context, &Group::Node(context.node))
    }

    /// Returns the checked launches of a group.
    pub(crate) fn plan_group(
        &self,
        context: &Context<'_>,
        group: &Group,
    ) -> Result<Vec<(Launch, Kernel)>, Refusal> {
        let launches = self.set.plan(context, group)?;
        launches
            .into_iter()
            .map(|launch| {
                let kernel = self.find(launch.module, launch.kernel)?;
                kernel.accepts(&launch, context.profile)?;
                Ok((launch, kernel))
            })
            .collect()
    }

    /// Returns the kernel of [`op::copy::of_words`].
    pub(crate) fn word_copier(&self) -> Result<Kernel, Refusal> {
        let launch = op::copy::of_words(1);
        self.find(launch.module, launch.kernel)
    }

    /// Returns the kernel of [`op::copy::gather`].
    pub(crate) fn gatherer(&self) -> Result<Kernel, Refusal> {
        let launch = op::copy::gather(&[]);
        self.find(launch.module, launch.kernel)
    }

    /// Finds a kernel. All headers of the code object are validated first.
    fn find(&self, module: &'static str, name: &'static str) -> Result<Kernel, Refusal> {
        let target = self.target.ok_or_else(|| Refusal("no code object for this target".into()))?;
        let image = self
            .set
            .code_object(target, module)
            .ok_or_else(|| Refusal(format!("{module} has no code object for {target}")))?;
        let object = lock(&self.read).entry(module).or_insert_with(|| examine(image, target)).clone();
        let object = object.map_err(|why| Refusal(format!("code object {module} for {target} {why}")))?;
        let Some(read) = object else {
            return Ok(Kernel { module, name, code: Code::Object(image), info: None });
        };
        let at = read.object.kernels.iter().position(|k| k.name == name);
        let missing = || Refusal(format!("code object {module} for {target} has no kernel {name}"));
        let at = at.ok_or_else(missing)?;
        let code =
            read.excerpts.get(at).map_or(Code::Object(image), |excerpt| Code::Excerpt(excerpt.clone()));
        Ok(Kernel { module, name, code, info: Some(read.object.kernels[at].clone()) })
    }
}

/// Reads a code object; `None` if its format has no metadata.
fn examine(image: &'static [u8], target: &str) -> Reading {
    let (object, spans) = match image {
        image if elf::is_elf(image) => (elf::read(image)?, Vec::new()),
        image if ptx::is_ptx(image) => ptx::read(image)?,
        _ => return Ok(None),
    };
    if let Some(target) = Target::parse(target).filter(|target| target.processor.starts_with("gfx")) {
        object.suits(&target)?;
    }
    let spans: Arc<[Range<usize>]> = spans.into();
    let excerpts = (0..spans.len()).map(|kernel| Arc::new(Excerpt::new(image, &spans, kernel))).collect();
    Ok(Some(Arc::new(Read { object, excerpts })))
}

impl Kernel {
    /// Returns the name of the module that contains the kernel once it is loaded: the stem, and the kernel if it is a
    /// module of its own.
    pub(crate) fn module(&self) -> (&'static str, Option<&'static str>) {
        match self.code {
            Code::Object(_) => (self.module, None),
            Code::Excerpt(_) => (self.module, Some(self.name)),
        }
    }

    /// Returns the module, if it was loaded by another thread than the session's.
    pub(crate) fn loaded(&self) -> Option<Module> {
        match &self.code {
            Code::Object(_) => None,
            Code::Excerpt(excerpt) => excerpt.module(),
        }
    }

    /// Returns the image of the module.
    pub(crate) fn image(&self) -> Cow<'_, [u8]> {
        match &self.code {
            Code::Object(image) => Cow::Borrowed(image),
            Code::Excerpt(excerpt) => Cow::Owned(excerpt.text()),
        }
    }

    /// Returns an error unless a launch passes the arguments that the kernel declares and its work-group
    /// fits.
    fn accepts(&self, launch: &Launch, profile: &Profile) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal(format!("kernel {}: {why}", self.name)));
        let threads = launch.block.iter().fold(1u64, |all, &n| all.saturating_mul(u64::from(n)));
        let largest = match &self.info {
            Some(info) if info.max_threads > 0 => info.max_threads.min(profile.max_threads),
            _ => profile.max_threads,
        };
        if threads == 0 || threads > u64::from(largest) {
            return refuse(format!("a work-group of {threads} threads; the maximum is {largest}"));
        }
        if launch.grid.contains(&0) {
            return refuse("an empty grid".into());
        }
        // AMD counts the threads of a dimension in 32 bits; NVIDIA limits the second and third dimension to
        // 65,535 work-groups.
        let most =
            if profile.family == Family::Nvidia { [1 << 31, 1 << 16, 1 << 16] } else { [1u64 << 32; 3] };
        let fits = |d: usize| {
            u64::from(launch.grid[d]) < most[d] && launch.grid[d].checked_mul(launch.block[d]).is_some()
        };
        if !(0..3).all(fits) {
            return refuse(format!("a grid of {:?} work-groups is too large", launch.grid));
        }
        let lds = launch.lds_bytes.saturating_add(self.info.as_ref().map_or(0, |i| i.lds_bytes));
        let given = if launch.lds_bytes > 0 { profile.given_lds } else { 0 };
        let most = profile.lds_bytes.max(given);
        if lds > most {
            return refuse(format!("{lds} bytes of LDS; the maximum is {most}"));
        }
        if launch.written > launch.operands.len() {
            return refuse("more operands are written than exist".into());
        }
        let passed = arguments(launch.operands.len(), launch.params.len());
        match &self.info {
            Some(info) if info.arguments != passed => refuse(format!(
                "declares arguments (offset, bytes) {:?}; the launch passes {passed:?}",
                info.arguments
            )),
            _ => Ok(()),
        }
    }
}

/// Returns offsets and sizes of a launch's arguments: pointers, then the parameter structure.
pub(crate) fn arguments(operands: usize, params: usize) -> Vec<(u32, u32)> {
    let pointers = (0..operands as u32).map(|i| (i * 8, 8));
    let structure = (params > 0).then_some((operands as u32 * 8, params as u32));
    pointers.chain(structure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::elf::tests::{sample, sample_with_wave};
    use ggml_core::TensorId;

    struct One(&'static [u8]);

    impl KernelSet for One {
        fn targets(&self) -> Vec<&'static str> {
            vec!["gfx900", "gfx906"]
        }

        fn code_object(&self, target: &str, stem: &str) -> Option<&'static [u8]> {
            (target == "gfx906" && stem == "norm").then_some(self.0)
        }

        fn plan(&self, _context: &Context<'_>, _group: &Group) -> Result<Vec<Launch>, Refusal> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn launches_are_checked_against_the_code_object() {
        let device = Target::parse("gfx906:sramecc+:xnack-").unwrap();
        let image = sample("rms_norm", &[(16, 52), (8, 8), (0, 8)]).leak();
        let kernels = Kernels::new(Arc::new(One(image)), &device);
        assert_eq!(kernels.target(), Some("gfx906"));
        let profile = Profile::of(&device).unwrap();
        let kernel = kernels.find("norm", "rms_norm").unwrap();
        let good = Launch {
            module: "norm",
            kernel: "rms_norm",
            operands: vec![op::Operand::Tensor(TensorId(0)), op::Operand::Tensor(TensorId(1))],
            written: 1,
            params: vec![0; 52],
            grid: [4, 1, 1],
            block: [256, 1, 1],
            lds_bytes: 1024,
        };
        kernel.accepts(&good, &profile).unwrap();
        let bad = |change: fn(&mut Launch), part: &str| {
            let mut launch = good.clone();
            change(&mut launch);
            let Refusal(text) = kernel.accepts(&launch, &profile).unwrap_err();
            assert!(text.contains(part), "{part}: {text}");
        };
        bad(|l| l.params.truncate(48), "declares arguments");
        bad(|l| l.operands.truncate(1), "declares arguments");
        bad(|l| l.block = [32, 32, 1], "1024 threads; the maximum is 256");
        bad(|l| l.block = [u32::MAX; 3], "the maximum is");
        bad(|l| l.grid[1] = 0, "empty grid");
        bad(|l| l.grid[0] = 1 << 24, "too large");
        let nvidia = Profile { family: Family::Nvidia, ..profile.clone() };
        let tall = Launch { grid: [1, 1, 70_000], ..good.clone() };
        assert!(kernel.accepts(&tall, &profile).is_ok() && kernel.accepts(&tall, &nvidia).is_err());
        bad(|l| l.lds_bytes = u32::MAX, "of LDS");
        assert!(kernels.find("norm", "absent").unwrap_err().0.contains("has no kernel absent"));
        assert!(kernels.find("rope", "rope").unwrap_err().0.contains("rope has no code object for gfx906"));
    }

    #[test]
    fn a_target_that_was_not_built() {
        let device = Target::parse("gfx1201").unwrap();
        let kernels = Kernels::new(Arc::new(One(b"")), &device);
        let text = kernels.missing(&device).unwrap();
        assert!(text.contains("gfx1201") && text.contains("built in: gfx900, gfx906"), "{text}");
        // Code for another processor under this name is an error before it is loaded.
        let image = sample("rms_norm", &[]).leak();
        assert_eq!(examine(image, "gfx900").unwrap_err(), "is for gfx906:xnack-");
        let image = sample_with_wave("rms_norm", &[], 32).leak();
        let kernels = Kernels::new(Arc::new(One(image)), &Target::parse("gfx906").unwrap());
        let Refusal(why) = kernels.find("norm", "rms_norm").unwrap_err();
        assert!(
            why.contains("code object norm for gfx906 has kernel rms_norm for wavefronts of 32"),
            "{why}"
        );
    }
}
