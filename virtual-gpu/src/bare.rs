//! Machine code without a code object, as a graphics driver submits it: a program and the values of the
//! registers that a command processor sets before starting it.
//!
//! Source: AMD, "Vega 3D Register Reference Guide" for the fields of `COMPUTE_PGM_RSRC1` and
//! `COMPUTE_PGM_RSRC2`; LLVM, "User Guide for AMDGPU Backend", "Code Object V3 Kernel Descriptor" for their
//! meaning.

use crate::code::Descriptor;
use crate::counters::Counters;
use crate::exec::group::Context;
use crate::exec::sizes::Sizes;
use crate::fault::{Fault, FaultKind, Result};
use crate::footprint::Footprint;
use crate::gpu::{Gpu, counts, fits, run};
use crate::instructions::Text;
use crate::isa::{Isa, Target};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of user SGPRs of a compute program.
const MAX_USER_SGPRS: u32 = 16;

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Bare<'a> {
    /// Name used in faults.
    pub name: &'a str,
    /// Its words, little endian: instructions from the first byte on, then constants that they load relative
    /// to the code.
    pub code: &'a [u8],
    /// `COMPUTE_PGM_RSRC1`: number of vector registers, floating-point modes.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`: number of user SGPRs, and which work-group and work-item ids are initialised. Its
    /// LDS field is ignored.
    pub rsrc2: u32,
    /// Work-items per work-group along x, y and z.
    pub threads: [u32; 3],
    /// LDS of a work-group in bytes.
    pub lds_bytes: u32,
    /// True for wavefronts of 32 lanes, on processors that have both.
    pub wave32: bool,
}

/// A launch of a program.
#[derive(Clone, Copy, Debug)]
pub struct BareLaunch<'a> {
    /// Number of work-groups along x, y and z.
    pub groups: [u32; 3],
    /// Id of the first work-group.
    pub first_group: [u32; 3],
    /// Values of s0 and the following registers; their number must match `COMPUTE_PGM_RSRC2`.
    pub user_sgprs: &'a [u32],
}

/// A loaded program. Its memory is freed with [`Gpu::unload_bare`].
#[derive(Clone)]
pub struct BareKernel(Arc<Program>);

struct Program {
    name: String,
    text: Text,
    /// Device address of the code.
    base: u64,
    descriptor: Descriptor,
    threads: [u32; 3],
}

impl Gpu {
    /// Loads a program.
    ///
    /// # Errors [`FaultKind::InvalidCodeObject`] if the code is empty or not a multiple of 4, or if no
    /// hardware can run its work-group; [`FaultKind::Unimplemented`] for scratch and trap handlers;
    /// [`FaultKind::OutOfMemory`].
    pub fn load_bare(&self, program: &Bare<'_>) -> Result<BareKernel> {
        let named = |kind| at_kernel(program.name, kind);
        let descriptor = describe(program, self.target).map_err(named)?;
        let base = self.memory.allocate(program.code.len()).map_err(named)?;
        self.memory.write(base, program.code)?;
        let words = program.code.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        let text = Text::new(0, words.collect(), descriptor.isa(self.target));
        let name = program.name.to_string();
        Ok(BareKernel(Arc::new(Program { name, text, base, descriptor, threads: program.threads })))
    }

    /// Frees the memory allocated by [`Gpu::load_bare`].
    ///
    /// # Errors The program was unloaded before.
    pub fn unload_bare(&self, kernel: &BareKernel) -> Result<()> {
        self.free(kernel.0.base)
    }

    /// Runs a program to its end. Work-groups run in parallel, in no particular order; without work-groups
    /// nothing runs.
    ///
    /// # Errors [`FaultKind::InvalidLaunch`] if work-group or work-item ids do not fit into 32 bits or the
    /// number of user SGPRs differs from the program's; otherwise as [`Gpu::launch`].
    pub fn launch_bare(&self, kernel: &BareKernel, launch: &BareLaunch<'_>) -> Result<Counters> {
        self.launch_noting(kernel, launch, None)
    }

    /// Runs a program as [`Gpu::launch_bare`] does and also returns the bytes read and written. Several times
    /// slower.
    ///
    /// # Errors
    /// As [`Gpu::launch_bare`].
    pub fn trace_bare(&self, kernel: &BareKernel, launch: &BareLaunch<'_>) -> Result<(Counters, Footprint)> {
        let footprint = Mutex::new(Footprint::default());
        let counters = self.launch_noting(kernel, launch, Some(&footprint))?;
        Ok((counters, footprint.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    fn launch_noting(
        &self,
        kernel: &BareKernel,
        launch: &BareLaunch<'_>,
        footprint: Option<&Mutex<Footprint>>,
    ) -> Result<Counters> {
        let program = &*kernel.0;
        check(program, launch).map_err(|why| at_kernel(&program.name, FaultKind::InvalidLaunch(why)))?;
        if launch.groups.contains(&0) {
            return Ok(Counters::default());
        }
        let context = Context {
            kernel: &program.name,
            descriptor: program.descriptor,
            text: &program.text,
            code_base: program.base,
            memory: &self.memory,
            view: self.memory.view(),
            sizes: Sizes::uniform(program.threads),
            lds_bytes: program.descriptor.lds_bytes,
            scratch_bytes: 0,
            user_sgprs: launch.user_sgprs,
            checks: self.options.checks,
            max_instructions: self.options.max_instructions,
            interrupt: None,
            footprint,
            noise: &self.noise,
            lines: None,
        };
        run(&self.machines, &context, launch.first_group, launch.groups)
    }
}

fn at_kernel(name: &str, kind: FaultKind) -> Fault {
    Fault { kernel: name.to_string(), ..kind.into() }
}

fn describe(program: &Bare<'_>, target: Target) -> std::result::Result<Descriptor, FaultKind> {
    let invalid = FaultKind::InvalidCodeObject;
    if program.code.is_empty() || program.code.len() % 4 != 0 {
        return Err(invalid(format!("has {} bytes, not a multiple of 4", program.code.len())));
    }
    if program.wave32 && !target.traits().wave32 {
        return Err(invalid(format!("is for wavefronts of 32, which {} does not have", target.name())));
    }
    let isa = if program.wave32 { Isa::wave32(target) } else { Isa::wave64(target) };
    let descriptor = Descriptor::bare(isa, program.rsrc1, program.rsrc2, program.lds_bytes);
    if descriptor.user_sgprs > MAX_USER_SGPRS {
        let count = descriptor.user_sgprs;
        return Err(invalid(format!("has {count} user SGPRs, {MAX_USER_SGPRS} are the most")));
    }
    if program.rsrc2 & 1 != 0 {
        return Err(FaultKind::Unimplemented("scratch of a program without a code object".into()));
    }
    if program.rsrc2 >> 6 & 1 != 0 {
        return Err(FaultKind::Unimplemented("a trap handler".into()));
    }
    fits(program.threads, program.lds_bytes, &descriptor, target).map_err(invalid)?;
    Ok(descriptor)
}

fn check(program: &Program, launch: &BareLaunch<'_>) -> std::result::Result<(), String> {
    counts(launch.groups, program.threads)?;
    let last = |i: usize| launch.first_group[i].checked_add(launch.groups[i]);
    if (0..3).any(|i| last(i).is_none()) {
        return Err(format!(
            "has {:?} work-groups from {:?} on, whose ids exceed 32 bits",
            launch.groups, launch.first_group
        ));
    }
    let (passed, expected) = (launch.user_sgprs.len(), program.descriptor.user_sgprs);
    if passed != expected as usize {
        return Err(format!("has {passed} user SGPRs, the program takes {expected}"));
    }
    Ok(())
}

impl BareKernel {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl std::fmt::Debug for BareKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BareKernel").field(&self.name()).finish()
    }
}
