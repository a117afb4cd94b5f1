//! Sources of the shader table, and the expansion of their axes into variants.

/// A preprocessor definition: name and value.
pub type Define = (&'static str, &'static str);

/// An axis along which a shader has several forms: each variant has exactly one choice of each axis.
pub type Axis = &'static [Choice];

/// The environment that a module is compiled for. Ordered: a variant gets the highest one that any of its
/// parts requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Vulkan 1.2 and SPIR-V 1.5, supported by every device that Diptych accepts.
    #[default]
    Vulkan12,
    /// Vulkan 1.3 and SPIR-V 1.6. It allows a varying subgroup size by default, so a shader that relies on
    /// the size has to require it with subgroup size control.
    Vulkan13,
}

impl Target {
    /// Returns the name in the manifest, which is also the argument of `spirv-val --target-env`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vulkan12 => "vulkan1.2",
            Self::Vulkan13 => "vulkan1.3",
        }
    }

    /// Returns the major and minor number of the SPIR-V version.
    pub const fn spirv_version(self) -> (u8, u8) {
        match self {
            Self::Vulkan12 => (1, 5),
            Self::Vulkan13 => (1, 6),
        }
    }
}

/// The setting of the compiler's optimiser. Ordered: a variant gets the highest one that any of its parts
/// requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Optimize {
    /// The optimiser's passes for speed.
    #[default]
    Performance,
    /// No passes, for extensions that the optimiser handles incorrectly.
    Off,
}

impl Optimize {
    /// Returns the name in the manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Off => "off",
        }
    }
}

/// One form along an [`Axis`].
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    name: &'static str,
    defines: &'static [Define],
    target: Target,
    optimize: Optimize,
}

impl Choice {
    /// The absence of a flag: no name, no definition.
    pub const NONE: Self = Self::new("", &[]);

    /// Creates a choice. Its name becomes a part of the variant's name, and its definitions are added to the
    /// variant's.
    pub const fn new(name: &'static str, defines: &'static [Define]) -> Self {
        Self { name, defines, target: Target::Vulkan12, optimize: Optimize::Performance }
    }

    /// Compiles variants with this choice for at least this environment.
    pub const fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Compiles variants with this choice with at least this optimiser setting.
    pub const fn optimize(mut self, optimize: Optimize) -> Self {
        self.optimize = optimize;
        self
    }
}

/// One GLSL source: an entry of [`SOURCES`](crate::variants::SOURCES).
///
/// Its text is `src/<family>/<stem>.comp`; its modules are in `spirv/<family>/<stem>.spv.bin`. Stems are
/// unique in the whole table.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    family: &'static str,
    stem: &'static str,
    axes: &'static [Axis],
    target: Target,
    optimize: Optimize,
    filter: Option<fn(&[&str]) -> bool>,
}

impl Source {
    /// Creates a source with one variant, `default`, that has no definitions.
    pub const fn new(family: &'static str, stem: &'static str) -> Self {
        Self {
            family,
            stem,
            axes: &[],
            target: Target::Vulkan12,
            optimize: Optimize::Performance,
            filter: None,
        }
    }

    /// Adds one variant for each combination of choices.
    pub const fn axes(mut self, axes: &'static [Axis]) -> Self {
        self.axes = axes;
        self
    }

    /// Compiles all variants for at least this environment.
    pub const fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Compiles all variants with at least this optimiser setting.
    pub const fn optimize(mut self, optimize: Optimize) -> Self {
        self.optimize = optimize;
        self
    }

    /// Filters combinations: `filter` gets the name of the choice on each axis (empty for [`Choice::NONE`]).
    pub const fn only(mut self, filter: fn(&[&str]) -> bool) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Returns the family of operations, which is the name of the directory.
    pub const fn family(&self) -> &'static str {
        self.family
    }

    /// Returns the name of the shader.
    pub const fn stem(&self) -> &'static str {
        self.stem
    }

    /// Returns `family/stem`, the key in the manifest.
    pub fn key(&self) -> String {
        format!("{}/{}", self.family, self.stem)
    }

    /// Returns the path of the GLSL file, relative to the crate.
    pub fn path(&self) -> String {
        format!("src/{}/{}.comp", self.family, self.stem)
    }

    /// Returns the path of the file with the SPIR-V of all variants, relative to the crate.
    pub fn container_path(&self) -> String {
        format!("spirv/{}/{}.spv.bin", self.family, self.stem)
    }

    /// Returns the variants, in the order of the table: the last axis varies fastest.
    pub fn expand(&self) -> Vec<Variant> {
        let mut combinations: Vec<Vec<&'static Choice>> = vec![Vec::new()];
        for axis in self.axes {
            combinations = combinations
                .iter()
                .flat_map(|head| {
                    axis.iter().map(move |choice| {
                        let mut combination = head.clone();
                        combination.push(choice);
                        combination
                    })
                })
                .collect();
        }
        combinations
            .into_iter()
            .filter(|choices| {
                let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                self.filter.is_none_or(|filter| filter(&names))
            })
            .map(|choices| Variant {
                name: variant_name(choices.iter().map(|choice| choice.name)),
                defines: choices.iter().flat_map(|choice| choice.defines).copied().collect(),
                target: choices.iter().map(|choice| choice.target).fold(self.target, Ord::max),
                optimize: choices.iter().map(|choice| choice.optimize).fold(self.optimize, Ord::max),
            })
            .collect()
    }
}

/// One form of a shader: the inputs of the compiler in addition to the source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Names of the choices joined by `_`, or `default` if all are empty.
    pub name: String,
    /// Preprocessor definitions.
    pub defines: Vec<Define>,
    /// Environment to compile for.
    pub target: Target,
    /// Optimiser setting.
    pub optimize: Optimize,
}

/// Returns the name of the variant with these choices, one for each axis: empty names are skipped, the others
/// are joined by `_`.
///
/// ```
/// assert_eq!(shaders::variant_name(["q4_0", "", "subgroup"]), "q4_0_subgroup");
/// assert_eq!(shaders::variant_name([""]), "default");
/// ```
pub fn variant_name<'a>(choices: impl IntoIterator<Item = &'a str>) -> String {
    let parts: Vec<&str> = choices.into_iter().filter(|name| !name.is_empty()).collect();
    if parts.is_empty() { "default".to_owned() } else { parts.join("_") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: Axis =
        &[Choice::new("f32", &[("A_TYPE", "float")]), Choice::new("f16", &[("A_TYPE", "half")])];
    const MATRIX: Axis = &[
        Choice::NONE,
        Choice::new("coopmat", &[("COOPMAT", "1")]).target(Target::Vulkan13).optimize(Optimize::Off),
    ];

    #[test]
    fn axes_expand_into_their_product() {
        let variants = Source::new("test", "test").axes(&[TYPES, MATRIX]).expand();
        let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["f32", "f32_coopmat", "f16", "f16_coopmat"]);
        assert_eq!(variants[3].defines, [("A_TYPE", "half"), ("COOPMAT", "1")]);
        assert_eq!((variants[2].target, variants[2].optimize), (Target::Vulkan12, Optimize::Performance));
        assert_eq!((variants[3].target, variants[3].optimize), (Target::Vulkan13, Optimize::Off));
    }

    #[test]
    fn combinations_can_be_left_out() {
        let filter = |names: &[&str]| names != ["f32", "coopmat"];
        let variants = Source::new("test", "test").axes(&[TYPES, MATRIX]).only(filter).expand();
        assert_eq!(
            variants.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(),
            ["f32", "f16", "f16_coopmat"]
        );
    }

    #[test]
    fn a_source_without_axes_has_one_variant() {
        let variants = Source::new("test", "test").target(Target::Vulkan13).expand();
        assert_eq!(variants.len(), 1);
        assert_eq!(variants[0].name, "default");
        assert_eq!(variants[0].target, Target::Vulkan13);
    }
}
