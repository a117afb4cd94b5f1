//! Writes the code objects that are in the repository: `make kernels`.

#[allow(dead_code)]
#[path = "../build.rs"]
mod script;

use script::compiler::{Compiler, options};
use script::prebuilt;
use script::sources::Sources;
use script::store::{Store, user_cache};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match write() {
        Ok(written) => {
            println!("{written}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles what is not in the user's cache. Returns a sentence about what was written.
fn write() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = Sources::read(&root.join("src"));
    let compiler = Compiler::find().ok_or("there is no clang 19 or later; DIPTYCH_HIP_CLANG names one")?;
    let out = std::env::temp_dir();
    let store = Store::open(user_cache().as_deref(), &out);
    let folder = root.join("objects");
    prebuilt::write(&folder, &compiler.version, &sources, |target, stem| {
        let made_from = (&compiler.version, options(target), sources.needed_by(stem));
        store.get_or_make(&Store::name(&format!("{target}-{stem}"), &made_from), || {
            println!("{stem}.hip for {target}");
            script::compile(&compiler, target, &sources.path(stem), &out)
        })
    })?;
    Ok(format!("code objects of {} in {}", prebuilt::TARGETS.join(", "), folder.display()))
}
