//! Elimination of repeated commands.
//!
//! Several products of one input quantise it in the same way: q, k and v, or gate and up. A device's program
//! is a list of commands that read and write bytes. A command can be left out if it equals an earlier command
//! and nothing has since written the bytes that the earlier one read and wrote. Only commands that write
//! scratch are candidates: memory owned by the program and read only by later commands.

/// A range of a device's memory.
pub trait Range {
    /// True if both ranges share a byte.
    fn meets(&self, other: &Self) -> bool;
}

/// Commands whose results in scratch are still valid.
#[derive(Debug)]
pub struct Repeats<C, R> {
    valid: Vec<ValidCommand<C, R>>,
}

#[derive(Debug)]
struct ValidCommand<C, R> {
    command: C,
    reads: Vec<R>,
    writes: Vec<R>,
}

impl<C, R> Default for Repeats<C, R> {
    fn default() -> Self {
        Repeats { valid: Vec::new() }
    }
}

impl<C: PartialEq, R: Range + Clone> Repeats<C, R> {
    /// Registers the next command and returns true if it can be left out. `scratch`: it writes scratch only.
    pub fn repeats(&mut self, command: C, reads: &[R], writes: &[R], scratch: bool) -> bool {
        let meet = |a: &[R], b: &[R]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        if self.valid.iter().any(|known| known.command == command) {
            return true;
        }
        self.valid.retain(|known| !meet(writes, &known.reads) && !meet(writes, &known.writes));
        // A command that overwrites its own operands gives another result when run again.
        if scratch && !meet(reads, writes) {
            self.valid.push(ValidCommand { command, reads: reads.to_vec(), writes: writes.to_vec() });
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Bytes {
        begin: u32,
        end: u32,
    }

    impl Range for Bytes {
        fn meets(&self, other: &Self) -> bool {
            self.begin < other.end && other.begin < self.end
        }
    }

    fn bytes(begin: u32, end: u32) -> [Bytes; 1] {
        [Bytes { begin, end }]
    }

    /// Inputs at 0 .. 20, scratch at 20 .. 30, results from 30.
    #[test]
    fn a_command_runs_again_when_something_changed() {
        let mut all = Repeats::default();
        let round = |input: u32, all: &mut Repeats<_, _>| {
            all.repeats(("round", input), &bytes(input, input + 10), &bytes(20, 26), true)
        };
        let product = |to: u32, all: &mut Repeats<_, _>| {
            all.repeats(("product", to), &bytes(20, 26), &bytes(to, to + 5), false)
        };
        assert!(!round(0, &mut all));
        assert!(!product(30, &mut all) && !product(40, &mut all));
        assert!(round(0, &mut all), "nothing has changed");
        assert!(!round(10, &mut all), "another input");
        assert!(!round(0, &mut all), "the other one's numbers are there");
        assert!(!product(5, &mut all));
        assert!(!round(0, &mut all), "the input has changed");
        assert!(round(0, &mut all));
        assert!(!all.repeats(("gather", 0), &bytes(10, 20), &bytes(26, 30), true));
        assert!(round(0, &mut all), "each has its place");
        assert!(!all.repeats(("parts", 0), &bytes(0, 10), &bytes(24, 28), true));
        assert!(!round(0, &mut all), "others have used scratch");
    }

    #[test]
    fn what_changes_its_own_operand_runs_each_time() {
        let mut all = Repeats::default();
        for _ in 0..2 {
            assert!(!all.repeats("add", &bytes(0, 10), &bytes(5, 8), true));
        }
    }
}
