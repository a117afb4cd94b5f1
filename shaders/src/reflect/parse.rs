//! The tables of a SPIR-V module, and the sizes and constants derived from them.

use std::collections::{BTreeMap, HashMap};

use super::{Block, Dimension, Member, ReflectError, Scalar, SpecConstant, StorageBuffer};
use crate::SPIRV_MAGIC;

/// SPIR-V storage classes.
pub(super) mod storage {
    pub(in super::super) const UNIFORM_CONSTANT: u32 = 0;
    pub(in super::super) const UNIFORM: u32 = 2;
    pub(in super::super) const WORKGROUP: u32 = 4;
    pub(in super::super) const PUSH_CONSTANT: u32 = 9;
    pub(in super::super) const STORAGE_BUFFER: u32 = 12;
}

/// SPIR-V decorations.
pub(super) mod decoration {
    pub(super) const SPEC_ID: u32 = 1;
    pub(super) const ARRAY_STRIDE: u32 = 6;
    pub(super) const BUILT_IN: u32 = 11;
    pub(super) const RESTRICT: u32 = 19;
    pub(in super::super) const ALIASED: u32 = 20;
    pub(super) const NON_WRITABLE: u32 = 24;
    pub(super) const NON_READABLE: u32 = 25;
    pub(super) const BINDING: u32 = 33;
    pub(super) const DESCRIPTOR_SET: u32 = 34;
    pub(super) const OFFSET: u32 = 35;
}

/// Words of a module's header.
const HEADER: usize = 5;
const OP_FUNCTION: u16 = 54;
const GL_COMPUTE: u32 = 5;
const MODE_LOCAL_SIZE: u32 = 17;
const MODE_LOCAL_SIZE_ID: u32 = 38;
const BUILT_IN_WORKGROUP_SIZE: u32 = 25;

/// Maximum nesting depth. Types and constants of a valid module nest a few levels deep; a damaged module may
/// be cyclic.
const MAX_DEPTH: u32 = 64;

#[derive(Clone, Debug)]
enum Type {
    Scalar(Scalar),
    /// Element type and count, for vectors and for the columns of matrices.
    Vector(u32, u32),
    /// Element type and ID of the length.
    Array(u32, u32),
    RuntimeArray(u32),
    Struct(Vec<u32>),
    /// Pointee type.
    Pointer(u32),
}

#[derive(Clone, Debug)]
enum Constant {
    Value(u64),
    Composite(Vec<u32>),
    Operation(u16, Vec<u32>),
}

/// A module-scope variable.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) id: u32,
    pub(super) pointer: u32,
    pub(super) storage: u32,
}

/// The tables of a module: everything before the first function.
#[derive(Clone, Debug, Default)]
pub(super) struct Module {
    pub(super) version: (u8, u8),
    pub(super) capabilities: Vec<u32>,
    pub(super) extensions: Vec<String>,
    pub(super) entry_points: Vec<(u32, String)>,
    pub(super) variables: Vec<Variable>,
    modes: Vec<(u32, u32, Vec<u32>)>,
    names: HashMap<u32, String>,
    member_names: HashMap<(u32, u32), String>,
    decorations: HashMap<(u32, u32), u32>,
    member_decorations: HashMap<(u32, u32, u32), u32>,
    types: HashMap<u32, Type>,
    constants: HashMap<u32, (u32, Constant)>,
    /// Index of the word at which the functions begin.
    pub(super) functions: usize,
}

/// Iterates over opcodes and operands, up to the end or the first instruction that exceeds `words`.
pub(super) fn instructions(mut words: &[u32]) -> impl Iterator<Item = (u16, &[u32])> {
    std::iter::from_fn(move || {
        let first = *words.first()?;
        let operands = words.get(1..(first >> 16) as usize)?;
        words = &words[1 + operands.len()..];
        Some((first as u16, operands))
    })
}

impl Module {
    /// Parses the tables. Every instruction of the whole module is checked to be within it.
    pub(super) fn parse(words: &[u32]) -> Result<Self, ReflectError> {
        if words.len() < HEADER || words[0] != SPIRV_MAGIC {
            return Err(ReflectError::Header);
        }
        let [_, major, minor, _] = words[1].to_be_bytes();
        let mut module = Self { version: (major, minor), functions: words.len(), ..Self::default() };
        let mut word = HEADER;
        for (opcode, operands) in instructions(&words[HEADER..]) {
            if opcode == OP_FUNCTION {
                module.functions = module.functions.min(word);
            }
            if word < module.functions {
                module.instruction(opcode, operands).ok_or(ReflectError::Instruction { opcode, word })?;
            }
            word += 1 + operands.len();
        }
        match words.get(word) {
            Some(&cut) => Err(ReflectError::Instruction { opcode: cut as u16, word }),
            None => Ok(module),
        }
    }

    /// Adds one instruction to the tables; `None` if it is too short for its operands.
    fn instruction(&mut self, opcode: u16, o: &[u32]) -> Option<()> {
        let at = |index: usize| o.get(index).copied();
        match opcode {
            5 => drop(self.names.insert(at(0)?, string(o.get(1..)?))),
            6 => drop(self.member_names.insert((at(0)?, at(1)?), string(o.get(2..)?))),
            10 => self.extensions.push(string(o)),
            15 if at(0)? == GL_COMPUTE => self.entry_points.push((at(1)?, string(o.get(2..)?))),
            16 | 331 => self.modes.push((at(0)?, at(1)?, o.get(2..)?.to_vec())),
            17 => self.capabilities.push(at(0)?),
            20 => self.add_type(at(0)?, Type::Scalar(Scalar::Bool)),
            21 => {
                let (width, signed) = (at(1)?, at(2)? != 0);
                let scalar = if signed { Scalar::Int(width) } else { Scalar::Uint(width) };
                self.add_type(at(0)?, Type::Scalar(scalar));
            }
            22 => self.add_type(at(0)?, Type::Scalar(Scalar::Float(at(1)?))),
            23 | 24 => self.add_type(at(0)?, Type::Vector(at(1)?, at(2)?)),
            28 => self.add_type(at(0)?, Type::Array(at(1)?, at(2)?)),
            29 => self.add_type(at(0)?, Type::RuntimeArray(at(1)?)),
            30 => self.add_type(at(0)?, Type::Struct(o.get(1..)?.to_vec())),
            32 => self.add_type(at(0)?, Type::Pointer(at(2)?)),
            41 | 48 => self.add_constant(at(0)?, at(1)?, Constant::Value(1)),
            42 | 49 => self.add_constant(at(0)?, at(1)?, Constant::Value(0)),
            43 | 50 => {
                let value = u64::from(at(2)?) | u64::from(at(3).unwrap_or(0)) << 32;
                self.add_constant(at(0)?, at(1)?, Constant::Value(value));
            }
            44 | 51 => self.add_constant(at(0)?, at(1)?, Constant::Composite(o.get(2..)?.to_vec())),
            52 => {
                let operation = Constant::Operation(at(2)? as u16, o.get(3..)?.to_vec());
                self.add_constant(at(0)?, at(1)?, operation);
            }
            59 => self.variables.push(Variable { id: at(1)?, pointer: at(0)?, storage: at(2)? }),
            71 => drop(self.decorations.insert((at(0)?, at(1)?), at(2).unwrap_or(0))),
            72 => drop(self.member_decorations.insert((at(0)?, at(1)?, at(2)?), at(3).unwrap_or(0))),
            _ => {}
        }
        Some(())
    }

    fn add_type(&mut self, id: u32, type_: Type) {
        self.types.insert(id, type_);
    }

    fn add_constant(&mut self, type_: u32, id: u32, constant: Constant) {
        self.constants.insert(id, (type_, constant));
    }

    fn decoration(&self, id: u32, decoration: u32) -> Option<u32> {
        self.decorations.get(&(id, decoration)).copied()
    }

    fn member_decoration(&self, id: u32, member: u32, decoration: u32) -> Option<u32> {
        self.member_decorations.get(&(id, member, decoration)).copied()
    }

    fn scalar(&self, type_: u32) -> Option<Scalar> {
        match self.types.get(&type_)? {
            Type::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    /// Returns the ID that is decorated as a built-in.
    pub(super) fn built_in(&self, built_in: u32) -> Option<u32> {
        let decorated = |(&(id, kind), &value): (&(u32, u32), &u32)| {
            (kind == decoration::BUILT_IN && value == built_in).then_some(id)
        };
        self.decorations.iter().find_map(decorated)
    }

    /// Returns the value of a constant that cannot be specialised.
    pub(super) fn constant(&self, id: u32) -> Option<u64> {
        match self.constants.get(&id)? {
            (_, Constant::Value(value)) if self.decoration(id, decoration::SPEC_ID).is_none() => Some(*value),
            _ => None,
        }
    }

    /// Returns the name of an ID; empty if the module has none.
    pub(super) fn name(&self, id: u32) -> String {
        self.names.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the pointee type of a pointer type.
    pub(super) fn pointee(&self, pointer: u32) -> Option<u32> {
        match self.types.get(&pointer)? {
            Type::Pointer(pointee) => Some(*pointee),
            _ => None,
        }
    }

    /// Returns the layout of a struct with explicit offsets.
    pub(super) fn block(&self, id: u32) -> Option<Block> {
        let Type::Struct(types) = self.types.get(&id)? else { return None };
        let mut members = Vec::with_capacity(types.len());
        for (member, type_) in (0u32..).zip(types) {
            members.push(Member {
                name: self.member_names.get(&(id, member)).cloned().unwrap_or_default(),
                offset: self.member_decoration(id, member, decoration::OFFSET)?,
                size: u32::try_from(self.explicit_size(*type_, 0)?).ok()?,
                scalar: self.scalar(*type_),
            });
        }
        let end = |member: &Member| member.offset.checked_add(member.size);
        let size = members.iter().map(end).try_fold(0, |size, end| Some(size.max(end?)))?;
        Some(Block { name: self.name(id), size, members })
    }

    /// Returns the bytes of a type inside a block, from its offsets and strides.
    fn explicit_size(&self, id: u32, depth: u32) -> Option<u64> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.types.get(&id)? {
            Type::Scalar(scalar) => Some(scalar_bytes(*scalar)),
            Type::Vector(element, count) => {
                self.explicit_size(*element, depth + 1)?.checked_mul(u64::from(*count))
            }
            Type::Array(_, length) => {
                let stride = u64::from(self.decoration(id, decoration::ARRAY_STRIDE)?);
                stride.checked_mul(self.value(*length, &[], 0)?.0)
            }
            Type::Struct(types) => (0u32..).zip(types).try_fold(0u64, |size, (member, type_)| {
                let offset = self.member_decoration(id, member, decoration::OFFSET)?;
                Some(size.max(u64::from(offset).checked_add(self.explicit_size(*type_, depth + 1)?)?))
            }),
            Type::RuntimeArray(_) | Type::Pointer(_) => None,
        }
    }

    /// Returns the bytes and alignment of a type without explicit layout.
    pub(super) fn natural_layout(&self, id: u32, spec: &[(u32, u32)]) -> Option<(u64, u64)> {
        self.natural(id, spec, 0)
    }

    fn natural(&self, id: u32, spec: &[(u32, u32)], depth: u32) -> Option<(u64, u64)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (size, align) = match self.types.get(&id)? {
            Type::Scalar(scalar) => {
                let bytes = scalar_bytes(*scalar);
                (bytes, bytes)
            }
            Type::Vector(element, count) => {
                let (size, align) = self.natural(*element, spec, depth + 1)?;
                let components = u64::from(count.checked_next_power_of_two()?);
                (size.checked_mul(u64::from(*count))?, align.checked_mul(components)?)
            }
            Type::Array(element, length) => {
                let (size, align) = self.natural(*element, spec, depth + 1)?;
                let length = self.value(*length, spec, 0)?.0;
                (size.checked_next_multiple_of(align)?.checked_mul(length)?, align)
            }
            Type::Struct(types) => types.iter().try_fold((0u64, 1u64), |(end, most), type_| {
                let (size, align) = self.natural(*type_, spec, depth + 1)?;
                Some((end.checked_next_multiple_of(align)?.checked_add(size)?, most.max(align)))
            })?,
            Type::RuntimeArray(_) | Type::Pointer(_) => return None,
        };
        (align > 0).then_some((size, align))
    }

    /// Returns the properties of a storage-buffer variable.
    pub(super) fn storage_buffer(&self, variable: &Variable) -> StorageBuffer {
        let (mut block, mut count) = (self.pointee(variable.pointer).unwrap_or(0), 1);
        match self.types.get(&block) {
            Some(Type::Array(element, length)) => {
                count = self.constant(*length).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                block = *element;
            }
            Some(Type::RuntimeArray(element)) => (block, count) = (*element, 0),
            _ => {}
        }
        let members = match self.types.get(&block) {
            Some(Type::Struct(types)) => types.len() as u32,
            _ => 0,
        };
        let member = |kind| move |member| self.member_decoration(block, member, kind).is_some();
        let access = |kind| {
            self.decoration(variable.id, kind).is_some() || (members > 0 && (0..members).all(member(kind)))
        };
        let restricted = self.decoration(variable.id, decoration::RESTRICT).is_some()
            || (0..members).any(member(decoration::RESTRICT));
        let name = self.name(variable.id);
        StorageBuffer {
            set: self.decoration(variable.id, decoration::DESCRIPTOR_SET).unwrap_or(0),
            binding: self.decoration(variable.id, decoration::BINDING).unwrap_or(0),
            count,
            name: if name.is_empty() { self.name(block) } else { name },
            read_only: access(decoration::NON_WRITABLE),
            write_only: access(decoration::NON_READABLE),
            aliased: self.decoration(variable.id, decoration::ALIASED).is_some() && !restricted,
        }
    }

    /// Returns the specialisation constants by ID.
    pub(super) fn spec_constants(&self) -> BTreeMap<u32, SpecConstant> {
        let mut constants = BTreeMap::new();
        for (&id, (type_, constant)) in &self.constants {
            let (Constant::Value(default), Some(spec_id), Some(scalar)) =
                (constant, self.decoration(id, decoration::SPEC_ID), self.scalar(*type_))
            else {
                continue;
            };
            // Two constants may share an ID; the one with a name is preferred.
            let name = self.name(id);
            let known: &mut SpecConstant = constants.entry(spec_id).or_insert(SpecConstant {
                name: String::new(),
                scalar,
                default: *default,
            });
            if known.name.is_empty() {
                known.name = name;
            }
        }
        constants
    }

    /// Returns the size of a work-group: the `WorkgroupSize` constant if there is one, or else the execution
    /// mode.
    pub(super) fn local_size(&self) -> [Dimension; 3] {
        let dimension = |id: u32| Dimension {
            default: self.value(id, &[], 0).map_or(1, |(value, _)| value as u32),
            spec_id: self.decoration(id, decoration::SPEC_ID),
        };
        let built_in = self.constants.iter().find_map(|(id, (_, constant))| match constant {
            Constant::Composite(parts)
                if parts.len() == 3
                    && self.decoration(*id, decoration::BUILT_IN) == Some(BUILT_IN_WORKGROUP_SIZE) =>
            {
                Some([parts[0], parts[1], parts[2]].map(dimension))
            }
            _ => None,
        });
        let entry = self.entry_points.first().map(|(id, _)| *id);
        let mode = || {
            self.modes.iter().filter(|(of, ..)| Some(*of) == entry).find_map(|(_, mode, sizes)| {
                let sizes: [u32; 3] = sizes.get(..3)?.try_into().ok()?;
                match *mode {
                    MODE_LOCAL_SIZE => Some(sizes.map(|default| Dimension { default, spec_id: None })),
                    MODE_LOCAL_SIZE_ID => Some(sizes.map(dimension)),
                    _ => None,
                }
            })
        };
        built_in.or_else(mode).unwrap_or([Dimension { default: 1, spec_id: None }; 3])
    }

    /// Returns the bits of an integer or boolean constant under a specialisation, and its type.
    fn value(&self, id: u32, spec: &[(u32, u32)], depth: u32) -> Option<(u64, Scalar)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (type_, constant) = self.constants.get(&id)?;
        let scalar = self.scalar(*type_)?;
        match constant {
            Constant::Value(default) => {
                let spec_id = self.decoration(id, decoration::SPEC_ID);
                let specialized = spec.iter().find(|(id, _)| Some(*id) == spec_id);
                Some((specialized.map_or(*default, |(_, value)| u64::from(*value)), scalar))
            }
            Constant::Composite(_) => None,
            // CompositeExtract, for example of one component of gl_WorkGroupSize.
            Constant::Operation(81, operands) => {
                let [composite, index] = operands.as_slice() else { return None };
                let (_, Constant::Composite(parts)) = self.constants.get(composite)? else { return None };
                self.value(*parts.get(*index as usize)?, spec, depth + 1)
            }
            Constant::Operation(opcode, operands) => {
                let operand = |index: usize| self.value(*operands.get(index)?, spec, depth + 1);
                let bits = evaluate(*opcode, operand)?;
                Some((truncate(bits, scalar), scalar))
            }
        }
    }
}

/// Evaluates an integer or boolean operation. The result is not yet truncated to the width of its type.
fn evaluate(opcode: u16, operand: impl Fn(usize) -> Option<(u64, Scalar)>) -> Option<u64> {
    let unsigned = |index| operand(index).map(|(bits, _)| bits);
    let signed = |index| operand(index).map(|(bits, scalar)| sign_extend(bits, scalar));
    let (a, b) = (|| unsigned(0), || unsigned(1));
    let (sa, sb) = (|| signed(0), || signed(1));
    Some(match opcode {
        113 => a()?,
        114 => sa()? as u64,
        126 => sa()?.wrapping_neg() as u64,
        128 => a()?.wrapping_add(b()?),
        130 => a()?.wrapping_sub(b()?),
        132 => a()?.wrapping_mul(b()?),
        134 => a()?.checked_div(b()?)?,
        135 => sa()?.checked_div(sb()?)? as u64,
        137 => a()?.checked_rem(b()?)?,
        138 => sa()?.checked_rem(sb()?)? as u64,
        139 => {
            let (a, b) = (sa()?, sb()?);
            let rest = a.checked_rem(b)?;
            (if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }) as u64
        }
        164 | 170 => u64::from(a()? == b()?),
        165 | 171 => u64::from(a()? != b()?),
        166 | 197 => a()? | b()?,
        167 | 199 => a()? & b()?,
        168 => u64::from(a()? == 0),
        169 => unsigned(if a()? != 0 { 1 } else { 2 })?,
        172 => u64::from(a()? > b()?),
        173 => u64::from(sa()? > sb()?),
        174 => u64::from(a()? >= b()?),
        175 => u64::from(sa()? >= sb()?),
        176 => u64::from(a()? < b()?),
        177 => u64::from(sa()? < sb()?),
        178 => u64::from(a()? <= b()?),
        179 => u64::from(sa()? <= sb()?),
        194 => a()?.checked_shr(u32::try_from(b()?).ok()?)?,
        195 => (sa()?).checked_shr(u32::try_from(b()?).ok()?)? as u64,
        196 => a()?.checked_shl(u32::try_from(b()?).ok()?)?,
        198 => a()? ^ b()?,
        200 => !a()?,
        _ => return None,
    })
}

fn width(scalar: Scalar) -> u32 {
    match scalar {
        Scalar::Bool => 1,
        Scalar::Uint(width) | Scalar::Int(width) | Scalar::Float(width) => width,
    }
}

fn scalar_bytes(scalar: Scalar) -> u64 {
    if scalar == Scalar::Bool { 4 } else { u64::from(width(scalar).div_ceil(8)) }
}

fn truncate(bits: u64, scalar: Scalar) -> u64 {
    let width = width(scalar);
    if width >= 64 { bits } else { bits & ((1 << width) - 1) }
}

fn sign_extend(bits: u64, scalar: Scalar) -> i64 {
    let unused = 64 - width(scalar).clamp(1, 64);
    ((bits << unused) as i64) >> unused
}

/// Decodes a SPIR-V literal string, up to the first zero byte.
fn string(words: &[u32]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
