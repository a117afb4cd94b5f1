//! Assembly files with many kernels: adds descriptors and metadata to their bodies.

use std::fmt::Write;
use virtual_gpu::Target;

/// A kernel of an assembly file.
///
/// On entry s[0:1] points to the arguments, s2 is the work-group id and v0 the work-item id. With `scratch`,
/// s[0:3] is the scratch resource, s[4:5] points to the arguments, s[6:7] initialises FLAT_SCRATCH, s8 is the
/// work-group id and s9 the wavefront's offset in scratch.
#[derive(Clone)]
pub(crate) struct AsmKernel {
    pub(crate) name: String,
    pub(crate) body: String,
    /// Bytes of explicit arguments, all of them 8-byte pointers.
    pub(crate) arguments: u32,
    pub(crate) lds: u32,
    pub(crate) scratch: u32,
    /// FLOAT_DENORM_MODE_32: 3 preserves denormals, 0 flushes them.
    pub(crate) denormals32: u32,
    /// FLOAT_DENORM_MODE_16_64.
    pub(crate) denormals16: u32,
    /// FLOAT_ROUND_MODE for both: 0 nearest even, 1 up, 2 down, 3 toward zero.
    pub(crate) rounding: u32,
    pub(crate) vgprs: u32,
    /// IEEE mode, for minimum, maximum and signalling NaNs.
    pub(crate) ieee: u32,
}

impl AsmKernel {
    pub(crate) fn new(name: &str, body: &str) -> Self {
        Self {
            name: name.to_owned(),
            body: body.to_owned(),
            arguments: 16,
            lds: 0,
            scratch: 0,
            denormals32: 3,
            denormals16: 3,
            rounding: 0,
            vgprs: 96,
            ieee: 1,
        }
    }

    fn code(&self, out: &mut String) {
        let Self { name, body, .. } = self;
        let _ = writeln!(out, ".text\n.globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n{body}");
        let _ = writeln!(out, "s_endpgm\n.size {name}, .-{name}");
    }

    fn descriptor(&self, out: &mut String, target: Target) {
        let scratch = u32::from(self.scratch != 0);
        // How a kernel finds its scratch, and its wavefronts' size: 32 on GFX11.
        let own: &[(&str, u32)] = if super::GFX11.contains(&target) {
            &[("enable_private_segment", scratch), ("wavefront_size32", 1)]
        } else {
            &[
                ("user_sgpr_private_segment_buffer", scratch),
                ("user_sgpr_flat_scratch_init", scratch),
                ("system_sgpr_private_segment_wavefront_offset", scratch),
            ]
        };
        let lines = [
            ("group_segment_fixed_size", self.lds),
            ("private_segment_fixed_size", self.scratch),
            ("kernarg_size", self.arguments),
            ("user_sgpr_kernarg_segment_ptr", 1),
            ("system_sgpr_workgroup_id_x", 1),
            ("system_vgpr_workitem_id", 0),
            ("next_free_vgpr", self.vgprs),
            ("next_free_sgpr", 96),
            ("float_round_mode_32", self.rounding),
            ("float_round_mode_16_64", self.rounding),
            ("float_denorm_mode_32", self.denormals32),
            ("float_denorm_mode_16_64", self.denormals16),
            ("dx10_clamp", 1),
            ("ieee_mode", self.ieee),
        ];
        let _ = writeln!(out, ".rodata\n.p2align 6\n.amdhsa_kernel {}", self.name);
        for (directive, value) in lines.iter().chain(own) {
            let _ = writeln!(out, "  .amdhsa_{directive} {value}");
        }
        // A comment, unless the target has accumulation registers.
        let _ = writeln!(out, "  ; .amdhsa_accum_offset {}", self.vgprs.min(256));
        let _ = writeln!(out, ".end_amdhsa_kernel");
    }

    fn metadata(&self, out: &mut String, target: Target) {
        let Self { name, arguments, lds, scratch, .. } = self;
        let _ = writeln!(out, "  - .name: {name}\n    .symbol: {name}.kd\n    .args:");
        for offset in (0..*arguments).step_by(8) {
            let _ = writeln!(out, "      - .offset: {offset}\n        .size: 8");
            let _ = writeln!(out, "        .value_kind: global_buffer\n        .address_space: global");
        }
        let _ = writeln!(out, "    .kernarg_segment_size: {arguments}\n    .kernarg_segment_align: 8");
        let _ =
            writeln!(out, "    .group_segment_fixed_size: {lds}\n    .private_segment_fixed_size: {scratch}");
        let lanes = super::lanes(target);
        let _ = writeln!(out, "    .wavefront_size: {lanes}\n    .sgpr_count: 96\n    .vgpr_count: 96");
        let _ = writeln!(out, "    .max_flat_workgroup_size: 1024");
    }
}

/// Returns the assembly text of some kernels for GFX9, preceded by `macros`.
pub(crate) fn file(macros: &str, kernels: &[AsmKernel]) -> String {
    file_for(Target::Gfx906, macros, kernels)
}

/// Returns the assembly text of some kernels, preceded by `macros`.
pub(crate) fn file_for(target: Target, macros: &str, kernels: &[AsmKernel]) -> String {
    let mut out = format!("{macros}\n");
    for kernel in kernels {
        kernel.code(&mut out);
        kernel.descriptor(&mut out, target);
    }
    out.push_str(".amdgpu_metadata\n---\namdhsa.version:\n  - 1\n  - 2\namdhsa.kernels:\n");
    for kernel in kernels {
        kernel.metadata(&mut out, target);
    }
    out.push_str("...\n.end_amdgpu_metadata\n");
    out
}
