//! The program `qualify` with faults planted in one route of the device: the checks must find them.
//!
//! `PLANTED_ROUTE=hip.matrix-products PLANTED_FAULT=zeros cargo run -p diptych-checks --example routes -- FOLDER BACKEND`
//!
//! Prints the qualification as JSON, then the uses of the routes of the backend opened afterwards.

mod backend;

use backend::{FAULTS, Faulty};
use diptych::compare::child_entry_with;
use diptych::ggml::backend::Backend;
use diptych::qualify::{QualifyOptions, qualify};
use diptych::{OpenOptions, Result, program};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Variables that name the route with the fault, and the fault.
const ROUTE: &str = "PLANTED_ROUTE";
const FAULT: &str = "PLANTED_FAULT";

/// Plants the fault in a device that uses the route.
fn replace(_: &str, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let (Ok(route), Ok(name)) = (std::env::var(ROUTE), std::env::var(FAULT)) else { return backend };
    let uses = backend.device().routes.iter().any(|of_device| of_device.used && of_device.name == route);
    match FAULTS.iter().find(|fault| fault.name == name) {
        Some(fault) if uses => Arc::new(Faulty::new(backend, fault)),
        _ => backend,
    }
}

fn run(folder: &Path, name: &str) -> Result<()> {
    let only = std::env::var(ROUTE).map_or_else(|_| Vec::new(), |route| vec![route]);
    let options = QualifyOptions::default()
        .with_folder(folder.to_path_buf())
        .with_limit(Duration::from_secs(60))
        .with_timeout(Duration::from_secs(5))
        .with_only(only);
    let result = qualify(name, &options)?;
    let backend = diptych::open(name, &OpenOptions::default().with_routes_folder(folder.to_path_buf()))?;
    let report = serde_json::json!({
        "checked": result.checked, "verdicts": result.verdicts, "note": result.note,
        "routes": backend.device().routes,
    });
    program::print(format!("{report:#}\n"))
}

fn main() -> ExitCode {
    if let Some(status) = child_entry_with(&replace) {
        return status;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, backend] = &args[..] else {
        eprintln!("usage: routes FOLDER BACKEND");
        return ExitCode::from(2);
    };
    program::run(|| run(Path::new(folder), backend))
}
