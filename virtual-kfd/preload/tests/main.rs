//! The real ROCm on virtual cards: a HIP program that knows nothing of them, for each user space that is there.

mod faults;
mod left;
mod overruns;
mod printf;
mod roots;
mod sharing;
mod table;
mod works;
