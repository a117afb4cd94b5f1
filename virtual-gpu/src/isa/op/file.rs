//! The register file of a wavefront: its vector registers, and behind them buffers for operands that are none. So all
//! operands of a formula are rows of one file.

use super::lanes::LANES;

/// A word for each lane.
pub(crate) type Words = [u32; LANES];

/// Vector registers and accumulation registers of a wavefront.
pub(crate) const REGISTERS: usize = 512;
/// All rows: behind the registers two buffers for each of three sources, for a source with moved lanes, and for results.
pub(crate) const ROWS: usize = REGISTERS + 10;

/// The name of a row, which the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u16);

impl Name {
    /// The buffers of results.
    pub(crate) const RESULTS: [Name; 2] = [Name(520), Name(521)];
    /// The buffers of a source with moved lanes.
    pub(crate) const MOVED: [Name; 2] = [Name(518), Name(519)];

    /// Returns the name of a vector register.
    #[inline(always)]
    pub(crate) const fn register(n: u8) -> Name {
        Name(n as u16)
    }

    /// Returns the names of the buffers of a source.
    #[inline(always)]
    pub(crate) fn source(i: usize) -> [Name; 2] {
        let first = (REGISTERS + 2 * (i % 3)) as u16;
        [Name(first), Name(first + 1)]
    }

    /// Returns the number of the row, less than that of all rows.
    #[inline(always)]
    pub(crate) fn row(self) -> usize {
        usize::from(self.0)
    }
}

/// The rows of a wavefront, aligned as the host's cache lines are: its vectors lie in one line each.
#[repr(C, align(64))]
pub(crate) struct RegisterFile {
    registers: [Words; REGISTERS],
    sources: [[Words; 2]; 3],
    moved: [Words; 2],
    results: [Words; 2],
}

const _: () = assert!(size_of::<RegisterFile>() == ROWS * size_of::<Words>());

impl RegisterFile {
    pub(crate) fn new() -> Box<RegisterFile> {
        const PAIR: [Words; 2] = [[0; LANES]; 2];
        Box::new(RegisterFile {
            registers: [[0; LANES]; REGISTERS],
            sources: [PAIR; 3],
            moved: PAIR,
            results: PAIR,
        })
    }

    /// Returns all registers, and the buffers of a source.
    #[inline(always)]
    pub(crate) fn with_source(&mut self, i: usize) -> (&[Words; REGISTERS], &mut [Words; 2]) {
        (&self.registers, &mut self.sources[i % 3])
    }

    /// Returns the low or high words of the first source, which are in `name`, and the buffer of their moved lanes.
    #[inline(always)]
    pub(crate) fn with_moved(&mut self, name: Name, high: bool) -> (&Words, &mut Words) {
        let from = self.registers.get(name.row()).unwrap_or(&self.sources[0][usize::from(high)]);
        (from, &mut self.moved[usize::from(high)])
    }

    /// Returns all registers, and the buffers of results.
    #[inline(always)]
    pub(crate) fn with_results(&mut self) -> (&mut [Words; REGISTERS], &mut [Words; 2]) {
        (&mut self.registers, &mut self.results)
    }

    /// Returns a row.
    #[inline(always)]
    pub(crate) fn row(&self, name: Name) -> &Words {
        match name.row() {
            n if n < REGISTERS => &self.registers[n],
            n => {
                let buffers =
                    [&self.sources[0], &self.sources[1], &self.sources[2], &self.moved, &self.results];
                &buffers[(n - REGISTERS) / 2 % 5][n % 2]
            }
        }
    }
}

impl std::ops::Deref for RegisterFile {
    type Target = [Words; REGISTERS];

    #[inline(always)]
    fn deref(&self) -> &[Words; REGISTERS] {
        &self.registers
    }
}

impl std::ops::DerefMut for RegisterFile {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Words; REGISTERS] {
        &mut self.registers
    }
}
