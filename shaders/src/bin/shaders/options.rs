//! Command-line options.

use std::path::PathBuf;

/// Text of `--help`.
pub(crate) const HELP: &str = "\
Compiles the GLSL sources of the shader table to the committed SPIR-V: the variants whose inputs changed.

Usage: shaders [OPTIONS]

  --only STEM    only the sources with these stems (repeatable, or separated by commas)
  --force        compile variants that are up to date too
  --list         print all variants and whether their SPIR-V is current; compile nothing
  --validate     also run every new module through spirv-val, which must be in PATH
  --root DIR     the directory of the shaders crate
  --help         this text
";

/// Parsed options.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) only: Vec<String>,
    pub(crate) force: bool,
    pub(crate) list: bool,
    pub(crate) validate: bool,
    pub(crate) root: Option<PathBuf>,
}

/// Parses the arguments; `None` if help is requested.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
            "--root" => options.root = Some(value()?.into()),
            "--force" => options.force = true,
            "--list" => options.list = true,
            "--validate" => options.validate = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(Some(options))
}
