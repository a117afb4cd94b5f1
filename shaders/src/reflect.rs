//! Reflection of the interface of a SPIR-V module: push constants, buffers, specialisation constants, local
//! size, workgroup-shared memory, capabilities. Works on any compute module and needs neither compiler nor
//! driver.

use std::collections::BTreeMap;

mod capability;
mod group_counts;
mod parse;

pub use capability::capability_name;
use parse::{Module, decoration, storage};

/// SPIR-V's storage class of storage buffers.
pub const STORAGE_BUFFER: u32 = storage::STORAGE_BUFFER;

/// SPIR-V's decoration of memory that may alias other memory.
pub const DECORATION_ALIASED: u32 = decoration::ALIASED;

/// The error for a module that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflectError {
    /// The words do not start with a SPIR-V header.
    #[error("not a SPIR-V module")]
    Header,
    /// An instruction is too short for its operands or reaches past the end.
    #[error("SPIR-V instruction {opcode} at word {word} is cut short")]
    Instruction {
        /// Opcode of the instruction.
        opcode: u16,
        /// Index of its first word.
        word: usize,
    },
    /// The module does not have exactly one compute entry point.
    #[error("a SPIR-V module with {0} compute entry points; one is expected")]
    EntryPoints(usize),
    /// A type used by the interface is missing, or has no definite size or layout.
    #[error("SPIR-V: {what} (id {id}) has no definite layout")]
    Layout {
        /// Description of the object whose layout failed.
        what: &'static str,
        /// Result ID of the type or variable.
        id: u32,
    },
}

/// The interface of a compute module.
#[derive(Clone, Debug)]
pub struct Interface {
    /// SPIR-V version: major, minor.
    pub version: (u8, u8),
    /// Name of the entry point.
    pub entry_point: String,
    /// Work-group size in x, y, z.
    pub local_size: [Dimension; 3],
    /// The push-constant block, if the module uses one.
    pub push_constants: Option<Block>,
    /// Storage buffers that the module uses, sorted by set and binding. Several variables at one binding
    /// (views with different element types) are one buffer.
    pub buffers: Vec<StorageBuffer>,
    /// Variables of other kinds that need a descriptor (uniform buffers, images, samplers): names, or IDs
    /// where there is no name.
    pub other_resources: Vec<String>,
    /// Specialisation constants by ID.
    pub spec_constants: BTreeMap<u32, SpecConstant>,
    /// Capabilities that the module declares; see [`capability_name`].
    pub capabilities: Vec<u32>,
    /// SPIR-V extensions that the module declares.
    pub extensions: Vec<String>,
    /// True for each axis on which the module reads the number of work-groups (`gl_NumWorkGroups`). A grid
    /// may be split along the other axes.
    pub reads_group_counts: [bool; 3],
    module: Module,
}

/// Work-group size in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Value without specialisation.
    pub default: u32,
    /// ID of the specialisation constant that sets it.
    pub spec_id: Option<u32>,
}

/// A block of memory with explicit offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Name of the block's type; empty if the module has none.
    pub name: String,
    /// Bytes up to the end of the last member.
    pub size: u32,
    /// Members in the order of declaration.
    pub members: Vec<Member>,
}

/// A member of a [`Block`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name; empty if the module has none.
    pub name: String,
    /// Byte offset from the start of the block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Type, if it is a scalar.
    pub scalar: Option<Scalar>,
}

/// Type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A boolean.
    Bool,
    /// An unsigned integer of this many bits.
    Uint(u32),
    /// A signed integer of this many bits.
    Int(u32),
    /// A floating-point type of this many bits.
    Float(u32),
}

/// A storage buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageBuffer {
    /// Descriptor set.
    pub set: u32,
    /// Binding in the set.
    pub binding: u32,
    /// Number of buffers: 1, or the length of an array of buffers.
    pub count: u32,
    /// Name of the first variable at this binding: its own, or else its block's; empty if the module has
    /// neither.
    pub name: String,
    /// True if every variable at this binding is declared `readonly`.
    pub read_only: bool,
    /// True if every variable at this binding is declared `writeonly`.
    pub write_only: bool,
    /// True if every variable at this binding is declared to alias, and none is declared not to. The host may
    /// then bind memory that overlaps that of another binding.
    pub aliased: bool,
}

/// A specialisation constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecConstant {
    /// Name; empty if the module has none.
    pub name: String,
    /// Type of the constant.
    pub scalar: Scalar,
    /// Bits of the default value, zero-extended.
    pub default: u64,
}

/// Reads the interface of a module with one compute entry point.
///
/// # Errors
/// [`ReflectError`] if the module is damaged, has no or several entry points, or its push-constant block has
/// no layout.
pub fn reflect(words: &[u32]) -> Result<Interface, ReflectError> {
    let module = Module::parse(words)?;
    let entry_point = match module.entry_points.as_slice() {
        [(_, name)] => name.clone(),
        other => return Err(ReflectError::EntryPoints(other.len())),
    };
    let mut buffers: BTreeMap<(u32, u32), StorageBuffer> = BTreeMap::new();
    let mut push_constants = None;
    let mut other_resources = Vec::new();
    for variable in &module.variables {
        match variable.storage {
            storage::PUSH_CONSTANT => {
                let block = module.pointee(variable.pointer);
                push_constants = Some(
                    block
                        .and_then(|id| module.block(id))
                        .ok_or(ReflectError::Layout { what: "the push-constant block", id: variable.id })?,
                );
            }
            storage::STORAGE_BUFFER => {
                let buffer = module.storage_buffer(variable);
                buffers
                    .entry((buffer.set, buffer.binding))
                    .and_modify(|known| {
                        known.read_only &= buffer.read_only;
                        known.write_only &= buffer.write_only;
                        known.aliased &= buffer.aliased;
                    })
                    .or_insert(buffer);
            }
            storage::UNIFORM_CONSTANT | storage::UNIFORM => {
                let name = module.name(variable.id);
                other_resources.push(if name.is_empty() { format!("%{}", variable.id) } else { name });
            }
            _ => {}
        }
    }
    Ok(Interface {
        version: module.version,
        entry_point,
        local_size: module.local_size(),
        push_constants,
        buffers: buffers.into_values().collect(),
        other_resources,
        spec_constants: module.spec_constants(),
        capabilities: module.capabilities.clone(),
        extensions: module.extensions.clone(),
        reads_group_counts: group_counts::components_read(&module, words),
        module,
    })
}

impl Interface {
    /// Returns the work-group size under a specialisation: pairs of constant ID and value bits.
    pub fn local_size(&self, specialization: &[(u32, u32)]) -> [u32; 3] {
        self.local_size.map(|dimension| {
            let specialized = specialization.iter().find(|(id, _)| Some(*id) == dimension.spec_id);
            specialized.map_or(dimension.default, |(_, value)| *value)
        })
    }

    /// Returns the bytes of workgroup-shared memory under a specialisation: pairs of constant ID and value
    /// bits.
    ///
    /// Scalars, vectors and arrays are laid out at their natural alignment (a vector of three like a vector
    /// of four), as in Mesa; the driver may need slightly more.
    ///
    /// # Errors
    /// [`ReflectError::Layout`] if a size is not a constant expression over the specialisation constants.
    pub fn shared_bytes(&self, specialization: &[(u32, u32)]) -> Result<u64, ReflectError> {
        let mut total = 0u64;
        // With an explicit layout, variables are blocks that all begin at the start of the memory.
        let views = self.has_capability("WorkgroupMemoryExplicitLayoutKHR");
        for variable in self.module.variables.iter().filter(|v| v.storage == storage::WORKGROUP) {
            let layout = self.module.pointee(variable.pointer);
            let layout = layout.and_then(|id| self.module.natural_layout(id, specialization));
            total = layout
                .and_then(|(size, align)| match views {
                    true => Some(total.max(size)),
                    false => total.checked_next_multiple_of(align)?.checked_add(size),
                })
                .ok_or(ReflectError::Layout { what: "a shared variable", id: variable.id })?;
        }
        Ok(total)
    }

    /// Returns true if the module declares this capability.
    pub fn has_capability(&self, name: &str) -> bool {
        self.capabilities.iter().any(|value| capability_name(*value) == Some(name))
    }
}

/// Maximum bytes of a shader's push-constant block. Vulkan guarantees 128 bytes and every driver that Diptych
/// is tested with has 256, so a block of more than 128 bytes requires a check of `maxPushConstantsSize`.
pub const MAX_PUSH_CONSTANTS: u32 = 256;

/// Returns the violations of this crate's interface rules; empty for a valid module.
pub fn check_conventions(interface: &Interface) -> Vec<String> {
    let mut broken = Vec::new();
    if interface.entry_point != "main" {
        broken.push(format!("the entry point is {}, not main", interface.entry_point));
    }
    if interface.local_size[0].spec_id != Some(0) {
        broken.push("local_size_x is not specialisation constant 0 (local_size_x_id = 0)".to_owned());
    }
    for (expected, buffer) in interface.buffers.iter().enumerate() {
        if buffer.set != 0 || buffer.binding as usize != expected {
            broken.push(format!(
                "buffer {:?} is at set {}, binding {}; expected set 0, binding {expected} (all bindings from 0 on must \
                 be used)",
                buffer.name, buffer.set, buffer.binding
            ));
            break;
        }
    }
    for buffer in interface.buffers.iter().filter(|buffer| buffer.count == 0) {
        broken.push(format!("buffer {:?} is an array whose length is no constant", buffer.name));
    }
    for buffer in interface.buffers.iter().filter(|buffer| !buffer.aliased) {
        broken.push(format!("buffer {:?} is not declared to alias (Aliased, and no Restrict)", buffer.name));
    }
    for name in &interface.other_resources {
        broken.push(format!("{name} is neither a storage buffer nor a push constant"));
    }
    if let Some(block) = &interface.push_constants {
        let mut end = 0;
        for member in &block.members {
            let word = matches!(member.scalar, Some(Scalar::Uint(32) | Scalar::Int(32) | Scalar::Float(32)));
            if !word || member.offset != end {
                broken.push(format!(
                    "push constant {:?} at byte {} is not a packed uint, int or float (expected at byte {end})",
                    member.name, member.offset
                ));
                break;
            }
            end = member.offset + member.size;
        }
        if block.size > MAX_PUSH_CONSTANTS {
            broken.push(format!("{} bytes of push constants; {MAX_PUSH_CONSTANTS} are allowed", block.size));
        }
    }
    broken
}
