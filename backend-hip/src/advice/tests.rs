//! Tests of the advice.

use super::*;
use std::time::Duration;

fn situation(target: &str, hip: Version) -> Situation {
    Situation { target: target.into(), hip: Some(hip), ..Situation::default() }
}

fn timeout(phase: Phase) -> Error {
    Error::Timeout { backend: "hip:0".into(), phase, node: None, after: Duration::ZERO }
}

fn sources(situation: &Situation, error: &Error) -> Vec<&'static str> {
    for_error(situation, error).iter().map(|row| row.source).collect()
}

#[test]
fn rows_are_complete() {
    for row in ADVICE {
        assert!(row.advice.len() > 10 && row.source.len() > 5 && !row.targets.is_empty(), "{row:?}");
        assert!(row.from.is_none() || row.before.is_none() || row.from < row.before, "{row:?}");
        assert_eq!(row.cure.is_empty(), !row.blocks, "{row:?}");
        let ends = |text: &str| text.ends_with(['.', ' ']);
        assert!(!ends(row.advice) && !ends(row.source), "{row:?}");
    }
}

#[test]
fn a_hang_of_gfx1151() {
    let mut s = situation("gfx1151", (7, 1, 52802));
    s.kernel = KernelFacts { release: Some((6, 14)), cwsr: Some(true), mes: Some(0x80), kfd: None };
    let hang = timeout(Phase::Compute);
    assert_eq!(
        sources(&s, &hang),
        ["ROCm issues 5590, 5151; TheRock 1413; rocm-systems 1807, 2200, 2324, 2811"]
    );
    s.kernel.mes = Some(0x83);
    assert_eq!(sources(&s, &hang).len(), 2);
    assert!(sources(&s, &timeout(Phase::Allocate)).is_empty(), "no row is about allocations");
    s.kernel = KernelFacts { cwsr: Some(false), ..s.kernel };
    assert_eq!(sources(&s, &hang), ["ROCm issues 5724, 5991"]);
    // Only a new kernel together with a new runtime is unaffected.
    s.kernel = KernelFacts { release: Some((6, 18)), cwsr: Some(true), mes: None, kfd: None };
    assert_eq!(sources(&s, &hang).len(), 1);
    s.hip = Some((7, 2, 53211));
    assert!(sources(&s, &hang).is_empty());
}

/// Field case C: the override of the Strix Halo's owner must not hide what is known of its chip, and a chip that
/// is made to look like another does not get that one's problems.
#[test]
fn rows_match_the_chip_whatever_is_pretended() {
    let kernel = KernelFacts { release: Some((6, 14)), cwsr: Some(true), mes: Some(0x83), kfd: None };
    let chip = |chip: &str, target: &str| Situation {
        chip: Some(chip.into()),
        kernel: kernel.clone(),
        ..situation(target, (7, 2, 26015))
    };
    let blocking = |situation: &Situation| known(situation).filter(|row| row.blocks).count();
    assert_eq!(blocking(&chip("gfx1151", "gfx1151")), 2, "waves, and MES 0x83");
    assert_eq!(blocking(&chip("gfx1151", "gfx1100")), 2, "the same with HSA_OVERRIDE_GFX_VERSION=11.0.0");
    assert_eq!(blocking(&chip("gfx1100", "gfx1151")), 0, "the chip is no Strix Halo");
    assert_eq!(blocking(&Situation { chip: None, ..chip("", "gfx1151") }), 2, "the chip is unknown");
    // Which of the two a fault of graphs depends on is not known, so either counts.
    let of_graphs = |chip_name, target| {
        let with = Situation { graphs: true, hip: Some((7, 2, 53211)), ..chip(chip_name, target) };
        known(&with).any(|row| row.source == "HIP issue 3887")
    };
    assert!(of_graphs("gfx1201", "gfx1100") && of_graphs("gfx1100", "gfx1201"));
    assert!(!of_graphs("gfx1100", "gfx1100"));
}

/// `amdgpu.cwsr_enable=0` is no advice where it is set.
#[test]
fn waves_that_are_not_saved_are_not_advised_again() {
    let mut s = situation("gfx1100", (7, 1, 52802));
    let text = |s: &Situation| text_for(s, &timeout(Phase::Allocate)).unwrap();
    assert!(text(&s).contains("amdgpu.cwsr_enable=0 or ROCm 6.4.4 helped"), "{}", text(&s));
    s.kernel.cwsr = Some(false);
    let off = text(&s);
    assert!(off.contains("ROCm 6.4.4 helped") && !off.contains("amdgpu.cwsr_enable=0 or"), "{off}");
}

/// Rows for people who came with another program, or whose machine is in danger.
#[test]
fn what_other_programs_run_into() {
    let has = |situation: &Situation, source: &str| known(situation).any(|row| row.source.contains(source));
    for (target, lacks_code) in [("gfx1150", true), ("gfx1151", true), ("gfx1100", false)] {
        assert_eq!(has(&situation(target, (7, 2, 53211)), "ROCm issue 5534"), lacks_code, "{target}");
    }
    let mut polls = situation("gfx1100", (7, 14, 60850));
    assert!(has(&polls, "TheRock issue 7051"));
    polls.environment = Environment::new([("HIP_VISIBLE_DEVICES".into(), "0".into())]);
    assert!(!has(&polls, "TheRock issue 7051"), "the runtime lists one device");
    assert!(!has(&situation("gfx1100", (7, 13, 0)), "TheRock issue 7051"));
    let mut apu = situation("gfx90c", (6, 1, 1));
    assert!(!has(&apu, "TROUBLESHOOTING.md"));
    apu.environment = Environment::new([("HSA_XNACK".into(), "1".into())]);
    let cures: Vec<&str> = known(&apu).filter(|row| row.blocks).map(|row| row.cure).collect();
    assert_eq!(cures, ["unset HSA_XNACK"]);
    let old = KernelFacts { release: Some((6, 14)), ..KernelFacts::default() };
    let halo = Situation { kernel: old, ..situation("gfx1151", (7, 2, 53211)) };
    assert!(has(&halo, "ROCm issue 5750") && !has(&situation("gfx1151", (7, 2, 53211)), "ROCm issue 5750"));
    for (source, target, hip, other) in [
        ("ROCm issue 6630", "gfx1201", (7, 14, 60850), (7, 13, 0)),
        ("HIP issue 3314", "gfx1034", (5, 7, 0), (6, 0, 0)),
        ("HIP 5.2.3 returns 303 for version 5", "gfx906", (5, 2, 0), (5, 7, 0)),
        ("HIP 5.7.1 returns 303 for version 6", "gfx906", (5, 7, 0), (6, 0, 0)),
    ] {
        assert!(has(&situation(target, hip), source) && !has(&situation(target, other), source), "{source}");
    }
}

/// Graphs are used where nothing is known against them, and where they are requested.
#[test]
fn graphs_that_fail_are_not_used() {
    let used = |target, hip| graphs(&situation(target, hip), Graphs::Auto);
    for (target, hip) in [
        ("gfx942", (7, 2, 0)),
        ("gfx950", (7, 2, 53220)),
        ("gfx1100", (7, 2, 26015)),
        ("gfx1201", (7, 2, 53211)),
        ("gfx1200", (7, 14, 60850)),
    ] {
        assert_eq!(used(target, hip), Graphs::Off, "{target} {hip:?}");
    }
    for (target, hip) in [
        ("gfx942", (7, 1, 52802)),
        ("gfx942", (7, 13, 0)),
        ("gfx1201", (7, 1, 52802)),
        ("gfx1100", (7, 2, 53211)),
        ("gfx906", (7, 2, 53211)),
    ] {
        assert_eq!(used(target, hip), Graphs::Auto, "{target} {hip:?}");
    }
    let mut forced = situation("gfx1201", (7, 2, 53211));
    assert_eq!(graphs(&forced, Graphs::On), Graphs::On);
    // Branches are on request only, so that graphs stay in use.
    let mut branches = Situation { branches: true, ..situation("gfx90a", (6, 4, 43484)) };
    let of_branches = |situation: &Situation| known(situation).any(|row| row.source == "kokkos issue 8359");
    assert!(of_branches(&branches) && graphs(&branches, Graphs::Auto) == Graphs::Auto);
    branches.hip = Some((7, 2, 53211));
    assert!(!of_branches(&branches) && !of_branches(&situation("gfx90a", (6, 4, 43484))));
    // The row is shown only while graphs are used.
    let is_shown = |situation: &Situation| known(situation).any(|row| row.symptom == Symptom::WrongResult);
    assert!(!is_shown(&forced));
    forced.graphs = true;
    assert!(is_shown(&forced));
    assert_eq!(graphs(&Situation::default(), Graphs::Auto), Graphs::Auto, "no version is known");
}

/// HIP 5.2.3 and 6.4.3 answer alike to code of a newer format and to code for which no memory is left. Where other code of
/// this library was loaded, it is no matter of the format.
#[test]
fn code_that_is_refused_for_want_of_memory() {
    let refused = |code, name: &str| Error::Driver {
        backend: "hip:0".into(),
        phase: Phase::Compile,
        node: Some("embedding".into()),
        call: Call::LoadModule.name(),
        code,
        name: name.into(),
    };
    let untried = situation("gfx906", (5, 2, 21153));
    let format = text_for(&untried, &refused(303, "hipErrorSharedObjectInitFailed")).unwrap();
    assert!(format.contains("loads code objects of versions up to 4"), "{format}");
    for (hip, code) in [((5, 2, 21153), 303), ((6, 4, 43484), 209)] {
        let works = Situation { code_works: true, ..situation("gfx906", hip) };
        let text = text_for(&works, &refused(code, "")).unwrap();
        assert!(text.contains("if no memory is left for code") && !text.contains("versions up to"), "{text}");
        assert_eq!(text_for(&works, &refused(1, "hipErrorInvalidValue")), None);
    }
}

#[test]
fn circumstances() {
    let mut apu = Situation { dma_copies: true, ..situation("gfx90c", (6, 0, 0)) };
    assert_eq!(sources(&apu, &timeout(Phase::Upload)), ["ROCm issue 2781"]);
    apu.environment = Environment::new([("HSA_ENABLE_SDMA".into(), "0".into())]);
    assert!(sources(&apu, &timeout(Phase::Upload)).is_empty());
    apu.environment = Environment::default();
    apu.hip = Some((6, 1, 40091));
    assert!(sources(&apu, &timeout(Phase::Upload)).is_empty());
    let halo = Situation { dma_copies: true, ..situation("gfx1151", (7, 2, 53211)) };
    let modern = KernelFacts { release: Some((7, 0)), ..KernelFacts::default() };
    let halo = Situation { kernel: modern, ..halo };
    assert_eq!(sources(&halo, &timeout(Phase::Upload)), ["ROCm issues 6182, 6582"]);
    assert!(sources(&Situation { dma_copies: false, ..halo }, &timeout(Phase::Upload)).is_empty());
    let mut s = situation("gfx906", (6, 2, 41133));
    assert!(sources(&s, &timeout(Phase::Compute)).is_empty());
    s.environment = Environment::new([("AMD_SERIALIZE_KERNEL".into(), "3".into())]);
    assert_eq!(sources(&s, &timeout(Phase::Compute)), ["ROCm 6.2.1 release notes"]);
    s.hip = Some((6, 2, 41134));
    assert!(sources(&s, &timeout(Phase::Compute)).is_empty());
    s.chip = Some("gfx90c".into());
    let fault = Error::Driver {
        backend: "hip:0".into(),
        phase: Phase::Compute,
        node: None,
        call: "hipEventQuery",
        code: 700,
        name: "hipErrorIllegalAddress".into(),
    };
    let text = text_for(&s, &fault).unwrap();
    assert!(text.contains("HSA_OVERRIDE_GFX_VERSION makes the runtime"), "{text}");
    assert!(text.starts_with("kernels may hang on this processor"), "the chip is a gfx90c: {text}");
    let full = Error::OutOfMemory {
        backend: "hip:0".into(),
        asked: 1,
        free: None,
        heap: "device".into(),
        driver: None,
    };
    assert!(text_for(&s, &full).unwrap().contains("GPU_SINGLE_ALLOC_PERCENT"));
    // What is no larger than 85 % of the memory was refused for another reason.
    let of_size = |asked, memory| {
        let error = Error::OutOfMemory {
            backend: "hip:0".into(),
            asked,
            free: None,
            heap: "device".into(),
            driver: None,
        };
        text_for(&Situation { memory: Some(memory), ..s.clone() }, &error)
    };
    assert!(of_size(86, 100).unwrap().contains("GPU_SINGLE_ALLOC_PERCENT"));
    assert_eq!(of_size(85, 100), None);
    // Rows that require a HIP version do not apply if the version is unknown.
    s.hip = None;
    assert_eq!(text_for(&s, &full), None);
    assert_eq!(known(&situation("gfx1100", (7, 0, 0))).count(), 1, "only what is seen when idle");
    assert_eq!(known(&situation("gfx1100", (7, 1, 25424))).count(), 2, "and small allocations");
    let vulkan = |mesa, kernel| Situation {
        stack: Stack::Vulkan,
        mesa: Some(mesa),
        kernel: KernelFacts { release: Some(kernel), ..KernelFacts::default() },
        ..situation("gfx1201", (7, 0, 0))
    };
    let of = |situation| known(&situation).map(|row| row.source).collect::<Vec<_>>();
    assert_eq!(of(vulkan((25, 3, 1), (6, 18))), ["Mesa 25.3.2 release notes"]);
    assert_eq!(of(vulkan((25, 3, 2), (7, 0))), ["llama.cpp issues 25664, 21724"]);
    let unsaved = KernelFacts { cwsr: Some(false), ..KernelFacts::default() };
    let apu = Situation { kernel: unsaved, ..situation("gfx90c", (6, 1, 1)) };
    assert!(of(apu).contains(&"amd-vega-rocm-vulkan-llm-toolkit"));
    assert_eq!(text_for(&situation("sm_90", (0, 0, 0)), &timeout(Phase::Compute)), None);
    assert!(
        text_for(&situation("gfx1100", (7, 0, 0)), &timeout(Phase::OpenDevice)).unwrap().contains("dmesg")
    );
}
