//! Harmless variants that may get a backend past a crash or a hang.

use super::super::header::Header;
use super::super::options::{CompareOptions, Subject};
use super::super::report::{Record, Report, Status};
use super::super::variant_rows::VariantRow;
use super::effects::Group;
use super::{Runner, Target};
use crate::backends::BackendName;
use crate::shell::quoted;
use ggml_core::Result;

/// Variants for AMD's runtime: they change how work and copies reach the card, never the results or the machine.
const HIP: &[&str] = &["HSA_ENABLE_SDMA=0", "copies=kernel", "graphs=off", "null-stream"];

/// The same for NVIDIA's driver.
const NVIDIA: &[&str] = &["copies=kernel", "graphs=off", "null-stream", "[hip-nvidia] matrix-units=off"];

/// Variants for Vulkan: plain kernels, and no compiled shader of an earlier run.
const VULKAN: &[&str] = &["DIPTYCH_VULKAN_ARCH=OTHER", "MESA_SHADER_CACHE_DISABLE=true"];

/// Further variants where the backend takes routes that only NVIDIA's cards take.
const VULKAN_NVIDIA: &[&str] = &["matrix-units=off", "shared-tiles=off", "staged-weights=false"];

/// Class of devices with these routes.
const NVIDIA_CLASS: &str = "NVIDIA";

/// Returns the harmless variants of a backend in the order in which they are tried.
fn harmless(backend: &BackendName, class: &str) -> Vec<VariantRow> {
    let texts = match backend {
        BackendName::Hip(_) | BackendName::HipVirtual(_) | BackendName::HipKfd(_) => HIP.to_vec(),
        BackendName::HipNvidia(_) => NVIDIA.to_vec(),
        BackendName::Vulkan(_) if class == NVIDIA_CLASS => [VULKAN_NVIDIA, VULKAN].concat(),
        BackendName::Vulkan(_) | BackendName::VulkanVirtual(_) => VULKAN.to_vec(),
        _ => Vec::new(),
    };
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

/// Plain runs that crashed or hung: the first of each backend. A process that holds its device would hold it from every
/// variant.
fn died(report: &Report) -> Vec<&Record> {
    let is_dead = |r: &&Record| matches!(r.status, Status::Crash | Status::Hang) && r.stuck.is_none();
    let mut all: Vec<&Record> = Vec::new();
    for record in report.records.iter().filter(|r| r.variant.is_none() && r.case.is_none()).filter(is_dead) {
        if all.iter().all(|known| known.backend != record.backend) {
            all.push(record);
        }
    }
    all
}

/// Returns the variants that may cure a run: those that are harmless, not in effect yet and not run yet.
fn candidates(report: &Report, record: &Record) -> Vec<VariantRow> {
    let Ok(backend) = record.backend.parse::<BackendName>() else { return Vec::new() };
    let class = report.backend_of(record).map_or("", |b| &b.arch);
    let set = |pair: &(String, String)| {
        record.environment.contains(pair)
            || (report.environment.overrides.contains(pair)
                && record.environment.iter().all(|(name, _)| *name != pair.0))
    };
    let ran = |row: &VariantRow| {
        let of = (&record.backend, record.offload);
        let name = |r: &Record| report.variants.iter().find(|known| Some(&known.name) == r.variant.as_ref());
        let own = report.records.iter().filter(|r| (&r.backend, r.offload) == of);
        own.filter_map(name).any(|known| known.is_same(row))
    };
    let mut rows = harmless(&backend, class);
    rows.retain(|row| !row.environment.iter().all(set) && !ran(row));
    // A name may stand for other settings already.
    for row in &mut rows {
        if report.variants.iter().any(|known| known.name == row.name && !known.is_same(row)) {
            row.name = format!("{} (harmless)", row.usage());
        }
    }
    rows
}

/// Tries the harmless variants on every backend that crashed or hung. If none helps and one gets further, that one is
/// combined with each of those that do not get as far.
pub(super) fn run(runner: &mut Runner<'_, '_>) -> Result<()> {
    let records: Vec<Record> = died(runner.report).into_iter().cloned().collect();
    for record in records {
        let target: Target = (record.backend.parse()?, record.offload);
        for row in candidates(runner.report, &record) {
            runner.run_epochs(&row, &target)?;
        }
        for row in combinations(runner.report, &record) {
            runner.run_epochs(&row, &target)?;
        }
    }
    Ok(())
}

/// Returns the combinations that are worth trying after the single variants.
fn combinations(report: &Report, record: &Record) -> Vec<VariantRow> {
    let groups = Group::all(report);
    let of = |g: &&Group<'_>| (g.backend, g.offload) == (record.backend.as_str(), record.offload);
    let Some(plain) = groups.iter().filter(of).find(|g| g.variant.is_none()) else { return Vec::new() };
    let rows: Vec<&Group<'_>> = groups.iter().filter(of).filter(|g| g.variant.is_some()).collect();
    if rows.iter().any(|row| row.is_good()) {
        return Vec::new();
    }
    let Some(furthest) = rows.iter().map(|row| row.progress()).max().filter(|p| *p > plain.progress()) else {
        return Vec::new();
    };
    let settings =
        |row: &&Group<'_>| report.variants.iter().find(|known| Some(known.name.as_str()) == row.variant);
    let best = rows
        .iter()
        .copied()
        .filter(|row| row.progress() == furthest)
        .filter_map(|row| settings(&row))
        .next_back();
    let others =
        rows.iter().copied().filter(|row| row.progress() < furthest).filter_map(|row| settings(&row));
    best.map_or_else(Vec::new, |best| others.map(|other| best.with(other)).collect())
}

/// Returns the command that tries harmless variants, if a backend crashed or hung and there are some to try.
pub(super) fn command(report: &Report, header: &Header) -> Option<String> {
    let given = if header.resumed_by.is_empty() { &report.command } else { &header.resumed_by };
    continuing(report, given, &header.options)
}

/// Returns the command for a run that was started or continued by `given`.
fn continuing(report: &Report, given: &[String], options: &CompareOptions) -> Option<String> {
    let is_ops = matches!(options.work, Subject::Ops(_));
    let untried = died(report).into_iter().any(|record| !candidates(report, record).is_empty());
    if is_ops || options.cure || !untried {
        return None;
    }
    let mut command = vec![given.first()?.clone(), "--resume".into(), options.out.display().to_string()];
    command.extend(repeated(given));
    command.push("--cure".into());
    Some(command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// Returns those arguments of a command that the continued run needs again.
fn repeated(command: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = command.iter().skip(1);
    while let Some(word) = words.next() {
        let is = |option: &&str| {
            word == option || word.strip_prefix(*option).is_some_and(|rest| rest.starts_with('='))
        };
        if !["--hip-library", "--env", "--variants"].iter().any(is) {
            continue;
        }
        all.push(word.clone());
        if !word.contains('=') {
            all.extend(words.next().cloned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::CompareOptions;
    use super::*;

    #[test]
    fn every_harmless_variant_is_one() {
        for (backend, class, n) in [
            ("hip", "gfx1151", HIP.len()),
            ("hip-virtual:gfx906", "gfx906", HIP.len()),
            ("hip-nvidia", "", NVIDIA.len()),
            ("vulkan", "AMD_GCN", VULKAN.len()),
            ("vulkan:1", NVIDIA_CLASS, VULKAN.len() + VULKAN_NVIDIA.len()),
            ("cpu", "", 0),
        ] {
            let backend: BackendName = backend.parse().unwrap();
            let rows = harmless(&backend, class);
            assert_eq!(rows.len(), n, "{backend}");
            assert!(rows.iter().all(|row| row.applies_to(&backend)), "{rows:?}");
        }
    }

    /// The command continues the run, with what a folder never names. A variable that is set already is not tried.
    #[test]
    fn the_command_continues_the_run() {
        let options = CompareOptions::default().with_out("my out");
        let mut report = Report::new(&options);
        let words = ["./compare", "--hip-library", "/a b/lib.so", "--predict", "2", "--env=hip:HSA_XNACK=0"];
        report.command = words.map(String::from).to_vec();
        let hang = |backend: &str| Record {
            backend: backend.into(),
            offload: -1,
            status: Status::Hang,
            ..Record::default()
        };
        report.records = vec![hang("hip")];
        let wanted = "./compare --resume 'my out' --hip-library '/a b/lib.so' --env=hip:HSA_XNACK=0 --cure";
        assert_eq!(continuing(&report, &report.command, &options).as_deref(), Some(wanted));
        report.environment.overrides = vec![("HSA_ENABLE_SDMA".into(), "0".into())];
        let names: Vec<String> =
            candidates(&report, &report.records[0]).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["copies=kernel", "graphs=off", "null-stream"]);
        report.records = vec![hang("null=hang@upload")];
        assert_eq!(continuing(&report, &report.command, &options), None);
    }

    /// A process that holds its device, a variant that was run, and a name that stands for other settings.
    #[test]
    fn what_is_tried() {
        let record = |variant: Option<&str>, status, furthest: &str| Record {
            backend: "hip".into(),
            offload: -1,
            status,
            furthest: Some(furthest.into()),
            phase: Some(furthest.into()),
            variant: variant.map(String::from),
            ..Record::default()
        };
        let mut report = Report::new(&CompareOptions::default());
        report.environment.overrides.clear();
        report.records =
            vec![record(None, Status::Hang, "upload"), record(Some("mine"), Status::Hang, "upload")];
        report.variants = vec!["mine: copies=kernel".parse().unwrap()];
        let names = |report: &Report| {
            let rows = candidates(report, &report.records[0]).into_iter();
            rows.map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&report), ["HSA_ENABLE_SDMA=0", "graphs=off", "null-stream"]);
        report.variants[0].name = "graphs=off".into();
        report.records[1].variant = Some("graphs=off".into());
        assert_eq!(names(&report), ["HSA_ENABLE_SDMA=0", "DIPTYCH_HIP_GRAPHS=off (harmless)", "null-stream"]);
        report.records[0].stuck = Some(Default::default());
        assert!(died(&report).is_empty(), "its device is held");
        // A row that gets further is combined with those that do not; after a row that helps there is no need.
        report.variants = ["copies=kernel", "graphs=off"].map(|row| row.parse().unwrap()).into();
        let tried = |second| {
            vec![
                record(None, Status::Hang, "upload"),
                record(Some("copies=kernel"), Status::Hang, "first_compute"),
                record(Some("graphs=off"), second, "upload"),
            ]
        };
        report.records = tried(Status::Hang);
        let combined = combinations(&report, &report.records[0]);
        assert_eq!(
            combined.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
            ["copies=kernel+graphs=off"]
        );
        report.records = tried(Status::Ok);
        assert!(combinations(&report, &report.records[0]).is_empty(), "graphs=off helps");
    }
}
