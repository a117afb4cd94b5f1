//! Routes: the user's choice, and verdicts that a device reads when it is opened.

use crate::common;

use backend_hip::Route as HipRoute;
use backend_hip::tuning::CANDIDATES as HIP_CANDIDATES;
use backend_vulkan::Route as VulkanRoute;
use backend_vulkan::candidates::CANDIDATES as VULKAN_CANDIDATES;
use common::tiny;
use diptych::ggml::backend::Backend;
use diptych::ggml::routes::cards::{self, CardReport};
use diptych::ggml::routes::{self, Identity, Record, Row, State, Table, Verdict};
use diptych::{DType, Error, OpenOptions, Policy, Routes, SessionOptions};
use std::path::Path;
use std::sync::Arc;

/// An emulated card with matrix units, and the route of their products.
const CARD: &str = "hip-virtual:gfx1100";
const ROUTE: &str = "hip.matrix-products";

fn open(name: &str, options: OpenOptions) -> Option<Arc<dyn Backend>> {
    match diptych::open(name, &options) {
        Ok(backend) => Some(backend),
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {name} is not available: {reason}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Opens a device that reads verdicts in a folder.
fn with_verdicts(name: &str, folder: &Path) -> Option<Arc<dyn Backend>> {
    open(name, OpenOptions::default().with_routes_folder(folder.to_path_buf()))
}

fn used(backend: &dyn Backend) -> Vec<&str> {
    let used = backend.device().routes.iter().filter(|route| route.used);
    used.map(|route| route.name.as_str()).collect()
}

#[test]
fn the_documentation_has_every_route() {
    let text = include_str!("../docs/routes.md");
    let line = |row: &Row| format!("| `{}` | {} | {} |", row.name, row.about, row.plain);
    let vulkan = VulkanRoute::ALL.iter().map(|route| route.row());
    let rows: Vec<String> = vulkan.chain(HipRoute::ALL.iter().map(|route| route.row())).map(line).collect();
    let number = |row: &Row| format!("| `{}` | {} |", routes::number(row.name), row.about);
    let candidates = VULKAN_CANDIDATES.iter().map(|candidate| &candidate.row);
    let candidates = candidates.chain(HIP_CANDIDATES.iter().map(|candidate| &candidate.row));
    let mut numbers: Vec<String> = candidates.map(number).collect();
    numbers.dedup();
    for row in rows.iter().chain(&numbers) {
        assert!(text.contains(row.as_str()), "docs/routes.md lacks\n{row}");
    }
    let listed =
        text.lines().filter(|line| line.starts_with("| `vulkan.") || line.starts_with("| `hip.")).count();
    assert_eq!(listed, rows.len() + numbers.len());
}

/// A value of the tuning table that is verified and fast enough is used, unless the user wants the table's or another one.
#[test]
fn a_measured_number_is_used() {
    let (card, fast, other) = ("hip-virtual:gfx906", "hip.vector-groups=8", "hip.vector-groups=2");
    let dir = tempfile::tempdir().unwrap();
    let options = || OpenOptions::default().with_routes_folder(dir.path().to_path_buf());
    let Some(backend) = open(card, options()) else { return };
    let used = |backend: &dyn Backend| -> Vec<String> {
        let used = backend.device().candidates.iter().filter(|candidate| candidate.used);
        used.map(|candidate| candidate.name.clone()).collect()
    };
    assert_eq!(used(backend.as_ref()), [""; 0]);
    for (gain, expected) in [(1.04, vec![]), (1.2, vec![fast])] {
        let verdict = Verdict { gain: Some(gain), ..Verdict::new(fast, State::Verified, "as tested") };
        Record::put(dir.path(), &backend.device().identity, verdict).unwrap();
        assert_eq!(used(open(card, options()).unwrap().as_ref()), expected);
    }
    for (text, expected) in [
        ("verified", vec![fast]),
        ("verified,untuned", vec![]),
        ("plain", vec![]),
        ("verified,+hip.vector-groups=2", vec![other]),
    ] {
        let routes: Routes = text.parse().unwrap();
        assert_eq!(used(open(card, options().with_routes(routes)).unwrap().as_ref()), expected, "{text}");
    }
    let unknown = OpenOptions::default().with_routes("+hip.vector-groups=3".parse::<Routes>().unwrap());
    let error = diptych::open(card, &unknown).err().expect("no such value");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

#[test]
fn a_choice_of_routes_is_followed() {
    for name in [CARD, "vulkan"] {
        let choice = |text: &str| OpenOptions::default().with_routes(text.parse::<Routes>().unwrap());
        let Some(plain) = open(name, choice("plain")) else { continue };
        assert_eq!(used(plain.as_ref()), [""; 0], "{name}");
        let driver = name.split([':', '-']).next().unwrap();
        let error = diptych::open(name, &choice(&format!("+{driver}.nothing"))).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("expected one of"), "{error}");
    }
    let Some(one) =
        open(CARD, OpenOptions::default().with_routes(Routes::by(Policy::Plain).with(ROUTE, true)))
    else {
        return;
    };
    assert_eq!(used(one.as_ref()), [ROUTE]);
    // A route that needs another one is not used alone.
    let alone = Routes::by(Policy::Plain).with("hip.graph-branches", true);
    assert_eq!(used(open(CARD, OpenOptions::default().with_routes(alone)).unwrap().as_ref()), [""; 0]);
    let all = open(CARD, OpenOptions::default().with_routes(Routes::by(Policy::All))).unwrap();
    let wanted = [ROUTE, "hip.matrix-attention", "hip.graphs", "hip.graph-branches"];
    assert_eq!(used(all.as_ref()), wanted, "the others are of no use to a card with memory of its own");
}

#[test]
fn verdicts_decide_on_their_own_device() {
    let dir = tempfile::tempdir().unwrap();
    let Some(before) = with_verdicts(CARD, dir.path()) else { return };
    let identity = before.device().identity.clone();
    let is_used = || used(with_verdicts(CARD, dir.path()).unwrap().as_ref()).contains(&ROUTE);
    assert!(!used(before.as_ref()).contains(&ROUTE), "AMD's units need a verdict");
    let put = |identity: &Identity, state| {
        Record::put(dir.path(), identity, Verdict::new(ROUTE, state, "a test")).unwrap();
    };
    for (state, expected) in [
        (State::Verified, true),
        (State::Wrong, false),
        (State::Slower, false),
        (State::Begun, false),
        (State::Verified, true),
    ] {
        put(&identity, state);
        assert_eq!(is_used(), expected, "{state:?}");
    }
    // The report for others has the verdict and the card, and nothing of the machine.
    let report = with_verdicts(CARD, dir.path()).unwrap().device().card_report();
    assert_eq!((report.driver.as_str(), report.class.as_str(), report.emulated), ("hip", "AMD_RDNA3", true));
    assert_eq!(report.processor.as_deref(), Some("gfx1100"));
    assert_eq!(report.verdicts, [Verdict::new(ROUTE, State::Verified, "a test")]);
    let file = dir.path().join("card.json");
    cards::write(&file, &[report.clone(), report.clone().with_verdicts([])]).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(serde_json::from_str::<Vec<CardReport>>(&text).unwrap(), std::slice::from_ref(&report));
    let own = before.device().uuid.iter().chain(identity.0.iter().find(|(n, _)| n == "PCI").map(|(_, v)| v));
    for value in own.filter(|value| !value.is_empty()) {
        assert!(!text.contains(value.as_str()), "{value}");
    }
    let nothing = cards::write(&file, &[report.with_verdicts([])]).unwrap_err();
    assert!(nothing.to_string().contains("run qualify first"), "{nothing}");
    // The verdict of another driver or kernel is in another file.
    std::fs::remove_file(dir.path().join(identity.file_name())).unwrap();
    let mut other = identity.clone();
    other.0.iter_mut().for_each(|(_, value)| value.push('x'));
    put(&other, State::Verified);
    assert!(!is_used());
    // A torn file is ignored, and the next verdict replaces it.
    put(&identity, State::Verified);
    let path = dir.path().join(identity.file_name());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(!is_used());
    put(&identity, State::Verified);
    assert!(is_used());
}

/// With verified units a model computes on them without a switch, and both ways agree.
#[test]
fn a_model_uses_what_was_verified() {
    let dir = tempfile::tempdir().unwrap();
    let Some(before) = with_verdicts(CARD, dir.path()) else { return };
    let logits = |backend: Arc<dyn Backend>| {
        let model = common::model(&tiny("llama", DType::F16), &backend);
        let mut session = model.session(&SessionOptions::default()).unwrap();
        let tokens: Vec<u32> = (0..70).map(|i| i % 90 + 1).collect();
        session.prefill(&tokens).unwrap()
    };
    let plain = logits(before.clone());
    let identity = &before.device().identity;
    Record::put(dir.path(), identity, Verdict::new(ROUTE, State::Verified, "a test")).unwrap();
    let fast = logits(with_verdicts(CARD, dir.path()).unwrap());
    let distance = diptych::ggml::metrics::distance(&fast, &plain);
    assert!(distance.nmse > 0.0 && distance.nmse < 1e-5, "{distance:?}");
}
