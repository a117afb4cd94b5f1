//! Audit of the compiled pipelines of a device: registers, spills, occupancy, and the instructions of loops.
//!
//! The device is opened for compiling only. Nothing is allocated, recorded or submitted, so a driver without
//! hardware is sufficient: RADV compiles for the family in `RADV_FORCE_FAMILY`.

mod cost;
mod known;
mod listing;
mod loops;
#[cfg(test)]
mod tests;

pub use cost::Class;
pub use loops::{LoopRow, table};

use crate::arch::ArchClass;
use crate::deadline::guarded;
use crate::device;
use crate::device::profile::Profile;
use crate::op;
use crate::options::VulkanOptions;
use crate::pipeline::{PipelineSet, PipelineSpec};
use crate::raw::device::{Device, Purpose};
use crate::raw::pipeline::Capture;
use crate::raw::provider::BACKEND;
use ggml_core::hash::Fnv1a;
use ggml_core::{Deadline, Error, Phase, Result};
use known::Known;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Compiler statistics of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// The pipeline.
    pub pipeline: PipelineSpec,
    /// Subgroup size that the compiler chose, if reported.
    pub subgroup_size: Option<u32>,
    /// Values by the driver's names.
    pub statistics: Vec<(String, f64)>,
}

/// Compiler statistics of all pipelines of a device.
#[derive(Clone, Debug)]
pub struct Audit {
    /// Device name.
    pub device: String,
    /// Driver name and version.
    pub driver: String,
    /// Architecture class of the pipelines.
    pub arch: ArchClass,
    /// Pipelines that compiled.
    pub rows: Vec<AuditRow>,
    /// Pipelines that failed to compile, with the reason.
    pub failures: Vec<(PipelineSpec, String)>,
}

/// Columns of [`Audit::table`]: heading, and Mesa's name of the value.
const COLUMNS: [(&str, &str); 11] = [
    ("VGPR", "VGPRs"),
    ("SGPR", "SGPRs"),
    ("spillV", "Spilled VGPRs"),
    ("spillS", "Spilled SGPRs"),
    ("LDS", "LDS size"),
    ("scratch", "Scratch size"),
    ("waves", "Subgroups per SIMD"),
    ("code", "Code size"),
    ("instr", "Instructions"),
    ("latency", "Latency"),
    ("invthru", "Inverse Throughput"),
];

impl AuditRow {
    /// Returns a value by the driver's name.
    pub fn statistic(&self, name: &str) -> Option<f64> {
        self.statistics.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v)
    }

    /// Returns the sum of spilled registers and bytes of scratch memory: all should be 0.
    pub fn spills(&self) -> f64 {
        ["Spilled VGPRs", "Spilled SGPRs", "Scratch size"]
            .iter()
            .filter_map(|name| self.statistic(name))
            .sum()
    }
}

impl Audit {
    /// Formats a line for each pipeline.
    pub fn table(&self) -> String {
        let mut text =
            format!("{} ({}), {}: {} pipelines\n", self.device, self.driver, self.arch, self.rows.len());
        let heads: String = COLUMNS.iter().map(|(head, _)| format!("{head:>8}")).collect();
        let _ = writeln!(text, "{:58}{:>6}{heads}", "pipeline", "size");
        for row in &self.rows {
            let size = row.subgroup_size.map_or("-".into(), |s| s.to_string());
            let _ = write!(text, "{:58}{size:>6}", row.pipeline.to_string());
            for (_, name) in COLUMNS {
                let value = row.statistic(name).map_or("-".into(), |v| v.to_string());
                let _ = write!(text, "{value:>8}");
            }
            text.push('\n');
        }
        for (pipeline, why) in &self.failures {
            let _ = writeln!(text, "{pipeline}: {why}");
        }
        text
    }
}

/// The pipelines of a device that are made of one module.
#[derive(Clone, Debug)]
pub struct ModulePipelines {
    /// Shader and variant.
    pub module: (&'static str, &'static str),
    /// Hash of the module and the pipelines.
    pub digest: u64,
    /// Pipelines, in the order of [`compile`].
    pub pipelines: Vec<PipelineSpec>,
}

/// Lists the pipelines of the chosen device's class by module, and returns them with the driver's name and version.
/// Nothing is compiled.
///
/// # Errors
/// Errors of opening the device.
pub fn list(options: VulkanOptions) -> Result<(String, Vec<ModulePipelines>)> {
    let deadline = Deadline::new(Phase::Compile, options.deadlines.prepare);
    guarded(BACKEND, deadline, move || {
        let (device, profile) = open(&options)?;
        let mut modules: BTreeMap<_, Vec<PipelineSpec>> = BTreeMap::new();
        for pipeline in op::all_pipelines(&profile) {
            modules.entry((pipeline.shader, pipeline.variant)).or_default().push(pipeline);
        }
        let of_module = |(module, pipelines): ((&'static str, &'static str), Vec<PipelineSpec>)| {
            let code = shaders::module(module.0, module.1).map(shaders::manifest::module_digest);
            let text =
                pipelines.iter().fold(format!("{code:?}"), |text, pipeline| format!("{text}\n{pipeline}"));
            ModulePipelines { module, digest: Fnv1a::of(text.as_bytes()), pipelines }
        };
        Ok((driver_of(&device), modules.into_iter().map(of_module).collect()))
    })
}

/// Opens a device for compiling, and returns it with its profile.
fn open(options: &VulkanOptions) -> Result<(Arc<Device>, Profile)> {
    let (device, choice) = device::open(options, Purpose::Compile)?;
    let (profile, _) = choice.decide(device.facts.caps.clone());
    Ok((device, profile))
}

fn driver_of(device: &Device) -> String {
    format!("{} {}", device.facts.driver, device.facts.driver_info)
}

/// Compiles the pipelines of the chosen device's class for which `wanted` returns true. Statistics that an earlier audit
/// stored in the folder `known` are taken from there, new ones are added.
///
/// # Errors
/// Errors of opening the device. A pipeline that fails to compile is an entry of [`Audit::failures`].
pub fn compile(
    options: VulkanOptions,
    known: Option<PathBuf>,
    wanted: impl Fn(&PipelineSpec) -> bool + Send + 'static,
) -> Result<Audit> {
    let deadline = Deadline::new(Phase::Compile, options.deadlines.prepare);
    guarded(BACKEND, deadline, move || {
        let (device, profile) = open(&options)?;
        let set = PipelineSet::new(&device, None, Capture::Statistics, true);
        let mut audit = Audit {
            device: device.facts.name.clone(),
            driver: driver_of(&device),
            arch: profile.caps.arch,
            rows: Vec::new(),
            failures: Vec::new(),
        };
        let mut by = format!("{} {} {}", audit.device, audit.driver, audit.arch);
        // Variables that change RADV's code.
        for name in ["RADV_DEBUG", "RADV_PERFTEST", "ACO_DEBUG"] {
            if let Some(value) = std::env::var_os(name) {
                let _ = write!(by, " {name}={}", value.to_string_lossy());
            }
        }
        let mut known = known.map(|folder| Known::open(&folder, &by));
        for pipeline in op::all_pipelines(&profile).into_iter().filter(wanted) {
            if let Some(row) = known.as_ref().and_then(|known| known.get(&pipeline)) {
                audit.rows.push(row);
                continue;
            }
            match set.statistics(&pipeline) {
                Ok((subgroup_size, statistics)) => {
                    let statistics = statistics.into_iter().map(|s| (s.name, s.value)).collect();
                    let row = AuditRow { pipeline, subgroup_size, statistics };
                    known.iter_mut().for_each(|known| known.add(&row));
                    audit.rows.push(row);
                }
                Err(error) => audit.failures.push((pipeline, error.to_string())),
            }
        }
        known.iter().for_each(Known::save);
        Ok(audit)
    })
}

/// Machine code of a pipeline.
#[derive(Clone, Debug)]
struct Listing {
    pipeline: PipelineSpec,
    /// Invocations of a subgroup.
    lanes: u32,
    /// Text as the driver prints it.
    text: String,
}

/// The loops over k of a device's matrix products.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Driver name and version.
    pub driver: String,
    /// Loops that could be analysed.
    pub rows: Vec<LoopRow>,
    /// Pipelines whose loops could not be analysed.
    pub others: Vec<PipelineSpec>,
}

/// Compiles the pipelines of the chosen device's class for which `wanted` returns true, and counts the
/// instructions of their loops over k.
///
/// # Errors
/// Errors of opening the device or compiling; an error if the driver provides no machine code.
pub fn count_loops(options: VulkanOptions, wanted: fn(&PipelineSpec) -> bool) -> Result<Loops> {
    let deadline = Deadline::new(Phase::Compile, options.deadlines.prepare);
    guarded(BACKEND, deadline, move || {
        let (device, profile) = open(&options)?;
        let set = PipelineSet::new(&device, None, Capture::Listing, true);
        let mut loops = Loops { driver: driver_of(&device), rows: Vec::new(), others: Vec::new() };
        for pipeline in op::all_pipelines(&profile).into_iter().filter(wanted) {
            let (lanes, text) = set.listing(&pipeline)?.ok_or_else(|| {
                Error::argument(format!("pipeline {pipeline}"), "no machine code", "a driver that prints it")
            })?;
            let listing = Listing { pipeline, lanes, text };
            match loops::row(profile.caps.arch, &listing) {
                Some(row) => loops.rows.push(row),
                None => loops.others.push(listing.pipeline),
            }
        }
        Ok(loops)
    })
}
