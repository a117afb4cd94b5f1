//! The program `qualify` with faults planted in one route or candidate of the device: the checks must find them.
//!
//! `PLANTED_ROUTE=hip.matrix-products PLANTED_FAULT=zeros cargo run -p diptych-checks --example routes -- FOLDER BACKEND`
//!
//! Prints the qualification as JSON, then the uses of the routes of the backend opened afterwards. With
//! `PLANTED_LATER=1` the fault is not there when the routes are checked, but when a model computes a prompt afterwards;
//! its error is printed, too, and the uses of the routes are those after it. With `PLANTED_WITHOUT=1` it is planted in the
//! devices that do not use the route.

mod backend;

use backend::{FAULTS, Faulty};
use diptych::compare::child_entry_with;
use diptych::ggml::backend::Backend;
use diptych::ggml::gguf::GgufFile;
use diptych::model::ModelFile;
use diptych::qualify::{QualifyOptions, qualify};
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, OpenOptions, Result, SessionOptions, program};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Variables that name the route with the fault, and the fault.
const ROUTE: &str = "PLANTED_ROUTE";
const FAULT: &str = "PLANTED_FAULT";

/// Variable that names other routes, separated by commas, which are checked too.
const ADDITIONAL: &str = "PLANTED_ADDITIONAL";

/// Variable that is set if the fault is planted after the routes were checked.
const LATER: &str = "PLANTED_LATER";

/// Variable that is set if the fault is planted in the devices without the route.
const WITHOUT: &str = "PLANTED_WITHOUT";

/// Plants the fault in a device that uses the route, or in one that does not.
fn replace(_: &str, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let (Ok(route), Ok(name)) = (std::env::var(ROUTE), std::env::var(FAULT)) else { return backend };
    let device = backend.device();
    let mut all = device.routes.iter().chain(&device.candidates);
    let uses = all.any(|of_device| of_device.used && of_device.name == route);
    match FAULTS.iter().find(|fault| fault.name == name) {
        Some(fault) if uses != std::env::var_os(WITHOUT).is_some() => Arc::new(Faulty::new(backend, fault)),
        _ => backend,
    }
}

/// Computes a prompt with the fault in place, and returns the error.
fn prompt(folder: &Path, name: &str) -> Result<Option<Error>> {
    let opened = diptych::open(name, &OpenOptions::default().with_routes_folder(folder.to_path_buf()))?;
    let bytes = synthesize::bytes(&Shape::small("llama").with_type(DType::F16), 1)?;
    let file = ModelFile::from_gguf(GgufFile::from_bytes(bytes)?)?;
    let model = Model::from_file(file, replace(name, opened))?;
    let mut session = model.session(&SessionOptions::default().with_context(256))?;
    Ok(session.prefill(&[1; 130]).err())
}

fn run(folder: &Path, name: &str, later: bool) -> Result<()> {
    let mut only = std::env::var(ROUTE).map_or_else(|_| Vec::new(), |route| vec![route]);
    let additional = std::env::var(ADDITIONAL).unwrap_or_default();
    only.extend(additional.split(',').filter(|name| !name.is_empty()).map(String::from));
    // Only what hangs takes all of the time. An emulated card is slow where other tests run beside it.
    let faults = [FAULT, "DIPTYCH_VIRTUAL_VULKAN_FAULTS"].map(std::env::var);
    let hangs = faults.into_iter().flatten().any(|fault| fault.starts_with("hang"));
    let options = QualifyOptions::default()
        .with_folder(folder.to_path_buf())
        .with_limit(Duration::from_secs(60))
        .with_timeout(Duration::from_secs(if hangs { 5 } else { 30 }))
        .with_only(only);
    let result = qualify(name, &options)?;
    let error = if later { prompt(folder, name)? } else { None };
    let backend = diptych::open(name, &OpenOptions::default().with_routes_folder(folder.to_path_buf()))?;
    let report = serde_json::json!({
        "checked": result.checked, "verdicts": result.verdicts, "note": result.note,
        "routes": backend.device().routes, "candidates": backend.device().candidates, "error": error.map(|error| error.to_string()),
    });
    program::print(format!("{report:#}\n"))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let later = std::env::var_os(LATER).is_some();
    if let Some(status) =
        child_entry_with(&|name, backend| if later { backend } else { replace(name, backend) })
    {
        return status;
    }
    let [folder, backend] = &args[..] else {
        eprintln!("usage: routes FOLDER BACKEND");
        return ExitCode::from(2);
    };
    program::run(|| run(Path::new(folder), backend, later))
}
