//! Commands that would write again what is there already.
//!
//! Products of one input round it alike: for q, k and v, or for gate and up. A device's program is a list of commands
//! that read and write bytes; where one is the same as one before, and nobody has touched since what that one read and
//! wrote, it can be left out. Of all commands those come into question that write memory of the program's own (scratch),
//! which nobody reads but the commands behind them.

/// A range of a device's memory.
pub trait Range {
    /// Whether both have a byte in common.
    fn meets(&self, other: &Self) -> bool;
}

/// What commands have left in scratch, as long as nobody touches it.
#[derive(Debug)]
pub struct Repeats<C, R> {
    left: Vec<Left<C, R>>,
}

#[derive(Debug)]
struct Left<C, R> {
    command: C,
    reads: Vec<R>,
    writes: Vec<R>,
}

impl<C, R> Default for Repeats<C, R> {
    fn default() -> Self {
        Repeats { left: Vec::new() }
    }
}

impl<C: PartialEq, R: Range + Clone> Repeats<C, R> {
    /// Takes the next command, and says whether it need not run. `scratch`: all that it writes is scratch.
    pub fn repeats(&mut self, command: C, reads: &[R], writes: &[R], scratch: bool) -> bool {
        let meet = |a: &[R], b: &[R]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        if self.left.iter().any(|left| left.command == command) {
            return true;
        }
        self.left.retain(|left| !meet(writes, &left.reads) && !meet(writes, &left.writes));
        // What changes its own operands does something else when it runs again.
        if scratch && !meet(reads, writes) {
            self.left.push(Left { command, reads: reads.to_vec(), writes: writes.to_vec() });
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

    /// Inputs at 0 .. 20, scratch at 20 .. 30, results from 30 on.
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
