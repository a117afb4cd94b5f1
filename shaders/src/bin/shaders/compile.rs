//! Compilation of one variant from GLSL to SPIR-V, with the checks that every module has to pass.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shaderc::{
    CompileOptions, EnvVersion, OptimizationLevel, ResolvedInclude, ShaderKind, SpirvVersion, TargetEnv,
};
use shaders::source::{Inputs, resolve};
use shaders::{Optimize, Source, Target, Variant, reflect};

use crate::rewrite;

/// Prefix of file names in messages, so that they can be opened from the root of the repository.
const PREFIX: &str = "shaders/";

/// The compiler; shared by all threads.
pub(crate) struct Compiler {
    compiler: shaderc::Compiler,
    root: PathBuf,
    validate: bool,
}

impl Compiler {
    pub(crate) fn new(root: &Path, validate: bool) -> Result<Self, String> {
        let compiler = shaderc::Compiler::new().map_err(|error| format!("no GLSL compiler: {error}"))?;
        Ok(Self { compiler, root: root.to_owned(), validate })
    }

    /// Compiles a variant. Errors are messages with file and line where known.
    pub(crate) fn compile(
        &self,
        source: &Source,
        variant: &Variant,
        inputs: &Inputs,
    ) -> Result<Vec<u32>, String> {
        let words = self.glsl_to_spirv(source, variant, inputs)?;
        let words = rewrite::strip(&words)
            .and_then(|words| rewrite::alias(&words))
            .ok_or_else(|| "the compiler's output is damaged".to_owned())?;
        let interface = reflect::reflect(&words).map_err(|error| error.to_string())?;
        let mut broken = reflect::check_conventions(&interface);
        if interface.version != variant.target.spirv_version() {
            broken.push(format!(
                "SPIR-V {:?} instead of {:?}",
                interface.version,
                variant.target.spirv_version()
            ));
        }
        if !broken.is_empty() {
            return Err(format!("{PREFIX}{}: {}", source.path(), broken.join("; ")));
        }
        if self.validate {
            validate(&words, variant.target)?;
        }
        Ok(words)
    }

    fn glsl_to_spirv(&self, source: &Source, variant: &Variant, inputs: &Inputs) -> Result<Vec<u32>, String> {
        let mut options = CompileOptions::new().map_err(|error| error.to_string())?;
        let (environment, spirv) = match variant.target {
            Target::Vulkan12 => (EnvVersion::Vulkan1_2, SpirvVersion::V1_5),
            Target::Vulkan13 => (EnvVersion::Vulkan1_3, SpirvVersion::V1_6),
        };
        options.set_target_env(TargetEnv::Vulkan, environment as u32);
        options.set_target_spirv(spirv);
        options.set_optimization_level(match variant.optimize {
            Optimize::Performance => OptimizationLevel::Performance,
            Optimize::Off => OptimizationLevel::Zero,
        });
        // Without debug information the optimiser removes the names of push constants and buffers; the rest
        // is stripped afterwards.
        options.set_generate_debug_info();
        options.set_warnings_as_errors();
        for (name, value) in &variant.defines {
            options.add_macro_definition(name, Some(value));
        }
        options.set_include_callback(|name, _, including, _| {
            let including = including.strip_prefix(PREFIX).unwrap_or(including);
            let path = resolve(&self.root, including, name).ok_or_else(|| format!("{name} not found"))?;
            // Use the text that was hashed, because the file may have changed since.
            let content =
                inputs.file(&path).ok_or_else(|| format!("{path} was not found before"))?.to_owned();
            Ok(ResolvedInclude { resolved_name: format!("{PREFIX}{path}"), content })
        });
        let artifact = self
            .compiler
            .compile_into_spirv(
                inputs.text(),
                ShaderKind::Compute,
                &format!("{PREFIX}{}", source.path()),
                "main",
                Some(&options),
            )
            .map_err(|error| match error {
                shaderc::Error::CompilationError(_, text) => text,
                other => other.to_string(),
            })?;
        Ok(artifact.as_binary().to_vec())
    }
}

/// Runs `spirv-val`.
fn validate(words: &[u32], target: Target) -> Result<(), String> {
    let run = || -> std::io::Result<(bool, String)> {
        let mut child = Command::new("spirv-val")
            .args(["--target-env", target.name(), "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&bytes)?;
        }
        let output = child.wait_with_output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text))
    };
    match run() {
        Ok((true, _)) => Ok(()),
        Ok((false, text)) => Err(format!("spirv-val: {text}")),
        Err(error) => Err(format!("spirv-val could not be run: {error}")),
    }
}
