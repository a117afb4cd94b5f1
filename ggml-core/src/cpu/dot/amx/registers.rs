//! Tile registers.
//!
//! The registers belong to a thread and have no shape until they are configured. While they are configured,
//! context switches save them, and so do signals. [`Hardware`] configures them for one piece of work and releases
//! them when it is dropped.

use std::arch::asm;
use std::marker::PhantomData;

/// Rows and bytes of a row of the eight registers.
pub(super) trait Shapes {
    /// Rows and bytes, at most 16 and 64.
    const SHAPES: [[usize; 2]; 8];
}

/// Bytes of a register that is stored whole.
pub(super) const TILE_BYTES: usize = 1024;

/// Returns the bytes between the first and the last byte of the rows of register `T`, inclusive.
fn span<S: Shapes, const T: usize>(stride: usize) -> usize {
    let [rows, bytes] = S::SHAPES[T];
    (rows - 1) * stride + bytes
}

/// Eight registers of given shapes, and their operations.
///
/// In products, `A` has columns of activations as rows, and `B` rows of weights as lanes. All lanes have 32 bits.
pub(super) trait Registers<S: Shapes> {
    /// Sets a register to zero.
    fn zero<const T: usize>(&mut self);

    /// Loads the rows of a register, `stride` bytes apart.
    fn load<const T: usize>(&mut self, from: &[u8], stride: usize);

    /// Stores the rows of a register, `stride` bytes apart.
    fn store<const T: usize>(&mut self, to: &mut [u8], stride: usize);

    /// Adds to 32-bit integers of `C` the products of signed bytes of `A` and `B`.
    fn dot_i8<const C: usize, const A: usize, const B: usize>(&mut self);

    /// Adds to F32 values of `C` the products of BF16 values of `A` and `B`.
    fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self);
}

/// The processor's registers, configured for this thread until the value is dropped.
#[derive(Debug)]
pub(super) struct Hardware<S>(PhantomData<(S, *const ())>);

/// Memory format of a configuration.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl<S: Shapes> Hardware<S> {
    /// The configuration for the shapes.
    const CONFIG: Config = {
        let mut config = Config { palette: 1, start: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            let [rows, bytes] = S::SHAPES[tile];
            assert!(0 < rows && rows <= 16 && 0 < bytes && bytes <= 64);
            (config.bytes[tile], config.rows[tile]) = (bytes as u16, rows as u8);
            tile += 1;
        }
        config
    };

    /// Configures the registers.
    ///
    /// # Safety
    /// [`Isa::Amx`](crate::cpu::isa::Isa::Amx) is available: the processor has AMX, and the kernel has permitted it
    /// to this process. This thread has no other value of this type.
    pub(super) unsafe fn configure() -> Hardware<S> {
        let config = Self::CONFIG;
        // SAFETY: the instruction reads the 64 bytes of a valid configuration, and the caller guarantees that it
        // exists and is permitted.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(readonly, nostack, preserves_flags));
        }
        Hardware(PhantomData)
    }
}

impl<S> Drop for Hardware<S> {
    fn drop(&mut self) {
        // SAFETY: a value exists only where the instructions do. No other register changes.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

// The registers are unknown to the compiler, which uses none of them, so no clobbers are declared. All blocks may
// access memory, which keeps them in order.
impl<S: Shapes> Registers<S> for Hardware<S> {
    #[inline(always)]
    fn zero<const T: usize>(&mut self) {
        // SAFETY: the registers are configured as long as a value exists.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    fn load<const T: usize>(&mut self, from: &[u8], stride: usize) {
        assert!(from.len() >= span::<S, T>(stride), "rows of a tile are outside of their operand");
        // SAFETY: as above; the bytes of all rows are within the slice.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from.as_ptr(),
                stride = in(reg) stride, options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn store<const T: usize>(&mut self, to: &mut [u8], stride: usize) {
        assert!(to.len() >= span::<S, T>(stride), "rows of a tile are outside of their result");
        // SAFETY: as above.
        unsafe {
            asm!("tilestored [{to} + {stride}], tmm{t}", t = const T, to = in(reg) to.as_mut_ptr(),
                stride = in(reg) stride, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn dot_i8<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: the registers are configured as long as a value exists, and the shapes of the three fit.
        unsafe {
            const { assert!(fit(S::SHAPES[C], S::SHAPES[A], S::SHAPES[B])) };
            asm!("tdpbssd tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: as above.
        unsafe {
            const { assert!(fit(S::SHAPES[C], S::SHAPES[A], S::SHAPES[B])) };
            asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nostack, preserves_flags));
        }
    }
}

/// True if a register of shape `a` can be multiplied with one of shape `b`, for a result of shape `c`.
const fn fit(c: [usize; 2], a: [usize; 2], b: [usize; 2]) -> bool {
    c[0] == a[0] && c[1] == b[1] && a[1] == 4 * b[0]
}

#[cfg(test)]
pub(super) mod model {
    //! Registers in software, by the definition of the instructions.

    use super::{Registers, Shapes, fit};
    use std::marker::PhantomData;

    /// Eight registers.
    pub(in super::super) struct Model<S>([[u8; 1024]; 8], PhantomData<S>);

    impl<S: Shapes> Model<S> {
        /// Creates registers with contents that no kernel may use.
        pub(in super::super) fn new() -> Model<S> {
            Model([[0xff; 1024]; 8], PhantomData)
        }

        fn lane(&self, tile: usize, row: usize, lane: usize) -> [u8; 4] {
            let at = 64 * row + 4 * lane;
            [0, 1, 2, 3].map(|i| self.0[tile][at + i])
        }

        /// Replaces each lane of `C` by `f` of it and of the four bytes of `A` and of `B` at each step.
        fn dot<const C: usize, const A: usize, const B: usize>(
            &mut self,
            f: impl Fn([u8; 4], [u8; 4], [u8; 4]) -> [u8; 4],
        ) {
            assert!(fit(S::SHAPES[C], S::SHAPES[A], S::SHAPES[B]));
            let [rows, bytes] = S::SHAPES[C];
            for (row, lane) in (0..rows).flat_map(|row| (0..bytes / 4).map(move |lane| (row, lane))) {
                let steps = 0..S::SHAPES[B][0];
                let sum = steps.fold(self.lane(C, row, lane), |sum, k| {
                    f(sum, self.lane(A, row, k), self.lane(B, k, lane))
                });
                self.0[C][64 * row + 4 * lane..][..4].copy_from_slice(&sum);
            }
        }
    }

    impl<S: Shapes> Registers<S> for Model<S> {
        fn zero<const T: usize>(&mut self) {
            self.0[T] = [0; 1024];
        }

        fn load<const T: usize>(&mut self, from: &[u8], stride: usize) {
            let [rows, bytes] = S::SHAPES[T];
            self.0[T] = [0; 1024];
            for row in 0..rows {
                self.0[T][64 * row..][..bytes].copy_from_slice(&from[row * stride..][..bytes]);
            }
        }

        fn store<const T: usize>(&mut self, to: &mut [u8], stride: usize) {
            let [rows, bytes] = S::SHAPES[T];
            for row in 0..rows {
                to[row * stride..][..bytes].copy_from_slice(&self.0[T][64 * row..][..bytes]);
            }
        }

        fn dot_i8<const C: usize, const A: usize, const B: usize>(&mut self) {
            self.dot::<C, A, B>(|sum, a, b| {
                let products = (0..4).map(|i| i32::from(a[i] as i8) * i32::from(b[i] as i8));
                (i32::from_le_bytes(sum) + products.sum::<i32>()).to_le_bytes()
            });
        }

        fn dot_bf16<const C: usize, const A: usize, const B: usize>(&mut self) {
            let float = |low, high| f32::from_bits(u32::from_le_bytes([0, 0, low, high]));
            self.dot::<C, A, B>(|sum, a, b| {
                let products = float(a[0], a[1]) * float(b[0], b[1]) + float(a[2], a[3]) * float(b[2], b[3]);
                (f32::from_le_bytes(sum) + products).to_le_bytes()
            });
        }
    }
}
