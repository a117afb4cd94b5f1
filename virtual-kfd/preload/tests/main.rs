//! The real ROCm on virtual cards: a HIP program that knows nothing of them, for each user space that is there.

mod faults;
mod roots;
mod works;
