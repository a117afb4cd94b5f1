//! Pipeline specifications: shader and constants.

/// The inputs that a pipeline is created from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineSpec {
    /// Stem of the shader's source file.
    pub shader: &'static str,
    /// Variant in the shaders crate's table.
    pub variant: &'static str,
    /// Specialisation constants, IDs from 0; ID 0 is the work-group size.
    pub specialization: Vec<u32>,
    /// Required subgroup size, for shaders that depend on it and devices where it can be chosen.
    pub subgroup: Option<u32>,
}

impl std::fmt::Display for PipelineSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {:?}", self.shader, self.variant, self.specialization)?;
        self.subgroup.map_or(Ok(()), |lanes| write!(f, " by {lanes}"))
    }
}
