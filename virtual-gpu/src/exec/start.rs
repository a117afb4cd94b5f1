//! Contents of registers and scratch when a wavefront starts.

use super::group::Group;
use super::wave::Wave;
use crate::isa::op::lanes::LANES;
use crate::isa::operand::NULL;
use crate::random::mix;

impl Group<'_> {
    /// Returns a name for the contents of a wavefront.
    fn name(&self, wave: &Wave, part: u64) -> u64 {
        let [x, y, z] = self.id().map(u64::from);
        mix(x << 40 ^ y << 20 ^ z, 3 * u64::from(wave.id) + part)
    }

    /// Sets the scalar registers to what they may hold before the kernel's own are set.
    pub(super) fn start_scalars(&self, wave: &mut Wave) {
        match self.noise().words(self.name(wave, 0), wave.scalars.registers.len()) {
            Some(words) => wave.scalars.registers.copy_from_slice(words),
            None => wave.scalars.registers.fill(0),
        }
        wave.scalars.registers[usize::from(NULL & 127)] = 0;
    }

    /// Sets as many vector registers and accumulation registers, and the scratch.
    pub(super) fn start_vectors(&self, wave: &mut Wave, vectors: usize, accumulators: usize) {
        let bytes = self.scratch_bytes() as usize * LANES;
        wave.scratch.clear();
        let names = [1, 2].map(|part| self.name(wave, part));
        let parts = wave.vgpr.as_chunks_mut::<HALF>().0;
        for ((registers, count), name) in parts.iter_mut().zip([vectors, accumulators]).zip(names) {
            let registers = &mut registers[..count.min(HALF)];
            match self.noise().words(name, registers.len() * LANES) {
                Some(words) => registers.as_flattened_mut().copy_from_slice(words),
                None => registers.fill([0; LANES]),
            }
        }
        match self.noise().words(names[0], SCRATCH) {
            Some(words) => {
                while wave.scratch.len() < bytes {
                    wave.scratch.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                }
                wave.scratch.truncate(bytes);
            }
            None => wave.scratch.resize(bytes, 0),
        }
    }
}

/// Vector registers, and as many accumulation registers.
const HALF: usize = 256;
/// Words after which the contents of scratch repeat.
const SCRATCH: usize = 4096;
